//! Evaluating program nodes at one point of a stage's iteration space.
//!
//! A schedule walks the points; at each it asks for the values it needs and says, through [`Leaves`], where parameters,
//! indices and scan states come from. Values are emitted once per point and only when asked for.

use super::scalar::emit_map;
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary, Op, Operator, Program, Unary, Value};
use std::collections::HashMap;

/// An index along the scan axis: `offset` away from an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// What the offset counts from.
    pub anchor: Anchor,
    /// How much later.
    pub offset: i64,
}

/// Where a [`Position`] counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Anchor {
    /// The point itself.
    Here,
    /// Index 0.
    First,
    /// The last index.
    Last,
}

impl Position {
    /// The point itself.
    pub const HERE: Position = Position { anchor: Anchor::Here, offset: 0 };

    fn at(anchor: Anchor) -> Position {
        Position { anchor, offset: 0 }
    }

    fn moved(self, by: i64) -> Position {
        Position { offset: self.offset + by, ..self }
    }
}

/// Where the values at a point come from.
pub trait Leaves {
    /// The parameter at a position; any value where that lies outside the axis.
    fn param(&mut self, b: &mut Builder, param: u32, at: Position) -> Operand;
    /// The field of a scan's states (the node of its tuple) at a position near the point.
    fn state(&mut self, b: &mut Builder, scan: Value, field: u32, at: Position) -> Operand;
    /// The index along an axis, `i64`; for the scan axis that of the point itself.
    fn index(&mut self, b: &mut Builder, axis: Axis) -> Operand;
    /// The size of an axis, `i64`.
    fn size(&mut self, b: &mut Builder, axis: Axis) -> Operand;
}

/// The values already emitted at a point.
#[derive(Clone)]
pub struct Point<'p> {
    program: &'p Program,
    axis: Option<Axis>,
    memo: HashMap<(Value, Position), Operand>,
}

impl<'p> Point<'p> {
    /// A point of a program whose positions are along `axis`.
    pub fn new(program: &'p Program, axis: Option<Axis>) -> Point<'p> {
        Point { program, axis, memo: HashMap::new() }
    }

    /// Emits the value of a node at the point. Of a node that takes the final state it is the value *if* the point is
    /// the one that the scan visits last.
    pub fn here(&mut self, b: &mut Builder, leaves: &mut dyn Leaves, value: Value) -> Operand {
        self.value(b, leaves, value, Position::HERE)
    }

    fn value(&mut self, b: &mut Builder, leaves: &mut dyn Leaves, value: Value, at: Position) -> Operand {
        let node = self.program.node(value);
        let along = self.axis.is_some_and(|axis| node.axes.contains(axis));
        let at = if along { at } else { Position::HERE };
        if let Some(known) = self.memo.get(&(value, at)) {
            return *known;
        }
        let result = self.emit(b, leaves, value, at);
        self.memo.insert((value, at), result);
        result
    }

    fn emit(&mut self, b: &mut Builder, leaves: &mut dyn Leaves, value: Value, at: Position) -> Operand {
        let node = self.program.node(value);
        match &node.op {
            Op::Param(p) => leaves.param(b, *p, at),
            Op::Field(scan, k) => leaves.state(b, *scan, *k, at),
            Op::Index(axis) if Some(*axis) == self.axis => self.index(b, leaves, at),
            Op::Index(axis) => leaves.index(b, *axis),
            Op::Size(axis) => leaves.size(b, *axis),
            Op::Shift { axis, by, value: inner, fill } if Some(*axis) == self.axis => {
                self.shifted(b, leaves, (*inner, *fill), at, -by)
            }
            Op::First { value: inner, .. } | Op::Last { value: inner, .. } if self.has_state(*inner) => {
                self.value(b, leaves, *inner, Position::HERE)
            }
            Op::First { axis, value: inner, empty } => self.taken(b, leaves, *axis, (*inner, *empty), Anchor::First),
            Op::Last { axis, value: inner, empty } => self.taken(b, leaves, *axis, (*inner, *empty), Anchor::Last),
            op => self.map(b, leaves, op, node.ty, at),
        }
    }

    /// Whether a value depends on the scan.
    fn has_state(&self, value: Value) -> bool {
        let op = &self.program.node(value).op;
        matches!(op, Op::Field(..)) || op.operands().into_iter().any(|v| self.has_state(v))
    }

    /// The index of a position.
    fn index(&self, b: &mut Builder, leaves: &mut dyn Leaves, at: Position) -> Operand {
        let axis = self.axis.expect("only a program with a scan axis has positions");
        let anchor = match at.anchor {
            Anchor::Here => leaves.index(b, axis),
            Anchor::First => Operand::i64(0),
            Anchor::Last => {
                let size = leaves.size(b, axis);
                b.sub(size, Operand::i64(1))
            }
        };
        b.add(anchor, Operand::i64(at.offset))
    }

    /// The value `by` further on where that is inside the axis, the fill elsewhere.
    fn shifted(
        &mut self,
        b: &mut Builder,
        leaves: &mut dyn Leaves,
        (value, fill): (Value, Value),
        at: Position,
        by: i64,
    ) -> Operand {
        let from = at.moved(by);
        let index = self.index(b, leaves, from);
        let axis = self.axis.expect("only a program with a scan axis has positions");
        let size = leaves.size(b, axis);
        let inside = match by {
            _ if at != Position::HERE => {
                let above = b.ge(index, Operand::i64(0));
                let below = b.lt(index, size);
                b.and(above, below)
            }
            ..0 => b.ge(index, Operand::i64(0)),
            0.. => b.lt(index, size),
        };
        let value = self.value(b, leaves, value, from);
        let fill = self.value(b, leaves, fill, at);
        b.select(inside, value, fill)
    }

    /// The value at an end of the axis, `empty` where there is none.
    fn taken(
        &mut self,
        b: &mut Builder,
        leaves: &mut dyn Leaves,
        axis: Axis,
        (value, empty): (Value, Value),
        end: Anchor,
    ) -> Operand {
        let size = leaves.size(b, axis);
        let some = b.ne(size, Operand::i64(0));
        let value = self.value(b, leaves, value, Position::at(end));
        let empty = self.value(b, leaves, empty, Position::HERE);
        b.select(some, value, empty)
    }

    fn map(&mut self, b: &mut Builder, leaves: &mut dyn Leaves, op: &Op, ty: Ty, at: Position) -> Operand {
        let program = self.program;
        if let Some(terms) = fused(op, ty, |v| &program.node(v).op) {
            let [x, y, z] = terms.map(|t| {
                let value = self.value(b, leaves, t.value, at);
                t.signed(b, value)
            });
            return b.fma(x, y, z);
        }
        let operands: Vec<Operand> = op.operands().iter().map(|v| self.value(b, leaves, *v, at)).collect();
        emit_map(b, op, ty, &operands)
    }
}

/// An operand of a fused multiply-add, possibly negated.
pub(in crate::lower) struct Term {
    /// The value.
    pub value: Value,
    negate: bool,
}

impl Term {
    /// The operand's value, given that of the node.
    pub(in crate::lower) fn signed(&self, b: &mut Builder, value: Operand) -> Operand {
        if self.negate { b.unary(Unary::Neg, value) } else { value }
    }
}

/// x·y + z when the operation is a float sum or difference with a product in it.
///
/// The product is rounded once with the sum wherever this pattern stands, in operators and in maps alike, so that the
/// same equations give the same bits in every schedule.
pub(in crate::lower) fn fused<'a>(op: &Op, ty: Ty, node: impl Fn(Value) -> &'a Op) -> Option<[Term; 3]> {
    let plain = |value| Term { value, negate: false };
    let negated = |value| Term { value, negate: true };
    let product = |v| match node(v) {
        Op::Binary(Binary::Mul, x, y) => Some((*x, *y)),
        _ => None,
    };
    match op {
        _ if !ty.is_float() => None,
        Op::Binary(Binary::Add, l, r) => match (product(*l), product(*r)) {
            (Some((x, y)), _) => Some([plain(x), plain(y), plain(*r)]),
            (None, Some((x, y))) => Some([plain(x), plain(y), plain(*l)]),
            _ => None,
        },
        Op::Binary(Binary::Sub, l, r) => match (product(*l), product(*r)) {
            (Some((x, y)), _) => Some([plain(x), plain(y), negated(*r)]),
            (None, Some((x, y))) => Some([negated(x), plain(y), plain(*l)]),
            _ => None,
        },
        _ => None,
    }
}

/// `combine(l, r)`: the fields asked for. An operand field that they do not depend on may be missing.
pub fn combine(
    b: &mut Builder,
    operator: &Operator,
    l: &[Option<Operand>],
    r: &[Option<Operand>],
    need: &[bool],
) -> Vec<Option<Operand>> {
    let mut body = Body { operator, l, r, memo: HashMap::new() };
    let fields = operator.combine.iter().zip(need);
    fields.map(|(value, need)| need.then(|| body.value(b, *value))).collect()
}

/// An operator's body being emitted.
struct Body<'a> {
    operator: &'a Operator,
    l: &'a [Option<Operand>],
    r: &'a [Option<Operand>],
    memo: HashMap<Value, Operand>,
}

impl Body<'_> {
    fn value(&mut self, b: &mut Builder, value: Value) -> Operand {
        if let Some(known) = self.memo.get(&value) {
            return *known;
        }
        let result = self.emit(b, value);
        self.memo.insert(value, result);
        result
    }

    fn emit(&mut self, b: &mut Builder, value: Value) -> Operand {
        let operator = self.operator;
        let node = &operator.body[value.0 as usize];
        if let Op::Input(k) = node.op {
            let (k, n) = (k as usize, self.l.len());
            let field = if k < n { self.l[k] } else { self.r[k - n] };
            return field.expect("fields that a state needs are in every state");
        }
        if let Some(terms) = fused(&node.op, node.ty, |v| &operator.body[v.0 as usize].op) {
            let [x, y, z] = terms.map(|t| {
                let value = self.value(b, t.value);
                t.signed(b, value)
            });
            return b.fma(x, y, z);
        }
        let operands: Vec<Operand> = node.op.operands().iter().map(|v| self.value(b, *v)).collect();
        emit_map(b, &node.op, node.ty, &operands)
    }
}
