//! Time cut into segments with blocks of their own, for recurrences whose states are summed away.

use crate::stage::Bound;
use super::geometry::length;
use super::{state_space, state_space_backward};
use crate::schedule::{Pass, Schedule, StateSpace, StateSpaceBackward};
use crate::stage::Stage;
use crate::target::Target;

/// How a schedule cuts time.
#[derive(Clone, Copy)]
pub(super) struct Segments {
    /// How many there are.
    pub count: u64,
    /// Tiles of each; the last one may have fewer.
    pub tiles: u64,
    /// Whether states are saved in one piece all the same, as the rows suffice for that.
    saves_whole: bool,
}

impl Segments {
    /// As many as make a stage's kernels fastest, for a schedule with segments; else one.
    pub(super) fn of(stage: &Stage, schedule: &Schedule, bound: &Bound, target: &Target) -> Segments {
        let tiles = |steps: u32| length(stage, bound).div_ceil(u64::from(steps)).max(1);
        match schedule {
            Schedule::StateSpace(s) if s.segmented => {
                let walk = state_space::Walk::of(stage, s, bound, target);
                Segments::fastest(tiles(s.steps), walk.most_segments(), |segments| walk.micros(segments))
            }
            Schedule::StateSpace(s) => Segments::one(tiles(s.steps)),
            Schedule::StateSpaceBackward(s) if s.segmented => {
                let work = state_space_backward::Work::of(stage, s, bound, target);
                let best =
                    Segments::fastest(tiles(s.steps), work.most_segments(), |segments| work.of_segments(segments));
                let saves_whole = work.save(Segments::one(tiles(s.steps))) <= work.save(best);
                Segments { saves_whole, ..best }
            }
            Schedule::StateSpaceBackward(s) => Segments::one(tiles(s.steps)),
            _ => Segments::one(1),
        }
    }

    /// All tiles in one.
    fn one(tiles: u64) -> Segments {
        Segments { count: 1, tiles, saves_whole: false }
    }

    /// The segments of the passes that save states.
    pub(super) fn saving(self) -> Segments {
        if self.saves_whole { Segments::one(self.tiles * self.count) } else { self }
    }

    /// The segments of one kernel of a schedule.
    pub(super) fn of_kernel(self, schedule: &Schedule) -> Segments {
        match schedule {
            Schedule::StateSpaceBackward(StateSpaceBackward { pass: Pass::Ends | Pass::Save, .. }) => self.saving(),
            _ => self,
        }
    }

    /// At least two where there are tiles for them: one segment is what the schedule without them is for.
    fn fastest(tiles: u64, most: u64, micros: impl Fn(Segments) -> f64) -> Segments {
        let [least, most] = [2, most].map(|n| n.min(tiles));
        let of_count = |count: u64| {
            let each = tiles.div_ceil(count);
            Segments { count: tiles.div_ceil(each), tiles: each, saves_whole: false }
        };
        let best = (least..=most.max(least)).map(of_count).min_by(|a, b| micros(*a).total_cmp(&micros(*b)));
        best.unwrap_or(Segments::one(tiles))
    }

    /// Blocks along time of one kernel of a schedule: those that find what segments do to what they are given leave out the one
    /// that nothing waits for.
    pub(super) fn blocks(self, schedule: &Schedule) -> u32 {
        let count = match schedule {
            Schedule::StateSpace(StateSpace { ends: true, .. })
            | Schedule::StateSpaceBackward(StateSpaceBackward { pass: Pass::Ends | Pass::Carry, .. }) => {
                self.count.saturating_sub(1)
            }
            Schedule::StateSpace(_)
            | Schedule::StateSpaceBackward(StateSpaceBackward { pass: Pass::Save | Pass::Walk, .. }) => self.count,
            _ => 1,
        };
        count as u32
    }
}
