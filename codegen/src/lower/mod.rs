//! From a stage and a schedule to a tile kernel.

pub mod args;
pub mod carry;
pub mod columns;
pub mod lookback;
pub mod persistent;
pub mod point;
pub mod scalar;

use crate::schedule::Schedule;
use thiserror::Error;

/// Why a stage has no kernel under a schedule.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum LowerError {
    /// The schedule needs a scan.
    #[error("the schedule `{schedule}` needs a scan, and the stage has none")]
    NoScan {
        /// The schedule's name.
        schedule: &'static str,
    },
    /// The schedule's numbers are out of range.
    #[error("`{schedule}` has numbers that no kernel can have")]
    Parameters {
        /// The schedule.
        schedule: Schedule,
    },
}
