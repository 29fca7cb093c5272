//! Gradients of the delta rules: the recurrence of the states and that of their cotangents, with the sums of both.

mod sums;

use oplus_dsl::ir::{Axis, AxisSet, Literal, Op, Program, Term, Value};
use oplus_dsl::walk::all;

use super::delta::{Channels, DeltaReadout, DeltaRule, Factored};
use super::product::is;
use crate::stage::opposite::narrow;
use crate::stage::{Recurrence, Refusal, Stage};
use sums::Sums;

/// A stage as the gradient of a delta rule: the states S and their cotangents Λ,
///
/// ```text
/// S[t] = w[t]·S[t−1] + y[t]·e[t]⊗k[t],  e[t] = x[t] − S[t−1]·z[t]        the rule
/// Λ[t] = w[t+1]·Λ[t+1] − y[t+1]·p[t+1]⊗z[t+1] + g[t]·c[t]⊗q[t],  p[t] = Λ[t]·k[t]
/// ```
///
/// and the [sums](DeltaSum) of both of which its outputs are maps.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaRuleBackward {
    /// The rule, without reads of its states.
    pub states: DeltaRule,
    /// The rule for e, whose key has no number: the step reads the state with the scale of the value that the read is taken from. In a
    /// rule with two keys its rows are the reads of each step.
    pub errors: DeltaRule,
    /// The recurrence of the cotangents in the same form: its value is c, and its readout names the query q. Decay, column and row are those
    /// of the rule, of the step after.
    pub cotangents: DeltaRule,
    /// The query; a rule that is only read at its end has none, and its key and its value stand for query and c, which is 0.
    pub query: Factored,
    /// Whether queries read the states.
    pub is_queried: bool,
    /// The nodes that are sums, each with the factors that it has beside the sum.
    pub sums: Vec<(Value, DeltaSum, Factored)>,
    /// The sums over the depth of maps of vectors along it: the node, and what is summed.
    pub totals: Vec<(Value, Value)>,
    /// The gradient that each output of the stage is.
    pub outputs: Vec<DeltaCotangent>,
}

/// The sums of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaSum {
    /// Σ over the width of c\[t\]·S\[t\].
    Queries,
    /// Σ over the width of p\[t\]·S\[t−1\].
    Columns,
    /// Σ over the width of e\[t\]·Λ\[t\].
    Keys,
    /// In a rule with two keys, Σ over the width of the step's read of the state times Λ\[t\].
    Reads,
    /// In a rule with two keys, Σ over the width of x\[t\]·Λ\[t\].
    Values,
    /// p, the sum over the depth of k\[t\]·Λ\[t\]; in a rule with two keys, k is the key of the reads.
    Rows,
    /// In a rule with two keys, the sum over the depth of Λ\[t\] times the key of the values.
    ValueRows,
    /// Σ over both of S\[t−1\]·Λ\[t\].
    Energy,
    /// Σ over the width of S\[t−1\]·Λ\[t\], where decays differ along the depth.
    Energies,
    /// The cotangent of the state before the first step.
    Initial,
}

/// The gradients that an output can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaCotangent {
    /// A map of sums over the width, over time and depth.
    OverDepth,
    /// A map of p, over time and width.
    OverWidth,
    /// A map of totals and of the energy, over time.
    OverTime,
    /// The cotangent of the state before the first step.
    Initial,
}

impl DeltaRuleBackward {
    /// The outputs that are a gradient of some kind, by number.
    pub(crate) fn outputs_of(&self, kind: DeltaCotangent) -> impl Iterator<Item = usize> + '_ {
        let outputs = self.outputs.iter().enumerate();
        outputs.filter(move |(_, own)| **own == kind).map(|(output, _)| output)
    }

    /// The form of a stage with recurrences in opposite directions, or what it lacks.
    pub(super) fn of(stage: &Stage) -> Result<DeltaRuleBackward, Refusal> {
        let program = &stage.program;
        let [forward, back] = stage.opposite_recurrences().ok_or(Refusal::OneDirection)?;
        let any = forward.inclusive.or(forward.exclusive).ok_or(Refusal::NoReadout)?;
        let axes = program.node(any).axes.without(forward.scan.axis).without(forward.scan.along);
        let mut states = DeltaRule::steps(program, forward, axes)?;
        states.check_decay(program)?;
        if states.has_two_keys() {
            let is_plain = states.row.factors.is_empty() && !states.row.negative;
            if !is_plain {
                return Err(Refusal::NumberOfRow);
            }
            // Kernels take all decays of such rules by channel.
            states.channels = states.channels.or(Some(Channels::ReadBefore));
        } else if states.row.factors != states.value.factors || states.row.negative == states.value.negative {
            return Err(Refusal::NotMoved);
        }
        let (cotangents, query) = cotangents(program, &states, forward, back)?;
        let is_queried = !is(program, back.scan.input, 0.0);
        let elem = program.params[states.row.param as usize].elem;
        let params = [states.key, states.column.param, states.value.param, cotangents.value.param, query.param];
        if params.iter().any(|param| program.params[*param as usize].elem != elem) {
            return Err(Refusal::Type);
        }
        let (sums, totals, outputs) = (vec![], vec![], vec![]);
        let row = Factored { factors: vec![], negative: false, ..states.row.clone() };
        let errors = DeltaRule { row, ..states.clone() };
        let mut form = DeltaRuleBackward { states, errors, cotangents, query, is_queried, sums, totals, outputs };
        Sums { program, form: &mut form, forward, back }.find()?;
        form.outputs = program.outputs.iter().map(|output| form.kind(stage, output)).collect::<Result<_, _>>()?;
        Ok(form)
    }

    /// Whether an output needs a sum.
    pub fn needs(&self, sum: DeltaSum) -> bool {
        self.sums.iter().any(|(_, own, _)| *own == sum)
    }

    /// Finds the kind of an output.
    fn kind(&self, stage: &Stage, output: &oplus_dsl::ir::Output) -> Result<DeltaCotangent, Refusal> {
        let (program, axes) = (&stage.program, stage.axes_of_values(output));
        let DeltaRule { time, depth, width, outer, .. } = self.states;
        let refusal = || Refusal::Output { output: output.name.clone() };
        let own = |sums: &[DeltaSum]| self.is_map(program, output.value, sums);
        if !axes.contains(time) {
            let is_initial =
                |(value, sum, _): &(Value, DeltaSum, Factored)| (*value, *sum) == (output.value, DeltaSum::Initial);
            return if self.sums.iter().any(is_initial) { Ok(DeltaCotangent::Initial) } else { Err(refusal()) };
        }
        let over = axes.without(time).minus(outer);
        let (kind, is_own) = match () {
            () if over == AxisSet::of(depth) => (DeltaCotangent::OverDepth, own(OVER_DEPTH)),
            () if over == AxisSet::of(width) => (DeltaCotangent::OverWidth, own(OVER_WIDTH)),
            () if over == AxisSet::EMPTY => (DeltaCotangent::OverTime, own(&[DeltaSum::Energy])),
            () => return Err(refusal()),
        };
        if is_own && axes.contains_all(outer) { Ok(kind) } else { Err(refusal()) }
    }

    /// Whether a value is a map of these sums, of totals where it lacks the depth, and of point values.
    fn is_map(&self, program: &Program, value: Value, sums: &[DeltaSum]) -> bool {
        let is_deep = program.node(value).axes.contains(self.states.depth);
        all(program, value, |v| {
            if let Some((_, sum, _)) = self.sums.iter().find(|(own, ..)| *own == v) {
                return Some(sums.contains(sum));
            }
            if self.totals.iter().any(|(own, _)| *own == v) {
                return Some(!is_deep && sums != OVER_WIDTH);
            }
            is_point(program, v)
        })
    }
}

/// The sums that are vectors along the depth.
const OVER_DEPTH: &[DeltaSum] =
    &[DeltaSum::Queries, DeltaSum::Columns, DeltaSum::Keys, DeltaSum::Reads, DeltaSum::Values, DeltaSum::Energies];

/// The sums that are vectors along the width.
const OVER_WIDTH: &[DeltaSum] = &[DeltaSum::Rows, DeltaSum::ValueRows];

/// Whether a value is a point value; `None` if all its operands are to be.
fn is_point(program: &Program, value: Value) -> Option<bool> {
    match &program.node(value).op {
        Op::Param(_) | Op::Const(_) | Op::Index(_) | Op::Size(_) => Some(true),
        op if op.is_map() => None,
        _ => Some(false),
    }
}

/// A value before it was displaced by one step, where `fill` is this number at the end.
fn before_shift(program: &Program, value: Value, time: Axis, number: f64) -> Option<Value> {
    let value = narrow(program, value);
    match program.node(value).op {
        Op::Shift { axis, by: -1, value, fill } if axis == time => {
            let is_false = matches!(program.node(fill).op, Op::Const(Literal::Bool(false)));
            (is(program, fill, number) || is_false).then_some(value)
        }
        _ => is(program, value, number).then_some(value),
    }
}

/// The recurrence of the cotangents of the states of a rule.
fn cotangents(
    program: &Program,
    states: &DeltaRule,
    forward: Recurrence<'_>,
    back: Recurrence<'_>,
) -> Result<(DeltaRule, Factored), Refusal> {
    let (time, own, scan) = (states.time, forward.scan, back.scan);
    let ([Term::Pair { column, row }], [Term::Pair { column: read, row: key }]) = (&scan.terms[..], &own.terms[..])
    else {
        return Err(Refusal::Terms);
    };
    let same = |value: Value, of: Value, fill: f64| {
        let found = before_shift(program, value, time, fill);
        found.is_some_and(|found| narrow(program, found) == narrow(program, of))
    };
    let resets = match (scan.reset, own.reset) {
        (None, None) => true,
        (Some(back), Some(own)) => same(back, own, f64::NAN),
        _ => false,
    };
    let is_transposed = same(scan.decay, own.decay, 1.0) && same(*column, *key, 0.0) && same(*row, *read, 0.0);
    if !is_transposed || !resets || back.exclusive.is_some() {
        return Err(Refusal::NotTransposed);
    }
    let find = states.find(program);
    let not_outer = || Refusal::NotOuter {
        depth: program.axis_name(states.depth).to_owned(),
        width: program.axis_name(states.width).to_owned(),
    };
    let alone = |param: u32| Factored { param, factors: vec![], negative: false };
    let (value, query) = if is(program, scan.input, 0.0) {
        (alone(states.value.param), alone(states.key))
    } else {
        let mut added = find.factors(scan.input);
        let query = find.take(&mut added, states.depth).ok_or_else(not_outer)?;
        let value = find.take(&mut added, states.width).ok_or_else(not_outer)?;
        (find.factored(value, added)?, alone(query))
    };
    let has_time = program.params[query.param as usize].axes.contains(&time);
    if !has_time || value.factors.iter().any(|v| program.node(*v).axes.contains(states.width)) {
        return Err(Refusal::TwoKeys);
    }
    // The stage does not compute the sum of this readout; the form needs it to name its tiles.
    let readout = Some(DeltaReadout { value: scan.input, query: query.clone() });
    Ok((DeltaRule { value, init: Some(scan.init), readout, ..states.clone() }, query))
}
