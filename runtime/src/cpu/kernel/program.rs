//! A step as instructions on registers that each hold a number for every lane of a group.
//!
//! Truth values are the numbers 0 and 1 there.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Literal, Unary};

use super::chains::Chains;
use super::{Action, Kernel, Source, StepNode};

/// Where a register lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) enum Place {
    /// Among the elements of the step.
    Element(usize),
    /// Among the states before the step.
    State(usize),
    /// Among the results of instructions.
    Node(usize),
}

/// Where the result of an instruction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu) enum Target {
    /// Behind the results that it may read.
    Node(usize),
    /// The state of a field after the step.
    Next(usize),
}

/// A term of a sum: a register, or the product of two.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Term {
    pub(in crate::cpu) is_subtracted: bool,
    pub(in crate::cpu) factor: Place,
    pub(in crate::cpu) times: Option<Place>,
}

impl Term {
    /// Its factors; twice the one where there is one.
    pub(in crate::cpu) fn places(&self) -> [Place; 2] {
        [self.factor, self.times.unwrap_or(self.factor)]
    }
}

/// The function that an instruction computes of its operands.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) enum Step {
    Copy,
    Unary(Unary),
    Binary(Binary),
    Compare(Binary),
    /// Of truth values.
    Not,
    /// Of truth values.
    Logic(Binary),
    Select,
    /// Of these of the program's terms.
    Sum {
        from: usize,
        to: usize,
    },
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(in crate::cpu) struct Instruction {
    pub(in crate::cpu) step: Step,
    pub(in crate::cpu) operands: [Place; 3],
    pub(in crate::cpu) target: Target,
}

/// The instructions of a kernel.
#[derive(Clone, Debug)]
pub(in crate::cpu) struct Program {
    /// The type of all numbers.
    pub(in crate::cpu) ty: Ty,
    /// How many elements a step has.
    pub(in crate::cpu) elements: usize,
    /// The elements that it reads.
    pub(in crate::cpu) reads: Vec<usize>,
    pub(in crate::cpu) instructions: Vec<Instruction>,
    pub(in crate::cpu) terms: Vec<Term>,
    /// How many results of instructions there are.
    pub(in crate::cpu) nodes: usize,
    /// The constants among them.
    pub(in crate::cpu) constants: Vec<(usize, Literal)>,
}

impl Program {
    /// The program of a kernel whose elements have these types. `None` where there are conversions or numbers of several types.
    /// Integers are few in operators, and code for their types would make every program larger.
    pub(super) fn of(kernel: &Kernel, elements: &[Ty]) -> Option<Program> {
        let reads = read_by(kernel);
        let of_source = |source: Source| match source {
            Source::State(field) => kernel.fields[field].0,
            Source::Element(k) => elements[k],
            Source::Node(k) => kernel.nodes[k].ty,
        };
        let fields = kernel.fields.iter().map(|(ty, _)| *ty);
        let nodes = kernel.nodes.iter().map(|node| node.ty);
        let types: Vec<Ty> = fields.chain(elements.iter().copied()).chain(nodes).collect();
        let ty = *types.iter().find(|ty| ty.is_float())?;
        if types.iter().any(|other| ![ty, Ty::Bool].contains(other)) {
            return None;
        }
        let elements = elements.len();
        let program = Program { ty, elements, reads, instructions: vec![], terms: vec![], nodes: 0, constants: vec![] };
        Writer { kernel, chains: Chains::of(kernel), program }.write(of_source)
    }
}

/// Writes a program.
struct Writer<'a> {
    kernel: &'a Kernel,
    chains: Chains<'a>,
    program: Program,
}

impl Writer<'_> {
    fn write(mut self, ty: impl Fn(Source) -> Ty) -> Option<Program> {
        let mut all: Vec<Option<Instruction>> = vec![];
        for (k, node) in self.kernel.nodes.iter().enumerate() {
            let chain = if node.ty.is_float() { self.chains.ending_in(k, |source| self.place(source)) } else { None };
            let instruction = match chain {
                Some((terms, parts)) => {
                    parts.into_iter().for_each(|part| all[part] = None);
                    let from = self.program.terms.len();
                    self.program.terms.extend(terms);
                    let step = Step::Sum { from, to: self.program.terms.len() };
                    Some(Instruction { step, operands: [Place::State(0); 3], target: self.target(k) })
                }
                None => self.instruction(k, node, &ty)?,
            };
            all.push(instruction);
        }
        self.program.instructions = all.into_iter().flatten().collect();
        self.copy_next();
        self.close_up();
        Some(self.program)
    }

    fn place(&self, source: Source) -> Place {
        match source {
            Source::State(field) => Place::State(field),
            Source::Element(k) => Place::Element(k),
            Source::Node(k) => Place::Node(k),
        }
    }

    /// Whether a node is nothing but the next value of a field.
    fn is_next(&self, node: usize) -> Option<usize> {
        let is_constant = matches!(self.kernel.nodes[node].action, Action::Const(_));
        let field = self.kernel.next.iter().position(|next| *next == Some(Source::Node(node)))?;
        (self.chains.uses[node] == 1 && !is_constant).then_some(field)
    }

    fn target(&self, node: usize) -> Target {
        self.is_next(node).map_or(Target::Node(node), Target::Next)
    }

    /// The instruction of a node, none for a constant; `None` for conversions.
    fn instruction(&mut self, k: usize, node: &StepNode, ty: impl Fn(Source) -> Ty) -> Option<Option<Instruction>> {
        let mut operands = [Place::State(0); 3];
        operands.iter_mut().zip(&node.operands).for_each(|(at, source)| *at = self.place(*source));
        let of_flags = node.operands.first().is_some_and(|source| ty(*source) == Ty::Bool);
        let step = match node.action {
            Action::Const(literal) => {
                self.program.constants.push((k, literal));
                return Some(None);
            }
            Action::Unary(_) if of_flags => Step::Not,
            Action::Unary(op) => Step::Unary(op),
            Action::Binary(op) if of_flags => Step::Logic(op),
            Action::Binary(op) if op.is_comparison() => Step::Compare(op),
            Action::Binary(op) => Step::Binary(op),
            Action::Select => Step::Select,
            Action::Convert(_) => return None,
        };
        Some(Some(Instruction { step, operands, target: self.target(k) }))
    }

    /// Copies the next values that are not the result of an instruction of their own.
    fn copy_next(&mut self) {
        for (field, next) in self.kernel.next.iter().enumerate() {
            let Some(source) = *next else { continue };
            let is_written = matches!(source, Source::Node(k) if self.is_next(k) == Some(field));
            if !is_written {
                let operands = [self.place(source), Place::State(0), Place::State(0)];
                self.program.instructions.push(Instruction { step: Step::Copy, operands, target: Target::Next(field) });
            }
        }
    }

    /// Numbers the results that are left one after the other.
    fn close_up(&mut self) {
        let Program { instructions, terms, nodes, constants, .. } = &mut self.program;
        let mut rows = vec![0; self.kernel.nodes.len()];
        let of_instruction = |instruction: &Instruction| match instruction.target {
            Target::Node(k) => Some(k),
            Target::Next(_) => None,
        };
        let mut left: Vec<usize> =
            instructions.iter().filter_map(of_instruction).chain(constants.iter().map(|(k, _)| *k)).collect();
        left.sort_unstable();
        left.iter().enumerate().for_each(|(row, k)| rows[*k] = row);
        *nodes = left.len();
        let places = terms.iter_mut().flat_map(|term| [Some(&mut term.factor), term.times.as_mut()]).flatten();
        for place in places.chain(instructions.iter_mut().flat_map(|instruction| &mut instruction.operands)) {
            if let Place::Node(k) = place {
                *k = rows[*k];
            }
        }
        for instruction in instructions.iter_mut() {
            if let Target::Node(k) = &mut instruction.target {
                *k = rows[*k];
            }
        }
        constants.iter_mut().for_each(|(k, _)| *k = rows[*k]);
    }
}

/// The elements that a kernel reads, in order.
fn read_by(kernel: &Kernel) -> Vec<usize> {
    let sources = kernel.nodes.iter().flat_map(|node| &node.operands).chain(kernel.next.iter().flatten());
    let element = |source: &Source| if let Source::Element(k) = source { Some(*k) } else { None };
    let mut read: Vec<usize> = sources.filter_map(element).collect();
    read.sort_unstable();
    read.dedup();
    read
}
