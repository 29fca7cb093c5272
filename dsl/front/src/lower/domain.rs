//! The states that an operator is for: `op Sat(m: u32) where m <= 255`.

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Domain, Field};

use super::{Lower, Place, Term};
use crate::diagnostics::Diagnostics;
use crate::library::{Library, Template};

/// The domain of an operator whose fields have these types; `None` if a condition is wrong.
pub(super) fn domain(
    template: &Template,
    fields: &[Field],
    lone: Ty,
    library: &Library,
    mistakes: &mut Diagnostics,
) -> Option<Domain> {
    let item = &template.item;
    let no_overflow = item.domain.no_overflow;
    if item.domain.conditions.is_empty() {
        return Some(Domain { no_overflow, ..Domain::default() });
    }
    let mut lower = Lower::new(Builder::body(fields.to_vec()), &item.name.text, lone, library, mistakes);
    (lower.helpers, lower.place) = (template.helpers.clone(), Place::Combine);
    for (k, field) in fields.iter().enumerate() {
        let value = lower.builder.input(k as u32);
        let value = lower.built(value, item.name.extent())?;
        lower.scope.push(&field.name, Term::Value(value));
    }
    let conditions: Vec<_> = item.domain.conditions.iter().map(|condition| lower.condition(condition)).collect();
    let conditions = conditions.into_iter().collect::<Option<Vec<_>>>()?;
    Some(Domain { body: lower.builder.finish().nodes, conditions, no_overflow })
}
