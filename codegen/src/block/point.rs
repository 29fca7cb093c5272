//! Evaluating program nodes at one point of a stage's iteration space.
//!
//! A schedule walks the points; at each it asks for the values it needs and says, through [`Leaves`], where parameters,
//! indices and scan states come from. Values are emitted once per point and only when asked for.

use super::evaluate::{Emitted, Evaluate, evaluate};
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::ir::{Axis, Node, Op, Operator, Program, Value};
use oplus_dsl::walk::any;

/// An index along the scan axis: `offset` away from an anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The point that the offset counts from.
    pub anchor: Anchor,
    /// The distance from the anchor.
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

    /// The index of a position that counts from an end of an axis of this length, `i64`.
    pub fn from_end(self, b: &mut Builder, len: Operand) -> Operand {
        let end = if self.anchor == Anchor::Last { b.sub(len, 1) } else { Operand::i64(0) };
        b.add(end, self.offset)
    }

    /// The position, seen from the last point of a scan.
    pub fn at_last(self, reverse: bool) -> Position {
        let last = if reverse { Anchor::First } else { Anchor::Last };
        Position { anchor: if self.anchor == Anchor::Here { last } else { self.anchor }, ..self }
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
    emitted: Emitted<Position>,
}

impl<'p> Point<'p> {
    /// A point of a program whose positions are along `axis`.
    pub fn new(program: &'p Program, axis: Option<Axis>) -> Point<'p> {
        Point { program, axis, emitted: Emitted::new() }
    }

    /// Emits the value of a node at the point. A node that takes the final state has its value only at the last point of the
    /// scan.
    pub fn here(&mut self, b: &mut Builder, leaves: &mut dyn Leaves, value: Value) -> Operand {
        self.value(b, leaves, value, Position::HERE)
    }

    fn value(&mut self, b: &mut Builder, leaves: &mut dyn Leaves, value: Value, at: Position) -> Operand {
        evaluate(&mut At { point: self, leaves }, b, value, at)
    }

    /// The value of a node that is no map of values at one position; `None` for a map.
    fn leaf(&mut self, b: &mut Builder, leaves: &mut dyn Leaves, value: Value, at: Position) -> Option<Operand> {
        Some(match &self.program.node(value).op {
            Op::Param(p) => leaves.param(b, *p, at),
            Op::Field(scan, k) => leaves.state(b, *scan, *k, at),
            Op::Index(axis) if Some(*axis) == self.axis => self.index(b, leaves, at),
            Op::Index(axis) => leaves.index(b, *axis),
            Op::Size(axis) => leaves.size(b, *axis),
            Op::Shift { axis, by, value: inner, fill } if Some(*axis) == self.axis => {
                self.shifted(b, leaves, *inner, *fill, at, -by)
            }
            Op::First { value: inner, .. } | Op::Last { value: inner, .. } if self.has_state(*inner) => {
                self.value(b, leaves, *inner, Position::HERE)
            }
            Op::First { axis, value: inner, empty } => self.taken(b, leaves, *axis, *inner, *empty, Anchor::First),
            Op::Last { axis, value: inner, empty } => self.taken(b, leaves, *axis, *inner, *empty, Anchor::Last),
            _ => return None,
        })
    }

    /// Whether a value depends on the scan.
    fn has_state(&self, value: Value) -> bool {
        any(self.program, value, |v| matches!(self.program.node(v).op, Op::Field(..)))
    }

    /// The index of a position.
    fn index(&self, b: &mut Builder, leaves: &mut dyn Leaves, at: Position) -> Operand {
        let axis = self.axis.expect("only a program with a scan axis has positions");
        let anchor = match at.anchor {
            Anchor::Here => leaves.index(b, axis),
            Anchor::First => Operand::i64(0),
            Anchor::Last => {
                let size = leaves.size(b, axis);
                b.sub(size, 1)
            }
        };
        b.add(anchor, at.offset)
    }

    /// The value `by` further on where that is inside the axis, the fill elsewhere.
    fn shifted(
        &mut self,
        b: &mut Builder,
        leaves: &mut dyn Leaves,
        value: Value,
        fill: Value,
        at: Position,
        by: i64,
    ) -> Operand {
        let from = at.moved(by);
        let index = self.index(b, leaves, from);
        let axis = self.axis.expect("only a program with a scan axis has positions");
        let size = leaves.size(b, axis);
        let inside = match by {
            _ if at != Position::HERE => b.is_within(index, size),
            ..0 => b.ge(index, 0),
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
        value: Value,
        empty: Value,
        end: Anchor,
    ) -> Operand {
        let size = leaves.size(b, axis);
        let some = b.ne(size, 0);
        let value = self.value(b, leaves, value, Position::at(end));
        let empty = self.value(b, leaves, empty, Position::HERE);
        b.select(some, value, empty)
    }
}

/// A point with where its values come from.
struct At<'a, 'p> {
    point: &'a mut Point<'p>,
    leaves: &'a mut dyn Leaves,
}

impl Evaluate for At<'_, '_> {
    type Place = Position;

    fn node(&self, value: Value) -> &Node {
        self.point.program.node(value)
    }

    /// A value that does not vary along the axis is the same at all positions.
    fn own(&self, value: Value, at: Position) -> Position {
        let along = self.point.axis.is_some_and(|axis| self.node(value).axes.contains(axis));
        if along { at } else { Position::HERE }
    }

    fn leaf(&mut self, b: &mut Builder, value: Value, own: Position) -> Option<Operand> {
        self.point.leaf(b, self.leaves, value, own)
    }

    fn emitted(&mut self) -> &mut Emitted<Position> {
        &mut self.point.emitted
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
    let mut body = Body { operator, l, r, emitted: Emitted::new() };
    let fields = operator.combine.iter().zip(need);
    fields.map(|(value, need)| need.then(|| evaluate(&mut body, b, *value, ()))).collect()
}

/// An operator's body being emitted.
struct Body<'a> {
    operator: &'a Operator,
    l: &'a [Option<Operand>],
    r: &'a [Option<Operand>],
    emitted: Emitted<()>,
}

impl Evaluate for Body<'_> {
    type Place = ();

    fn node(&self, value: Value) -> &Node {
        &self.operator.body[value.0 as usize]
    }

    fn own(&self, _: Value, (): ()) {}

    fn leaf(&mut self, _: &mut Builder, value: Value, (): ()) -> Option<Operand> {
        let Op::Input(k) = self.node(value).op else { return None };
        let (k, n) = (k as usize, self.l.len());
        let field = if k < n { self.l[k] } else { self.r[k - n] };
        Some(field.expect("fields that a state needs are in every state"))
    }

    fn emitted(&mut self) -> &mut Emitted<()> {
        &mut self.emitted
    }
}
