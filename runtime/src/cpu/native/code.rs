//! Functions from LLVM.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use oplus_dsl::Ty;
pub(super) use oplus_llvm::host::Float;
use oplus_llvm::host::{self, Source, Sweep};

use super::write::{Written, WrittenMaps, write, write_maps};
use super::{LANES, LARGE, Maps, Native, Output, Refusal, Starts, Steps, Tensors};
use crate::cpu::plan::Stage;

/// The function of a sweep.
#[derive(Clone, Debug)]
pub(super) struct Function(host::Function);

impl Function {
    /// Whether it takes lanes of so many steps.
    pub(super) fn takes(&self, steps: usize) -> bool {
        self.0.takes(steps)
    }

    /// How many numbers the squares have that are kept from one sweep to another, of lanes of so many steps.
    pub(super) fn squares(&self, steps: usize) -> usize {
        self.0.squares(steps)
    }

    /// How many lanes it goes through at once.
    pub(super) fn group(&self) -> usize {
        self.0.group()
    }

    /// Whether outputs can be written past the caches.
    pub(super) fn streams<T: Float>(&self, steps: usize, outputs: &[&mut [T]]) -> bool {
        self.0.streams(steps, outputs)
    }

    /// Takes all steps of every lane.
    pub(super) fn call<T: Float>(&self, steps: Steps, tensors: Tensors<'_, '_, T>) {
        let Steps { of_lane, leaves_out, streams } = steps;
        let Tensors { inputs, outputs, starts, last, ends, squares } = tensors;
        let tensors = host::Tensors { inputs, outputs, starts, last, ends, squares };
        self.0.call(host::Steps { of_lane, leaves_out, streams }, tensors);
    }
}

/// The code of a stage, if it has a form for it.
///
/// # Errors
/// [`Refusal`].
pub(super) fn of(stage: &Stage) -> Result<Option<Native>, Refusal> {
    const { assert!(LANES == host::LANES) };
    let (Some(streamed), Some(written)) = (stage.streamed, write(stage)) else { return Ok(None) };
    let Written { at, joined, others, outputs, ty, totals, results, starts: [of_results, of_totals], openings } =
        written;
    let starts = [starts_of(&of_results)?, starts_of(&of_totals)?];
    let elements = totals.inputs.len();
    let (totals, results) = (function(&totals)?, function(&results)?);
    let openings = openings.map(|[a, b]| Ok([function(&a)?, function(&b)?])).transpose()?;
    let (axis, is_reversed) = (streamed.axis, streamed.reverse);
    let streams =
        bytes_of(stage, outputs.len(), ty) >= LARGE && outputs.iter().all(|output| matches!(output, Output::Store(_)));
    Ok(Some(Native {
        at,
        joined,
        others,
        elements,
        outputs,
        ty,
        axis,
        is_reversed,
        streams,
        totals,
        results,
        starts,
        openings,
    }))
}

/// The code of a stage's maps and stores, if it has a form for it and results that are written past the caches.
///
/// # Errors
/// [`Refusal`].
pub(super) fn maps(stage: &Stage) -> Result<Option<Maps>, Refusal> {
    let Some(written) = write_maps(stage) else { return Ok(None) };
    let WrittenMaps { at, axis, joined, inputs, outputs, ty, sweep } = written;
    if bytes_of(stage, outputs.len(), ty) < LARGE {
        return Ok(None);
    }
    Ok(Some(Maps { at, joined, inputs, outputs, ty, axis, function: function(&sweep)? }))
}

/// How many bytes so many results have.
fn bytes_of(stage: &Stage, outputs: usize, ty: Ty) -> usize {
    let bytes = if ty == Ty::F32 { size_of::<f32>() } else { size_of::<f64>() };
    stage.sizes.iter().fold(outputs * bytes, |all, size| all.saturating_mul(*size))
}

fn starts_of(sweep: &Sweep) -> Result<Starts, Refusal> {
    let field = |source: &Source| if let Source::Before(field) = source { Some(*field) } else { None };
    Ok(Starts { kept: sweep.outputs.iter().filter_map(field).collect(), function: function(sweep)? })
}

/// The function of a sweep, which is compiled once in a process.
fn function(sweep: &Sweep) -> Result<Function, Refusal> {
    static KNOWN: OnceLock<Mutex<HashMap<Sweep, Result<Function, Refusal>>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let compiled = || host::compile(sweep).map(Function).map_err(|error| Refusal { reason: error.to_string() });
    known.entry(sweep.clone()).or_insert_with(compiled).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_llvm_refuses_is_said_in_its_words() {
        let sweep = Sweep {
            number: host::Number::F32,
            is_reversed: false,
            lanes: LANES,
            inputs: vec![],
            nodes: vec![],
            next: vec![Some(Source::Input(3))],
            after: vec![],
            outputs: vec![],
            may_leave_out: false,
            is_closed: false,
            keeps: false,
        };
        let refusal = function(&sweep).unwrap_err();
        let words = "LLVM has made no machine code for these steps: cannot be lowered: there is no Input(3)";
        assert_eq!(refusal.to_string(), words);
        assert_eq!(function(&sweep).unwrap_err(), refusal, "the second time it is known");
    }
}
