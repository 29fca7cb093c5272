//! The emission of a tile kernel from a stage and a schedule.

use super::Schedule;
use super::error::{LowerError, Unsound};
use crate::key::Key;
use crate::stage::Stage;
use crate::target::{Isa, Target};
use crate::tile::Kernel;
use crate::verify::verify;

/// The tile kernel of a stage under a schedule, for an instruction set; its symbol is that of its key.
///
/// # Errors
/// [`LowerError`] says what the stage lacks, or that no kernel has such parameters.
pub fn lower(stage: &Stage, schedule: &Schedule, isa: Isa) -> Result<Kernel, LowerError> {
    schedule.lower(stage, isa, &Key::of(stage, &**schedule, isa).symbol(stage, &**schedule))
}

/// The tile kernel of a stage under a schedule, if it keeps the rules of the tile IR on a target.
///
/// # Errors
/// [`Unsound`] says what is wrong with it. A plan takes another schedule then.
pub fn lower_sound(stage: &Stage, schedule: &Schedule, target: &Target) -> Result<Kernel, Unsound> {
    let isa = schedule.isa(target.isa);
    let kernel = lower(stage, schedule, isa)?;
    match verify(&kernel, &Target { isa, ..*target }) {
        Ok(()) => Ok(kernel),
        Err(faults) => Err(Unsound::Invalid(faults)),
    }
}

/// The kernel of the fast-compile tier, which may run until the other one is compiled: it computes the same bits with the same arguments,
/// launches and messages, is slower, but compiled in less than half the time. `None` where none is needed.
///
/// # Errors
/// As [`lower`].
pub fn lower_fast_tier(stage: &Stage, schedule: &Schedule, isa: Isa) -> Result<Option<Kernel>, LowerError> {
    schedule.lower_fast_tier(stage, &Key::of(stage, &**schedule, isa).symbol(stage, &**schedule))
}
