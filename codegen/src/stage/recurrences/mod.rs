//! Cuts of programs that multiply a state by a matrix at every step.
//!
//! Each recurrence of matrices is a stage of its own, which takes along the sums of its states over the axis that the matrices act on,
//! and maps of these. Its operands are computed in the stage where they are maps of parameters that are cheap or vary along all rows; other
//! operands are stored by plain stages before it. States that anything else reads are stored, and plain stages read them.

mod assemble;
mod before;
mod group;
mod opposite;
mod points;

use std::collections::{BTreeSet, HashMap};

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Op, Output, Param, Program, Value};
use oplus_dsl::rewrite::rewrite;
use oplus_dsl::simplify::{prune_params, simplified};

use super::cutter::memory_order;
use super::error::CutError;
use super::{Cut, Sink, Source, Stage, Temporary};
use assemble::assemble;
use group::Group;
pub(super) use opposite::cut_opposite;
pub(super) use points::{Decays, stores_decays};

/// Cuts a program into stages of one recurrence each, and stages of all else, into which `plain` cuts programs without recurrences.
pub(super) fn cut_recurrences(
    program: &Program,
    decays: Decays,
    plain: impl Fn(&Program) -> Result<Cut, CutError>,
) -> Result<Cut, CutError> {
    let mut progress = Progress { decays, ..Progress::new(program) };
    while let Some(group) = Group::next(&progress) {
        progress.store(&group.imports, &plain)?;
        progress.run(&group)?;
    }
    progress.rest(&plain)?;
    Ok(progress.finish())
}

/// A program while it is cut: the stages so far, and the values that they have stored.
struct Progress<'p> {
    program: &'p Program,
    /// Where the exponentials of decays are computed that differ along the axis that the matrices act on.
    decays: Decays,
    /// The recurrences that have a stage.
    ran: BTreeSet<Value>,
    /// Values that are in memory by now, and where.
    held: HashMap<Value, Source>,
    /// The outputs of the program that a stage writes.
    written: BTreeSet<usize>,
    stages: Vec<Stage>,
    buffers: Vec<Temporary>,
}

impl<'p> Progress<'p> {
    fn new(program: &'p Program) -> Progress<'p> {
        let (ran, held, written) = (BTreeSet::new(), HashMap::new(), BTreeSet::new());
        Progress { program, decays: Decays::Stored, ran, held, written, stages: vec![], buffers: vec![] }
    }

    /// A tensor that holds a value exactly; the axis `last` is its fastest one.
    fn buffer(&mut self, value: Value, last: Option<Axis>) -> Sink {
        self.buffer_as(value, last, self.program.node(value).ty.elem().unwrap_or(Elem::F32))
    }

    /// A tensor that holds a value as elements of a type.
    fn buffer_as(&mut self, value: Value, last: Option<Axis>, elem: Elem) -> Sink {
        let node = self.program.node(value);
        let mut axes = memory_order(self.program, node.axes);
        if let Some(last) = last.filter(|last| node.axes.contains(*last)) {
            axes.retain(|axis| *axis != last);
            axes.push(last);
        }
        self.buffers.push(Temporary { name: format!("v{}", value.0), axes, elem });
        self.held.insert(value, Source::Buffer(self.buffers.len() as u32 - 1));
        Sink::Buffer(self.buffers.len() as u32 - 1)
    }

    /// Stores values that depend on no recurrence without a stage, exactly.
    fn store(
        &mut self,
        values: &BTreeSet<Value>,
        plain: impl Fn(&Program) -> Result<Cut, CutError>,
    ) -> Result<(), CutError> {
        let program = self.program;
        self.store_as(values, |value| program.node(value).ty.elem().unwrap_or(Elem::F32), plain)
    }

    /// Stores values that depend on no recurrence without a stage, each as elements of a type.
    fn store_as(
        &mut self,
        values: &BTreeSet<Value>,
        elem: impl Fn(Value) -> Elem,
        plain: impl Fn(&Program) -> Result<Cut, CutError>,
    ) -> Result<(), CutError> {
        let (mut outputs, mut sinks, known) = (vec![], vec![], self.held.clone());
        for value in values {
            let sink = self.buffer_as(*value, None, elem(*value));
            let (axes, elem) = self.layout(sink);
            outputs.push(Output { name: format!("v{}", value.0), axes, elem, value: *value });
            sinks.push(sink);
        }
        let all = std::mem::replace(&mut self.held, known);
        self.add_stages(outputs, sinks, plain)?;
        self.held = all;
        Ok(())
    }

    /// The axes and the element type of a tensor.
    fn layout(&self, sink: Sink) -> (Vec<Axis>, Elem) {
        match sink {
            Sink::Output(k) => {
                let output = &self.program.outputs[k as usize];
                (output.axes.clone(), output.elem)
            }
            Sink::Buffer(k) => {
                let buffer = &self.buffers[k as usize];
                (buffer.axes.clone(), buffer.elem)
            }
        }
    }

    /// The axes and the element type of a tensor that is read.
    fn source_layout(&self, source: Source) -> (Vec<Axis>, Elem) {
        match source {
            Source::Param(k) => {
                let param = &self.program.params[k as usize];
                (param.axes.clone(), param.elem)
            }
            Source::Output(k) => self.layout(Sink::Output(k)),
            Source::Buffer(k) => self.layout(Sink::Buffer(k)),
        }
    }

    /// Adds the stages that write some outputs, of values that depend on no recurrence without a stage.
    fn add_stages(
        &mut self,
        outputs: Vec<Output>,
        sinks: Vec<Sink>,
        plain: impl Fn(&Program) -> Result<Cut, CutError>,
    ) -> Result<(), CutError> {
        if outputs.is_empty() {
            return Ok(());
        }
        let (program, sources) = self.derived(outputs);
        let Cut { stages, buffers, .. } = plain(&program)?;
        let first = self.buffers.len() as u32;
        let read = |source: Source| match source {
            Source::Param(k) => sources[k as usize],
            Source::Output(k) => of_sink(sinks[k as usize]),
            Source::Buffer(k) => Source::Buffer(first + k),
        };
        let write = |sink: Sink| match sink {
            Sink::Output(k) => sinks[k as usize],
            Sink::Buffer(k) => Sink::Buffer(first + k),
        };
        for mut stage in stages {
            stage.sources.iter_mut().for_each(|source| *source = read(*source));
            stage.sinks.iter_mut().for_each(|sink| *sink = write(*sink));
            self.stages.push(stage);
        }
        self.buffers.extend(buffers);
        Ok(())
    }

    /// Adds the stages that write the outputs that are left.
    fn rest(&mut self, plain: impl Fn(&Program) -> Result<Cut, CutError>) -> Result<(), CutError> {
        let program = self.program;
        let rest: Vec<usize> = (0..program.outputs.len()).filter(|k| !self.written.contains(k)).collect();
        let outputs: Vec<Output> = rest.iter().map(|k| program.outputs[*k].clone()).collect();
        self.add_stages(outputs, rest.iter().map(|k| Sink::Output(*k as u32)).collect(), plain)
    }

    /// The program of some outputs that reads what is in memory, and where its parameters come from.
    fn derived(&self, outputs: Vec<Output>) -> (Program, Vec<Source>) {
        let mut program = Program { outputs, ..self.program.clone() };
        let mut sources: HashMap<String, Source> = HashMap::new();
        for (k, param) in (0..).zip(&program.params) {
            sources.insert(param.name.clone(), Source::Param(k));
        }
        let mut held: Vec<(Value, Source)> = self.held.iter().map(|(value, source)| (*value, *source)).collect();
        held.sort();
        let mut places = HashMap::new();
        for (value, source) in held {
            let (axes, elem) = self.source_layout(source);
            let name = format!("held.v{}", value.0);
            places.insert(value, program.params.len() as u32);
            sources.insert(name.clone(), source);
            program.params.push(Param { name, axes, elem, or: None, default: None });
        }
        let program = rewrite(&program, |_, value, node| {
            if let Some(place) = places.get(&value) {
                node.op = Op::Param(*place);
            }
        });
        let program = prune_params(&simplified(&program));
        let sources = program.params.iter().map(|param| sources[&param.name]).collect();
        (program, sources)
    }

    /// Adds the stage of a recurrence.
    fn run(&mut self, group: &Group) -> Result<(), CutError> {
        let mut writes: Vec<(Value, Sink)> = vec![];
        for k in &group.outputs {
            let output = &self.program.outputs[*k];
            self.written.insert(*k);
            writes.push((output.value, Sink::Output(*k as u32)));
        }
        let stored: Vec<(Value, Sink)> = group
            .stored
            .iter()
            .map(|value| {
                (
                    *value,
                    self.exact_output(group, *value).unwrap_or_else(|| self.buffer(*value, Some(group.scan.along))),
                )
            })
            .collect();
        writes.extend(stored.iter().copied().filter(|(_, sink)| matches!(sink, Sink::Buffer(_))));
        let own: Vec<Value> = stored.iter().map(|(value, _)| *value).collect();
        let known: HashMap<Value, Source> =
            self.held.iter().filter(|(value, _)| !own.contains(value)).map(|(v, s)| (*v, *s)).collect();
        let all = std::mem::replace(&mut self.held, known);
        let stage = assemble(self, group.axes(self.program), &group.points(self), &writes)?;
        self.held = all;
        self.held.extend(stored.iter().map(|(value, sink)| (*value, of_sink(*sink))));
        self.stages.push(stage);
        self.ran.extend(&group.members);
        Ok(())
    }

    /// An output that the stage writes anyway and that holds a value exactly.
    fn exact_output(&self, group: &Group, value: Value) -> Option<Sink> {
        let node = self.program.node(value);
        let is_exact = |k: &&usize| {
            let output = &self.program.outputs[**k];
            output.value == value && node.ty.elem() == Some(output.elem)
        };
        group.outputs.iter().find(is_exact).map(|k| Sink::Output(*k as u32))
    }

    /// All stages, each with its number.
    fn finish(mut self) -> Cut {
        if self.stages.len() > 1 {
            for (k, stage) in self.stages.iter_mut().enumerate() {
                stage.program.name = format!("{}_{}", self.program.name, k + 1);
            }
        }
        Cut { stages: self.stages, buffers: self.buffers, partial_axis: None }
    }
}

fn of_sink(sink: Sink) -> Source {
    match sink {
        Sink::Output(k) => Source::Output(k),
        Sink::Buffer(k) => Source::Buffer(k),
    }
}

/// For every value, whether it depends on a recurrence without a stage, other than through what is in memory.
fn waits(progress: &Progress<'_>) -> Vec<bool> {
    let mut waits: Vec<bool> = vec![];
    for (k, node) in progress.program.nodes.iter().enumerate() {
        let value = Value(k as u32);
        let own = matches!(node.op, Op::MatrixScan(_)) || node.op.operands().iter().any(|v| waits[v.0 as usize]);
        waits.push(own && !progress.held.contains_key(&value));
    }
    waits
}
