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
        let (field, law) = match error {
            LawError::Broken(example) => (&example.field, example.law),
            LawError::Undecided { field, law, .. } => (field, *law),
            LawError::Invalid(error) => {
                mistakes.report(item.name.extent(), Mistake::Invalid { message: error.to_string() });
                continue;
            }
        };
        let (extent, hint) = advice(item, operator.field(field).unwrap_or(0) as usize, law);
        if !seen.contains(&(field.clone(), hint)) {
            seen.push((field.clone(), hint));
            mistakes.report(extent, Mistake::Law { message: error.to_string(), hint: hint.into() });
        }
    }
}

/// Where a law is broken and what to write instead.
fn advice(item: &OperatorItem, field: usize, law: Law) -> (Extent, &'static str) {
    let combination = item.combine.as_ref().map(|combine| part_extent(&combine.body, field));
    let (extent, hint) = match law {
        Law::LeftIdentity | Law::RightIdentity => {
            let value = item.identity.as_ref().and_then(|identity| identity.list.get(field));
            (value.map(|value| value.extent), "write the state that changes nothing on either side")
        }
        Law::Associativity => (combination, "write a combination that does not depend on how its elements are grouped"),
        Law::Gauge => {
            let name = item.gauge.as_ref().map(|name| name.extent());
            (name, "leave `gauge` out, or scale the other fields when it changes")
        }
    };
    (extent.unwrap_or_else(|| item.name.extent()), hint)
}
