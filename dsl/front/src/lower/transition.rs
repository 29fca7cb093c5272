//! Operators with a state of their own: `op Delta(beta, k: [K], v: [V]) -> (s: [V, K])`.
//!
//! `combine(l, r)` is the formula of one step, from the state l and the element r to the next state. It is lowered into a program of
//! its own, with the axes of the kernel under the names that the operator has for them, and [`oplus_dsl::transition`] finds the
//! matrix in it. What that is made of goes into the kernel, once for all steps, and a recurrence of matrices is built on it.

use oplus_dsl::Ty;
use oplus_dsl::build::{Builder, Direction};
use oplus_dsl::ir::{Axis, AxisSet, Literal, MatrixScan, Program, Value};
use oplus_dsl::transition::{Transition, placed, transition};
use oplus_dsl::typing::TypeError;

use super::segments::Segments;
use super::state::Applied;
use super::term::State;
use super::{Declared, Lower, Place, Term, explain};
use crate::diagnostics::Diagnostics;
use crate::extent::Extent;
use crate::library::{Library, Template};
use crate::mistake::Mistake;
use crate::syntax::{FieldItem, Name, OperatorItem};

/// One step as a program: a parameter for each field, one for the state, and what the next state is made of.
struct Step {
    program: Program,
    fields: Vec<Value>,
    transition: Transition,
}

/// The axes that a step has, and what varies along which.
struct Shape<'s> {
    /// The names of all axes.
    names: Vec<String>,
    /// The type of the state.
    ty: Ty,
    /// The axes of each field.
    fields: Vec<AxisSet>,
    state: AxisSet,
    library: &'s Library,
}

/// The axes that an operator names, each once.
pub(super) fn axes_of(item: &OperatorItem) -> Vec<&Name> {
    let mut axes: Vec<&Name> = vec![];
    for name in item.fields.iter().chain(&item.state).flat_map(|field| &field.axes) {
        if !axes.iter().any(|known| known.text == name.text) {
            axes.push(name);
        }
    }
    axes
}

/// An operator with a state as it is declared: its recurrence for f64, along one more axis.
pub(super) fn declared(
    item: &OperatorItem,
    state: &FieldItem,
    library: &Library,
    mistakes: &mut Diagnostics,
) -> Option<Declared> {
    check_clauses(item, state, mistakes)?;
    let template = library.operator(&item.name.text)?;
    let mut names: Vec<String> = axes_of(item).into_iter().map(|name| name.text.clone()).collect();
    let time = if names.iter().any(|name| name == "T") { "T.step" } else { "T" };
    names.push(time.to_owned());
    let axis = Axis(names.len() as u32 - 1);
    let over = |field: &FieldItem| {
        let own = field.axes.iter().filter_map(|name| names.iter().position(|known| *known == name.text));
        own.map(|k| Axis(k as u32)).collect::<AxisSet>().with(axis)
    };
    let (fields, state) = (item.fields.iter().map(over).collect(), over(state));
    let shape = Shape { names: names.clone(), ty: Ty::F64, fields, state, library };
    let step = step(template, &shape, mistakes)?;
    match recurrence(&step, axis, state) {
        Ok(program) => Some(Declared::Transition(Program { name: item.name.text.clone(), ..program })),
        Err(error) => {
            mistakes.report(item.name.extent(), explain::mistake(&error));
            None
        }
    }
}

/// The recurrence of a step from 0 on, with one output.
fn recurrence(step: &Step, axis: Axis, state: AxisSet) -> Result<Program, TypeError> {
    let mut b = Builder::from_program(step.program.clone());
    let zero = b.float(Ty::F64, 0.0)?;
    let along = step.transition.along.or_else(|| state.without(axis).iter().next()).unwrap_or(axis);
    let states = match along == axis {
        true => step.transition.input,
        false => b.matrix_scan(step.transition.scan(axis, along, zero))?,
    };
    let states = b.broadcast(states, state)?;
    let last = step.program.params.len().saturating_sub(1);
    let name = step.program.params[last].name.clone();
    let axes: Vec<Axis> = std::iter::once(axis).chain(state.without(axis).iter()).collect();
    b.output(&name, &axes, oplus_dsl::Elem::F64, states)?;
    let program = oplus_dsl::simplify::simplify(&b.finish());
    Ok(oplus_dsl::simplify::retain_params(&program, |k, _| k as usize != last))
}

/// Refuses clauses and types that operators with a state do not have.
fn check_clauses(item: &OperatorItem, state: &FieldItem, mistakes: &mut Diagnostics) -> Option<()> {
    let operator = || item.name.text.clone();
    let domain = item.domain.conditions.first().map(|condition| (condition.extent, "where …"));
    let identity = item.identity.as_ref().map(|identity| (identity.extent, "identity (…);"));
    let gauge = item.gauge.as_ref().map(|gauge| (gauge.extent(), "gauge …;"));
    let mut is_right = true;
    for (extent, clause) in [identity, gauge, domain].into_iter().flatten() {
        mistakes.report(extent, Mistake::StateClause { operator: operator(), clause: clause.into() });
        is_right = false;
    }
    for field in item.fields.iter().chain([state]) {
        if let Some((_, extent)) = field.elem {
            mistakes.report(extent, Mistake::StateType { operator: operator(), field: field.name.text.clone() });
            is_right = false;
        }
    }
    is_right.then_some(())
}

/// The program of a step.
fn step(template: &Template, shape: &Shape<'_>, mistakes: &mut Diagnostics) -> Option<Step> {
    let item = &template.item;
    let (Some(combine), Some(own)) = (&item.combine, &item.state) else { return None };
    let mut lower = Lower::new(Builder::new("step"), &item.name.text, shape.ty, shape.library, mistakes);
    (lower.helpers, lower.place) = (template.helpers.clone(), Place::Step);
    let (fields, state) = match lower.operands(item, own, shape) {
        Ok(operands) => operands,
        Err(error) => {
            lower.report(item.name.extent(), explain::mistake(&error));
            return None;
        }
    };
    let named = item.fields.iter().zip(&fields).map(|(field, value)| (field.name.text.clone(), Term::Value(*value)));
    let term = |fields| Term::State(State { operator: item.name.text.clone(), fields }.into());
    lower.scope.push(&combine.left.text, term(vec![(own.name.text.clone(), Term::Value(state))]));
    lower.scope.push(&combine.right.text, term(named.collect()));
    let (extent, next) = (combine.body.value_extent(), lower.body(&combine.body));
    let next = lower.typed(next.unwrapped(), shape.ty, extent)?;
    let program = std::mem::replace(&mut lower.builder, Builder::new("")).finish();
    match transition(&program, state, next) {
        Ok((program, transition)) => Some(Step { program, fields, transition }),
        Err(error) => {
            let (operator, reason) = (item.name.text.clone(), error.to_string());
            mistakes.report(extent, Mistake::Transition { operator, reason });
            None
        }
    }
}

impl Lower<'_> {
    /// The parameters of a step: those of the fields, and the state.
    fn operands(
        &mut self,
        item: &OperatorItem,
        state: &FieldItem,
        shape: &Shape<'_>,
    ) -> Result<(Vec<Value>, Value), TypeError> {
        for name in &shape.names {
            self.builder.axis(name)?;
        }
        let elem = shape.ty.elem().unwrap_or(oplus_dsl::Elem::F64);
        let mut param = |name: &Name, axes: AxisSet| {
            let axes: Vec<Axis> = axes.iter().collect();
            self.builder.param(&name.text, &axes, elem, None)
        };
        let fields = item.fields.iter().zip(&shape.fields).map(|(field, axes)| param(&field.name, *axes));
        let fields = fields.collect::<Result<_, _>>()?;
        Ok((fields, param(&state.name, shape.state)?))
    }

    /// `scan(T, Delta(…), init = s0)` with an operator that has a state.
    pub(super) fn scan_state(
        &mut self,
        axis: Axis,
        applied: &Applied,
        init: Option<(Term, Extent)>,
        segments: Option<Segments>,
        direction: Direction,
        extent: Extent,
    ) -> Option<Term> {
        let item = applied.template.item.clone();
        let own = item.state.as_ref()?;
        let bound = self.bound(&item, applied)?;
        let (elements, init, ty) = self.numbers(&item, applied, init)?;
        self.check_elements(&item, applied, &elements, &bound)?;
        self.check_scanned("scan", axis, elements.iter().chain(segments.iter().map(|s| &s.resets)), applied.extent)?;
        if let Some((value, at)) = init {
            self.check_without(axis, value, "the initial state", "scan", at)?;
        }
        let sequences = segments.and_then(|segments| segments.sequences()).map_or(AxisSet::EMPTY, AxisSet::of);
        let given = elements.iter().chain(init.iter().map(|(value, _)| value));
        let given = given.fold(AxisSet::of(axis), |all, value| all.union(self.axes(*value))).minus(sequences);
        let is_own = |name: &str| own.axes.iter().any(|own| own.text == name);
        let bind = |all: AxisSet, (name, axis): &(String, Axis)| match is_own(name) {
            true => all.with(*axis),
            false => all.without(*axis),
        };
        let state = bound.iter().fold(given, bind);
        let names = self.builder.program().axes.iter().enumerate().map(|(k, name)| {
            let own = bound.iter().find(|(_, axis)| axis.0 as usize == k);
            own.map_or_else(|| format!("{name}.outer"), |(own, _)| own.clone())
        });
        let fields = elements.iter().map(|value| self.axes(*value)).collect();
        let shape = Shape { names: names.collect(), ty, fields, state, library: self.library };
        let step = self.step_at_use(&applied.template, &shape, applied.extent)?;
        let leaves: Vec<(Value, Value)> = step.fields.iter().copied().zip(elements).collect();
        let values = placed(&step.program, &mut self.builder, &leaves, &step.transition.values());
        let values = values.map_err(|error| self.report(extent, explain::mistake(&error))).ok()?;
        let transition = step.transition.with_values(&values);
        let states = self.states(axis, applied, (transition, state), init, segments, (direction, extent))?;
        let fields = vec![(own.name.text.clone(), Term::Value(states))];
        Some(Term::State(State { operator: item.name.text.clone(), fields }.into()))
    }

    /// The step for these types; what is wrong with it was said where it is declared.
    fn step_at_use(&mut self, template: &Template, shape: &Shape<'_>, extent: Extent) -> Option<Step> {
        let mut inner = Diagnostics::default();
        let step = step(template, shape, &mut inner);
        if step.is_none() && template.standard {
            let reason = inner.iter().next().map(|first| first.mistake.to_string()).unwrap_or_default();
            self.report(extent, Mistake::Invalid { message: reason });
        }
        step
    }

    /// All states, by a recurrence of matrices; by the affine operator where the matrix is diagonal.
    fn states(
        &mut self,
        axis: Axis,
        applied: &Applied,
        (transition, state): (Transition, AxisSet),
        init: Option<(Value, Extent)>,
        segments: Option<Segments>,
        (direction, extent): (Direction, Extent),
    ) -> Option<Value> {
        let Some(along) = transition.along.filter(|_| !transition.terms.is_empty()) else {
            let template = self.library.affine.clone()?;
            let input = self.builder.broadcast(transition.input, state);
            let input = self.built(input, extent)?;
            let elements = [transition.decay, input].map(|value| (Term::Value(value), applied.extent)).to_vec();
            let (segmented, axes) = (applied.segmented, vec![]);
            let affine = Applied { template, elements, axes, segmented, extent: applied.extent };
            let init = [None, init.map(|(value, at)| (Term::Value(value), at))];
            let states = self.scan_over(axis, &affine, &init, segments, direction, extent)?;
            let Term::State(states) = states else { return None };
            return states.field("b").cloned().and_then(|term| self.value(term, extent));
        };
        let zero = self.constant_of(Literal::Float(0.0), self.ty(transition.decay))?;
        let before = init.map_or(zero, |(value, _)| value);
        let Direction { reverse, exclusive } = direction;
        let scan = MatrixScan { reverse, exclusive, ..transition.scan(axis, along, before) };
        let states = match segments {
            None => self.builder.matrix_scan(scan),
            Some(segments) => self.matrix_segments(scan, init.map(|(value, _)| value), segments),
        };
        let states = self.built(states, extent)?;
        let states = self.builder.broadcast(states, state);
        let states = self.built(states, extent)?;
        self.before.insert(states, (axis, before));
        Some(states)
    }

    /// The kernel's axis for each axis of the operator: the one of the same name, unless the use says which.
    fn bound(&mut self, item: &OperatorItem, applied: &Applied) -> Option<Vec<(String, Axis)>> {
        let mut bound: Vec<(String, Axis)> = vec![];
        for name in axes_of(item) {
            let given = applied.axes.iter().find(|(own, _)| own.text == name.text);
            let Some(axis) = given.map(|(_, axis)| *axis).or_else(|| self.builder.program().axis(&name.text)) else {
                let (operator, axis) = (item.name.text.clone(), name.text.clone());
                self.report(applied.extent, Mistake::OperatorAxis { operator, axis });
                return None;
            };
            if let Some((first, _)) = bound.iter().find(|(_, known)| *known == axis) {
                let (operator, first, second) = (item.name.text.clone(), first.clone(), name.text.clone());
                let axis = self.builder.program().axis_name(axis).to_owned();
                self.report(applied.extent, Mistake::OperatorAxes { operator, first, second, axis });
                return None;
            }
            bound.push((name.text.clone(), axis));
        }
        Some(bound)
    }

    /// Elements and initial state as floats of one type.
    #[allow(clippy::type_complexity, reason = "three parts of one answer")]
    fn numbers(
        &mut self,
        item: &OperatorItem,
        applied: &Applied,
        init: Option<(Term, Extent)>,
    ) -> Option<(Vec<Value>, Option<(Value, Extent)>, Ty)> {
        let terms: Vec<(Term, Extent)> = applied.elements.iter().cloned().chain(init.clone()).collect();
        let mut ty = None;
        for (term, extent) in &terms {
            let Some(found) = self.type_of(term, *extent)? else { continue };
            if !found.is_float() {
                let (function, expected, found) = (item.name.text.clone(), "floats".into(), explain::in_words(found));
                let hint = "convert it with `as f32`".into();
                self.report(*extent, Mistake::OperandType { function, expected, found, hint });
                return None;
            }
            ty = ty.map_or(Some(found), |ty: Ty| ty.join(found));
        }
        let ty = ty.unwrap_or(self.lone);
        let mut values = vec![];
        for (term, extent) in terms {
            let value = self.typed(term, ty, extent)?;
            let value = ty.elem().map_or(Ok(value), |elem| self.builder.convert(elem, value));
            values.push((self.built(value, extent)?, extent));
        }
        let init = init.and_then(|_| values.pop());
        Some((values.into_iter().map(|(value, _)| value).collect(), init, ty))
    }

    /// Elements vary along those axes of the operator only that their fields have.
    fn check_elements(
        &mut self,
        item: &OperatorItem,
        applied: &Applied,
        elements: &[Value],
        bound: &[(String, Axis)],
    ) -> Option<()> {
        for ((field, value), (_, extent)) in item.fields.iter().zip(elements).zip(&applied.elements) {
            let axes = self.axes(*value);
            let is_own = |name: &str| field.axes.iter().any(|own| own.text == name);
            if let Some((axis, _)) = bound.iter().find(|(name, axis)| axes.contains(*axis) && !is_own(name)) {
                let (operator, field, axis) = (item.name.text.clone(), field.name.text.clone(), axis.clone());
                self.report(*extent, Mistake::ElementAxis { operator, field, axis });
                return None;
            }
        }
        Some(())
    }
}
