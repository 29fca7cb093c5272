//! States that combined elements lose although single steps keep them.
//!
//! A state goes through a stretch of elements step by step, or by one combination with the stretch's total. Both are equal
//! in exact arithmetic, but a total may overflow where no state does: a product of decays above 1 is infinite, the state
//! that it meets is 0, and 0·∞ is not a number. A state that was finite before a stretch and is not finite behind it is
//! *lost*, and whoever has combined it takes the stretch again in single steps, which read the elements from memory. That is a
//! branch of its own: the registers of the kernel stay those of the combinations, and all other states keep their bits.

use super::args::{Args, index_of};
use super::carry::{AroundStep, Fields, Monoid, assign};
use super::point::{Anchor, Leaves, Point, Position};
use crate::abi::{Tensor, axes, elem};
use crate::build::{Builder, operands, zero};
use crate::stage::{Scan, Stage};
use crate::tile::{Memory, Operand, Reg};
use oplus_dsl::ir::{Axis, Binary, Literal, Op, Operator, Unary, Value};
use std::collections::HashMap;
use std::ops::Range;

impl Monoid<'_> {
    /// The fields of a state that combined elements can lose, as positions in the state: floats that are a product of an
    /// operand of the left and one of the right element.
    pub fn at_risk(&self) -> Vec<usize> {
        let live: Vec<usize> = (0..self.live.len()).filter(|k| self.live[*k]).collect();
        let products = products(self.operator);
        let is_at_risk = |k: usize| self.operator.fields[k].ty.is_float() && products[k];
        live.iter().enumerate().filter(|(_, k)| is_at_risk(**k)).map(|(slot, _)| slot).collect()
    }

    /// Whether a number stands for a state of that position: it is finite, or it is the identity, which may be infinite.
    fn is_state(&self, b: &mut Builder, slot: usize, x: Operand) -> Operand {
        let ty = b.ty(x);
        let magnitude = b.unary(Unary::Abs, x);
        let finite = b.lt(magnitude, Operand::Const(ty, Literal::Float(f64::INFINITY)));
        match self.identity_state()[slot] {
            Operand::Const(_, Literal::Float(identity)) if identity.is_infinite() => {
                let same = b.eq(x, Operand::Const(ty, Literal::Float(identity)));
                b.binary(Binary::Or, finite, same)
            }
            _ => finite,
        }
    }

    /// Whether all fields at risk are those of a state.
    pub fn are_states(&self, b: &mut Builder, state: &[Operand]) -> Operand {
        self.at_risk().into_iter().fold(Operand::bool(true), |all, slot| {
            let there = self.is_state(b, slot, state[slot]);
            b.and(all, there)
        })
    }

    /// Whether any field at risk is that of a state. Only then can combinations lose one.
    pub fn has_states(&self, b: &mut Builder, state: &[Operand]) -> Operand {
        self.at_risk().into_iter().fold(Operand::bool(false), |any, slot| {
            let there = self.is_state(b, slot, state[slot]);
            b.binary(Binary::Or, any, there)
        })
    }

    /// Whether a state was lost between `before` and `after`.
    pub fn loses(&self, b: &mut Builder, before: &[Operand], after: &[Operand]) -> Operand {
        let kept = self.are_states(b, after);
        let lost = b.unary(Unary::Not, kept);
        let was = self.has_states(b, before);
        b.and(lost, was)
    }
}

impl Monoid<'_> {
    /// The field of a scan's states that a point reads: of the state after its element, or of that before it.
    ///
    /// # Panics
    /// Where there are no states yet: elements do not depend on them.
    pub fn field_at(
        &self,
        scan: &Scan,
        tuple: Value,
        field: u32,
        at: Position,
        states: Option<AroundStep<'_>>,
    ) -> Operand {
        let AroundStep { before, after } = states.expect("elements do not depend on states");
        let previous = if scan.reverse { 1 } else { -1 };
        let is_after = scan.inclusive == Some(tuple) && at.offset != previous;
        let state = if is_after { after } else { before };
        state[self.slot(field)]
    }
}

/// Whether combined elements can lose a state of the stage's scan.
pub fn can_lose_states(stage: &Stage) -> bool {
    stage.scan().is_some_and(|scan| {
        let operator = stage.program.operator(scan.operator);
        let fields = operator.fields.iter().zip(products(operator));
        fields.into_iter().any(|(field, product)| field.ty.is_float() && product)
    })
}

/// The elements that a node of an operator depends on.
#[derive(Clone, Copy, Default)]
struct Depends {
    left: bool,
    right: bool,
    /// Whether it depends on a product of an operand of each.
    product: bool,
}

impl Depends {
    fn or(self, other: Depends) -> Depends {
        Depends { left: self.left | other.left, right: self.right | other.right, product: self.product | other.product }
    }
}

/// For every field of an operator whether it depends on a product of an operand of the left and one of the right element.
fn products(operator: &Operator) -> Vec<bool> {
    let fields = operator.fields.len() as u32;
    let mut known: Vec<Depends> = vec![];
    for node in &operator.body {
        let of = |v: &Value| known[v.0 as usize];
        let inner = node.op.operands().iter().map(of).fold(Depends::default(), Depends::or);
        known.push(match &node.op {
            Op::Input(k) => Depends { left: *k < fields, right: *k >= fields, product: false },
            Op::Binary(Binary::Mul, x, y) => {
                let operands = [of(x), of(y)].map(|own| (own.left, own.right));
                let mixed = matches!(operands, [(true, false), (false, true)] | [(false, true), (true, false)]);
                Depends { product: inner.product || mixed, ..inner }
            }
            _ => inner,
        });
    }
    operator.combine.iter().map(|value| known[value.0 as usize].product).collect()
}

/// A row whose elements are read from memory one by one.
pub struct Steps<'k> {
    /// The stage.
    pub stage: &'k Stage,
    /// Its scan.
    pub scan: &'k Scan<'k>,
    /// The scan's monoid.
    pub monoid: &'k Monoid<'k>,
    /// The kernel's parameters.
    pub args: &'k Args,
    /// The index along every axis that is not scanned.
    pub indices: Vec<(Axis, Operand)>,
    /// The offset of the row's first element of every tensor, where it is at hand.
    pub bases: HashMap<Tensor, Operand>,
    /// Whether the row exists.
    pub exists: Operand,
}

impl Steps<'_> {
    /// Takes `state` through a range of indices (`i64`), in the order of the scan; those outside the axis do not count. Stores the
    /// outputs at each index where `stores` gives a condition that holds.
    pub fn walk(
        &self,
        b: &mut Builder,
        state: &[Reg],
        Range { start: first, end }: Range<Operand>,
        stores: impl Fn(&mut Builder, Operand) -> Operand,
    ) {
        let size = self.args.size(self.scan.axis);
        let end = b.binary(Binary::Min, end, size);
        let count = b.sub(end, first);
        b.for_(Operand::i64(0), count, 1, |b, step| {
            let index = if self.scan.reverse {
                let left = b.sub(end, step);
                b.sub(left, 1)
            } else {
                b.add(first, step)
            };
            let mut point = Point::new(&self.stage.program, Some(self.scan.axis));
            let before = operands(state);
            let mut leaves = StepLeaves { steps: self, index, states: None };
            let element: Fields = self.scan.elements.iter().map(|e| point.here(b, &mut leaves, *e)).collect();
            let after = self.monoid.apply(b, &before, &element);
            let stores = stores(b, index);
            if stores != Operand::bool(false) {
                let guard = b.and(stores, self.exists);
                b.if_(guard, |b| self.store(b, &mut point, index, AroundStep { before: &before, after: &after }));
            }
            assign(b, state, &after);
        });
    }

    /// Stores the outputs that have the scan axis, at an index.
    fn store(&self, b: &mut Builder, point: &mut Point, index: Operand, states: AroundStep<'_>) {
        for (k, output) in self.stage.program.outputs.iter().enumerate().filter(|(k, _)| !self.stage.is_final(*k)) {
            let mut leaves = StepLeaves { steps: self, index, states: Some(states) };
            let value = point.here(b, &mut leaves, output.value);
            let tensor = Tensor::Output(k as u32);
            let offset = self.offset(b, tensor, Some(index));
            b.store(Memory::Global(self.args.pointer(tensor)), offset, &[value], None);
        }
    }

    fn offset(&self, b: &mut Builder, tensor: Tensor, index: Option<Operand>) -> Operand {
        let along: Vec<(Axis, Operand)> = index.map(|index| (self.scan.axis, index)).into_iter().collect();
        if let Some(base) = self.bases.get(&tensor) {
            let step = self.args.offset(b, tensor, &along);
            return b.add(*base, step);
        }
        self.args.offset(b, tensor, &[&self.indices[..], &along].concat())
    }

    fn read(&self, b: &mut Builder, param: u32, index: Option<Operand>) -> Operand {
        let tensor = Tensor::Param(param);
        let mut guard = self.exists;
        if let Some(index) = index {
            let inside = b.is_within(index, self.args.size(self.scan.axis));
            guard = b.and(guard, inside);
        }
        let offset = self.offset(b, tensor, index);
        let nothing = zero(elem(self.stage, tensor).value());
        b.load(Memory::Global(self.args.pointer(tensor)), offset, 1, Some(guard), nothing)[0]
    }
}

/// The leaves at one index of a row.
struct StepLeaves<'a, 'k> {
    steps: &'a Steps<'k>,
    index: Operand,
    /// States before and after the index's element, once they are known.
    states: Option<AroundStep<'a>>,
}

impl Leaves for StepLeaves<'_, '_> {
    fn param(&mut self, b: &mut Builder, param: u32, at: Position) -> Operand {
        let steps = self.steps;
        if !axes(steps.stage, Tensor::Param(param)).contains(&steps.scan.axis) {
            return steps.read(b, param, None);
        }
        let anchor = match at.anchor {
            Anchor::Here => self.index,
            Anchor::First => Operand::i64(0),
            Anchor::Last => b.sub(steps.args.size(steps.scan.axis), 1),
        };
        let index = b.add(anchor, at.offset);
        steps.read(b, param, Some(index))
    }

    fn state(&mut self, _: &mut Builder, scan: Value, field: u32, at: Position) -> Operand {
        self.steps.monoid.field_at(self.steps.scan, scan, field, at, self.states)
    }

    fn index(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        if axis == self.steps.scan.axis {
            return self.index;
        }
        index_of(&self.steps.indices, axis)
    }

    fn size(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        self.steps.args.size(axis)
    }
}
