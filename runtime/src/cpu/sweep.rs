//! Sweeping: applying a kernel's step along one axis, for many lanes at once.
//!
//! A lane is an index of the other axes. States are dense over the lanes of their field; elements and outputs have
//! strides of their own, 0 where they do not vary.

mod groups;
mod runs;

use oplus_dsl::Ty;

use super::CpuError;
use super::kernel::{Action, Kernel, Source, StepNode};
use super::lanes::FirstElement;
use super::loops::{Loops, PerAxis};
use super::nest::Nest;
use super::values::{Slice, Values};
use super::{map, recurrence};
use groups::Groups;
pub(super) use groups::{Kept, takes};

/// Where something lies in its memory: how far apart neighbours are along the swept axis and the lanes' axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Strides {
    /// Where the first step lies.
    pub(super) start: usize,
    /// From a step to the next.
    pub(super) step: isize,
    /// From a lane to the next.
    pub(super) lanes: PerAxis<isize>,
}

/// The shape of a sweep.
#[derive(Clone, Debug, Default)]
pub(super) struct Geometry {
    /// How many steps.
    pub(super) steps: usize,
    /// Sizes of the lanes' axes, outermost first.
    pub(super) lanes: PerAxis<usize>,
    /// The strides of every element of the kernel.
    pub(super) elements: Vec<Strides>,
    /// The strides of the state of every field (0 steps), dense over the axes with a stride.
    pub(super) states: Vec<PerAxis<isize>>,
    /// The strides of the output of every field, if it has one.
    pub(super) outputs: Vec<Strides>,
    /// Whether rows along contiguous memory may be swept in blocks; else each operation is rounded, step by step.
    pub(super) in_blocks: bool,
    /// How the first step is taken.
    pub(super) first: FirstElement,
    /// Whether outputs get the state before each step, not the one after it.
    pub(super) exclusive: bool,
}

/// Memory that sweeps reuse.
#[derive(Default)]
pub(super) struct Workspace {
    /// The totals of the parts of a turned block: those of the latest sweep for totals, or for one that gives results
    /// those that are known.
    pub(super) totals: Option<Vec<Values>>,
    /// The turned elements of the block, which both of its sweeps read.
    pub(super) kept: Option<Kept>,
    /// The elements that machine code has turned for totals, and reads for results.
    pub(super) squares: Option<Values>,
    nodes: Vec<Values>,
    next: Vec<Values>,
    /// Memory of blocks that were turned.
    spare: Vec<Values>,
}

impl Workspace {
    /// Room for n values, which hold anything: the smallest memory that is large enough, so that a size has the same memory every time.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn take(&mut self, ty: Ty, n: usize) -> Result<Values, CpuError> {
        let known = self.spare.iter().enumerate().filter(|(_, values)| values.ty() == ty);
        let fits = |values: &Values| (values.len() < n, values.len());
        let known = known.min_by_key(|(_, values)| fits(values)).map(|(k, _)| k);
        let mut values = known.map_or_else(|| Values::empty(ty), |k| self.spare.swap_remove(k));
        values.grow(n)?;
        Ok(values)
    }

    /// Keeps memory for the next block.
    pub(super) fn give(&mut self, values: Values) {
        self.spare.push(values);
    }
}

/// Sweeps: `states` go from before the first step to after the last; the state after each step (before it, in an exclusive
/// sweep) goes to the output of each field that has one.
pub(super) fn sweep(
    kernel: &Kernel,
    geometry: &Geometry,
    elements: &[Slice<'_>],
    states: &mut [Values],
    outputs: &mut [Option<&mut Values>],
    workspace: &mut Workspace,
) -> Result<(), CpuError> {
    if geometry.steps == 0 {
        return Ok(());
    }
    let Some(recurrences) = &kernel.recurrences else {
        if let Some(groups) = Groups::new(kernel, geometry) {
            return groups.run(elements, states, outputs, workspace);
        }
        return Stepper::new(kernel, geometry).run(elements, states, outputs, workspace);
    };
    for (field, recurrence) in recurrences.iter().enumerate() {
        if let Some(recurrence) = recurrence {
            let output = outputs[field].as_deref_mut();
            recurrence::sweep(*recurrence, geometry, field, elements, &mut states[field], output);
        }
    }
    Ok(())
}

impl Strides {
    /// Where a step lies.
    fn at(&self, step: usize) -> usize {
        self.start.wrapping_add(step.wrapping_mul(self.step as usize))
    }
}

impl Geometry {
    /// The loops over the lanes on which `varies` is true, with the given strides.
    pub(super) fn loops<const N: usize>(&self, varies: &[bool], strides: [&[isize]; N]) -> Loops<N> {
        let axes = (0..self.lanes.len()).filter(|axis| varies[*axis]);
        Loops::new(axes.map(|axis| (self.lanes[axis], strides.map(|strides| strides[axis])))).unit()
    }

    /// The loops over the lanes of a field.
    pub(super) fn field_loops<const N: usize>(&self, field: usize, strides: [&[isize]; N]) -> Loops<N> {
        let varies: PerAxis<bool> = self.states[field].iter().map(|stride| *stride != 0).collect();
        self.loops(&varies, strides)
    }
}

/// Dense strides over the axes on which something varies.
pub(super) fn dense(lanes: &[usize], varies: &[bool]) -> PerAxis<isize> {
    let mut next = 1;
    let mut strides = PerAxis::from_elem(0, lanes.len());
    for axis in (0..lanes.len()).rev().filter(|axis| varies[*axis]) {
        strides[axis] = next;
        next *= lanes[axis] as isize;
    }
    strides
}

/// A kernel without recurrences, ready to be stepped node by node.
struct Stepper<'a> {
    kernel: &'a Kernel,
    geometry: &'a Geometry,
    nests: Vec<Nest>,
    /// From the source of each field's next value to its state.
    next: Vec<Option<Loops<2>>>,
    /// From each field's state to its output.
    out: Vec<Loops<2>>,
}

impl<'a> Stepper<'a> {
    fn new(kernel: &'a Kernel, geometry: &'a Geometry) -> Self {
        let mut strides: Vec<PerAxis<isize>> = Vec::with_capacity(kernel.nodes.len());
        let mut nests = Vec::with_capacity(kernel.nodes.len());
        for node in &kernel.nodes {
            let operands: Vec<&[isize]> = node.operands.iter().map(|s| lanes_of(*s, geometry, &strides)).collect();
            let axes = 0..geometry.lanes.len();
            let varies: Vec<bool> = axes.map(|axis| operands.iter().any(|strides| strides[axis] != 0)).collect();
            let own = dense(&geometry.lanes, &varies);
            let axes = (0..varies.len()).filter(|axis| varies[*axis]);
            nests.push(Nest::new(&geometry.lanes, axes, &own, &operands));
            strides.push(own);
        }
        let to_state = |(field, next): (usize, &Option<Source>)| {
            let from = lanes_of((*next)?, geometry, &strides);
            Some(geometry.field_loops(field, [&geometry.states[field], from]))
        };
        let to_output =
            |field: usize| geometry.field_loops(field, [&geometry.outputs[field].lanes, &geometry.states[field]]);
        let next = kernel.next.iter().enumerate().map(to_state).collect();
        let out = (0..geometry.outputs.len()).map(to_output).collect();
        Stepper { kernel, geometry, nests, next, out }
    }

    fn run(
        &self,
        elements: &[Slice<'_>],
        states: &mut [Values],
        outputs: &mut [Option<&mut Values>],
        workspace: &mut Workspace,
    ) -> Result<(), CpuError> {
        workspace.nodes.clear();
        workspace.nodes.extend(self.kernel.nodes.iter().map(|node| Values::empty(node.ty)));
        workspace.next.clear();
        workspace.next.extend(self.kernel.fields.iter().map(|(ty, _)| Values::empty(*ty)));
        for step in self.geometry.first.from()..self.geometry.steps {
            if self.geometry.exclusive {
                self.write(step, states, outputs);
            }
            let at = |k: usize| elements[k].from(self.geometry.elements[k].at(step));
            for (i, node) in self.kernel.nodes.iter().enumerate() {
                let (before, rest) = workspace.nodes.split_at_mut(i);
                evaluate(node, &self.nests[i], &mut rest[0], |source| match source {
                    Source::State(field) => states[field].from(0),
                    Source::Element(k) => at(k),
                    Source::Node(k) => before[k].from(0),
                })?;
            }
            for (field, (source, loops)) in self.kernel.next.iter().zip(&self.next).enumerate() {
                let (Some(source), Some(loops)) = (source, loops) else { continue };
                let value = match source {
                    Source::State(other) => states[*other].from(0),
                    Source::Element(k) => at(*k),
                    Source::Node(k) => workspace.nodes[*k].from(0),
                };
                map::copy(loops, &mut workspace.next[field], value)?;
            }
            for field in (0..states.len()).filter(|field| self.next[*field].is_some()) {
                std::mem::swap(&mut states[field], &mut workspace.next[field]);
            }
            if !self.geometry.exclusive {
                self.write(step, states, outputs);
            }
        }
        Ok(())
    }

    fn write(&self, step: usize, states: &[Values], outputs: &mut [Option<&mut Values>]) {
        for (field, output) in outputs.iter_mut().enumerate() {
            if let Some(output) = output {
                let start = self.geometry.outputs[field].at(step);
                map::place(&self.out[field], output, [start as isize, 0], states[field].from(0));
            }
        }
    }
}

/// The strides of a source along the lanes.
fn lanes_of<'a>(source: Source, geometry: &'a Geometry, nodes: &'a [PerAxis<isize>]) -> &'a [isize] {
    match source {
        Source::State(field) => &geometry.states[field],
        Source::Element(k) => &geometry.elements[k].lanes,
        Source::Node(k) => &nodes[k],
    }
}

fn evaluate<'s>(
    node: &StepNode,
    nest: &Nest,
    dst: &mut Values,
    get: impl Fn(Source) -> Slice<'s>,
) -> Result<(), CpuError> {
    match (node.action, nest) {
        (Action::Unary(op), Nest::One(loops)) => map::unary(op, loops, dst, get(node.operands[0])),
        (Action::Convert(elem), Nest::One(loops)) => map::convert(elem, loops, dst, get(node.operands[0])),
        (Action::Binary(op), Nest::Two(loops)) => {
            map::binary(op, loops, dst, get(node.operands[0]), get(node.operands[1]))
        }
        (Action::Select, Nest::Three(loops)) => {
            map::select(loops, dst, get(node.operands[0]), get(node.operands[1]), get(node.operands[2]))
        }
        (Action::Const(literal), _) => dst.fill(1, literal),
        _ => Ok(()),
    }
}
