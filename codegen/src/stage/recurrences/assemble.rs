//! The program of a stage with one recurrence.

use std::collections::HashMap;

use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Op, Value};
use oplus_dsl::typing::TypeError;

use super::Progress;
use super::points::Points;
use crate::stage::{NormalForm, Sink, Source, Stage};

/// The stage over these axes that writes values there. All that it reads is in memory.
pub(super) fn assemble(
    progress: &Progress<'_>,
    axes: AxisSet,
    points: &Points,
    writes: &[(Value, Sink)],
) -> Result<Stage, TypeError> {
    let mut assembly = Assembly::new(progress, axes, points)?;
    let all = points.inside.union(&points.held).copied();
    for value in all {
        let place = if points.held.contains(&value) { assembly.held(value)? } else { assembly.node(value)? };
        assembly.places.insert(value, place);
    }
    for (value, sink) in writes {
        let (axes, elem) = progress.layout(*sink);
        let name = match sink {
            Sink::Output(k) => progress.program.outputs[*k as usize].name.clone(),
            Sink::Buffer(k) => progress.buffers[*k as usize].name.clone(),
        };
        let axes: Vec<Axis> = axes.iter().map(|axis| assembly.axis(*axis)).collect();
        let value = assembly.places[value];
        assembly.builder.output(&name, &axes, elem, value)?;
    }
    let program = assembly.builder.finish();
    let (axes, sources) = (assembly.axes.iter().map(|axis| vec![*axis]).collect(), assembly.sources);
    let (views, sinks) = (vec![vec![]; sources.len()], writes.iter().map(|(_, sink)| *sink).collect());
    Ok(Stage::new(NormalForm { program, axes, sources, views, sinks, partial_axis: None }))
}

struct Assembly<'a> {
    progress: &'a Progress<'a>,
    builder: Builder,
    /// The axes of the whole program, in the stage's order.
    axes: Vec<Axis>,
    places: HashMap<Value, Value>,
    sources: Vec<Source>,
}

impl<'a> Assembly<'a> {
    fn new(progress: &'a Progress<'a>, axes: AxisSet, points: &Points) -> Result<Assembly<'a>, TypeError> {
        let program = progress.program;
        let mut own = axes;
        for value in points.inside.union(&points.held) {
            own = own.union(program.node(*value).axes);
            if let Op::Size(axis) = program.node(*value).op {
                own = own.with(axis);
            }
        }
        let mut builder = Builder::new(&program.name);
        let axes: Vec<Axis> = own.iter().collect();
        for axis in &axes {
            builder.axis(program.axis_name(*axis))?;
        }
        Ok(Assembly { progress, builder, axes, places: HashMap::new(), sources: vec![] })
    }

    fn axis(&self, axis: Axis) -> Axis {
        Axis(self.axes.iter().position(|own| *own == axis).unwrap_or_default() as u32)
    }

    /// A value that is in memory.
    fn held(&mut self, value: Value) -> Result<Value, TypeError> {
        let source = self.progress.held[&value];
        let (axes, elem) = self.progress.source_layout(source);
        self.param(&format!("held.v{}", value.0), &axes, elem, source)
    }

    fn param(&mut self, name: &str, axes: &[Axis], elem: oplus_dsl::Elem, source: Source) -> Result<Value, TypeError> {
        let axes: Vec<Axis> = axes.iter().map(|axis| self.axis(*axis)).collect();
        self.sources.push(source);
        self.builder.param(name, &axes, elem, None)
    }

    fn node(&mut self, value: Value) -> Result<Value, TypeError> {
        let program = self.progress.program;
        let node = program.node(value);
        if let Op::Param(k) = node.op {
            let param = &program.params[k as usize];
            return self.param(&param.name, &param.axes, param.elem, Source::Param(k));
        }
        let mut op = node.op.map_operands(|v| self.places[&v]);
        op.map_axes(|axis| self.axis(axis));
        if let Op::Reduce { operator, .. } = &mut op {
            *operator = self.builder.operator(program.operator(*operator).clone());
        }
        let axes: AxisSet = match op {
            Op::Broadcast(_) => node.axes.iter().map(|axis| self.axis(axis)).collect(),
            _ => AxisSet::EMPTY,
        };
        self.builder.append(op, node.ty, axes)
    }
}
