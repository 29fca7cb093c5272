//! The vector instructions of the processor, without unsafe code.
//!
//! Vectors of 512 bits serve the sweeps in groups and the turning of blocks alone: everything else would be compiled for them as well, and waits for memory.

use std::sync::LazyLock;

#[cfg(target_arch = "x86_64")]
use pulp::Scalar;
#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};
use pulp::{Arch, Simd, WithSimd};

/// All vector instructions that the processor has.
static WIDEST: LazyLock<Arch> = LazyLock::new(Arch::new);

/// AVX2 with the instructions that came with it, if the processor has them.
#[cfg(target_arch = "x86_64")]
pub(super) static AVX2: LazyLock<Option<V3>> = LazyLock::new(V3::try_new);

/// AVX-512 with the instructions that came with it, if the processor has them.
#[cfg(target_arch = "x86_64")]
pub(super) static AVX512: LazyLock<Option<V4>> = LazyLock::new(V4::try_new);

/// Calls a function that is compiled for every known level of vector instructions up to 256 bits. Loops over slices in it, and in
/// everything that is inlined into it, become vector code for the processor at hand.
#[inline(always)]
pub(super) fn simd<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    return match *AVX2 {
        Some(v3) => v3.vectorize(f),
        None => f(),
    };
    #[cfg(not(target_arch = "x86_64"))]
    WIDEST.dispatch(f)
}

/// Runs an operation with the widest vectors that the processor has.
#[inline(always)]
pub(super) fn widest<O: WithSimd>(operation: O) -> O::Output {
    WIDEST.dispatch(operation)
}

/// Runs an operation with vectors of at most 256 bits.
#[inline(always)]
pub(super) fn narrow<O: WithSimd>(operation: O) -> O::Output {
    #[cfg(target_arch = "x86_64")]
    return match *AVX2 {
        Some(v3) => Simd::vectorize(v3, operation),
        None => Simd::vectorize(Scalar::new(), operation),
    };
    #[cfg(not(target_arch = "x86_64"))]
    WIDEST.dispatch(operation)
}
