//! Gated linear attention as a delta rule whose steps read nothing of the state.
//!
//! S\[t\] = w\[t\]·S\[t−1\] + y\[t\]·k\[t\]⊗x\[t\], with a decay for each time and channel of the key (Yang et al., "Gated linear attention
//! transformers with hardware-efficient training", 2023, §4). Where all channels have one decay, larger chunks take less time.

use super::delta::{Channels, DeltaRule, Factored};
use super::matrix::{Decay, MatrixRecurrence};
use crate::stage::{Refusal, Stage};
use oplus_dsl::ir::{Op, Value};

impl DeltaRule {
    /// The rule that a recurrence of matrices is, or what it lacks.
    pub(super) fn of_matrices(stage: &Stage, form: &MatrixRecurrence) -> Result<DeltaRule, Refusal> {
        let decay = form.decay.filter(|_| form.channels).ok_or(Refusal::NoMatrices)?;
        let key = Factored { param: form.key, factors: vec![], negative: false };
        let rule = DeltaRule {
            time: form.time,
            depth: form.depth,
            width: form.width,
            outer: form.outer,
            decay: Some(Decay { reset: None, ..decay }),
            channels: Some(Channels::ReadAfter),
            reset: decay.reset,
            reads: false,
            column: key.clone(),
            row: key,
            key: form.key,
            value: Factored { param: form.value, factors: form.gain.clone(), negative: false },
            init: form.init,
            readout: None,
        };
        let state = Op::Field(form.state.0, form.state.1);
        let states = stage.program.nodes.iter().position(|node| node.op == state).map(|at| Value(at as u32));
        let readout = rule.find(&stage.program).readout(stage, states)?;
        let rule = DeltaRule { readout, ..rule };
        rule.check(stage)?;
        Ok(rule)
    }
}
