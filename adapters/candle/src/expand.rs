//! Functions that the expansion of [`scan!`](crate::scan) calls.
#![doc(hidden)]

pub use crate::call;
pub use candle_core::Tensor as Output;
pub use oplus_macros::scan_for;

use candle_core::Tensor;

/// A field of a kernel's inputs as [`call`] takes it.
pub fn input(tensor: &Tensor) -> &Tensor {
    tensor
}

/// A tensor of [`call`], as a field of a kernel's outputs.
pub fn output(tensor: Tensor) -> Tensor {
    tensor
}
