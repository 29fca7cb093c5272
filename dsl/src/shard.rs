//! Sharding: a program whose tensors are divided along one axis over several ranks, as programs that each rank runs on its
//! own part (its *shard*) and messages that go between them.
//!
//! Rank r of P holds a contiguous part of the axis T of every tensor that has T, and the whole of every other tensor.
//! [`shard`] divides the program into *phases*. A phase is a program of one shard; some of its outputs are *messages*, which
//! all ranks gather. What the next phases need of the other ranks follows from the gathered messages:
//!
//! * **scan**: the message is the *total*, all elements of the shard combined, one element of the operator per row. Rank r
//!   folds init ⊕ t\[0\] ⊕ … ⊕ t\[r−1\], left to right, and scans its shard from that state. In reverse it folds
//!   init ⊕ t\[P−1\] ⊕ … ⊕ t\[r+1\].
//!   Scans that differ only in giving states before or after their elements share totals and carries.
//!   Where an element is shifted by one place, as decays are in a gradient, the total also has the one that goes to the next
//!   rank, and nothing else is exchanged for it.
//! * **reduction**: the message is the total, and the fold is over all ranks, in their order.
//! * **the last state**, `last` of an inclusive scan, is the fold of all totals. Other `last` and `first` take the message of
//!   the last or the first rank whose shard is not empty.
//! * **shift** by n: the messages are the n elements at the border, which replace what is shifted in.
//! * **gather** from the axis: each rank takes the elements that it has, and sends zero for the others; the fold adds them up. A
//!   gather to the axis needs nothing of other ranks.
//! * **index**, **size** and **starts** count from the start of the whole axis.
//!
//! A gradient is a program like any other: its scans run the other way, so that cotangents of carries go from later ranks to
//! earlier ones. Nothing is divided among processors in an order that depends on time: the bits are the same in every run with
//! the same shards.
//!
//! A value of a program is known after its *level*: the number of exchanges that it waits for. Phase k computes the outputs and
//! the messages of level k; it computes again what it needs of the levels before, from the shard's elements and the carries.

mod divide;
mod fold;
mod level;
mod local;
mod rows;
mod scans;
mod segments;
mod words;

use thiserror::Error;

use crate::ir::{Axis, Program};
use crate::typing::TypeError;

pub use rows::independent_axes;
pub use words::{Bytes, exchanged};

/// How many elements a `shift` may look beyond a shard.
pub const MOST_SHIFTED: i64 = 64;

/// The parameter of phases that has the index at which the shard starts, `i64`.
pub const START: &str = "shard.start";
/// The parameter of phases that has the index behind the shard, `i64`.
pub const END: &str = "shard.end";
/// The parameter of phases that has the size of the whole axis, `i64`.
pub const SIZE: &str = "shard.size";
/// The axis of gathered messages in folds.
pub const RANKS: &str = "shard.ranks";
/// The axis of the segments of a shard, before the others of what each segment has its own of.
pub const SEGMENTS: &str = "shard.segments";

/// A program that is divided along an axis: see the [module documentation](self).
#[derive(Clone, Debug, PartialEq)]
pub struct Sharded {
    /// The axis.
    pub axis: String,
    /// The work of each rank, one phase after the other.
    pub phases: Vec<Phase>,
}

/// The work of a rank between two exchanges: it folds and picks the messages of all ranks, and then runs a program of its shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    /// Computed first, from gathered messages.
    pub folds: Vec<Fold>,
    /// Taken out of gathered messages.
    pub picks: Vec<Pick>,
    /// Of a shard in segments: programs that give the state before every segment, from the outputs of folds and from the messages
    /// that the program of an earlier phase has for every segment. Outputs are named as the state before the shard.
    pub spreads: Vec<Program>,
    /// The program of the shard; `None` where there is nothing to compute. Its parameters are those of the whole program, outputs
    /// of folds, picks, [`START`], [`END`] and [`SIZE`]. Its outputs are those of the whole program that are known now, and the
    /// messages.
    pub program: Option<Program>,
    /// Of a shard in segments: programs that combine the messages of all segments to those of the rank.
    pub joins: Vec<Program>,
    /// The outputs that all ranks gather when the program has run.
    pub messages: Vec<String>,
}

/// A program that combines gathered messages: its parameters are gathered messages, with the first axis [`RANKS`], and whatever a
/// phase may read that does not have the sharded axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    /// The program.
    pub program: Program,
    /// The parameters that are gathered messages.
    pub gathered: Vec<String>,
    /// Whose messages it combines.
    pub ranks: Ranks,
}

/// Ranks whose messages are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// The ranks before this one.
    Before,
    /// The ranks after this one.
    After,
    /// All.
    All,
}

/// A parameter that is the message of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// The parameter.
    pub param: String,
    /// The messages among which the rank's choice falls: one for [`Which::Last`] and [`Which::First`], or the elements at a
    /// shard's border, the outermost first.
    pub messages: Vec<String>,
    /// Whose it is.
    pub which: Which,
}

/// The rank whose message is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The last one whose shard is not empty.
    Last,
    /// The first one whose shard is not empty.
    First,
    /// The one that holds the element that many places before the own shard. Any where there is none.
    Before(u64),
    /// The one that holds the element that many places from the end of the own shard, 0 for the next. Any where there is none.
    After(u64),
}

/// Why a program cannot be divided.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ShardError {
    /// The program does not have the axis.
    #[error("it has no axis {axis}; its axes are {known}")]
    NoAxis {
        /// The axis asked for.
        axis: String,
        /// The axes of the program.
        known: String,
    },
    /// No tensor has the axis, so there is nothing to divide.
    #[error("no tensor has the axis {axis}")]
    NothingSharded {
        /// The axis.
        axis: String,
    },
    /// A list of offsets would be divided.
    #[error(
        "the list of offsets along {axis} must be whole on every rank, as offsets count from the start of the sequence"
    )]
    Offsets {
        /// The axis.
        axis: String,
    },
    /// Elements from too far away.
    #[error("`shift` along {axis} by {by} looks more than {MOST_SHIFTED} elements beyond a shard")]
    Shift {
        /// The axis.
        axis: String,
        /// How far.
        by: i64,
    },
    /// An axis of a recurrence of matrices that its states follow one after the other, or are multiplied along.
    #[error(
        "a recurrence of matrices runs along {axis}, or multiplies along it; its states and vectors must be whole on every rank"
    )]
    Matrices {
        /// The axis.
        axis: String,
    },
    /// The axis of packed sequences with states, or that of their offsets.
    #[error(
        "{axis} is the axis of packed sequences with states, or of their offsets; these must be whole on every rank"
    )]
    Gather {
        /// The axis.
        axis: String,
    },
    /// The program is not valid.
    #[error(transparent)]
    Type(#[from] TypeError),
}

/// Divides a program along an axis.
///
/// # Errors
/// [`ShardError`] when it cannot be done.
pub fn shard(program: &Program, axis: &str) -> Result<Sharded, ShardError> {
    let (program, along) = prepared(program, axis)?;
    let phases = divide::Divide::of(&program, along)?.phases()?;
    Ok(Sharded { axis: axis.to_owned(), phases })
}

/// The program as it is divided, and the axis, if it can be divided along it.
fn prepared(program: &Program, axis: &str) -> Result<(Program, Axis), ShardError> {
    let no_axis = || ShardError::NoAxis { axis: axis.to_owned(), known: program.axes.join(", ") };
    let along = program.axis(axis).ok_or_else(no_axis)?;
    let mut tensors = program.params.iter().map(|p| &p.axes).chain(program.outputs.iter().map(|o| &o.axes));
    if !tensors.any(|axes| axes.contains(&along)) {
        return Err(ShardError::NothingSharded { axis: axis.to_owned() });
    }
    let program = crate::simplify::simplify(program);
    check(&program, along)?;
    Ok((program, along))
}

/// Divides a program along an axis for ranks that divide their shards into equal segments, all of which a phase computes at once. The
/// programs of phases have the axis [`SEGMENTS`] before the others of every tensor that has the divided axis, of the states
/// before segments, of [`START`], of [`END`] and of messages; the divided axis is that of one segment. `None` where anything but totals of scans and reductions is
/// exchanged.
///
/// # Errors
/// [`ShardError`] when it cannot be done.
pub fn shard_in_segments(program: &Program, axis: &str) -> Result<Option<Sharded>, ShardError> {
    let (program, along) = prepared(program, axis)?;
    let divide = divide::Divide::of(&program, along)?;
    let phases = segments::in_segments(&divide, &divide.phases()?)?;
    Ok(phases.map(|phases| Sharded { axis: axis.to_owned(), phases }))
}

/// Whether an axis is that of a list of offsets with one entry more than there are sequences, or that of the sequences.
fn has_ends(program: &Program, along: Axis) -> bool {
    let axes = (0..program.axes.len()).map(|k| Axis(k as u32));
    program.ends(along).is_some() || axes.into_iter().any(|list| program.ends(list) == Some(along))
}

/// Refuses operations that no exchange replaces.
fn check(program: &Program, along: Axis) -> Result<(), ShardError> {
    use crate::ir::Op;
    let axis = || program.axis_name(along).to_owned();
    for node in &program.nodes {
        match node.op {
            Op::Starts { list, .. } if list == along => return Err(ShardError::Offsets { axis: axis() }),
            Op::Gather { axis: from, to, .. } if (from == along || to == along) && has_ends(program, along) => {
                return Err(ShardError::Gather { axis: axis() });
            }
            Op::MatrixScan(ref scan)
                if scan.axis == along || scan.along == along || scan.others().any(|a| a == along) =>
            {
                return Err(ShardError::Matrices { axis: axis() });
            }
            Op::Shift { axis: shifted, by, .. } if shifted == along && by.unsigned_abs() > MOST_SHIFTED as u64 => {
                return Err(ShardError::Shift { axis: axis(), by });
            }
            _ => {}
        }
    }
    Ok(())
}
