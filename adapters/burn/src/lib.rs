#![doc = include_str!("../README.md")]

mod elements;
mod error;
pub mod expand;
mod graph;
mod memory;
mod tensors;

use std::ops::Deref;
use std::sync::Arc;

use burn::backend::Flex;
use burn::tensor::{Bool as BoolKind, Int as IntKind, Tensor};
use oplus::Kernel;

use memory::Memory;
use tensors::Inputs;

pub use burn::backend::DispatchTensor;
pub use error::Error;
pub use oplus;

/// A tensor of floats with this number of axes.
pub type Float<const AXES: usize> = Tensor<AXES>;

/// A tensor of integers with this number of axes.
pub type Int<const AXES: usize> = Tensor<AXES, IntKind>;

/// A tensor of truth values with this number of axes.
pub type Bool<const AXES: usize> = Tensor<AXES, BoolKind>;

/// A float: a tensor with one element, as burn has none without axes.
pub type FloatScalar = Tensor<1>;

/// An integer: a tensor with one element.
pub type IntScalar = Tensor<1, IntKind>;

/// A truth value: a tensor with one element.
pub type BoolScalar = Tensor<1, BoolKind>;

/// Calls a kernel with tensors of burn: one entry for each of its parameters, `None` for those left to their default. Gives one
/// tensor for each of its outputs. Tensors of any number of axes and of any kind come and go as [`DispatchTensor`].
///
/// Where an input requires gradients, the outputs are part of its graph: `backward` runs the kernel's derived gradient once, from the
/// cotangents of those outputs that the loss depends on. Otherwise nothing is recorded.
///
/// `kernel` is what `scan!` has made (`peaks::kernel()`, a `&'static Kernel`), or an [`Arc`] of a kernel made at run time.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use oplus_burn::{call, kernels};
///
/// let x = Tensor::<2>::from_data([[1.0_f32, 2.0, 3.0]], &Device::flex().autodiff()).require_grad();
/// let outputs = call(kernels::cumsum::kernel(), &[Some(x.clone().into_dispatch())])?;
/// let y = Tensor::<2>::from_dispatch(outputs[0].clone());
/// assert_eq!(y.clone().into_data().try_to_vec::<f32>().unwrap(), [1.0, 3.0, 6.0]);
/// let gradients = y.backward();
/// assert_eq!(x.grad(&gradients).unwrap().into_data().try_to_vec::<f32>().unwrap(), [3.0, 2.0, 1.0]);
/// # Ok::<(), oplus_burn::Error>(())
/// ```
///
/// # Errors
/// [`Error::Call`] with the errors of [`Kernel::call`]; tensors whose type no kernel has, or whose backend no kernel runs on.
///
/// # Panics
/// `backward`, which gives no errors in burn, panics where the kernel's gradient fails: when memory runs out, or where it has none.
pub fn call<K>(kernel: K, inputs: &[Option<DispatchTensor>]) -> Result<Vec<DispatchTensor>, Error>
where
    K: Deref<Target = Kernel> + Send + Sync + 'static,
{
    #[cfg(feature = "cuda")]
    if inputs.iter().flatten().any(|tensor| burn::backend::Cube::of(tensors::inner(tensor)).is_some()) {
        return call_on::<burn::backend::Cube, K>(kernel, inputs);
    }
    call_on::<Flex, K>(kernel, inputs)
}

/// Calls a kernel with tensors of one backend.
fn call_on<B, K>(kernel: K, inputs: &[Option<DispatchTensor>]) -> Result<Vec<DispatchTensor>, Error>
where
    B: Memory,
    K: Deref<Target = Kernel> + Send + Sync + 'static,
{
    let inputs = Inputs::<B>::new(&kernel, inputs)?;
    let made = memory::forward::<B>(&kernel, inputs.primitives().to_vec(), inputs.is_tracked())?;
    match inputs.is_tracked() {
        true => Ok(graph::record(Arc::new(kernel), inputs, made)),
        false => Ok(inputs.untracked(made.outputs)),
    }
}

/// Recurrences as equations over named axes, called with tensors of burn.
///
/// A block is what [`oplus::scan!`] takes, where the language is described. A kernel `peaks` expands to a function `peaks`, the structs
/// `Peaks` of its inputs and `PeaksOutput` of its outputs, and a module `peaks` with `kernel()` and `explain()`. Gradients are found by
/// burn's `backward`.
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// oplus_burn::scan! {
///     /// Peaks that sink: first by d, then overtaken by h.
///     pub op LeakyMax(d, h) {
///         identity (0, -inf);
///         combine(l, r) (l.d + r.d, max(l.h - r.d, r.h));
///     }
///
///     /// h[t] = max(h[t−1] − d[t], x[t]).
///     pub fn peaks(x: [T], d: [T]) -> (h: [T]) {
///         h = scan(T, LeakyMax(d, x)).h;
///     }
/// }
///
/// let device = Device::flex().autodiff();
/// let x = Tensor::<1>::from_data([3.0_f32, 0.0, 1.0], &device);
/// let d = Tensor::<1>::from_data([0.5_f32; 3], &device).require_grad();
/// let h = peaks(Peaks { x, d: d.clone() })?.h;
/// assert_eq!(h.clone().into_data().try_to_vec::<f32>().unwrap(), [3.0, 2.5, 2.0]);
/// assert_eq!(d.grad(&h.backward()).unwrap().into_data().try_to_vec::<f32>().unwrap(), [0.0, -2.0, -1.0]);
/// # Ok::<(), oplus_burn::Error>(())
/// ```
#[macro_export]
macro_rules! scan {
    ($($block:tt)*) => { $crate::expand::scan_for! { [$crate] $($block)* } };
}

extern crate self as oplus_burn;

oplus_macros::standard_for! { [::oplus_burn] }

/// The chapter of the book, whose blocks of code are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/burn.md")]
mod chapter {}
