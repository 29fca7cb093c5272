//! Tiles by machine code.

use crate::cpu::CpuError;
use crate::cpu::frame::Sweeping;
use crate::cpu::native::{Maps, Memory, Native};
use crate::cpu::tile::TileOp;
use crate::cpu::values::Slice;

use super::{Target, Task};

impl<'a> Task<'_, 'a> {
    /// Computes a tile by machine code and what is left by instructions.
    pub(super) fn visit_natively(
        &mut self,
        native: &Native,
        instructions: &[usize],
        sweeping: Sweeping,
        mut memory: Option<Memory<'_>>,
    ) -> Result<(), CpuError> {
        let stage = self.stage;
        for &at in instructions {
            match &stage.code.instructions[at].op {
                TileOp::Combine(combine) if at == native.at => {
                    self.frame.combine_natively(native, combine, sweeping, memory.take())?;
                }
                _ if native.joined.contains(&at) => {}
                _ => self.frame.execute(at, sweeping)?,
            }
        }
        Ok(())
    }

    /// Computes a tile whose maps and stores are machine code.
    pub(super) fn visit_with_maps(
        &mut self,
        maps: &Maps,
        instructions: &[usize],
        sweeping: Sweeping,
        mut memory: Memory<'_>,
    ) -> Result<(), CpuError> {
        for &at in instructions.iter().filter(|at| !maps.joined.contains(at)) {
            self.frame.execute(at, sweeping)?;
            if at == maps.at {
                let inputs: Vec<Slice<'_>> = maps.inputs.iter().map(|register| self.frame.get(*register)).collect();
                maps.run(&inputs, self.frame.tile.extents.iter().product(), &mut memory);
            }
        }
        Ok(())
    }

    /// The memory that machine code writes results to; `None` unless they go to neighbours there, in its type.
    pub(super) fn memory_of<'m>(
        &self,
        mut memory: Memory<'m>,
        targets: &'m mut [Target<'a>],
        is_result: impl Fn(usize) -> bool,
    ) -> Option<Memory<'m>> {
        for (k, target) in targets.iter_mut().enumerate().filter(|(k, _)| is_result(*k)) {
            let (loops, at) = self.place(&self.stage.stores[k], &target.place);
            let is_run = loops.is_one_run() && loops.step == [1, 0, 1];
            let parts = target.parts.as_mut().filter(|_| is_run)?;
            memory.push_part(parts, at.map(|at| at as usize), loops.run)?;
        }
        Some(memory)
    }
}
