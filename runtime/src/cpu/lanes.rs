//! Scans and reductions of a block along one of its axes.
//!
//! Where other axes lie inside the swept one, its neighbours are the lanes and the block is swept as it lies. Where
//! nothing lies inside it, the block is turned first, so that the axes outside become the lanes; if they are few, the
//! swept axis is cut into parts that are lanes too: the parts' totals are combined first, then every part is swept from
//! the state before it.

use oplus_dsl::Ty;
use oplus_dsl::ir::Operator;

use super::kernel::{Ahead, Kernel, needed_of_both};
use super::loops::Loops;
use super::map;
use super::recurrence;
use super::sweep::{Geometry, Strides, Workspace, dense, sweep};
use super::turn::{turn, turn_back};
use super::values::{Slice, Values};

/// The least number of lanes for which stepping node by node is worth its overhead.
const LANES: usize = 64;
/// The least number of steps of a part.
const STEPS: usize = 16;

/// The kernels of one scan or reduction.
#[derive(Debug)]
pub(super) struct Combination {
    /// Steps that keep what the results need.
    pub(super) scan: Kernel,
    /// Steps that keep what combining totals needs.
    pub(super) total: Kernel,
    /// Steps over totals.
    pub(super) merge: Kernel,
    /// Give the state before each element.
    pub(super) exclusive: bool,
    /// How steps are taken.
    pub(super) manner: Manner,
}

/// How the steps of a sweep are taken. Of a scan nothing but its place in the program and the strides of memory decides
/// that, so that chunks of a sequence are swept as the whole is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// One after the other, each operation rounded.
    Steps,
    /// In blocks along contiguous memory.
    Blocks,
    /// From so many steps on in as many parts at once as their number allows.
    Parts { from: usize },
    /// In blocks where these are fast, else in as many parts at once as there are lanes too few.
    Lanes,
}

impl Combination {
    /// The kernels that give the fields whose bits are set.
    pub(super) fn new(operator: &Operator, fields: u64, exclusive: bool) -> Combination {
        let all = needed_of_both(operator, fields);
        Combination {
            scan: Kernel::new(operator, fields, Ahead::Elements),
            total: Kernel::new(operator, all, Ahead::Elements),
            merge: Kernel::new(operator, fields, Ahead::Nothing),
            exclusive,
            manner: Manner::Steps,
        }
    }

    /// Whether sweeping for results along contiguous memory needs no lanes to be fast. `is_single` tells whether an
    /// element is `f32` and contiguous.
    pub(super) fn lies_well(&self, has_outputs: bool, is_single: impl Fn(usize) -> bool) -> bool {
        self.scan.recurrences.as_ref().is_some_and(|all| {
            all.iter()
                .flatten()
                .all(|recurrence| recurrence::is_fast_along_memory(*recurrence, has_outputs, &is_single))
        })
    }

    /// Whether rows along contiguous memory may be swept in blocks.
    fn in_blocks(&self) -> bool {
        matches!(self.manner, Manner::Blocks | Manner::Lanes)
    }
}

/// Combines states with the totals of what comes next, field by field over the given axes of a block.
pub(super) fn merge(of: &Combination, extents: &[usize], dims: &[u64], states: &mut [Values], totals: &[Values]) {
    let lanes = |dims: &u64| {
        let varies: Vec<bool> = (0..extents.len()).map(|k| dims >> k & 1 == 1).collect();
        dense(extents, &varies)
    };
    let along = |dims: &u64| Strides { start: 0, step: 0, lanes: lanes(dims) };
    let geometry = Geometry {
        steps: 1,
        lanes: extents.to_vec(),
        elements: dims.iter().map(along).collect(),
        states: dims.iter().map(lanes).collect(),
        outputs: dims.iter().map(along).collect(),
        in_blocks: false,
    };
    let elements: Vec<Slice<'_>> = totals.iter().map(|total| total.from(0)).collect();
    let mut none: Vec<_> = states.iter().map(|_| None).collect();
    sweep(&of.merge, &geometry, &elements, states, &mut none, false, &mut Workspace::default());
}

/// Values of a block, and the axes over which they vary (bit k for axis k of the block), dense over them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand<'a> {
    pub(super) dims: u64,
    pub(super) values: Slice<'a>,
}

/// The axes of a block and the one that is swept.
pub(super) struct Block<'a> {
    /// The sizes, outermost first.
    pub(super) extents: &'a [usize],
    /// The axis swept.
    pub(super) axis: usize,
    /// Over which axes the state of each field varies.
    pub(super) states: &'a [u64],
}

/// The elements that each kernel of a combination sweeps.
#[derive(Clone, Copy)]
pub(super) struct Elements<'a> {
    /// Those of [`Combination::scan`].
    pub(super) scan: &'a [Operand<'a>],
    /// Those of [`Combination::total`].
    pub(super) total: &'a [Operand<'a>],
}

/// The states and outputs of a sweep, one per field.
pub(super) struct Results<'r, 'v> {
    /// From before the first index to after the last.
    pub(super) states: &'r mut [Values],
    /// The state at each index, over the axes of the state and the swept one.
    pub(super) outputs: &'r mut [Option<&'v mut Values>],
}

impl Block<'_> {
    /// Sweeps the block by a combination.
    pub(super) fn sweep(
        &self,
        combination: &Combination,
        elements: Elements<'_>,
        mut results: Results<'_, '_>,
        workspace: &mut Workspace,
    ) {
        let mut done = 0;
        if let Some(parts) = self.parts(combination, elements.scan, results.outputs) {
            let turned = Turned { block: self, parts, steps: self.steps() / parts };
            turned.sweep(combination, elements, &mut results, workspace);
            done = parts * turned.steps;
            if parts > 1 && done == self.steps() && !combination.exclusive {
                self.close(&mut results);
            }
        }
        self.sweep_as_it_lies(combination, elements.scan, results, done, workspace);
    }

    /// Into how many parts the swept axis is cut to be turned; `None` if the block is swept as it lies.
    fn parts(&self, of: &Combination, elements: &[Operand<'_>], outputs: &[Option<&mut Values>]) -> Option<usize> {
        let inside = self.size(u64::MAX << self.axis & !(1 << self.axis));
        let has_outputs = outputs.iter().any(Option::is_some);
        let single = |k: usize| matches!(elements[k].values, Slice::F32(_)) && self.stride(elements[k].dims) == 1;
        let (lanes, most) = (self.lanes(), self.steps() / STEPS);
        let is_long = most >= 2 && lanes > 0 && inside < 4;
        match of.manner {
            _ if !is_long => None,
            Manner::Steps => Some(1),
            Manner::Blocks => None,
            Manner::Parts { from } if self.steps() < from => Some(1),
            Manner::Parts { .. } => Some(LANES.min(most)),
            Manner::Lanes if inside == 1 && of.lies_well(has_outputs, single) => None,
            Manner::Lanes => Some((LANES / lanes).min(most).max(1)),
        }
    }

    /// Puts the states after the last index in place of the results there, which have been combined in another order.
    fn close(&self, results: &mut Results<'_, '_>) {
        let last = self.steps() - 1;
        for ((state, output), dims) in results.states.iter().zip(results.outputs.iter_mut()).zip(self.states) {
            if let Some(output) = output {
                let (own, out) =
                    (self.strides(*dims & !(1 << self.axis), 0), self.strides(dims | 1 << self.axis, last));
                let axes = self.others().into_iter().zip(out.lanes.iter().zip(&own.lanes));
                let axes = axes.filter(|(k, _)| dims >> k & 1 == 1).map(|(k, (o, s))| (self.extents[k], [*o, *s]));
                map::place(&Loops::new(axes), output, [out.start as isize, 0], state.from(0));
            }
        }
    }

    /// How many steps the sweep has.
    fn steps(&self) -> usize {
        self.extents[self.axis]
    }

    /// The product of the sizes of some axes of the block that any state varies over.
    fn size(&self, dims: u64) -> usize {
        let varies = self.states.iter().fold(0, |all, dims| all | dims);
        (0..self.extents.len()).filter(|k| dims & varies >> k & 1 == 1).map(|k| self.extents[k]).product()
    }

    fn lanes(&self) -> usize {
        self.size(!(1 << self.axis))
    }

    /// The axes but the swept one.
    fn others(&self) -> Vec<usize> {
        (0..self.extents.len()).filter(|k| *k != self.axis).collect()
    }

    /// The distance between neighbours along the swept axis.
    fn stride(&self, dims: u64) -> usize {
        if dims >> self.axis & 1 == 0 {
            return 0;
        }
        let inside = self.axis + 1..self.extents.len();
        inside.filter(|k| dims >> k & 1 == 1).map(|k| self.extents[k]).product()
    }

    fn strides(&self, dims: u64, start: usize) -> Strides {
        let varies: Vec<bool> = (0..self.extents.len()).map(|k| dims >> k & 1 == 1).collect();
        let mut lanes = dense(self.extents, &varies);
        let step = lanes.remove(self.axis);
        Strides { start: start * step as usize, step, lanes }
    }

    /// Sweeps from one index of the axis on.
    fn sweep_as_it_lies(
        &self,
        of: &Combination,
        elements: &[Operand<'_>],
        results: Results<'_, '_>,
        start: usize,
        workspace: &mut Workspace,
    ) {
        let own = |dims: u64| dims & !(1 << self.axis);
        let geometry = Geometry {
            steps: self.steps() - start,
            lanes: self.others().iter().map(|k| self.extents[*k]).collect(),
            elements: elements.iter().map(|element| self.strides(element.dims, start)).collect(),
            states: self.states.iter().map(|dims| self.strides(own(*dims), 0).lanes).collect(),
            outputs: self.states.iter().map(|dims| self.strides(dims | 1 << self.axis, start)).collect(),
            in_blocks: of.in_blocks(),
        };
        let elements: Vec<Slice<'_>> = elements.iter().map(|element| element.values).collect();
        sweep(&of.scan, &geometry, &elements, results.states, results.outputs, of.exclusive, workspace);
    }
}

/// A block whose swept axis is cut into parts of equal length. The lanes are the other axes and, innermost, the parts.
struct Turned<'a> {
    block: &'a Block<'a>,
    parts: usize,
    steps: usize,
}

impl Turned<'_> {
    fn sweep(
        &self,
        of: &Combination,
        elements: Elements<'_>,
        results: &mut Results<'_, '_>,
        workspace: &mut Workspace,
    ) {
        let has_outputs = results.outputs.iter().any(Option::is_some);
        if self.parts == 1 {
            return self.scan(of, elements.scan, results.states, results.outputs, workspace);
        }
        let totals = self.totals(of, elements.total, workspace);
        let mut starts = self.starts(of, &totals, results.states, has_outputs, workspace);
        if has_outputs {
            self.scan(of, elements.scan, &mut starts, results.outputs, workspace);
        }
    }

    /// The combination of all elements of each part.
    fn totals(&self, of: &Combination, elements: &[Operand<'_>], workspace: &mut Workspace) -> Vec<Values> {
        let identity = |((ty, identity), dims): (&(Ty, _), &u64)| Values::filled(*ty, self.width(*dims), *identity);
        let mut totals: Vec<Values> = of.total.fields.iter().zip(self.block.states).map(identity).collect();
        let mut none: Vec<_> = totals.iter().map(|_| None).collect();
        self.run(&of.total, elements, &mut totals, &mut none, (false, of.in_blocks()), workspace);
        totals
    }

    /// The state before each part; `states` go to after the last one.
    fn starts(
        &self,
        of: &Combination,
        totals: &[Values],
        states: &mut [Values],
        is_kept: bool,
        workspace: &mut Workspace,
    ) -> Vec<Values> {
        let own = |dims: &u64| self.lane_strides(*dims & !(1 << self.block.axis), 1);
        let along = |dims: &u64| {
            let all = self.lane_strides(*dims | 1 << self.block.axis, self.parts);
            Strides { start: 0, step: 1, lanes: all[..all.len() - 1].to_vec() }
        };
        let geometry = Geometry {
            steps: self.parts,
            lanes: self.lanes()[..self.block.extents.len() - 1].to_vec(),
            elements: self.block.states.iter().map(along).collect(),
            states: self.block.states.iter().map(|dims| own(dims)[..self.block.extents.len() - 1].to_vec()).collect(),
            outputs: self.block.states.iter().map(along).collect(),
            in_blocks: false,
        };
        let elements: Vec<Slice<'_>> = totals.iter().map(|total| total.from(0)).collect();
        let mut starts = totals.to_vec();
        let kept = of.merge.kept();
        let output = |(field, start)| (is_kept && kept >> field & 1 == 1).then_some(start);
        let mut outputs: Vec<Option<&mut Values>> = starts.iter_mut().enumerate().map(output).collect();
        sweep(&of.merge, &geometry, &elements, states, &mut outputs, true, workspace);
        starts
    }

    /// Sweeps every part from its start.
    fn scan(
        &self,
        of: &Combination,
        elements: &[Operand<'_>],
        starts: &mut [Values],
        outputs: &mut [Option<&mut Values>],
        workspace: &mut Workspace,
    ) {
        let room = |(output, dims): (&Option<&mut Values>, &u64)| {
            let mut turned = Values::empty(output.as_ref()?.ty());
            turned.fill(self.steps * self.width(*dims), oplus_dsl::ir::Literal::zero(turned.ty()));
            Some(turned)
        };
        let mut turned: Vec<Option<Values>> = outputs.iter().zip(self.block.states).map(room).collect();
        let mut targets: Vec<Option<&mut Values>> = turned.iter_mut().map(Option::as_mut).collect();
        self.run(&of.scan, elements, starts, &mut targets, (of.exclusive, of.in_blocks()), workspace);
        for ((output, turned), dims) in outputs.iter_mut().zip(&turned).zip(self.block.states) {
            if let (Some(output), Some(turned)) = (output, turned) {
                let dims = dims | 1 << self.block.axis;
                turn_back(output, turned.from(0), &self.lane_starts(dims), self.block.stride(dims), self.steps);
            }
        }
    }

    fn run(
        &self,
        kernel: &Kernel,
        elements: &[Operand<'_>],
        states: &mut [Values],
        outputs: &mut [Option<&mut Values>],
        (exclusive, in_blocks): (bool, bool),
        workspace: &mut Workspace,
    ) {
        let turned: Vec<Option<Values>> = elements.iter().map(|element| self.turned(element)).collect();
        let slices = turned.iter().zip(elements);
        let slices: Vec<Slice<'_>> =
            slices.map(|(turned, element)| turned.as_ref().map_or(element.values, |turned| turned.from(0))).collect();
        let along = |dims: u64| {
            let step = if self.block.stride(dims) == 0 { 0 } else { self.width(dims) as isize };
            Strides { start: 0, step, lanes: self.lane_strides(dims, self.parts) }
        };
        let geometry = Geometry {
            steps: self.steps,
            lanes: self.lanes(),
            elements: elements.iter().map(|element| along(element.dims)).collect(),
            states: self.block.states.iter().map(|dims| along(dims | 1 << self.block.axis).lanes).collect(),
            outputs: self.block.states.iter().map(|dims| along(dims | 1 << self.block.axis)).collect(),
            in_blocks,
        };
        sweep(kernel, &geometry, &slices, states, outputs, exclusive, workspace);
    }

    /// The element with the steps outermost; `None` if it does not vary along the swept axis.
    fn turned(&self, element: &Operand<'_>) -> Option<Values> {
        let stride = self.block.stride(element.dims);
        let mut turned = Values::empty(element.values.ty());
        (stride > 0).then(|| {
            turn(&mut turned, element.values, &self.lane_starts(element.dims), stride, self.steps);
            turned
        })
    }

    /// The sizes of the lanes' axes.
    fn lanes(&self) -> Vec<usize> {
        let others = self.block.others();
        others.iter().map(|k| self.block.extents[*k]).chain([self.parts]).collect()
    }

    /// The strides of the lanes' axes for something that varies over some axes of the block.
    fn lane_strides(&self, dims: u64, parts: usize) -> Vec<isize> {
        let varies = self.block.others().into_iter().map(|k| dims >> k & 1 == 1);
        let varies: Vec<bool> = varies.chain([dims >> self.block.axis & 1 == 1]).collect();
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
    fn lane_starts(&self, dims: u64) -> Vec<usize> {
        let strides = self.block.strides(dims, 0);
        let axes = self.block.others().into_iter().zip(&strides.lanes).filter(|(k, _)| dims >> k & 1 == 1);
        let lanes = axes.map(|(k, stride)| (self.block.extents[k], *stride as usize));
        let part = self.steps * strides.step as usize;
        lanes.chain([(self.parts, part)]).fold(vec![0], |starts, (n, stride)| {
            starts.into_iter().flat_map(|start| (0..n).map(move |i| start + i * stride)).collect()
        })
    }
}
