//! The faults that a simulation can find.

use std::fmt;

use crate::tile::path::Path;
use crate::verify::VerifyError;

/// Why a simulation stopped.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// The kernel is not well formed.
    #[error("the kernel is not well formed:{}", .0.iter().map(|e| format!("\n  {e}")).collect::<String>())]
    Invalid(Vec<VerifyError>),
    /// An argument does not suit its parameter.
    #[error("argument {index}: {reason}")]
    Argument {
        /// Its index.
        index: usize,
        /// The fault, in words.
        reason: String,
    },
    /// A thread did what it must not.
    #[error(transparent)]
    Fault(Box<Fault>),
    /// No warp can ever go on.
    #[error("no warp can go on:{}", .0.iter().map(|w| format!("\n  {w}")).collect::<String>())]
    Deadlock(Vec<Waiting>),
    /// The kernel ran for longer than the options allow.
    #[error("not finished after {0} statements")]
    Limit(u64),
}

/// A thread that did what it must not.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{path} `{line}`: block ({}, {}), warp {warp}, lane {lane}: {hazard}", block[0], block[1])]
pub struct Fault {
    /// The statement.
    pub path: Path,
    /// Its text.
    pub line: String,
    /// The block.
    pub block: [u32; 2],
    /// The warp in the block.
    pub warp: usize,
    /// The lane in the warp.
    pub lane: usize,
    /// The fault, in words.
    pub hazard: Hazard,
}

/// A warp that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The statement.
    pub path: Path,
    /// Its text.
    pub line: String,
    /// The block.
    pub block: [u32; 2],
    /// The warp in the block.
    pub warp: usize,
    /// The thing that is missing.
    pub missing: String,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waiting { path, line, block: [x, y], warp, missing } = self;
        write!(f, "{path} `{line}`: block ({x}, {y}), warp {warp}: {missing}")
    }
}

/// The things that a thread must not do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Hazard {
    /// An access outside an array.
    #[error("{array}[{index}] is outside the {len} elements")]
    OutOfBounds {
        /// The array.
        array: String,
        /// The first element of the access.
        index: i64,
        /// Elements of the array.
        len: usize,
    },
    /// An access at an address that is not a multiple of its size.
    #[error("{array}[{index}] is not at a multiple of {bytes} bytes")]
    Misaligned {
        /// The array.
        array: String,
        /// The first element of the access.
        index: i64,
        /// The alignment that the access needs.
        bytes: usize,
    },
    /// A read of what nobody wrote.
    #[error("{array}[{index}] was never written")]
    Unwritten {
        /// The array.
        array: String,
        /// The element.
        index: usize,
    },
    /// Two accesses of one element, at least one of them a write, without an order between them.
    #[error("{array}[{index}] races with {with}")]
    Race {
        /// The array.
        array: String,
        /// The element.
        index: usize,
        /// The earlier access.
        with: Box<Party>,
    },
    /// An access of what an asynchronous copy still reads or writes, as far as the thread knows.
    #[error("{array}[{index}] belongs to a copy that has not been waited for: {with}")]
    InFlight {
        /// The array.
        array: String,
        /// The element.
        index: usize,
        /// The copy.
        with: Box<Party>,
    },
    /// An asynchronous copy of what was written without a fence since.
    #[error("{array}[{index}] was not fenced for asynchronous copies since {with}")]
    Unfenced {
        /// The array.
        array: String,
        /// The element.
        index: usize,
        /// The write.
        with: Box<Party>,
    },
    /// A statement for whole warps in a divergent branch.
    #[error("only lanes {0:#010x} are here")]
    Diverged(u32),
    /// Warps wait at one barrier for different numbers of threads.
    #[error("barrier {id} for {threads} threads, but others wait there for {others}")]
    BarrierCount {
        /// The barrier.
        id: u32,
        /// This warp's count.
        threads: u32,
        /// The others' count.
        others: u32,
    },
    /// An mbarrier used before its initialisation is known to the thread.
    #[error("{0} is not initialised, as far as this thread knows")]
    NoMbarrier(String),
    /// An mbarrier initialised twice.
    #[error("{0} is initialised already")]
    MbarrierAgain(String),
    /// An asynchronous copy on an mbarrier whose initialisation was not fenced.
    #[error("{0} was initialised without FenceInit since")]
    UnfencedMbarrier(String),
    /// More arrivals than an mbarrier's phase has.
    #[error("{0} has all its arrivals of this phase already")]
    Arrivals(String),
    /// More bytes than were announced for an mbarrier's phase.
    #[error("{mbarrier} received {bytes} bytes more than were announced in its phase")]
    Bytes {
        /// The mbarrier.
        mbarrier: String,
        /// The number that is too many.
        bytes: i64,
    },
    /// A copy of an impossible size.
    #[error("a copy of {0} bytes: must be a positive multiple of 16")]
    CopyBytes(i64),
    /// A loop that does not advance.
    #[error("step {0}: must be positive")]
    Step(i64),
    /// A word that was published twice with one tag.
    #[error("{messages}[{index}] was published with this tag already")]
    Republished {
        /// The parameter.
        messages: String,
        /// The word.
        index: i64,
    },
    /// A block ended although a copy still reads or writes its shared memory.
    #[error("the block has ended, but this copy was not waited for")]
    Abandoned,
}

/// The other side of a race.
#[derive(Clone, Debug, PartialEq)]
pub struct Party {
    /// Its statement.
    pub path: Path,
    /// The statement's text.
    pub line: String,
    /// Its block.
    pub block: [u32; 2],
    /// Its warp and lanes; none for a copy.
    pub lanes: Option<(usize, u32)>,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Party { path, line, block: [x, y], .. } = self;
        write!(f, "{path} `{line}` of block ({x}, {y})")?;
        match self.lanes {
            Some((warp, lanes)) if lanes.is_power_of_two() => {
                write!(f, ", warp {warp}, lane {}", lanes.trailing_zeros())
            }
            Some((warp, lanes)) => write!(f, ", warp {warp}, lanes {lanes:#010x}"),
            None => Ok(()),
        }
    }
}

/// A hazard and the lane that met it.
#[derive(Debug)]
pub(super) struct Hit {
    pub lane: usize,
    pub hazard: Hazard,
}
