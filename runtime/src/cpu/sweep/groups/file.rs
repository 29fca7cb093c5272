//! The registers of a group, for all steps of a strip.

use std::mem::size_of;

use oplus_dsl::ir::Binary;
use pulp::Simd;

use super::number::{Number, Register, logic, one, two};
use crate::cpu::CpuError;
use crate::cpu::kernel::program::{Instruction, Place, Program, Step, Target};
use crate::cpu::operations::compare;
use crate::cpu::values::Values;

/// The most steps of a strip: as many `f32` as a line of the cache holds.
const STRIP: usize = 16;
/// How many bytes of elements and states a strip should have.
const NEAR: usize = 40 << 10;
/// Memory for vectors begins at multiples of this.
const LINE: usize = 64;

/// Registers: of every step the elements that are read, of every step and the one behind the last the states, and nodes.
pub(super) struct File<'a, T, const W: usize> {
    /// How many steps a strip has.
    pub(super) strip: usize,
    reads: usize,
    fields: usize,
    elements: &'a mut [Register<T, W>],
    states: &'a mut [Register<T, W>],
    nodes: &'a mut [Register<T, W>],
}

impl<'a, T: Number, const W: usize> File<'a, T, W> {
    /// The registers of a program in some memory.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn new(program: &Program, fields: usize, memory: &'a mut Values) -> Result<Self, CpuError> {
        let reads = program.reads.len();
        let step = (reads + fields) * size_of::<Register<T, W>>();
        let strip = if step * STRIP > NEAR { STRIP / 2 } else { STRIP };
        let registers = strip * reads + (strip + 1) * fields + program.nodes;
        let room = memory.room::<T>(registers * W + LINE / size_of::<T>())?;
        let skipped = room.as_ptr().align_offset(LINE).min(LINE / size_of::<T>());
        let (registers, _) = room[skipped..][..registers * W].as_chunks_mut();
        let (elements, rest) = registers.split_at_mut(strip * reads);
        let (states, nodes) = rest.split_at_mut((strip + 1) * fields);
        for (node, literal) in &program.constants {
            nodes[*node].fill(T::of(*literal));
        }
        Ok(File { strip, reads, fields, elements, states, nodes })
    }

    /// An element's registers from the first step on, and how far apart those of neighbouring steps are.
    #[inline(always)]
    pub(super) fn elements(&mut self, k: usize) -> (&mut [T], usize) {
        (self.elements[k..].as_flattened_mut(), self.reads * W)
    }

    /// A field's registers from before a step on, and how far apart those of neighbouring steps are.
    #[inline(always)]
    pub(super) fn states(&mut self, field: usize, step: usize) -> (&mut [T], usize) {
        (self.states[step * self.fields + field..].as_flattened_mut(), self.fields * W)
    }

    /// Puts the states after so many steps before the first.
    #[inline(always)]
    pub(super) fn begin_again(&mut self, steps: usize) {
        let last = steps * self.fields;
        self.states.copy_within(last..last + self.fields, 0);
    }

    /// Takes a step.
    #[inline(always)]
    pub(super) fn step<S: Simd>(&mut self, simd: S, program: &Program, step: usize) {
        let (states, next) = self.states.split_at_mut((step + 1) * self.fields);
        let elements = &self.elements[step * self.reads..][..self.reads];
        let states = &states[step * self.fields..];
        for Instruction { step, operands, target } in &program.instructions {
            let (dst, nodes) = match *target {
                Target::Node(k) => {
                    let (before, rest) = self.nodes.split_at_mut(k);
                    (&mut rest[0], &*before)
                }
                Target::Next(field) => (&mut next[field], &*self.nodes),
            };
            let known = Known { elements, states, nodes };
            if let Step::Sum { from, to } = step {
                T::sum(simd, dst, &program.terms[*from..*to], known);
            } else {
                compute(*step, dst, operands.map(|place| known.at(place)));
            }
        }
    }
}

/// The registers that an instruction may read.
#[derive(Clone, Copy)]
pub(super) struct Known<'a, T, const W: usize> {
    elements: &'a [Register<T, W>],
    states: &'a [Register<T, W>],
    nodes: &'a [Register<T, W>],
}

impl<'a, T, const W: usize> Known<'a, T, W> {
    #[inline(always)]
    pub(super) fn at(&self, place: Place) -> &'a Register<T, W> {
        match place {
            Place::Element(k) => &self.elements[k],
            Place::State(k) => &self.states[k],
            Place::Node(k) => &self.nodes[k],
        }
    }
}

/// Computes an instruction that is no sum.
#[inline(always)]
fn compute<T: Number, const W: usize>(step: Step, dst: &mut Register<T, W>, [a, b, c]: [&Register<T, W>; 3]) {
    match step {
        Step::Sum { .. } => {}
        Step::Copy => *dst = *a,
        Step::Unary(op) => T::unary(op, dst, a),
        Step::Binary(op) => T::binary(op, dst, a, b),
        Step::Compare(op) => compare!(op, two(dst, a, b) over T, T::flag),
        Step::Not => one(
            dst,
            a,
            #[inline(always)]
            |x: T| T::flag(!x.is_set()),
        ),
        Step::Logic(op) => logic(op, dst, a, b),
        Step::Select => {
            for (k, dst) in dst.iter_mut().enumerate() {
                *dst = if a[k].is_set() { b[k] } else { c[k] };
            }
        }
    }
}
