//! Tensors of the caller, as the engine reads and writes them.

use std::sync::Mutex;

use bytemuck::{try_cast_slice, try_cast_slice_mut};
use half::{bf16, f16};
use oplus_dsl::Elem;

use super::CpuError;
use super::partition::Partition;
use crate::room::room;

/// The parts of a tensor that one task writes, until it takes them.
pub(super) type TaskParts<'a> = Mutex<Option<Parts<'a>>>;

macro_rules! element_types {
    ($($t:ty, $variant:ident;)*) => {
        /// Elements to be read.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Data<'a> {
            $(#[doc = concat!("`", stringify!($variant), "`.")] $variant(&'a [$t]),)*
        }

        /// Elements to be written.
        #[derive(Debug)]
        pub(crate) enum DataMut<'a> {
            $(#[doc = concat!("`", stringify!($variant), "`.")] $variant(&'a mut [$t]),)*
        }

        /// The disjoint parts of a tensor that one task writes.
        #[derive(Debug)]
        pub(super) enum Parts<'a> {
            $(#[doc = concat!("`", stringify!($variant), "`.")] $variant(Vec<&'a mut [$t]>),)*
        }

        impl<'a> Data<'a> {
            /// The elements that the bytes encode; `None` for bytes that are misaligned or break off.
            pub(crate) fn cast(elem: Elem, bytes: &'a [u8]) -> Option<Data<'a>> {
                match elem {
                    $(Elem::$variant => try_cast_slice(bytes).ok().map(Data::$variant),)*
                    Elem::Call | Elem::State | Elem::Wide => None,
                }
            }

            /// The elements.
            pub(crate) fn elem(&self) -> Elem {
                match self {
                    $(Data::$variant(_) => Elem::$variant,)*
                }
            }

            /// How many elements there are.
            pub(crate) fn len(&self) -> usize {
                match self {
                    $(Data::$variant(all) => all.len(),)*
                }
            }
        }

        impl DataMut<'_> {
            /// Borrows the elements for a shorter time.
            pub(super) fn borrow(&mut self) -> DataMut<'_> {
                match self {
                    $(DataMut::$variant(all) => DataMut::$variant(all),)*
                }
            }
        }

        impl Parts<'_> {
            /// Whether the task writes nothing.
            pub(super) fn is_empty(&self) -> bool {
                match self {
                    $(Parts::$variant(slices) => slices.is_empty(),)*
                }
            }
        }

        impl<'a> DataMut<'a> {
            /// The parts that each task writes, of the elements from one on.
            ///
            /// # Errors
            /// [`CpuError::OutOfMemory`].
            pub(super) fn split(self, start: usize, partition: &Partition) -> Result<Vec<TaskParts<'a>>, CpuError> {
                match self {
                    $(DataMut::$variant(all) => {
                        let parts = partition.split(&mut all[start..])?;
                        let mut tasks = room(parts.len())?;
                        tasks.extend(parts.into_iter().map(|parts| Mutex::new(Some(Parts::$variant(parts)))));
                        Ok(tasks)
                    })*
                }
            }

            /// The elements that the bytes encode; `None` for bytes that are misaligned or break off.
            pub(crate) fn cast(elem: Elem, bytes: &'a mut [u8]) -> Option<DataMut<'a>> {
                match elem {
                    $(Elem::$variant => try_cast_slice_mut(bytes).ok().map(DataMut::$variant),)*
                    Elem::Call | Elem::State | Elem::Wide => None,
                }
            }

            /// The elements.
            pub(crate) fn elem(&self) -> Elem {
                match self {
                    $(DataMut::$variant(_) => Elem::$variant,)*
                }
            }

            /// How many elements there are.
            pub(crate) fn len(&self) -> usize {
                match self {
                    $(DataMut::$variant(all) => all.len(),)*
                }
            }
        }
    };
}

element_types! {
    f64, F64;
    f32, F32;
    bf16, Bf16;
    f16, F16;
    i32, I32;
    i64, I64;
    u32, U32;
    u64, U64;
    u8, Bool;
}

/// Evaluates an expression with `$all` standing for the typed contents of a [`Data`], [`DataMut`] or [`Parts`].
macro_rules! with_elements {
    ($kind:ident, $value:expr, $all:ident => $body:expr) => {
        match $value {
            $kind::F64($all) => $body,
            $kind::F32($all) => $body,
            $kind::Bf16($all) => $body,
            $kind::F16($all) => $body,
            $kind::I32($all) => $body,
            $kind::I64($all) => $body,
            $kind::U32($all) => $body,
            $kind::U64($all) => $body,
            $kind::Bool($all) => $body,
        }
    };
}
pub(super) use with_elements;

/// A tensor to be read: index i₀, i₁, … of its axes is element `offset + Σ iₖ·strides[k]`.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    /// The memory.
    pub(crate) data: Data<'a>,
    /// The element of index 0, 0, ….
    pub(crate) offset: usize,
    /// The distance between neighbours along every axis; 0 where all indices share one element.
    pub(crate) strides: Vec<i64>,
}

/// A tensor to be written: index i₀, i₁, … of its axes is element `offset + Σ iₖ·strides[k]`, and no two indices share
/// an element.
#[derive(Debug)]
pub(crate) struct ViewMut<'a> {
    /// The memory.
    pub(crate) data: DataMut<'a>,
    /// The element of index 0, 0, ….
    pub(crate) offset: usize,
    /// The distance between neighbours along every axis.
    pub(crate) strides: Vec<i64>,
}
