//! Vectors of values: what registers, states and temporaries hold.

use std::ops::Range;

use oplus_dsl::Ty;
use oplus_dsl::ir::Literal;

use super::CpuError;
use crate::room::reserve;

/// A type of values, as [`Ty`] names it.
pub(super) trait Scalar: Copy + Default + Send + Sync + PartialEq + 'static {
    /// The value that a literal stands for.
    fn of(literal: Literal) -> Self;
    /// Whether it is neither infinite nor no number.
    fn is_finite(self) -> bool;
    /// The slice, if its elements have this type.
    fn cast(slice: Slice<'_>) -> Option<&[Self]>;
    /// The vector, if its elements have this type.
    fn cast_mut(values: &mut Values) -> Option<&mut Vec<Self>>;
    /// The slice without its type.
    fn erase(slice: &[Self]) -> Slice<'_>;
}

macro_rules! value_types {
    ($($t:ty, $variant:ident, $name:literal, $literal:ident => $value:expr, $x:ident => $is_finite:expr;)*) => {
        /// A vector of values of one type.
        #[derive(Debug, PartialEq)]
        pub(super) enum Values {
            $(#[doc = $name] $variant(Vec<$t>),)*
        }

        /// A slice of values of one type.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(super) enum Slice<'a> {
            $(#[doc = $name] $variant(&'a [$t]),)*
        }

        impl Values {
            /// No values of a type. `call` and `tuple`, which no value of an instantiated program has, are taken for
            /// `f64`.
            pub(super) const fn empty(ty: Ty) -> Values {
                match ty {
                    $(Ty::$variant => Values::$variant(Vec::new()),)*
                    Ty::Call | Ty::Wide | Ty::Tuple => Values::F64(Vec::new()),
                }
            }

            /// The type of its values.
            pub(super) fn ty(&self) -> Ty {
                match self {
                    $(Values::$variant(_) => Ty::$variant,)*
                }
            }

            /// How many values there are.
            pub(super) fn len(&self) -> usize {
                match self {
                    $(Values::$variant(all) => all.len(),)*
                }
            }

            /// The values from one on; none if there are fewer.
            pub(super) fn from(&self, start: usize) -> Slice<'_> {
                match self {
                    $(Values::$variant(all) => Slice::$variant(all.get(start..).unwrap_or_default()),)*
                }
            }
        }

        impl<'a> Slice<'a> {
            /// The elements from one on; none if there are fewer.
            pub(super) fn from(self, start: usize) -> Slice<'a> {
                match self {
                    $(Slice::$variant(all) => Slice::$variant(all.get(start..).unwrap_or_default()),)*
                }
            }

            /// The first n elements.
            pub(super) fn to(self, n: usize) -> Slice<'a> {
                match self {
                    $(Slice::$variant(all) => Slice::$variant(&all[..n]),)*
                }
            }

            /// The type of its values.
            pub(super) fn ty(self) -> Ty {
                match self {
                    $(Slice::$variant(_) => Ty::$variant,)*
                }
            }

            /// How many elements there are.
            pub(super) fn len(self) -> usize {
                match self {
                    $(Slice::$variant(all) => all.len(),)*
                }
            }

            /// A copy of the elements.
            ///
            /// # Errors
            /// [`CpuError::OutOfMemory`].
            pub(super) fn to_values(self) -> Result<Values, CpuError> {
                let mut values = Values::empty(self.ty());
                values.copy_from(self)?;
                Ok(values)
            }
        }

        $(impl Scalar for $t {
            fn of($literal: Literal) -> Self {
                $value
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                let $x = self;
                $is_finite
            }

            fn cast(slice: Slice<'_>) -> Option<&[Self]> {
                if let Slice::$variant(all) = slice { Some(all) } else { None }
            }

            fn cast_mut(values: &mut Values) -> Option<&mut Vec<Self>> {
                if let Values::$variant(all) = values { Some(all) } else { None }
            }

            fn erase(slice: &[Self]) -> Slice<'_> {
                Slice::$variant(slice)
            }
        })*
    };
}

value_types! {
    f64, F64, "`f64`.", literal => literal.as_f64(), x => f64::is_finite(x);
    f32, F32, "`f32`.", literal => literal.as_f64() as f32, x => f32::is_finite(x);
    i32, I32, "`i32`.", literal => integer(literal) as i32, _x => true;
    i64, I64, "`i64`.", literal => integer(literal), _x => true;
    u32, U32, "`u32`.", literal => integer(literal) as u32, _x => true;
    u64, U64, "`u64`.", literal => integer(literal) as u64, _x => true;
    bool, Bool, "`bool`.", literal => integer(literal) != 0, _x => true;
}

/// Evaluates an expression with `$t` standing for the Rust type of a [`Ty`], as [`Values::empty`] takes it.
macro_rules! with_type {
    ($ty:expr, $t:ident => $body:expr) => {
        with_type!(@arms $ty, $t, $body, F32 f32, I32 i32, I64 i64, U32 u32, U64 u64, Bool bool)
    };
    (@arms $ty:expr, $t:ident, $body:expr, $($variant:ident $rust:ty),*) => {
        match $ty {
            $(oplus_dsl::Ty::$variant => {
                type $t = $rust;
                $body
            })*
            oplus_dsl::Ty::F64 | oplus_dsl::Ty::Call | oplus_dsl::Ty::Wide | oplus_dsl::Ty::Tuple => {
                type $t = f64;
                $body
            }
        }
    };
}
pub(super) use with_type;

impl Values {
    /// One value, n times.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn filled(ty: Ty, n: usize, literal: Literal) -> Result<Values, CpuError> {
        let mut values = Values::empty(ty);
        values.fill(n, literal)?;
        Ok(values)
    }

    /// The first n values become one literal.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn fill(&mut self, n: usize, literal: Literal) -> Result<(), CpuError> {
        with_type!(self.ty(), T => self.room::<T>(n)?.fill(T::of(literal)));
        Ok(())
    }

    /// The first n values become one literal, but for those in a range, which hold anything.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn fill_outside(&mut self, n: usize, range: Range<usize>, literal: Literal) -> Result<(), CpuError> {
        with_type!(self.ty(), T => {
            let all = self.room::<T>(n)?;
            all[..range.start].fill(T::of(literal));
            all[range.end..].fill(T::of(literal));
        });
        Ok(())
    }

    /// Makes room for n values.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn grow(&mut self, n: usize) -> Result<(), CpuError> {
        with_type!(self.ty(), T => self.room::<T>(n).map(|_| ()))
    }

    /// Reserves memory for n values.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn reserve(&mut self, n: usize) -> Result<(), CpuError> {
        with_type!(self.ty(), T => {
            let all = T::cast_mut(self).expect("the type that the verifier found");
            Ok(reserve(all, n)?)
        })
    }

    /// Becomes a copy of values of the same type.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn copy_from(&mut self, values: Slice<'_>) -> Result<(), CpuError> {
        with_type!(self.ty(), T => {
            let (own, values) = (T::cast_mut(self).expect("the type that the verifier found"), values.of::<T>());
            own.clear();
            reserve(own, values.len())?;
            own.extend_from_slice(values);
        });
        Ok(())
    }

    /// Copies of several vectors.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn copies(all: &[Values]) -> Result<Vec<Values>, CpuError> {
        all.iter().map(|values| values.from(0).to_values()).collect()
    }

    /// All values, to be written.
    pub(super) fn all<T: Scalar>(&mut self) -> &mut [T] {
        T::cast_mut(self).expect("the type that the verifier found")
    }

    /// The first n values, to be written; there are as many after this.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn room<T: Scalar>(&mut self, n: usize) -> Result<&mut [T], CpuError> {
        let all = T::cast_mut(self).expect("the type that the verifier found");
        if all.len() < n {
            reserve(all, n)?;
            all.resize(n, T::default());
        }
        Ok(&mut all[..n])
    }
}

impl<'a> Slice<'a> {
    /// The elements as values of a type.
    pub(super) fn of<T: Scalar>(self) -> &'a [T] {
        T::cast(self).expect("the type that the verifier found")
    }
}

fn integer(literal: Literal) -> i64 {
    match literal {
        Literal::Int(i) => i,
        Literal::Bool(b) => i64::from(b),
        Literal::Float(x) => x as i64,
    }
}
