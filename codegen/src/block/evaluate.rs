//! Emitting a value with all that it is computed from, without recursion: values may be of any depth.
//!
//! A *place* is where a value is taken: a [position](super::point) along the scan axis, a [state and step](super::state_step), or
//! the [coordinates of a pair](super::pair). A value is emitted once for all the places that differ only where it does not depend
//! on them.

use super::scalar::emit_map;
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Node, Op, Unary, Value};
use std::collections::HashMap;
use std::hash::Hash;

/// The values that were emitted before, each with the part of its place that it depends on.
pub(crate) type Emitted<P> = HashMap<(Value, P), Operand>;

/// A source of values, which may be maps of others.
pub(crate) trait Evaluate {
    /// Where a value is taken.
    type Place: Copy + Eq + Hash;

    /// The node of a value.
    fn node(&self, value: Value) -> &Node;
    /// The part of a place that a value depends on.
    fn own(&self, value: Value, at: Self::Place) -> Self::Place;
    /// The value at its own part of a place, if it need not be computed; `None` for a map of others.
    fn leaf(&mut self, b: &mut Builder, value: Value, own: Self::Place) -> Option<Operand>;
    /// The values that were emitted before.
    fn emitted(&mut self) -> &mut Emitted<Self::Place>;

    /// The value at a place if it was emitted before, or is a leaf.
    fn known(&mut self, b: &mut Builder, value: Value, at: Self::Place) -> Option<Operand> {
        let own = self.own(value, at);
        if let Some(known) = self.emitted().get(&(value, own)) {
            return Some(*known);
        }
        let leaf = self.leaf(b, value, own)?;
        self.emitted().insert((value, own), leaf);
        Some(leaf)
    }

    /// Remembers a value at a place.
    fn remember(&mut self, value: Value, at: Self::Place, made: Operand) {
        let own = self.own(value, at);
        self.emitted().insert((value, own), made);
    }
}

/// A map that waits for its operands.
struct Frame {
    value: Value,
    /// The factors and the term of a fused multiply-add, or the operands.
    terms: Vec<Term>,
    is_fused: bool,
    made: Vec<Operand>,
}

impl Frame {
    fn of(from: &impl Evaluate, value: Value) -> Frame {
        let node = from.node(value);
        let fused = fused(&node.op, node.ty, |v| &from.node(v).op);
        let is_fused = fused.is_some();
        let operands = || node.op.operands().into_iter().map(Term::plain).collect();
        let terms = fused.map_or_else(operands, Vec::from);
        Frame { value, terms, is_fused, made: vec![] }
    }

    /// The operand that comes next.
    fn next(&self) -> Option<Value> {
        self.terms.get(self.made.len()).map(|term| term.value)
    }

    /// Takes the operand that comes next.
    fn take(&mut self, b: &mut Builder, operand: Operand) {
        let operand = self.terms[self.made.len()].signed(b, operand);
        self.made.push(operand);
    }

    /// Emits the map.
    fn emit(&self, b: &mut Builder, node: &Node) -> Operand {
        match self.made[..] {
            [x, y, z] if self.is_fused => b.fma(x, y, z),
            _ => emit_map(b, &node.op, node.ty, &self.made),
        }
    }
}

/// A value at a place. Operands are emitted from the first to the last, each with all that it is computed from.
pub(crate) fn evaluate<E: Evaluate>(from: &mut E, b: &mut Builder, value: Value, at: E::Place) -> Operand {
    let mut open: Vec<Frame> = vec![];
    let mut next = Some(value);
    loop {
        let mut made = next.and_then(|value| from.known(b, value, at));
        if let (None, Some(value)) = (made, next) {
            open.push(Frame::of(from, value));
        }
        if let (Some(frame), Some(operand)) = (open.last_mut(), made) {
            frame.take(b, operand);
        }
        next = open.last().and_then(Frame::next);
        while next.is_none() {
            let Some(frame) = open.pop() else { break };
            let operand = frame.emit(b, from.node(frame.value));
            from.remember(frame.value, at, operand);
            made = Some(operand);
            if let Some(waiting) = open.last_mut() {
                waiting.take(b, operand);
                next = waiting.next();
            }
        }
        if let (true, Some(made)) = (open.is_empty(), made) {
            return made;
        }
    }
}

/// An operand of a fused multiply-add, possibly negated.
pub(crate) struct Term {
    /// The value.
    pub value: Value,
    negate: bool,
}

impl Term {
    /// An operand as it is.
    pub(crate) fn plain(value: Value) -> Term {
        Term { value, negate: false }
    }

    /// The operand's value, given that of the node.
    pub(crate) fn signed(&self, b: &mut Builder, value: Operand) -> Operand {
        if self.negate { b.unary(Unary::Neg, value) } else { value }
    }
}

/// x·y + z when the operation is a float sum or difference with a product in it.
///
/// The product is rounded once with the sum wherever this pattern stands, in operators and in maps alike, so that the
/// same equations give the same bits in every schedule.
pub(crate) fn fused<'a>(op: &Op, ty: Ty, node: impl Fn(Value) -> &'a Op) -> Option<[Term; 3]> {
    let negated = |value| Term { value, negate: true };
    let product = |v| match node(v) {
        Op::Binary(Binary::Mul, x, y) => Some((*x, *y)),
        _ => None,
    };
    match op {
        _ if !ty.is_float() => None,
        Op::Binary(Binary::Add, l, r) => match (product(*l), product(*r)) {
            (Some((x, y)), _) => Some([Term::plain(x), Term::plain(y), Term::plain(*r)]),
            (None, Some((x, y))) => Some([Term::plain(x), Term::plain(y), Term::plain(*l)]),
            _ => None,
        },
        Op::Binary(Binary::Sub, l, r) => match (product(*l), product(*r)) {
            (Some((x, y)), _) => Some([Term::plain(x), Term::plain(y), negated(*r)]),
            (None, Some((x, y))) => Some([negated(x), Term::plain(y), Term::plain(*l)]),
            _ => None,
        },
        _ => None,
    }
}
