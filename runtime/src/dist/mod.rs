//! Several devices: one sequence over many ranks.
//!
//! A *rank* is a thread or a process with a device of its own. The ranks of a [`Group`] make the same calls in the same order,
//! each with its part of the tensors (its *shard*): rank r of P holds a contiguous part of one axis of every tensor that has this
//! axis, and the whole of every other tensor. A call gives every rank its part of the outputs, and the gradient its part of the
//! gradients. What all parts share, such as the gradient of a weight or the last state, is whole and equal on every rank.
//!
//! ```
//! use oplus::Tensor;
//! use oplus::dist::Group;
//! use oplus::kernels::{Affine, AffineCotangents, affine};
//!
//! let parts = [[1.0_f32, 0.0], [0.0, 2.0]];
//! let ranks = Group::threads(2).into_iter().zip(parts).map(|(group, part)| {
//!     std::thread::spawn(move || {
//!         let a = Tensor::from_slice(&[0.5_f32; 2], &[1, 2])?;
//!         let b = Tensor::from_slice(&part, &[1, 2])?;
//!         let out = affine::sharded(&group, "T")(Affine { a, b, h0: None })?; // h[t] = a[t]·h[t−1] + b[t]
//!         let h_last = Some(Tensor::from_slice(&[1.0_f32], &[1])?);
//!         let gradients = out.backward(AffineCotangents { h: None, h_last })?;
//!         Ok((out.h.to_vec::<f32>()?, gradients.b.to_vec::<f32>()?))
//!     })
//! });
//! let ranks: Vec<_> = ranks.collect();
//! let results: Result<Vec<_>, oplus::Error> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
//! let whole = [(vec![1.0, 0.5], vec![0.125, 0.25]), (vec![0.25, 2.125], vec![0.5, 1.0])];
//! assert_eq!(results?, whole);
//! # Ok::<(), oplus::Error>(())
//! ```
//!
//! # What is exchanged
//!
//! Each rank combines the elements of its shard to one element of the operator per row, the *total*. All ranks gather the totals.
//! Each folds those of the ranks before it, in their order, and scans its shard from that state. The gradient does so in the
//! other direction. [`oplus_dsl::shard`] derives this from the program; `explain` with
//! [`Shapes::sharded`](crate::Shapes::sharded) prints it with its bytes.
//!
//! # Bits
//!
//! The order of every fold is that of the ranks, so that the bits are the same in every run with the same shards. They agree with
//! those of one device within rounding.
//!
//! # Errors
//!
//! Before a call the ranks compare program, sizes and element types ([`Error::RanksDisagree`]); those that know the sizes of
//! all shards ([`Group::with_shards`]) do it once for all calls of the same sizes, and a gradient once for all calls. A rank that does not answer
//! within the group's time-out is lost ([`Error::LostRank`], [`Error::LostRanks`]); the group cannot be used after it.

mod agree;
mod attention;
mod call;
mod explain;
mod group;
mod nccl;
mod parts;
mod plan;
mod rows;
mod run;
mod segments;
mod simulate;
mod threads;

use crate::{Call, Error, Tensor};

pub use attention::{Attended, Attention, Mask, attention};
pub use explain::{Exchanges, Message};
pub use group::{Group, Traffic, Transport};
pub use nccl::UniqueId;
pub use rows::Rows;
pub use simulate::{Cost, Link, all_gather, ring};

/// The inputs of a kernel, as [`scan!`](crate::scan) declares them.
pub trait Inputs: Sized {
    /// The kernel: the type `Sharded` in the module of its name.
    type Kernel;
    /// Its outputs.
    type Output;

    /// The outputs of a call that is made by a function of the inputs in the order of the kernel's parameters.
    ///
    /// # Errors
    /// The errors of the function.
    fn call_by(self, call: By<'_>) -> Result<Self::Output, Error>;
}

/// A function that makes a call, as [`Kernel::call`](crate::Kernel::call) and [`Kernel::call_sharded`](crate::Kernel::call_sharded)
/// do.
pub type By<'a> = &'a dyn Fn(&[Option<&Tensor>]) -> Result<(Vec<Tensor>, Call), Error>;

pub(crate) use call::Shard;
pub(crate) use plan::Plans;
