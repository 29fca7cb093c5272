//! The place of a thread: in its block and warp, and in the fragments of matrices that its warp has.

use super::fragment::ROWS;
use super::rematerialise::Rematerialiser;
use crate::build::Builder;
use crate::target::WARP;
use crate::tile::{Operand, Special};

/// The place of a thread in its block. All `i32`.
#[derive(Clone, Copy)]
pub(crate) struct Thread {
    /// Its number in the block.
    pub number: Operand,
    /// The number of its warp.
    pub warp: Operand,
    /// Its number in the warp.
    pub lane: Operand,
}

/// The place of a lane in the fragments of its warp: of a block of sums it has two columns, in two rows that are eight apart. All
/// `i32`.
#[derive(Clone, Copy)]
pub(crate) struct FragmentPlace {
    /// lane / 4.
    pub group: Operand,
    /// lane mod 4.
    pub member: Operand,
}

impl Thread {
    /// The place of the thread.
    pub(crate) fn of(b: &mut Builder) -> Thread {
        let [number, warp, lane] = [Special::Thread, Special::Warp, Special::Lane].map(|special| b.special(special));
        Thread { number, warp, lane }
    }

    /// The place, rematerialised.
    pub(crate) fn rematerialised(self, b: &mut Builder, rematerialiser: Rematerialiser) -> Thread {
        let number = rematerialiser.of(b, self.number);
        let [warp, lane] = b.div_rem(number, WARP);
        Thread { number, warp, lane }
    }
}

impl FragmentPlace {
    /// The place of a lane.
    pub(crate) fn of(b: &mut Builder, lane: Operand) -> FragmentPlace {
        let [group, member] = b.div_rem(lane, 4);
        FragmentPlace { group, member }
    }

    /// The first row of the lane in 16 rows of a number; the other one is eight further.
    pub(crate) fn row(self, b: &mut Builder, sixteen: Operand) -> Operand {
        let before = b.mul(sixteen, ROWS);
        b.add(before, self.group)
    }

    /// The first column of the lane in a block of eight; the other one is the next.
    pub(crate) fn column(self, b: &mut Builder) -> Operand {
        b.mul(self.member, 2)
    }
}
