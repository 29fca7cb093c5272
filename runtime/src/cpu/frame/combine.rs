//! Scans and reductions of blocks.

use crate::cpu::CpuError;
use crate::cpu::flip::{flip, flip_to};
use crate::cpu::lanes::{Block, Elements, FirstElement, Operand, Results, merge};
use crate::cpu::map;
use crate::cpu::native::Call;
use crate::cpu::sweep::Workspace;
use crate::cpu::tile::{Combine, Reg, Register, size, strides};
use crate::cpu::values::Values;

use super::{Found, Frame, Sweeping};

impl Frame<'_> {
    /// Puts the states of a combination before its first element.
    pub(in crate::cpu) fn reset(&mut self, combine: &Combine) -> Result<(), CpuError> {
        for (field, state) in combine.states.iter().enumerate() {
            match (*state, combine.init.get(field)) {
                (Some(state), Some(init)) => self.broadcast(state, *init)?,
                _ => self.reset_to_identity(combine, field)?,
            }
        }
        Ok(())
    }

    /// Makes a field's state the identity.
    pub(in crate::cpu) fn reset_to_identity(&mut self, combine: &Combine, field: usize) -> Result<(), CpuError> {
        if let Some(state) = combine.states[field] {
            let n = self.len(state);
            let identity = combine.totals.scan.fields[field].1;
            self.get_mut(state).fill(n, identity)?;
        }
        Ok(())
    }

    /// How the first element of the tile is combined.
    pub(super) fn first(&self, combine: &Combine, sweeping: Sweeping) -> FirstElement {
        match combine.opens && (self.is_opening || !combine.is_streamed) {
            true if combine.gives_totals(sweeping) => FirstElement::Skipped,
            true => FirstElement::Separate,
            false => FirstElement::Combined,
        }
    }

    /// Keeps the first elements of the tile, which its totals leave out.
    pub(super) fn keep_first(&mut self, at: usize, combine: &Combine) -> Result<(), CpuError> {
        let first = combine.elements[1].iter().map(|register| self.at_first(*register, combine));
        let first = first.collect::<Result<_, _>>()?;
        self.firsts.insert(at, first);
        Ok(())
    }

    /// The values of a register at the index that a combination visits first.
    fn at_first(&self, register: Reg, combine: &Combine) -> Result<Values, CpuError> {
        let mut extents = self.tile.extents.clone();
        let last = extents[combine.axis].saturating_sub(1);
        extents[combine.axis] = 1;
        let Register { ty, dims, .. } = self.code.registers[register.0];
        let own = self.strides(register);
        let start = if self.is_reversed(combine) { last * own[combine.axis] as usize } else { 0 };
        let loops = self.loops_over(register, &extents, [&strides(dims, &extents), &own]).unit();
        let mut first = Values::empty(ty);
        map::copy(&loops, &mut first, self.get(register).from(start))?;
        Ok(first)
    }

    /// Combines the states before a chunk with the first elements that its totals have left out.
    pub(in crate::cpu) fn enter(
        &mut self,
        at: usize,
        combine: &Combine,
        states: &mut [Values],
    ) -> Result<(), CpuError> {
        let Some(first) = self.firsts.remove(&at) else { return Ok(()) };
        let mut extents = self.tile.extents.clone();
        extents[combine.axis] = 1;
        let dims = combine.elements[1].iter().map(|register| self.code.registers[register.0].dims);
        let elements = dims.zip(&first).map(|(dims, values)| Operand { dims, values: values.from(0) });
        let elements: Vec<Operand<'_>> = elements.collect();
        let block = Block { extents: &extents, axis: combine.axis, reverse: false, states: &combine.dims };
        let mut none: Vec<_> = states.iter().map(|_| None).collect();
        let results = Results { states, outputs: &mut none };
        let elements = Elements { scan: &elements, total: &elements, others: &[] };
        block.sweep(&combine.totals, elements, results, FirstElement::Combined, (&mut self.workspace, None))
    }

    /// Combines states with the totals of what comes next.
    pub(in crate::cpu) fn merge(
        &mut self,
        combine: &Combine,
        states: &mut [Values],
        totals: &[Values],
    ) -> Result<(), CpuError> {
        merge(&combine.results, (&self.tile.extents, &combine.dims), states, totals, &mut self.workspace)
    }

    /// Sweeps the tile.
    pub(super) fn combine(
        &mut self,
        at: usize,
        combine: &Combine,
        sweeping: Sweeping,
        first: FirstElement,
        call: Option<Call<'_, '_>>,
    ) -> Result<(), CpuError> {
        let totals = combine.gives_totals(sweeping);
        let has_registers = !totals && call.is_none();
        if !combine.is_streamed {
            self.reset(combine)?;
        }
        let mut states: Vec<Values> = combine.states.iter().map(|state| self.lend(*state)).collect();
        let mut outputs: Vec<Option<Values>> =
            combine.outputs.iter().map(|output| self.lend_output(*output, !has_registers)).collect::<Result<_, _>>()?;
        let tile = (at, self.tile.starts[combine.axis]);
        let known = self.totals.get_mut(&tile).filter(|_| !totals && combine.is_streamed);
        if let Some(known) = known {
            self.workspace.totals = Some(Values::copies(&known.totals)?);
            self.workspace.kept = known.kept.take();
        }
        self.sweep((combine, tile), (totals, first), (&mut states, &mut outputs), call)?;
        let kept = self.workspace.kept.take();
        if let Some(found) = self.workspace.totals.take().filter(|_| totals) {
            self.totals.insert(tile, Found { totals: found, kept });
        }
        for (state, values) in combine.states.iter().zip(states) {
            if let Some(state) = state {
                *self.get_mut(*state) = values;
            }
        }
        for (output, values) in combine.outputs.iter().zip(outputs) {
            if let (Some(output), Some(values)) = (output, values) {
                *self.get_mut(*output) = values;
            }
        }
        Ok(())
    }

    /// Puts the states that a chunk ends with in place of those that were swept, and of the results at its last index.
    pub(super) fn close(&mut self, combine: &Combine, end: &[Values]) -> Result<(), CpuError> {
        let last = if self.is_reversed(combine) { 0 } else { self.tile.extents[combine.axis] as isize - 1 };
        for (field, end) in end.iter().enumerate() {
            if let Some(state) = combine.states[field] {
                self.get_mut(state).copy_from(end.from(0))?;
            }
            if let (Some(output), false) = (combine.outputs[field], combine.results.exclusive) {
                let mut extents = self.tile.extents.clone();
                extents[combine.axis] = 1;
                let own = self.strides(output);
                let loops = self.loops_over(output, &extents, [&own, &strides(combine.dims[field], &extents)]);
                let mut values = self.take(output);
                map::place(&loops, &mut values, [last * own[combine.axis], 0], end.from(0));
                *self.get_mut(output) = values;
            }
        }
        Ok(())
    }

    pub(super) fn lend(&mut self, state: Option<Reg>) -> Values {
        state.map_or(Values::Bool(vec![]), |state| self.take(state))
    }

    pub(super) fn lend_output(&mut self, output: Option<Reg>, totals: bool) -> Result<Option<Values>, CpuError> {
        let Some(output) = output.filter(|_| !totals) else { return Ok(None) };
        let n = self.len(output);
        let mut values = self.take(output);
        values.grow(n)?;
        Ok(Some(values))
    }

    fn sweep(
        &mut self,
        (combine, tile): (&Combine, (usize, usize)),
        (totals, first): (bool, FirstElement),
        (states, outputs): (&mut [Values], &mut [Option<Values>]),
        mut call: Option<Call<'_, '_>>,
    ) -> Result<(), CpuError> {
        let mut workspace = std::mem::take(&mut self.workspace);
        let of = if totals { &combine.totals } else { &combine.results };
        let [of_scan, of_total] = &combine.elements;
        let of_scan = if totals { of_total } else { of_scan };
        let is_reversed = self.is_reversed(combine);
        let flips = is_reversed && !of.takes_any_order();
        let mut flipped = self.flipped.remove(&tile).filter(|_| flips).unwrap_or_default();
        if flips {
            self.flip(combine, [&of_scan[..], &of_total[..]], &mut flipped, &mut workspace)?;
        }
        let (scan, total) = (self.operands(of_scan, &flipped), self.operands(of_total, &flipped));
        let reverse = is_reversed && !flips;
        let block = Block { extents: &self.tile.extents, axis: combine.axis, reverse, states: &combine.dims };
        let mut targets: Vec<Option<&mut Values>> = outputs.iter_mut().map(Option::as_mut).collect();
        let results = Results { states, outputs: &mut targets };
        let others = call.iter().flat_map(|call| call.native.others.iter().map(|register| self.get(*register)));
        let elements = Elements { scan: &scan, total: &total, others: &others.collect::<Vec<_>>() };
        block.sweep(of, elements, results, first, (&mut workspace, call.as_mut()))?;
        if flips {
            for (values, dims) in outputs.iter_mut().zip(&combine.dims) {
                if let Some(values) = values {
                    let dims = dims | 1 << combine.axis;
                    let (len, rows, inside) = self.rows(dims, combine.axis);
                    flip(values, len, rows, inside)?;
                }
            }
        }
        if totals {
            self.flipped.insert(tile, flipped);
        } else {
            flipped.into_iter().for_each(|(_, values)| workspace.give(values));
        }
        self.workspace = workspace;
        Ok(())
    }

    fn operands<'s>(&'s self, registers: &[Reg], flipped: &'s [(Reg, Values)]) -> Vec<Operand<'s>> {
        let operand = |register: &Reg| {
            let flipped = flipped.iter().find(|(other, _)| other == register);
            let values = flipped.map_or_else(|| self.get(*register), |(_, values)| values.from(0));
            Operand { dims: self.code.registers[register.0].dims, values }
        };
        registers.iter().map(operand).collect()
    }

    /// Adds the elements that vary along the swept axis, in the order of visits, to those that are known.
    fn flip(
        &self,
        combine: &Combine,
        registers: [&[Reg]; 2],
        all: &mut Vec<(Reg, Values)>,
        workspace: &mut Workspace,
    ) -> Result<(), CpuError> {
        for register in registers.concat() {
            let Register { dims, .. } = self.code.registers[register.0];
            if dims >> combine.axis & 1 == 0 || all.iter().any(|(other, _)| *other == register) {
                continue;
            }
            let (len, rows, inside) = self.rows(dims, combine.axis);
            let values = self.get(register);
            let mut copy = workspace.take(values.ty(), 0)?;
            flip_to(&mut copy, values, len, rows, inside)?;
            all.push((register, copy));
        }
        Ok(())
    }

    /// The length of a block, its rows along an axis, and the length of a row.
    fn rows(&self, dims: u64, axis: usize) -> (usize, usize, usize) {
        let extents = &self.tile.extents;
        (size(dims, extents), extents[axis], size(dims & u64::MAX << axis & !(1 << axis), extents))
    }
}
