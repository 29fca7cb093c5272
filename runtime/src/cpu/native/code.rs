//! Functions from LLVM.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use oplus_dsl::Ty;
pub(super) use oplus_llvm::host::Float;
use oplus_llvm::host::{self, Source, Sweep};

use super::write::{Written, write};
use super::{LANES, LARGE, Native, Output, Starts, Steps, Tensors};
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
pub(super) fn of(stage: &Stage) -> Option<Native> {
    const { assert!(LANES == host::LANES) };
    let Written { at, joined, others, outputs, ty, totals, results, starts } = write(stage)?;
    let [of_results, of_totals] = starts.map(|sweep| starts_of(&sweep));
    let (totals, results, starts) = (function(&totals)?, function(&results)?, [of_results?, of_totals?]);
    let (axis, is_reversed) = (stage.streamed?.axis, stage.streamed?.reverse);
    let bytes = if ty == Ty::F32 { size_of::<f32>() } else { size_of::<f64>() };
    let all = stage.sizes.iter().fold(outputs.len() * bytes, |all, size| all.saturating_mul(*size));
    let streams = all >= LARGE && outputs.iter().all(|output| matches!(output, Output::Store(_)));
    Some(Native { at, joined, others, outputs, ty, axis, is_reversed, streams, totals, results, starts })
}

fn starts_of(sweep: &Sweep) -> Option<Starts> {
    let field = |source: &Source| if let Source::Before(field) = source { Some(*field) } else { None };
    Some(Starts { kept: sweep.outputs.iter().filter_map(field).collect(), function: function(sweep)? })
}

/// The function of a sweep, which is compiled once in a process; `None` where LLVM has no code for it.
fn function(sweep: &Sweep) -> Option<Function> {
    static KNOWN: OnceLock<Mutex<HashMap<Sweep, Option<Function>>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(sweep.clone()).or_insert_with(|| host::compile(sweep).ok().map(Function)).clone()
}
