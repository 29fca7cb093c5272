//! The place of a lane among those of a warp: the rows and the positions within them.

use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::ir::Binary;

/// The place of a lane where `count` lanes share a row. Lane bit 0 is a row's where there are several rows and positions; the bits of
/// positions follow.
pub(crate) struct LanePlace {
    /// Its position among the lanes of its row, `i32`.
    pub position: Operand,
    /// Its row among those of the warp, `i32`.
    pub number: Operand,
    /// The distance between positions, in lanes.
    pub stride: u32,
}

impl LanePlace {
    /// The place of a lane of the warp.
    pub(crate) fn of(b: &mut Builder, lane: Operand, count: u32) -> LanePlace {
        let shift = u32::from((2..=16).contains(&count));
        let position = b.binary(Binary::Shr, lane, shift);
        let position = b.binary(Binary::And, position, count as i32 - 1);
        let upper = b.binary(Binary::Shr, lane, shift + count.trailing_zeros());
        let upper = b.binary(Binary::Shl, upper, shift);
        let lowest = b.binary(Binary::And, lane, shift);
        LanePlace { position, number: b.binary(Binary::Or, upper, lowest), stride: 1 << shift }
    }
}
