//! Plans: a program for given sizes and strides as a list of kernel launches.
//!
//! ```text
//! program ─ cut ─▶ stages ─ sizes, strides ─▶ merged axes ─ fits? cost? ─▶ schedule ─ geometry ─▶ launch
//! ```
//!
//! A [`Planner`] holds what depends on the program and the target only; planning one call is then a matter of
//! microseconds.

mod choosing;
mod cost;
mod division;
mod fits;
mod places;
mod planner;
mod residual;
mod sizes;
mod split;
mod variants;

pub use crate::stage::{Cuts, cuts};
pub use choosing::IsThere;
pub use places::Places;
pub use planner::{Planner, plan};
pub use residual::Residual;
pub use variants::{general_variant, ordered_variants, variants};

use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::sync::Arc;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Program};
use thiserror::Error;

use crate::key::Key;
use crate::schedules::{Misfit, Schedule};
use crate::stage::{CutError, CutKind, CutRefusal, Stage};
use crate::target::Isa;
use crate::words::Bytes;

/// The sizes and layouts that a program is called with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// The size of every axis of the program.
    pub sizes: Vec<i64>,
    /// The layout of every parameter; `None` where the caller leaves out a parameter that has a default.
    pub params: Vec<Option<Layout>>,
    /// The layout of every output.
    pub outputs: Vec<Layout>,
}

/// The layout of a tensor in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// For each axis in the tensor's declared order, the distance between neighbours, in elements. May be 0 for
    /// parameters (a broadcast) and negative.
    pub strides: Vec<i64>,
    /// A power of two that divides the byte address of the element at index 0; more than 16 counts as 16.
    pub align: u32,
}

impl Layout {
    /// The layout of a tensor with these axes whose elements lie next to one another, in order, from an aligned address on.
    pub fn contiguous(axes: &[Axis], sizes: &[i64]) -> Layout {
        let mut strides = vec![1_i64; axes.len()];
        for i in (1..axes.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(sizes[axes[i].0 as usize].max(1));
        }
        Layout { strides, align: 16 }
    }
}

impl Call {
    /// A call with contiguous tensors that gives all parameters, for a size of each axis.
    pub fn contiguous(program: &Program, sizes: &[i64]) -> Call {
        Call {
            sizes: sizes.to_vec(),
            params: program.params.iter().map(|param| Some(Layout::contiguous(&param.axes, sizes))).collect(),
            outputs: program.outputs.iter().map(|output| Layout::contiguous(&output.axes, sizes)).collect(),
        }
    }
}

/// Why a call cannot be planned.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanError {
    /// A list of the call has not the length that the program asks for.
    #[error("the call gives {given} {what}, the program has {wanted}")]
    Count {
        /// The things that are counted.
        what: &'static str,
        /// In the call.
        given: usize,
        /// In the program.
        wanted: usize,
    },
    /// A size is negative.
    #[error("axis {axis} has size {size}")]
    Size {
        /// The axis.
        axis: String,
        /// Its size.
        size: i64,
    },
    /// A layout has not one stride per axis.
    #[error("`{tensor}` has {wanted} axes, its layout has {given} strides")]
    Strides {
        /// The tensor.
        tensor: String,
        /// Strides given.
        given: usize,
        /// Axes.
        wanted: usize,
    },
    /// A parameter without a default is left out.
    #[error("`{0}` must be given: it has no default")]
    Missing(String),
    /// Two elements of an output have the same address.
    #[error("elements of the output `{0}` overlap: a stride is 0 along an axis of size 2 or more")]
    Overlap(String),
    /// A tensor, or what a stage computes, has more elements than 64-bit indices count.
    #[error("`{name}` has more elements than 64-bit indices count: {shape}")]
    TooLarge {
        /// The tensor or stage.
        name: String,
        /// The size of each of its axes, `B=4, T=1024`.
        shape: String,
    },
    /// The elements of a tensor lie farther apart than 64-bit addresses reach.
    #[error("`{tensor}` reaches over more bytes than 64-bit addresses count: {shape}, strides {strides:?}")]
    Reach {
        /// The tensor.
        tensor: String,
        /// The size of each of its axes, `B=4, T=1024`.
        shape: String,
        /// Its strides, in elements.
        strides: Vec<i64>,
    },
    /// The program cannot be cut into stages.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// No schedule of a stage can run this call; says why not, schedule by schedule.
    #[error("no kernel can run `{stage}` for these sizes: {reasons}")]
    NoSchedule {
        /// The stage's name.
        stage: String,
        /// Why each schedule does not fit.
        reasons: Reasons,
    },
    /// The schedule that was asked for cannot run a stage.
    #[error("`{schedule}` cannot run `{stage}`: {misfit}")]
    Misfit {
        /// The stage's name.
        stage: String,
        /// The schedule.
        schedule: Schedule,
        /// Why it does not fit.
        misfit: Box<Misfit>,
    },
    /// The schedule that was asked for takes no stage of the program, however that is cut.
    #[error("the program has no such stage")]
    NoStage,
}

/// Schedules, and why each does not fit.
///
/// Printed, a kind of schedule has each reason once: of those that differ in numbers alone the last, which is that of the
/// largest tiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Reasons(pub Vec<(Schedule, Misfit)>);

impl Display for Reasons {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut told: Vec<(String, String, String)> = vec![];
        for (schedule, why) in &self.0 {
            let (schedule, why) = (schedule.to_string(), why.to_string());
            let name = schedule.split('(').next().unwrap_or_default().to_owned();
            let form = why.replace(|letter: char| letter.is_ascii_digit(), "");
            told.retain(|(own, known, _)| (own, known) != (&name, &form));
            told.push((name, form, why));
        }
        for (i, (name, _, why)) in told.iter().enumerate() {
            write!(f, "{}{name}: {why}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// A program's launches in order, and the scratch memory that they need.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The launches.
    pub steps: Vec<Launch>,
    /// Temporary tensors between the launches. A buffer that no launch uses has length 0.
    pub buffers: Vec<Buffer>,
    /// The steps of each piece, where the call runs in pieces.
    pub pieces: Vec<Range<usize>>,
    /// 64-bit message words that the launches share; zeroed once, when allocated, and used by one call at a time.
    pub message_words: u64,
    /// The choices that led to the plan.
    pub choices: Vec<Choice>,
    /// The way in which the program is cut.
    pub cut: CutKind,
    /// The other ways to cut it, and why they are not taken.
    pub other_cuts: Vec<OtherCut>,
    /// Axes longer than a block can sum that are not split into an outer and an inner one, and why.
    pub other_splits: Vec<OtherSplit>,
}

/// A long axis that a plan does not split.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherSplit {
    /// The axis.
    pub axis: String,
    /// Why it is not split.
    pub why: NotSplit,
}

/// Why an axis is not split into an outer and an inner one.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum NotSplit {
    /// No equal parts are short enough.
    #[error("its {size} indices have no equal parts of 2 to {most}")]
    Parts {
        /// The size of the axis.
        size: i64,
        /// The longest axis that a block sums.
        most: i64,
    },
    /// The program needs the axis as a whole.
    #[error("the program goes along it in order, or asks for its positions")]
    Whole,
    /// The plan with the split axis is not taken.
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
}

/// A way to cut a program that a plan does not take.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherCut {
    /// The way.
    pub how: CutKind,
    /// Why it is not taken.
    pub why: NotTaken,
}

/// Why a way to cut a program is not taken.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum NotTaken {
    /// The program is not cut so, whatever the call.
    #[error(transparent)]
    Cut(CutRefusal),
    /// The call has no plan.
    #[error(transparent)]
    Plan(Box<PlanError>),
    /// The plan takes too much memory between its launches.
    #[error("it takes {} of temporary tensors, more than {}", Bytes(*bytes), Bytes(*room))]
    Memory {
        /// Bytes that it takes.
        bytes: u64,
        /// Bytes that a plan may take.
        room: u64,
    },
    /// The plan is estimated to be slower.
    #[error("it would take about {micros:.1} µs")]
    Slower {
        /// The estimate, microseconds.
        micros: f64,
    },
}

/// A temporary tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The type that it stores.
    pub elem: Elem,
    /// Elements.
    pub len: u64,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The stage that the kernel computes.
    pub stage: Arc<Stage>,
    /// How.
    pub schedule: Schedule,
    /// The key that the kernel is found by.
    pub key: Key,
    /// The kernel's symbol.
    pub symbol: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// The arguments to pass, in the order of the kernel's parameters.
    pub args: Vec<Arg>,
    /// The arguments that begin elsewhere than at their tensor's first element: their places, and by how many bytes.
    pub offsets: Vec<(usize, i64)>,
    /// The instruction set of the device that the launch is planned for. The kernel may be one for all devices.
    pub device: Isa,
}

impl Launch {
    /// The sizes of the stage's axes, which follow the pointers among the arguments.
    pub fn sizes(&self) -> Vec<i64> {
        let numbers = self.args.iter().filter_map(|arg| if let Arg::I64(n) = arg { Some(*n) } else { None });
        numbers.take(self.stage.program.axes.len()).collect()
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arg {
    /// The address of the program's parameter.
    Param(u32),
    /// The address of the program's output.
    Output(u32),
    /// The address of a buffer of the plan.
    Buffer(u32),
    /// The address of the states that a call hands to that of the gradient, see [`Residual`].
    Residual,
    /// The address of the message words.
    Messages,
    /// The address of the control word (64 bits): ticket 0 in the lower half and tag 1 in the upper half when allocated.
    Control,
    /// A number.
    I32(i32),
    /// A number.
    I64(i64),
}

/// Why a launch has its schedule: what every schedule was estimated to take.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The step of the plan; `None` for a stage that needs no launch because it produces nothing.
    pub step: Option<usize>,
    /// Every schedule that fits the stage's layout, and its estimate; the first is the one taken, the others follow from the
    /// fastest on.
    pub candidates: Vec<Estimate>,
    /// The schedules that do not fit, and why.
    pub refused: Vec<(Schedule, Misfit)>,
}

/// An estimate of a schedule's time.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The schedule.
    pub schedule: Schedule,
    /// Bytes of the tensors read and written, each once.
    pub bytes: u64,
    /// Microseconds.
    pub micros: f64,
    /// The estimate in words.
    pub why: String,
}

impl Plan {
    /// Bytes of all buffers, which is more than they take: see [`Plan::places`].
    pub fn buffer_bytes(&self) -> u64 {
        let bytes = |buffer: &Buffer| buffer.len.saturating_mul(buffer.elem.bytes().unwrap_or(8) as u64);
        self.buffers.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// The launches with their choices, without those that repeat an earlier one for another piece of the call.
    pub fn distinct(&self) -> Vec<(&Launch, &Choice)> {
        let mut all: Vec<(&Launch, &Choice)> = vec![];
        for (launch, choice) in self.steps.iter().zip(self.choices.iter().filter(|choice| choice.step.is_some())) {
            let is_same = |(own, _): &(&Launch, &Choice)| own.stage == launch.stage && own.schedule == launch.schedule;
            if !choice.candidates.is_empty() || !all.iter().any(is_same) {
                all.push((launch, choice));
            }
        }
        all
    }

    /// The estimate of all launches, microseconds.
    pub fn micros(&self) -> f64 {
        self.choices.iter().filter_map(|choice| choice.candidates.first()).map(|taken| taken.micros).sum()
    }
}
