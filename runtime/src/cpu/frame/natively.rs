//! Scans of tiles by machine code.

use crate::cpu::CpuError;
use crate::cpu::lanes::FirstElement;
use crate::cpu::loops::PerAxis;
use crate::cpu::native::{Call, Memory, Native, Output, Results, Scratch, Tile};
use crate::cpu::tile::Combine;
use crate::cpu::values::{Slice, Values};

use super::{Frame, Sweeping, Tile as Place};

impl Frame<'_> {
    /// Sweeps the tile by machine code, for totals or for results, which go to `stored` and to registers.
    pub(in crate::cpu) fn combine_natively(
        &mut self,
        native: &Native,
        combine: &Combine,
        sweeping: Sweeping,
        stored: Option<Memory<'_>>,
    ) -> Result<(), CpuError> {
        let first = self.first(combine, sweeping);
        let Some(mut memory) = stored else { return self.total_natively(native, combine, first) };
        let registers = native.outputs.iter().filter_map(|output| match output {
            Output::Register(register) => Some(*register),
            Output::Store(_) => None,
        });
        let mut lent = vec![];
        for register in registers {
            lent.push((register, self.lend_output(Some(register), false)?));
        }
        let ends = self.ends.remove(&native.at).filter(|_| self.is_closing);
        lent.iter_mut().for_each(|(_, values)| values.iter_mut().for_each(|values| memory.push(values)));
        let results = Results { memory: &mut memory, ends: ends.as_deref() };
        if !self.result_natively(native, combine, first, results)? {
            let call = Call { native, memory: &mut memory, ends: ends.as_deref() };
            self.combine(native.at, combine, sweeping, first, Some(call))?;
        }
        for (register, values) in lent {
            values.into_iter().for_each(|values| *self.get_mut(register) = values);
        }
        for (state, end) in combine.states.iter().zip(ends.iter().flatten()) {
            if let Some(state) = state {
                self.get_mut(*state).copy_from(end.from(0))?;
            }
        }
        self.ends.extend(ends.map(|ends| (native.at, ends)));
        Ok(())
    }

    /// Combines the states with all elements of the tile.
    fn total_natively(&mut self, native: &Native, combine: &Combine, first: FirstElement) -> Result<(), CpuError> {
        self.with_scratch(native, combine, |frame, states, scratch| {
            let inputs: Vec<Slice<'_>> = combine.elements[1].iter().map(|element| frame.get(*element)).collect();
            native.total(frame.native_tile(combine, &inputs, first), states, scratch)
        })
    }

    /// Sweeps the tile for results; `false` where combined elements lose a state.
    fn result_natively(
        &mut self,
        native: &Native,
        combine: &Combine,
        first: FirstElement,
        results: Results<'_, '_>,
    ) -> Result<bool, CpuError> {
        self.with_scratch(native, combine, |frame, states, scratch| {
            let registers = combine.elements[0].iter().chain(&native.others);
            let inputs: Vec<Slice<'_>> = registers.map(|register| frame.get(*register)).collect();
            native.result((combine, frame.native_tile(combine, &inputs, first)), states, results, scratch)
        })
    }

    fn native_tile<'t>(&self, combine: &Combine, inputs: &'t [Slice<'t>], first: FirstElement) -> Tile<'t> {
        let Place { starts, extents } = &self.tile;
        Tile { start: starts[combine.axis], steps: extents[combine.axis], inputs, first }
    }

    /// Combines states with the total of a chunk; `false` where machine code has not found it.
    pub(in crate::cpu) fn pass_natively(
        &mut self,
        native: &Native,
        states: &mut [Values],
        totals: &[Values],
    ) -> Result<bool, CpuError> {
        let Some(scratch) = self.native.as_mut().filter(|scratch| scratch.has_totals()) else { return Ok(false) };
        native.pass(states, totals, scratch)?;
        Ok(true)
    }

    /// Lends the states and what is kept from tile to tile.
    fn with_scratch<R>(
        &mut self,
        native: &Native,
        combine: &Combine,
        work: impl FnOnce(&Self, &mut [Values], &mut Scratch) -> Result<R, CpuError>,
    ) -> Result<R, CpuError> {
        let mut scratch = match self.native.take() {
            Some(scratch) => scratch,
            None => Box::new(native.scratch(combine)?),
        };
        let mut states: PerAxis<Values> = combine.states.iter().map(|state| self.lend(*state)).collect();
        let done = work(self, &mut states, &mut scratch);
        for (state, values) in combine.states.iter().zip(states) {
            if let Some(state) = state {
                *self.get_mut(*state) = values;
            }
        }
        self.native = Some(scratch);
        done
    }
}
