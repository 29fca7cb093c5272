//! Gauges: fields that nothing read from a state depends on, as the running maximum of a softmax.
//!
//! A gauge m keeps a law ([`crate::laws`]): the state with m + δ and p·exp(−δ), for all other floating-point fields p,
//! means the same. So the derivative of whatever is read later, by δ at 0, vanishes:
//!
//! ```text
//! m̄ = Σₚ p·p̄
//! ```
//!
//! for an element as for an initial state. The gauge needs no λ: its cotangent follows from the others', and within
//! the adjoint the gauge of every state is a constant.

use crate::build::Builder;
use crate::ir::{Binary, Operator, Value};
use crate::typing::TypeError;

/// The fields that the gauge acts on; none without a gauge.
pub(crate) fn acts_on(operator: &Operator, field: usize) -> bool {
    operator.gauge.is_some_and(|m| m as usize != field) && operator.fields[field].ty.is_float()
}

/// The fields of an element, those that the gauge acts on times `unit`: the derivative by it at 1 is Σₚ p·p̄.
pub(crate) fn scaled(
    b: &mut Builder,
    operator: &Operator,
    fields: &[Value],
    unit: Value,
) -> Result<Vec<Value>, TypeError> {
    let fields = fields.iter().enumerate();
    fields.map(|(k, p)| if acts_on(operator, k) { b.binary(Binary::Mul, *p, unit) } else { Ok(*p) }).collect()
}
