//! Why a schedule cannot run a call.

use std::fmt::{self, Display, Formatter};

use thiserror::Error;

use super::error::Unsound;
use crate::stage::Refusal;

/// Blocks of a grid and tiles of a persistent kernel are counted in 31 bits.
pub(crate) const MAX_COUNT: u64 = i32::MAX as u64;

/// Why a schedule cannot run a stage for the sizes, strides and addresses of a call.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Misfit {
    /// The stage is not of a kind that the schedule takes.
    #[error(transparent)]
    Kind(#[from] Refusal),
    /// The stage keeps no sum over an axis of its states.
    #[error("there is no sum over an axis of states")]
    NoStates,
    /// Nothing is scanned.
    #[error("the scan axis is empty")]
    NothingScanned,
    /// An axis has size 0.
    #[error("{axis} is empty")]
    Empty {
        /// The axis.
        axis: String,
    },
    /// An axis has a size that the schedule is not for.
    #[error("{axis} has size {size}, {wanted}")]
    Size {
        /// The axis.
        axis: String,
        /// Its size.
        size: i64,
        /// The size that is wanted.
        wanted: Wanted,
    },
    /// There is more of something than can be counted.
    #[error("{count} {what} are more than 31 bits count")]
    TooMany {
        /// Their number.
        count: u64,
        /// Of what.
        what: &'static str,
    },
    /// Scratch memory would have more numbers than can be counted.
    #[error("it has more states than 63 bits count")]
    TooManyStates,
    /// A tensor is read elsewhere than at the point along the axis of vectors.
    #[error("`{tensor}` is displaced along {axis}")]
    DisplacedTensor {
        /// The tensor.
        tensor: String,
        /// The axis.
        axis: String,
    },
    /// Some parameter is read elsewhere than at the point along an axis.
    #[error("a parameter is displaced along {axis}")]
    Displaced {
        /// The axis.
        axis: String,
    },
    /// A parameter that is read in tiles is read elsewhere than at the point.
    #[error("a parameter of tiles is displaced")]
    DisplacedTile,
    /// A tensor is not contiguous along the axis of vectors.
    #[error("`{tensor}` has stride {stride} along {axis}")]
    Stride {
        /// The tensor.
        tensor: String,
        /// Its stride there.
        stride: i64,
        /// The axis.
        axis: String,
    },
    /// A tensor's address is not aligned.
    #[error("the address of `{tensor}` is not a multiple of {bytes} bytes")]
    Address {
        /// The tensor.
        tensor: String,
        /// The bytes of an access.
        bytes: i64,
    },
    /// A tensor's stride is not aligned.
    #[error("the stride of `{tensor}` along {axis}, {stride}, is not a multiple of {bytes} bytes")]
    StrideBytes {
        /// The tensor.
        tensor: String,
        /// The axis.
        axis: String,
        /// The stride there, in elements.
        stride: i64,
        /// The bytes of an access.
        bytes: i64,
    },
    /// The device has no bulk copies.
    #[error("{isa} has no bulk copies")]
    NoBulkCopies {
        /// The instruction set.
        isa: &'static str,
    },
    /// The effect of segments of time on states cannot be stored.
    #[error("its states are neither numbers in f32 nor flags: time cannot be cut")]
    StatesOfSegments,
    /// The effect of segments of time on cotangents depends on the states.
    #[error("its cotangents depend on the states: time cannot be cut")]
    CotangentsOfSegments,
    /// The kernel takes more shared memory than there is.
    #[error("it takes {needed} bytes of shared memory, the device has {limit}")]
    SharedMemory {
        /// Bytes that it takes.
        needed: u32,
        /// Bytes that there are.
        limit: u32,
    },
    /// The kernel is not among those that may be taken.
    #[error("its kernel is not there")]
    NotThere,
    /// The kernel cannot run.
    #[error(transparent)]
    Unsound(#[from] Unsound),
}

/// The sizes that an axis may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// At least this.
    AtLeast(i64),
    /// At most this.
    AtMost(i64),
    /// This.
    Exactly(i64),
    /// More: room for this many suffices.
    MoreThan(i64),
    /// A multiple of this.
    MultipleOf(i64),
    /// No multiple of this.
    NoMultipleOf(i64),
    /// Two or more times this.
    SeveralTimes(i64),
}

impl Display for Wanted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::AtLeast(n) => write!(f, "fewer than {n}"),
            Wanted::AtMost(n) => write!(f, "more than {n}"),
            Wanted::Exactly(n) => write!(f, "not {n}"),
            Wanted::MoreThan(n) => write!(f, "for which {n} suffice"),
            Wanted::MultipleOf(n) => write!(f, "not a multiple of {n}"),
            Wanted::NoMultipleOf(n) => write!(f, "a multiple of {n}"),
            Wanted::SeveralTimes(n) => write!(f, "not several times {n}"),
        }
    }
}

impl Misfit {
    /// Whether there are few enough of something.
    pub(crate) fn count(count: u64, what: &'static str) -> Result<(), Misfit> {
        if count > MAX_COUNT { Err(Misfit::TooMany { count, what }) } else { Ok(()) }
    }
}
