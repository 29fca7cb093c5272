//! Rust types that tensors can store.

use oplus_dsl::Elem;

use crate::room::{Refused, repeated, room};

/// Memory that holds elements as bytes.
pub(crate) trait HostBytes: Send + Sync {
    /// All bytes.
    fn bytes(&self) -> &[u8];
    /// All bytes, to be written.
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl<T: bytemuck::Pod + Send + Sync> HostBytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }
}

pub(crate) mod sealed {
    /// Conversion between vectors and the bytes of a tensor.
    pub trait Bytes: Sized {
        /// The vector's memory, without copying where the type allows it.
        #[allow(private_interfaces)]
        fn own(vec: Vec<Self>) -> Box<dyn super::HostBytes>;
        /// The elements that the bytes encode.
        #[allow(private_interfaces)]
        fn collect(bytes: &[u8]) -> Result<Vec<Self>, super::Refused>;
    }
}

/// A Rust type that a tensor can store: `f64`, `f32`, [`half::bf16`], [`half::f16`], `i32`, `i64`, `u32`, `u64`, `bool`.
pub trait Element: sealed::Bytes + Copy + Send + Sync + 'static {
    /// The element type.
    const ELEM: Elem;
}

macro_rules! plain_element {
    ($($rust:ty => $elem:ident),*) => {$(
        impl Element for $rust {
            const ELEM: Elem = Elem::$elem;
        }

        impl sealed::Bytes for $rust {
            #[allow(private_interfaces)]
            fn own(vec: Vec<Self>) -> Box<dyn HostBytes> {
                Box::new(vec)
            }

            #[allow(private_interfaces)]
            fn collect(bytes: &[u8]) -> Result<Vec<Self>, Refused> {
                let mut all = repeated(<$rust>::default(), bytes.len() / size_of::<$rust>())?;
                bytemuck::cast_slice_mut(&mut all).copy_from_slice(bytes);
                Ok(all)
            }
        }
    )*};
}

plain_element!(f64 => F64, f32 => F32, half::bf16 => Bf16, half::f16 => F16, i32 => I32, i64 => I64, u32 => U32, u64 => U64);

impl Element for bool {
    const ELEM: Elem = Elem::Bool;
}

impl sealed::Bytes for bool {
    #[allow(private_interfaces)]
    fn own(vec: Vec<Self>) -> Box<dyn HostBytes> {
        Box::new(vec.into_iter().map(u8::from).collect::<Vec<u8>>())
    }

    #[allow(private_interfaces)]
    fn collect(bytes: &[u8]) -> Result<Vec<Self>, Refused> {
        let mut all = room(bytes.len())?;
        all.extend(bytes.iter().map(|&b| b != 0));
        Ok(all)
    }
}
