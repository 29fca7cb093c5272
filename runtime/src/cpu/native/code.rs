//! Functions from LLVM.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

pub(super) use oplus_llvm::host::Float;
use oplus_llvm::host::{self, Source, Sweep, Tensors};

use super::write::{Written, write};
use super::{LANES, Native, Starts};
use crate::cpu::plan::Stage;

/// The function of a sweep.
#[derive(Clone, Debug)]
pub(super) struct Function(host::Function);

impl Function {
    /// Whether it takes lanes of so many steps.
    pub(super) fn takes(&self, steps: usize) -> bool {
        self.0.takes(steps)
    }

    /// Takes so many steps of every lane, perhaps without the first of the first lane. Tensors are those of the sweep; `starts` and `ends` have a
    /// number for each lane and field, and `last` is the state that the last lane ends with, if it is given.
    pub(super) fn call<T: Float>(
        &self,
        (steps, leaves_out): (usize, bool),
        (inputs, outputs): (&[&[T]], &mut [&mut [T]]),
        [starts, last]: [&[T]; 2],
        ends: &mut [T],
    ) {
        self.0.call(steps, leaves_out, Tensors { inputs, outputs, starts, last, ends });
    }
}

/// The code of a stage, if it has a form for it.
pub(super) fn of(stage: &Stage) -> Option<Native> {
    const { assert!(LANES == host::LANES) };
    let Written { at, joined, others, outputs, ty, totals, results, starts } = write(stage)?;
    let [of_results, of_totals] = starts.map(|sweep| starts_of(&sweep));
    let (totals, results, starts) = (function(&totals)?, function(&results)?, [of_results?, of_totals?]);
    let axis = stage.streamed?.axis;
    Some(Native { at, joined, others, outputs, ty, axis, totals, results, starts })
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
