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

/// Whether a lane of the walk has registers enough; an estimate that agrees with `ptxas` for the standard models.
pub fn has_registers(stage: &Stage, schedule: &StateSpaceBackward) -> bool {
    let threads = schedule.threads() * schedule.blocks;
    let bound = if schedule.registers > 0 { schedule.registers } else { (ALL / threads / 8 * 8).min(MOST) };
    stage.kind().walk_back().map_or(true, |form| needed(form, schedule) <= bound as usize)
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
