//! Sums that only repeat others go outward.
//!
//! The sum over M of `if c { the sum over R of x } else { 0 }`, where c lacks R, is the sum over R of the sum over M of
//! `if c { x } else { 0 }`: what is summed over M is then a map again.

use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, Op, Program, Unary, Value};
use oplus_dsl::typing::TypeError;
use oplus_dsl::walk::follow;

use super::find::is_zero;
use super::rebuild::rebuild;
use crate::stage::reduction::{Reduction, Sum, is_sum};

/// The program with such sums exchanged. One that cannot be built again is given back as it is.
pub(super) fn outward(program: &Program) -> Program {
    let mut exchanged = program.clone();
    while let Some(tuple) = (0..exchanged.nodes.len() as u32).map(Value).find(|v| inner_sum(&exchanged, *v).is_some()) {
        match exchange(&exchanged, tuple) {
            Ok(next) => exchanged = next,
            Err(_) => break,
        }
    }
    exchanged
}

/// The sum beneath an outer sum that is to be exchanged with it: its tuple.
fn inner_sum(program: &Program, tuple: Value) -> Option<Value> {
    let Reduction { axis: outer_axis, operator, elements } = Reduction::of(program, tuple)?;
    let inner = linear(program, *elements.first()?)?;
    let Reduction { axis, operator: own, .. } = Reduction::of(program, inner)?;
    let repeats = program.node(inner).axes.contains(outer_axis) && is_sum(operator) && own == operator;
    // Of two sums directly one above the other, either order will do.
    let direct = matches!(program.node(*elements.first()?).op, Op::Field(t, _) if t == inner);
    (repeats && !direct && lacks(program, elements[0], inner, axis)).then_some(inner)
}

/// The tuple of the sum that a value is proportional to.
fn linear(program: &Program, value: Value) -> Option<Value> {
    let source = follow(value, |v| match program.node(v).op {
        Op::Select(_, x, zero) if is_zero(program, zero) => Some(x),
        Op::Unary(Unary::Neg, x) | Op::Broadcast(x) => Some(x),
        _ => None,
    });
    let Op::Field(tuple, _) = program.node(source).op else { return None };
    Reduction::of(program, tuple).map(|_| tuple)
}

/// Whether nothing between a value and the sum beneath it has the axis that the sum is over.
fn lacks(program: &Program, value: Value, inner: Value, axis: Axis) -> bool {
    let source = follow(value, |v| match program.node(v).op {
        Op::Select(c, x, _) if !program.node(c).axes.contains(axis) => Some(x),
        Op::Unary(_, x) | Op::Broadcast(x) => Some(x),
        _ => None,
    });
    matches!(program.node(source).op, Op::Field(tuple, _) if tuple == inner)
}

/// The program in which an outer sum is exchanged with the sum beneath it.
fn exchange(program: &Program, tuple: Value) -> Result<Program, TypeError> {
    rebuild(program, |b, value, place| match inner_sum(program, value) {
        Some(inner) if value == tuple => exchanged(b, program, value, inner, place).map(Some),
        _ => Ok(None),
    })
}

/// The tuple of the sum over the inner axis of the sum over the outer one.
fn exchanged(
    b: &mut Builder,
    program: &Program,
    tuple: Value,
    inner: Value,
    place: &[Value],
) -> Result<Value, TypeError> {
    let (Some(outer), Some(own)) = (Sum::of(program, tuple), Sum::of(program, inner)) else {
        return Err(TypeError::NotATuple);
    };
    let element = proportional(b, program, outer.element, place[own.element.0 as usize], place)?;
    let sum = b.reduce(outer.axis, outer.operator, &[element])?;
    let outer = b.reduce(own.axis, outer.operator, &sum)?;
    match b.program().node(outer[0]).op {
        Op::Field(tuple, _) => Ok(tuple),
        _ => Err(TypeError::NotATuple),
    }
}

/// A value that was proportional to a sum, made proportional to its addends.
fn proportional(
    b: &mut Builder,
    program: &Program,
    value: Value,
    x: Value,
    place: &[Value],
) -> Result<Value, TypeError> {
    let mut path = vec![];
    follow(value, |v| {
        let inner = match program.node(v).op {
            Op::Select(_, inner, _) | Op::Unary(_, inner) | Op::Broadcast(inner) => inner,
            _ => return None,
        };
        path.push(v);
        Some(inner)
    });
    path.into_iter().rev().try_fold(x, |inner, v| match program.node(v).op {
        Op::Select(c, _, zero) => b.select(place[c.0 as usize], inner, place[zero.0 as usize]),
        Op::Unary(op, _) => b.unary(op, inner),
        _ => b.broadcast(inner, program.node(v).axes),
    })
}
