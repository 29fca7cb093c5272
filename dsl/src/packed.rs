//! Packed sequences with a state each: which indices of an axis are whose.
//!
//! Sequences lie one behind the other along an axis. A list of offsets, with one entry more than there are sequences, says where:
//! sequence s has the indices `offsets`\[s\] to `offsets`\[s + 1\] − 1, and may have none. A scan that forgets its state where a
//! sequence begins ([`crate::segmented`]) begins it at the sequence's own state if that is combined with the first element:
//! the element e of the first index becomes init\[s\] ⊕ e. The state after the last index of each sequence is its last state.

use crate::build::{Builder, Built};
use crate::elem::{Elem, Ty};
use crate::ir::{Axis, AxisSet, Binary, Field, Literal, Node, Op, Operator, Program, Value};
use crate::simplify::simplify;
use crate::typing::TypeError;

/// Which indices of an axis belong to which sequence.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// The axis along which sequences lie.
    axis: Axis,
    /// The axis of the sequences.
    sequences: Axis,
    /// Of each sequence the first index and the one behind its last.
    bounds: (Value, Value),
}

/// One index of each sequence that has any: where a scan enters it, or where it leaves it.
#[derive(Clone, Copy, Debug)]
pub struct Border {
    /// Of each sequence the index, −1 for none.
    index: Value,
    /// Of each index the sequence, negative for none.
    sequence: Value,
}

impl Packing {
    /// The packing along `axis` that a list of offsets says; `None` where the axis of the list has not one index more than another
    /// axis.
    ///
    /// # Errors
    /// [`TypeError`] for offsets that are not integers over `list`.
    pub fn of(b: &mut Builder, axis: Axis, list: Axis, offsets: Value) -> Result<Option<Packing>, TypeError> {
        let Some(sequences) = b.program().ends(list) else { return Ok(None) };
        let offsets = b.convert(Elem::I64, offsets)?;
        let (sequence, entry, one) = (b.index(sequences)?, b.index(list)?, b.number(Ty::I64, 1)?);
        let (next, before) = (b.binary(Binary::Add, sequence, one)?, b.binary(Binary::Sub, entry, one)?);
        let first = b.gather((list, sequences), offsets, (sequence, entry))?;
        let end = b.gather((list, sequences), offsets, (next, before))?;
        Ok(Some(Packing { axis, sequences, bounds: (first, end) }))
    }

    /// The axis of the sequences.
    pub fn sequences(&self) -> Axis {
        self.sequences
    }

    /// Whether each sequence has an index.
    ///
    /// # Errors
    /// [`TypeError`] if the values are not those of the builder.
    pub fn is_some(&self, b: &mut Builder) -> Built {
        b.binary(Binary::Lt, self.bounds.0, self.bounds.1)
    }

    /// The first index of each sequence, or the last one.
    ///
    /// # Errors
    /// [`TypeError`] if the values are not those of the builder.
    pub fn border(&self, b: &mut Builder, last: bool) -> Result<Border, TypeError> {
        let (one, none) = (b.number(Ty::I64, 1)?, b.number(Ty::I64, -1)?);
        let (first, end) = self.bounds;
        let index = if last { b.binary(Binary::Sub, end, one)? } else { first };
        let is_some = self.is_some(b)?;
        let index = b.select(is_some, index, none)?;
        let (here, sequence) = (b.index(self.axis)?, b.index(self.sequences)?);
        let is_here = b.binary(Binary::Eq, here, index)?;
        let sequence = b.select(is_here, sequence, none)?;
        let larger = b.operator(larger()?);
        Ok(Border { index, sequence: b.reduce(self.sequences, larger, &[sequence])?[0] })
    }

    /// Whether each index of the axis is at a border.
    ///
    /// # Errors
    /// [`TypeError`] if the values are not those of the builder.
    pub fn is_at(&self, b: &mut Builder, border: Border) -> Built {
        let zero = b.number(Ty::I64, 0)?;
        b.binary(Binary::Ge, border.sequence, zero)
    }

    /// A value of each sequence at its border, zero elsewhere; a value that all sequences share as it is.
    ///
    /// # Errors
    /// [`TypeError`] for a value along the axis.
    pub fn spread(&self, b: &mut Builder, border: Border, value: Value) -> Built {
        if !b.axes_of(value)?.contains(self.sequences) {
            return Ok(value);
        }
        b.gather((self.sequences, self.axis), value, (border.sequence, border.index))
    }

    /// Of a value along the axis the one at each sequence's border, zero where there is none.
    ///
    /// # Errors
    /// [`TypeError`] for a value along the axis of the sequences.
    pub fn picked(&self, b: &mut Builder, border: Border, value: Value) -> Built {
        b.gather((self.axis, self.sequences), value, (border.index, border.sequence))
    }

    /// The elements of a scan that begins each sequence at a state of its own.
    ///
    /// # Errors
    /// [`TypeError`] for values that are not those of the operator's fields.
    pub fn entered(
        &self,
        b: &mut Builder,
        border: Border,
        operator: &Operator,
        (init, elements): (&[Value], &[Value]),
    ) -> Result<Vec<Value>, TypeError> {
        let init = init.iter().map(|value| self.spread(b, border, *value)).collect::<Result<Vec<_>, _>>()?;
        let combined = b.inline(operator, &init, elements)?;
        let enters = self.is_at(b, border)?;
        let both = combined.into_iter().zip(elements);
        both.map(|(combined, element)| b.select(enters, combined, *element)).collect()
    }
}

/// The program without the directions of gathers that only adjoints read, for what runs it.
pub fn without_inverses(program: &Program) -> Program {
    let mut forward = program.clone();
    let none = Value(forward.nodes.len() as u32);
    let mut gathers = 0;
    for node in &mut forward.nodes {
        if let Op::Gather { inverse, .. } = &mut node.op {
            *inverse = none;
            gathers += 1;
        }
    }
    if gathers == 0 {
        return forward;
    }
    // The constant must stand before the nodes that read it.
    let moved = |v: Value| if v == none { Value(0) } else { Value(v.0 + 1) };
    let moved_node = |node: &Node| Node { op: node.op.map_operands(moved), ..node.clone() };
    let constant = Node { op: Op::Const(Literal::Int(-1)), ty: Ty::I64, axes: AxisSet::EMPTY };
    forward.nodes = std::iter::once(constant).chain(forward.nodes.iter().map(moved_node)).collect();
    forward.outputs.iter_mut().for_each(|output| output.value = moved(output.value));
    simplify(&forward)
}

/// The larger of two integers.
fn larger() -> Result<Operator, TypeError> {
    let mut body = Builder::body(vec![Field { name: "m".to_owned(), ty: Ty::I64 }]);
    let (l, r) = body.inputs()?;
    let larger = body.binary(Binary::Max, l[0], r[0])?;
    body.finish_operator("Max", vec![Literal::Int(i64::MIN)], &[larger], None)
}
