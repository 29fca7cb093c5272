//! The registers of a group, for all steps of a strip.

use std::mem::size_of;

use oplus_dsl::ir::Binary;
use pulp::Simd;

use super::kept::Kept;
use super::number::{Number, Register, logic, one, two};
use crate::cpu::CpuError;
use crate::cpu::kernel::program::{Instruction, Place, Program, Step, Target};
use crate::cpu::operations::compare;
use crate::cpu::simd::simd;
use crate::cpu::values::Values;
use crate::room::room;

/// The most steps of a strip: as many `f32` as a line of the cache holds.
pub(super) const STRIP: usize = 16;
/// How many bytes of elements and states a strip should have.
const NEAR: usize = 40 << 10;
/// Memory for vectors begins at multiples of this.
const LINE: usize = 64;

/// Registers, one behind the other: the elements of every step, the states of every step of a strip and of the one behind the last, and
/// nodes.
pub(super) struct File<'a, T, const W: usize> {
    /// How many steps a strip has.
    pub(super) strip: usize,
    elements: usize,
    fields: usize,
    /// Where the states begin.
    states: usize,
    /// Where the nodes begin.
    nodes: usize,
    all: &'a mut [Register<T, W>],
    /// The registers of the factors of every term of the program's sums, at the step that comes next, and how far those of the step
    /// behind it are.
    factors: Vec<[u32; 2]>,
    pitches: Vec<[u32; 2]>,
}

impl<'a, T: Number, const W: usize> File<'a, T, W> {
    /// The registers of a program in some memory, or in that where the elements of all steps are kept, if there is such.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn new(
        program: &Program,
        fields: usize,
        memory: &'a mut Values,
        kept: Option<&'a mut Kept>,
    ) -> Result<Self, CpuError> {
        let elements = program.elements;
        let step = (program.reads.len() + fields) * size_of::<Register<T, W>>();
        let strip = if step * STRIP > NEAR { STRIP / 2 } else { STRIP };
        let (steps, most_nodes, memory) = match kept {
            Some(Kept { values, steps, nodes, .. }) => (*steps, *nodes, values),
            None => (strip, program.nodes, memory),
        };
        let states = steps * elements;
        let nodes = states + (STRIP + 1) * fields;
        let all = registers(memory, nodes + most_nodes)?;
        for (node, literal) in &program.constants {
            all[nodes + node].fill(T::of(*literal));
        }
        let (mut factors, mut pitches) = (room(program.terms.len())?, room(program.terms.len())?);
        factors.resize(program.terms.len(), [0; 2]);
        let pitch = |place| match place {
            Place::Element(_) => elements as u32,
            Place::State(_) => fields as u32,
            Place::Node(_) => 0,
        };
        pitches.extend(program.terms.iter().map(|term| term.places().map(pitch)));
        Ok(File { strip, elements, fields, states, nodes, all, factors, pitches })
    }

    /// An element's registers from a step on, and how far apart those of neighbouring steps are.
    #[inline(always)]
    pub(super) fn elements(&mut self, k: usize, step: usize) -> (&mut [T], usize) {
        (self.all[step * self.elements + k..self.states].as_flattened_mut(), self.elements * W)
    }

    /// How many steps' elements there is room for.
    #[inline(always)]
    pub(super) fn kept(&self) -> usize {
        self.states / self.elements.max(1)
    }

    /// A field's registers from before a step on, and how far apart those of neighbouring steps are.
    #[inline(always)]
    pub(super) fn states(&mut self, field: usize, step: usize) -> (&mut [T], usize) {
        let first = self.states + step * self.fields + field;
        (self.all[first..self.nodes].as_flattened_mut(), self.fields * W)
    }

    /// Puts the states after so many steps before the first.
    #[inline(always)]
    pub(super) fn begin_again(&mut self, steps: usize) {
        let last = self.states + steps * self.fields;
        self.all.copy_within(last..last + self.fields, self.states);
    }

    /// Begins a strip, whose elements are those from some step on.
    #[inline(always)]
    pub(super) fn begin(&mut self, program: &Program, of_elements: usize) {
        let known = Known { sets: [of_elements * self.elements, self.states, self.nodes] };
        for (factors, term) in self.factors.iter_mut().zip(&program.terms) {
            *factors = term.places().map(|place| known.at(place) as u32);
        }
    }

    /// Takes the next step of the strip, whose elements are those of some step.
    #[inline(always)]
    pub(super) fn step<S: Simd>(&mut self, simd: S, program: &Program, step: usize, of_elements: usize) {
        let states = self.states + step * self.fields;
        let known = Known { sets: [of_elements * self.elements, states, self.nodes] };
        for Instruction { step, operands, target } in &program.instructions {
            let dst = match *target {
                Target::Node(k) => self.nodes + k,
                Target::Next(field) => states + self.fields + field,
            };
            if let Step::Sum { from, to } = step {
                T::sum(simd, self.all, dst, &program.terms[*from..*to], &self.factors[*from..*to]);
            } else {
                compute(*step, self.all, dst, operands.map(|place| known.at(place)));
            }
        }
        let pitches = self.pitches.as_flattened();
        self.factors.as_flattened_mut().iter_mut().zip(pitches).for_each(
            #[inline(always)]
            |(factor, pitch)| *factor += pitch,
        );
    }
}

/// So many registers in some memory, from the beginning of a line of the cache on.
fn registers<T: Number, const W: usize>(memory: &mut Values, n: usize) -> Result<&mut [Register<T, W>], CpuError> {
    let memory = memory.room::<T>(n * W + LINE / size_of::<T>())?;
    let skipped = memory.as_ptr().align_offset(LINE).min(LINE / size_of::<T>());
    Ok(memory[skipped..][..n * W].as_chunks_mut().0)
}

/// Where the registers lie that an instruction may read.
struct Known {
    /// Where the elements, the states and the nodes begin.
    sets: [usize; 3],
}

impl Known {
    /// The number of a register.
    #[inline(always)]
    fn at(&self, place: Place) -> usize {
        let (set, k) = match place {
            Place::Element(k) => (0, k),
            Place::State(k) => (1, k),
            Place::Node(k) => (2, k),
        };
        self.sets[set] + k
    }
}

/// Computes an instruction that is no sum. Its result is in a register of its own.
#[inline(always)]
fn compute<T: Number, const W: usize>(step: Step, all: &mut [Register<T, W>], dst: usize, operands: [usize; 3]) {
    let (below, above) = all.split_at_mut(dst);
    let [dst, above @ ..] = above else { return };
    let (below, above) = (&*below, &*above);
    let [a, b, c] = operands.map(|k| if k < below.len() { &below[k] } else { &above[k - below.len() - 1] });
    match step {
        Step::Sum { .. } => {}
        Step::Copy => *dst = *a,
        // Elementary functions are many, and compiled once.
        Step::Unary(op) => simd(
            #[inline(always)]
            || T::unary(op, dst, a),
        ),
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
