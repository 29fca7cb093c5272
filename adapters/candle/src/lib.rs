#![doc = include_str!("../README.md")]

mod elements;
pub mod expand;
mod graph;
mod memory;
mod types;

use std::ops::Deref;
use std::sync::Arc;

pub use candle_core::{Error, Result, Tensor};
pub use oplus;
pub use types::{Bool, BoolScalar, Float, FloatScalar, Int, IntScalar};

use oplus::Kernel;

/// Calls a kernel with tensors of candle: one entry for each of its parameters, `None` for those left to their default. Gives one
/// tensor for each of its outputs.
///
/// Where an input is part of a graph, so are the outputs: `backward` runs the kernel's derived gradient once, from the cotangents of
/// those outputs that the loss depends on. Otherwise nothing is recorded. The gradient itself is not differentiable.
///
/// `kernel` is what `scan!` has made (`peaks::kernel()`, a `&'static Kernel`), or an [`Arc`] of a kernel made at run time.
///
/// ```
/// use oplus_candle::{call, kernels};
/// use candle_core::{Device, Tensor, Var};
///
/// let x = Var::new(&[[1.0_f32, 2.0, 3.0]], &Device::Cpu)?;
/// let outputs = call(kernels::cumsum::kernel(), &[Some(x.as_tensor())])?;
/// assert_eq!(outputs[0].to_vec2::<f32>()?, [[1.0, 3.0, 6.0]]);
/// assert_eq!(outputs[0].backward()?.get(&x).unwrap().to_vec2::<f32>()?, [[3.0, 2.0, 1.0]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// The errors of [`Kernel::call`], in its words; tensors whose type no kernel has, or that are on a device without kernels.
pub fn call<K>(kernel: K, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>>
where
    K: Deref<Target = Kernel> + Send + Sync + 'static,
{
    let is_tracked = graph::is_tracked(inputs);
    let made = memory::forward(&kernel, inputs, is_tracked)?;
    if is_tracked { graph::record(Arc::new(kernel), inputs, made) } else { Ok(made.into_tensors()) }
}

/// Recurrences as equations over named axes, called with tensors of candle.
///
/// A block is what [`oplus::scan!`] takes, where the language is described. A kernel `peaks` expands to a function `peaks`, the structs
/// `Peaks` of its inputs and `PeaksOutput` of its outputs, and a module `peaks` with `kernel()` and `explain()`. Gradients are found by
/// candle's `backward`.
///
/// ```
/// use candle_core::{Device, Var};
///
/// oplus_candle::scan! {
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
/// let (x, d) = (Var::new(&[3.0_f32, 0.0, 1.0], &Device::Cpu)?, Var::new(&[0.5_f32; 3], &Device::Cpu)?);
/// let h = peaks(Peaks { x: x.as_tensor().clone(), d: d.as_tensor().clone() })?.h;
/// assert_eq!(h.to_vec1::<f32>()?, [3.0, 2.5, 2.0]);
/// assert_eq!(h.backward()?.get(&d).unwrap().to_vec1::<f32>()?, [0.0, -2.0, -1.0]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[macro_export]
macro_rules! scan {
    ($($block:tt)*) => { $crate::expand::scan_for! { [$crate] $($block)* } };
}

extern crate self as oplus_candle;

oplus_macros::standard_for! { [::oplus_candle] }

/// The chapter of the book, whose blocks of code are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/candle.md")]
mod chapter {}
