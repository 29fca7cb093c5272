//! The steps of walks: a chunk of 16 times at the warp's 16 places of the width.

use super::walk::{Walk, WalkLanes, WalkedChunk};
use crate::block::layout::Lanes;
use crate::block::matmul::{Blocks, Factor, ROWS};
use crate::block::parts::{Parts, multiply_in_time};
use crate::build::Builder;
use crate::schedules::chunk_delta::{
    ADDED, AllLanes, Columns, DeltaKernel, ELEMENTS, FROM_START, State, TO_END, TilePlace, times_columns, times_number,
    undecayed,
};
use crate::tile::{Operand, Stmt};

impl DeltaKernel<'_> {
    /// The products over pairs of times of the warp's chunk, of the system of e.
    pub(super) fn error_pairs(&self, b: &mut Builder, lanes: &AllLanes, place: &TilePlace) {
        let factors = self.factors(b, lanes, place.deep.index);
        let keys = self.own_chunk(b, factors.keys);
        let columns = self.own_chunk(b, Factor { lanes: &lanes.left, ..factors.columns });
        let products = self.products(b, columns, keys);
        self.store_error_system(b, &products, place);
    }
}

impl Walk<'_> {
    /// Computes e of a chunk, and the state after it.
    pub(super) fn error_chunk(&self, b: &mut Builder, chunk: &WalkedChunk<'_>) {
        let kernel = &self.kernel;
        let WalkedChunk { state, lanes, factors, place, number, .. } = *chunk;
        if let Some([of_values, _]) = &kernel.of_values {
            let of_values = Factor::of(b, of_values, &lanes.all.pairs, Operand::i32(0));
            return self.read_chunk(b, chunk, of_values);
        }
        let added = self.columns(b, ADDED, place, number);
        let rows = match kernel.form.reads {
            true => self.errors(b, chunk),
            // Nothing is taken off values.
            false => self.own_values(b, lanes, number),
        };
        let to_end = self.decayed(b, added, TO_END, place, number);
        let left = kernel.added_rows(b, (state, chunk.check), &[(&rows, to_end)])[0];
        let mut next = self.decayed_state(b, state, place, number);
        multiply_in_time(b, &mut next, left, Factor { lanes: &lanes.all.in_time, ..factors.keys }, number);
        assign(b, state, next);
    }

    /// Computes and saves e of a chunk.
    fn errors(&self, b: &mut Builder, chunk: &WalkedChunk<'_>) -> Blocks {
        let kernel = &self.kernel;
        let WalkedChunk { state, lanes, factors, place, saved, number, .. } = *chunk;
        let read = self.reading(b, chunk, |b, left| vec![kernel.read(b, left, factors.columns, number)]).remove(0);
        let undone = state.undone(b);
        let values = self.own_values(b, lanes, number);
        let scale = self.scales(b, place, number).map(|two| times_number(b, two, undone));
        let mut rows: Blocks = vec![];
        for (eight, (read, own)) in read.iter().zip(&values).enumerate() {
            rows.push(ELEMENTS.map(|(h, c)| {
                let given = b.mul(read[2 * h + c], scale[eight][c]);
                b.sub(own[2 * h + c], given)
            }));
        }
        self.solve(b, &mut rows, &lanes.all.pairs, false, number);
        self.save_rows(b, &rows, saved, number);
        rows
    }

    /// Computes what the steps of a chunk read of a state that has two keys, and the state after it.
    fn read_chunk(&self, b: &mut Builder, chunk: &WalkedChunk<'_>, of_values: Factor) {
        let kernel = &self.kernel;
        let WalkedChunk { state, lanes, factors, place, saved, number, .. } = *chunk;
        let mut rows = self.reading(b, chunk, |b, left| vec![kernel.read(b, left, factors.columns, number)]).remove(0);
        let scale = self.scales(b, place, number);
        for (rows, scale) in rows.iter_mut().zip(scale) {
            *rows = ELEMENTS.map(|(h, c)| b.mul(rows[2 * h + c], scale[c]));
        }
        let values = self.own_values(b, lanes, number);
        let added = self.columns(b, ADDED, place, number);
        let values = self.scaled(b, &values, added);
        let columns = of_values.parts(b, number * ROWS, 0, false);
        values.multiply(b, kernel.elem(), &mut rows, columns);
        self.solve(b, &mut rows, &lanes.all.pairs, false, number);
        self.save_rows(b, &rows, saved, number);
        let rows = Parts::of_blocks(b, kernel.elem(), &rows);
        let mut next = self.decayed_state(b, state, place, number);
        for (left, right) in [(rows, factors.rows), (values, factors.keys)] {
            multiply_in_time(b, &mut next, left, Factor { lanes: &lanes.all.in_time, ..right }, number);
        }
        assign(b, state, next);
    }

    /// Computes and saves the products of cotangents of states with the keys that values are added times, from those of the state
    /// after the chunk, and from p and the cotangents of queries' readings, as left factors.
    fn save_value_rows(&self, b: &mut Builder, mut sums: Blocks, moved: Parts, given: Parts, chunk: &WalkedChunk<'_>) {
        let (Some(weights), Some(to)) = (&self.kernel.of_values, self.saved.value_rows) else { return };
        for (tile, left) in weights.iter().zip([moved, given]) {
            let weights = Factor::of(b, tile, &chunk.lanes.transposed, Operand::i32(0));
            let columns = weights.parts(b, chunk.number * ROWS, 0, true);
            left.multiply(b, self.kernel.elem(), &mut sums, columns);
        }
        self.save_rows_to(b, &sums, to, chunk.saved, chunk.number);
    }

    /// Computes p of a chunk, and the cotangent of the state before it.
    pub(super) fn cotangent_chunk(&self, b: &mut Builder, chunk: &WalkedChunk<'_>) {
        let kernel = &self.kernel;
        let WalkedChunk { state, lanes, factors, place, saved, number, .. } = *chunk;
        let mut reads = self.reading(b, chunk, |b, left| {
            let rows = kernel.read(b, left, factors.rows, number);
            let of_values = kernel.of_values.is_some().then(|| {
                if left.iter().any(|part| part.low().is_some()) {
                    // Two parts of the state leave no registers for both products at once.
                    b.push(Stmt::SyncWarp);
                }
                kernel.read(b, left, factors.keys, number)
            });
            [rows].into_iter().chain(of_values).collect()
        });
        let undone = state.undone(b);
        let of_values = kernel.of_values.as_ref().and_then(|_| reads.pop());
        let mut rows = reads.remove(0);
        let given = self.own_values(b, lanes, number);
        let scale = kernel.form.reads.then(|| self.scales(b, place, number));
        let gains = self.columns(b, ADDED, place, number);
        for (eight, rows) in (0..).zip(&mut rows) {
            let decays = kernel.two_decays(b, TO_END, place.rates, 2 * number + eight);
            if let Some(decays) = undecayed(b, decays, undone) {
                *rows = ELEMENTS.map(|(h, c)| b.mul(rows[2 * h + c], decays[c]));
            }
        }
        let weights = Factor::of(b, &kernel.weights, &lanes.transposed, Operand::i32(0));
        let weighed = self.scaled(b, &given, gains);
        let columns = weights.parts(b, number * ROWS, 0, true);
        weighed.multiply(b, kernel.elem(), &mut rows, columns);
        self.solve(b, &mut rows, &lanes.transposed, true, number);
        self.save_rows(b, &rows, saved, number);
        self.store_width(b, &rows, chunk);
        if let Some(sums) = of_values {
            let moved = Parts::of_blocks(b, kernel.elem(), &rows);
            self.save_value_rows(b, sums, moved, weighed, chunk);
        }
        let from_start = self.decayed(b, gains, FROM_START, place, number);
        let moved = scale.map(|scale| (&rows, scale));
        let given: Vec<(&Blocks, Columns)> = [(&given, from_start)].into_iter().chain(moved).collect();
        let added = kernel.added_rows(b, (state, chunk.check), &given);
        let mut next = self.decayed_state(b, state, place, number);
        if let Some(queries) = factors.queries {
            let queries = Factor { lanes: &lanes.all.in_time, ..queries };
            multiply_in_time(b, &mut next, added[0], queries, number);
        }
        if let Some(moved) = added.get(1) {
            let columns = Factor { lanes: &lanes.all.in_time, ..factors.columns };
            multiply_in_time(b, &mut next, *moved, columns, number);
        }
        assign(b, state, next);
    }

    /// What `read` computes from the state before a chunk.
    fn reading(
        &self,
        b: &mut Builder,
        chunk: &WalkedChunk<'_>,
        read: impl Fn(&mut Builder, &[Parts]) -> Vec<Blocks>,
    ) -> Vec<Blocks> {
        let given = |b: &mut Builder| {
            let values = self.own_values(b, chunk.lanes, chunk.number);
            self.kernel.given_rows(b, &values, chunk.place.rates, chunk.number)
        };
        self.kernel.reading(b, (chunk.state, chunk.check), given, read)
    }

    /// The values of the warp's places at the times of a chunk.
    fn own_values(&self, b: &mut Builder, lanes: &WalkLanes, chunk: u32) -> Blocks {
        self.kernel.values_of(b, lanes.all.values, chunk)
    }

    /// Rates of a kind at the thread's columns of a chunk.
    fn columns(&self, b: &mut Builder, kind: usize, place: &TilePlace, chunk: u32) -> Columns {
        [0, 1].map(|eight| self.kernel.two_rates(b, kind, place.rates, 2 * chunk + eight))
    }

    /// The factors of the products of z with the state before a chunk.
    fn scales(&self, b: &mut Builder, place: &TilePlace, chunk: u32) -> Columns {
        [0, 1].map(|eight| self.kernel.two_scales(b, place.rates, 2 * chunk + eight))
    }

    /// Numbers times decays of a kind, where there are any.
    fn decayed(&self, b: &mut Builder, numbers: Columns, kind: usize, place: &TilePlace, chunk: u32) -> Columns {
        [0, 1].map(|eight: usize| {
            let decays = self.kernel.two_decays(b, kind, place.rates, 2 * chunk + eight as u32);
            [0, 1].map(|c| decays.map_or(numbers[eight][c], |decays| b.mul(numbers[eight][c], decays[c])))
        })
    }

    /// Adds to rows their product with the inverse of the chunk's system less its identity.
    fn solve(&self, b: &mut Builder, rows: &mut Blocks, lanes: &Lanes, transposed: bool, chunk: u32) {
        let Some(inverses) = &self.kernel.inverses else { return };
        let inverses = Factor::of(b, inverses, lanes, Operand::i32(0));
        let elem = self.kernel.elem();
        let left = Parts::of_blocks(b, elem, rows);
        let columns = inverses.parts(b, chunk * ROWS, 0, transposed);
        left.multiply(b, elem, rows, columns);
    }

    /// Rows times numbers for each time, as a left factor.
    fn scaled(&self, b: &mut Builder, rows: &Blocks, numbers: Columns) -> Parts {
        let scaled = times_columns(b, rows, numbers);
        Parts::of_blocks(b, self.kernel.elem(), &scaled)
    }

    /// The state decayed over a chunk.
    fn decayed_state(&self, b: &mut Builder, state: &State, place: &TilePlace, chunk: u32) -> Blocks {
        let all = state.blocks.iter().map(|block| block.map(Operand::Reg));
        if let Some(channels) = &self.kernel.channels {
            let ends = self.kernel.ends(b, channels, place, chunk);
            return all.zip(ends).map(|(sums, two)| ELEMENTS.map(|(h, c)| b.mul(sums[2 * h + c], two[c]))).collect();
        }
        match self.kernel.decay_of_chunk(b, place.rates, chunk) {
            Some(whole) => all.map(|block| block.map(|x| b.mul(x, whole))).collect(),
            None => all.collect(),
        }
    }
}

fn assign(b: &mut Builder, state: &State, sums: Blocks) {
    for (block, sums) in state.blocks.iter().zip(sums) {
        block.iter().zip(sums).for_each(|(reg, sum)| b.assign(*reg, sum));
    }
}
