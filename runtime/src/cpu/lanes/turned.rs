//! Blocks that are turned, the swept axis in parts.

use std::ops::Range;

use oplus_dsl::Ty;

use crate::cpu::CpuError;
use crate::cpu::kernel::Kernel;
use crate::cpu::loops::{Loops, PerAxis};
use crate::cpu::lost;
use crate::cpu::map;
use crate::cpu::native::{Call, States, Steps};
use crate::cpu::near;
use crate::cpu::sweep::{Geometry, Kept, Strides, Workspace, dense, sweep, takes};
use crate::cpu::turn::{turn, turn_back};
use crate::cpu::values::{Slice, Values};

use crate::room::room;

use super::{Block, Combination, Elements, FirstElement, Operand, Results};

/// A block whose swept axis is cut into parts of equal length. The lanes are the other axes and, innermost, the parts.
pub(super) struct Turned<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) parts: usize,
    pub(super) steps: usize,
    /// How the first element of the first part is combined.
    pub(super) first: FirstElement,
}

/// How parts are swept.
#[derive(Clone, Copy)]
struct How {
    exclusive: bool,
    in_blocks: bool,
    /// Whether the first parts leave their first element out.
    leaves_out: bool,
}

impl Turned<'_> {
    pub(super) fn sweep(
        &self,
        of: &Combination,
        elements: Elements<'_>,
        results: &mut Results<'_, '_>,
        (workspace, mut call): (&mut Workspace, Option<&mut Call<'_, '_>>),
    ) -> Result<(), CpuError> {
        let has_outputs = results.outputs.iter().any(Option::is_some) || call.is_some();
        if self.parts == 1 {
            return self.scan(of, elements.scan, results.states, results.outputs, workspace);
        }
        let known = workspace.totals.take().filter(|_| has_outputs && call.is_none());
        let totals = match known {
            Some(known) => known,
            None => {
                if call.is_none() && (has_outputs || of.gives_totals) {
                    let lanes = self.lanes().iter().product();
                    workspace.kept = Kept::new([&of.total, &of.scan], self.steps, lanes, workspace)?;
                }
                self.totals(of, elements.total, (workspace, call.as_deref()))?
            }
        };
        // The elements before the results are of their own.
        let kept = workspace.kept.take();
        let copies = |states: &[Values], is_needed: bool| Values::copies(if is_needed { states } else { &[] });
        let before = copies(results.states, self.first == FirstElement::Separate)?;
        self.enter(of, elements.scan, results.states, workspace)?;
        let entered = copies(results.states, !of.gives_totals)?;
        let mut starts = match &call {
            Some(call) => {
                let mut starts = Values::copies(&totals)?;
                call.native.run_starts(&mut starts, results.states)?;
                starts
            }
            None => self.starts(of, &totals, results.states, has_outputs, workspace)?,
        };
        let has_others = |values: &[Values]| lost::has_others(&of.merge, values);
        if !of.gives_totals && (has_others(&starts) || has_others(results.states)) {
            results.states.iter_mut().zip(entered).for_each(|(state, entered)| *state = entered);
            starts = self.starts_by_steps(of, elements.scan, &totals, results.states, workspace)?;
        }
        if has_outputs {
            self.begin(of, &mut starts, &before);
            if let (Some(call), Some(mut squares)) = (&mut call, workspace.squares.take()) {
                let states = States { starts: &starts, last: results.states };
                call.scan(elements, self.steps, states, &mut squares)?;
                workspace.give(squares);
                return Ok(());
            }
            workspace.kept = kept;
            self.scan(of, elements.scan, &mut starts, results.outputs, workspace)?;
            let kept = workspace.kept.take();
            kept.into_iter().for_each(|kept| workspace.give(kept.values));
        } else {
            (workspace.totals, workspace.kept) = (Some(totals), kept);
        }
        Ok(())
    }

    /// The combination of all elements of each part.
    fn totals(
        &self,
        of: &Combination,
        elements: &[Operand<'_>],
        (workspace, call): (&mut Workspace, Option<&Call<'_, '_>>),
    ) -> Result<Vec<Values>, CpuError> {
        let identity = |((ty, identity), dims): (&(Ty, _), &u64)| Values::filled(*ty, self.width(*dims), *identity);
        let totals = of.total.fields.iter().zip(self.block.states).map(identity);
        let mut totals = totals.collect::<Result<Vec<Values>, _>>()?;
        let leaves_out = self.first != FirstElement::Combined;
        if let Some(call) = call {
            let elements: Vec<Slice<'_>> = elements.iter().map(|element| element.values).collect();
            let mut squares = call.native.squares(self.steps, workspace)?;
            call.native.run_totals(&elements, Steps::new(self.steps, leaves_out), &mut totals, &mut squares)?;
            workspace.squares = Some(squares);
            return Ok(totals);
        }
        let mut none: Vec<_> = totals.iter().map(|_| None).collect();
        let how = How { exclusive: false, in_blocks: of.in_blocks(), leaves_out };
        let results = Results { states: &mut totals, outputs: &mut none };
        if takes(&of.total) {
            near::read(&elements.iter().map(|element| element.values).collect::<Vec<_>>());
            self.run_as_it_lies(&of.total, elements, results, how, workspace)?;
        } else {
            self.run(&of.total, elements, results, how, workspace)?;
        }
        Ok(totals)
    }

    /// Combines states with the first element, if it is combined alone.
    fn enter(
        &self,
        of: &Combination,
        elements: &[Operand<'_>],
        states: &mut [Values],
        workspace: &mut Workspace,
    ) -> Result<(), CpuError> {
        if self.first == FirstElement::Separate {
            let mut extents = self.block.extents.to_vec();
            extents[self.block.axis] = 1;
            let block = Block { extents: &extents, ..*self.block };
            let first = elements.iter().map(|element| self.block.first(element)).collect::<Result<Vec<Values>, _>>()?;
            let first = elements.iter().zip(&first).map(|(e, first)| Operand { dims: e.dims, values: first.from(0) });
            let mut none: Vec<_> = states.iter().map(|_| None).collect();
            let results = Results { states, outputs: &mut none };
            block.sweep_as_it_lies(of, &first.collect::<Vec<_>>(), results, 0..1, FirstElement::Separate, workspace)?;
        }
        Ok(())
    }

    /// Puts the states before the first element at the start of the first part, if that begins with it.
    fn begin(&self, of: &Combination, starts: &mut [Values], before: &[Values]) {
        let is_alone = self.first == FirstElement::Separate;
        for field in (0..starts.len()).filter(|field| is_alone && of.scan.kept() >> field & 1 == 1) {
            let dims = self.block.states[field];
            let own = self.block.strides(dims & !(1 << self.block.axis), 0).lanes;
            self.place_first(&mut starts[field], dims, before[field].from(0), &own);
        }
    }

    /// Makes the totals of the first parts the identity again.
    fn forget(&self, kernel: &Kernel, totals: &mut [Values]) -> Result<(), CpuError> {
        for ((total, dims), (ty, identity)) in totals.iter_mut().zip(self.block.states).zip(&kernel.fields) {
            let identity = Values::filled(*ty, 1, *identity)?;
            self.place_first(total, *dims, identity.from(0), &vec![0; self.block.extents.len() - 1]);
        }
        Ok(())
    }

    /// Writes the lanes of the first parts.
    fn place_first(&self, lanes: &mut Values, dims: u64, from: Slice<'_>, strides: &[isize]) {
        let own = self.lane_strides(dims | 1 << self.block.axis, self.parts);
        let axes = self.block.others().into_iter().zip(own.iter().zip(strides)).filter(|(k, _)| dims >> k & 1 == 1);
        let loops = Loops::new(axes.map(|(k, (own, from))| (self.block.extents[k], [*own, *from])));
        map::place(&loops, lanes, [0, 0], from);
    }

    /// The state before each part; `states` go to after the last one.
    fn starts(
        &self,
        of: &Combination,
        totals: &[Values],
        states: &mut [Values],
        is_kept: bool,
        workspace: &mut Workspace,
    ) -> Result<Vec<Values>, CpuError> {
        let mut starts = Values::copies(totals)?;
        let kept = is_kept.then_some(&mut starts[..]);
        self.merge(of, totals, states, kept, 0..self.parts, workspace)?;
        Ok(starts)
    }

    /// Combines states with the totals of some parts, one after the other. The states before each go to `starts`, if
    /// there are any.
    fn merge(
        &self,
        of: &Combination,
        totals: &[Values],
        states: &mut [Values],
        starts: Option<&mut [Values]>,
        parts: Range<usize>,
        workspace: &mut Workspace,
    ) -> Result<(), CpuError> {
        let own = |dims: &u64| self.lane_strides(*dims & !(1 << self.block.axis), 1);
        let along = |dims: &u64| {
            let all = self.lane_strides(*dims | 1 << self.block.axis, self.parts);
            Strides { start: parts.start, step: 1, lanes: PerAxis::from_slice(&all[..all.len() - 1]) }
        };
        let geometry = Geometry {
            steps: parts.len(),
            lanes: PerAxis::from_slice(&self.lanes()[..self.block.extents.len() - 1]),
            elements: self.block.states.iter().map(along).collect(),
            states: self
                .block
                .states
                .iter()
                .map(|dims| PerAxis::from_slice(&own(dims)[..self.block.extents.len() - 1]))
                .collect(),
            outputs: self.block.states.iter().map(along).collect(),
            in_blocks: false,
            first: FirstElement::Combined,
            exclusive: true,
        };
        let elements: Vec<Slice<'_>> = totals.iter().map(|total| total.from(0)).collect();
        let kept = of.merge.kept();
        let mut outputs: Vec<Option<&mut Values>> = totals.iter().map(|_| None).collect();
        for (field, start) in starts.into_iter().flatten().enumerate().filter(|(field, _)| kept >> field & 1 == 1) {
            outputs[field] = Some(start);
        }
        sweep(&of.merge, &geometry, &elements, states, &mut outputs, workspace)
    }

    /// The state before each part, where parts that lose states are taken step by step; `states` go to after the last
    /// one.
    fn starts_by_steps(
        &self,
        of: &Combination,
        elements: &[Operand<'_>],
        totals: &[Values],
        states: &mut [Values],
        workspace: &mut Workspace,
    ) -> Result<Vec<Values>, CpuError> {
        let mut starts = Values::copies(totals)?;
        for part in 0..self.parts {
            let before = Values::copies(states)?;
            self.merge(of, totals, states, Some(&mut starts), part..part + 1, workspace)?;
            if !lost::any(&of.merge, &before, states) {
                continue;
            }
            let mut stepped = Values::copies(&before)?;
            let mut none: Vec<_> = stepped.iter().map(|_| None).collect();
            let is_entered = part == 0 && self.first != FirstElement::Combined;
            let first = if is_entered { FirstElement::Skipped } else { FirstElement::Combined };
            let range = part * self.steps..(part + 1) * self.steps;
            let results = Results { states: &mut stepped, outputs: &mut none };
            self.block.sweep_as_it_lies(of, elements, results, range, first, workspace)?;
            lost::replace(&of.merge, &before, states, &stepped);
        }
        Ok(starts)
    }

    /// Sweeps every part from its start.
    fn scan(
        &self,
        of: &Combination,
        elements: &[Operand<'_>],
        starts: &mut [Values],
        outputs: &mut [Option<&mut Values>],
        workspace: &mut Workspace,
    ) -> Result<(), CpuError> {
        let how = How { exclusive: of.exclusive, in_blocks: of.in_blocks(), leaves_out: false };
        if takes(&of.scan) {
            return self.run_as_it_lies(&of.scan, elements, Results { states: starts, outputs }, how, workspace);
        }
        let mut turned: Vec<Option<Values>> = vec![];
        for (output, dims) in outputs.iter().zip(self.block.states) {
            let room = output.as_ref().map(|output| workspace.take(output.ty(), self.steps * self.width(*dims)));
            turned.push(room.transpose()?);
        }
        let mut targets: Vec<Option<&mut Values>> = turned.iter_mut().map(Option::as_mut).collect();
        self.run(&of.scan, elements, Results { states: starts, outputs: &mut targets }, how, workspace)?;
        for ((output, turned), dims) in outputs.iter_mut().zip(&turned).zip(self.block.states) {
            if let (Some(output), Some(turned)) = (output, turned) {
                let dims = dims | 1 << self.block.axis;
                turn_back(output, turned.from(0), &self.lane_starts(dims)?, self.block.stride(dims), self.steps);
            }
        }
        turned.into_iter().flatten().for_each(|values| workspace.give(values));
        Ok(())
    }

    /// Sweeps every part where it lies, by a kernel that takes lanes from anywhere.
    fn run_as_it_lies(
        &self,
        kernel: &Kernel,
        elements: &[Operand<'_>],
        results: Results<'_, '_>,
        how: How,
        workspace: &mut Workspace,
    ) -> Result<(), CpuError> {
        let slices: Vec<Slice<'_>> = elements.iter().map(|element| element.values).collect();
        let along = |dims: u64| {
            let Strides { start, step, mut lanes } = self.block.strides(dims, 0);
            lanes.push(step * self.steps as isize);
            Strides { start, step, lanes }
        };
        self.sweep_parts(kernel, &slices, self.geometry(elements, along, how), results, how, workspace)
    }

    /// Sweeps every part after its elements are copied with the steps outermost.
    fn run(
        &self,
        kernel: &Kernel,
        elements: &[Operand<'_>],
        results: Results<'_, '_>,
        how: How,
        workspace: &mut Workspace,
    ) -> Result<(), CpuError> {
        let turned = elements.iter().map(|element| self.turned(element, workspace));
        let turned = turned.collect::<Result<Vec<Option<Values>>, _>>()?;
        let mut slices: Vec<Slice<'_>> = vec![];
        for (turned, element) in turned.iter().zip(elements) {
            slices.push(match turned {
                Some(turned) => turned.from(0).to(self.steps * self.width(element.dims)),
                None => element.values,
            });
        }
        let along = |dims: u64| {
            let step = if self.block.stride(dims) == 0 { 0 } else { self.width(dims) as isize };
            Strides { start: 0, step, lanes: self.lane_strides(dims, self.parts) }
        };
        self.sweep_parts(kernel, &slices, self.geometry(elements, along, how), results, how, workspace)?;
        turned.into_iter().flatten().for_each(|values| workspace.give(values));
        Ok(())
    }

    /// The geometry of parts; `along` gives the strides of something that varies over some axes of the block.
    fn geometry(&self, elements: &[Operand<'_>], along: impl Fn(u64) -> Strides, how: How) -> Geometry {
        let over_parts = |dims: &u64| self.lane_strides(dims | 1 << self.block.axis, self.parts);
        Geometry {
            steps: self.steps,
            lanes: self.lanes(),
            elements: elements.iter().map(|element| along(element.dims)).collect(),
            states: self.block.states.iter().map(over_parts).collect(),
            outputs: self.block.states.iter().map(|dims| along(dims | 1 << self.block.axis)).collect(),
            in_blocks: how.in_blocks,
            first: if self.parts == 1 { self.first } else { FirstElement::Combined },
            exclusive: how.exclusive,
        }
    }

    /// Sweeps all parts.
    fn sweep_parts(
        &self,
        kernel: &Kernel,
        slices: &[Slice<'_>],
        mut geometry: Geometry,
        Results { states, outputs }: Results<'_, '_>,
        how: How,
        workspace: &mut Workspace,
    ) -> Result<(), CpuError> {
        if how.leaves_out {
            geometry.steps = 1;
            sweep(kernel, &geometry, slices, states, outputs, workspace)?;
            self.forget(kernel, states)?;
            (geometry.steps, geometry.first) = (self.steps, FirstElement::Skipped);
        }
        sweep(kernel, &geometry, slices, states, outputs, workspace)
    }

    /// The element with the steps outermost; `None` if it does not vary along the swept axis.
    fn turned(&self, element: &Operand<'_>, workspace: &mut Workspace) -> Result<Option<Values>, CpuError> {
        let stride = self.block.stride(element.dims);
        if stride == 0 {
            return Ok(None);
        }
        let mut turned = workspace.take(element.values.ty(), 0)?;
        turn(&mut turned, element.values, &self.lane_starts(element.dims)?, stride, self.steps)?;
        Ok(Some(turned))
    }

    /// The sizes of the lanes' axes.
    fn lanes(&self) -> PerAxis<usize> {
        let others = self.block.others();
        others.iter().map(|k| self.block.extents[*k]).chain([self.parts]).collect()
    }

    /// The strides of the lanes' axes for something that varies over some axes of the block.
    fn lane_strides(&self, dims: u64, parts: usize) -> PerAxis<isize> {
        let varies = self.block.others().into_iter().map(|k| dims >> k & 1 == 1);
        let varies: PerAxis<bool> = varies.chain([dims >> self.block.axis & 1 == 1]).collect();
        let mut lanes = self.lanes();
        lanes[varies.len() - 1] = parts;
        dense(&lanes, &varies)
    }

    /// How many lanes something has that varies over the swept axis.
    fn width(&self, dims: u64) -> usize {
        let others = self.block.others().into_iter().filter(|k| dims >> k & 1 == 1);
        others.map(|k| self.block.extents[k]).product::<usize>() * self.parts
    }

    /// Where each lane begins in the block.
    fn lane_starts(&self, dims: u64) -> Result<Vec<usize>, CpuError> {
        let strides = self.block.strides(dims, 0);
        let axes = self.block.others().into_iter().zip(&strides.lanes).filter(|(k, _)| dims >> k & 1 == 1);
        let lanes = axes.map(|(k, stride)| (self.block.extents[k], *stride as usize));
        let part = self.steps * strides.step as usize;
        let mut starts = room(1)?;
        starts.push(0);
        for (n, stride) in lanes.chain([(self.parts, part)]) {
            let mut finer = room(starts.len() * n)?;
            finer.extend(starts.iter().flat_map(|start| (0..n).map(move |i| start + i * stride)));
            starts = finer;
        }
        Ok(starts)
    }
}

impl Call<'_, '_> {
    /// Sweeps every part from its start for results.
    fn scan(
        &mut self,
        elements: Elements<'_>,
        steps: usize,
        states: States<'_>,
        squares: &mut Values,
    ) -> Result<(), CpuError> {
        let inputs = elements.scan.iter().map(|element| element.values).chain(elements.others.iter().copied());
        let states = States { last: self.ends.unwrap_or(states.last), ..states };
        self.native.run_results(&inputs.collect::<Vec<_>>(), Steps::new(steps, false), states, self.memory, squares)
    }
}
