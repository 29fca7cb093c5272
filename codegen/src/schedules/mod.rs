//! The schedules: how a stage runs on a GPU. A folder each, behind one trait.
//!
//! A schedule holds what specialises the code of a kernel; sizes and strides are run-time values. Its parameters are plain data
//! with a text form, which is part of a kernel's key. `vector` is its alignment class: with more than one element per access, the
//! stage's tensors have stride 1 along the *unit axis* and every access is aligned ([`Strategy::unit_axes`]); with one,
//! nothing is assumed.
//!
//! A schedule's folder has:
//!
//! * `parameters.rs`: its numbers, with their text form;
//! * `strategy.rs`: its [`Strategy`], all that the rest of the compiler knows of it: the stages that it takes, what it fits, how
//!   many blocks, tiles and segments there are, its words and its picture;
//! * `candidates.rs`: the parameters that a plan may choose; `cost.rs`: what they cost;
//! * `mod.rs` and the others: the emission of its kernels.
//!
//! To add a schedule, add its folder, with a `mod` and a line of the list in this file.

#[macro_use]
mod text;
#[macro_use]
mod list;

pub mod chunk_delta;
pub mod chunk_delta_backward;
pub mod chunkwise;
pub mod chunkwise_backward;
pub mod columns;
mod constants;
mod cost;
mod emit;
mod error;
pub mod flash;
pub mod lookback;
pub mod map;
mod misfit;
pub mod picture;
mod pieces;
mod problem;
pub mod recurrence;
pub mod rows;
mod segments;
mod shape;
pub mod state_space;
pub mod state_space_backward;
pub(crate) mod strategy;
#[cfg(test)]
mod tests;
mod unit;

pub use chunk_delta::RuleSweep;
pub use chunk_delta_backward::DeltaSweep;
pub use chunkwise_backward::Sweep;
pub use columns::Form;
pub use constants::{Constants, ConstantsError};
pub use cost::{Cost, Memory};
pub use emit::{lower, lower_fast_tier, lower_sound};
pub use error::{LowerError, Unsound};
pub use lookback::{Fold, Loader};
pub use misfit::{Misfit, Wanted};
pub use pieces::Piece;
pub use problem::Problem;
pub use segments::Segments;
pub use state_space_backward::Pass;
pub use strategy::{Access, Saving, Strategy};
pub use text::ParseScheduleError;
pub use unit::Unit;

use crate::stage::{Refusal, Stage};
use crate::target::Isa;

schedules! {
    /// No scan: every thread computes its own elements.
    map::Map,
    /// A row by the lanes of one or several warps, tile after tile, the carry in registers.
    rows::Rows,
    /// Long rows in one pass: tiles of many blocks publish their aggregates, and fold those of their predecessors.
    lookback::LookBack,
    /// Lanes along an axis that is not scanned, time in registers.
    columns::Columns,
    /// A scan whose states are summed away: states in registers, time walked step by step.
    state_space::StateSpace,
    /// Sums over all pairs of a row and a column, by matrix products.
    flash::Flash,
    /// Two scans in opposite directions whose states are summed away.
    state_space_backward::StateSpaceBackward,
    /// A recurrence of matrices in chunks, by matrix products.
    chunkwise::Chunkwise,
    /// The gradient of such a recurrence.
    chunkwise_backward::ChunkwiseBackward,
    /// A recurrence whose state is multiplied by a matrix at every step, state by state.
    recurrence::Recurrence,
    /// A delta rule in chunks, by matrix products.
    chunk_delta::ChunkDelta,
    /// The gradient of a delta rule in chunks, by matrix products.
    chunk_delta_backward::ChunkDeltaBackward,
}
