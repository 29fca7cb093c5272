//! The terms of a sub-tile's sums: over states, over rows and over time.

use super::SUBTILE;
use super::StateSpaceBackwardKernel;
use super::lane::Lane;
use super::subtile::{Carry, LaneRows};
use crate::block::state_step::{Evaluator, Source, StateStep};
use crate::build::{Builder, zero};
use crate::stage::kind::Sum;
use crate::tile::{Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Op};

/// The sums so far, by sum, row of the lane and step; of rows by sum and step.
pub(super) struct Sums {
    pub states: Vec<Vec<Vec<Option<Operand>>>>,
    pub rows: Vec<Vec<Option<Operand>>>,
}

impl Sums {
    /// Registers for the sums over states, by sum, row of the lane and step.
    pub(super) fn registers(&self, b: &mut Builder) -> Vec<Reg> {
        self.states.iter().flatten().flatten().map(|_| b.var(zero(Ty::F32))).collect()
    }

    /// Assigns the sums over states so far to registers.
    pub(super) fn assign(&self, b: &mut Builder, regs: &[Reg]) {
        let all = self.states.iter().flatten().flatten().zip(regs);
        all.for_each(|(sum, reg)| b.assign(*reg, sum.unwrap_or(zero(Ty::F32))));
    }

    /// Goes on with the sums that registers hold.
    pub(super) fn take(&mut self, regs: &[Reg]) {
        let all = self.states.iter_mut().flatten().flatten().zip(regs);
        all.for_each(|(sum, reg)| *sum = Some((*reg).into()));
    }
}

/// One of the lane's rows, and one of its states.
#[derive(Clone, Copy)]
pub(super) struct RowState {
    pub row: usize,
    pub state: u32,
}

/// One of the lane's rows, with a state and a step.
#[derive(Clone, Copy)]
pub(super) struct RowStep {
    pub row: usize,
    pub at: StateStep,
}

/// One term of a sum.
pub(super) struct Term<'p> {
    pub sum: &'p Sum,
    pub at: StateStep,
    /// Whether there is such a term; `None` where there is.
    pub exists: Option<Operand>,
}

impl StateSpaceBackwardKernel<'_> {
    /// Adds the terms of a state and step to the sums over states and over rows.
    pub(super) fn add_terms(
        &self,
        b: &mut Builder,
        lane: &Lane,
        lane_rows: &mut LaneRows,
        RowStep { row: r, at }: RowStep,
        sums: &mut Sums,
        late: bool,
    ) {
        let (evaluator, eight) = (&mut lane_rows.evaluators[r], &mut lane_rows.eights[r]);
        let step = at.step as usize;
        for (i, sum) in self.form.sums.iter().enumerate().filter(|(_, sum)| self.form.is_late(sum.element) == late) {
            let mask = self.masks.sums[i].then_some(lane.state_exists[at.state as usize]);
            let so_far = &mut sums.states[i][r][step];
            *so_far = Some(self.add_term(b, evaluator, eight, &Term { sum, at, exists: mask }, *so_far));
        }
        let rows = self.form.row_sums.iter().enumerate();
        for (i, sum) in rows.filter(|(_, sum)| self.form.is_late(sum.element) == late) {
            let mask = self.masks.row_sums[i].then_some(lane.row_exists[r]);
            let so_far = &mut sums.rows[i][step];
            *so_far = Some(self.add_term(b, evaluator, eight, &Term { sum, at, exists: mask }, *so_far));
        }
    }

    /// Adds one more term to a sum; nothing where the term does not exist.
    pub(super) fn add_term(
        &self,
        b: &mut Builder,
        evaluator: &mut Evaluator,
        source: &mut dyn Source,
        term: &Term,
        so_far: Option<Operand>,
    ) -> Operand {
        let Term { sum, at, exists } = *term;
        if let (Op::Binary(Binary::Mul, x, y), Some(so_far), None) =
            (&self.form.program.node(sum.element).op, so_far, exists)
        {
            let [x, y] = [*x, *y].map(|v| evaluator.value(b, source, v, at));
            return b.fma(x, y, so_far);
        }
        let term = evaluator.value(b, source, sum.element, at);
        let term = exists.map_or(term, |exists| b.select(exists, term, zero(Ty::F32)));
        so_far.map_or(term, |so_far| b.add(so_far, term))
    }

    /// Adds the terms of eight steps to the sums over time of maps of states.
    pub(super) fn add_totals(
        &self,
        b: &mut Builder,
        carry: &Carry,
        lane_rows: &mut LaneRows,
        own: RowState,
        late: bool,
    ) {
        let RowState { row: r, state } = own;
        for (i, sum) in self.form.state_totals.iter().enumerate() {
            if self.form.is_late(sum.element) != late {
                continue;
            }
            let reg = carry.totals.states[i][r][state as usize];
            let mut total: Operand = reg.into();
            let mut order = self.in_order(SUBTILE);
            order.reverse();
            for step in order {
                let exists = self.masks.state_totals[i].then_some(lane_rows.exists[step as usize]);
                let (evaluator, eight) = (&mut lane_rows.evaluators[r], &mut lane_rows.eights[r]);
                let term = Term { sum, at: StateStep { state, step }, exists };
                total = self.add_term(b, evaluator, eight, &term, Some(total));
            }
            b.assign(reg, total);
        }
    }

    /// Puts the lane's sums over its rows of a state on the heap.
    pub(super) fn put(&self, b: &mut Builder, lane: &Lane, sums: &Sums, state: u32, late: bool) {
        let Some(rows) = &self.row_sums else { return };
        for (i, sum) in self.form.row_sums.iter().enumerate() {
            if self.form.is_late(sum.element) == late {
                let values: Vec<Operand> = sums.rows[i].iter().map(|x| x.unwrap_or(zero(Ty::F32))).collect();
                self.heap(b, rows, lane, i, state % rows.batch, &values);
            }
        }
    }
}
