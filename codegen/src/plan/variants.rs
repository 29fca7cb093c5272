//! The stages and schedules that plans may launch: those of a stage with merged axes (where there are such), with vector and
//! scalar accesses, and scalar ones of the stage as it is.

use std::collections::BTreeSet;

use crate::schedules::{Access, Schedule};
use crate::stage::{Stage, collapse};
use crate::target::Isa;

/// Every stage and schedule that a plan of this stage may use on an instruction set.
pub fn variants(stage: &Stage, isa: Isa) -> Vec<(Stage, Schedule)> {
    let with = |stage: &Stage, schedules: Vec<Schedule>| {
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let all = schedules.into_iter().flat_map(|s| s.kernels(stage, isa));
        all.filter(|s| seen.insert(s.to_string())).map(|s| (stage.clone(), s)).collect::<Vec<_>>()
    };
    match collapse(stage) {
        None => with(stage, all_schedules(stage, isa)),
        Some(merged) => {
            let mut all = with(&merged.stage, all_schedules(&merged.stage, isa));
            all.extend(with(stage, Schedule::candidates(stage, isa, Access::Unmerged)));
            all
        }
    }
}

/// The schedules of a stage in its simplest form.
pub(super) fn all_schedules(stage: &Stage, isa: Isa) -> Vec<Schedule> {
    [Access::Vectors, Access::Singles].into_iter().flat_map(|access| Schedule::candidates(stage, isa, access)).collect()
}

/// A stage and schedule that any call may take, whatever its sizes, strides and addresses, on every device; `None` where
/// there is none, as for fused sums.
pub fn general_variant(stage: &Stage) -> Option<(Stage, Schedule)> {
    Schedule::general(stage).map(|schedule| (stage.clone(), schedule))
}

/// Every stage and schedule that an ordered plan of this stage may use.
pub fn ordered_variants(stage: &Stage) -> Vec<(Stage, Schedule)> {
    Schedule::ordered(stage).into_iter().map(|schedule| (stage.clone(), schedule)).collect()
}
