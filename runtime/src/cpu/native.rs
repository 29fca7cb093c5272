//! Sweeps as machine code, where the feature `jit` is there.
//!
//! A stage whose body has one scan, along a sequence, of an operator that is stepped in groups of lanes ([`sweep`](super::sweep)) gets two
//! functions from LLVM: one for the totals of a tile's parts, and one for its results, with the maps that follow. The first one keeps the
//! elements that it has turned for the second one. Everything else is done as
//! without: states before parts, chunks, and parts that lose a state. The functions take the same operations in the same order, so not a
//! bit changes.

// Without `jit` nothing makes one of these.
#![cfg_attr(not(feature = "jit"), allow(dead_code))]

#[cfg(feature = "jit")]
mod code;
#[cfg(not(feature = "jit"))]
#[path = "native/none.rs"]
mod code;
mod maps;
mod tile;
#[cfg(feature = "jit")]
mod write;

use bytemuck::NoUninit;
use oplus_dsl::Ty;

use super::CpuError;
use super::near::{self, LINE};
use super::plan::Stage;
use super::sweep::Workspace;
use super::tile::Reg;
use super::values::{Scalar, Slice, Values};
use super::view::Parts;
use crate::room::room;
use smallvec::SmallVec;

use code::{Float, Function};
pub(super) use maps::Maps;
pub(super) use tile::{Results, Scratch, Tile};

/// How many parts a tile is cut into.
pub(super) const LANES: usize = 64;

/// With fewer steps in all, compiling takes longer than what it saves.
const LEAST: usize = 1 << 18;

/// A few things, one for each input of a function.
type PerInput<T> = SmallVec<[T; 12]>;

/// From so many bytes of results on, whoever reads them next seldom finds them in a cache.
const LARGE: usize = 1 << 24;

/// The machine code of a stage.
#[derive(Clone, Debug)]
pub(super) struct Native {
    /// The scan among the stage's instructions.
    pub(super) at: usize,
    /// The instructions that the code for results computes too.
    pub(super) joined: Vec<usize>,
    /// The registers that the maps read, beside the scan's elements and results.
    pub(super) others: Vec<Reg>,
    /// How many elements the scan has.
    elements: usize,
    /// Where results go, in the order of the function's outputs.
    pub(super) outputs: Vec<Output>,
    ty: Ty,
    /// The streamed axis.
    axis: usize,
    is_reversed: bool,
    /// Whether results are written past the caches, where that is possible.
    streams: bool,
    totals: Function,
    results: Function,
    /// For results and for totals.
    starts: [Starts; 2],
    /// For results and for totals, a step over the first element of a tile, where that is combined by itself.
    openings: Option<[Function; 2]>,
}

/// Why a stage whose sweeps have a form for machine code has none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("LLVM has made no machine code for these steps: {reason}")]
pub(super) struct Refusal {
    reason: String,
}

/// Steps over the totals of parts.
#[derive(Clone, Debug)]
struct Starts {
    /// The fields that they keep, in the order of the function's outputs.
    kept: Vec<usize>,
    function: Function,
}

/// Where a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// To the tensor of a store, without a register.
    Store(usize),
    /// To a register that instructions read which are not compiled.
    Register(Reg),
}

/// Memory that results are written to.
#[derive(Debug)]
pub(super) enum Memory<'m> {
    /// `f32`.
    F32(Vec<&'m mut [f32]>),
    /// `f64`.
    F64(Vec<&'m mut [f64]>),
}

/// A tile of a stage that is swept by machine code for results.
#[derive(Debug)]
pub(super) struct Call<'c, 'm> {
    pub(super) native: &'c Native,
    /// Where results go.
    pub(super) memory: &'c mut Memory<'m>,
    /// The state that the tile ends with, where it is known before.
    pub(super) ends: Option<&'c [Values]>,
}

/// The steps of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    /// How many steps a lane has.
    pub(super) of_lane: usize,
    /// Whether the first step of the first lane is left out.
    pub(super) leaves_out: bool,
    /// Whether outputs are written past the caches, where that is possible.
    streams: bool,
}

/// The tensors of a function.
struct Tensors<'t, 'm, T> {
    inputs: &'t [&'t [T]],
    outputs: &'t mut [&'m mut [T]],
    /// The states before the first step: for each field a number for each lane.
    starts: &'t [T],
    /// The state that the last lane ends with, a number for each field; empty where it is not given.
    last: &'t [T],
    /// The states after the last step, as `starts`.
    ends: &'t mut [T],
    /// Elements that one function turns and another one reads.
    squares: &'t mut [T],
}

/// The states that a sweep for results begins and ends with.
#[derive(Clone, Copy)]
pub(super) struct States<'s, S = Values> {
    /// The state before each part.
    pub(super) starts: &'s [S],
    /// The state that the tile ends with.
    pub(super) last: &'s [S],
}

impl<'m> Memory<'m> {
    /// Adds an output, which has the type of the others.
    pub(super) fn push(&mut self, values: &'m mut Values) {
        match self {
            Memory::F32(all) => all.push(values.all()),
            Memory::F64(all) => all.push(values.all()),
        }
    }

    /// Adds a part of a tensor; `None` if it has another type or not so many elements there.
    pub(super) fn push_part(&mut self, parts: &'m mut Parts<'_>, [slice, start]: [usize; 2], n: usize) -> Option<()> {
        match (self, parts) {
            (Memory::F32(all), Parts::F32(slices)) => all.push(slices.get_mut(slice)?.get_mut(start..)?.get_mut(..n)?),
            (Memory::F64(all), Parts::F64(slices)) => all.push(slices.get_mut(slice)?.get_mut(start..)?.get_mut(..n)?),
            _ => return None,
        }
        Some(())
    }
}

impl Native {
    /// The code of a stage, if it has a form for it.
    ///
    /// # Errors
    /// [`Refusal`] where LLVM has no code for that form.
    pub(super) fn of(stage: &Stage) -> Result<Option<Native>, Refusal> {
        let steps = stage.sizes.iter().try_fold(1_usize, |n, size| n.checked_mul(*size));
        if steps.is_none_or(|steps| steps < LEAST) {
            return Ok(None);
        }
        code::of(stage)
    }

    /// Whether it takes a tile: parts of one sequence, of equal length.
    pub(super) fn takes(&self, extents: &[usize]) -> bool {
        let is_one = extents.iter().enumerate().all(|(k, n)| k == self.axis || *n == 1);
        let n = extents[self.axis];
        is_one && n.is_multiple_of(LANES) && self.totals.takes(n / LANES) && self.results.takes(n / LANES)
    }

    /// No outputs yet.
    pub(super) fn memory<'m>(&self) -> Memory<'m> {
        if self.ty == Ty::F32 { Memory::F32(vec![]) } else { Memory::F64(vec![]) }
    }

    /// Combines all elements of each part; `totals` begin as the identity. Turned elements go to `squares`.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn run_totals(
        &self,
        elements: &[Slice<'_>],
        steps: Steps,
        totals: &mut [Values],
        squares: &mut Values,
    ) -> Result<(), CpuError> {
        match self.ty {
            Ty::F32 => self.totals_of::<f32>(elements, steps, totals, squares),
            _ => self.totals_of::<f64>(elements, steps, totals, squares),
        }
    }

    fn totals_of<T: Scalar + Float>(
        &self,
        elements: &[Slice<'_>],
        steps: Steps,
        totals: &mut [Values],
        squares: &mut Values,
    ) -> Result<(), CpuError> {
        let starts: Vec<T> = joined(totals, LANES)?;
        let mut ends = room(starts.len())?;
        ends.extend_from_slice(&starts);
        self.sweep_totals(elements, steps, &starts, &mut ends, squares)?;
        for (total, ends) in totals.iter_mut().zip(ends.chunks_exact(LANES)) {
            total.room::<T>(LANES)?.copy_from_slice(ends);
        }
        Ok(())
    }

    /// Combines all elements of each part: `starts` hold the identity, `ends` become the totals.
    fn sweep_totals<T: Scalar + Float>(
        &self,
        elements: &[Slice<'_>],
        steps: Steps,
        starts: &[T],
        ends: &mut [T],
        squares: &mut Values,
    ) -> Result<(), CpuError> {
        self.read_opening(elements, steps.of_lane);
        let inputs: PerInput<&[T]> = elements.iter().map(|element| element.of()).collect();
        let squares = lines(squares, self.totals.squares(steps.of_lane))?;
        self.totals.call(steps, Tensors { inputs: &inputs, outputs: &mut [], starts, last: &[], ends, squares });
        Ok(())
    }

    /// Brings the first lanes that a function takes to the caches. It asks for the others itself.
    fn read_opening<'t>(&self, tensors: &[Slice<'t>], steps: usize) {
        let (n, opening) = (LANES * steps, self.totals.group() * steps);
        let of_tensor = |tensor: &Slice<'t>| match self.is_reversed {
            _ if tensor.len() < n => *tensor,
            true => tensor.to(n).from(n - opening),
            false => tensor.to(opening),
        };
        near::read(&tensors.iter().map(of_tensor).collect::<Vec<_>>());
    }

    /// Room for the turned elements of a tile.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn squares(&self, steps: usize, workspace: &mut Workspace) -> Result<Values, CpuError> {
        workspace.take(self.ty, self.totals.squares(steps).saturating_add(LINE))
    }

    /// Puts the state before each part in place of its total; `states` go from before the first part to behind the last.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn run_starts(&self, totals: &mut [Values], states: &mut [Values]) -> Result<(), CpuError> {
        let [starts, _] = &self.starts;
        match self.ty {
            Ty::F32 => starts.run::<f32>(totals, states),
            _ => starts.run::<f64>(totals, states),
        }
    }

    /// Sweeps every part from its start. Inputs are the elements and then the [others](Self::others); `squares` are those that the sweep for
    /// totals has made.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn run_results(
        &self,
        inputs: &[Slice<'_>],
        steps: Steps,
        states: States<'_>,
        memory: &mut Memory<'_>,
        squares: &mut Values,
    ) -> Result<(), CpuError> {
        match memory {
            Memory::F32(outputs) => self.results_of(inputs, steps, states, outputs, squares),
            Memory::F64(outputs) => self.results_of(inputs, steps, states, outputs, squares),
        }
    }

    fn results_of<T: Scalar + Float + NoUninit>(
        &self,
        inputs: &[Slice<'_>],
        steps: Steps,
        States { starts, last }: States<'_>,
        outputs: &mut [&mut [T]],
        squares: &mut Values,
    ) -> Result<(), CpuError> {
        let starts: Vec<T> = joined(starts, LANES)?;
        let mut ends = room(starts.len())?;
        ends.resize(starts.len(), T::default());
        self.sweep_results(
            inputs,
            steps,
            States { starts: &starts, last: &joined(last, 1)? },
            (outputs, &mut ends),
            squares,
        )
    }

    /// Sweeps every part from its start; `ends` become the states behind the parts.
    fn sweep_results<T: Scalar + Float + NoUninit>(
        &self,
        inputs: &[Slice<'_>],
        steps: Steps,
        States { starts, last }: States<'_, T>,
        (outputs, ends): (&mut [&mut [T]], &mut [T]),
        squares: &mut Values,
    ) -> Result<(), CpuError> {
        let streams = self.streams && self.results.streams(steps.of_lane, outputs);
        if !streams {
            near::write(outputs);
        }
        self.read_opening(&inputs[inputs.len() - self.others.len()..], steps.of_lane);
        let inputs: PerInput<&[T]> = inputs.iter().map(|input| input.of()).collect();
        let squares = lines(squares, self.results.squares(steps.of_lane))?;
        self.results
            .call(Steps { streams, ..steps }, Tensors { inputs: &inputs, outputs, starts, last, ends, squares });
        Ok(())
    }
}

impl Steps {
    /// So many steps of every lane, perhaps without the first of the first lane.
    pub(super) fn new(of_lane: usize, leaves_out: bool) -> Steps {
        Steps { of_lane, leaves_out, streams: false }
    }
}

impl Starts {
    fn run<T: Scalar + Float>(&self, totals: &mut [Values], states: &mut [Values]) -> Result<(), CpuError> {
        let all: Vec<T> = joined(totals, LANES)?;
        let (mut before, mut state) = (all.clone(), joined(states, 1)?.into());
        self.go(&all, &mut state, &mut before);
        for (total, before) in totals.iter_mut().zip(before.chunks_exact(LANES)) {
            total.room::<T>(LANES)?.copy_from_slice(before);
        }
        for (values, after) in states.iter_mut().zip(&state) {
            values.room::<T>(1)?[0] = *after;
        }
        Ok(())
    }
}

/// The states of all fields, one behind the other.
fn joined<T: Scalar>(states: &[Values], lanes: usize) -> Result<Vec<T>, CpuError> {
    let mut all = room(states.len() * lanes)?;
    states.iter().for_each(|values| all.extend_from_slice(&values.from(0).of::<T>()[..lanes]));
    Ok(all)
}

/// So many numbers of a memory, which begin at a line of the cache.
fn lines<T: Scalar>(memory: &mut Values, n: usize) -> Result<&mut [T], CpuError> {
    let all = memory.room::<T>(n.saturating_add(LINE))?;
    let start = all.as_ptr().align_offset(LINE).min(LINE);
    Ok(&mut all[start..][..n])
}
