//! An estimate of the registers of the walk.

use super::SUBTILE;
use super::tiles::Tiles;
use crate::block::reads::constant_along;
use crate::schedules::StateSpaceBackward;
use crate::stage::Stage;
use crate::stage::kind::BackwardScan;

/// Registers of a multiprocessor, and of a thread at most.
const ALL: u32 = 65_536;
const MOST: u32 = 255;
/// Addresses, guards and counters: what `ptxas` takes beside the numbers counted here.
const OTHERS: usize = 31;
/// For sums over the lanes of a row: registers by lane. For states beside the first in a block of code: registers by state.
const OF_LANE: u32 = 1;
const OF_STATE: u32 = 4;
/// Registers by state where states that may not exist, or warps that are given none by others, leave `ptxas` less room.
const OF_STATE_WHERE_FEW: u32 = 12;

/// Whether a lane of the walk has registers enough; an estimate that agrees with `ptxas` for the standard models.
pub fn has_registers(stage: &Stage, schedule: &StateSpaceBackward) -> bool {
    stage.kind().walk_back().map_or(true, |form| needed(form, schedule) <= bound(schedule))
}

/// The states of a lane that have registers enough where they are walked in one block of code: all, or half of them, and so on. In such a block
/// `ptxas` keeps numbers of one state while it walks the next. An estimate for one row per lane.
pub(super) fn states_at_once(form: &BackwardScan, schedule: &StateSpaceBackward) -> u32 {
    let of_one = needed(form, schedule) + (OF_LANE * schedule.lanes) as usize;
    let has_few = schedule.registers == 0 || schedule.padded && schedule.segmented;
    let of_state = if has_few { OF_STATE_WHERE_FEW } else { OF_STATE };
    let fits = |states: &u32| of_one + (of_state * (states - 1)) as usize <= bound(schedule);
    let mut halves =
        std::iter::successors(Some(schedule.states), |states| Some(states / 2).filter(|states| *states > 0));
    halves.find(fits).unwrap_or(1)
}

/// The registers of a thread that walks.
fn bound(schedule: &StateSpaceBackward) -> usize {
    let threads = schedule.threads() * schedule.blocks;
    let of_all = (ALL / threads / 8 * 8).min(MOST);
    (if schedule.registers > 0 { schedule.registers } else { of_all }) as usize
}

/// A lane's numbers: of eight steps at hand, of its states, of its rows.
fn needed(form: &BackwardScan, schedule: &StateSpaceBackward) -> usize {
    let (rows, states) = (schedule.rows as usize, schedule.states as usize);
    let tiles = Tiles::of(form, &form.walked(), &form.finished());
    let walked = |of_rows: bool, of_states: bool| {
        let own = tiles.tiles.iter().zip(&tiles.walked).filter(|(_, walked)| **walked);
        own.filter(|(tile, _)| (tile.rows, tile.states) == (of_rows, of_states)).count()
    };
    // Values read of a step stay for the next state, whose own are read ahead; beside them decays and products, sums over states.
    let kept = |tiles: usize| if states > 1 { tiles } else { 0 };
    let of_row = kept(walked(true, false) + walked(true, true)) + 2 + form.sums.len();
    let of_step = rows * of_row + kept(walked(false, false) + walked(false, true)) + form.row_sums.len();
    // The state, the saved one that comes next, the cotangent, what does not change in time, sums over time.
    let roots = form.walked();
    let constants = constant_along(&form.program, form.time, roots.iter().copied());
    let of_states = constants.iter().filter(|v| form.program.node(**v).axes.contains(form.state)).count();
    let of_state = 3 + of_states + form.state_totals.len();
    let finished = tiles.walked.iter().filter(|walked| !**walked).count();
    SUBTILE as usize * of_step + rows * states * of_state + form.row_totals.len() + finished + OTHERS
}
