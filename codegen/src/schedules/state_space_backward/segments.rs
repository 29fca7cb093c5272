//! Segments of time, each with blocks of its own: their carries and totals, beside [their
//! ends](crate::schedules::state_space::segments).
//!
//! A segment is a number of tiles in the order of the walk. Walked from a cotangent x behind it, it ends with
//! product·x + own: the pass before the walk finds both for every state, and a walk starts with those of the segments
//! before it, from the last cotangent on. Sums over time are totals of segments, which the last pass adds in their order.
//!
//! ```text
//! carries  [segments][points][rows][product, own][places]
//! totals   [segments]([sums over maps of states][points][rows][places] [sums over rows][points][rows])
//! ```

use super::StateSpaceBackwardKernel;
use super::chain::Chain;
use super::lane::Lane;
use crate::block::args::Args;
use crate::block::state_step::StateStep;
use crate::build::{Builder, zero};
use crate::schedules::state_space::CHUNK;
use crate::schedules::state_space::TileAt;
use crate::schedules::state_space::segments::Segment;
use crate::stage::kind::BackwardScan;
use crate::tile::{Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Literal;

/// A sum over time.
#[derive(Clone, Copy)]
pub(super) enum Total {
    /// A sum of maps of states.
    States(usize),
    /// A sum of values of rows.
    Rows(usize),
}

/// The totals of each row of a segment.
pub(super) fn totals_per_row(form: &BackwardScan, row_len: i64) -> i64 {
    (form.state_totals.len() as i64).saturating_mul(row_len).saturating_add(form.row_totals.len() as i64)
}

/// The indices of rows, in all points, and of their states among carries and totals. All `i64`.
pub(super) struct SegmentLayout {
    /// Rows of all points.
    pub rows: Operand,
    /// The room for a row's states.
    pub row_len: Operand,
    /// The distance from a segment's totals to the next one's.
    pub apart: Operand,
}

impl SegmentLayout {
    pub(super) fn find(b: &mut Builder, args: &Args, form: &BackwardScan, row_len: Operand) -> SegmentLayout {
        let rows = args.rows(b, form.outer);
        let each = b.mul(row_len, form.state_totals.len());
        let each = b.add(each, form.row_totals.len());
        let apart = b.mul(rows, each);
        SegmentLayout { rows, row_len, apart }
    }

    /// The first number of a sum over time, of all rows, in a segment's totals.
    pub(super) fn sum(&self, b: &mut Builder, form: &BackwardScan, total: Total) -> Operand {
        let states = |b: &mut Builder, count: usize| {
            let numbers = b.mul(self.rows, self.row_len);
            b.mul(numbers, count)
        };
        match total {
            Total::States(i) => states(b, i),
            Total::Rows(i) => {
                let before = states(b, form.state_totals.len());
                let rows = b.mul(self.rows, i);
                b.add(before, rows)
            }
        }
    }

    /// The product of a row's first state in a segment; the other number is `places` further.
    fn carry(&self, b: &mut Builder, segment: Operand, row: Operand) -> Operand {
        let at = b.mul(segment, self.rows);
        let at = b.add(at, row);
        let at = b.mul(at, self.row_len);
        b.mul(at, 2)
    }
}

impl<'s> StateSpaceBackwardKernel<'s> {
    /// Emits the pass before the walk: every segment from a cotangent of zero.
    pub(super) fn carry_role(&self, b: &mut Builder) {
        let Some(segment) = &self.base.frame.segment else { return };
        let lane = self.lane(b, &[self.form.decay, self.form.gain]);
        let rows = lane.rows.len();
        let registers = |b: &mut Builder, value: f64| {
            let value = Operand::Const(Ty::F32, Literal::Float(value));
            let states = |b: &mut Builder| (0..self.schedule.states).map(|_| b.var(value)).collect::<Vec<Reg>>();
            (0..rows).map(|_| states(b)).collect::<Vec<_>>()
        };
        let (products, own) = (registers(b, 1.0), registers(b, 0.0));
        self.each_subtile(b, |b, tile, column| self.carry_subtile(b, &lane, tile, column, &products, &own));
        let lane = self.rematerialised_lane(b);
        let layout = self.segment_layout(b);
        for (r, (products, own)) in products.iter().zip(&own).enumerate() {
            let at = self.carry_index(b, &lane, &layout, segment.number, r);
            self.store_carry(b, &lane, at, products, lane.row_exists[r]);
            let at = b.add(at, layout.row_len);
            self.store_carry(b, &lane, at, own, lane.row_exists[r]);
        }
    }

    fn store_carry(&self, b: &mut Builder, lane: &Lane, at: Operand, values: &[Reg], exists: Operand) {
        for (access, values) in values.chunks(CHUNK as usize).enumerate() {
            let exists = self.holds(b, lane, access as u32, exists);
            let at = b.add(at, access as u32 * CHUNK);
            let values: Vec<Operand> = values.iter().map(|reg| (*reg).into()).collect();
            b.store(Memory::Global(self.base.args.scratch[3]), at, &values, Some(exists));
        }
    }

    /// Takes the cotangents of all states eight steps back.
    fn carry_subtile(
        &self,
        b: &mut Builder,
        lane: &Lane<'_, 's>,
        tile: &TileAt,
        column: Operand,
        products: &[Vec<Reg>],
        own: &[Vec<Reg>],
    ) {
        let begins = |(products, own): (&Vec<Reg>, &Vec<Reg>)| -> Vec<(Operand, Chain)> {
            products.iter().zip(own).map(|(product, own)| ((*product).into(), Chain::Carried((*own).into()))).collect()
        };
        let mut reached: Vec<Vec<(Operand, Chain)>> = products.iter().zip(own).map(begins).collect();
        let parts = self.parts(b, column);
        for (number, (column, steps)) in parts.iter().copied().enumerate().rev() {
            let mut lane_rows = self.lane_rows(b, lane, tile, column, steps);
            for state in 0..self.schedule.states {
                self.load_states(b, &mut lane_rows, lane, tile, state, column, steps);
                for (r, reached) in reached.iter_mut().enumerate() {
                    let (all, chain) = &mut reached[state as usize];
                    for step in self.in_order(steps).into_iter().rev() {
                        let at = StateStep { state, step };
                        *chain = self.step_back(b, &mut lane_rows, r, at, *chain);
                        let decay = self.decay(b, &mut lane_rows, r, at);
                        let next = b.mul(*all, decay);
                        *all =
                            if self.masks.steps { b.select(lane_rows.exists[step as usize], next, *all) } else { next };
                    }
                    if number == 0 {
                        let next = chain.carried(b);
                        b.assign(own[r][state as usize], next);
                        b.assign(products[r][state as usize], *all);
                    }
                }
            }
            if number > 0 {
                b.push(Stmt::SyncWarp);
            }
        }
    }

    /// Takes the cotangents from the end of time to the block's segment.
    pub(super) fn join(&self, b: &mut Builder, lane: &Lane<'_, 's>, cotangents: &[Vec<Reg>]) {
        let Some(segment) = &self.base.frame.segment else { return };
        let layout = self.segment_layout(b);
        b.for_(Operand::i64(0), segment.number, 1, |b, before| {
            for (r, regs) in cotangents.iter().enumerate() {
                let at = self.carry_index(b, lane, &layout, before, r);
                for (access, regs) in regs.chunks(CHUNK as usize).enumerate() {
                    let exists = self.holds(b, lane, access as u32, lane.row_exists[r]);
                    let at = b.add(at, access as u32 * CHUNK);
                    self.join_states(b, at, layout.row_len, regs, exists);
                }
            }
        });
    }

    fn join_states(&self, b: &mut Builder, at: Operand, apart: Operand, regs: &[Reg], exists: Operand) {
        let own = b.add(at, apart);
        let memory = Memory::Global(self.base.args.scratch[3]);
        let [products, own] = [at, own].map(|at| b.load(memory, at, regs.len() as u32, Some(exists), zero(Ty::F32)));
        for (reg, (product, own)) in regs.iter().zip(products.into_iter().zip(own)) {
            let next = b.fma(product, (*reg).into(), own);
            b.assign(*reg, next);
        }
    }

    /// The product of the lane's first state of one of its rows in a segment.
    fn carry_index(
        &self,
        b: &mut Builder,
        lane: &Lane,
        layout: &SegmentLayout,
        segment: Operand,
        own_row: usize,
    ) -> Operand {
        let row = self.row_of_all(b, lane.rows[own_row]);
        let at = layout.carry(b, segment, row);
        let position = self.first_place(b, lane);
        b.add(at, position)
    }

    fn segment_layout(&self, b: &mut Builder) -> SegmentLayout {
        SegmentLayout::find(b, &self.base.args, self.form, self.scratch.room.row_len)
    }

    /// The number of a row of the block among the rows of all points, `i64`.
    fn row_of_all(&self, b: &mut Builder, row: Operand) -> Operand {
        let own = self.row_number(b, row);
        let rows = self.form.row.map_or(Operand::i64(1), |row| self.base.args.size(row));
        let before = b.mul(self.scratch.point, rows);
        b.add(before, own)
    }

    /// Stores the totals of a segment: those of the states of one of the lane's rows.
    pub(super) fn store_state_totals(
        &self,
        b: &mut Builder,
        lane: &Lane,
        segment: &Segment,
        i: usize,
        values: &[Vec<Reg>],
    ) {
        let layout = self.segment_layout(b);
        for (r, values) in values.iter().enumerate() {
            let row = self.row_of_all(b, lane.rows[r]);
            let row = b.mul(row, layout.row_len);
            let position = self.first_place(b, lane);
            let within = b.add(row, position);
            let at = self.total_index(b, &layout, segment, Total::States(i), within);
            for (state, value) in values.iter().enumerate() {
                let exists = self.holds(b, lane, state as u32 / CHUNK, lane.row_exists[r]);
                let at = b.add(at, state);
                b.store(Memory::Global(self.base.args.scratch[4]), at, &[(*value).into()], Some(exists));
            }
        }
    }

    /// Stores a total of the lane's first row, where the guard says so.
    pub(super) fn store_row_total(
        &self,
        b: &mut Builder,
        lane: &Lane,
        segment: &Segment,
        i: usize,
        value: Operand,
        guard: Operand,
    ) {
        let layout = self.segment_layout(b);
        let row = self.row_of_all(b, lane.rows[0]);
        let at = self.total_index(b, &layout, segment, Total::Rows(i), row);
        let guard = b.and(guard, lane.row_exists[0]);
        b.store(Memory::Global(self.base.args.scratch[4]), at, &[value], Some(guard));
    }

    fn total_index(
        &self,
        b: &mut Builder,
        layout: &SegmentLayout,
        segment: &Segment,
        total: Total,
        within: Operand,
    ) -> Operand {
        let before = b.mul(segment.number, layout.apart);
        let sum = layout.sum(b, self.form, total);
        let at = b.add(before, sum);
        b.add(at, within)
    }
}
