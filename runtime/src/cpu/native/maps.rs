//! Maps of a scan that has a loop of its own, and the stores of its results.
//!
//! Such a scan leaves its results in registers. One function reads them where they lie in the nearest caches, computes the maps that nothing but
//! stores reads, and writes all results past the caches.

use oplus_dsl::Ty;

use crate::cpu::plan::Stage;
use crate::cpu::tile::Reg;
use crate::cpu::values::{Scalar, Slice};

use super::code::{self, Float, Function};
use super::{LEAST, Memory, PerInput, Steps, Tensors};

/// Of how many rows of memory a tile is made.
pub(super) const ROWS: usize = 1024;

/// The maps and stores of a stage.
#[derive(Clone, Debug)]
pub(in crate::cpu) struct Maps {
    /// The scan among the stage's instructions.
    pub(in crate::cpu) at: usize,
    /// The instructions that the code computes.
    pub(in crate::cpu) joined: Vec<usize>,
    /// The registers that the code reads.
    pub(in crate::cpu) inputs: Vec<Reg>,
    /// The stores whose results it writes.
    pub(in crate::cpu) outputs: Vec<usize>,
    pub(super) ty: Ty,
    pub(super) axis: usize,
    pub(super) function: Function,
}

impl Maps {
    /// The code of a stage, if it has a form for it and results that are written past the caches.
    pub(in crate::cpu) fn of(stage: &Stage) -> Option<Maps> {
        let steps = stage.sizes.iter().try_fold(1_usize, |n, size| n.checked_mul(*size));
        if steps.is_none_or(|steps| steps < LEAST) || stage.row().is_some() {
            return None;
        }
        // Where LLVM refuses the code, the engine takes instructions.
        code::maps(stage).ok().flatten()
    }

    /// Whether it takes a tile.
    pub(in crate::cpu) fn takes(&self, extents: &[usize]) -> bool {
        let is_one = extents.iter().enumerate().all(|(k, n)| k == self.axis || *n == 1);
        is_one && extents[self.axis].is_multiple_of(ROWS) && self.function.takes(extents[self.axis] / ROWS)
    }

    /// No outputs yet.
    pub(in crate::cpu) fn memory<'m>(&self) -> Memory<'m> {
        if self.ty == Ty::F32 { Memory::F32(vec![]) } else { Memory::F64(vec![]) }
    }

    /// Whether the outputs lie so that they can be written past the caches.
    pub(in crate::cpu) fn streams(&self, n: usize, memory: &Memory<'_>) -> bool {
        match memory {
            Memory::F32(outputs) => self.function.streams(n / ROWS, outputs),
            Memory::F64(outputs) => self.function.streams(n / ROWS, outputs),
        }
    }

    /// Computes a tile of so many numbers.
    pub(in crate::cpu) fn run(&self, inputs: &[Slice<'_>], n: usize, memory: &mut Memory<'_>) {
        match memory {
            Memory::F32(outputs) => self.run_of(inputs, n, outputs),
            Memory::F64(outputs) => self.run_of(inputs, n, outputs),
        }
    }

    fn run_of<T: Scalar + Float>(&self, inputs: &[Slice<'_>], n: usize, outputs: &mut [&mut [T]]) {
        let inputs: PerInput<&[T]> = inputs.iter().map(|input| input.of()).collect();
        let steps = Steps { of_lane: n / ROWS, leaves_out: false, streams: true };
        let tensors = Tensors { inputs: &inputs, outputs, starts: &[], last: &[], ends: &mut [], squares: &mut [] };
        self.function.call(steps, tensors);
    }
}
