//! Plans: what the engine does for a program with given sizes and strides.

mod borders;
mod draft;
mod lower;
mod products;
mod shape;
mod sort;

use std::collections::HashMap;

use oplus_dsl::ir::{Axis, Op, Program, Value};
use oplus_dsl::{Elem, Ty};

use super::CpuError;
use super::frame::Streamed;
use super::native::{Maps, Native, Refusal};
use super::partition::{Cut, LaidAxis, Partition};
use super::sums;
use super::tile::{Code, Reg};
use borders::Borders;
use draft::{Draft, Drafts};
use lower::{Lower, Memory, Tensor};
use shape::{Access, Shape};

/// Where the elements of a tensor of the caller lie.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    pub(super) offset: usize,
    pub(super) strides: Vec<i64>,
}

/// The sizes of a program's axes and the layouts of its tensors: all that a plan depends on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) sizes: Vec<usize>,
    /// `None` for a parameter that takes its default.
    pub(super) inputs: Vec<Option<Layout>>,
    pub(super) outputs: Vec<Layout>,
}

/// A tensor that a stage reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Param(usize),
    Temporary(usize),
}

/// A tensor that a stage writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Output(usize),
    Temporary(usize),
}

/// The work of a call, step after step.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) stages: Vec<Stage>,
    /// The tensors that stages pass on: what they store, how many elements they have, and the last stage that reads
    /// them.
    pub(super) temporaries: Vec<Temporary>,
    /// Why sums of products are computed element by element, in words.
    pub(super) refused: Vec<String>,
}

/// A tensor that stages pass on.
#[derive(Debug)]
pub(super) struct Temporary {
    pub(super) elem: Elem,
    pub(super) len: usize,
    pub(super) last_use: usize,
}

/// A tensor that a stage writes.
struct StageTarget {
    /// The value that it takes.
    value: Value,
    target: Target,
    layout: TargetLayout,
}

/// A tensor that a stage writes: axes with sizes and strides, and the element of index 0, 0, ….
#[derive(Clone, Debug)]
struct TargetLayout {
    axes: Vec<LaidAxis>,
    offset: usize,
}

impl TargetLayout {
    /// The axis with the largest stride.
    fn outermost(&self) -> Option<Axis> {
        let long = self.axes.iter().filter(|laid| laid.size > 1);
        long.max_by_key(|laid| laid.stride.abs()).map(|laid| laid.axis)
    }
}

/// One walk over the indices of some axes, outermost first.
#[derive(Debug)]
pub(super) struct Stage {
    /// The sizes of the axes.
    pub(super) sizes: Vec<usize>,
    /// The size of a tile.
    pub(super) tile: Vec<usize>,
    /// The size of the block that a task takes.
    pub(super) task: Vec<usize>,
    /// The parallel axes, bit k for axis k.
    pub(super) parallel: u64,
    pub(super) streamed: Option<Streamed>,
    /// Whether tasks take the streamed axis in parts: the total of a whole part is found before its results.
    pub(super) is_shared: bool,
    pub(super) code: Code,
    /// The instructions that do not depend on the streamed index.
    pub(super) prologue: Vec<usize>,
    /// For each level of streamed scans, the instructions that give the totals of a chunk.
    pub(super) passes: Vec<Vec<usize>>,
    /// The instructions of a tile.
    pub(super) body: Vec<usize>,
    /// The streamed scans, reductions and captures.
    pub(super) carried: Vec<usize>,
    pub(super) sources: Vec<Source>,
    pub(super) stores: Vec<Store>,
    /// Machine code of its tiles.
    pub(super) native: Option<Native>,
    /// Machine code of its maps and stores, where its scan has a loop of its own.
    pub(super) maps: Option<Maps>,
    /// Why LLVM has none.
    pub(super) refusal: Option<Refusal>,
}

/// The tensors that a stage writes.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) register: Reg,
    pub(super) target: Target,
    pub(super) partition: Partition,
    /// For every axis of the stage, its name in the partition.
    pub(super) axes: Vec<Axis>,
    /// Whether the value is known only when the stage has streamed past.
    pub(super) is_final: bool,
}

impl Plan {
    /// The plan for a program; `ordered` if everything combines from one end to the other, step by step.
    ///
    /// # Errors
    /// [`CpuError::Interleaved`] for an output whose strides do not nest, [`CpuError::TooLarge`] for a value that must
    /// go through memory and has too many elements.
    pub(super) fn new(program: &Program, request: &Request, ordered: bool) -> Result<Plan, CpuError> {
        let borders = Borders::new(program, request, ordered);
        let mut drafts = Drafts::new(program, &request.sizes, &borders, ordered);
        check_work(&drafts)?;
        loop {
            let mut planner = Planner::new(&drafts, request);
            match planner.run()? {
                None => {
                    let (stages, temporaries) = (planner.stages, planner.buffers);
                    return Ok(Plan { stages, temporaries, refused: drafts.products.reasons(program) });
                }
                Some((stage, output)) => drafts.move_out(stage, output),
            }
        }
    }
}

#[cfg(test)]
impl Plan {
    /// The plan without machine code.
    pub(super) fn without_native(mut self) -> Plan {
        self.stages.iter_mut().for_each(|stage| (stage.native, stage.maps) = (None, None));
        self
    }
}

/// A plan looks at all operations for every stage, and for every scan and reduction: at most so often.
const MOST_WORK: usize = 1 << 28;

/// Refuses a program that would take too long to plan.
fn check_work(drafts: &Drafts<'_>) -> Result<(), CpuError> {
    let nodes = &drafts.program.nodes;
    let combinations = nodes.iter().filter(|node| matches!(node.op, Op::Scan { .. } | Op::Reduce { .. })).count();
    let (operations, stages) = (nodes.len(), drafts.stages.len());
    match operations.checked_mul(combinations + stages) {
        Some(work) if work <= MOST_WORK => Ok(()),
        _ => Err(CpuError::TooManyOperations { operations, combinations, stages }),
    }
}

struct Planner<'a> {
    drafts: &'a Drafts<'a>,
    request: &'a Request,
    params: Vec<Option<Tensor>>,
    /// The values that each stage leaves in memory for later ones, with the last stage that reads each.
    saved: Vec<Vec<(Value, usize)>>,
    temporaries: HashMap<Value, Tensor>,
    buffers: Vec<Temporary>,
    stages: Vec<Stage>,
}

impl<'a> Planner<'a> {
    fn new(drafts: &'a Drafts<'a>, request: &'a Request) -> Planner<'a> {
        let tensor = |(k, layout): (usize, &Option<Layout>)| {
            let Layout { offset, strides } = layout.as_ref()?;
            let axes = drafts.program.params[k].axes.iter().copied().zip(strides.iter().copied()).collect();
            Some(Tensor { source: Source::Param(k), axes, offset: *offset })
        };
        let params = request.inputs.iter().enumerate().map(tensor).collect();
        let saved = vec![vec![]; drafts.stages.len()];
        let (temporaries, buffers, stages) = (HashMap::new(), vec![], vec![]);
        Planner { drafts, request, params, saved, temporaries, buffers, stages }
    }

    /// Plans all stages. Gives back an output that its stage could only write in tiny pieces.
    fn run(&mut self) -> Result<Option<(usize, usize)>, CpuError> {
        for stage in (0..self.drafts.stages.len()).rev() {
            let roots = self.roots(stage);
            let needed = self.drafts.needed_in(stage, &roots);
            for at in (0..needed.len()).filter(|at| needed[*at]) {
                self.borrow(stage, Value(at as u32));
            }
        }
        for stage in 0..self.drafts.stages.len() {
            if let Some(output) = self.stage(stage)? {
                return Ok(Some((stage, output)));
            }
        }
        Ok(None)
    }

    /// Notes that a stage needs a value of an earlier one.
    fn borrow(&mut self, stage: usize, value: Value) {
        let is_tuple = self.drafts.program.node(value).ty == Ty::Tuple;
        if self.drafts.is_borrowed(stage, value) && !is_tuple {
            let home = self.drafts.home[self.drafts.anchor(value).0 as usize].unwrap_or_default();
            if !self.saved[home].iter().any(|(known, _)| *known == value) {
                self.saved[home].push((value, stage));
            }
        }
    }

    fn roots(&self, stage: usize) -> Vec<Value> {
        let outputs = self.drafts.stages[stage].outputs.iter().map(|k| self.drafts.program.outputs[*k].value);
        outputs.chain(self.saved[stage].iter().map(|(value, _)| *value)).collect()
    }

    /// Plans a stage. Gives back an output that it could only write in tiny pieces.
    fn stage(&mut self, stage: usize) -> Result<Option<usize>, CpuError> {
        let draft = &self.drafts.stages[stage];
        let mut shape = Shape::new(draft, &self.request.sizes, self.drafts.borders, &self.accesses(stage));
        if self.drafts.ordered {
            shape.keep_whole(draft.streamed.map(|(axis, _)| axis), &self.request.sizes);
        }
        let targets = self.targets(stage, &shape)?;
        let mut partitions = vec![];
        for StageTarget { value, target, layout } in &targets {
            let partition = self.partition(draft, &shape, *value, layout);
            let (Target::Output(output), true) = (target, partition.as_ref().is_none_or(Partition::is_in_pieces))
            else {
                partitions.push(partition);
                continue;
            };
            if targets.len() > 1 || draft.streamed.is_some() || !draft.whole.is_empty() {
                return Ok(Some(*output));
            }
            shape.cut_only(layout.outermost(), &self.request.sizes);
            let name = &self.drafts.program.outputs[*output].name;
            let partition = self.partition(draft, &shape, *value, layout);
            partitions.push(Some(partition.ok_or_else(|| CpuError::Interleaved { output: name.clone() })?));
        }
        let targets = targets.into_iter().zip(partitions.into_iter().flatten()).collect();
        let lowered = self.lower(stage, shape, targets);
        self.stages.push(lowered);
        Ok(None)
    }

    /// The tensors that a stage reads, and the outputs that it writes.
    fn accesses(&self, stage: usize) -> Vec<Access> {
        let program = self.drafts.program;
        let needed = self.drafts.needed_in(stage, &self.roots(stage));
        let mut accesses: Vec<Access> = vec![];
        for (at, node) in program.nodes.iter().enumerate().filter(|(at, _)| needed[*at]) {
            let tensor = match node.op {
                _ if self.drafts.is_borrowed(stage, Value(at as u32)) => self.temporaries.get(&Value(at as u32)),
                Op::Param(k) => self.params[k as usize].as_ref(),
                _ => None,
            };
            accesses.extend(tensor.map(|tensor| tensor.axes.clone()));
        }
        for output in &self.drafts.stages[stage].outputs {
            let strides = self.request.outputs[*output].strides.iter().copied();
            accesses.push(program.outputs[*output].axes.iter().copied().zip(strides).collect());
        }
        accesses
    }

    /// The tensors that a stage writes; those that it passes on are dense over its axes.
    fn targets(&mut self, stage: usize, shape: &Shape) -> Result<Vec<StageTarget>, CpuError> {
        let mut targets = vec![];
        for k in &self.drafts.stages[stage].outputs {
            let (output, layout) = (&self.drafts.program.outputs[*k], &self.request.outputs[*k]);
            let axes = output.axes.iter().zip(&layout.strides).map(|(axis, stride)| LaidAxis {
                axis: *axis,
                size: self.size(*axis),
                stride: *stride,
            });
            let layout = TargetLayout { axes: axes.collect(), offset: layout.offset };
            targets.push(StageTarget { value: output.value, target: Target::Output(*k), layout });
        }
        for (value, last_use) in self.saved[stage].clone() {
            let layout = self.temporary(value, last_use, shape)?;
            targets.push(StageTarget { value, target: Target::Temporary(self.buffers.len() - 1), layout });
        }
        Ok(targets)
    }

    fn size(&self, axis: Axis) -> usize {
        self.request.sizes[axis.0 as usize]
    }

    /// Makes room for a value.
    fn temporary(&mut self, value: Value, last_use: usize, shape: &Shape) -> Result<TargetLayout, CpuError> {
        let node = self.drafts.program.node(value);
        let mut axes: Vec<LaidAxis> = vec![];
        let mut len = 1_usize;
        for axis in shape.order.iter().rev().filter(|axis| node.axes.contains(**axis)) {
            axes.insert(0, LaidAxis { axis: *axis, size: self.size(*axis), stride: len as i64 });
            let most = 1 << 48;
            let next = len.checked_mul(self.size(*axis).max(1)).filter(|len| *len < most);
            len = next.ok_or_else(|| CpuError::TooLarge { value: value.to_string() })?;
        }
        let strides = axes.iter().map(|laid| (laid.axis, laid.stride)).collect();
        let source = Source::Temporary(self.buffers.len());
        self.temporaries.insert(value, Tensor { source, axes: strides, offset: 0 });
        self.buffers.push(Temporary { elem: node.ty.elem().unwrap_or(Elem::F64), len, last_use });
        Ok(TargetLayout { axes, offset: 0 })
    }

    fn is_final(&self, draft: &Draft, value: Value) -> bool {
        self.drafts.is_late(draft, self.drafts.anchor(value))
    }

    /// How the tasks of a stage share a tensor.
    fn partition(&self, draft: &Draft, shape: &Shape, value: Value, layout: &TargetLayout) -> Option<Partition> {
        let is_final = self.is_final(draft, value);
        let parallel = |axis: &&Axis| draft.parallel.contains(**axis);
        let mut cuts: Vec<Cut> = vec![];
        for axis in shape.order.iter().filter(parallel) {
            cuts.push(Cut::even(*axis, self.size(*axis), shape.task_along(*axis)));
        }
        if let Some((axis, _)) = draft.streamed.filter(|_| !is_final) {
            cuts.push(Cut::even(axis, self.size(axis), shape.task_along(axis)));
        }
        Partition::new(&layout.axes, layout.offset, &cuts)
    }

    fn lower(&self, stage: usize, shape: Shape, targets: Vec<(StageTarget, Partition)>) -> Stage {
        let draft = &self.drafts.stages[stage];
        let memory = Memory { params: &self.params, temporaries: &self.temporaries };
        let mut lower = Lower::new(self.drafts, stage, &shape.order, memory);
        lower.values(&self.roots(stage));
        let stores = targets.into_iter().map(|(StageTarget { value, target, .. }, partition)| Store {
            register: lower.register(value),
            target,
            partition,
            axes: shape.order.clone(),
            is_final: self.is_final(draft, value),
        });
        let stores: Vec<Store> = stores.collect();
        let Lower { mut code, sources, .. } = lower;
        sums::join(&mut code, &stores.iter().map(|store| store.register).collect::<Vec<Reg>>());
        let position = |axis: Axis| shape.order.iter().position(|a| *a == axis);
        let streamed = draft.streamed.and_then(|(axis, reverse)| {
            let (size, between) = (self.size(axis), self.drafts.borders.between(axis));
            Some(Streamed { axis: position(axis)?, size, reverse, between })
        });
        let sizes = shape.order.iter().map(|axis| self.size(*axis)).collect();
        let is_parallel = |k: &usize| draft.parallel.contains(shape.order[*k]);
        let parallel = (0..shape.order.len()).filter(is_parallel).fold(0, |all, k| all | 1 << k);
        let part = draft.streamed.and_then(|(axis, _)| self.drafts.borders.part(axis, &self.request.sizes));
        let is_cut = streamed.is_some_and(|streamed| shape.task[streamed.axis] < streamed.size);
        let mut stage = Stage {
            sizes,
            is_shared: is_cut || part.is_some(),
            tile: shape.tile,
            task: shape.task,
            parallel,
            streamed,
            code,
            prologue: vec![],
            passes: vec![],
            body: vec![],
            carried: vec![],
            sources,
            stores,
            native: None,
            maps: None,
            refusal: None,
        };
        stage.sort();
        match Native::of(&stage) {
            Ok(native) => stage.native = native,
            Err(refusal) => stage.refusal = Some(refusal),
        }
        if stage.native.is_none() {
            stage.maps = Maps::of(&stage);
        }
        stage
    }
}
