//! The laws of operators: on the token that breaks them where an operator is declared, and at its use for other types.

use oplus_dsl::Ty;
use oplus_dsl::ir::Operator;
use oplus_dsl::laws::{self, Evidence, Law, LawError};

use super::operator::{declared_types, part_extent};
use super::state::Applied;
use crate::diagnostics::Diagnostics;
use crate::extent::Extent;
use crate::library::Library;
use crate::mistake::Mistake;
use crate::suggest::listed;
use crate::syntax::OperatorItem;

/// Checks an operator as it is declared; each field is reported once for its identity, once for associativity and once for
/// the gauge.
pub(super) fn check(
    item: &OperatorItem,
    operator: &Operator,
    library: &Library,
    mistakes: &mut Diagnostics,
) -> Option<Evidence> {
    let errors = match laws::check(operator) {
        Ok(evidence) => return Some(evidence),
        Err(errors) => errors,
    };
    library.mark_broken(&item.name.text);
    let mut seen: Vec<(String, &str)> = vec![];
    for error in &errors {
        let subject = match error {
            LawError::Broken(example) => example.field.clone(),
            LawError::Undecided { field, .. } => field.clone(),
            LawError::Outside(outside) => outside.condition.to_string(),
            LawError::Unsampled { .. } => String::new(),
            LawError::Invalid(error) => {
                mistakes.report(item.name.extent(), Mistake::Invalid { message: error.to_string() });
                continue;
            }
        };
        let (extent, hint) = advice(item, operator, error);
        if !seen.contains(&(subject.clone(), hint)) {
            seen.push((subject, hint));
            mistakes.report(extent, Mistake::Law { message: error.to_string(), hint: hint.into() });
        }
    }
    None
}

/// Checks an operator for the types that it is used with. Floats need no check of their own: laws hold for them up to
/// rounding, whatever their width.
pub(super) fn check_use(
    applied: &Applied,
    operator: &Operator,
    library: &Library,
    mistakes: &mut Diagnostics,
) -> Option<()> {
    let (item, name) = (&applied.template.item, &applied.template.item.name.text);
    let widest = |ty: Ty| if ty.is_float() { Ty::F64 } else { ty };
    let types: Vec<Ty> = operator.fields.iter().map(|field| widest(field.ty)).collect();
    let declared = declared_types(item, Ty::F64).into_iter().map(widest);
    if library.is_broken(name) || types.iter().copied().eq(declared) {
        return Some(());
    }
    let first = || laws::check(operator).err().and_then(|errors| errors.first().map(ToString::to_string));
    let Some(message) = library.of_use(name, types, first) else { return Some(()) };
    let fields = item.fields.iter().zip(&operator.fields).filter(|(field, _)| field.elem.is_none());
    let mut types: Vec<&str> = fields.map(|(_, field)| field.ty.name()).collect();
    types.dedup();
    let (operator, types) = (name.clone(), listed(types));
    mistakes.report(applied.extent, Mistake::ElementLaws { operator, types, message });
    None
}

/// The advice where integers exceed their type.
const OVERFLOW: &str = "an integer exceeds its type here; write `where no overflow` if callers promise that none does, or a combination that keeps to the type";

/// The advice where an operation has no value.
const GUARD: &str = "guard what has no value there, as in `if d == 0 { 0 } else { n / d }`";

/// Where a law is broken and what to write instead.
fn advice(item: &OperatorItem, operator: &Operator, error: &LawError) -> (Extent, &'static str) {
    let is_nan = match error {
        LawError::Broken(example) => example.is_nan(),
        LawError::Undecided { .. } => true,
        _ => false,
    };
    let (field, law) = match error {
        LawError::Broken(example) => (&example.field, example.law),
        LawError::Undecided { field, law, .. } => (field, *law),
        LawError::Outside(outside) => {
            let condition = item.domain.conditions.get(outside.condition).map(|condition| condition.extent);
            let hint = match outside.operands[..] {
                [] => "write a domain that holds the identity",
                _ if outside.wrapped => OVERFLOW,
                _ => "write a combination that stays in the domain, or a wider domain",
            };
            return (condition.unwrap_or_else(|| item.name.extent()), hint);
        }
        _ => {
            let condition = item.domain.conditions.first().map(|condition| condition.extent);
            let hint = "compare single fields, as in `x >= 0`, or with one another, as in `x <= y`";
            return (condition.unwrap_or_else(|| item.name.extent()), hint);
        }
    };
    let field = operator.field(field).unwrap_or(0) as usize;
    let (extent, hint) = if is_nan { (combination(item, field), GUARD) } else { of_field(item, field, law) };
    let about_overflow = law == Law::Associativity && matches!(error, LawError::Broken(example) if example.wrapped);
    let hint = if about_overflow { OVERFLOW } else { hint };
    (extent.unwrap_or_else(|| item.name.extent()), hint)
}

/// Where a field of the combination stands.
fn combination(item: &OperatorItem, field: usize) -> Option<Extent> {
    item.combine.as_ref().map(|combine| part_extent(&combine.body, field))
}

fn of_field(item: &OperatorItem, field: usize, law: Law) -> (Option<Extent>, &'static str) {
    match law {
        Law::LeftIdentity | Law::RightIdentity => {
            let value = item.identity.as_ref().and_then(|identity| identity.list.get(field));
            let hint = "write the state that changes nothing on either side, or say by `where` which states occur";
            (value.map(|value| value.extent), hint)
        }
        Law::Gauge => {
            let name = item.gauge.as_ref().map(|name| name.extent());
            (name, "leave `gauge` out, or scale the other fields when it changes")
        }
        _ => {
            let hint = "write a combination that does not depend on how its elements are grouped, or say by `where` which states occur";
            (combination(item, field), hint)
        }
    }
}
