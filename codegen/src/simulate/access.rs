//! Loads and stores.

use super::clocks::bits;
use super::fault::Hit;
use super::lanes::{LANES, Lanes};
use super::memory::size;
use super::run::{Flow, Run};
use crate::tile::{Memory, Operand, Reg};

/// The widest vector access.
const WIDEST: usize = 8;

impl Run<'_, '_> {
    pub(super) fn load(
        &mut self,
        dst: &[Reg],
        memory: Memory,
        index: Operand,
        guard: Option<Operand>,
        otherwise: Operand,
    ) -> Result<Flow, Hit> {
        let mut values: [Lanes; WIDEST] = [*self.value(otherwise); WIDEST];
        let (at, guarded, indices) = (self.at(), self.guarded(guard), self.indices(memory, index));
        let (mut view, who) = self.view(memory);
        let bytes = dst.len() * size(view.elem);
        for lane in bits(guarded) {
            let hit = |hazard| Hit { lane, hazard };
            let who = who.lane(lane);
            let position = view.locate(indices[lane], dst.len(), bytes).map_err(hit)?;
            for (k, value) in values[..dst.len()].iter_mut().enumerate() {
                value[lane] = view.read(&who, at, position + k).map_err(hit)?;
            }
        }
        for (reg, value) in dst.iter().zip(&values) {
            self.warp.assign(reg.0 as usize, value);
        }
        Ok(Flow::Next)
    }

    pub(super) fn store(
        &mut self,
        memory: Memory,
        index: Operand,
        values: &[Operand],
        guard: Option<Operand>,
    ) -> Result<Flow, Hit> {
        let mut lanes: [Lanes; WIDEST] = [[0; LANES]; WIDEST];
        for (to, operand) in lanes.iter_mut().zip(values) {
            *to = *self.value(*operand);
        }
        let (at, guarded, indices) = (self.at(), self.guarded(guard), self.indices(memory, index));
        let (mut view, who) = self.view(memory);
        let bytes = values.len() * size(view.elem);
        for lane in bits(guarded) {
            let hit = |hazard| Hit { lane, hazard };
            let who = who.lane(lane);
            let position = view.locate(indices[lane], values.len(), bytes).map_err(hit)?;
            for (k, value) in lanes[..values.len()].iter().enumerate() {
                view.write(&who, at, position + k, value[lane]).map_err(hit)?;
            }
        }
        Ok(Flow::Next)
    }
}
