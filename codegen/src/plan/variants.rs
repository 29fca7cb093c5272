//! The schedules that a stage may run under.

use crate::lower::carry::words;
use crate::lower::reads::displacements;
use crate::stage::Stage;

/// Registers of 32 bits that one element of a scan takes in a thread: its parameters, or its fields if those are more.
pub fn words_per_element(stage: &Stage) -> u32 {
    let Some(scan) = stage.scan() else { return stage.program.params.len() as u32 };
    let outputs = stage.program.outputs.iter().map(|o| o.value);
    let params = displacements(stage, scan.axis, outputs.chain(scan.elements.iter().copied())).into_keys();
    let params: Vec<_> = params.map(|p| stage.program.params[p as usize].elem.value()).collect();
    let fields: Vec<_> = stage.program.operator(scan.operator).fields.iter().map(|f| f.ty).collect();
    words(&params).max(words(&fields))
}
