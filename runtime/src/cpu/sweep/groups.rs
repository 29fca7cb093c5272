//! Stepping groups of lanes: all steps of one group before the next, its states and nodes in registers that stay in the
//! nearest cache.
//!
//! A kernel is stepped so where its numbers have one type and its lanes lie side by side. Truth values are the numbers 0
//! and 1 there.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Literal, Unary};

use super::runs::Runs;
use super::{Geometry, Strides};
use crate::cpu::CpuError;
use crate::cpu::arithmetic::{Float, Integer};
use crate::cpu::kernel::{Action, Kernel, Source, StepNode};
use crate::cpu::operations::{compare, float_binary, float_unary, integer_binary, integer_unary};
use crate::cpu::simd::simd;
use crate::cpu::values::{Scalar, Slice, Values};
use crate::room::repeated;

/// How many lanes a group has; fewer where there are few lanes, as for the totals of one sequence's parts.
const WIDTH: usize = 64;
const FEW: usize = 8;

/// A register: one number for each lane of a group.
type Register<T, const W: usize> = [T; W];

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
}

/// An instruction; its result goes to a register of its own.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    step: Step,
    operands: [usize; 3],
}

/// A kernel that is stepped in groups. Its registers are the states, the elements and the nodes, in this order.
pub(super) struct Groups<'a> {
    kernel: &'a Kernel,
    geometry: &'a Geometry,
    runs: Runs,
    /// The type of all numbers.
    ty: Ty,
    instructions: Vec<Instruction>,
    /// From the register of each field's next value to its state's.
    moves: Vec<(usize, usize)>,
}

impl<'a> Groups<'a> {
    /// `None` if the kernel cannot be stepped so.
    pub(super) fn new(kernel: &'a Kernel, geometry: &'a Geometry, elements: &[Slice<'_>]) -> Option<Groups<'a>> {
        let types: Vec<Ty> = types(kernel, elements).collect();
        let ty = *types.iter().find(|ty| **ty != Ty::Bool)?;
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
        let instructions = kernel.nodes.iter().map(|node| instruction(node, &places, &types)).collect::<Option<_>>()?;
        let next = kernel.next.iter().enumerate().filter_map(|(field, source)| Some((places.of((*source)?), field)));
        let moves: Vec<(usize, usize)> = next.filter(|(from, to)| from != to).collect();
        // A state that becomes another field's would have to be read before it is overwritten.
        let is_mixed = moves.iter().any(|(from, _)| *from < kernel.fields.len());
        (!is_mixed).then_some(Groups { kernel, geometry, runs, ty, instructions, moves })
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
            Ty::I32 => self.of_type::<i32>(elements, states, outputs, exclusive),
            Ty::I64 => self.of_type::<i64>(elements, states, outputs, exclusive),
            Ty::U32 => self.of_type::<u32>(elements, states, outputs, exclusive),
            Ty::U64 => self.of_type::<u64>(elements, states, outputs, exclusive),
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
        let mut states: Vec<To<'_, T>> = states.iter_mut().map(To::new).collect();
        let mut outputs: Vec<Option<To<'_, T>>> =
            outputs.iter_mut().map(|output| output.as_deref_mut().map(To::new)).collect();
        let registers = self.kernel.fields.len() + elements.len() + self.instructions.len();
        let mut file = repeated([T::default(); W], registers)?;
        for (i, instruction) in self.instructions.iter().enumerate() {
            if let Step::Constant(literal) = instruction.step {
                file[registers - self.instructions.len() + i].fill(T::of(literal));
            }
        }
        simd(
            #[inline(always)]
            || {
                self.runs.each(|at| {
                    for first in (0..self.runs.len).step_by(W) {
                        let lanes = Lanes { runs: &self.runs, at, first, n: W.min(self.runs.len - first) };
                        self.group(&lanes, &mut file, &elements, &mut states, &mut outputs, exclusive);
                    }
                });
            },
        );
        Ok(())
    }

    /// Takes all steps of one group.
    #[inline(always)]
    fn group<T: Number, const W: usize>(
        &self,
        lanes: &Lanes<'_>,
        file: &mut [Register<T, W>],
        elements: &[From<'_, T>],
        states: &mut [To<'_, T>],
        outputs: &mut [Option<To<'_, T>>],
        exclusive: bool,
    ) {
        let fields = states.len();
        let places = |all: &[Strides]| all.iter().map(|strides| lanes.of(&strides.lanes)).collect::<Vec<_>>();
        let (from, to) = (places(&self.geometry.elements), places(&self.geometry.outputs));
        for (field, state) in states.iter().enumerate().filter(|(field, _)| self.kernel.next[*field].is_some()) {
            state.load(&mut file[field], lanes.of(&self.geometry.states[field]), lanes.n);
        }
        for step in self.geometry.first.from()..self.geometry.steps {
            if exclusive {
                self.write(step, (&to, lanes.n), file, outputs);
            }
            for (k, (element, register)) in elements.iter().zip(&mut file[fields..]).enumerate() {
                let (at, varies) = from[k];
                element.load(register, (self.geometry.elements[k].at(step) + at, varies), lanes.n);
            }
            self.nodes(file);
            for (from, to) in &self.moves {
                let (before, after) = file.split_at_mut(*from);
                before[*to] = after[0];
            }
            if !exclusive {
                self.write(step, (&to, lanes.n), file, outputs);
            }
        }
        for (field, state) in states.iter_mut().enumerate().filter(|(field, _)| self.kernel.next[*field].is_some()) {
            state.store(&file[field], lanes.of(&self.geometry.states[field]), lanes.n);
        }
    }

    /// Computes all nodes of a step.
    #[inline(always)]
    fn nodes<T: Number, const W: usize>(&self, file: &mut [Register<T, W>]) {
        let first = file.len() - self.instructions.len();
        for (i, Instruction { step, operands }) in self.instructions.iter().enumerate() {
            let (before, rest) = file.split_at_mut(first + i);
            let (dst, [a, b, c]) = (&mut rest[0], operands.map(|k| &before[k]));
            match step {
                Step::Constant(_) => {}
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

    #[inline(always)]
    fn write<T: Number, const W: usize>(
        &self,
        step: usize,
        (places, n): (&[(usize, bool)], usize),
        file: &[Register<T, W>],
        outputs: &mut [Option<To<'_, T>>],
    ) {
        for (field, (register, output)) in file.iter().zip(outputs).enumerate() {
            if let Some(output) = output {
                let (at, varies) = places[field];
                output.store(register, (self.geometry.outputs[field].at(step) + at, varies), n);
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

/// The instruction of a node; `None` for conversions.
fn instruction(node: &StepNode, places: &Places, types: &[Ty]) -> Option<Instruction> {
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
    Some(Instruction { step, operands })
}

/// A type of numbers whose kernels are stepped in groups.
trait Number: Scalar + PartialOrd {
    /// The number of a truth value.
    fn flag(is: bool) -> Self;
    /// Computes an operation for a register.
    fn unary<const W: usize>(op: Unary, dst: &mut Register<Self, W>, a: &Register<Self, W>);
    /// Computes an operation for a register.
    fn binary<const W: usize>(op: Binary, dst: &mut Register<Self, W>, a: &Register<Self, W>, b: &Register<Self, W>);

    /// The truth value of a number.
    #[inline(always)]
    fn is_set(self) -> bool {
        self != Self::default()
    }
}

macro_rules! number {
    ($unary:ident, $binary:ident: $($t:ty, $one:expr;)*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn flag(is: bool) -> Self {
                if is { $one } else { Self::default() }
            }

            #[inline(always)]
            fn unary<const W: usize>(op: Unary, dst: &mut Register<Self, W>, a: &Register<Self, W>) {
                $unary!(op, one(dst, a) over $t);
            }

            #[inline(always)]
            fn binary<const W: usize>(op: Binary, dst: &mut Register<Self, W>, a: &Register<Self, W>, b: &Register<Self, W>) {
                $binary!(op, two(dst, a, b) over $t);
            }
        }
    )*};
}

number!(float_unary, float_binary: f32, 1.0; f64, 1.0;);
number!(integer_unary, integer_binary: i32, 1; i64, 1; u32, 1; u64, 1;);

#[inline(always)]
fn one<T: Number, const W: usize>(dst: &mut Register<T, W>, a: &Register<T, W>, f: impl Fn(T) -> T) {
    dst.iter_mut().zip(a).for_each(
        #[inline(always)]
        |(dst, a)| *dst = f(*a),
    );
}

#[inline(always)]
fn two<T: Number, const W: usize>(
    dst: &mut Register<T, W>,
    a: &Register<T, W>,
    b: &Register<T, W>,
    f: impl Fn(T, T) -> T,
) {
    dst.iter_mut().zip(a).zip(b).for_each(
        #[inline(always)]
        |((dst, a), b)| *dst = f(*a, *b),
    );
}

/// An operation of truth values.
#[inline(always)]
fn logic<T: Number, const W: usize>(op: Binary, dst: &mut Register<T, W>, a: &Register<T, W>, b: &Register<T, W>) {
    two(
        dst,
        a,
        b,
        #[inline(always)]
        |l, r| {
            let (l, r) = (l.is_set(), r.is_set());
            T::flag(match op {
                Binary::And => l & r,
                Binary::Or => l | r,
                Binary::Eq => l == r,
                _ => l ^ r,
            })
        },
    );
}

/// Memory of numbers or of truth values.
enum From<'a, T> {
    Numbers(&'a [T]),
    Flags(&'a [bool]),
}

impl<'a, T: Number> From<'a, T> {
    fn new(slice: Slice<'a>) -> Self {
        match slice {
            Slice::Bool(all) => From::Flags(all),
            _ => From::Numbers(slice.of()),
        }
    }

    /// Loads n lanes, or one number for all of them.
    #[inline(always)]
    fn load<const W: usize>(&self, dst: &mut Register<T, W>, (at, varies): (usize, bool), n: usize) {
        match (self, varies) {
            (From::Numbers(all), true) => match all[at..].first_chunk() {
                Some(group) if n == W => *dst = *group,
                _ => dst[..n].copy_from_slice(&all[at..][..n]),
            },
            (From::Numbers(all), false) => dst.fill(all[at]),
            (From::Flags(all), true) => dst.iter_mut().zip(&all[at..][..n]).for_each(|(dst, is)| *dst = T::flag(*is)),
            (From::Flags(all), false) => dst.fill(T::flag(all[at])),
        }
    }
}

/// Memory of numbers or of truth values, to be written.
enum To<'a, T> {
    Numbers(&'a mut [T]),
    Flags(&'a mut [bool]),
}

impl<'a, T: Number> To<'a, T> {
    fn new(values: &'a mut Values) -> Self {
        match values {
            Values::Bool(all) => To::Flags(all),
            other => To::Numbers(other.all()),
        }
    }

    #[inline(always)]
    fn load<const W: usize>(&self, dst: &mut Register<T, W>, at: (usize, bool), n: usize) {
        match self {
            To::Numbers(all) => From::Numbers(all).load(dst, at, n),
            To::Flags(all) => From::Flags(all).load(dst, at, n),
        }
    }

    /// Stores n lanes, or the one number of all of them.
    #[inline(always)]
    fn store<const W: usize>(&mut self, src: &Register<T, W>, (at, varies): (usize, bool), n: usize) {
        let n = if varies { n } else { 1 };
        match self {
            To::Numbers(all) => match all[at..].first_chunk_mut() {
                Some(group) if n == W => *group = *src,
                _ => all[at..][..n].copy_from_slice(&src[..n]),
            },
            To::Flags(all) => all[at..][..n].iter_mut().zip(src).for_each(|(to, x)| *to = x.is_set()),
        }
    }
}
