//! Operators: templates that get their types where they are used.

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Field, Literal, Operator, Value};

use super::state::{Applied, are};
use super::term::State;
use super::{Declared, Lower, Place, Term, domain, explain, laws, number, transition};
use crate::diagnostics::Diagnostics;
use crate::extent::Extent;
use crate::library::{Library, Template};
use crate::mistake::Mistake;
use crate::suggest::{counted, listed};
use crate::syntax::{Body, Combine, Expr, ExprKind, OperatorItem};

/// The most fields of an operator; a segmented one has a flag beside them.
const FIELDS: usize = 31;

/// An operator as it is declared: f64 for the fields without a type. Its laws are checked.
pub(super) fn declared(item: &OperatorItem, library: &Library, mistakes: &mut Diagnostics) -> Option<Declared> {
    if let Some(state) = &item.state {
        return transition::declared(item, state, library, mistakes);
    }
    if let Some(field) = item.fields.iter().find(|field| !field.axes.is_empty()) {
        let (operator, field, extent) = (item.name.text.clone(), field.name.text.clone(), field.axes[0].extent());
        mistakes.report(extent, Mistake::FieldAxes { operator, field });
        return None;
    }
    let template = library.operator(&item.name.text)?;
    let types = declared_types(item, Ty::F64);
    let operator = instantiate(template, types, library, mistakes)?;
    let evidence = laws::check(item, &operator, library, mistakes)?;
    Some(Declared::Associative(operator, evidence))
}

pub(super) fn declared_types(item: &OperatorItem, free: Ty) -> Vec<Ty> {
    item.fields.iter().map(|field| field.elem.map_or(free, |(elem, _)| elem.value())).collect()
}

/// The operator for elements of these types (`None` for literals), with its laws checked for them. What is wrong with a
/// standard operator, or only with these types, is said at its use.
pub(super) fn instance(
    applied: &Applied,
    given: &[Option<Ty>],
    lone: Ty,
    library: &Library,
    mistakes: &mut Diagnostics,
) -> Option<Operator> {
    let template = &applied.template;
    let fields = &template.item.fields;
    let free = given.iter().zip(fields).filter(|(_, field)| field.elem.is_none());
    let joined = free.filter_map(|(ty, _)| *ty).filter(|ty| ty.is_float()).reduce(|a, b| a.join(b).unwrap_or(a));
    let declared = fields.iter().map(|field| field.elem.map(|(elem, _)| elem.value()));
    let types = declared.zip(given).map(|(declared, ty)| declared.or(*ty).or(joined).unwrap_or(lone)).collect();
    let operator = match template.standard {
        true => standard(applied, given, types, library, mistakes),
        false => instantiate(template, types, library, mistakes),
    }?;
    laws::check_use(applied, &operator, library, mistakes)?;
    Some(operator)
}

/// A standard operator for these types.
fn standard(
    applied: &Applied,
    given: &[Option<Ty>],
    types: Vec<Ty>,
    library: &Library,
    mistakes: &mut Diagnostics,
) -> Option<Operator> {
    let template = &applied.template;
    let mut inner = Diagnostics::default();
    let operator = instantiate(template, types, library, &mut inner);
    if let Some(first) = inner.iter().next() {
        let types = listed(given.iter().flatten().map(|ty| ty.name()));
        let reason = first.mistake.to_string();
        let operator = template.item.name.text.clone();
        mistakes.report(applied.extent, Mistake::ElementTypes { operator, types, reason });
    }
    operator
}

/// The result of one attempt with given types.
enum Attempt {
    /// The operator.
    Fits(Operator),
    /// A field must be wider for its combination.
    Widen(usize, Ty),
    /// Reported.
    Wrong,
}

/// Lowers the body until every field is as wide as its combination.
fn instantiate(
    template: &Template,
    mut types: Vec<Ty>,
    library: &Library,
    mistakes: &mut Diagnostics,
) -> Option<Operator> {
    let item = &template.item;
    if !(1..=FIELDS).contains(&item.fields.len()) {
        mistakes.report(item.name.extent(), Mistake::FieldCount { operator: item.name.text.clone() });
        return None;
    }
    // Floats have three widths, so each field widens twice at the most.
    for _ in 0..=2 * types.len() {
        match attempt(template, &types, library, mistakes) {
            Attempt::Fits(operator) => return Some(operator),
            Attempt::Widen(k, ty) => types[k] = ty,
            Attempt::Wrong => return None,
        }
    }
    None
}

fn attempt(template: &Template, types: &[Ty], library: &Library, mistakes: &mut Diagnostics) -> Attempt {
    let item = &template.item;
    let fields: Vec<Field> =
        item.fields.iter().zip(types).map(|(field, ty)| Field { name: field.name.text.clone(), ty: *ty }).collect();
    let lone = types.iter().copied().find(|ty| ty.is_float()).unwrap_or(types[0]);
    let mut lower = Lower::new(Builder::body(fields.clone()), &item.name.text, lone, library, mistakes);
    (lower.helpers, lower.place) = (template.helpers.clone(), Place::Combine);
    let identity = lower.identity(item, &fields);
    let gauge = lower.gauge(item, &fields);
    let Some(combine) = &item.combine else { return Attempt::Wrong };
    let combined = match lower.combination(item, combine, &fields) {
        Some(Ok(values)) => values,
        Some(Err((k, ty))) => return Attempt::Widen(k, ty),
        None => return Attempt::Wrong,
    };
    let (Some(identity), Some(gauge)) = (identity, gauge) else { return Attempt::Wrong };
    let builder = std::mem::replace(&mut lower.builder, Builder::new(""));
    let Some(domain) = domain::domain(template, &fields, lone, library, mistakes) else { return Attempt::Wrong };
    match builder.finish_operator(&item.name.text, identity, &combined, gauge) {
        Ok(operator) => Attempt::Fits(Operator { domain, ..operator }),
        Err(error) => {
            mistakes.report(combine.body.extent, explain::mistake(&error));
            Attempt::Wrong
        }
    }
}

impl Lower<'_> {
    fn identity(&mut self, item: &OperatorItem, fields: &[Field]) -> Option<Vec<Literal>> {
        let identity = item.identity.as_ref()?;
        let operator = item.name.text.clone();
        if identity.list.len() != fields.len() {
            let (expected, given) = (counted(fields.len(), "field"), are(identity.list.len()));
            self.report(identity.extent, Mistake::IdentityCount { operator, expected, given });
            return None;
        }
        let literal = |(expr, field): (&Expr, &Field)| match self.term(expr) {
            Term::Literal(literal) => {
                let fitted = number::fit(literal, field.ty);
                if fitted.is_none() {
                    let (literal, ty) = (number::text(literal), explain::in_words(field.ty));
                    self.report(expr.extent, Mistake::LiteralType { literal, ty });
                }
                fitted
            }
            Term::Wrong => None,
            _ => {
                self.report(expr.extent, Mistake::IdentityNotConstant { operator: operator.clone() });
                None
            }
        };
        let literals: Vec<Option<Literal>> = identity.list.iter().zip(fields).map(literal).collect();
        literals.into_iter().collect()
    }

    /// The gauge field's number, `Some(None)` without one.
    fn gauge(&mut self, item: &OperatorItem, fields: &[Field]) -> Option<Option<u32>> {
        let Some(name) = &item.gauge else { return Some(None) };
        let Some(k) = fields.iter().position(|field| field.name == name.text) else {
            let (operator, field) = (item.name.text.clone(), name.text.clone());
            let fields = listed(fields.iter().map(|field| field.name.as_str()));
            self.report(name.extent(), Mistake::UnknownField { operator, field, fields });
            return None;
        };
        if !fields[k].ty.is_float() {
            let (field, found) = (name.text.clone(), explain::in_words(fields[k].ty));
            self.report(name.extent(), Mistake::GaugeType { field, found });
            return None;
        }
        Some(Some(k as u32))
    }

    /// The fields of the combination, or the field that must be wider for its own.
    fn combination(
        &mut self,
        item: &OperatorItem,
        combine: &Combine,
        fields: &[Field],
    ) -> Option<Result<Vec<Value>, (usize, Ty)>> {
        let inputs = self.builder.inputs();
        let (left, right) = inputs.map_err(|e| self.report(combine.body.extent, explain::mistake(&e))).ok()?;
        for (name, values) in [(&combine.left, left), (&combine.right, right)] {
            let fields = fields.iter().zip(values).map(|(field, value)| (field.name.clone(), Term::Value(value)));
            let state = State { operator: item.name.text.clone(), fields: fields.collect() };
            self.scope.push(&name.text, Term::State(state.into()));
        }
        let parts = match self.body(&combine.body) {
            Term::Wrong => return None,
            term => term.parts().unwrap_or_else(|| vec![term]),
        };
        if parts.len() != fields.len() {
            let (expected, given) = (counted(fields.len(), "field"), are(parts.len()));
            let operator = item.name.text.clone();
            self.report(combine.body.value_extent(), Mistake::CombineCount { operator, expected, given });
            return None;
        }
        self.fit_fields(item, combine, fields, parts)
    }

    fn fit_fields(
        &mut self,
        item: &OperatorItem,
        combine: &Combine,
        fields: &[Field],
        parts: Vec<Term>,
    ) -> Option<Result<Vec<Value>, (usize, Ty)>> {
        let mut values = vec![];
        for (k, (part, field)) in parts.into_iter().zip(fields).enumerate() {
            let extent = part_extent(&combine.body, k);
            let value = self.typed(part, field.ty, extent)?;
            let (ty, found) = (field.ty, self.ty(value));
            match ty.join(found) {
                Some(joined) if joined == ty => values.push(value),
                Some(joined) if item.fields[k].elem.is_none() => return Some(Err((k, joined))),
                _ => {
                    let (ty, found, cast) = (explain::in_words(ty), explain::in_words(found), explain::cast(ty).into());
                    self.report(extent, Mistake::FieldType { field: field.name.clone(), ty, found, cast });
                    return None;
                }
            }
        }
        Some(Ok(values))
    }
}

/// Where field k of a combination stands.
pub(super) fn part_extent(body: &Body, k: usize) -> Extent {
    match body.value.as_ref().map(|value| &value.kind) {
        Some(ExprKind::Tuple(parts)) => parts.get(k).map_or(body.value_extent(), |part| part.extent),
        _ => body.value_extent(),
    }
}
