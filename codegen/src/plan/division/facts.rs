//! Facts of stages that are found once, whichever cuts the stages are in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use crate::key::StageKey;
use crate::plan::variants::all_schedules;
use crate::schedules::{Access, Schedule};
use crate::stage::Stage;
use crate::target::Isa;

/// Facts of a stage that follow from its program, its views and its axis of partial sums.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The common part of the keys of its kernels, found when a launch needs it.
    key: OnceLock<StageKey>,
    /// The schedules that plans may choose from: where no axes could be merged, and where some could but are not.
    schedules: OnceLock<Vec<Schedule>>,
    unmerged: OnceLock<Vec<Schedule>>,
    /// The shared memory of kernels that a plan has weighed.
    shared_bytes: Mutex<HashMap<Schedule, u32>>,
}

impl Facts {
    /// The common part of the keys of the stage's kernels.
    pub(super) fn key(&self, stage: &Stage) -> &StageKey {
        self.key.get_or_init(|| StageKey::of(stage))
    }

    /// The schedules of the stage in its simplest form.
    pub(super) fn schedules(&self, stage: &Stage, isa: Isa) -> Vec<Schedule> {
        self.schedules.get_or_init(|| all_schedules(stage, isa)).clone()
    }

    /// The schedules of the stage where axes could be merged, but are not.
    pub(super) fn unmerged(&self, stage: &Stage, isa: Isa) -> Vec<Schedule> {
        self.unmerged.get_or_init(|| Schedule::candidates(stage, isa, Access::Unmerged)).clone()
    }

    /// The shared memory of the stage's kernel under a schedule, in bytes.
    pub(super) fn shared_bytes(&self, stage: &Stage, schedule: Schedule, isa: Isa) -> u32 {
        let mut known = self.shared_bytes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *known.entry(schedule).or_insert_with(|| schedule.shared_bytes(stage, isa))
    }
}

/// The different stages of a planner, and their facts. Cuts of a program have many stages in common.
#[derive(Debug, Default)]
pub(in crate::plan) struct KnownStages(Vec<(Arc<Stage>, Arc<Facts>)>);

impl KnownStages {
    /// The facts of a stage: those of an equal one that is known.
    pub(super) fn facts(&mut self, stage: &Arc<Stage>) -> Arc<Facts> {
        let equal = |(known, _): &&(Arc<Stage>, Arc<Facts>)| {
            let final_states = |stage: &Stage| stage.has_final_states().then(|| stage.state_axis());
            let of = |stage: &Stage| (stage.partial_axis, stage.sequences(), final_states(stage));
            of(known) == of(stage) && known.views == stage.views && known.program == stage.program
        };
        if let Some((_, facts)) = self.0.iter().find(equal) {
            return facts.clone();
        }
        let facts = Arc::new(Facts::default());
        self.0.push((stage.clone(), facts.clone()));
        facts
    }
}
