//! The cost of the passes.
//!
//! As for a [walk in one direction](crate::schedules::state_space), issue slots are the limit: those of the walk, and of the
//! passes before it. Where rows are too few to fill the device, time is cut into segments: every multiprocessor has blocks
//! then, and for that a pass more.

use super::{Pass, StateSpaceBackward, before, passes};
use crate::schedules::constants::Constants;
use crate::schedules::cost::Cost;
use crate::schedules::problem::Problem;
use crate::schedules::segments::Segments;
use crate::schedules::strategy::Strategy;
use crate::target::WARP;
use crate::words::counted;

/// Schedulers of a multiprocessor.
const SCHEDULERS: f64 = 4.0;

/// The work of the passes of a schedule.
pub(super) struct Work<'a> {
    passes: [StateSpaceBackward; 2],
    /// Blocks of a segment, of the passes before the walk and of the walk.
    blocks: [u64; 2],
    multiprocessors: u64,
    constants: &'a Constants,
}

impl<'a> Work<'a> {
    pub(super) fn of(schedule: &StateSpaceBackward, problem: &Problem<'a>) -> Work<'a> {
        let passes = [before(schedule, Pass::Save), StateSpaceBackward { pass: Pass::Walk, ..*schedule }];
        let blocks = passes.map(|own| own.blocks(problem));
        let (multiprocessors, constants) = (u64::from(problem.target.multiprocessors), problem.constants);
        Work { passes, blocks, multiprocessors, constants }
    }

    fn schedule(&self) -> &StateSpaceBackward {
        &self.passes[1]
    }

    /// Segments that are worth an estimate: about twice as many as fill the device.
    pub(super) fn most_segments(&self) -> u64 {
        2 * self.multiprocessors * u64::from(self.schedule().blocks) / self.blocks[1].max(1) + 1
    }

    /// Microseconds of blocks of some tiles, for issue slots per update and per step of a row; and walking warps of a
    /// multiprocessor.
    fn micros(&self, own: &StateSpaceBackward, [update, step]: [f64; 2], blocks: u64, tiles: u64) -> (f64, f64) {
        let Constants { backward_latency, backward_latency_of_one, backward_block, clock, .. } = *self.constants;
        let of_one = blocks.div_ceil(self.multiprocessors) as f64;
        let resident = f64::from(own.blocks).min(of_one).max(1.0);
        let warps = resident * f64::from(own.warps);
        let latency = if warps >= 2.0 * SCHEDULERS { backward_latency } else { backward_latency_of_one };
        let steps = f64::from(own.block_rows() * own.steps) * tiles as f64;
        let slots = steps * (update * f64::from(own.capacity()) + step) / f64::from(WARP);
        let micros = of_one * slots / SCHEDULERS.min(warps) / clock * latency;
        (micros + of_one / resident * backward_block, warps)
    }

    fn walk(&self, segments: Segments) -> (f64, f64) {
        let Constants { backward_walk_update, backward_walk_step, backward_one_row, .. } = *self.constants;
        let more = if self.schedule().rows == 2 { 1.0 } else { backward_one_row };
        let walk = [backward_walk_update, backward_walk_step];
        self.micros(self.schedule(), walk.map(|slots| slots * more), self.blocks[1] * segments.count, segments.tiles)
    }

    /// The passes that find the ends of segments and save the states.
    pub(super) fn save(&self, segments: Segments) -> f64 {
        let blocks = self.blocks[0] * segments.count;
        let slots = [self.constants.backward_save_update, self.constants.backward_save_step];
        self.before(slots, segments) + self.micros(&self.passes[0], slots, blocks, segments.tiles).0
    }

    fn carry(&self, segments: Segments) -> f64 {
        self.before([self.constants.backward_carry_update, self.constants.backward_carry_step], segments)
    }

    /// A pass that finds the carries of all segments but one, and the time to take them up.
    fn before(&self, slots: [f64; 2], segments: Segments) -> f64 {
        if segments.count == 1 {
            return 0.0;
        }
        let blocks = self.blocks[0] * (segments.count - 1);
        self.constants.launch
            + self.micros(&self.passes[0], slots, blocks, segments.tiles).0
            + self.constants.backward_join * segments.count as f64
    }

    pub(super) fn of_segments(&self, segments: Segments) -> f64 {
        self.walk(segments).0 + self.carry(segments)
    }
}

/// Microseconds of all passes, and why.
pub(super) fn estimate(schedule: &StateSpaceBackward, problem: &Problem<'_>) -> Cost {
    let segments = schedule.segments(problem);
    let work = Work::of(schedule, problem);
    let save = work.save(segments.saving());
    let ((walk, warps), carry) = (work.walk(segments), work.carry(segments));
    let launches = passes(problem.stage, schedule).len();
    let cut = match segments.count {
        1 => String::new(),
        count => format!(", carries {carry:.0} µs for {count} segments of {}", counted(segments.tiles, "tile")),
    };
    let why = format!(
        "{}: states {save:.0} µs{cut}, walk {walk:.0} µs, {} per multiprocessor",
        counted(launches, "launch"),
        counted(warps, "warp")
    );
    Cost { micros: walk + carry + save, why }
}
