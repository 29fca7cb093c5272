//! The first pass where time is cut, before the one that saves states: the element that each segment combines to.

use super::lane::Lane;
use super::{SUBTILE, StateSpaceBackwardKernel};
use crate::block::carry::{Fields, assign, select};
use crate::block::state_step::StateStep;
use crate::build::Builder;
use crate::schedules::state_space::{CHUNK, TileAt};
use crate::tile::{Operand, Reg};
use oplus_dsl::ir::Binary;

impl<'s> StateSpaceBackwardKernel<'s> {
    pub(super) fn segment_carries_role(&self, b: &mut Builder) {
        let lane = self.lane(b, self.base.scan.elements);
        let identity = self.base.monoid.identity();
        let states: Vec<Vec<Reg>> = (0..self.schedule.states).map(|_| b.vars(&identity)).collect();
        self.each_subtile(b, |b, tile, column| self.segment_carries_subtile(b, &lane, tile, column, &states));
        let first = self.first_state(b, &lane);
        self.base.store_segment_carries(b, lane.rows[0], first, &states);
    }

    /// Goes through the sub-tiles of the block's segment, in the direction of the walk.
    pub(super) fn each_subtile(&self, b: &mut Builder, walk: impl Fn(&mut Builder, &TileAt, Operand)) {
        self.each_numbered_subtile(b, |b, tile, _, column| walk(b, tile, column));
    }

    /// Goes through the sub-tiles with the numbers of their tiles in the segment.
    pub(super) fn each_numbered_subtile(
        &self,
        b: &mut Builder,
        walk: impl Fn(&mut Builder, &TileAt, Operand, Operand),
    ) {
        self.each_tile(b, |b, tile, number| {
            let subtiles = Operand::i32((self.schedule.steps / SUBTILE) as i32);
            b.for_(Operand::i32(0), subtiles, 1, |b, i| {
                let subtile = self.subtile(b, i);
                let column = b.mul(subtile, SUBTILE);
                walk(b, tile, number, column);
            });
        });
    }

    /// The parts of a sub-tile at a column whose steps a pass before the walk takes at once, in the direction of the states: the first column
    /// of each, and its steps. Blocks of these passes share a multiprocessor, so that a lane has few registers.
    pub(super) fn parts(&self, b: &mut Builder, column: Operand) -> [(Operand, u32); 2] {
        let half = b.add(column, CHUNK);
        let halves = if self.form.reverse { [half, column] } else { [column, half] };
        halves.map(|column| (column, CHUNK))
    }

    /// The number of the lane's first state, `i32`.
    pub(super) fn first_state(&self, b: &mut Builder, lane: &Lane) -> Operand {
        b.binary(Binary::Mul, lane.position, self.schedule.states)
    }

    /// Combines the elements of eight steps onto those before.
    fn segment_carries_subtile(
        &self,
        b: &mut Builder,
        lane: &Lane<'_, 's>,
        tile: &TileAt,
        column: Operand,
        states: &[Vec<Reg>],
    ) {
        let mut lane_rows = self.lane_rows(b, lane, tile, column, SUBTILE);
        for (state, regs) in (0..).zip(states) {
            self.load_states(b, &mut lane_rows, lane, tile, state, column, SUBTILE);
            let mut now: Fields = regs.iter().map(|reg| (*reg).into()).collect();
            for step in self.in_order(SUBTILE) {
                let (evaluator, eight) = (&mut lane_rows.evaluators[0], &mut lane_rows.eights[0]);
                let value = |v| evaluator.value(b, eight, v, StateStep { state, step });
                let element: Fields = self.base.scan.elements.iter().copied().map(value).collect();
                let next = self.base.monoid.combine(b, &now, &element);
                now = if self.masks.steps { select(b, lane_rows.exists[step as usize], &next, &now) } else { next };
            }
            assign(b, regs, &now);
        }
    }
}
