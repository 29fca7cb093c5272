//! Emitting a value with all that it is computed from, without recursion: values may be of any depth.

use super::point::{Term, fused};
use super::scalar::emit_map;
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::ir::{Node, Value};

/// Where values come from that may be maps of others.
pub(crate) trait Evaluate {
    /// Where a value is taken.
    type Place: Copy;

    /// The node of a value.
    fn node(&self, value: Value) -> &Node;
    /// The value at a place if it was emitted before, or is not a map of others.
    fn known(&mut self, b: &mut Builder, value: Value, at: Self::Place) -> Option<Operand>;
    /// Remembers a value that is emitted.
    fn remember(&mut self, value: Value, at: Self::Place, made: Operand);
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
