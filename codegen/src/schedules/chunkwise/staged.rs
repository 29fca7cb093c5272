//! Outputs that are stored by whole rows: a warp writes its part of them over its own queries, which it has read, and stores
//! 16 bytes at a time.

use super::{COLUMNS, ChunkwiseKernel, ROWS};
use crate::abi::{Tensor, axes, elem};
use crate::block::bits::in_bits_of;
use crate::block::layout::Lanes;
use crate::block::matmul::{Factor, piece_index};
use crate::block::pair::Values;
use crate::build::{Builder, zero};
use crate::target::WARP;
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::ir::{Axis, Binary, Value};
use oplus_dsl::{Elem, Ty};

/// An output at the warp's times, in place of queries.
pub(super) struct Staged<'a> {
    output: usize,
    /// The type of its elements, whose bits lie in place of queries.
    elem: Elem,
    queries: Factor<'a>,
    place: Place,
}

/// How rows are written.
enum Place {
    /// By pairs: the index of the thread's two elements of the first piece of its first row.
    Pairs(Operand),
    /// By four matrices, beside warps that only copy: the lanes that name their rows, and the packed pairs that are not yet written.
    Matrices(Lanes, Vec<Operand>),
}

impl ChunkwiseKernel<'_> {
    /// The first output with time that the rows of queries have room for, if accesses are of 16 bytes.
    pub(super) fn staged<'a>(&'a self, b: &mut Builder, queries: Factor<'a>) -> Option<Staged<'a>> {
        let room = self.outputs.as_ref().unwrap_or(queries.tile);
        let has_room = !self.form.channels && room.panel() >= self.schedule.width();
        let own = elem(self.stage, Tensor::Param(queries.tile.param));
        let is_last = |axis: &&Axis| [self.form.width, self.form.depth].contains(axis);
        let fits = |output: &usize| {
            let tensor = Tensor::Output(*output as u32);
            let unit = axes(self.stage, tensor).iter().rev().find(is_last);
            elem(self.stage, tensor) == own && unit == Some(&self.form.width)
        };
        let mut outputs = (0..self.stage.program.outputs.len()).filter(|output| !self.stage.is_final(*output));
        let output = outputs.find(fits).filter(|_| has_room && self.schedule.vector == COLUMNS)?;
        // All lanes have read the queries.
        b.push(Stmt::SyncWarp);
        let queries = self.outputs.as_ref().map_or(queries, |tile| {
            let start = self.of_head(b, Operand::i32(0), tile.len());
            Factor { tile, start, ..queries }
        });
        let place = if self.handover.is_some() {
            Place::Matrices(self.lanes_of_rows(b, queries.tile), vec![])
        } else {
            let (row, column) = (self.first_row(b), self.fragment.column(b));
            let piece = piece_index(b, queries.tile, row, Operand::i32(0));
            Place::Pairs([queries.start, column].into_iter().fold(piece, |index, by| b.add(index, by)))
        };
        Some(Staged { output, elem: own, queries, place })
    }

    /// Writes two neighbouring numbers in row h of the thread's two and a block of the width; gives whether the output is staged.
    pub(super) fn stage(
        &self,
        b: &mut Builder,
        staged: Option<&mut Staged>,
        output: usize,
        h: u32,
        block: u32,
        two: &[Operand; 2],
    ) -> bool {
        let Some(Staged { elem, queries, place, .. }) = staged.filter(|staged| staged.output == output) else {
            return false;
        };
        let first = match place {
            Place::Pairs(first) => *first,
            Place::Matrices(lanes, packed) => {
                packed.push(b.pack(*elem, two[0], two[1]));
                if packed.len() == 4 {
                    let index = queries.tile.index(b, lanes, 0, block / 2);
                    let index = b.add(index, queries.start);
                    b.store_matrix(queries.tile.array, index, packed, false);
                    packed.clear();
                }
                return true;
            }
        };
        // With the swizzle, a piece's number is combined by ⊻ with what depends on the row; eight rows further that is the same.
        let piece = b.binary(Binary::Xor, first, block * COLUMNS);
        let index = b.add(piece, h * COLUMNS * queries.tile.panel());
        let two = in_bits_of(b, *elem, queries.tile.elem, *two);
        b.store(Memory::Shared(queries.tile.array), index, &two, None);
        true
    }

    /// Stores the warp's rows of a chunk from its first time on.
    pub(super) fn store_staged(&self, b: &mut Builder, values: &Values, first: Operand, staged: Option<Staged>) {
        let Some(Staged { output, elem, queries, .. }) = staged else { return };
        b.push(Stmt::SyncWarp);
        let pieces = self.schedule.width() / COLUMNS;
        let [row, piece] = b.div_rem(self.thread.lane, pieces);
        let of_warp = b.mul(self.thread.warp, ROWS);
        let row = b.add(of_warp, row);
        let column = b.mul(piece, COLUMNS);
        let column = self.index_along(b, column, self.form.width);
        let time = b.add(first, row);
        let size = b.convert(Ty::I32, self.args.size(self.form.time));
        let left = b.sub(size, time);
        let time = b.convert(Ty::I64, time);
        let (tensor, rows_per_pass) = (Tensor::Output(output as u32), WARP / pieces);
        let (outer, _) = values.indices(b, Default::default());
        let own = [(self.form.time, time), (self.form.width, column.at)];
        let indices: Vec<(Axis, Operand)> = outer.iter().copied().chain(own).collect();
        let offset = self.args.offset(b, tensor, &indices);
        let stride = self.args.stride(tensor, self.form.time);
        for by in (0..ROWS).step_by(rows_per_pass as usize) {
            let row = b.add(row, by);
            let index = piece_index(b, queries.tile, row, piece);
            let index = b.add(index, queries.start);
            let eight = b.load(Memory::Shared(queries.tile.array), index, COLUMNS, None, zero(Ty::F32));
            let eight: Vec<Operand> =
                eight.chunks(2).flat_map(|two| in_bits_of(b, queries.tile.elem, elem, [two[0], two[1]])).collect();
            let later = b.mul(stride, by);
            let offset = b.add(offset, later);
            let exists = b.binary(Binary::Gt, left, by);
            let exists = b.and(exists, column.exists);
            b.store(Memory::Global(self.args.pointer(tensor)), offset, &eight, Some(exists));
        }
    }

    /// The value of an output.
    pub(super) fn output(&self, output: usize) -> Value {
        self.stage.program.outputs[output].value
    }
}
