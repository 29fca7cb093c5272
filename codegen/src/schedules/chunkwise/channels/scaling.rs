//! Factors of products in `tf32` that are scaled channel by channel: in `f32`, and rounded or split after that.
//!
//! Fragments have eight channels or times. A thread has two of these channels: of `f32` those four apart, of `f16`
//! the neighbours of a packed pair.

use super::sums::{ChannelSums, Log};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, Factor};
use crate::block::tf32::{HALF, Sums, eights, elements_in_time, rows_of, tf32_bits};
use crate::block::thread::FragmentPlace;
use crate::build::Builder;
use crate::schedules::chunkwise::{COLUMNS, zeros};
use crate::tile::{Operand, Stmt};
use oplus_dsl::{Elem, Ty};

/// What the numbers of a row are scaled by: two to the power of a sum of logarithms.
#[derive(Clone, Copy)]
pub(crate) enum Scale {
    /// Of the row's own sum.
    Start,
    /// Of what lies between an earlier row and the row.
    Since(Operand),
    /// Of what lies between the row and a later one.
    Until(Operand),
}

impl Scale {
    /// The row at the other end.
    pub(crate) fn border(self) -> Option<Operand> {
        match self {
            Scale::Start => None,
            Scale::Since(border) | Scale::Until(border) => Some(border),
        }
    }

    /// The sum of logarithms, from those of the row and of the border.
    pub(crate) fn log(self, b: &mut Builder, own: Log, border: Option<Log>) -> Log {
        match (self, border) {
            (Scale::Since(_), Some(border)) => own.since(b, border),
            (Scale::Until(_), Some(border)) => border.since(b, own),
            _ => own,
        }
    }
}

/// The sums by which a thread scales its numbers of factors.
#[derive(Clone, Copy)]
pub(crate) struct Scaling {
    pub sums: ChannelSums,
    pub fragment: FragmentPlace,
}

impl Scaling {
    /// A step of a left factor as fragments; `rows` are those of the thread's two sums.
    pub(crate) fn left(
        self,
        b: &mut Builder,
        left: Factor,
        step: u32,
        rows: [Operand; 2],
        scale: Scale,
    ) -> Vec<[Operand; 4]> {
        let fragments = rows_of(b, left, step);
        let one = |b: &mut Builder, (eight, fragment): (u32, [Operand; 4])| {
            let border = scale.border().map(|border| self.of_two(b, left.tile, border, eight));
            let logs = rows.map(|row| {
                let own = self.of_two(b, left.tile, row, eight);
                [0, 1].map(|c| scale.log(b, own[c], border.map(|border| border[c])))
            });
            // Registers 0 and 2 have the first eight rows, 2 and 3 the second channel.
            [0, 1, 2, 3].map(|r: usize| self.number(b, fragment[r], logs[r % 2][r / 2]))
        };
        (step * eights(left.tile)..).zip(fragments).map(|own| one(b, own)).collect()
    }

    /// A step of 16 rows as fragments of a right factor, two of eight rows for every eight channels; `rows` are those of the
    /// thread's two sums.
    pub(crate) fn right(
        self,
        b: &mut Builder,
        right: Factor,
        step: u32,
        rows: [Operand; 2],
        scale: Scale,
    ) -> Vec<[[Operand; 2]; 2]> {
        let packed = right.four(b, 0, step, false);
        let mut columns = vec![];
        for k in 0..eights(right.tile) {
            let eight = step * eights(right.tile) + k;
            let border = scale.border().map(|border| self.of_two(b, right.tile, border, eight));
            columns.push([0, 1].map(|block| {
                let own = self.of_two(b, right.tile, rows[block], eight);
                let two = match right.tile.elem {
                    Elem::F32 => [packed[2 * block], packed[2 * block + 1]],
                    elem => b.unpack(elem, packed[2 * block + k as usize]).map(|x| b.bits(Ty::U32, x)),
                };
                [0, 1].map(|c| {
                    let log = scale.log(b, own[c], border.map(|border| border[c]));
                    self.number(b, two[c], log)
                })
            }));
        }
        columns
    }

    /// 16 rows and 16 channels as a right factor over rows: for both eights of the channels, both of the rows. `sixteen` and `pair` are
    /// their numbers in the factor; `row` is that of the sum of the thread's first row, twice the thread's number among four lanes plus a multiple of
    /// eight where channels are swizzled, and `channel` its first channel.
    pub(crate) fn in_time(
        self,
        b: &mut Builder,
        right: Factor,
        [sixteen, pair]: [u32; 2],
        [row, channel]: [Operand; 2],
        scale: Scale,
    ) -> [[[Operand; 2]; 2]; 2] {
        let own = elements_in_time(b, right, sixteen, pair);
        [0, 1].map(|block| {
            let channel = b.add(channel, block * COLUMNS);
            let border = scale.border().map(|border| self.sums.at(b, border, channel, 1)[0]);
            let place = self.sums.place(b, channel, self.fragment.member);
            [0, 1].map(|half| {
                [0, 1].map(|k| {
                    let row = b.add(row, half * COLUMNS + k);
                    let log = self.sums.at_place(b, row, place);
                    let log = scale.log(b, log, border);
                    self.number(b, own[block as usize][half as usize][k as usize], log)
                })
            })
        })
    }

    /// The product over the depth of 16 rows of two factors, from the fragments of each of so many steps.
    pub(crate) fn product(
        self,
        b: &mut Builder,
        steps: u32,
        left: impl Fn(&mut Builder, u32) -> Vec<[Operand; 4]>,
        right: impl Fn(&mut Builder, u32) -> Vec<[[Operand; 2]; 2]>,
    ) -> Blocks {
        let mut product: Blocks = vec![zeros(); 2];
        let mut sums = Sums::of(self.sums.elem, &product);
        for step in 0..steps {
            let rows = left(b, step);
            let columns = right(b, step);
            for (rows, columns) in rows.into_iter().zip(columns) {
                let rows = sums.left(b, rows, HALF);
                (0..).zip(columns).for_each(|(block, columns)| sums.add(b, block, &rows, columns));
            }
            // Loads for later products, moved up, would take registers.
            b.push(Stmt::SyncWarp);
        }
        sums.finish(b, &mut product);
        product
    }

    /// The sums of the thread's two channels of eight in a row.
    fn of_two(self, b: &mut Builder, tile: &Tile, row: Operand, eight: u32) -> [Log; 2] {
        let first = (eight * COLUMNS) as i32;
        if tile.elem != Elem::F32 {
            let column = self.fragment.column(b);
            let channel = b.add(column, first);
            let two = self.sums.at(b, row, channel, 2);
            return [two[0], two[1]];
        }
        [0, tile.piece()].map(|by| {
            let channel = b.add(self.fragment.member, first + by as i32);
            self.sums.at(b, row, channel, 1)[0]
        })
    }

    /// A register of a factor times two to the power of a sum.
    fn number(self, b: &mut Builder, bits: Operand, log: Log) -> Operand {
        let (own, power) = (b.bits(Ty::F32, bits), log.power(b));
        let scaled = b.mul(own, power);
        tf32_bits(b, self.sums.elem, scaled)
    }
}
