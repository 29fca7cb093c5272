//! The schedules, a folder each, and the emission of a tile kernel from a stage and a schedule.

pub mod chunkwise;
pub mod chunkwise_backward;
pub mod columns;
pub mod flash;
pub mod lookback;
pub mod map;
pub mod rows;
pub mod state_space;
pub mod state_space_backward;

use crate::key::Key;
use crate::schedule::Schedule;
use crate::stage::{Refusal, Stage};
use crate::target::{Isa, Target};
use crate::tile::Kernel;
use crate::verify::{VerifyError, verify};
use thiserror::Error;

/// The tile kernel of a stage under a schedule, for an instruction set; its symbol is that of its key.
pub fn lower(stage: &Stage, schedule: &Schedule, isa: Isa) -> Result<Kernel, LowerError> {
    let symbol = Key::of(stage, schedule, isa).symbol(stage, schedule);
    match schedule {
        Schedule::Map(s) => map::lower(stage, s, &symbol),
        Schedule::Rows(s) => rows::lower(stage, s, &symbol),
        Schedule::LookBack(s) => lookback::lower(stage, s, &symbol, lookback::Form::Fast),
        Schedule::Columns(s) => columns::lower(stage, s, &symbol),
        Schedule::StateSpace(s) => state_space::lower(stage, s, &symbol),
        Schedule::Flash(s) => flash::lower(stage, s, &symbol),
        Schedule::StateSpaceBackward(s) => state_space_backward::lower(stage, s, &symbol),
        Schedule::Chunkwise(s) => chunkwise::lower(stage, s, &symbol),
        Schedule::ChunkwiseBackward(s) => chunkwise_backward::lower(stage, s, isa, &symbol),
    }
}

/// That kernel, if it keeps the rules of the tile IR on a target.
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

/// A kernel that may stand in for that one until it is compiled: it computes the same bits with the same arguments,
/// launches and messages, is slower, but compiled in less than half the time. Only look-back has kernels so long that it
/// is needed.
pub fn stand_in(stage: &Stage, schedule: &Schedule, isa: Isa) -> Result<Option<Kernel>, LowerError> {
    let Schedule::LookBack(look_back) = schedule else { return Ok(None) };
    let symbol = Key::of(stage, schedule, isa).symbol(stage, schedule);
    lookback::lower(stage, look_back, &symbol, lookback::Form::Short).map(Some)
}

/// The shared memory of that kernel, in bytes.
pub fn shared_bytes(stage: &Stage, schedule: &Schedule, isa: Isa) -> u32 {
    match schedule {
        Schedule::Map(_) => 0,
        Schedule::Rows(s) => rows::shared_bytes(stage, s),
        Schedule::LookBack(s) => lookback::shared_bytes(stage, s),
        Schedule::Columns(s) => columns::shared_bytes(stage, s),
        Schedule::StateSpace(s) => state_space::shared_bytes(stage, s),
        Schedule::Flash(s) => flash::shared_bytes(stage, s),
        Schedule::StateSpaceBackward(s) => state_space_backward::shared_bytes(stage, s),
        Schedule::Chunkwise(s) => chunkwise::shared_bytes(stage, s),
        Schedule::ChunkwiseBackward(s) => chunkwise_backward::shared_bytes(stage, s, isa),
    }
}

/// Why a schedule gives a stage no kernel that can run.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Unsound {
    /// There is no such kernel.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The kernel breaks rules of the tile IR: a fault of the lowering, which another schedule may not have.
    #[error("its kernel is not valid: {}", first(.0))]
    Invalid(Vec<VerifyError>),
}

/// The first fault, and how many there are besides.
fn first(faults: &[VerifyError]) -> String {
    let more = faults.len().saturating_sub(1);
    let first = faults.first().map(ToString::to_string).unwrap_or_default();
    if more > 0 { format!("{first}, and {more} more") } else { first }
}

/// Why a stage has no kernel under a schedule.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum LowerError {
    /// The schedule needs a scan.
    #[error("the schedule `{schedule}` needs a scan, and the stage has none")]
    NoScan {
        /// The schedule's name.
        schedule: &'static str,
    },
    /// The schedule is for stages without a scan.
    #[error("the schedule `{schedule}` is for stages without a scan")]
    HasScan {
        /// The schedule's name.
        schedule: &'static str,
    },
    /// The stage is not of a kind that the schedule takes.
    #[error("the schedule `{schedule}` does not take the stage: {refusal}")]
    Kind {
        /// The schedule's name.
        schedule: &'static str,
        /// What the stage lacks.
        refusal: Refusal,
    },
    /// The schedule's numbers are out of range.
    #[error("`{schedule}` has numbers that no kernel can have")]
    Parameters {
        /// The schedule.
        schedule: Schedule,
    },
}
