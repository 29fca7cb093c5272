//! Functions that the expansion of [`scan!`](crate::scan) calls.
#![doc(hidden)]

pub use crate::call;
pub use burn::backend::DispatchTensor as Output;
pub use oplus_macros::scan_for;

use burn::backend::DispatchTensor;
use burn::tensor::{Tensor, kind::Basic};

/// A field of a kernel's inputs as [`call`] takes it.
pub fn input<const AXES: usize, K: Basic>(tensor: &Tensor<AXES, K>) -> DispatchTensor {
    tensor.clone().into_dispatch()
}

/// A tensor of [`call`], as a field of a kernel's outputs.
pub fn output<const AXES: usize, K: Basic>(tensor: DispatchTensor) -> Tensor<AXES, K> {
    Tensor::from_dispatch(tensor)
}
