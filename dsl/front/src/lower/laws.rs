//! The laws of a declared operator, on the token that breaks them.

use oplus_dsl::ir::Operator;
use oplus_dsl::laws::{self, Law, LawError};

use super::operator::part_extent;
use crate::diagnostics::Diagnostics;
use crate::extent::Extent;
use crate::mistake::Mistake;
use crate::syntax::OperatorItem;

/// Checks an operator; each field is reported once for its identity, once for associativity and once for the gauge.
pub(super) fn check(item: &OperatorItem, operator: &Operator, mistakes: &mut Diagnostics) {
    let Err(errors) = laws::check(operator) else { return };
    let mut seen: Vec<(String, &str)> = vec![];
    for error in &errors {
        let (field, law, is_nan) = match error {
            LawError::Broken(example) => (&example.field, example.law, example.is_nan()),
            LawError::Undecided { field, law, .. } => (field, *law, true),
            LawError::Invalid(error) => {
                mistakes.report(item.name.extent(), Mistake::Invalid { message: error.to_string() });
                continue;
            }
        };
        let k = operator.field(field).unwrap_or(0) as usize;
        let (extent, hint) = if is_nan { (combination(item, k), GUARD) } else { advice(item, k, law) };
        if !seen.contains(&(field.clone(), hint)) {
            seen.push((field.clone(), hint));
            mistakes.report(extent, Mistake::Law { message: error.to_string(), hint: hint.into() });
        }
    }
}

/// What to write where there is no number.
const GUARD: &str = "guard what has no value there, as in `if d == 0 { 0 } else { n / d }`";

/// Where a field of the combination stands.
fn combination(item: &OperatorItem, field: usize) -> Extent {
    item.combine.as_ref().map_or(item.name.extent(), |combine| part_extent(&combine.body, field))
}

/// Where a law is broken and what to write instead.
fn advice(item: &OperatorItem, field: usize, law: Law) -> (Extent, &'static str) {
    let (extent, hint) = match law {
        Law::LeftIdentity | Law::RightIdentity => {
            let value = item.identity.as_ref().and_then(|identity| identity.list.get(field));
            (value.map(|value| value.extent), "write the state that changes nothing on either side")
        }
        Law::Associativity => {
            (Some(combination(item, field)), "write a combination that does not depend on how its elements are grouped")
        }
        Law::Gauge => {
            let name = item.gauge.as_ref().map(|name| name.extent());
            (name, "leave `gauge` out, or scale the other fields when it changes")
        }
    };
    (extent.unwrap_or_else(|| item.name.extent()), hint)
}
