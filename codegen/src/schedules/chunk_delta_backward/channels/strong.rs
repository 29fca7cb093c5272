//! Strong decays: the pairs of times of 16 channels are summed one after the other.

use super::sixteen::each;
use super::{ChannelGradients, PITCH};
use crate::block::layout::Tile;
use crate::block::matmul::{COLUMNS, ROWS};
use crate::block::split_tile::load_one;
use crate::build::{Builder, f32};
use crate::schedules::chunk_delta::{CHANNELS, Fragment, Logs};
use crate::tile::{Expr, Memory, Operand, Reg, SharedId};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

impl ChannelGradients<'_> {
    /// The sums over pairs of times at the thread's elements, of vectors in shared memory that no decay was multiplied to.
    pub(super) fn strong_pairs(&self, b: &mut Builder, logs: &Logs) -> Vec<Fragment> {
        self.store_logs(b, logs);
        let zeros = |b: &mut Builder| [[(); 2]; 4].map(|two| two.map(|()| b.var(f32(0.0))));
        let sums: Vec<[[Reg; 2]; 4]> = self.factors.iter().map(|_| zeros(b)).collect();
        let row = b.mul(self.thread.warp, ROWS);
        b.for_(Operand::i32(0), Operand::i32(ROWS as i32), Operand::i32(1), |b, other| {
            let of_other = b.add(row, other);
            let elements: Vec<[Operand; 4]> =
                self.factors.iter().map(|tile| self.elements(b, tile, of_other)).collect();
            let from: Vec<[Operand; 4]> = self.logs.iter().map(|array| self.logs_at(b, *array, of_other)).collect();
            for (kind, tiles) in (self.readers()..).zip(&self.pairs) {
                let mut at =
                    |is_row| -> Vec<_> { tiles.iter().map(|tile| self.pairs_at(b, tile, other, is_row)).collect() };
                let (later, earlier) = (at(false), at(true));
                each(|r, c, _| {
                    let (h, k) = (r % 2, 2 * (r / 2) + c);
                    let own = [logs.after[r][c], logs.read[r][c]];
                    for n in 0..later.len() {
                        // Nothing is summed of pairs whose times are in the other order.
                        add(b, sums[n][r][c], later[n][h], elements[kind][k], [own[n], from[0][k]]);
                        add(b, sums[kind][r][c], earlier[n][h], elements[n][k], [from[n][k], logs.after[r][c]]);
                    }
                });
            }
        });
        sums.into_iter().map(|own| own.map(|two| two.map(Operand::Reg))).collect()
    }

    fn store_logs(&self, b: &mut Builder, logs: &Logs) {
        let row = self.fragment.row(b, self.thread.warp);
        let column = self.fragment.column(b);
        self.sync(b);
        for (array, own) in self.logs.iter().zip([&logs.after, &logs.read]) {
            for (r, two) in (0..).zip(own) {
                let row = b.add(row, r % 2 * COLUMNS);
                let index = b.mul(row, PITCH);
                let index = b.add(index, column);
                let index = b.add(index, r / 2 * COLUMNS);
                b.store(Memory::Shared(*array), index, two, None);
            }
        }
        self.sync(b);
    }

    /// The logarithms of a row of the warps' at the thread's channels.
    fn logs_at(&self, b: &mut Builder, array: SharedId, row: Operand) -> [Operand; 4] {
        let column = self.fragment.column(b);
        let index = b.mul(row, PITCH);
        let index = b.add(index, column);
        CHANNELS.map(|(eight, c)| {
            let index = b.add(index, eight * COLUMNS + c);
            b.load1(Memory::Shared(array), index)
        })
    }

    /// The elements of a row of the warps' at the thread's channels.
    fn elements(&self, b: &mut Builder, tile: &Tile, row: Operand) -> [Operand; 4] {
        let column = self.fragment.column(b);
        CHANNELS.map(|(eight, c)| {
            let column = b.add(column, eight * COLUMNS + c);
            load_one(b, tile, row, column)
        })
    }

    /// The numbers of pairs of the thread's two times and another one: with rows for the thread's times, or for the other.
    fn pairs_at(&self, b: &mut Builder, tile: &Tile, other: Operand, is_row: bool) -> [Operand; 2] {
        let first = b.mul(self.thread.warp, ROWS);
        [0, COLUMNS].map(|by| {
            let own = b.add(self.fragment.group, by);
            let (row, column) = if is_row { (other, own) } else { (own, other) };
            let row = b.add(first, row);
            load_one(b, tile, row, column)
        })
    }
}

/// Adds the product of two numbers and the decay from one running sum of logarithms to another.
fn add(b: &mut Builder, sum: Reg, pair: Operand, vector: Operand, [to, from]: [Operand; 2]) {
    let log = b.sub(to, from);
    let log = b.binary(Binary::Min, log, f32(0.0));
    let decay = b.let_(Ty::F32, Expr::Exp2Fast(log));
    let own = b.mul(pair, vector);
    let next = b.fma(own, decay, sum.into());
    b.assign(sum, next);
}
