//! Scans of tiles by machine code.

use crate::cpu::CpuError;
use crate::cpu::lanes::FirstElement;
use crate::cpu::native::{Call, Memory, Native, Output, Results};
use crate::cpu::tile::Combine;

use super::{Frame, Sweeping};

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
        if first == FirstElement::Skipped {
            self.keep_first(native.at, combine)?;
        }
        let Some(mut memory) = stored else {
            return self.combine(native.at, combine, sweeping, first, Some(Call { native, results: None }));
        };
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
        self.combine(native.at, combine, sweeping, first, Some(Call { native, results: Some(results) }))?;
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
}
