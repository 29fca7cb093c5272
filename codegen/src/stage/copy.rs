//! A part of a program as a program of its own, over the axes that it needs.

use std::collections::{BTreeSet, HashMap};

use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Op, Output, Program, Value};
use oplus_dsl::typing::TypeError;

use super::{NormalForm, Sink, Source, Stage};

/// Some values, and all values that they are computed from.
pub(super) fn beneath(program: &Program, values: impl IntoIterator<Item = Value>) -> BTreeSet<Value> {
    let (mut found, mut stack) = (BTreeSet::new(), values.into_iter().collect::<Vec<_>>());
    while let Some(value) = stack.pop() {
        if found.insert(value) {
            stack.extend(program.node(value).op.operands());
        }
    }
    found
}

/// A stage under construction: a copy of some values of a program, all of whose axes it keeps.
pub(super) struct Copier<'p> {
    program: &'p Program,
    builder: Builder,
    places: HashMap<Value, Value>,
    sources: Vec<Source>,
}

impl<'p> Copier<'p> {
    /// A stage to which nothing is copied yet.
    pub(super) fn new(program: &'p Program, name: &str) -> Result<Copier<'p>, TypeError> {
        let mut builder = Builder::new(name);
        for axis in &program.axes {
            builder.axis(axis)?;
        }
        Ok(Copier { program, builder, places: HashMap::new(), sources: vec![] })
    }

    /// Brings a value in, with all that it is computed from.
    pub(super) fn copy(&mut self, value: Value) -> Result<Value, TypeError> {
        for own in beneath(self.program, [value]) {
            if !self.places.contains_key(&own) {
                let place = self.node(own)?;
                self.places.insert(own, place);
            }
        }
        Ok(self.places[&value])
    }

    fn node(&mut self, value: Value) -> Result<Value, TypeError> {
        let program = self.program;
        let node = program.node(value);
        if let Op::Param(p) = node.op {
            let param = &program.params[p as usize];
            self.sources.push(Source::Param(p));
            return self.builder.param(&param.name, &param.axes, param.elem, None);
        }
        let mut op = node.op.map_operands(|v| self.places[&v]);
        if let Op::Reduce { operator, .. } | Op::Scan { operator, .. } = &mut op {
            *operator = self.builder.operator(program.operator(*operator).clone());
        }
        let axes = if let Op::Broadcast(_) = op { node.axes } else { AxisSet::EMPTY };
        self.builder.append(op, node.ty, axes)
    }

    /// Declares an output of a value.
    pub(super) fn output(&mut self, output: &Output, value: Value) -> Result<(), TypeError> {
        let value = self.copy(value)?;
        self.builder.output(&output.name, &output.axes, output.elem, value)
    }

    /// The stage, whose outputs are written to these tensors.
    pub(super) fn finish(self, sinks: Vec<Sink>) -> Stage {
        let program = self.builder.finish();
        let axes = (0..program.axes.len() as u32).map(|a| vec![Axis(a)]).collect();
        let views = vec![vec![]; program.params.len()];
        Stage::new(NormalForm { program, axes, sources: self.sources, views, sinks, partial_axis: None })
    }
}
