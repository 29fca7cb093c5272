//! Recurrences as equations: associative scans with derived gradients on GPU and CPU.
//!
//! A kernel is written with [`scan!`] or taken from [`kernels`], called with tensors, and runs where they are:
//!
//! ```
//! use oplus::kernels::{Affine, AffineCotangents, affine};
//! use oplus::{Device, Tensor};
//!
//! let device = Device::default(); // the first GPU if there is one, else the CPU
//! let a = Tensor::from_slice(&[0.5_f32; 4], &[1, 4])?.to_device(&device)?;
//! let b = Tensor::from_slice(&[1.0_f32, 0.0, 0.0, 2.0], &[1, 4])?.to_device(&device)?;
//!
//! let out = affine(Affine { a, b, h0: None })?; // h[t] = a[t]·h[t−1] + b[t]
//! assert_eq!(out.h.to_vec::<f32>()?, [1.0, 0.5, 0.25, 2.125]);
//!
//! let last = Tensor::full(1.0_f32, &[1], &out.h_last.device())?;
//! let gradients = out.backward(AffineCotangents { h: None, h_last: Some(last) })?;
//! assert_eq!(gradients.b.to_vec::<f32>()?, [0.125, 0.25, 0.5, 1.0]);
//! # Ok::<(), oplus::Error>(())
//! ```
//!
//! # Tensors
//!
//! A [`Tensor`] is a handle to elements in the memory of the CPU or a GPU; clones and views share them. Kernels take any
//! strides. Elements come from slices, vectors, `ndarray` (feature `ndarray`) and CUDA slices ([`Tensor::from_cuda_slice`])
//! without copying where the source is handed over.
//!
//! # On a GPU
//!
//! * A call is queued on the stream of its tensors, in the caller's context, and returns at once. Nothing waits but copies
//!   to the host. The first call of a kind plans and loads kernels; later ones only launch them.
//! * Memory is allocated and freed in the order of the stream: a tensor may be dropped while kernels still use it.
//! * Streams and threads are independent. A tensor moves to another stream with [`Tensor::to_device`], which makes that
//!   stream wait. Handles on several streams may be used by turns: calls that write what others use wait for each other.
//! * [`Kernel::call_into`] writes into tensors of the caller's and can be captured into a CUDA graph, whose launches must
//!   follow each other. What [`Kernel::call`] allocates during a capture belongs to the graph. Copies from and to the host
//!   have no place in a capture: they give [`Error::Captured`], and the capture goes on.
//! * Outputs, saved states and temporary memory come from a memory pool of the library's, or from an [`Allocate`] of the
//!   caller's ([`CudaDevice::set_allocator`]).
//! * The driver is loaded at run time. Without it there is the CPU, and [`Error::NoCuda`] for those who ask for a GPU.
//! * Compiled kernels come from [sources](source): folders, this crate, or the compiler (feature `jit`).
//!
//! # Features
//!
//! | feature | what it brings | by default |
//! |---|---|---|
//! | `gpu` | calls on GPUs; without it [`Device::cuda`] gives [`Error::NoCuda`], and a program is half as large | yes, by the next ones |
//! | `kernels` | the PTX of the kernels and models of this crate; brings `gpu` | yes |
//! | `kernels-sm90` | their machine code for GPUs of compute capability 9.0; brings `kernels` | yes |
//! | `jit` | the compiler, for which LLVM 22 must be installed; brings `gpu` | no |
//! | `ndarray` | tensors from and to arrays of `ndarray` | no |
//!
//! # On the CPU
//!
//! * A call returns when its outputs are written. Large ones run on the threads of a pool of their own, as many as there
//!   are processors (or `RAYON_NUM_THREADS`), in vector instructions.
//! * Nothing is compiled at run time; a call's plan is kept for the next one of the same sizes and strides.
//!
//! A call gives the same bits every time, on either device. Different calls that mean the same thing, such as a sequence read
//! at once and step by step, give the same bits while [`ordered`] is alive.

mod bind;
mod call;
mod construct;
mod copy;
mod cpu;
mod cuda;
mod debug;
mod device;
pub mod dist;
mod element;
mod error;
mod execute;
pub mod explain;
mod foreign;
mod gradient;
mod guard;
mod host;
mod kernel;
mod layout;
mod ordered;
mod pages;
mod record;
mod room;
mod shapes;
pub mod source;
pub mod tape;
mod tensor;
mod transfer;
pub mod typed;
mod views;

pub use call::{Call, Residual};
pub use cuda::{Allocate, Allocated, CudaDevice};
pub use device::Device;
pub use element::Element;
pub use error::Error;
pub use explain::Explanation;
pub use kernel::Kernel;
pub use oplus_codegen::target::Target;
pub use oplus_dsl::Elem;
pub use oplus_macros::scan;
pub use ordered::{Ordered, ordered};
pub use record::{Recording, record};
pub use shapes::Shapes;
pub use tensor::Tensor;

// `scan!` names this crate `oplus` also where it is this crate.
extern crate self as oplus;

oplus_macros::standard! {}
