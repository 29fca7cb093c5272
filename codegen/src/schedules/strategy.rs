//! The one interface between schedules and the compiler: a trait, which the parameters of every schedule implement.

use std::fmt::{Debug, Display};

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet};

use super::constants::Constants;
use super::cost::{Cost, Memory};
use super::error::LowerError;
use super::misfit::Misfit;
use super::picture::Picture;
use super::pieces::Piece;
use super::problem::Problem;
use super::segments::Segments;
use crate::abi::{Extras, Role, Slot, abi, roles};
use crate::stage::{Kind, Refusal, Stage};
use crate::target::Isa;
use crate::tile::Kernel;

/// The accesses that a schedule is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Vectors, for contiguous, aligned tensors of a stage in its simplest form.
    Vectors,
    /// Single elements, whatever the strides and addresses, beside those of [`Access::Vectors`].
    Singles,
    /// Single elements, of a stage whose axes are left apart though they could be merged.
    Unmerged,
}

/// The part of a launch in saving the states of a call for the call of its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saving {
    /// It finds the states at the start of each segment of time.
    Ends,
    /// It finds and stores the states.
    States,
    /// It starts from the saved states.
    Reader,
}

/// All that the compiler knows of a schedule: the stages that it takes, its kernels, the calls that they fit, their cost, and the
/// schedule in words and as a picture. Nothing outside of a schedule's folder knows more of it.
///
/// The first methods belong to the schedule, and give parameters. All others belong to one choice of parameters.
pub trait Strategy: Debug + Display + Send + Sync {
    // ---- which stages, and with which parameters

    /// Whether it takes stages of a kind.
    ///
    /// # Errors
    /// [`Refusal`] says what such a stage lacks.
    fn takes(kind: &Kind) -> Result<(), Refusal>
    where
        Self: Sized;

    /// The parameters that a plan may choose for a stage that it takes.
    fn candidates(stage: &Stage, isa: Isa, access: Access) -> Vec<Self>
    where
        Self: Sized;

    /// The parameters with which one element is combined after the other, from one end to the other.
    fn ordered(_stage: &Stage) -> Vec<Self>
    where
        Self: Sized,
    {
        vec![]
    }

    /// The parameters for any call, whatever its sizes, strides and addresses, on every device.
    fn general(_stage: &Stage) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// The kernels that a stage is run by, in order: one, if nothing else is said.
    fn kernels(&self, _stage: &Stage, _isa: Isa) -> Vec<Self>
    where
        Self: Sized + Copy,
    {
        vec![*self]
    }

    /// The parameters with which the states of a stage are also saved for its gradient.
    fn saving(&self, _stage: &Stage) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    // ---- the kernel

    /// The schedule's name.
    fn name(&self) -> &'static str;

    /// Consecutive elements per access.
    fn vector(&self) -> u32;

    /// The instruction set that the kernel is compiled for on devices of `isa`. Kernels with accesses of single elements are compiled
    /// once for all devices; others may use the copy engines and mbarriers of newer devices.
    fn isa(&self, isa: Isa) -> Isa {
        if self.vector() > 1 { isa } else { Isa::Sm80 }
    }

    /// The axes along which accesses are vectors, where they are: the scan axis, if nothing else is said.
    fn vector_axes(&self, stage: &Stage) -> AxisSet {
        stage.axis().into_iter().collect()
    }

    /// The axes along which accesses are vectors: a tensor that has one, or the last of several, has stride 1 there, and its
    /// other strides and its address are multiples of the access. None when accesses are single elements.
    fn unit_axes(&self, stage: &Stage) -> AxisSet {
        if self.vector() == 1 { AxisSet::EMPTY } else { self.vector_axes(stage) }
    }

    /// The names and types of the numbers that the kernels of a stage hand to one another.
    fn scratch(&self, _stage: &Stage) -> Vec<(&'static str, Elem)> {
        vec![]
    }

    /// Whether time is cut into segments with blocks of their own, along the second axis of the grid.
    fn is_segmented(&self) -> bool {
        false
    }

    /// Whether the kernel has to know which pieces of the rows there are beside its own.
    fn has_pieces(&self) -> bool {
        false
    }

    /// Whether blocks exchange messages.
    fn looks_back(&self) -> bool {
        false
    }

    /// Whether blocks wait for blocks that may start later, so that all of a launch must run at once.
    fn runs_at_once(&self) -> bool {
        false
    }

    /// The arguments that the kernel takes beside tensors and sizes.
    fn extras(&self, stage: &Stage) -> Extras {
        Extras {
            unit_axes: self.unit_axes(stage),
            scratch: self.scratch(stage),
            has_segments: self.is_segmented(),
            has_pieces: self.has_pieces(),
            has_messages: self.looks_back(),
        }
    }

    /// The parameters of a stage's kernel, in order.
    fn abi(&self, stage: &Stage) -> Vec<Slot> {
        abi(stage, &self.extras(stage))
    }

    /// The roles of these parameters.
    fn roles(&self, stage: &Stage) -> Vec<Role> {
        roles(stage, &self.extras(stage))
    }

    /// The tile kernel of a stage, for an instruction set.
    ///
    /// # Errors
    /// [`LowerError`] says what the stage lacks, or that no kernel has such parameters.
    fn lower(&self, stage: &Stage, isa: Isa, symbol: &str) -> Result<Kernel, LowerError>;

    /// A kernel that may run until that one is compiled: it computes the same bits with the same arguments, launches and
    /// messages, is slower, but compiled in less than half the time. `None` where the kernel itself is compiled fast enough.
    ///
    /// # Errors
    /// As [`Strategy::lower`].
    fn lower_fast_tier(&self, _stage: &Stage, _symbol: &str) -> Result<Option<Kernel>, LowerError> {
        Ok(None)
    }

    /// The shared memory of the kernel, in bytes.
    fn shared_bytes(&self, stage: &Stage, isa: Isa) -> u32;

    /// Threads of a block.
    fn threads(&self) -> u32;

    // ---- sizes and strides

    /// The bytes of which addresses and strides of a tensor must be a multiple, for elements of so many bytes.
    fn alignment(&self, bytes: i64) -> i64 {
        (i64::from(self.vector()) * bytes).min(16)
    }

    /// Whether parameters may be displaced along the axes of vectors: they are then read element by element.
    fn takes_displaced_vectors(&self) -> bool {
        false
    }

    /// Whether the scan axis may be empty.
    fn takes_empty_scans(&self) -> bool {
        false
    }

    /// Whether blocks go on with a stride of the grid where there is more work than blocks.
    fn has_grid_stride(&self) -> bool {
        false
    }

    /// The axis that a block sums over as a whole, and the most places that it may have.
    fn longest_sum(&self, _stage: &Stage) -> Option<(Axis, i64)> {
        None
    }

    /// The places of parts of that axis in which it may be faster than as a whole, although a block takes all of it.
    fn faster_parts(&self, _stage: &Stage) -> Option<i64> {
        None
    }

    /// Whether the sizes of a call fit, beside what holds for all schedules.
    ///
    /// # Errors
    /// Why they do not.
    fn fits(&self, _problem: &Problem<'_>) -> Result<(), Misfit> {
        Ok(())
    }

    /// Blocks of a kernel that is not persistent, without those of further segments of time.
    fn blocks(&self, problem: &Problem<'_>) -> u64;

    /// Tiles of a persistent kernel; `None` for others.
    fn tiles(&self, _problem: &Problem<'_>) -> Option<u64> {
        None
    }

    /// Blocks of a kernel for each recurrence that it walks, where the kernel walks such by segments.
    fn blocks_of_recurrence(&self, _problem: &Problem<'_>) -> Option<u64> {
        None
    }

    /// Message words of a launch.
    fn message_words(&self, _problem: &Problem<'_>) -> u64 {
        0
    }

    /// The number of partial sums of each sum that the stage stores so, if it does.
    fn partial_sums(&self, _problem: &Problem<'_>) -> Option<u64> {
        None
    }

    /// The segments that time is cut into.
    fn segments(&self, _problem: &Problem<'_>) -> Segments {
        Segments::one(1)
    }

    /// The segments of this kernel, one of those of a stage; `all` are the segments of the walk.
    fn own_segments(&self, all: Segments) -> Segments {
        all
    }

    /// Blocks along the second axis of the grid.
    fn blocks_along_time(&self, _segments: Segments) -> u32 {
        1
    }

    /// The pieces in which a stage takes its rows, in order.
    fn pieces(&self, problem: &Problem<'_>) -> Vec<Piece> {
        vec![Piece::whole(problem)]
    }

    /// The lengths of the scratch arrays of all pieces, kind by kind; `None` when 63 bits cannot count them.
    fn scratch_lens(&self, _problem: &Problem<'_>, _pieces: &[Piece]) -> Option<Vec<u64>> {
        Some(vec![])
    }

    /// The part of the launch in saving states for a gradient, if it has one.
    fn saved_states(&self) -> Option<Saving> {
        None
    }

    /// The length of the states of a stage that are saved for its gradient, for axes of these sizes; `None` where none
    /// are saved, or 63 bits cannot count them.
    fn saved_len(&self, _stage: &Stage, _size: &dyn Fn(Axis) -> i64) -> Option<u64> {
        None
    }

    // ---- time

    /// The share of the bandwidth of memory that its accesses reach.
    fn share_of_bandwidth(&self, _constants: &Constants) -> f64 {
        1.0
    }

    /// The axis along which neighbouring lanes lie, if there is one.
    fn lane_axis(&self, _stage: &Stage) -> Option<Axis> {
        None
    }

    /// The estimate of a launch.
    fn cost(&self, problem: &Problem<'_>, memory: &Memory) -> Cost;

    // ---- words and pictures

    /// The division of the work in words, for a stage with axes of these sizes.
    fn words(&self, stage: &Stage, sizes: &[i64]) -> String;

    /// The division of the work, for a picture.
    fn picture(&self, stage: &Stage) -> Picture;

    /// Whether the tiles follow one another from the last to the first.
    fn goes_back(&self, stage: &Stage) -> bool {
        let scan = stage.scan().map(|scan| scan.reverse);
        scan.or(stage.recurrence().map(|own| own.scan.reverse)).unwrap_or(false)
    }
}

impl dyn Strategy {
    /// The grid of a launch. Blocks of maps and rows go on with a stride of the grid where there is more work than blocks.
    pub(crate) fn grid(&self, problem: &Problem<'_>) -> u32 {
        let count = match self.tiles(problem) {
            Some(tiles) => tiles.min(u64::from(problem.target.multiprocessors)),
            None => {
                let own = self.blocks_of_recurrence(problem).unwrap_or(1);
                self.blocks(problem).saturating_mul(own).min(i32::MAX as u64)
            }
        };
        count.max(1) as u32
    }
}
