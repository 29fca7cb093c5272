//! Loads and stores.

use super::clocks::bits;
use super::fault::Hit;
use super::lanes::{LANES, Lanes};
use super::memory::size;
use super::run::{Flow, Run};
use crate::tile::{Memory, Operand, Reg, elements_of_register};

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
        let each = self.elements_of_each(memory, otherwise);
        let (at, guarded, indices) = (self.at(), self.guarded(guard), self.indices(memory, index));
        let (mut view, who) = self.view(memory);
        let count = each * dst.len();
        let bytes = count * size(view.elem);
        for lane in bits(guarded) {
            let hit = |hazard| Hit { lane, hazard };
            let who = who.lane(lane);
            let position = view.locate(indices[lane], count, bytes).map_err(hit)?;
            for (k, value) in values[..dst.len()].iter_mut().enumerate() {
                value[lane] = match each {
                    1 => view.read(&who, at, position + k),
                    _ => view.read_pair(&who, at, position + each * k),
                }
                .map_err(hit)?;
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
        let each = values.first().map_or(1, |value| self.elements_of_each(memory, *value));
        let mut lanes: [Lanes; WIDEST] = [[0; LANES]; WIDEST];
        for (to, operand) in lanes.iter_mut().zip(values) {
            *to = *self.value(*operand);
        }
        let (at, guarded, indices) = (self.at(), self.guarded(guard), self.indices(memory, index));
        let (mut view, who) = self.view(memory);
        let count = each * values.len();
        let bytes = count * size(view.elem);
        for lane in bits(guarded) {
            let hit = |hazard| Hit { lane, hazard };
            let who = who.lane(lane);
            let position = view.locate(indices[lane], count, bytes).map_err(hit)?;
            for (k, value) in lanes[..values.len()].iter().enumerate() {
                match each {
                    1 => view.write(&who, at, position + k, value[lane]),
                    _ => view.write_pair(&who, at, position + each * k, value[lane] as u32),
                }
                .map_err(hit)?;
            }
        }
        Ok(Flow::Next)
    }

    /// How many elements each register of an access has, of which one is given.
    fn elements_of_each(&self, memory: Memory, register: Operand) -> usize {
        let kernel = self.device.program.kernel;
        kernel.elem(memory).map_or(1, |elem| elements_of_register(elem, kernel.ty(register)))
    }
}
