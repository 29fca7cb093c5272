//! The steps of walks: a chunk of 16 times at the warp's 16 places of the width.

use super::walk::{Place, Walk, WalkLanes};
use crate::block::matmul::{Blocks, Factor, ROWS, load_four, mma_two, multiply_in_time, pack};
use crate::build::Builder;
use crate::schedules::chunk_delta::{ADDED, BEFORE, ELEMENTS, Factors, READ, SUMS, State};
use crate::tile::{Expr, Operand};
use oplus_dsl::Ty;

/// Numbers at the thread's two columns of both blocks of eight times of a chunk.
type Columns = [[Operand; 2]; 2];

impl Walk<'_> {
    /// The products over pairs of times of the warp's chunk: its system, inverted.
    pub(super) fn error_pairs(&self, b: &mut Builder, factors: &Factors<'_>, lanes: &WalkLanes, from: Operand) {
        let kernel = &self.kernel;
        let keys = kernel.own_chunk(b, factors.keys);
        let columns = kernel.own_chunk(b, Factor { lanes: &lanes.all.left, ..factors.columns });
        let products = kernel.products(b, columns, keys);
        kernel.store_error_system(b, &products, from);
        kernel.invert(b);
    }

    /// Computes e of a chunk, and the state after it.
    pub(super) fn error_chunk(
        &self,
        b: &mut Builder,
        (state, lanes, factors): (&State, &WalkLanes, &Factors<'_>),
        place: &Place,
        chunk: u32,
    ) {
        let kernel = &self.kernel;
        let left = kernel.left_of(b, state);
        let read = kernel.read(b, &left, factors.columns, chunk);
        let values = self.own_values(b, lanes, place, chunk);
        let [scale, before, added, sums] = [READ, BEFORE, ADDED, SUMS].map(|kind| self.columns(b, kind, place, chunk));
        let mut rows: Blocks = vec![];
        for (eight, read) in read.iter().enumerate() {
            let scale = self.decayed(b, scale[eight], before[eight]);
            let own = [0, 1].map(|h| b.unpack(kernel.values.elem, values[2 * eight + h]));
            rows.push(ELEMENTS.map(|(h, c)| {
                let given = b.mul(read[2 * h + c], scale[c]);
                b.sub(own[h][c], given)
            }));
        }
        let inverses = Factor { tile: &kernel.inverses, lanes: &lanes.all.pairs, start: Operand::i32(0) };
        self.solve(b, &mut rows, (inverses, false), chunk);
        self.save_rows(b, &rows, place.number, chunk);
        let end = self.end(b, place, chunk);
        let to_end = [0, 1].map(|eight: usize| {
            let apart = [0, 1].map(|c| b.sub(end, sums[eight][c]));
            self.decayed(b, added[eight], apart)
        });
        let left = self.scaled(b, &rows, to_end);
        let mut next = self.decayed_state(b, state, end);
        multiply_in_time(b, &mut next, (left, Factor { lanes: &lanes.all.in_time, ..factors.keys }), chunk);
        assign(b, state, next);
    }

    /// Computes p of a chunk, and the cotangent of the state before it.
    pub(super) fn cotangent_chunk(
        &self,
        b: &mut Builder,
        (state, lanes, factors): (&State, &WalkLanes, &Factors<'_>),
        place: &Place,
        chunk: u32,
    ) {
        let kernel = &self.kernel;
        let left = kernel.left_of(b, state);
        let mut rows = kernel.read(b, &left, factors.keys, chunk);
        let given = self.own_values(b, lanes, place, chunk);
        let [scale, before, gains, sums] = [READ, BEFORE, ADDED, SUMS].map(|kind| self.columns(b, kind, place, chunk));
        let end = self.end(b, place, chunk);
        if kernel.form.decays() {
            for (eight, rows) in rows.iter_mut().enumerate() {
                let decays = sums[eight].map(|sum| {
                    let apart = b.sub(end, sum);
                    b.let_(Ty::F32, Expr::Exp2Fast(apart))
                });
                *rows = ELEMENTS.map(|(h, c)| b.mul(rows[2 * h + c], decays[c]));
            }
        }
        let weights = Factor { tile: &kernel.weights, lanes: &lanes.transposed, start: Operand::i32(0) };
        let weighed = self.scaled_pairs(b, given, gains);
        let columns = weights.four(b, chunk * ROWS, 0, true);
        mma_two(b, kernel.keys.elem, &mut rows, weighed, columns);
        self.solve(b, &mut rows, (Factor { tile: &kernel.inverses, ..weights }, true), chunk);
        self.save_rows(b, &rows, place.number, chunk);
        let from_start = [0, 1].map(|eight: usize| self.decayed(b, gains[eight], sums[eight]));
        let given = self.scaled_pairs(b, given, from_start);
        let moved = [0, 1].map(|eight: usize| self.decayed(b, scale[eight], before[eight]));
        let moved = self.scaled(b, &rows, moved);
        let mut next = self.decayed_state(b, state, end);
        if let Some(queries) = factors.queries {
            let queries = Factor { lanes: &lanes.all.in_time, ..queries };
            multiply_in_time(b, &mut next, (given, queries), chunk);
        }
        let columns = Factor { lanes: &lanes.all.in_time, ..factors.columns };
        multiply_in_time(b, &mut next, (moved, columns), chunk);
        assign(b, state, next);
    }

    /// The values of the warp's places at the times of a chunk, as a left factor.
    fn own_values(&self, b: &mut Builder, lanes: &WalkLanes, place: &Place, chunk: u32) -> [Operand; 4] {
        let values = &self.kernel.values;
        let start = b.mul(place.stage, Operand::i32(values.len() as i32));
        let start = b.add(lanes.all.values, start);
        let index = b.add(start, Operand::i32((chunk * ROWS * values.depth) as i32));
        load_four(b, values, index, true)
    }

    /// Rates of a kind at the thread's columns of a chunk.
    fn columns(&self, b: &mut Builder, kind: usize, place: &Place, chunk: u32) -> Columns {
        [0, 1].map(|eight| self.kernel.two_rates(b, kind, place.from, 2 * chunk + eight))
    }

    /// The sum of logarithms at the end of a chunk.
    fn end(&self, b: &mut Builder, place: &Place, chunk: u32) -> Operand {
        self.kernel.rate(b, SUMS, place.from, Operand::i32(((chunk + 1) * ROWS) as i32 - 1))
    }

    /// Numbers times two to the power of logarithms, where there are decays.
    fn decayed(&self, b: &mut Builder, numbers: [Operand; 2], logs: [Operand; 2]) -> [Operand; 2] {
        let decays = self.kernel.powers(b, logs);
        [0, 1].map(|c| decays.map_or(numbers[c], |decays| b.mul(numbers[c], decays[c])))
    }

    /// Adds to rows what the inverse of the chunk's system has beside its identity.
    fn solve(&self, b: &mut Builder, rows: &mut Blocks, (inverses, transposed): (Factor, bool), chunk: u32) {
        let elem = self.kernel.keys.elem;
        let left = pack(b, elem, rows);
        let columns = inverses.four(b, chunk * ROWS, 0, transposed);
        mma_two(b, elem, rows, left, columns);
    }

    /// Rows times numbers for each time, as a left factor.
    fn scaled(&self, b: &mut Builder, rows: &Blocks, numbers: Columns) -> [Operand; 4] {
        let scaled: Blocks = rows
            .iter()
            .zip(numbers)
            .map(|(rows, numbers)| ELEMENTS.map(|(h, c)| b.mul(rows[2 * h + c], numbers[c])))
            .collect();
        pack(b, self.kernel.keys.elem, &scaled)
    }

    /// A left factor times numbers for each time.
    fn scaled_pairs(&self, b: &mut Builder, left: [Operand; 4], numbers: Columns) -> [Operand; 4] {
        let elem = self.kernel.keys.elem;
        [0, 1, 2, 3].map(|register: usize| {
            // Registers 0 and 1 have the first eight times, 2 and 3 the others.
            let [first, second] = numbers[register / 2];
            let [low, high] = b.unpack(elem, left[register]);
            let (low, high) = (b.mul(low, first), b.mul(high, second));
            b.pack(elem, low, high)
        })
    }

    /// The state decayed over a chunk.
    fn decayed_state(&self, b: &mut Builder, state: &State, end: Operand) -> Blocks {
        let all = state.iter().map(|block| block.map(Operand::Reg));
        if !self.kernel.form.decays() {
            return all.collect();
        }
        let whole = b.let_(Ty::F32, Expr::Exp2Fast(end));
        all.map(|block| block.map(|x| b.mul(x, whole))).collect()
    }
}

fn assign(b: &mut Builder, state: &State, sums: Blocks) {
    for (block, sums) in state.iter().zip(sums) {
        block.iter().zip(sums).for_each(|(reg, sum)| b.assign(*reg, sum));
    }
}
