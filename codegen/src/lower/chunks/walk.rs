//! The walk of a block over the chunks of its recurrence.

use super::decay::{Decays, Rates, f32};
use super::products::{Blocks, Factor, multiply, multiply_in_time, pack};
use super::segments::Turns;
use super::state::State;
use super::{COLUMNS, ChunksKernel, ROWS, zeros};
use crate::build::Builder;
use crate::lower::pairs::tile::{Lanes, left_rows, right_rows};
use crate::lower::pairs::values::Values;
use crate::tile::{Expr, Mbarrier, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// The lanes by which tiles are read.
struct AllLanes {
    /// Queries as a left factor.
    queries: Option<Lanes>,
    /// Keys as a right factor over the depth, and over time.
    keys: Lanes,
    keys_in_time: Lanes,
    /// Values as a right factor over time.
    values: Lanes,
    /// The place of the warp's values as a left factor over time, within 16 times.
    values_left: Operand,
    /// States as a right factor.
    states: Lanes,
}

impl ChunksKernel<'_> {
    pub(super) fn body(&self, b: &mut Builder) {
        self.start(b);
        let source = self.source();
        let origins: Vec<Operand> = self.tiles().map(|tile| tile.origin(b, &source)).collect();
        let times = i64::from(self.schedule.times());
        let up = b.add(self.args.size(self.form.time), Operand::i64(times - 1));
        let chunks = b.binary(Binary::Div, up, Operand::i64(times));
        let chunks = b.convert(Ty::I32, chunks);
        let turns = self.segment.turns(b, chunks);
        for turn in 0..self.schedule.stages as i32 - 1 {
            self.fetch(b, &origins, (Operand::i32(turn), turns));
        }
        let mut values = Values::new(self.stage, &self.args, [self.form.time, self.form.width], self.outer.clone());
        self.set_width(b, &mut values);
        let state = self.first_state(b, &values);
        if !self.schedule.ends {
            self.join(b, &state);
        }
        let lanes = self.lanes(b);
        self.store_state(b, &state);
        if self.form.channels {
            self.clear_logs(b);
        } else {
            let rates = self.rates_at(b, &values, (Operand::i32(0), turns));
            self.store_rates(b, &rates, Operand::i32(0));
        }
        let logs = b.var(f32(0.0));
        b.for_(Operand::i32(0), turns.count, Operand::i32(1), |b, turn| {
            self.turn(b, (&lanes, &origins), (&values, &state, logs), (turn, turns));
        });
        if self.schedule.ends {
            return self.store_end(b, &state, logs);
        }
        let is_last = self.segment.is_last(b);
        b.if_(is_last, |b| self.finals(b, &values, &state));
    }

    /// One thread makes the mbarriers.
    fn start(&self, b: &mut Builder) {
        let first = b.eq(self.thread, Operand::i32(0));
        b.if_(first, |b| {
            for tile in self.tiles() {
                for i in 0..self.schedule.stages as i32 {
                    let mbarrier = Mbarrier { array: tile.full, index: Operand::i32(i) };
                    b.push(Stmt::MbarrierInit(mbarrier, self.schedule.threads()));
                }
            }
            b.push(Stmt::FenceInit);
        });
        b.barrier();
    }

    /// Starts the copies of a chunk, if there is one.
    fn fetch(&self, b: &mut Builder, origins: &[Operand], (turn, turns): (Operand, Turns)) {
        let exists = b.lt(turn, turns.count);
        b.if_(exists, |b| {
            let chunk = self.chunk(b, (turn, turns));
            let first = b.mul(chunk, Operand::i32(self.schedule.times() as i32));
            let stage = b.binary(Binary::Rem, turn, Operand::i32(self.schedule.stages as i32));
            for (tile, origin) in self.tiles().zip(origins) {
                tile.fill(b, &self.source(), *origin, first, stage);
            }
        });
    }

    /// The chunk of a turn of the segment.
    fn chunk(&self, b: &mut Builder, (turn, turns): (Operand, Turns)) -> Operand {
        let turn = b.add(turns.first, turn);
        if !self.form.reverse {
            return turn;
        }
        let last = b.sub(turns.all, Operand::i32(1));
        b.sub(last, turn)
    }

    fn lanes(&self, b: &mut Builder) -> AllLanes {
        let (row, half) = left_rows(b, self.lane);
        let of_warp = b.mul(self.warp, Operand::i32(ROWS as i32));
        let own = b.add(row, of_warp);
        let queries = self.queries.as_ref().map(|tile| tile.lanes(b, own, half));
        let (keys_in_time, values) = (self.keys.lanes(b, row, half), self.values.lanes(b, row, half));
        let (row, half) = right_rows(b, self.lane);
        let (keys, states) = (self.keys.lanes(b, row, half), self.states.lanes(b, row, half));
        let values_left = self.values.lanes_at(b, row, half, self.warp);
        AllLanes { queries, keys, keys_in_time, values, values_left, states }
    }

    /// One chunk.
    fn turn(
        &self,
        b: &mut Builder,
        (lanes, origins): (&AllLanes, &[Operand]),
        (values, state, logs): (&Values, &State, Reg),
        (turn, turns): (Operand, Turns),
    ) {
        let stages = Operand::i32(self.schedule.stages as i32);
        let [stage, round] = [Binary::Rem, Binary::Div].map(|op| b.binary(op, turn, stages));
        let parity = b.binary(Binary::And, round, Operand::i32(1));
        let chunk = self.chunk(b, (turn, turns));
        let first = b.mul(chunk, Operand::i32(self.schedule.times() as i32));
        if self.form.channels {
            // The sums of the chunk before are read until its end.
            b.barrier();
            self.sum_channels(b, values, first);
        }
        // From here on everybody has the sums and the state, and nobody reads the chunk before.
        b.barrier();
        let next = b.add(turn, Operand::i32(self.schedule.stages as i32 - 1));
        self.fetch(b, origins, (next, turns));
        self.save_state(b, (chunk, turns.all));
        for tile in self.tiles() {
            b.push(Stmt::MbarrierWait(Mbarrier { array: tile.full, index: stage }, parity));
        }
        // Their reads take as long as the products.
        let rates = (!self.form.channels).then(|| self.next_rates(b, values, (turn, turns)));
        let keys = Factor::of(b, &self.keys, &lanes.keys, stage);
        let keys_in_time = Factor { lanes: &lanes.keys_in_time, ..keys };
        let in_time = Factor::of(b, &self.values, &lanes.values, stage);
        let queries = self.queries.as_ref().zip(lanes.queries.as_ref());
        let queries = queries.map(|(tile, lanes)| Factor::of(b, tile, lanes, stage));
        let decays = (!self.form.channels).then(|| self.decays(b, turn));
        if let Some(queries) = queries {
            let states = Factor { tile: &self.states, lanes: &lanes.states, start: Operand::i32(0) };
            let y = match &decays {
                Some(decays) => self.read(b, decays, (queries, keys, in_time, states)),
                None => self.read_channels(b, (queries, keys, in_time, states)),
            };
            self.store_outputs(b, values, (first, &y), (in_time.start, queries));
        }
        let remaining = match &decays {
            Some(decays) => self.remaining(b, decays),
            None => self.gains_of_columns(b),
        };
        let left = self.scaled_values(b, &remaining, (in_time, lanes.values_left));
        self.wait_saved(b);
        b.barrier();
        match &decays {
            Some(decays) => {
                self.advance(b, state, decays, (&left, keys_in_time));
                let sum = b.add(logs.into(), decays.end);
                b.assign(logs, sum);
            }
            None => self.advance_channels(b, state, (&left, keys_in_time)),
        }
        self.store_state(b, state);
        if let Some(rates) = rates {
            let following = b.add(turn, Operand::i32(1));
            self.store_rates(b, &rates, following);
        }
    }

    /// The rates of the turn after, early: they are read from memory.
    fn next_rates(&self, b: &mut Builder, values: &Values, (turn, turns): (Operand, Turns)) -> Rates {
        let (next, last) = (b.add(turn, Operand::i32(1)), b.sub(turns.count, Operand::i32(1)));
        let known = b.binary(Binary::Min, next, last);
        self.rates_at(b, values, (known, turns))
    }

    /// The rates of a turn; past the last, those of times that exist or not.
    fn rates_at(&self, b: &mut Builder, values: &Values, at: (Operand, Turns)) -> Rates {
        let chunk = self.chunk(b, at);
        let first = b.mul(chunk, Operand::i32(self.schedule.times() as i32));
        self.rates(b, values, first)
    }

    /// The sums over depth of query·S at the chunk's times.
    fn read(
        &self,
        b: &mut Builder,
        decays: &Decays,
        (queries, keys, in_time, states): (Factor, Factor, Factor, Factor),
    ) -> Blocks {
        let width = (self.schedule.width() / COLUMNS) as usize;
        let mut y: Blocks = vec![zeros(); width];
        multiply(b, &mut y, (queries, states));
        for block in &mut y {
            for (r, value) in block.iter_mut().enumerate() {
                *value = b.mul(*value, decays.from_start[r / 2]);
            }
        }
        let mut scores: Blocks = vec![zeros(); (self.schedule.times() / COLUMNS) as usize];
        multiply(b, &mut scores, (queries, keys));
        let weights: Blocks = scores.iter().enumerate().map(|(j, block)| self.weigh(b, decays, (j, block))).collect();
        let packed: Blocks = weights.chunks(2).map(|two| pack(b, self.elem(), two)).collect();
        for (sixteen, weights) in packed.iter().enumerate() {
            multiply_in_time(b, &mut y, (*weights, in_time), sixteen as u32);
        }
        y
    }

    /// The weights of a block of pairs of times.
    fn weigh(&self, b: &mut Builder, decays: &Decays, (block, scores): (usize, &[Operand; 4])) -> [Operand; 4] {
        let mut weights = *scores;
        for (r, weight) in weights.iter_mut().enumerate() {
            let (row, column) = (r / 2, 2 * block + r % 2);
            let apart = b.sub(decays.rows[row], decays.columns[column]);
            let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
            let decay = b.mul(decay, decays.gains[column]);
            let product = b.mul(*weight, decay);
            let at = b.add(decays.column, Operand::i32((column / 2) as i32 * COLUMNS as i32 + (column % 2) as i32));
            let row = b.add(decays.row, Operand::i32((row as u32 * COLUMNS) as i32));
            let earlier = b.binary(Binary::Le, at, row);
            *weight = b.select(earlier, product, crate::build::zero(Ty::F32));
        }
        weights
    }
}
