//! One step of a recurrence: what a program does at one time, given the state that the times before left.
//!
//! For a program whose scans run forward along one axis T, [`step`] gives the same program for a single index of T. The
//! axis is gone from all tensors, and:
//!
//! * a scan is one combination, init ⊕ e; an exclusive one is init;
//! * a recurrence of matrices is one step, init·M + X;
//! * `last` and `first` along T give the value itself;
//! * a shift reads an element of the state, which keeps as many as it looks back;
//! * maps, and reductions along other axes, stay as they are.
//!
//! The state comes in by the parameters that are the scans' initial states and goes out by the outputs that are their
//! last ones ([`Step::states`]).
//!
//! Elements that a shift keeps are state too. The last element of x, which `shift(T, x, 1, fill = x1)` keeps, comes in by the
//! parameter x1 and goes out by the output `last(T, x)`. A shift by n whose `fill` is a constant needs neither: the step has the parameters
//! `x_before_1` to `x_before_n` for it, by default that constant, and the outputs `x_last_1` to `x_last_n`, the newest first. The
//! whole program has none of these, so whoever goes on from it takes them from x.
//!
//! Whole = steps: a program over T gives, bit for bit where scans combine in sequence, what its steps give one after the
//! other, each from the state of the one before.
//!
//! Programs that need more than one index of T, or whose state does not go in and out, have no step; [`StepError`] says
//! why.

mod delays;
mod rewrite;
mod states;

use thiserror::Error;

use crate::ir::{Axis, Op, Program};
use crate::simplify::simplify;
use crate::typing::TypeError;

/// The one-step form of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// One step. Parameters and outputs have the names that they have in the whole program; those of shifts stand behind them.
    pub program: Program,
    /// The name of the axis that is gone.
    pub axis: String,
    /// The tensors that one step hands to the next.
    pub states: Vec<State>,
}

/// A part of the state: what an output of one step is to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The parameter by which it comes in.
    pub param: String,
    /// The output by which it goes out.
    pub output: String,
}

/// Why a program has no one-step form.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum StepError {
    /// There is no scan.
    #[error("nothing is scanned")]
    NoScan,
    /// Scans along more than one axis.
    #[error("it scans along {first} and along {second}")]
    SeveralAxes {
        /// One axis.
        first: String,
        /// The other axis.
        second: String,
    },
    /// A scan that begins at the last index.
    #[error("its scan along {axis} begins at the end, which a step does not know")]
    Reverse {
        /// The scanned axis.
        axis: String,
    },
    /// An operation that sees more of the axis than one index.
    #[error("{what} along {axis} needs more than one index")]
    Whole {
        /// The operation, in words.
        what: &'static str,
        /// The scanned axis.
        axis: String,
    },
    /// A shift that looks ahead.
    #[error("`shift` along {axis} by {by} reads what comes later, which a step does not know")]
    Ahead {
        /// The scanned axis.
        axis: String,
        /// The distance.
        by: i64,
    },
    /// A shift that looks back further than a state reaches.
    #[error("`shift` along {axis} by {by} looks back more than {most} elements, the most that a step keeps")]
    Far {
        /// The scanned axis.
        axis: String,
        /// The distance.
        by: i64,
        /// How many elements a step keeps.
        most: i64,
    },
    /// A shift whose first values are neither constants nor its state.
    #[error(
        "`fill` of `shift` along {axis} by {by} is neither a constant nor a parameter that is the one element before the first; \
         shift by 1 several times, each with a parameter of its own"
    )]
    Fill {
        /// The scanned axis.
        axis: String,
        /// The distance.
        by: i64,
    },
    /// A shift by 1 that begins with a parameter, while no output is its last element.
    #[error(
        "no output of the same element type is the last element that `shift` along {axis} begins with in the next step"
    )]
    NoElementOut {
        /// The scanned axis.
        axis: String,
    },
    /// A state that always starts at the same value.
    #[error("no parameter is the initial state `{field}` of the scan by {operator}")]
    NoStateIn {
        /// The operator.
        operator: String,
        /// The field of its state.
        field: String,
    },
    /// A state that nobody is given.
    #[error("no output of the same element type is the last state `{field}` of the scan by {operator}")]
    NoStateOut {
        /// The operator.
        operator: String,
        /// The field of its state.
        field: String,
    },
    /// A parameter that is an initial state and something else too.
    #[error("`{param}` is an initial state, but it is also read elsewhere")]
    StateRead {
        /// The parameter.
        param: String,
    },
    /// A parameter that is the initial state of different scans.
    #[error("`{param}` is the initial state of more than one scan")]
    SharedState {
        /// The parameter.
        param: String,
    },
    /// The program is not valid.
    #[error(transparent)]
    Type(#[from] TypeError),
}

/// The one-step form of a program.
///
/// # Errors
/// [`StepError`] when the program needs more than one index of the scanned axis, or its state does not go in and out.
pub fn step(program: &Program) -> Result<Step, StepError> {
    let program = simplify(program);
    let axis = scanned_axis(&program)?;
    let delays = delays::delays(&program, axis)?;
    let one = rewrite::one_index(&program, axis, &delays)?;
    let mut states = states::states(&program, axis)?;
    states.extend(delays.iter().flat_map(|delay| (1..=delay.count).map(|k| delay.state(k))));
    Ok(Step { program: simplify(&one), axis: program.axis_name(axis).to_owned(), states })
}

/// The only axis along which the program scans.
fn scanned_axis(program: &Program) -> Result<Axis, StepError> {
    let mut scanned = program.nodes.iter().filter_map(|node| match node.op {
        Op::Scan { axis, reverse, .. } => Some((axis, reverse)),
        Op::MatrixScan(ref scan) => Some((scan.axis, scan.reverse)),
        _ => None,
    });
    let Some((axis, mut any_reverse)) = scanned.next() else {
        return shifted_axis(program).ok_or(StepError::NoScan);
    };
    let name = |axis: Axis| program.axis_name(axis).to_owned();
    for (other, reverse) in scanned {
        if other != axis {
            return Err(StepError::SeveralAxes { first: name(axis), second: name(other) });
        }
        any_reverse |= reverse;
    }
    if any_reverse { Err(StepError::Reverse { axis: name(axis) }) } else { Ok(axis) }
}

/// The only axis along which a program without scans shifts, if it always looks back.
fn shifted_axis(program: &Program) -> Option<Axis> {
    let mut shifted = program.nodes.iter().filter_map(|node| match node.op {
        Op::Shift { axis, by, .. } => Some((axis, by)),
        _ => None,
    });
    let (axis, by) = shifted.next()?;
    (by >= 0 && shifted.all(|(other, by)| other == axis && by >= 0)).then_some(axis)
}
