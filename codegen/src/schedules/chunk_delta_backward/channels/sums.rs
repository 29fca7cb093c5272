//! Sums over the width: products with the states at a chunk's borders, and of pairs of its times.

use super::super::common::Place;
use super::{ChannelGradients, SLICE};
use crate::block::lane_sum::over_lanes;
use crate::block::layout::{Tile, left_rows, right_rows};
use crate::block::matmul::{Blocks, COLUMNS, Factor, ROWS, zeros};
use crate::block::pair::Values;
use crate::block::parts::Parts;
use crate::block::split_tile::{BlockIndex, index_of_sixteen, piece_of_eight, place_of_two, store_block};
use crate::build::{Builder, zero};
use crate::schedules::chunk_delta::PairBlock;
use crate::schedules::chunk_delta_backward::BLOCKS;
use crate::tile::{Operand, Reg, Shuffle};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// Sums over the width so far, at the warp's times.
pub(super) struct Sums {
    /// At the warp's places of the depth, products with the state before the chunk, of the cotangents of queries' readings and of the
    /// products of the states' cotangents; then products of each kind of added rows with the cotangent of the state after the chunk.
    pub states: Vec<Blocks>,
    /// Products over pairs of times of each kind of added rows, as in [`ChannelGradients`].
    pairs: Vec<Vec<Blocks>>,
    /// Products of the state before the chunk and the cotangent of the state after it, summed over the width, at two of 16 places of the
    /// depth.
    energies: Vec<[Operand; 2]>,
}

/// The sums at the 16 places of the depth that are computed next.
pub(super) struct Front {
    pub states: Vec<[[Operand; 4]; 2]>,
    pub energies: [Operand; 2],
}

/// Products over pairs of times of a kind of added rows, as left factors: with a row for each later time, and with a row for each earlier
/// time.
pub(super) struct Pairs {
    pub by_later: Vec<Parts>,
    pub by_earlier: Vec<Parts>,
}

impl Sums {
    fn zero(readers: usize, added: usize) -> Sums {
        let blocks = |columns: u32| vec![zeros(); (columns / COLUMNS) as usize];
        let energies = vec![[zero(Ty::F32); 2]; (SLICE / ROWS) as usize];
        let states = (0..readers + added).map(|_| blocks(SLICE)).collect();
        let pairs = (0..added).map(|_| (0..readers).map(|_| blocks(ROWS)).collect()).collect();
        Sums { states, pairs, energies }
    }

    /// The sums with states of each 16 places of the depth, as [`Sums::front`] takes them.
    pub(super) fn by_sixteen(&self) -> impl Iterator<Item = Vec<Operand>> + '_ {
        (0..self.energies.len()).map(|sixteen| {
            let blocks = self.states.iter().flat_map(move |blocks| blocks[2 * sixteen..2 * sixteen + 2].as_flattened());
            blocks.chain(&self.energies[sixteen]).copied().collect()
        })
    }

    /// The sums that these registers hold.
    pub(super) fn front(&self, regs: &[Reg]) -> Front {
        let block = |from: usize| [0, 1, 2, 3].map(|r: usize| Operand::Reg(regs[from + r]));
        let states: Vec<_> = (0..self.states.len()).map(|k| [block(8 * k), block(8 * k + 4)]).collect();
        let energies = [0, 1].map(|k: usize| Operand::Reg(regs[8 * states.len() + k]));
        Front { states, energies }
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Operand> {
        let Sums { states, pairs, energies } = self;
        states.iter_mut().chain(pairs.iter_mut().flatten()).flatten().flatten().chain(energies.iter_mut().flatten())
    }
}

impl ChannelGradients<'_> {
    fn no_sums(&self) -> Sums {
        Sums::zero(self.readers(), self.added().len())
    }

    /// Goes through the parts of the width.
    pub(super) fn all_parts(&self, b: &mut Builder, values: &Values, place: &Place) -> Sums {
        let mut sums = self.no_sums();
        let regs: Vec<Reg> = sums.all_mut().map(|sum| b.var(*sum)).collect();
        if self.schedule.wide {
            let parts = b.convert(Ty::I32, place.parts);
            b.for_(Operand::i32(0), parts, Operand::i32(1), |b, part| {
                self.part(b, values, place, part, &regs);
                // From here on no thread reads the tiles of this part.
                b.barrier();
            });
        } else {
            self.part(b, values, place, Operand::i32(0), &regs);
        }
        sums.all_mut().zip(&regs).for_each(|(sum, reg)| *sum = Operand::Reg(*reg));
        sums
    }

    /// Adds the products of a part of the width, and stores the part's outputs over the width.
    fn part(&self, b: &mut Builder, values: &Values, place: &Place, part: Operand, regs: &[Reg]) {
        self.fetch_part(b, place, part);
        self.wait_part(b, part);
        self.prepare_part(b);
        b.for_(Operand::i32(0), Operand::i32(BLOCKS as i32), Operand::i32(1), |b, sixteen| {
            let mut own = self.no_sums();
            own.all_mut().zip(regs).for_each(|(sum, reg)| *sum = Operand::Reg(*reg));
            self.add_sixteen(b, &mut own, sixteen);
            own.all_mut().zip(regs).for_each(|(sum, reg)| b.assign(*reg, *sum));
        });
        self.store_wide(b, values, part);
    }

    /// Adds the products of 16 places of the width.
    fn add_sixteen(&self, b: &mut Builder, sums: &mut Sums, sixteen: Operand) {
        let elem = self.elem();
        let (row, half) = left_rows(b, self.thread.lane);
        let of_rows = self.index_of_rows(b, row, half, sixteen);
        let (row, half) = right_rows(b, self.thread.lane);
        let of_columns = self.index_of_rows(b, row, half, sixteen);
        let readers = [&self.cotangents].into_iter().chain(&self.products);
        let readers: Vec<Parts> = readers.map(|tile| Parts::at(b, tile, of_rows, false)).collect();
        let mut added = vec![];
        for ((tile, _), pairs) in self.added().into_iter().zip(&mut sums.pairs) {
            let right = Parts::at(b, tile, of_columns, false);
            for (left, pairs) in readers.iter().zip(pairs) {
                left.multiply(b, elem, pairs, right);
            }
            added.push(Parts::at(b, tile, of_rows, false));
        }
        let first = b.mul(sixteen, ROWS);
        let (lanes, panel) = self.slice_lanes(b, &self.states, first);
        let chunk = b.mul(self.chunk, self.states.len());
        let start = b.add(panel, chunk);
        for deep in 0..SLICE / ROWS {
            let [states, duals] =
                [&self.states, &self.duals].map(|tile| Factor { tile, lanes: &lanes, start }.parts(b, 0, deep, true));
            let own = 2 * deep as usize..2 * deep as usize + 2;
            let read = readers.iter().map(|left| (*left, states));
            let all = read.chain(added.iter().map(|left| (*left, duals)));
            for (sums, (left, right)) in sums.states.iter_mut().zip(all) {
                left.multiply(b, elem, &mut sums[own.clone()], right);
            }
            self.add_energies(b, &mut sums.energies[deep as usize], states, duals);
        }
    }

    /// The index of the lanes' rows of the warp's chunk in a tile over the width, at 16 places of it.
    fn index_of_rows(&self, b: &mut Builder, row: Operand, half: Operand, sixteen: Operand) -> Operand {
        let first = self.first_of_chunk(b);
        let row = b.add(first, row);
        index_of_sixteen(b, &self.errors, row, half, sixteen)
    }

    /// Adds products of states and their cotangents at the thread's elements of right factors. A register has two rows of a column.
    fn add_energies(&self, b: &mut Builder, sums: &mut [Operand; 2], states: Parts, duals: Parts) {
        if !self.needs_energies() {
            return;
        }
        let [states, duals] = [states, duals].map(|parts| parts.pairs(b, self.elem()));
        for (r, (states, duals)) in states.into_iter().zip(duals).enumerate() {
            for (x, y) in states.into_iter().zip(duals) {
                // Registers 0 and 1 have the first eight columns.
                sums[r / 2] = b.fma(x, y, sums[r / 2]);
            }
        }
    }

    /// Products of states and their cotangents over all of the width, at the thread's four places of 16.
    pub(super) fn energies_of_states(&self, b: &mut Builder, sums: [Operand; 2]) -> [[Operand; 2]; 2] {
        sums.map(|sum| {
            let whole = over_lanes(b, Binary::Add, sum, &[1, 2]);
            // The column of lane group g is g, and the thread has two columns from twice its place among four lanes on.
            let first = b.mul(self.fragment.member, 8);
            [0, 4].map(|by| {
                let lane = b.add(first, by);
                b.shuffle(Shuffle::Index, whole, lane)
            })
        })
    }

    /// Rounds and writes the products over pairs of times of all kinds. Shared memory transposes them, for a row of each earlier time.
    pub(super) fn store_pairs(&self, b: &mut Builder, sums: &Sums) {
        for (tiles, sums) in self.pairs.iter().zip(&sums.pairs) {
            self.store_kind(b, tiles, sums);
        }
        self.sync(b);
    }

    /// The products of a kind as shared memory has them: all kinds would take the registers of sums.
    pub(super) fn stored_pairs(&self, b: &mut Builder, tiles: &[Tile]) -> Pairs {
        let [(row, half), (earlier_row, earlier_half)] = [left_rows, right_rows].map(|rows| rows(b, self.thread.lane));
        let later = tiles[0].lanes(b, row, half);
        let earlier = tiles[0].lanes(b, earlier_row, earlier_half);
        let by_later = tiles.iter().map(|tile| self.own_factor(b, tile, &later).parts(b, 0, 0, false)).collect();
        let by_earlier = tiles.iter().map(|tile| self.own_factor(b, tile, &earlier).parts(b, 0, 0, true)).collect();
        Pairs { by_later, by_earlier }
    }

    /// Rounds and writes the products of a kind. Pairs whose times are in the other order have 0.
    fn store_kind(&self, b: &mut Builder, tiles: &[Tile], sums: &[Blocks]) {
        let column = self.fragment.column(b);
        for ((tile, sums), earlier) in tiles.iter().zip(sums).zip([Binary::Le, Binary::Lt]) {
            for (block, sums) in (0..).zip(sums) {
                let pairs = PairBlock { row: self.fragment.group, column, block, earlier };
                let elements = pairs.decayed(b, sums, None);
                self.store_own(b, tile, block as i32, &elements);
            }
        }
    }

    /// Writes a block of eight columns of the warp's 16 rows of a tile.
    pub(super) fn store_own(&self, b: &mut Builder, tile: &Tile, block: i32, elements: &[Operand; 4]) {
        let row = self.fragment.row(b, self.thread.warp);
        let column = self.fragment.column(b);
        let (piece, column) = (piece_of_eight(b, tile, Operand::i32(block)), place_of_two(b, tile, column));
        store_block(b, tile, BlockIndex { row, piece, within: column }, *elements);
    }

    /// The warp's 16 rows of a tile, as a right factor over rows.
    pub(super) fn own_over_rows(&self, b: &mut Builder, tile: &Tile) -> Parts {
        let (row, half) = left_rows(b, self.thread.lane);
        let lanes = tile.lanes(b, row, half);
        self.own_factor(b, tile, &lanes).parts(b, 0, 0, true)
    }
}
