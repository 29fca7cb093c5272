//! Evaluating program nodes at one point of a stage's iteration space.
//!
//! A schedule walks the points; at each it asks for the values it needs and says, through [`Leaves`], where parameters,
//! indices and scan states come from. Values are emitted once per point and only when asked for.

use super::scalar::emit_map;
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary, Op, Operator, Program, Value};
use std::collections::HashMap;

/// Where the values at a point come from. `offset` is a displacement along the scan axis.
pub trait Leaves {
    /// The parameter at the point displaced by `offset`; any value where that lies outside the axis.
    fn param(&mut self, b: &mut Builder, param: u32, offset: i64) -> Operand;
    /// The field of the scan's state at the point displaced by `offset`.
    fn state(&mut self, b: &mut Builder, field: u32, offset: i64) -> Operand;
    /// The index along an axis, `i64`, not displaced.
    fn index(&mut self, b: &mut Builder, axis: Axis) -> Operand;
    /// The size of an axis, `i64`.
    fn size(&mut self, b: &mut Builder, axis: Axis) -> Operand;
}

/// The values already emitted at a point.
pub struct Point<'p> {
    program: &'p Program,
    axis: Axis,
    memo: HashMap<(Value, i64), Operand>,
}

impl<'p> Point<'p> {
    /// A point of a program that is scanned along `axis`.
    pub fn new(program: &'p Program, axis: Axis) -> Point<'p> {
        Point { program, axis, memo: HashMap::new() }
    }

    /// Emits the value of a node at the point displaced by `offset` along the scan axis.
    pub fn value(&mut self, b: &mut Builder, leaves: &mut dyn Leaves, value: Value, offset: i64) -> Operand {
        let node = self.program.node(value);
        let offset = if node.axes.contains(self.axis) { offset } else { 0 };
        if let Some(known) = self.memo.get(&(value, offset)) {
            return *known;
        }
        let result = self.emit(b, leaves, value, offset);
        self.memo.insert((value, offset), result);
        result
    }

    fn emit(&mut self, b: &mut Builder, leaves: &mut dyn Leaves, value: Value, offset: i64) -> Operand {
        let node = self.program.node(value);
        match &node.op {
            Op::Param(p) => leaves.param(b, *p, offset),
            Op::Field(_, k) => leaves.state(b, *k, offset),
            Op::Index(axis) => {
                let index = leaves.index(b, *axis);
                let by = if *axis == self.axis { offset } else { 0 };
                b.add(index, Operand::i64(by))
            }
            Op::Size(axis) => leaves.size(b, *axis),
            Op::Shift { axis, by, value: inner, fill } => {
                debug_assert_eq!(*axis, self.axis, "stages shift along their scan axis only");
                self.shifted(b, leaves, *inner, *fill, offset, offset - by)
            }
            op => self.map(b, leaves, op, node.ty, offset),
        }
    }

    /// `value` at `from` where that is inside the axis, `fill` elsewhere.
    fn shifted(
        &mut self,
        b: &mut Builder,
        leaves: &mut dyn Leaves,
        value: Value,
        fill: Value,
        offset: i64,
        from: i64,
    ) -> Operand {
        let index = leaves.index(b, self.axis);
        let index = b.add(index, Operand::i64(from));
        let size = leaves.size(b, self.axis);
        let above = b.ge(index, Operand::i64(0));
        let below = b.lt(index, size);
        let inside = match from - offset {
            d if d < 0 && offset == 0 => above,
            d if d > 0 && offset == 0 => below,
            _ => b.and(above, below),
        };
        let value = self.value(b, leaves, value, from);
        let fill = self.value(b, leaves, fill, offset);
        b.select(inside, value, fill)
    }

    fn map(&mut self, b: &mut Builder, leaves: &mut dyn Leaves, op: &Op, ty: Ty, offset: i64) -> Operand {
        let program = self.program;
        if let Some((x, y, z)) = fused(op, ty, |v| &program.node(v).op) {
            let [x, y, z] = [x, y, z].map(|t| {
                let value = self.value(b, leaves, t.value, offset);
                t.signed(b, value)
            });
            return b.fma(x, y, z);
        }
        let operands: Vec<Operand> = op.operands().iter().map(|v| self.value(b, leaves, *v, offset)).collect();
        emit_map(b, op, ty, &operands)
    }
}

/// An operand of a fused multiply-add, possibly negated.
struct Term {
    value: Value,
    negate: bool,
}

impl Term {
    fn signed(&self, b: &mut Builder, value: Operand) -> Operand {
        if self.negate { b.unary(oplus_dsl::ir::Unary::Neg, value) } else { value }
    }
}

/// x·y + z when the operation is a float sum or difference with a product in it.
///
/// The product is rounded once with the sum wherever this pattern stands, in operators and in maps alike, so that the
/// same equations give the same bits in every schedule.
fn fused<'a>(op: &Op, ty: Ty, node: impl Fn(Value) -> &'a Op) -> Option<(Term, Term, Term)> {
    let plain = |value| Term { value, negate: false };
    let negated = |value| Term { value, negate: true };
    let product = |v| match node(v) {
        Op::Binary(Binary::Mul, x, y) => Some((*x, *y)),
        _ => None,
    };
    match op {
        _ if !ty.is_float() => None,
        Op::Binary(Binary::Add, l, r) => match (product(*l), product(*r)) {
            (Some((x, y)), _) => Some((plain(x), plain(y), plain(*r))),
            (None, Some((x, y))) => Some((plain(x), plain(y), plain(*l))),
            _ => None,
        },
        Op::Binary(Binary::Sub, l, r) => match (product(*l), product(*r)) {
            (Some((x, y)), _) => Some((plain(x), plain(y), negated(*r))),
            (None, Some((x, y))) => Some((negated(x), plain(y), plain(*l))),
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
        if let Some((x, y, z)) = fused(&node.op, node.ty, |v| &operator.body[v.0 as usize].op) {
            let [x, y, z] = [x, y, z].map(|t| {
                let value = self.value(b, t.value);
                t.signed(b, value)
            });
            return b.fma(x, y, z);
        }
        let operands: Vec<Operand> = node.op.operands().iter().map(|v| self.value(b, *v)).collect();
        emit_map(b, &node.op, node.ty, &operands)
    }
}
