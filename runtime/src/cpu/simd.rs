//! The widest vector instructions of the processor, without unsafe code.

use std::sync::LazyLock;

use pulp::Arch;

/// The vector instructions that the processor has.
pub(super) static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);

/// Calls a function that is compiled for every known level of vector instructions. Loops over slices in it, and in
/// everything that is inlined into it, become vector code for the processor at hand.
#[inline(always)]
pub(super) fn simd<R>(f: impl FnOnce() -> R) -> R {
    ARCH.dispatch(f)
}
