//! Scans and reductions of a block along one of its axes.
//!
//! Where other axes lie inside the swept one, its neighbours are the lanes and the block is swept as it lies. Where
//! nothing lies inside it, the block is turned first, so that the axes outside become the lanes; if they are few, the
//! swept axis is cut into parts that are lanes too: the parts' totals are combined first, then every part is swept from
//! the state before it.

mod turned;

use std::ops::Range;

use oplus_dsl::ir::Operator;

use super::CpuError;
use super::kernel::{Ahead, Kernel, needed_of_both};
use super::loops::{Loops, PerAxis};
use super::map;
use super::native::Call;
use super::recurrence;
use super::sweep::{Geometry, Strides, Workspace, dense, sweep, takes};
use super::values::{Slice, Values};
use turned::Turned;

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
    pub(super) mode: SweepMode,
    /// Whether it gives totals, which may overflow where no state does.
    pub(super) gives_totals: bool,
}

/// How the steps of a sweep are taken. Of a scan nothing but its place in the program and the strides of memory decides
/// that, so that chunks of a sequence are swept as the whole is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SweepMode {
    /// One after the other, each operation rounded.
    Sequential,
    /// In blocks along contiguous memory.
    Blocks,
    /// From so many steps on in as many parts at once as their number allows.
    Parts { from: usize },
    /// In blocks where these are fast, else in as many parts at once as there are lanes too few.
    Lanes,
}

/// How the first element of a sweep is combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FirstElement {
    /// The first element is combined as the others are.
    #[default]
    Combined,
    /// By itself, each operation rounded: what follows it is combined with the result.
    Separate,
    /// Not at all.
    Skipped,
}

impl FirstElement {
    /// The first step that is taken.
    pub(super) fn from(self) -> usize {
        usize::from(self == FirstElement::Skipped)
    }
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
            mode: SweepMode::Sequential,
            gives_totals: false,
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

    /// Whether every field of the results is a fold.
    pub(super) fn folds(&self) -> bool {
        self.scan.folds()
    }

    /// Whether elements and results may lie in any order along the swept axis.
    pub(super) fn takes_any_order(&self) -> bool {
        self.mode == SweepMode::Blocks || takes(&self.scan) && takes(&self.total)
    }

    /// Whether rows along contiguous memory may be swept in blocks.
    fn in_blocks(&self) -> bool {
        matches!(self.mode, SweepMode::Blocks | SweepMode::Lanes)
    }
}

/// Combines states with the totals of what comes next, field by field over the given axes of a block.
pub(super) fn merge(
    of: &Combination,
    (extents, dims): (&[usize], &[u64]),
    states: &mut [Values],
    totals: &[Values],
    workspace: &mut Workspace,
) -> Result<(), CpuError> {
    let lanes = |dims: &u64| {
        let varies: PerAxis<bool> = (0..extents.len()).map(|k| dims >> k & 1 == 1).collect();
        dense(extents, &varies)
    };
    let along = |dims: &u64| Strides { start: 0, step: 0, lanes: lanes(dims) };
    let varies = dims.iter().fold(0, |all, dims| all | dims);
    let geometry = Geometry {
        steps: 1,
        // Along the other axes there is nothing to combine.
        lanes: (0..extents.len()).map(|k| if varies >> k & 1 == 1 { extents[k] } else { extents[k].min(1) }).collect(),
        elements: dims.iter().map(along).collect(),
        states: dims.iter().map(lanes).collect(),
        outputs: dims.iter().map(along).collect(),
        in_blocks: false,
        first: FirstElement::Combined,
        exclusive: false,
    };
    let elements: Vec<Slice<'_>> = totals.iter().map(|total| total.from(0)).collect();
    let mut none: Vec<_> = states.iter().map(|_| None).collect();
    sweep(&of.merge, &geometry, &elements, states, &mut none, workspace)
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
    /// Whether it is swept from its last index to the first, where that is [allowed](Combination::takes_any_order).
    pub(super) reverse: bool,
    /// Over which axes the state of each field varies.
    pub(super) states: &'a [u64],
}

/// The elements that each kernel of a combination sweeps.
#[derive(Clone, Copy)]
pub(super) struct Elements<'a> {
    /// The elements of [`Combination::scan`].
    pub(super) scan: &'a [Operand<'a>],
    /// The elements of [`Combination::total`].
    pub(super) total: &'a [Operand<'a>],
    /// The other slices that machine code reads.
    pub(super) others: &'a [Slice<'a>],
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
        first: FirstElement,
        (workspace, call): (&mut Workspace, Option<&mut Call<'_, '_>>),
    ) -> Result<(), CpuError> {
        let Some(parts) = self.parts(combination, elements.scan, results.outputs) else {
            return self.sweep_as_it_lies(combination, elements.scan, results, 0..self.steps(), first, workspace);
        };
        let turned = Turned { block: self, parts, steps: self.steps() / parts, first };
        turned.sweep(combination, elements, &mut results, (workspace, call))?;
        let done = parts * turned.steps;
        if parts > 1 && done == self.steps() && !combination.exclusive {
            self.close(&mut results);
        }
        // The rest of the block has elements of its own.
        let kept = workspace.kept.take();
        self.sweep_as_it_lies(
            combination,
            elements.scan,
            results,
            done..self.steps(),
            FirstElement::Combined,
            workspace,
        )?;
        workspace.kept = kept;
        Ok(())
    }

    /// Into how many parts the swept axis is cut to be turned; `None` if the block is swept as it lies.
    fn parts(&self, of: &Combination, elements: &[Operand<'_>], outputs: &[Option<&mut Values>]) -> Option<usize> {
        let inside = self.size(u64::MAX << self.axis & !(1 << self.axis));
        let has_outputs = outputs.iter().any(Option::is_some);
        let single = |k: usize| matches!(elements[k].values, Slice::F32(_)) && self.stride(elements[k].dims) == 1;
        let (lanes, most) = (self.lanes(), self.steps() / STEPS);
        let is_long = most >= 2 && lanes > 0 && inside < 4;
        match of.mode {
            _ if !is_long => None,
            SweepMode::Sequential => Some(1),
            SweepMode::Blocks => None,
            SweepMode::Parts { from } if self.steps() < from => Some(1),
            SweepMode::Parts { .. } => Some(LANES.min(most)),
            SweepMode::Lanes if inside == 1 && of.lies_well(has_outputs, single) => None,
            SweepMode::Lanes => Some((LANES / lanes).min(most).max(1)),
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

    /// The values of an element at the first index.
    fn first(&self, element: &Operand<'_>) -> Result<Values, CpuError> {
        let mut extents = self.extents.to_vec();
        extents[self.axis] = 1;
        let block = Block { extents: &extents, ..*self };
        let [own, of] = [&block, self].map(|block| block.strides(element.dims, 0));
        let axes =
            self.others().into_iter().zip(own.lanes.iter().zip(&of.lanes)).filter(|(k, _)| element.dims >> k & 1 == 1);
        let mut first = Values::empty(element.values.ty());
        let loops = Loops::new(axes.map(|(k, (o, e))| (self.extents[k], [*o, *e]))).unit();
        map::copy(&loops, &mut first, element.values.from(of.start))?;
        Ok(first)
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
    fn others(&self) -> PerAxis<usize> {
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

    /// The strides of something that varies over some axes, from a step on.
    fn strides(&self, dims: u64, start: usize) -> Strides {
        let varies: PerAxis<bool> = (0..self.extents.len()).map(|k| dims >> k & 1 == 1).collect();
        let mut lanes = dense(self.extents, &varies);
        let step = lanes.remove(self.axis);
        if self.reverse {
            let last = self.steps().saturating_sub(1 + start);
            return Strides { start: last * step as usize, step: -step, lanes };
        }
        Strides { start: start * step as usize, step, lanes }
    }

    /// Sweeps some indices of the axis, the first of them as it is said.
    fn sweep_as_it_lies(
        &self,
        of: &Combination,
        elements: &[Operand<'_>],
        results: Results<'_, '_>,
        range: Range<usize>,
        first: FirstElement,
        workspace: &mut Workspace,
    ) -> Result<(), CpuError> {
        if range.is_empty() {
            return Ok(());
        }
        let (own, start) = (|dims: u64| dims & !(1 << self.axis), range.start);
        let geometry = Geometry {
            steps: range.len(),
            lanes: self.others().iter().map(|k| self.extents[*k]).collect(),
            elements: elements.iter().map(|element| self.strides(element.dims, start)).collect(),
            states: self.states.iter().map(|dims| self.strides(own(*dims), 0).lanes).collect(),
            outputs: self.states.iter().map(|dims| self.strides(dims | 1 << self.axis, start)).collect(),
            in_blocks: of.in_blocks(),
            first,
            exclusive: of.exclusive,
        };
        let elements: Vec<Slice<'_>> = elements.iter().map(|element| element.values).collect();
        sweep(&of.scan, &geometry, &elements, results.states, results.outputs, workspace)
    }
}
