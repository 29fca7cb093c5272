//! The registers of a block: warps that need fewer give some up, and warps that need more wait for them.

use super::fault::Hit;
use super::lanes::LANES;
use super::run::{Flow, Run};
use super::warp::Status;

impl Run<'_, '_> {
    /// Changes the registers of the warp's threads; for more of them it waits until others have given up so many.
    pub(super) fn set_max_registers(&mut self, count: u32) -> Result<Flow, Hit> {
        self.converged()?;
        let lanes = LANES as u32;
        let (own, free) = (self.warp.registers * lanes, self.block.free_registers);
        let Some(left) = (own + free).checked_sub(count * lanes) else {
            return Ok(Flow::Again(Status::Block { events: self.block.events }));
        };
        self.warp.registers = count;
        self.block.free_registers = left;
        self.block.events += 1;
        Ok(Flow::Next)
    }
}
