//! The stores of walks: the state before a tile, and rows of each time.

use super::TIMES;
use super::saved::ACCESS;
use super::walk::Walk;
use crate::block::matmul::{Blocks, COLUMNS, ROWS};
use crate::block::split_tile::{low_index, piece_of_eight, place_of_two, split_eight, split_two};
use crate::build::{Builder, zero};
use crate::schedules::chunk_delta::{ELEMENTS, RuleSweep, State};
use crate::tile::{Memory, Operand, ParamId, Shuffle, Stmt};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

impl Walk<'_> {
    /// Saves the state.
    pub(super) fn save_state(&self, b: &mut Builder, state: &State, number: Operand) {
        let kernel = &self.kernel;
        let first = b.mul(number, Operand::i64(i64::from(TIMES * kernel.keys.depth)));
        let state = &state.numbers(b);
        if kernel.schedule.sweep == RuleSweep::Walk {
            return self.save_sectors(b, state, first);
        }
        let tile = kernel.factor_tile();
        let row = self.saved.first_row(b, kernel);
        let (row, column) = (b.add(row, kernel.fragment.group), kernel.fragment.column(b));
        let column = place_of_two(b, tile, column);
        let column = b.convert(Ty::I64, column);
        let from = b.add(first, column);
        // Tiles of keys and of states have one layout. A step has an even and an odd block.
        let lanes = [0, 1].map(|odd| tile.lanes(b, row, Operand::i32(odd)).in_memory(b, from));
        for h in 0..2 {
            for (sixteen, two) in (0..).zip(state.chunks_exact(2)) {
                for (lanes, sums) in lanes.iter().zip(two) {
                    let two = [sums[2 * h], sums[2 * h + 1]];
                    let stored = self.stored_two(b, two);
                    let steps = stored.len() as u32;
                    for (part, elements) in (0..).zip(stored) {
                        let index = tile.index(b, lanes, h as u32 * COLUMNS, sixteen * steps + part);
                        b.store(Memory::Global(self.saved.states), index, &elements, None);
                    }
                }
            }
        }
    }

    /// Saves the state so that four lanes fill a sector of memory: lanes change numbers with the next ones, and an even lane saves four
    /// neighbours of an even block, an odd one of an odd block.
    fn save_sectors(&self, b: &mut Builder, state: &Blocks, first: Operand) {
        let (kernel, tile) = (&self.kernel, self.kernel.factor_tile());
        let row = self.saved.first_row(b, kernel);
        let row = b.add(row, kernel.fragment.group);
        let [four, odd] = b.div_rem(kernel.fragment.member, 2);
        let is_odd = b.ne(odd, 0);
        let column = b.mul(four, 4);
        let column = place_of_two(b, tile, column);
        let column = b.convert(Ty::I64, column);
        let from = b.add(first, column);
        let lanes = tile.lanes(b, row, odd).in_memory(b, from);
        for h in 0..2 {
            for (sixteen, two) in (0..).zip(state.chunks_exact(2)) {
                let words = [0, 1].map(|k: usize| self.words(b, [two[k][2 * h], two[k][2 * h + 1]]));
                let steps = words[0].len() as u32;
                for (part, (even, other)) in (0..).zip(words[0].iter().zip(&words[1])) {
                    let given = b.select(is_odd, *even, *other);
                    let taken = b.shuffle(Shuffle::Xor, given, Operand::i32(1));
                    let four = [b.select(is_odd, taken, *even), b.select(is_odd, *other, taken)];
                    let index = tile.index(b, &lanes, h as u32 * COLUMNS, sixteen * steps + part);
                    self.save_words(b, index, four);
                }
            }
        }
    }

    /// Two neighbouring numbers of a state as packed pairs: in `f32` of high and of low parts.
    fn words(&self, b: &mut Builder, two: [Operand; 2]) -> Vec<Operand> {
        match self.kernel.elem() {
            Elem::F32 => split_two(b, two).to_vec(),
            elem => vec![b.pack(elem, two[0], two[1])],
        }
    }

    /// Saves two neighbouring packed pairs at an index.
    fn save_words(&self, b: &mut Builder, index: Operand, words: [Operand; 2]) {
        let elements = match self.kernel.elem() {
            Elem::F32 => words.to_vec(),
            elem => words.into_iter().flat_map(|word| b.unpack(elem, word)).collect(),
        };
        b.store(Memory::Global(self.saved.states), index, &elements, None);
    }

    /// Two neighbouring numbers of a state as elements in memory: in `f32` their high parts, and their low parts.
    fn stored_two(&self, b: &mut Builder, two: [Operand; 2]) -> Vec<Vec<Operand>> {
        match self.kernel.elem() {
            Elem::F32 => split_two(b, two).map(|part| vec![part]).to_vec(),
            _ => vec![two.to_vec()],
        }
    }

    /// Saves the rows of a chunk's times, where the third sweep needs them.
    pub(super) fn save_rows(&self, b: &mut Builder, rows: &Blocks, number: Operand, chunk: u32) {
        if let Some(to) = self.saved.rows {
            self.save_rows_to(b, rows, to, number, chunk);
        }
    }

    pub(super) fn save_rows_to(&self, b: &mut Builder, rows: &Blocks, to: ParamId, number: Operand, chunk: u32) {
        let (kernel, array) = (&self.kernel, Memory::Shared(self.saved.array));
        let (row, column) = (kernel.first_row(b), kernel.fragment.column(b));
        for (block, rows) in (0..).zip(rows) {
            for (h, c) in ELEMENTS {
                let time = b.add(column, Operand::i32((block * COLUMNS) as i32 + c as i32));
                let index = b.mul(time, self.saved.pitch);
                let index = b.add(index, row);
                let index = b.add(index, Operand::i32((h as u32 * COLUMNS) as i32));
                b.store(array, index, &[rows[2 * h + c]], None);
            }
        }
        b.push(Stmt::SyncWarp);
        let pieces = ROWS / ACCESS;
        let [line, half] = b.div_rem(kernel.thread.lane, pieces);
        let of_warp = b.mul(kernel.thread.warp, Operand::i32(pieces as i32));
        let piece = b.add(of_warp, half);
        let place = b.mul(piece, Operand::i32(ACCESS as i32));
        let index = b.mul(line, self.saved.pitch);
        let index = b.add(index, place);
        let elements = self.eight_saved(b, index);
        let layout = &self.saved.layout;
        let (tile, own) = (chunk * ROWS / layout.rows, chunk * ROWS % layout.rows);
        let first_row = self.saved.first_row(b, kernel);
        let first_piece = b.binary(Binary::Div, first_row, ACCESS);
        let piece = b.add(first_piece, half);
        let piece = piece_of_eight(b, layout, piece);
        let index = layout.piece_index(b, line, piece);
        let first = b.mul(number, Operand::i64(i64::from(TIMES * TIMES)));
        let stored = if layout.elem == Elem::F32 {
            let [high, low] = split_eight(b, &elements);
            let beside = low_index(b, layout, index);
            vec![(index, high), (beside, low)]
        } else {
            vec![(index, elements)]
        };
        for (index, elements) in stored {
            let index = b.convert(Ty::I64, index);
            let index = b.add(first, index);
            let index = b.add(index, tile * layout.len() + own * layout.panel());
            b.store(Memory::Global(to), index, &elements, None);
        }
        b.push(Stmt::SyncWarp);
    }

    /// Eight neighbouring numbers of a time on their way to memory.
    fn eight_saved(&self, b: &mut Builder, index: Operand) -> Vec<Operand> {
        let most = self.saved.layout.piece();
        let first = (0..ACCESS).step_by(most as usize);
        let at = |by| {
            let index = b.add(index, by);
            b.load(Memory::Shared(self.saved.array), index, most, None, zero(Ty::F32))
        };
        first.flat_map(at).collect()
    }
}
