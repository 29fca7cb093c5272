//! Stepping groups of lanes: all steps of one group before the next, its states and nodes in registers that stay in the
//! nearest cache.
//!
//! A kernel is stepped so where its numbers have one type and its lanes lie side by side. Truth values are the numbers 0
//! and 1 there.

mod memory;
mod number;
mod sums;

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Literal, Unary};
use pulp::{Simd, WithSimd};

use super::runs::Runs;
use super::{Geometry, Strides};
use crate::cpu::CpuError;
use crate::cpu::kernel::{Action, Kernel, Source, StepNode};
use crate::cpu::operations::compare;
use crate::cpu::simd::ARCH;
use crate::cpu::values::{Slice, Values};
use crate::room::repeated;
use memory::{From, To};
use number::{Number, Register, logic, one, two};
use sums::{Chains, Term};

/// How many lanes a group has; fewer where there are few lanes, as for the totals of one sequence's parts.
const WIDTH: usize = 64;
const FEW: usize = 8;

/// What an instruction computes of its operands.
#[derive(Clone, Copy, Debug)]
enum Step {
    Constant(Literal),
    Unary(Unary),
    Binary(Binary),
    Compare(Binary),
    /// Of truth values.
    Not,
    /// Of truth values.
    Logic(Binary),
    Select,
    /// Of these of the kernel's terms.
    Sum {
        from: usize,
        to: usize,
    },
}

/// An instruction; its result goes to a register of its own, behind those of its operands.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    step: Step,
    operands: [usize; 3],
    result: usize,
}

/// A kernel that is stepped in groups. Its registers are the states, the elements and the nodes, in this order.
pub(super) struct Groups<'a> {
    kernel: &'a Kernel,
    geometry: &'a Geometry,
    runs: Runs,
    /// The type of all numbers.
    ty: Ty,
    /// The elements that nodes and next values read; of others there may be none.
    read: Vec<usize>,
    instructions: Vec<Instruction>,
    terms: Vec<Term>,
    /// How many registers there are.
    registers: usize,
    /// From the register of each field's next value to its state's.
    moves: Vec<(usize, usize)>,
}

impl<'a> Groups<'a> {
    /// `None` if the kernel cannot be stepped so, or there are no vector registers to hold a group.
    pub(super) fn new(kernel: &'a Kernel, geometry: &'a Geometry, elements: &[Slice<'_>]) -> Option<Groups<'a>> {
        if !ARCH.dispatch(HasVectors) {
            return None;
        }
        let types: Vec<Ty> = types(kernel, elements).collect();
        // Integers are few in operators, and code for their types would make every program larger.
        let ty = *types.iter().find(|ty| ty.is_float())?;
        if types.iter().any(|other| ![ty, Ty::Bool].contains(other)) {
            return None;
        }
        let lanes = |all: &'a [Strides]| all.iter().map(|strides| &strides.lanes[..]);
        let states = geometry.states.iter().map(|strides| &strides[..]);
        let kept = (0..kernel.fields.len()).filter(|field| kernel.next[*field].is_some());
        let states: Vec<&[isize]> = kept.map(|field| states.clone().nth(field)).collect::<Option<_>>()?;
        let all = states.into_iter().chain(lanes(&geometry.elements)).chain(lanes(&geometry.outputs));
        let runs = Runs::new(&geometry.lanes, &all.collect::<Vec<_>>())?;
        let places = Places { fields: kernel.fields.len(), elements: elements.len() };
        let (instructions, terms) = instructions(kernel, &places, &types)?;
        let registers = places.of(Source::Node(kernel.nodes.len()));
        let next = kernel.next.iter().enumerate().filter_map(|(field, source)| Some((places.of((*source)?), field)));
        let moves: Vec<(usize, usize)> = next.filter(|(from, to)| from != to).collect();
        // A state that becomes another field's would have to be read before it is overwritten.
        let is_mixed = moves.iter().any(|(from, _)| *from < kernel.fields.len());
        let read = read_by(kernel);
        (!is_mixed).then_some(Groups { kernel, geometry, runs, ty, read, instructions, terms, registers, moves })
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
        exclusive: bool,
    ) -> Result<(), CpuError> {
        match self.ty {
            Ty::F32 => self.of_type::<f32>(elements, states, outputs, exclusive),
            _ => self.of_type::<f64>(elements, states, outputs, exclusive),
        }
    }

    fn of_type<T: Number>(
        &self,
        elements: &[Slice<'_>],
        states: &mut [Values],
        outputs: &mut [Option<&mut Values>],
        exclusive: bool,
    ) -> Result<(), CpuError> {
        if self.runs.len <= FEW {
            self.of_width::<T, FEW>(elements, states, outputs, exclusive)
        } else {
            self.of_width::<T, WIDTH>(elements, states, outputs, exclusive)
        }
    }

    fn of_width<T: Number, const W: usize>(
        &self,
        elements: &[Slice<'_>],
        states: &mut [Values],
        outputs: &mut [Option<&mut Values>],
        exclusive: bool,
    ) -> Result<(), CpuError> {
        let elements: Vec<From<'_, T>> = elements.iter().map(|slice| From::new(*slice)).collect();
        // Groups that differ in other fields only begin at the same state, and end at the same.
        let before = Values::copies(states)?;
        let before: Vec<From<'_, T>> = before.iter().map(|values| From::new(values.from(0))).collect();
        let mut states: Vec<To<'_, T>> = states.iter_mut().map(To::new).collect();
        let mut outputs: Vec<Option<To<'_, T>>> =
            outputs.iter_mut().map(|output| output.as_deref_mut().map(To::new)).collect();
        let mut file = repeated([T::default(); W], self.registers)?;
        for instruction in &self.instructions {
            if let Step::Constant(literal) = instruction.step {
                file[instruction.result].fill(T::of(literal));
            }
        }
        ARCH.dispatch(Steps {
            of: self,
            file: &mut file,
            elements: &elements,
            before: &before,
            states: &mut states,
            outputs: &mut outputs,
            exclusive,
        });
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
    file: &'s mut [Register<T, W>],
    elements: &'s [From<'v, T>],
    before: &'s [From<'v, T>],
    states: &'s mut [To<'v, T>],
    outputs: &'s mut [Option<To<'v, T>>],
    exclusive: bool,
}

impl<T: Number, const W: usize> WithSimd for Steps<'_, '_, T, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // Groups are not made where numbers are computed one by one.
        if S::IS_SCALAR {
            return;
        }
        let of = self.of;
        of.runs.each(|at| {
            for first in (0..of.runs.len).step_by(W) {
                let lanes = Lanes { runs: &of.runs, at, first, n: W.min(of.runs.len - first) };
                self.group(simd, &lanes);
            }
        });
    }
}

impl<T: Number, const W: usize> Steps<'_, '_, T, W> {
    /// Takes all steps of one group.
    #[inline(always)]
    fn group<S: Simd>(&mut self, simd: S, lanes: &Lanes<'_>) {
        let Groups { kernel, geometry, moves, .. } = self.of;
        let fields = self.states.len();
        let places = |all: &[Strides]| all.iter().map(|strides| lanes.of(&strides.lanes)).collect::<Vec<_>>();
        let (from, to) = (places(&geometry.elements), places(&geometry.outputs));
        for (field, state) in self.before.iter().enumerate().filter(|(field, _)| kernel.next[*field].is_some()) {
            state.load(&mut self.file[field], lanes.of(&geometry.states[field]), lanes.n);
        }
        for step in geometry.first.from()..geometry.steps {
            if self.exclusive {
                self.write(step, (&to, lanes.n));
            }
            for k in &self.of.read {
                let (at, varies) = from[*k];
                let at = geometry.elements[*k].at(step) + at;
                self.elements[*k].load(&mut self.file[fields + k], (at, varies), lanes.n);
            }
            self.of.nodes(simd, self.file);
            for (from, to) in moves {
                let (before, after) = self.file.split_at_mut(*from);
                before[*to] = after[0];
            }
            if !self.exclusive {
                self.write(step, (&to, lanes.n));
            }
        }
        for (field, state) in self.states.iter_mut().enumerate().filter(|(field, _)| kernel.next[*field].is_some()) {
            state.store(&self.file[field], lanes.of(&geometry.states[field]), lanes.n);
        }
    }

    #[inline(always)]
    fn write(&mut self, step: usize, (places, n): (&[(usize, bool)], usize)) {
        for (field, (register, output)) in self.file.iter().zip(&mut *self.outputs).enumerate() {
            if let Some(output) = output {
                let (at, varies) = places[field];
                output.store(register, (self.of.geometry.outputs[field].at(step) + at, varies), n);
            }
        }
    }
}

impl Groups<'_> {
    /// Computes all nodes of a step.
    #[inline(always)]
    fn nodes<S: Simd, T: Number, const W: usize>(&self, simd: S, file: &mut [Register<T, W>]) {
        for Instruction { step, operands, result } in &self.instructions {
            let (before, rest) = file.split_at_mut(*result);
            let (dst, [a, b, c]) = (&mut rest[0], operands.map(|k| &before[k]));
            match step {
                Step::Constant(_) => {}
                Step::Sum { from, to } => T::sum(simd, dst, &self.terms[*from..*to], before),
                Step::Unary(op) => T::unary(*op, dst, a),
                Step::Binary(op) => T::binary(*op, dst, a, b),
                Step::Compare(op) => compare!(op, two(dst, a, b) over T, T::flag),
                Step::Not => one(
                    dst,
                    a,
                    #[inline(always)]
                    |x: T| T::flag(!x.is_set()),
                ),
                Step::Logic(op) => logic(*op, dst, a, b),
                Step::Select => {
                    for (k, dst) in dst.iter_mut().enumerate() {
                        *dst = if a[k].is_set() { b[k] } else { c[k] };
                    }
                }
            }
        }
    }
}

/// The lanes of a group: the indices of the axes around the run, and which lanes of the run these are.
struct Lanes<'a> {
    runs: &'a Runs,
    at: &'a [usize],
    first: usize,
    n: usize,
}

impl Lanes<'_> {
    /// Where something with these strides begins, and whether its lanes differ.
    fn of(&self, strides: &[isize]) -> (usize, bool) {
        let (start, varies) = self.runs.place(self.at, strides);
        (if varies { start + self.first } else { start }, varies)
    }
}

/// The elements that a kernel reads.
fn read_by(kernel: &Kernel) -> Vec<usize> {
    let sources = kernel.nodes.iter().flat_map(|node| &node.operands).chain(kernel.next.iter().flatten());
    let element = |source: &Source| if let Source::Element(k) = source { Some(*k) } else { None };
    let mut read: Vec<usize> = sources.filter_map(element).collect();
    read.sort_unstable();
    read.dedup();
    read
}

/// The types of fields, elements and nodes: of all registers.
fn types<'a>(kernel: &'a Kernel, elements: &'a [Slice<'_>]) -> impl Iterator<Item = Ty> + 'a {
    let fields = kernel.fields.iter().map(|(ty, _)| *ty);
    fields.chain(elements.iter().map(|element| element.ty())).chain(kernel.nodes.iter().map(|node| node.ty))
}

/// The registers of states and elements, and behind them those of nodes.
struct Places {
    fields: usize,
    elements: usize,
}

impl Places {
    fn of(&self, source: Source) -> usize {
        match source {
            Source::State(field) => field,
            Source::Element(k) => self.fields + k,
            Source::Node(k) => self.fields + self.elements + k,
        }
    }
}

/// The instructions of a kernel and the terms of its sums; `None` where there are conversions.
fn instructions(kernel: &Kernel, places: &Places, types: &[Ty]) -> Option<(Vec<Instruction>, Vec<Term>)> {
    let (chains, mut terms) = (Chains::of(kernel), vec![]);
    let mut all: Vec<Option<Instruction>> = vec![];
    for (k, node) in kernel.nodes.iter().enumerate() {
        let result = places.of(Source::Node(k));
        let chain = if node.ty.is_float() { chains.ending_in(k, |source| places.of(source)) } else { None };
        let Some((own, parts)) = chain else {
            all.push(Some(instruction(node, result, places, types)?));
            continue;
        };
        parts.into_iter().for_each(|part| all[part] = None);
        let from = terms.len();
        terms.extend(own);
        all.push(Some(Instruction { step: Step::Sum { from, to: terms.len() }, operands: [0; 3], result }));
    }
    Some((all.into_iter().flatten().collect(), terms))
}

/// The instruction of a node; `None` for conversions.
fn instruction(node: &StepNode, result: usize, places: &Places, types: &[Ty]) -> Option<Instruction> {
    let mut operands = [0; 3];
    operands.iter_mut().zip(&node.operands).for_each(|(at, source)| *at = places.of(*source));
    let of_flags = !node.operands.is_empty() && types[operands[0]] == Ty::Bool;
    let step = match node.action {
        Action::Const(literal) => Step::Constant(literal),
        Action::Unary(_) if of_flags => Step::Not,
        Action::Unary(op) => Step::Unary(op),
        Action::Binary(op) if of_flags => Step::Logic(op),
        Action::Binary(op) if op.is_comparison() => Step::Compare(op),
        Action::Binary(op) => Step::Binary(op),
        Action::Select => Step::Select,
        Action::Convert(_) => return None,
    };
    Some(Instruction { step, operands, result })
}
