//! Grouped-query reduction: all tiles of columns are walked once for every query head that shares a key head, that is, for
//! every index along an axis that only columns have.
//!
//! The partial tiles of all query heads come before the whole tiles, so that each kind has one loop. Division by the number
//! of tiles would tell the query head of an iteration; a cursor that goes on from iteration to iteration is cheaper.

use super::FlashKernel;
use super::visible::Tiles;
use crate::build::Builder;
use crate::tile::{Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::Axis;

/// The iterations over the tiles of all query heads, `i32`.
#[derive(Clone, Copy)]
pub(super) struct Iterations {
    /// The tiles of one query head.
    pub tiles: Tiles,
    /// The axis of the query heads and its size.
    grouped: Option<(Axis, Operand)>,
    /// The number of iterations with partial tiles.
    pub partial: Operand,
    /// The number of all iterations.
    pub count: Operand,
}

/// The state of a walk: the iteration within a query head, and the query head; nothing where there is one head.
#[derive(Clone, Copy)]
pub(super) struct Cursor(Option<(Reg, Reg)>);

/// The offset of a tensor's first element for the query head that is copied.
pub(super) struct Origin {
    /// The offset, `i64`.
    pub offset: Operand,
    /// The register that keeps the offset and the stride to the next query head, if there are several.
    moves: Option<(Reg, Operand)>,
}

/// The work of one iteration.
#[derive(Clone, Copy)]
pub(super) struct Iteration {
    /// The tile, `i32`.
    pub tile: Operand,
    /// The axis of the query heads and the index along it, `i64`.
    pub grouped: Option<(Axis, Operand)>,
}

impl FlashKernel<'_> {
    /// The iterations of a block with these tiles of columns.
    pub(super) fn iterations(&self, b: &mut Builder, tiles: Tiles) -> Iterations {
        let size = |b: &mut Builder, axis: Axis| (axis, b.convert(Ty::I32, self.args.size(axis)));
        let grouped = self.form.grouped.map(|axis| size(b, axis));
        let mut times = |iterations| grouped.map_or(iterations, |(_, queries)| b.mul(iterations, queries));
        Iterations { tiles, grouped, partial: times(tiles.partial), count: times(tiles.count) }
    }
}

impl Iterations {
    /// The cursor at the first iteration.
    pub(super) fn cursor(&self, b: &mut Builder) -> Cursor {
        Cursor(self.grouped.map(|_| (b.var(Operand::i32(0)), b.var(Operand::i32(0)))))
    }

    /// An origin from the offset of a tensor for the first query head.
    pub(super) fn origin(&self, b: &mut Builder, first: Operand, stride: impl FnOnce(Axis) -> Operand) -> Origin {
        let moves = self.grouped.map(|(axis, _)| (b.var(first), stride(axis)));
        Origin { offset: moves.map_or(first, |(reg, _)| reg.into()), moves }
    }

    /// The tile and query head of iteration number `iteration`, at which the cursor is.
    pub(super) fn iteration_at(&self, b: &mut Builder, cursor: Cursor, iteration: Operand) -> Iteration {
        let (Some((axis, _)), Cursor(Some((within, query)))) = (self.grouped, cursor) else {
            return Iteration { tile: self.tiles.at(b, iteration), grouped: None };
        };
        let tile = self.tiles.at(b, within.into());
        Iteration { tile, grouped: Some((axis, b.convert(Ty::I64, query.into()))) }
    }

    /// Moves the cursor to the next iteration, and the offsets of tensors with it: to the next tile of the query head, to the
    /// next query head, or to the first one with whole tiles.
    pub(super) fn advance(&self, b: &mut Builder, cursor: Cursor, origins: &[Origin]) {
        let (Some((_, queries)), Cursor(Some((within, query)))) = (self.grouped, cursor) else { return };
        let (zero, one) = (Operand::i32(0), Operand::i32(1));
        let whole = b.ge(within.into(), self.tiles.partial);
        let [first, end] = [(self.tiles.partial, zero), (self.tiles.count, self.tiles.partial)]
            .map(|(of_whole, of_partial)| b.select(whole, of_whole, of_partial));
        let [next, next_query] = [within, query].map(|x| b.add(x.into(), one));
        let [pass_ends, last] = [b.ge(next, end), b.ge(next_query, queries)];
        let begin = b.select(last, self.tiles.partial, first);
        let later = b.select(last, zero, next_query);
        let [iteration, advanced_query] = [b.select(pass_ends, begin, next), b.select(pass_ends, later, query.into())];
        b.assign(within, iteration);
        b.assign(query, advanced_query);
        b.if_(pass_ends, |b| {
            let back = b.sub(one, queries);
            let queries = b.select(last, back, one);
            let queries = b.convert(Ty::I64, queries);
            for (reg, stride) in origins.iter().filter_map(|origin| origin.moves) {
                let way = b.mul(stride, queries);
                let next = b.add(reg.into(), way);
                b.assign(reg, next);
            }
        });
    }
}
