//! Operators applied to elements, and the states they start from.
//!
//! `init = (x, y)` gives a value per field, `init = (b: x)` some of them by name; the others start at the identity.
//! `init = x` alone means the payload: the one field that no other field's combination depends on, as `b` of the affine
//! operator or `x` of the log-decay. A state of the same operator gives all fields at once.

use std::rc::Rc;

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Field, Operator, Value};

use super::term::State;
use super::{Lower, Term, explain, operator, transition};
use crate::extent::Extent;
use crate::library::Template;
use crate::mistake::Mistake;
use crate::suggest::{counted, listed};
use crate::syntax::{Argument, Expr, ExprKind, Name};

/// `Operator(elements)`.
pub(super) struct Applied {
    /// The operator before it has types.
    pub(super) template: Template,
    /// Its elements, one per field.
    pub(super) elements: Vec<(Term, Extent)>,
    /// The axes of the kernel that take the place of axes of an operator with a state.
    pub(super) axes: Vec<(Name, Axis)>,
    /// The word `segmented`, if it wraps the operator.
    pub(super) segmented: Option<Extent>,
    /// The whole application.
    pub(super) extent: Extent,
}

impl Applied {
    /// The state of a scan or a reduction.
    pub(super) fn state(&self, operator: &Operator, fields: Vec<Value>) -> Term {
        let fields = operator.fields.iter().zip(fields).map(|(field, value)| (field.name.clone(), Term::Value(value)));
        Term::State(Rc::new(State { operator: operator.name.clone(), fields: fields.collect() }))
    }
}

impl Lower<'_> {
    /// Reads `Operator(x, y)` or `segmented(Operator)(x, y)`.
    pub(super) fn applied(&mut self, function: &str, expr: &Expr) -> Option<Applied> {
        let ExprKind::Call(callee, arguments) = &expr.kind else {
            if matches!(&expr.kind, ExprKind::Name(name) if self.library.operator(&name.text).is_some()) {
                self.count(&format!("{function}(L, {}(x))", text_of(expr)), 0, expr.extent);
            } else if !matches!(expr.kind, ExprKind::Wrong) {
                self.report(expr.extent, Mistake::NotAnOperator { function: function.into() });
            }
            return None;
        };
        let (name, segmented) = match &callee.kind {
            ExprKind::Name(name) => (name, None),
            ExprKind::Call(wrapper, inner) => self.wrapped(wrapper, inner)?,
            ExprKind::Wrong => return None,
            _ => {
                self.report(callee.extent, Mistake::NotAnOperator { function: function.into() });
                return None;
            }
        };
        let Some(template) = self.library.operator(&name.text).cloned() else {
            let mistake = if self.is_function(&name.text) || self.scope.get(&name.text).is_some() {
                Mistake::NotAnOperator { function: function.into() }
            } else {
                Mistake::UnknownOperator { name: name.text.clone(), hint: self.library.suggest_operator(&name.text) }
            };
            self.report(name.extent(), mistake);
            return None;
        };
        let (axes, elements): (Vec<&Argument>, Vec<&Argument>) =
            arguments.iter().partition(|argument| is_axis(&template, argument));
        let elements = self.element_terms(&template, &elements, expr.extent)?;
        let axes = axes.into_iter().map(|argument| self.axis_of(function, argument)).collect::<Option<_>>()?;
        Some(Applied { template, elements, axes, segmented, extent: expr.extent })
    }

    /// `segmented(Operator)`: the operator's name and where the word stands.
    fn wrapped<'e>(&mut self, wrapper: &'e Expr, inner: &'e [Argument]) -> Option<(&'e Name, Option<Extent>)> {
        let ExprKind::Name(word) = &wrapper.kind else {
            self.report(wrapper.extent, Mistake::NotCallable {});
            return None;
        };
        if word.text != "segmented" {
            self.report(word.extent(), Mistake::UnknownWrapper { name: word.text.clone() });
            return None;
        }
        match inner {
            [Argument { key: None, value: Expr { kind: ExprKind::Name(name), .. } }] => {
                Some((name, Some(word.extent())))
            }
            _ => {
                self.count("segmented(Operator)(x)", inner.len(), wrapper.extent);
                None
            }
        }
    }

    fn element_terms(
        &mut self,
        template: &Template,
        arguments: &[&Argument],
        extent: Extent,
    ) -> Option<Vec<(Term, Extent)>> {
        let operator = template.item.name.text.clone();
        let mut elements = vec![];
        for argument in arguments {
            if let Some(key) = &argument.key {
                let known = "elements are given in the order of the fields".into();
                let (function, argument) = (operator.clone(), key.text.clone());
                self.report(key.extent(), Mistake::UnknownArgument { function, argument, known });
            }
            elements.push((self.term(&argument.value).unwrapped(), argument.value.extent));
        }
        let fields = &template.item.fields;
        if elements.len() != fields.len() {
            let expected = listed(fields.iter().map(|field| field.name.text.as_str()));
            let given = are(elements.len());
            self.report(extent, Mistake::ElementCount { operator, expected, given });
            return None;
        }
        Some(elements)
    }

    /// `K = N`: an axis of the operator and the kernel's axis in its place.
    fn axis_of(&mut self, function: &str, argument: &Argument) -> Option<(Name, Axis)> {
        Some((argument.key.clone()?, self.axis(function, &argument.value)?))
    }

    /// The operator for the types of its elements and of the initial state.
    pub(super) fn instance(&mut self, applied: &Applied, init: &[Option<(Term, Extent)>]) -> Option<Operator> {
        let mut types = vec![];
        for (k, (element, extent)) in applied.elements.iter().enumerate() {
            let element = self.type_of(element, *extent)?;
            let init = match init.get(k) {
                Some(Some((term, extent))) => self.type_of(term, *extent)?,
                _ => None,
            };
            types.push(element.zip(init).map_or(element.or(init), |(a, b)| a.join(b).or(Some(a))));
        }
        operator::instance(applied, &types, self.lone, self.library, self.mistakes)
    }

    /// The type of a single term; `Some(None)` for a literal.
    pub(super) fn type_of(&mut self, term: &Term, extent: Extent) -> Option<Option<Ty>> {
        match term {
            Term::Literal(oplus_dsl::ir::Literal::Bool(_)) => Some(Some(Ty::Bool)),
            Term::Literal(_) => Some(None),
            term => self.value(term.clone(), extent).map(|value| Some(self.ty(value))),
        }
    }

    /// The elements as values of the fields' types.
    pub(super) fn elements(&mut self, operator: &Operator, applied: &Applied) -> Option<Vec<Value>> {
        let given = applied.elements.clone().into_iter().zip(&operator.fields);
        let values: Vec<_> =
            given.map(|(given, field)| self.for_field("element", given, field, &operator.name)).collect();
        values.into_iter().collect()
    }

    /// An element or an initial value of a field, of the field's type or a narrower float.
    pub(super) fn for_field(
        &mut self,
        what: &str,
        (term, extent): (Term, Extent),
        field: &Field,
        operator: &str,
    ) -> Option<Value> {
        let value = self.typed(term, field.ty, extent)?;
        let found = self.ty(value);
        if found != field.ty && found.join(field.ty) != Some(field.ty) {
            let (operator, what, cast) = (operator.to_owned(), what.to_owned(), explain::cast(field.ty).into());
            let (field, ty, found) = (field.name.clone(), explain::in_words(field.ty), explain::in_words(found));
            self.report(extent, Mistake::ElementType { operator, field, ty, what, found, cast });
            return None;
        }
        Some(value)
    }

    /// The initial state: a term for each field that is given.
    pub(super) fn init(
        &mut self,
        expr: Option<&Expr>,
        applied: Option<&Applied>,
    ) -> Option<Vec<Option<(Term, Extent)>>> {
        let Some(expr) = expr else { return applied.map(|applied| vec![None; applied.elements.len()]) };
        if let ExprKind::Fields(named) = &expr.kind {
            let named: Vec<_> = named.iter().map(|(name, value)| (name, (self.term(value), value.extent))).collect();
            return self.init_by_name(named, applied?);
        }
        let term = self.term(expr);
        let applied = applied?;
        let count = applied.elements.len();
        match &term {
            Term::Wrong => None,
            Term::Tuple(parts) => {
                let parts = self.parts(count, Term::Tuple(parts.clone()), expr.extent);
                Some(parts.into_iter().map(|part| Some((part, expr.extent))).collect())
            }
            Term::State(state) if state.operator == applied.template.item.name.text => {
                Some(state.fields.iter().map(|(_, part)| Some((part.clone(), expr.extent))).collect())
            }
            _ => {
                let payload = self.payload(applied, expr.extent)?;
                let mut init = vec![None; count];
                init[payload] = Some((term, expr.extent));
                Some(init)
            }
        }
    }

    /// The initial state of an operator that has one of its own, `Some(None)` for 0.
    #[allow(clippy::option_option, reason = "an error, no state, or one")]
    pub(super) fn state_init(&mut self, expr: Option<&Expr>, applied: &Applied) -> Option<Option<(Term, Extent)>> {
        let Some(expr) = expr else { return Some(None) };
        let own = &applied.template.item.state.as_ref()?.name;
        let value = match &expr.kind {
            ExprKind::Fields(named) => match &named[..] {
                [(name, value)] if name.text == own.text => value,
                named => {
                    let wrong = named.iter().map(|(name, _)| name).find(|name| name.text != own.text);
                    let (name, extent) = wrong.map_or((own, expr.extent), |name| (name, name.extent()));
                    let (operator, field) = (applied.template.item.name.text.clone(), name.text.clone());
                    self.report(extent, Mistake::UnknownField { operator, field, fields: own.text.clone() });
                    return None;
                }
            },
            _ => expr,
        };
        match self.term(value).unwrapped() {
            Term::Wrong => None,
            term => Some(Some((term, value.extent))),
        }
    }

    fn init_by_name(
        &mut self,
        named: Vec<(&Name, (Term, Extent))>,
        applied: &Applied,
    ) -> Option<Vec<Option<(Term, Extent)>>> {
        let fields = &applied.template.item.fields;
        let mut init = vec![None; fields.len()];
        for (name, value) in named {
            let Some(k) = fields.iter().position(|field| field.name.text == name.text) else {
                let (operator, field) = (applied.template.item.name.text.clone(), name.text.clone());
                let fields = listed(fields.iter().map(|field| field.name.text.as_str()));
                self.report(name.extent(), Mistake::UnknownField { operator, field, fields });
                return None;
            };
            if init[k].replace(value).is_some() {
                self.report(name.extent(), Mistake::DuplicateArgument { argument: name.text.clone() });
            }
        }
        Some(init)
    }

    /// The field that a single init means: the one that no other field depends on.
    fn payload(&mut self, applied: &Applied, extent: Extent) -> Option<usize> {
        let operator = self.instance(applied, &[])?;
        let (n, dependencies) = (operator.fields.len(), operator.dependencies());
        let uses =
            |field: usize, k: usize| dependencies[field] >> k & 1 == 1 || dependencies[field] >> (n + k) & 1 == 1;
        let is_payload = |k: &usize| (0..n).all(|field| field == *k || !uses(field, *k));
        let payloads: Vec<usize> = (0..n).filter(is_payload).collect();
        match payloads[..] {
            [payload] => Some(payload),
            _ => {
                let field = operator.fields[n - 1].name.clone();
                self.report(extent, Mistake::AmbiguousInit { operator: operator.name, field });
                None
            }
        }
    }
}

/// Whether an argument says which axis takes the place of one of the operator's.
fn is_axis(template: &Template, argument: &Argument) -> bool {
    let own = transition::axes_of(&template.item);
    argument.key.as_ref().is_some_and(|key| own.iter().any(|name| name.text == key.text))
}

fn text_of(expr: &Expr) -> &str {
    match &expr.kind {
        ExprKind::Name(name) => &name.text,
        _ => "Operator",
    }
}

/// `1 is` or `3 are`.
pub(super) fn are(given: usize) -> String {
    format!("{} {}", counted(given, "value"), if given == 1 { "is" } else { "are" })
}
