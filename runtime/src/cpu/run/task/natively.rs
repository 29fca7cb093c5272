//! Tiles by machine code.

use crate::cpu::CpuError;
use crate::cpu::frame::Sweeping;
use crate::cpu::native::{Native, Output};
use crate::cpu::tile::TileOp;

use super::{Target, Task};

impl<'a> Task<'_, 'a> {
    /// Computes a tile by machine code and what is left by instructions.
    pub(super) fn visit_natively(
        &mut self,
        native: &Native,
        instructions: &[usize],
        sweeping: Sweeping,
        mut targets: Option<&mut [Target<'a>]>,
    ) -> Result<(), CpuError> {
        let stage = self.stage;
        for &at in instructions {
            let (TileOp::Combine(combine), true) = (&stage.code.instructions[at].op, at == native.at) else {
                if !native.joined.contains(&at) {
                    self.frame.execute(at, sweeping)?;
                }
                continue;
            };
            let mut memory = targets.is_some().then(|| native.memory());
            if let (Some(memory), Some(targets)) = (&mut memory, &mut targets) {
                for (k, target) in
                    targets.iter_mut().enumerate().filter(|(k, _)| native.outputs.contains(&Output::Store(*k)))
                {
                    let (loops, at) = self.place(&stage.stores[k], &target.place);
                    let part = target
                        .parts
                        .as_mut()
                        .and_then(|parts| memory.push_part(parts, at.map(|at| at as usize), loops.run));
                    debug_assert!(part.is_some(), "a target that is not plain");
                }
            }
            self.frame.combine_natively(native, combine, sweeping, memory)?;
        }
        if let Some(targets) = targets {
            self.store(targets, false, |k| native.outputs.contains(&Output::Store(k)));
        }
        Ok(())
    }

    /// Whether the results that machine code gives go to neighbours in memory, in its type.
    pub(super) fn are_plain(&self, native: &Native, targets: &[Target<'a>]) -> bool {
        let stores = native.outputs.iter().filter_map(|output| match output {
            Output::Store(k) => Some(*k),
            Output::Register(_) => None,
        });
        stores.into_iter().all(|k| {
            let (loops, at) = self.place(&self.stage.stores[k], &targets[k].place);
            let n = loops.len();
            let is_run = loops.is_one_run() && loops.step == [1, 0, 1];
            is_run && targets[k].parts.as_ref().is_some_and(|parts| native.has_room(parts, at.map(|at| at as usize), n))
        })
    }
}
