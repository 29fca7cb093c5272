//! Strong decays of channels: products over pairs of times are summed one channel after the other.

use super::ahead::TilePlace;
use super::channel_logs::Logs;
use super::channels::{ChannelTiles, Products};
use super::{COLUMNS, DeltaKernel, PITCH, ROWS};
use crate::block::layout::Tile;
use crate::build::Builder;
use crate::tile::{Expr, Memory, Operand, Reg, SharedId, Stmt};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

impl DeltaKernel<'_> {
    /// Adds products over pairs of times one channel after the other.
    pub(super) fn add_by_channel(
        &self,
        b: &mut Builder,
        channels: &ChannelTiles,
        place: &TilePlace,
        logs: &Logs,
        sixteen: Operand,
        sums: &[&[Products; 2]],
    ) {
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let kinds = if self.form.reads { 2 } else { 1 };
        for (array, own) in channels.logs.iter().zip([&logs.after, &logs.read]).take(kinds) {
            for (r, two) in (0..).zip(own) {
                let row = b.add(row, r % 2 * COLUMNS);
                let index = b.mul(row, PITCH);
                let index = b.add(index, column);
                let index = b.add(index, r / 2 * COLUMNS);
                b.store(Memory::Shared(*array), index, two, None);
            }
        }
        b.push(Stmt::SyncWarp);
        b.for_(Operand::i32(0), Operand::i32(ROWS as i32), Operand::i32(1), |b, channel| {
            let rows = [row, b.add(row, COLUMNS)];
            let first = b.mul(self.thread.warp, ROWS);
            let first = b.add(first, column);
            let earlier = [0, 1, 2, 3].map(|k: u32| b.add(first, k % 2 + k / 2 * COLUMNS));
            let [after, read] = channels.logs.map(|array| Numbers { array, channel });
            let mut of_rows = |numbers: Numbers| rows.map(|row| numbers.at(b, row));
            let (after_rows, read_rows) = (of_rows(after), self.form.reads.then(|| of_rows(read)));
            let of_columns = earlier.map(|row| after.at(b, row));
            let element =
                |b: &mut Builder, tile: &Tile, row: Operand| self.element_at(b, tile, place, row, channel, sixteen);
            let columns = self.columns.as_ref().unwrap_or(&self.keys);
            let columns = read_rows.map(|logs| (logs, rows.map(|row| element(b, columns, row))));
            let queries = self.queries.as_ref().map(|queries| rows.map(|row| element(b, queries, row)));
            let added = self.rows.iter().chain([&self.keys]);
            for (tile, [system, weights]) in added.zip(sums) {
                let vectors = earlier.map(|row| element(b, tile, row));
                if let Some((logs, columns)) = columns {
                    add_channel(b, system, logs, of_columns, columns, vectors);
                }
                if let Some(queries) = queries {
                    add_channel(b, weights, after_rows, of_columns, queries, vectors);
                }
            }
        });
        b.push(Stmt::SyncWarp);
    }

    /// An element of a tile that was copied, in a channel of 16.
    fn element_at(
        &self,
        b: &mut Builder,
        tile: &Tile,
        place: &TilePlace,
        row: Operand,
        channel: Operand,
        sixteen: Operand,
    ) -> Operand {
        let [piece, within] = b.div_rem(channel, tile.piece());
        let first = b.mul(sixteen, ROWS / tile.piece());
        let piece = b.add(first, piece);
        let index = tile.piece_index(b, row, piece);
        let start = b.mul(place.deep.index, tile.len());
        let index = b.add(index, start);
        if self.copied_elem(tile) == tile.elem {
            let index = b.add(index, within);
            return b.load1(Memory::Shared(tile.array), index);
        }
        let odd = b.binary(Binary::And, within, 1);
        let even = b.sub(within, odd);
        let index = b.add(index, even);
        let pair = b.load_pairs(Memory::Shared(tile.array), index, 1)[0];
        let two = b.unpack(Elem::F16, pair);
        let is_odd = b.ne(odd, 0);
        b.select(is_odd, two[1], two[0])
    }
}

/// Logarithms of one channel in shared memory.
#[derive(Clone, Copy)]
struct Numbers {
    array: SharedId,
    channel: Operand,
}

impl Numbers {
    fn at(self, b: &mut Builder, row: Operand) -> Operand {
        let index = b.mul(row, PITCH);
        let index = b.add(index, self.channel);
        b.load1(Memory::Shared(self.array), index)
    }
}

/// Adds the products of one channel at a thread's pairs of times. Nothing reads the sums of pairs whose column is the later time.
fn add_channel(
    b: &mut Builder,
    sums: &[[Reg; 4]],
    of_rows: [Operand; 2],
    of_columns: [Operand; 4],
    left: [Operand; 2],
    right: [Operand; 4],
) {
    for (block, sums) in sums.iter().enumerate() {
        for (r, sum) in sums.iter().enumerate() {
            let (h, k) = (r / 2, 2 * block + r % 2);
            let apart = b.sub(of_rows[h], of_columns[k]);
            let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
            let own = b.mul(left[h], right[k]);
            let next = b.fma(own, decay, (*sum).into());
            b.assign(*sum, next);
        }
    }
}
