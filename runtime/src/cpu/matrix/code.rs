//! The code of a group: the operations on vectors and matrices of one step.
//!
//! A product is kept as the list of its factors until something else than a product needs it: a sum of a matrix times vectors over an axis
//! is one pass over the matrix, and the outer product of two vectors is never made. With `ordered` every operation of the program is
//! one operation here, in its order.

use std::collections::HashMap;

use oplus_dsl::ir::{Binary, Literal, MatrixScan, Op, Program, Term, Unary, Value};

use super::group::{Group, Kind, scan_of};

/// Where an operand is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    Const(f64),
    Register(usize),
    /// A tensor that the group reads, at the time of the step.
    Import(usize),
    /// The state of a family after the step, or before it.
    State(usize),
    Before(usize),
}

/// A value at one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Operand {
    pub(super) place: Place,
    pub(super) kind: Kind,
}

/// A map of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Map {
    Add,
    Sub,
    Div,
}

/// An operation of a step. Each but the step of a family fills a register.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Instruction {
    /// The product of all factors, negated or not.
    Product {
        factors: Vec<Operand>,
        negative: bool,
        to: usize,
    },
    Map {
        map: Map,
        operands: [Operand; 2],
        to: usize,
    },
    /// The second operand where the first is not 0, the third elsewhere.
    Select {
        operands: [Operand; 3],
        to: usize,
    },
    /// The sum of a product over the axis that matrices act on, or over the other one.
    Sum {
        factors: Vec<Operand>,
        negative: bool,
        along: bool,
        to: usize,
    },
    /// The next state of a family.
    Step(usize),
}

/// The input that a step adds to a state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Input {
    Value(Operand),
    /// A vector along the axis that matrices act on, times one along the other axis.
    Outer(Operand, Operand),
}

/// A term of the matrix of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    Pair { column: Operand, row: Operand },
    Dense { matrix: Operand, transposed: bool },
}

/// Recurrences that go through the same states.
#[derive(Clone, Debug)]
pub(super) struct Family {
    pub(super) scan: MatrixScan,
    /// `None` for a diagonal of 1.
    pub(super) decay: Option<Operand>,
    pub(super) parts: Vec<Part>,
    pub(super) input: Input,
    pub(super) init: Operand,
    pub(super) reset: Option<Operand>,
    /// Whether the state before a step is read.
    pub(super) keeps_before: bool,
}

/// All that a group does.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    /// The kind of value in each register.
    pub(super) registers: Vec<Kind>,
    /// The operations of a step, in order.
    pub(super) steps: Vec<Instruction>,
    pub(super) families: Vec<Family>,
    /// The operands that are stored at every step, as [`Group::exports`].
    pub(super) exports: Vec<Operand>,
    /// The operands that are stored at an end, as [`Group::ends`].
    pub(super) ends: Vec<Operand>,
}

/// A product whose factors are not multiplied yet.
#[derive(Clone, Debug)]
struct Product {
    factors: Vec<Operand>,
    negative: bool,
}

impl From<Operand> for Product {
    fn from(operand: Operand) -> Product {
        Product { factors: vec![operand], negative: false }
    }
}

/// More factors are multiplied together.
const FACTORS: usize = 6;

/// A product varies along all that its factors vary along.
pub(super) fn union(a: Kind, b: Kind) -> Kind {
    match (a, b) {
        (Kind::Number, other) | (other, Kind::Number) => other,
        (a, b) if a == b => a,
        _ => Kind::Whole,
    }
}

/// The operations of a group.
pub(super) fn code(program: &Program, group: &Group, ordered: bool) -> Code {
    let mut lower = Lower { program, group, ordered, code: Code::default(), known: HashMap::new() };
    for (k, import) in group.imports.iter().enumerate() {
        let axes = program.node(*import).axes;
        let is_square = group.others(program).iter().any(|other| axes.contains(*other));
        let kind = if is_square { Kind::Square } else { group.kind(axes) };
        lower.known.insert(*import, Operand { place: Place::Import(k), kind }.into());
    }
    for at in 0..program.nodes.len() as u32 {
        lower.visit(Value(at));
    }
    let exports = group.exports.iter().map(|v| lower.stored(*v)).collect();
    let ends = group.ends.iter().map(|end| lower.stored(end.of)).collect();
    Code { exports, ends, ..lower.code }
}

struct Lower<'a> {
    program: &'a Program,
    group: &'a Group,
    ordered: bool,
    code: Code,
    known: HashMap<Value, Product>,
}

impl Lower<'_> {
    fn visit(&mut self, value: Value) {
        if self.group.scans.contains(&value) {
            let operand = self.scan(value);
            self.known.insert(value, operand.into());
        } else if self.group.inside.contains(&value) {
            let product = self.operation(value);
            self.known.insert(value, product);
        }
    }

    fn operation(&mut self, value: Value) -> Product {
        let op = self.program.node(value).op.clone();
        match op {
            Op::Const(Literal::Float(x)) => Operand { place: Place::Const(x), kind: Kind::Number }.into(),
            Op::Broadcast(a) => self.known[&a].clone(),
            Op::Unary(Unary::Neg, a) => {
                let product = self.known[&a].clone();
                self.product(Product { negative: !product.negative, ..product })
            }
            Op::Binary(Binary::Mul, a, b) => {
                let (a, b) = (self.known[&a].clone(), self.known[&b].clone());
                let negative = a.negative != b.negative;
                self.product(Product { factors: [a.factors, b.factors].concat(), negative })
            }
            Op::Binary(op, a, b) => {
                let map = match op {
                    Binary::Add => Map::Add,
                    Binary::Sub => Map::Sub,
                    _ => Map::Div,
                };
                let operands = [a, b].map(|v| self.one(v));
                let to = self.register(union(operands[0].kind, operands[1].kind));
                self.emit(Instruction::Map { map, operands, to }, to).into()
            }
            Op::Select(c, a, b) => {
                let operands = [c, a, b].map(|v| self.one(v));
                let to = self.register(operands.iter().fold(Kind::Number, |all, operand| union(all, operand.kind)));
                self.emit(Instruction::Select { operands, to }, to).into()
            }
            Op::Reduce { axis, elements, .. } => {
                let along = axis == self.group.along;
                let Product { factors, negative } = self.grouped(&self.known[&elements[0]].clone());
                let whole = factors.iter().fold(Kind::Number, |all, factor| union(all, factor.kind));
                let kind = match (whole, along) {
                    (Kind::Whole, true) => Kind::Across,
                    (Kind::Whole, false) => Kind::Along,
                    _ => Kind::Number,
                };
                let to = self.register(kind);
                self.emit(Instruction::Sum { factors, negative, along, to }, to).into()
            }
            Op::Field(tuple, _) => self.known[&tuple].clone(),
            _ => unreachable!("a group has no other operations"),
        }
    }

    /// A product, multiplied where each operation is to be one.
    fn product(&mut self, product: Product) -> Product {
        if self.ordered || product.factors.len() > FACTORS { self.multiplied(&product).into() } else { product }
    }

    /// A product with at most one vector of each kind: what is small is multiplied first.
    fn grouped(&mut self, product: &Product) -> Product {
        if self.ordered || product.factors.len() < 2 {
            return product.clone();
        }
        let of = |kind: Kind| product.factors.iter().copied().filter(move |f| f.kind == kind).collect::<Vec<_>>();
        let (mut along, across, numbers) = (of(Kind::Along), of(Kind::Across), of(Kind::Number));
        let mut factors = of(Kind::Whole);
        let mut negative = product.negative;
        let rest = if along.is_empty() { Kind::Across } else { Kind::Along };
        let mut across = across;
        if rest == Kind::Along {
            along.extend(numbers)
        } else {
            across.extend(numbers)
        }
        for small in [along, across] {
            match small.len() {
                0 => {}
                1 => factors.extend(small),
                _ => {
                    let product = Product { factors: small, negative: std::mem::take(&mut negative) };
                    factors.push(self.multiplied(&product));
                }
            }
        }
        Product { factors, negative }
    }

    /// A value as one operand.
    fn one(&mut self, value: Value) -> Operand {
        let product = self.known[&value].clone();
        self.multiplied(&product)
    }

    fn multiplied(&mut self, product: &Product) -> Operand {
        let Product { factors, negative } = product.clone();
        if let ([factor], false) = (&factors[..], negative) {
            return *factor;
        }
        let kinds = factors.iter().map(|factor| factor.kind);
        let kind = kinds.fold(Kind::Number, union);
        let small = factors.iter().any(|factor| factor.kind != kind && factor.kind != Kind::Number);
        let product =
            if kind == Kind::Whole && small && factors.len() > 2 { self.grouped(product) } else { product.clone() };
        let known = self.code.steps.iter().find_map(|step| match step {
            Instruction::Product { factors, negative, to } => {
                (*factors == product.factors && *negative == product.negative).then_some(*to)
            }
            _ => None,
        });
        if let Some(to) = known {
            return Operand { place: Place::Register(to), kind };
        }
        let to = self.register(kind);
        let Product { factors, negative } = product;
        self.emit(Instruction::Product { factors, negative, to }, to)
    }

    fn register(&mut self, kind: Kind) -> usize {
        self.code.registers.push(kind);
        self.code.registers.len() - 1
    }

    fn emit(&mut self, instruction: Instruction, to: usize) -> Operand {
        self.code.steps.push(instruction);
        Operand { place: Place::Register(to), kind: self.code.registers[to] }
    }

    /// An operand to be stored: what a value varies along is what its tensor does.
    fn stored(&mut self, value: Value) -> Operand {
        let operand = self.one(value);
        debug_assert_eq!(operand.kind, self.group.kind(self.program.node(value).axes));
        operand
    }

    /// The states of a recurrence, whose family steps here if it has not.
    fn scan(&mut self, value: Value) -> Operand {
        let Some(scan) = scan_of(self.program, value).cloned() else { unreachable!("a group's recurrence") };
        let states = MatrixScan { exclusive: false, ..scan.clone() };
        let known = self.code.families.iter().position(|family| family.scan == states);
        let family = known.unwrap_or_else(|| self.family(states));
        self.code.families[family].keeps_before |= scan.exclusive;
        let kind = self.group.kind(self.program.node(value).axes);
        Operand { place: if scan.exclusive { Place::Before(family) } else { Place::State(family) }, kind }
    }

    fn family(&mut self, scan: MatrixScan) -> usize {
        let decay = self.one(scan.decay);
        let parts = scan.terms.iter().map(|term| match *term {
            Term::Pair { column, row } => Part::Pair { column: self.one(column), row: self.one(row) },
            Term::Dense { matrix, transposed, .. } => Part::Dense { matrix: self.one(matrix), transposed },
        });
        let parts = parts.collect();
        let input = self.input(scan.input);
        let (init, reset) = (self.one(scan.init), scan.reset.map(|reset| self.one(reset)));
        let decay = (decay.place != Place::Const(1.0)).then_some(decay);
        self.code.families.push(Family { scan, decay, parts, input, init, reset, keeps_before: false });
        let family = self.code.families.len() - 1;
        self.code.steps.push(Instruction::Step(family));
        family
    }

    fn input(&mut self, value: Value) -> Input {
        let product = self.known[&value].clone();
        let Product { factors, negative } = self.grouped(&product);
        match factors[..] {
            [a, b] if !negative && (a.kind, b.kind) == (Kind::Along, Kind::Across) => Input::Outer(a, b),
            [a, b] if !negative && (b.kind, a.kind) == (Kind::Along, Kind::Across) => Input::Outer(b, a),
            _ => Input::Value(self.multiplied(&Product { factors, negative })),
        }
    }
}

impl Code {
    /// The operations that give the operands of some families, with their steps.
    pub(super) fn only(&self, families: &[usize]) -> Vec<Instruction> {
        let mut needed = vec![false; self.registers.len()];
        let mut kept = vec![];
        for step in self.steps.iter().rev() {
            let (is_kept, operands) = match step {
                Instruction::Step(family) => (families.contains(family), self.families[*family].operands()),
                Instruction::Product { factors, to, .. } | Instruction::Sum { factors, to, .. } => {
                    (needed[*to], factors.clone())
                }
                Instruction::Map { operands, to, .. } => (needed[*to], operands.to_vec()),
                Instruction::Select { operands, to } => (needed[*to], operands.to_vec()),
            };
            if is_kept {
                kept.push(step.clone());
                for operand in operands {
                    if let Place::Register(k) = operand.place {
                        needed[k] = true;
                    }
                }
            }
        }
        kept.reverse();
        kept
    }
}

impl Family {
    /// All operands that a step reads.
    fn operands(&self) -> Vec<Operand> {
        let parts = self.parts.iter().flat_map(|part| match *part {
            Part::Pair { column, row } => vec![column, row],
            Part::Dense { matrix, .. } => vec![matrix],
        });
        let input = match self.input {
            Input::Value(value) => vec![value],
            Input::Outer(a, b) => vec![a, b],
        };
        self.decay.into_iter().chain(parts).chain(input).chain(self.reset).collect()
    }
}
