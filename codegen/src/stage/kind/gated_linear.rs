//! Gated linear attention as a delta rule whose steps read nothing of the state.
//!
//! S\[t\] = w\[t\]·S\[t−1\] + y\[t\]·k\[t\]⊗x\[t\], with a decay for each time and channel of the key (Yang et al., "Gated linear attention
//! transformers with hardware-efficient training", 2023, §4). Where all channels have one decay, larger chunks take less time. Gradients of
//! the numbers y are no sums of this form; they are refused.

use super::delta::{Channels, DeltaReadout, DeltaRule, Factored};
use super::delta_backward::{DeltaCotangent, DeltaRuleBackward, DeltaSum};
use super::matrix::{Decay, MatrixRecurrence};
use super::matrix_backward::{Cotangent, MatrixRecurrenceBackward};
use crate::stage::opposite::narrow;
use crate::stage::{Refusal, Stage};
use oplus_dsl::ir::{Binary, Op, Output, Program, Value};

/// A parameter without other factors.
fn alone(param: u32) -> Factored {
    Factored { param, factors: vec![], negative: false }
}

impl DeltaRule {
    /// The rule that a recurrence of matrices is, or what it lacks.
    pub(super) fn of_matrices(stage: &Stage, form: &MatrixRecurrence) -> Result<DeltaRule, Refusal> {
        let rule = DeltaRule::unread(form)?;
        let state = Op::Field(form.state.0, form.state.1);
        let states = stage.program.nodes.iter().position(|node| node.op == state).map(|at| Value(at as u32));
        let readout = rule.find(&stage.program).readout(stage, states)?;
        let rule = DeltaRule { readout, ..rule };
        rule.check(stage)?;
        Ok(rule)
    }

    /// The steps of a recurrence of matrices, without reads of its states.
    fn unread(form: &MatrixRecurrence) -> Result<DeltaRule, Refusal> {
        let Some(decay) = form.decay.filter(|_| form.channels) else { return Err(Refusal::NoMatrices) };
        Ok(DeltaRule {
            time: form.time,
            depth: form.depth,
            width: form.width,
            outer: form.outer,
            decay: Some(Decay { reset: None, ..decay }),
            channels: Some(Channels::ReadAfter),
            reset: decay.reset,
            reads: false,
            column: alone(form.key),
            row: alone(form.key),
            key: form.key,
            value: Factored { factors: form.gain.clone(), ..alone(form.value) },
            init: form.init,
            readout: None,
        })
    }
}

impl DeltaRuleBackward {
    /// The gradient of a recurrence of matrices as that of a rule, or what it lacks.
    pub(super) fn of_matrices(stage: &Stage, form: &MatrixRecurrenceBackward) -> Result<DeltaRuleBackward, Refusal> {
        let states = DeltaRule::unread(&form.states)?;
        states.check_decay(&stage.program)?;
        let own = &form.cotangents;
        let query = alone(own.key);
        // The stage does not compute the sum of this readout; the form needs it to name its tiles.
        let readout = Some(DeltaReadout { value: own.state.0, query: query.clone() });
        let value = Factored { factors: own.gain.clone(), ..alone(own.value) };
        let cotangents = DeltaRule { value, init: own.init, readout, ..states.clone() };
        let (mut outputs, mut sums) = (vec![], vec![]);
        for (kind, output) in form.outputs.iter().zip(&stage.program.outputs) {
            let (kind, sum) = sum_of(&stage.program, form, *kind, output)?;
            outputs.push(kind);
            sums.push(sum);
        }
        let errors = states.clone();
        Ok(DeltaRuleBackward { states, errors, cotangents, query, is_queried: true, sums, totals: vec![], outputs })
    }
}

/// The kind of an output, and the sum that it is a map of: the node, and the factors that it has beside the sum.
fn sum_of(
    program: &Program,
    form: &MatrixRecurrenceBackward,
    kind: Cotangent,
    output: &Output,
) -> Result<(DeltaCotangent, (Value, DeltaSum, Factored)), Refusal> {
    let refused = Err(Refusal::Output { output: output.name.clone() });
    let (kind, node, sum, factors) = match kind {
        Cotangent::Keys => (DeltaCotangent::OverDepth, output.value, DeltaSum::Keys, &form.states.gain[..]),
        Cotangent::Queries => (DeltaCotangent::OverDepth, output.value, DeltaSum::Queries, &form.cotangents.gain[..]),
        Cotangent::Channels => {
            let Some(energies) = energies(program, output.value) else { return refused };
            (DeltaCotangent::OverDepth, energies, DeltaSum::Energies, &[][..])
        }
        Cotangent::Values => {
            let Some((tuple, factors)) = &form.contraction else { return refused };
            let sum = Op::Field(*tuple, 0);
            let Some(node) = program.nodes.iter().position(|node| node.op == sum) else { return refused };
            (DeltaCotangent::OverWidth, Value(node as u32), DeltaSum::Rows, &factors[..])
        }
        Cotangent::Initial if is_decayed(program, output.value) => {
            (DeltaCotangent::Initial, output.value, DeltaSum::Initial, &[][..])
        }
        Cotangent::Initial | Cotangent::Sum(..) | Cotangent::Decay => return refused,
    };
    if factors.iter().any(|value| program.node(*value).axes.contains(form.states.width)) {
        return refused;
    }
    Ok((kind, (node, sum, Factored { factors: factors.to_vec(), ..alone(0) })))
}

/// The sum of states times their cotangents in a product of it and a decay.
fn energies(program: &Program, value: Value) -> Option<Value> {
    let Op::Binary(Binary::Mul, x, y) = program.node(value).op else { return None };
    let is_sum = |v: Value| matches!(program.node(v).op, Op::Field(..));
    let (x, y) = (narrow(program, x), narrow(program, y));
    if is_sum(x) { Some(x) } else { is_sum(y).then_some(y) }
}

/// Whether a value is the first one of a product: of the cotangent of the state after the first step and that step's decay.
fn is_decayed(program: &Program, value: Value) -> bool {
    let Op::First { value, .. } = program.node(value).op else { return false };
    matches!(program.node(value).op, Op::Binary(Binary::Mul, ..))
}
