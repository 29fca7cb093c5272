//! The pass that saves the states before every eighth step.

use super::lane::Lane;
use super::{SUBTILE, StateSpaceBackwardKernel};
use crate::block::state_step::StateStep;
use crate::build::Builder;
use crate::schedules::state_space::TileAt;
use crate::schedules::state_space::saved::StateRun;
use crate::tile::{Operand, Reg, Shuffle, Stmt};
use oplus_dsl::Ty;

impl<'s> StateSpaceBackwardKernel<'s> {
    pub(super) fn save_role(&self, b: &mut Builder) {
        let lane = self.lane(b, &[self.form.after]);
        let mut states: Vec<Vec<Reg>> = vec![];
        for r in 0..lane.rows.len() {
            states.push(self.initial(b, &lane, r, self.form.init[0]));
        }
        let first = self.first_state(b, &lane);
        let fields: Vec<Vec<Reg>> = states[0].iter().map(|state| vec![*state]).collect();
        self.base.join(b, lane.rows[0], first, &fields);
        let Some(saved) = &self.scratch.saved else { return };
        let mut anchor = |row: &Operand| self.base.anchor_of_states(b, saved, *row, first);
        let anchors: Vec<Operand> = lane.rows.iter().map(&mut anchor).collect();
        self.each_numbered_subtile(b, |b, tile, number, column| {
            self.save(b, &lane, (tile, number), column, &anchors, &states);
            self.walk_states(b, &lane, tile, column, &states);
        });
    }

    /// Writes the states before a sub-tile.
    fn save(
        &self,
        b: &mut Builder,
        lane: &Lane,
        (tile, number): (&TileAt, Operand),
        column: Operand,
        anchors: &[Operand],
        states: &[Vec<Reg>],
    ) {
        let time = if self.base.spares_registers() {
            let number = b.shuffle(Shuffle::Index, number, self.base.frame.lane);
            self.base.time_again(b, number)
        } else {
            tile.time
        };
        let inside = b.lt(column, time.steps);
        let column = b.convert(Ty::I64, column);
        let step = b.add(time.first, column);
        let first = b.mul(lane.position, self.schedule.states);
        let Some(saved) = &self.scratch.saved else { return };
        for (r, states) in states.iter().enumerate() {
            let guard = b.and(inside, lane.row_exists[r]);
            let values: Vec<Operand> = states.iter().map(|reg| (*reg).into()).collect();
            let run = StateRun { step, first, anchor: anchors[r], states: &values };
            self.base.store_states(b, saved, run, guard);
        }
    }

    /// Takes all states eight steps on.
    fn walk_states(&self, b: &mut Builder, lane: &Lane<'_, 's>, tile: &TileAt, column: Operand, states: &[Vec<Reg>]) {
        if !self.base.spares_registers() {
            return self.walk_steps(b, lane, tile, (column, SUBTILE), states);
        }
        let [first, second] = self.parts(b, column);
        self.walk_steps(b, lane, tile, first, states);
        b.push(Stmt::SyncWarp);
        self.walk_steps(b, lane, tile, second, states);
    }

    /// Takes all states so many steps on, from a column.
    fn walk_steps(
        &self,
        b: &mut Builder,
        lane: &Lane<'_, 's>,
        tile: &TileAt,
        (column, steps): (Operand, u32),
        states: &[Vec<Reg>],
    ) {
        let mut lane_rows = self.lane_rows(b, lane, tile, column, steps);
        for state in 0..self.schedule.states {
            self.load_states(b, &mut lane_rows, lane, tile, state, column, steps);
            for (r, regs) in states.iter().enumerate() {
                let reg = regs[state as usize];
                let mut now: Operand = reg.into();
                for step in self.in_order(steps) {
                    now = self.step_on(b, &mut lane_rows, r, StateStep { state, step }, now);
                }
                b.assign(reg, now);
            }
        }
    }
}
