//! The powers of two by which states of `f16` are [scaled](super::scaled).

use crate::block::powers::{self, inverse};
use crate::build::{Builder, f32};
use crate::tile::{Operand, Reg, SharedId, SharedKind};
use oplus_dsl::Elem;

/// Elements behind a saved state of `f16`, of which the first has the number that its elements are to be [multiplied](super::range) by: 16 bytes,
/// as copy engines want them.
const BEHIND: u32 = 8;

/// The powers of two that threads share.
#[derive(Clone, Copy)]
pub(crate) struct Powers {
    /// The inverse of the power by which each warp's rows of the state are multiplied.
    pub(super) of_states: SharedId,
}

/// The power of two by which the warp's rows of the state are multiplied.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) power: Reg,
    /// The most that it may be beside the gains of the chunk before.
    pub(super) most: Reg,
}

impl Powers {
    /// Declares the array, for so many warps.
    pub(super) fn declare(b: &mut Builder, warps: u32) -> Powers {
        Powers { of_states: b.shared("state_powers", SharedKind::Elem(Elem::F32), warps) }
    }
}

impl Scale {
    /// The scale of a state that is as it is.
    pub(super) fn none(b: &mut Builder) -> Scale {
        Scale { power: b.var(f32(1.0)), most: b.var(f32(powers::MOST)) }
    }

    /// The number by which a number of the state was divided.
    pub(super) fn undone(self, b: &mut Builder) -> Operand {
        inverse(b, self.power.into())
    }
}

/// Elements behind each saved state of a type.
pub(crate) fn elements_behind(elem: Elem) -> u32 {
    if elem == Elem::F16 { BEHIND } else { 0 }
}
