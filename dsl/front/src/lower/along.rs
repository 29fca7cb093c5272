//! Functions over an axis: scans, reductions, positions.

use oplus_dsl::Ty;
use oplus_dsl::build::{Built, Direction};
use oplus_dsl::ir::{Axis, AxisSet, Literal, Operator, Value};
use oplus_dsl::packed::Packing;

use super::arguments::{Arguments, Signature};
use super::segments::Segments;
use super::state::Applied;
use super::{Lower, Term};
use crate::extent::Extent;
use crate::mistake::Mistake;
use crate::syntax::Argument;

const SCAN: Signature = Signature {
    usage: "scan(L, Operator(x))",
    positional: 2,
    keys: &["init", "reset", "offsets"],
    flags: &["reverse", "exclusive"],
};

impl Lower<'_> {
    /// `scan(L, Operator(…), init = …, reverse, exclusive)`.
    pub(super) fn scan(&mut self, arguments: &[Argument], extent: Extent) -> Term {
        let Some(given) = self.arguments(SCAN, arguments, extent) else { return Term::Wrong };
        let axis = self.axis("scan", given.positional[0]);
        let applied = self.applied("scan", given.positional[1]);
        if let Some(applied) = applied.as_ref().filter(|applied| applied.template.item.state.is_some()) {
            return self.scan_of_state(axis, applied, &given, extent).unwrap_or(Term::Wrong);
        }
        let init = self.init(given.key("init"), applied.as_ref());
        let direction = Direction { reverse: given.flag("reverse"), exclusive: given.flag("exclusive") };
        let segments = self.segments(axis, &given, applied.as_ref(), direction);
        let (Some(axis), Some(applied), Some(init), Some(segments)) = (axis, applied, init, segments) else {
            return Term::Wrong;
        };
        self.scan_over(axis, &applied, &init, segments, direction, extent).unwrap_or(Term::Wrong)
    }

    /// A scan with an operator that has a state of its own.
    fn scan_of_state(
        &mut self,
        axis: Option<Axis>,
        applied: &Applied,
        given: &Arguments,
        extent: Extent,
    ) -> Option<Term> {
        let direction = Direction { reverse: given.flag("reverse"), exclusive: given.flag("exclusive") };
        let init = self.state_init(given.key("init"), applied);
        let segments = self.segments(axis, given, Some(applied), direction)?;
        self.scan_state(axis?, applied, init?, segments, direction, extent)
    }

    pub(super) fn scan_over(
        &mut self,
        axis: Axis,
        applied: &Applied,
        init: &[Option<(Term, Extent)>],
        segments: Option<Segments>,
        direction: Direction,
        extent: Extent,
    ) -> Option<Term> {
        let operator = self.instance(applied, init)?;
        let elements = self.elements(&operator, applied)?;
        let resets = segments.map(|segments| segments.resets);
        self.check_scanned("scan", axis, elements.iter().chain(&resets), applied.extent)?;
        let before = self.before(axis, &operator, init)?;
        let has_init = init.iter().any(Option::is_some);
        let fields = match segments {
            None => {
                let id = self.builder.operator(operator.clone());
                self.builder.scan(axis, id, &elements, if has_init { &before } else { &[] }, direction)
            }
            Some(segments) => {
                let init = has_init.then_some(&before[..]);
                self.scan_segments(axis, &operator, &elements, init, segments, direction)
            }
        };
        let fields = fields.map_err(|error| self.report(extent, super::explain::mistake(&error))).ok()?;
        for (field, before) in fields.iter().zip(before) {
            self.before.insert(*field, (axis, before));
        }
        Some(applied.state(&operator, fields))
    }

    /// The state before the first element: init where it is given, the identity elsewhere.
    fn before(&mut self, axis: Axis, operator: &Operator, init: &[Option<(Term, Extent)>]) -> Option<Vec<Value>> {
        let mut before = vec![];
        for ((field, identity), init) in operator.fields.iter().zip(&operator.identity).zip(init) {
            before.push(match init {
                None => self.constant_of(*identity, field.ty)?,
                Some((term, extent)) => {
                    let value = self.for_field("initial value", (term.clone(), *extent), field, &operator.name)?;
                    self.check_without(axis, value, "the initial state", "scan", *extent)?;
                    value
                }
            });
        }
        Some(before)
    }

    pub(super) fn constant_of(&mut self, literal: Literal, ty: Ty) -> Option<Value> {
        let built = self.builder.constant(ty, literal);
        self.built(built, Extent::whole())
    }

    /// `reduce(L, Operator(…))`.
    pub(super) fn reduce(&mut self, arguments: &[Argument], extent: Extent) -> Term {
        let signature = Signature::plain("reduce(L, Operator(x))", 2);
        let Some(given) = self.arguments(signature, arguments, extent) else { return Term::Wrong };
        let axis = self.axis("reduce", given.positional[0]);
        let Some(applied) = self.applied("reduce", given.positional[1]) else { return Term::Wrong };
        if let Some(extent) = applied.segmented {
            return self.wrong(extent, Mistake::SegmentedReduce {});
        }
        let Some(axis) = axis else { return Term::Wrong };
        if applied.template.item.state.is_some() {
            return self.total_of_state(axis, &applied, extent).unwrap_or(Term::Wrong);
        }
        self.reduce_over("reduce", axis, &applied, extent).unwrap_or(Term::Wrong)
    }

    /// The last state of an operator with a state, from 0 on.
    fn total_of_state(&mut self, axis: Axis, applied: &Applied, extent: Extent) -> Option<Term> {
        let direction = Direction { reverse: false, exclusive: false };
        let Term::State(states) = self.scan_state(axis, applied, None, None, direction, extent)? else { return None };
        let last = |lower: &mut Self, term: &Term| {
            let value = lower.value(term.clone(), extent)?;
            lower.end_of("last", axis, value, (None, None), extent)
        };
        Some(states.map(|term| last(self, term).into()))
    }

    /// `rename(x, K = J)`.
    pub(super) fn rename(&mut self, arguments: &[Argument], extent: Extent) -> Term {
        let (named, plain): (Vec<&Argument>, Vec<&Argument>) = arguments.iter().partition(|a| a.key.is_some());
        let ([named], [plain]) = (&named[..], &plain[..]) else {
            self.count("rename(x, K = J)", plain.len(), extent);
            return Term::Wrong;
        };
        let value = self.one(&plain.value);
        let to = self.axis("rename", &named.value);
        let Some(key) = &named.key else { return Term::Wrong };
        let axis = self.axis_named(key);
        let (Some(value), Some(axis), Some(to)) = (value, axis, to) else { return Term::Wrong };
        let built = self.builder.renamed(axis, to, value);
        self.built(built, extent).into()
    }

    /// `sum(L, x)`.
    pub(super) fn sum(&mut self, arguments: &[Argument], extent: Extent) -> Term {
        let Some(given) = self.arguments(Signature::plain("sum(L, x)", 2), arguments, extent) else {
            return Term::Wrong;
        };
        let axis = self.axis("sum", given.positional[0]);
        let operand = given.positional[1];
        let (Some(value), Some(axis)) = (self.one(operand), axis) else { return Term::Wrong };
        let (function, expected) = ("sum".to_owned(), "numbers".to_owned());
        if self.ty(value) == Ty::Bool {
            let hint = "count with `sum(L, if x { 1 } else { 0 })`".into();
            return self.wrong(operand.extent, Mistake::OperandType { function, expected, found: "bool".into(), hint });
        }
        let Some(template) = self.library.sum.clone() else { return Term::Wrong };
        let elements = vec![(Term::Value(value), operand.extent)];
        let applied = Applied { template, elements, axes: vec![], segmented: None, extent: operand.extent };
        self.reduce_over("sum", axis, &applied, extent).unwrap_or(Term::Wrong)
    }

    fn reduce_over(&mut self, function: &str, axis: Axis, applied: &Applied, extent: Extent) -> Option<Term> {
        let operator = self.instance(applied, &[])?;
        let elements = self.elements(&operator, applied)?;
        self.check_scanned(function, axis, elements.iter(), applied.extent)?;
        let id = self.builder.operator(operator.clone());
        let fields = self.builder.reduce(axis, id, &elements);
        let fields = fields.map_err(|error| self.report(extent, super::explain::mistake(&error))).ok()?;
        Some(applied.state(&operator, fields))
    }

    /// Some operand of a scan or a reduction must have the axis.
    pub(super) fn check_scanned<'v>(
        &mut self,
        function: &str,
        axis: Axis,
        operands: impl Iterator<Item = &'v Value>,
        extent: Extent,
    ) -> Option<()> {
        let axes = operands.fold(AxisSet::EMPTY, |axes, value| axes.union(self.axes(*value)));
        self.check_has(function, axis, axes, extent)
    }

    fn check_has(&mut self, function: &str, axis: Axis, axes: AxisSet, extent: Extent) -> Option<()> {
        if axes.contains(axis) {
            return Some(());
        }
        let axes = self.axes_in_words(axes);
        let axis = self.builder.program().axis_name(axis).to_owned();
        self.report(extent, Mistake::AxisNotPresent { function: function.into(), axis, axes });
        None
    }

    pub(super) fn check_without(
        &mut self,
        axis: Axis,
        value: Value,
        what: &str,
        function: &str,
        extent: Extent,
    ) -> Option<()> {
        if !self.axes(value).contains(axis) {
            return Some(());
        }
        let axis = self.builder.program().axis_name(axis).to_owned();
        self.report(extent, Mistake::ExtraAxis { argument: what.into(), function: function.into(), axis });
        None
    }

    /// `last(L, x, empty = …, offsets = …)` and `first`.
    pub(super) fn end(&mut self, function: &'static str, arguments: &[Argument], extent: Extent) -> Term {
        let usage = format!("{function}(L, x)");
        let signature = Signature { keys: &["empty", "offsets"], ..Signature::plain(&usage, 2) };
        let Some(given) = self.arguments(signature, arguments, extent) else { return Term::Wrong };
        let axis = self.axis(function, given.positional[0]);
        let operand = given.positional[1];
        let term = self.term(operand);
        let empty = given.key("empty").map(|expr| (self.term(expr), expr.extent));
        let Some(axis) = axis else { return Term::Wrong };
        let packing = match given.key("offsets") {
            Some(offsets) => match self.sequences(axis, offsets) {
                Some(packing) => Some(packing),
                None => return Term::Wrong,
            },
            None => None,
        };
        let mut one = |term: &Term| {
            let value = self.value(term.clone(), operand.extent)?;
            self.end_of(function, axis, value, (empty.clone(), packing), operand.extent)
        };
        match &term {
            Term::State(state) => state.map(|term| one(term).into()),
            term => one(term).into(),
        }
    }

    /// The first or last value along an axis. Where the axis is empty it is `empty`, else the state before a scan's first element,
    /// else zero.
    fn end_of(
        &mut self,
        function: &str,
        axis: Axis,
        value: Value,
        (empty, packing): (Option<(Term, Extent)>, Option<Packing>),
        extent: Extent,
    ) -> Option<Value> {
        self.check_has(function, axis, self.axes(value), extent)?;
        let is_own =
            |lower: &Self, before: Value| packing.is_some() || lower.axes(value).contains_all(lower.axes(before));
        let ty = self.ty(value);
        let empty = match (empty, self.before.get(&value)) {
            (Some((term, at)), _) => {
                let empty = self.typed(term, ty, at)?;
                self.check_without(axis, empty, "`empty`", function, at)?;
                empty
            }
            (None, Some((scanned, before))) if *scanned == axis && is_own(self, *before) => *before,
            _ => self.constant_of(Literal::zero(ty), ty)?,
        };
        let built = match (function, packing) {
            (_, Some(packing)) => self.end_of_each(packing, value, empty, function == "last"),
            ("first", None) => self.builder.first(axis, value, empty),
            _ => self.builder.last(axis, value, empty),
        };
        self.built(built, extent)
    }

    /// The first or last value of each packed sequence.
    fn end_of_each(&mut self, packing: Packing, value: Value, empty: Value, last: bool) -> Built {
        let border = packing.border(&mut self.builder, last)?;
        let picked = packing.picked(&mut self.builder, border, value)?;
        let is_some = packing.is_some(&mut self.builder)?;
        self.builder.select(is_some, picked, empty)
    }

    /// `shift(L, x, by, fill = …)`.
    pub(super) fn shift(&mut self, arguments: &[Argument], extent: Extent) -> Term {
        let signature = Signature { keys: &["fill"], ..Signature::plain("shift(L, x, 1)", 3) };
        let Some(given) = self.arguments(signature, arguments, extent) else { return Term::Wrong };
        let axis = self.axis("shift", given.positional[0]);
        let value = self.one(given.positional[1]);
        let by = self.integer(given.positional[2], "the distance of `shift`");
        let fill = given.key("fill").map(|expr| (self.term(expr), expr.extent));
        let (Some(axis), Some(value), Some(by)) = (axis, value, by) else { return Term::Wrong };
        self.shifted(axis, value, by, fill, given.positional[1].extent).into()
    }

    fn shifted(
        &mut self,
        axis: Axis,
        value: Value,
        by: i64,
        fill: Option<(Term, Extent)>,
        extent: Extent,
    ) -> Option<Value> {
        self.check_has("shift", axis, self.axes(value), extent)?;
        let ty = self.ty(value);
        let fill = match fill {
            None => self.constant_of(Literal::zero(ty), ty)?,
            Some((term, at)) => {
                let fill = self.typed(term, ty, at)?;
                self.check_without(axis, fill, "`fill`", "shift", at)?;
                fill
            }
        };
        let built = self.builder.shift(axis, by, value, fill);
        self.built(built, extent)
    }

    /// `index(L)` and `size(L)`.
    pub(super) fn position(&mut self, function: &str, arguments: &[Argument], extent: Extent) -> Term {
        let usage = format!("{function}(L)");
        let given = self.arguments(Signature::plain(&usage, 1), arguments, extent);
        let Some(axis) = given.and_then(|given| self.axis(function, given.positional[0])) else { return Term::Wrong };
        let built = if function == "index" { self.builder.index(axis) } else { self.builder.size(axis) };
        self.built(built, extent).into()
    }
}
