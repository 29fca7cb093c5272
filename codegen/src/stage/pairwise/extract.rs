//! Parts of a program as programs of their own.

use std::collections::{BTreeSet, HashMap};

use oplus_dsl::Elem;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Op, Output, Program, Value};
use oplus_dsl::typing::TypeError;

use crate::stage::{NormalForm, Sink, Source, Stage, Temporary};

/// A value that a part writes.
#[derive(Clone, Debug)]
pub(super) struct Root {
    /// The value.
    pub value: Value,
    name: String,
    axes: Vec<Axis>,
    elem: Elem,
    sink: Sink,
    /// Whether the tensor holds the value with every bit.
    exact: bool,
}

impl Root {
    /// An output of the program.
    pub(super) fn output(index: usize, output: &Output) -> Root {
        let Output { name, axes, elem, value } = output.clone();
        Root { value, name, axes, elem, sink: Sink::Output(index as u32), exact: false }
    }

    /// A value in the buffer of that index.
    pub(super) fn buffer(value: Value, index: u32, buffer: &Temporary) -> Root {
        let Temporary { name, axes, elem } = buffer.clone();
        Root { value, name, axes, elem, sink: Sink::Buffer(index), exact: true }
    }

    /// The tensor from which the value can be read again, if it holds every bit.
    pub(super) fn held(&self) -> Option<(Value, Held)> {
        let source = match self.sink {
            Sink::Output(k) => Source::Output(k),
            Sink::Buffer(k) => Source::Buffer(k),
        };
        self.exact.then(|| (self.value, Held { source, axes: self.axes.clone(), elem: self.elem }))
    }
}

/// A value in memory.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The tensor.
    source: Source,
    /// Its axes in memory order.
    axes: Vec<Axis>,
    /// The type that it stores.
    elem: Elem,
}

/// The values in memory.
pub(super) type Stored = HashMap<Value, Held>;

/// A part of a program.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The program that it computes, over the axes of the whole program.
    pub program: Program,
    sources: Vec<Source>,
    sinks: Vec<Sink>,
}

impl Part {
    /// The part that computes these roots, and reads what is stored.
    pub(super) fn of(program: &Program, stored: &Stored, roots: &[Root]) -> Result<Part, TypeError> {
        let empty = Program {
            params: vec![],
            operators: vec![],
            nodes: vec![],
            outputs: vec![],
            axes: program.axes.clone(),
            name: program.name.clone(),
        };
        let mut builder = Builder::from_program(empty);
        let (mut images, mut sources) = (HashMap::new(), vec![]);
        for value in needed(program, stored, roots) {
            let image = match stored.get(&value) {
                Some(held) => read(&mut builder, value, held)?,
                None => append(&mut builder, program, value, &images)?,
            };
            match (stored.get(&value), &program.node(value).op) {
                (Some(held), _) => sources.push(held.source),
                (None, Op::Param(p)) => sources.push(Source::Param(*p)),
                _ => {}
            }
            images.insert(value, image);
        }
        for root in roots {
            builder.output(&root.name, &root.axes, root.elem, images[&root.value])?;
        }
        Ok(Part { program: builder.finish(), sources, sinks: roots.iter().map(|root| root.sink).collect() })
    }

    /// The part as one stage, over the axes that it uses, with partial sums along an axis, if one is given.
    pub(super) fn whole(self, partial_axis: Option<Axis>) -> Stage {
        let used = used_axes(&self.program);
        let axes: Vec<Axis> = used.iter().collect();
        let to = |axis: Axis| Axis(axes.iter().position(|a| *a == axis).unwrap_or(0) as u32);
        let mut program = self.program;
        program.axes = axes.iter().map(|a| program.axes[a.0 as usize].clone()).collect();
        program.params.iter_mut().for_each(|p| p.axes.iter_mut().for_each(|a| *a = to(*a)));
        program.outputs.iter_mut().for_each(|o| o.axes.iter_mut().for_each(|a| *a = to(*a)));
        for node in &mut program.nodes {
            node.axes = node.axes.iter().map(to).collect();
            if let Op::Index(axis) | Op::Size(axis) | Op::Reduce { axis, .. } = &mut node.op {
                *axis = to(*axis);
            }
        }
        let views = vec![vec![]; self.sources.len()];
        let partial_axis = partial_axis.filter(|axis| axes.contains(axis)).map(to);
        let axes = axes.iter().map(|a| vec![*a]).collect();
        Stage::new(NormalForm { program, axes, sources: self.sources, views, sinks: self.sinks, partial_axis })
    }

    /// A stage of the part as one of the whole program, whose buffers before it are so many.
    pub(super) fn stage(&self, mut stage: Stage, buffers: u32) -> Stage {
        for source in &mut stage.sources {
            *source = match *source {
                Source::Param(k) => self.sources[k as usize],
                Source::Buffer(k) => Source::Buffer(k + buffers),
                Source::Output(k) => match self.sinks[k as usize] {
                    Sink::Output(k) => Source::Output(k),
                    Sink::Buffer(k) => Source::Buffer(k),
                },
            };
        }
        for sink in &mut stage.sinks {
            *sink = match *sink {
                Sink::Output(k) => self.sinks[k as usize],
                Sink::Buffer(k) => Sink::Buffer(k + buffers),
            };
        }
        stage
    }
}

/// The values that roots need, in order of evaluation, down to what is stored.
fn needed(program: &Program, stored: &Stored, roots: &[Root]) -> BTreeSet<Value> {
    let (mut needed, mut stack) = (BTreeSet::new(), roots.iter().map(|root| root.value).collect::<Vec<_>>());
    while let Some(value) = stack.pop() {
        if needed.insert(value) && !stored.contains_key(&value) {
            stack.extend(program.node(value).op.operands());
        }
    }
    needed
}

/// A parameter for a stored value.
fn read(b: &mut Builder, value: Value, held: &Held) -> Result<Value, TypeError> {
    b.param(&format!("v{}", value.0), &held.axes, held.elem, None)
}

fn append(
    b: &mut Builder,
    program: &Program,
    value: Value,
    images: &HashMap<Value, Value>,
) -> Result<Value, TypeError> {
    let node = program.node(value);
    let mut op = node.op.map_operands(|v| images[&v]);
    match &mut op {
        Op::Param(p) => {
            let param = &program.params[*p as usize];
            return b.param(&param.name, &param.axes, param.elem, None);
        }
        Op::Reduce { operator, .. } | Op::Scan { operator, .. } => {
            *operator = b.operator(program.operator(*operator).clone());
        }
        _ => {}
    }
    b.append(op, node.ty, node.axes)
}

/// The axes that a program's tensors, indices and sizes have.
fn used_axes(program: &Program) -> AxisSet {
    let nodes = program.nodes.iter().fold(AxisSet::EMPTY, |all, node| {
        let own = match node.op {
            Op::Index(axis) | Op::Size(axis) | Op::Reduce { axis, .. } => AxisSet::of(axis),
            _ => AxisSet::EMPTY,
        };
        all.union(node.axes).union(own)
    });
    let outputs = program.outputs.iter().flat_map(|o| o.axes.iter().copied());
    outputs.fold(nodes, AxisSet::with)
}
