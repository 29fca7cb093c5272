//! Stepping groups of lanes: all steps of one group before the next.
//!
//! A group goes through its steps strip by strip. The elements of a strip are turned so that a step's numbers lie side by side, the
//! steps are taken, and the states after them are turned back to where the results lie. Elements, states and nodes of a strip stay
//! in the nearest cache. Lanes may lie anywhere.

mod file;
mod kept;
mod lanes;
mod memory;
mod number;
mod sums;
#[cfg(test)]
mod tests;

use std::ops::Range;

use oplus_dsl::Ty;
use pulp::{Simd, WithSimd};

use super::{Geometry, Workspace};
use crate::cpu::CpuError;
use crate::cpu::kernel::Kernel;
use crate::cpu::kernel::program::Program;
use crate::cpu::simd::{narrow, widest};
use crate::cpu::values::{Slice, Values};
use crate::room::room;
use file::{File, STRIP};
pub(in crate::cpu) use kept::Kept;
use lanes::{Lanes, Location};
use memory::{From, To};
use number::Number;

/// How many lanes a group has; fewer where there are few lanes, as for the totals of one sequence's parts.
const WIDTH: usize = 64;
const FEW: usize = 8;

/// A kernel that is stepped in groups.
pub(super) struct Groups<'a> {
    kernel: &'a Kernel,
    program: &'a Program,
    geometry: &'a Geometry,
    lanes: Lanes<'a>,
}

/// Whether a kernel is stepped in groups, wherever its lanes lie: if its numbers have one type, and the processor computes several at
/// once.
pub(in crate::cpu) fn takes(kernel: &Kernel) -> bool {
    kernel.program.is_some() && widest(HasVectors)
}

impl<'a> Groups<'a> {
    /// `None` if the kernel is not stepped so, or there are no lanes.
    pub(super) fn new(kernel: &'a Kernel, geometry: &'a Geometry) -> Option<Groups<'a>> {
        let program = kernel.program.as_ref().filter(|_| takes(kernel))?;
        let kept = (0..kernel.fields.len()).filter(|field| kernel.next[*field].is_some());
        let states = kept.map(|field| &geometry.states[field][..]);
        let others = geometry.elements.iter().chain(&geometry.outputs).map(|strides| &strides.lanes[..]);
        let lanes = Lanes::new(&geometry.lanes, &states.chain(others).collect::<Vec<_>>())?;
        Some(Groups { kernel, program, geometry, lanes })
    }

    /// Takes all steps.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn run(
        &self,
        elements: &[Slice<'_>],
        states: &mut [Values],
        outputs: &mut [Option<&mut Values>],
        workspace: &mut Workspace,
    ) -> Result<(), CpuError> {
        match (self.program.ty, self.lanes.most() <= FEW) {
            (Ty::F32, true) => self.of::<f32, FEW>(elements, states, outputs, workspace),
            (Ty::F32, false) => self.of::<f32, WIDTH>(elements, states, outputs, workspace),
            (_, true) => self.of::<f64, FEW>(elements, states, outputs, workspace),
            (_, false) => self.of::<f64, WIDTH>(elements, states, outputs, workspace),
        }
    }

    fn of<T: Number, const W: usize>(
        &self,
        elements: &[Slice<'_>],
        states: &mut [Values],
        outputs: &mut [Option<&mut Values>],
        workspace: &mut Workspace,
    ) -> Result<(), CpuError> {
        let read = self.program.reads.iter().map(|k| From::new(elements[*k]));
        // Groups that differ in other fields only begin at the same state, and end at the same.
        let before = Values::copies(states)?;
        let mut kept = workspace.kept.take();
        kept = kept.filter(|kept| self.lanes.are_one_group(W) && kept.serves(self.program));
        let read_and_written = self.program.reads.len() + states.len() + outputs.len();
        let mut locations = room(read_and_written)?;
        locations.resize_with(read_and_written, Location::new);
        let mut memory = workspace.take(self.program.ty, 0)?;
        let turned = kept.as_ref().map(|kept| kept.turned);
        let file = File::new(self.program, states.len(), &mut memory, kept.as_mut())?;
        let steps = Steps::<T, W> {
            of: self,
            elements: &read.collect::<Vec<_>>(),
            before: &before.iter().map(|values| From::new(values.from(0))).collect::<Vec<_>>(),
            states: &mut states.iter_mut().map(To::new).collect::<Vec<_>>(),
            outputs: &mut outputs.iter_mut().map(|output| output.as_deref_mut().map(To::new)).collect::<Vec<_>>(),
            locations,
            file,
            turned,
            exclusive: self.geometry.exclusive,
        };
        let turned = if T::IS_WIDE && W == WIDTH { widest(steps) } else { narrow(steps) };
        kept.iter_mut().zip(turned).for_each(|(kept, turned)| kept.turned = turned);
        workspace.kept = kept;
        workspace.give(memory);
        Ok(())
    }
}

/// Whether the processor computes several numbers at once.
struct HasVectors;

impl WithSimd for HasVectors {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> bool {
        !S::IS_SCALAR
    }
}

/// All steps of all groups.
struct Steps<'s, 'v, T, const W: usize> {
    of: &'s Groups<'s>,
    elements: &'s [From<'v, T>],
    before: &'s [From<'v, T>],
    states: &'s mut [To<'v, T>],
    outputs: &'s mut [Option<To<'v, T>>],
    /// Where the lanes of the group lie in each element that is read, each state and each output.
    locations: Vec<Location<W>>,
    file: File<'s, T, W>,
    /// Of how many steps the elements have been turned, where they are kept.
    turned: Option<usize>,
    exclusive: bool,
}

impl<T: Number, const W: usize> WithSimd for Steps<'_, '_, T, W> {
    type Output = Option<usize>;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) -> Option<usize> {
        // Groups are not made where numbers are computed one by one.
        if S::IS_SCALAR {
            return None;
        }
        let Groups { program, geometry, lanes, .. } = self.of;
        lanes.each::<W>(
            #[inline(always)]
            |group| {
                let read = program.reads.iter().map(|k| &geometry.elements[*k].lanes);
                let all = read.chain(&geometry.states).chain(geometry.outputs.iter().map(|strides| &strides.lanes));
                self.locations.iter_mut().zip(all).for_each(|(location, strides)| group.find(strides, location));
                self.group(simd, group.n);
            },
        );
        self.turned
    }
}

impl<T: Number, const W: usize> Steps<'_, '_, T, W> {
    /// Takes all steps of a group of n lanes.
    #[inline(always)]
    fn group<S: Simd>(&mut self, simd: S, n: usize) {
        let Groups { kernel, program, geometry, .. } = self.of;
        let (fields, reads) = (self.states.len(), program.reads.len());
        let is_kept = |field: &usize| kernel.next[*field].is_some();
        for field in (0..fields).filter(is_kept) {
            let (rows, pitch) = self.file.states(field, 0);
            self.before[field].load(rows, pitch, &self.locations[reads + field], (0, 0), (1, n));
        }
        let mut step = geometry.first.from();
        while step < geometry.steps {
            // Strips begin where lines of the cache do.
            let steps = (self.file.strip - step % self.file.strip).min(geometry.steps - step);
            let from = self.load(step, steps, n);
            self.file.begin(program, from);
            for k in 0..steps {
                self.file.step(simd, program, k, from + k);
            }
            for (field, output) in self.outputs.iter_mut().enumerate() {
                let Some(output) = output else { continue };
                let strides = &geometry.outputs[field];
                let (rows, pitch) = self.file.states(field, usize::from(!self.exclusive));
                let location = &self.locations[reads + fields + field];
                output.store(rows, pitch, location, (strides.at(step), strides.step as usize), (steps, n));
            }
            self.file.begin_again(steps);
            step += steps;
        }
        for field in (0..fields).filter(is_kept) {
            let (rows, pitch) = self.file.states(field, 0);
            self.states[field].store(rows, pitch, &self.locations[reads + field], (0, 0), (1, n));
        }
    }

    /// Loads the elements of some steps, of n lanes, and says at which step of the registers they begin.
    #[inline(always)]
    fn load(&mut self, step: usize, steps: usize, n: usize) -> usize {
        let Some(turned) = self.turned else {
            self.load_to(0, step..step + steps, n);
            return 0;
        };
        if turned < step + steps {
            let end = (step + steps).next_multiple_of(STRIP).min(self.file.kept());
            self.load_to(turned, turned..end, n);
            self.turned = Some(end);
        }
        step
    }

    /// Loads the elements of some steps to the registers from a step on.
    #[inline(always)]
    fn load_to(&mut self, to: usize, steps: Range<usize>, n: usize) {
        let Groups { program, geometry, .. } = self.of;
        for ((element, location), k) in self.elements.iter().zip(&self.locations).zip(&program.reads) {
            let strides = &geometry.elements[*k];
            let (rows, pitch) = self.file.elements(*k, to);
            element.load(rows, pitch, location, (strides.at(steps.start), strides.step as usize), (steps.len(), n));
        }
    }
}
