//! Rounds: all tiles of columns are walked once for every index along an axis that only columns have (grouped queries).
//!
//! All rounds of partial tiles come before those of whole ones, so that each kind has one loop. Division by the number of
//! tiles would tell the round of an iteration; a cursor that goes on from iteration to iteration is cheaper.

use super::FlashKernel;
use super::visible::Tiles;
use crate::build::Builder;
use crate::tile::{Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::Axis;

/// The iterations of all rounds, `i32`.
#[derive(Clone, Copy)]
pub(super) struct Turns {
    /// The tiles of one round.
    pub tiles: Tiles,
    /// The axis of rounds and its size.
    over: Option<(Axis, Operand)>,
    /// The number of iterations with partial tiles.
    pub partial: Operand,
    /// The number of all iterations.
    pub count: Operand,
}

/// The state of a walk: the iteration within the round, and the round; nothing where there are no rounds.
#[derive(Clone, Copy)]
pub(super) struct Cursor(Option<(Reg, Reg)>);

/// The offset of a tensor's first element in the round that is copied.
pub(super) struct Origin {
    /// The offset, `i64`.
    pub offset: Operand,
    /// The register that keeps the offset and the stride to the next round, if there are rounds.
    moves: Option<(Reg, Operand)>,
}

/// The tile and round of one iteration.
#[derive(Clone, Copy)]
pub(super) struct Visit {
    /// The tile, `i32`.
    pub tile: Operand,
    /// The round's axis and its index, `i64`.
    pub over: Option<(Axis, Operand)>,
}

impl FlashKernel<'_> {
    /// The iterations of a block with these tiles of columns.
    pub(super) fn turns(&self, b: &mut Builder, tiles: Tiles) -> Turns {
        let size = |b: &mut Builder, axis: Axis| (axis, b.convert(Ty::I32, self.args.size(axis)));
        let over = self.form.over.map(|axis| size(b, axis));
        let mut times = |turns| over.map_or(turns, |(_, rounds)| b.mul(turns, rounds));
        Turns { tiles, over, partial: times(tiles.partial), count: times(tiles.count) }
    }
}

impl Turns {
    /// The cursor at the first iteration.
    pub(super) fn cursor(&self, b: &mut Builder) -> Cursor {
        Cursor(self.over.map(|_| (b.var(Operand::i32(0)), b.var(Operand::i32(0)))))
    }

    /// An origin from the offset of a tensor in the first round.
    pub(super) fn origin(&self, b: &mut Builder, first: Operand, stride: impl FnOnce(Axis) -> Operand) -> Origin {
        let moves = self.over.map(|(axis, _)| (b.var(first), stride(axis)));
        Origin { offset: moves.map_or(first, |(reg, _)| reg.into()), moves }
    }

    /// The tile and round of iteration number `turn`, at which the cursor is.
    pub(super) fn visit(&self, b: &mut Builder, cursor: Cursor, turn: Operand) -> Visit {
        let (Some((axis, _)), Cursor(Some((within, round)))) = (self.over, cursor) else {
            return Visit { tile: self.tiles.at(b, turn), over: None };
        };
        let tile = self.tiles.at(b, within.into());
        Visit { tile, over: Some((axis, b.convert(Ty::I64, round.into()))) }
    }

    /// Moves the cursor to the next iteration: of the round, of the next round, or of the first round of whole tiles; and the
    /// offsets of tensors with it.
    pub(super) fn advance(&self, b: &mut Builder, cursor: Cursor, origins: &[Origin]) {
        let (Some((_, rounds)), Cursor(Some((within, round)))) = (self.over, cursor) else { return };
        let (zero, one) = (Operand::i32(0), Operand::i32(1));
        let whole = b.ge(within.into(), self.tiles.partial);
        let [first, end] = [(self.tiles.partial, zero), (self.tiles.count, self.tiles.partial)]
            .map(|(of_whole, of_partial)| b.select(whole, of_whole, of_partial));
        let [next, next_round] = [within, round].map(|x| b.add(x.into(), one));
        let [ends, last] = [b.ge(next, end), b.ge(next_round, rounds)];
        let begin = b.select(last, self.tiles.partial, first);
        let later = b.select(last, zero, next_round);
        let [turn, same] = [b.select(ends, begin, next), b.select(ends, later, round.into())];
        b.assign(within, turn);
        b.assign(round, same);
        b.if_(ends, |b| {
            let back = b.sub(one, rounds);
            let rounds = b.select(last, back, one);
            let rounds = b.convert(Ty::I64, rounds);
            for (reg, stride) in origins.iter().filter_map(|origin| origin.moves) {
                let way = b.mul(stride, rounds);
                let next = b.add(reg.into(), way);
                b.assign(reg, next);
            }
        });
    }
}
