//! Elements that have been turned for one sweep and serve another one over the same block.

use oplus_dsl::Ty;

use super::{FEW, WIDTH};
use crate::cpu::CpuError;
use crate::cpu::kernel::Kernel;
use crate::cpu::kernel::program::Program;
use crate::cpu::sweep::Workspace;
use crate::cpu::values::Values;

/// The most bytes of elements that are kept: beside them the second-level cache has to hold the tensors.
const MOST: usize = 1 << 20;

/// The elements of a group's steps.
#[derive(Debug)]
pub(in crate::cpu) struct Kept {
    pub(in crate::cpu) values: Values,
    /// How many steps the block has.
    pub(super) steps: usize,
    /// How many of them have been turned.
    pub(super) turned: usize,
    /// The elements that are read.
    reads: Vec<usize>,
    /// How many elements a step has.
    elements: usize,
    /// The most nodes of a kernel that reads them.
    pub(super) nodes: usize,
}

impl Kept {
    /// Room for the elements of a block that two kernels sweep, one after the other. `None` if there are too many, or more lanes than a
    /// group has.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(in crate::cpu) fn new(
        [first, then]: [&Kernel; 2],
        steps: usize,
        lanes: usize,
        workspace: &mut Workspace,
    ) -> Result<Option<Kept>, CpuError> {
        let (Some(first), Some(then)) = (&first.program, &then.program) else { return Ok(None) };
        let bytes = if first.ty == Ty::F32 { size_of::<f32>() } else { size_of::<f64>() };
        let is_shared = first.elements == then.elements && then.reads.iter().all(|k| first.reads.contains(k));
        let fits = first.elements.saturating_mul(steps).saturating_mul(WIDTH * bytes) <= MOST;
        if !is_shared || !fits || lanes <= FEW || lanes > WIDTH {
            return Ok(None);
        }
        let (values, nodes) = (workspace.take(first.ty, 0)?, first.nodes.max(then.nodes));
        Ok(Some(Kept { values, steps, turned: 0, reads: first.reads.clone(), elements: first.elements, nodes }))
    }

    /// Whether a program finds all that it reads, and has room for its nodes.
    pub(super) fn serves(&self, program: &Program) -> bool {
        let reads_no_others = program.reads.iter().all(|k| self.reads.contains(k));
        reads_no_others && program.elements == self.elements && program.nodes <= self.nodes
    }
}
