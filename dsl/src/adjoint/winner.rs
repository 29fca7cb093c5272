//! The adjoint of a reduction that chooses one of its elements, as max does: all goes to the winner.
//!
//! The operator gets one more field, the index of the element that the chosen field comes from. It goes with the field
//! through every combination, so a tie goes where the operator's own derivative says: for max, to the lowest index.

use crate::build::Builder;
use crate::copy::Copy;
use crate::elem::Ty;
use crate::ir::{Binary, Field, Literal, Operator, Value};
use crate::typing::TypeError;

use super::combination::Combination;
use super::recurrence::Recurrence;
use super::rules;
use super::sweep::Sweep;
use super::telescope::Choice;

/// ē[t] = z at the winner's index and 0 elsewhere. `choice` says which operand's field k a combination has.
pub(crate) fn pull_back(
    sweep: &mut Sweep,
    reduction: &Recurrence,
    combination: &Combination,
    k: usize,
    choice: Choice,
    z: Value,
) -> Result<(), TypeError> {
    let b = &mut sweep.b;
    let operator = b.operator(with_winner(&reduction.operator, combination, choice)?);
    let index = b.index(reduction.axis)?;
    let elements = [reduction.elements.as_slice(), &[index]].concat();
    let winner = b.reduce(reduction.axis, operator, &elements)?[reduction.elements.len()];
    let won = b.binary(Binary::Eq, index, winner)?;
    let zero = rules::zero_of(b, z)?;
    let cotangent = b.select(won, z, zero)?;
    let axes = reduction.fields[k].with(reduction.axis);
    sweep.cotangents.add(b, reduction.elements[k], cotangent, axes)
}

/// The operator with a field `winner`; the identity's is −1, which is the index of no element.
fn with_winner(operator: &Operator, combination: &Combination, choice: Choice) -> Result<Operator, TypeError> {
    let n = operator.fields.len();
    let mut name = "winner".to_owned();
    while operator.field(&name).is_some() {
        name.push('_');
    }
    let fields = operator.fields.iter().cloned().chain([Field { name, ty: Ty::I64 }]).collect();
    let mut body = Builder::body(fields);
    let (l, r) = body.inputs()?;
    let mut combine = body.inline(operator, &l[..n], &r[..n])?;
    let mut copy = Copy::of(combination.program());
    copy.set_all(&combination.left, &l);
    copy.set_all(&combination.right, &r);
    let condition = copy.run(&mut body, &[choice.condition])?[0];
    let (holds, fails) = if choice.left { (l[n], r[n]) } else { (r[n], l[n]) };
    combine.push(body.select(condition, holds, fails)?);
    let identity = operator.identity.iter().copied().chain([Literal::Int(-1)]).collect();
    body.finish_operator(&format!("{}Winner", operator.name), identity, &combine, None)
}
