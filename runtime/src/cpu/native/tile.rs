//! Tiles from their elements to their results, without the lists that sweeps of any shape need.
//!
//! A tile has one row here, so a state is one number for each field. Numbers of several parts lie field by field.

use bytemuck::NoUninit;
use oplus_dsl::Ty;
use smallvec::SmallVec;

use crate::cpu::CpuError;
use crate::cpu::lanes::FirstElement;
use crate::cpu::lost;
use crate::cpu::tile::Combine;
use crate::cpu::values::{Scalar, Slice, Values};

use super::code::{Float, Function};
use super::{LANES, Memory, Native, PerInput, Starts, States, Steps, Tensors};

/// A state, a number for each field.
type State<T> = SmallVec<[T; 8]>;

/// Memory that a worker keeps from tile to tile.
#[derive(Debug)]
pub(in crate::cpu) struct Scratch {
    /// Where the tile begins whose totals and squares are there.
    known: Option<usize>,
    /// The first elements that the totals of a chunk leave out.
    opening: Option<Values>,
    /// The identity of every part.
    identity: Values,
    /// The totals of parts.
    totals: Values,
    /// The states before parts.
    starts: Values,
    /// The states behind parts, which nothing reads.
    ends: Values,
    squares: Values,
}

/// A tile that is swept.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Tile<'t> {
    /// Where it begins on the axis.
    pub(in crate::cpu) start: usize,
    /// How many steps it has.
    pub(in crate::cpu) steps: usize,
    /// The elements, and behind them what maps read beside them.
    pub(in crate::cpu) inputs: &'t [Slice<'t>],
    /// How its first element is combined.
    pub(in crate::cpu) first: FirstElement,
}

/// Where the results of a tile go, and the state that it ends with, where that is known before.
pub(in crate::cpu) struct Results<'r, 'm> {
    pub(in crate::cpu) memory: &'r mut Memory<'m>,
    pub(in crate::cpu) ends: Option<&'r [Values]>,
}

impl Scratch {
    /// Forgets the tile before.
    pub(in crate::cpu) fn clear(&mut self) {
        (self.known, self.opening) = (None, None);
    }

    /// Whether the totals of a chunk's last tile are there.
    pub(in crate::cpu) fn has_totals(&self) -> bool {
        self.known.is_some()
    }
}

impl Native {
    /// Memory for the tiles of a scan.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(in crate::cpu) fn scratch(&self, combine: &Combine) -> Result<Scratch, CpuError> {
        let fields = &combine.totals.total.fields;
        let mut identity = Values::empty(self.ty);
        match &mut identity {
            Values::F32(all) => fields.iter().for_each(|(_, one)| all.extend([f32::of(*one); LANES])),
            Values::F64(all) => fields.iter().for_each(|(_, one)| all.extend([f64::of(*one); LANES])),
            _ => {}
        }
        let mut memory = [(); 4].map(|()| Values::empty(self.ty));
        for values in &mut memory[..3] {
            values.grow(identity.len())?;
        }
        let [totals, starts, ends, squares] = memory;
        Ok(Scratch { known: None, opening: None, identity, totals, starts, ends, squares })
    }

    /// Combines states with all elements of a tile, whose totals and squares are kept for its results.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(in crate::cpu) fn total(
        &self,
        tile: Tile<'_>,
        states: &mut [Values],
        scratch: &mut Scratch,
    ) -> Result<(), CpuError> {
        match self.ty {
            Ty::F32 => self.total_of::<f32>(tile, states, scratch),
            _ => self.total_of::<f64>(tile, states, scratch),
        }
    }

    fn total_of<T: Scalar + Float>(
        &self,
        tile: Tile<'_>,
        states: &mut [Values],
        scratch: &mut Scratch,
    ) -> Result<(), CpuError> {
        if tile.first == FirstElement::Skipped {
            let mut opening = Values::empty(self.ty);
            let first = self.first_of(&tile);
            opening
                .room::<T>(first.len())?
                .iter_mut()
                .zip(&first)
                .for_each(|(own, one): (&mut T, &&[T])| *own = one[0]);
            scratch.opening = Some(opening);
        }
        self.parts_of::<T>(&tile, scratch)?;
        let mut state = state_of::<T>(states);
        self.starts[1].go(scratch.totals.all(), &mut state, scratch.starts.all());
        put(states, &state)
    }

    /// Finds the totals of the parts of a tile.
    fn parts_of<T: Scalar + Float>(&self, tile: &Tile<'_>, scratch: &mut Scratch) -> Result<(), CpuError> {
        let Scratch { identity, totals, squares, .. } = scratch;
        let elements = &tile.inputs[..tile.inputs.len().min(self.elements)];
        let steps = Steps::new(tile.steps / LANES, tile.first != FirstElement::Combined);
        self.sweep_totals::<T>(elements, steps, identity.all(), totals.all(), squares)?;
        scratch.known = Some(tile.start);
        Ok(())
    }

    /// Combines states with the total of a chunk, and before with its first elements where that leaves them out.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(in crate::cpu) fn pass(
        &self,
        states: &mut [Values],
        totals: &[Values],
        scratch: &mut Scratch,
    ) -> Result<(), CpuError> {
        match self.ty {
            Ty::F32 => self.pass_of::<f32>(states, totals, scratch),
            _ => self.pass_of::<f64>(states, totals, scratch),
        }
    }

    fn pass_of<T: Scalar + Float>(
        &self,
        states: &mut [Values],
        totals: &[Values],
        scratch: &mut Scratch,
    ) -> Result<(), CpuError> {
        let mut state = state_of::<T>(states);
        if let (Some(opening), Some([_, of_totals])) = (scratch.opening.take(), &self.openings) {
            let first: PerInput<&[T]> = opening.from(0).of::<T>().chunks_exact(1).collect();
            step(of_totals, &first, &mut state);
        }
        self.starts[0].go(&state_of::<T>(totals), &mut state, scratch.starts.all());
        put(states, &state)
    }

    /// Sweeps a tile for results; `states` go from before it to behind it. `false`, and nothing is done, where combined elements lose a
    /// state.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(in crate::cpu) fn result(
        &self,
        (combine, tile): (&Combine, Tile<'_>),
        states: &mut [Values],
        results: Results<'_, '_>,
        scratch: &mut Scratch,
    ) -> Result<bool, CpuError> {
        match results.memory {
            Memory::F32(outputs) => self.result_of(combine, tile, states, (outputs, results.ends), scratch),
            Memory::F64(outputs) => self.result_of(combine, tile, states, (outputs, results.ends), scratch),
        }
    }

    fn result_of<T: Scalar + Float + NoUninit>(
        &self,
        combine: &Combine,
        tile: Tile<'_>,
        states: &mut [Values],
        (outputs, ends): (&mut [&mut [T]], Option<&[Values]>),
        scratch: &mut Scratch,
    ) -> Result<bool, CpuError> {
        if scratch.known.take() != Some(tile.start) {
            self.parts_of::<T>(&tile, scratch)?;
            scratch.known = None;
        }
        let before = state_of::<T>(states);
        let mut state = before.clone();
        let is_alone = tile.first == FirstElement::Separate;
        if let (true, Some([of_results, _])) = (is_alone, &self.openings) {
            step(of_results, &self.first_of(&tile), &mut state);
        }
        let starts = scratch.starts.all::<T>();
        starts.copy_from_slice(scratch.totals.all());
        self.starts[0].go(scratch.totals.all(), &mut state, starts);
        let mut kept = lost::kept(&combine.results.merge);
        let has_lost = kept.any(|(field, identity)| {
            let (identity, before) = (T::of(identity), &starts[field * LANES..][..LANES]);
            !before.iter().chain([&state[field]]).all(|x| lost::is_state(*x, identity))
        });
        if has_lost {
            return Ok(false);
        }
        for field in (0..before.len()).filter(|field| is_alone && combine.results.scan.kept() >> field & 1 == 1) {
            starts[field * LANES] = before[field];
        }
        let last = ends.map_or_else(|| state.clone(), state_of);
        let known = States { starts: &*starts, last: &last };
        let steps = Steps::new(tile.steps / LANES, false);
        self.sweep_results(tile.inputs, steps, known, (outputs, scratch.ends.all()), &mut scratch.squares)?;
        put(states, &state)?;
        Ok(true)
    }

    /// The elements that a tile visits first.
    fn first_of<'t, T: Scalar>(&self, tile: &Tile<'t>) -> PerInput<&'t [T]> {
        let first = |input: &Slice<'t>| {
            let all = input.of::<T>();
            let at = if self.is_reversed && all.len() >= tile.steps { tile.steps - 1 } else { 0 };
            &all[at..=at]
        };
        tile.inputs.iter().take(self.elements).map(first).collect()
    }
}

impl Starts {
    /// Combines a state with the totals of parts, one after the other. The states before them go to `before`.
    pub(super) fn go<T: Scalar + Float>(&self, totals: &[T], state: &mut State<T>, before: &mut [T]) {
        let parts = totals.len() / state.len().max(1);
        let inputs: PerInput<&[T]> = totals.chunks_exact(parts).collect();
        let kept = before.chunks_exact_mut(parts).enumerate().filter(|(field, _)| self.kept.contains(field));
        let mut outputs: PerInput<&mut [T]> = kept.map(|(_, before)| before).collect();
        let starts = state.clone();
        let (outputs, ends) = (&mut outputs[..], &mut state[..]);
        let tensors = Tensors { inputs: &inputs, outputs, starts: &starts, last: &[], ends, squares: &mut [] };
        self.function.call(Steps::new(parts, false), tensors);
    }
}

/// Takes one step of one lane.
fn step<T: Scalar + Float>(function: &Function, inputs: &[&[T]], state: &mut State<T>) {
    let (starts, ends) = (state.clone(), &mut state[..]);
    let tensors = Tensors { inputs, outputs: &mut [], starts: &starts, last: &[], ends, squares: &mut [] };
    function.call(Steps::new(1, false), tensors);
}

fn state_of<T: Scalar>(states: &[Values]) -> State<T> {
    states.iter().map(|values| values.from(0).of::<T>()[0]).collect()
}

fn put<T: Scalar>(states: &mut [Values], state: &[T]) -> Result<(), CpuError> {
    states.iter_mut().zip(state).try_for_each(|(values, x)| {
        values.room::<T>(1)?[0] = *x;
        Ok(())
    })
}
