//! A stage's program under construction.

use std::collections::HashMap;

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, Literal, OperatorId, Value};
use oplus_dsl::typing::TypeError;

use super::course::Course;
use super::cutter::Cutter;
use super::family::Family;
use super::group::Group;
use super::{NormalForm, Sink, Source, Stage, View};

pub(super) type Built = Result<Value, TypeError>;

/// A stage's program under construction.
pub(super) struct Assembly<'a> {
    pub(super) cutter: &'a Cutter<'a>,
    pub(super) builder: Builder,
    /// The axes of the whole program, in the stage's order.
    axes: Vec<Axis>,
    sources: Vec<Source>,
    views: Vec<Vec<View>>,
    /// The stage's parameters: for a tensor and a view of it, the value.
    params: HashMap<(Source, Vec<View>), Value>,
    pub(super) course: Option<Course>,
    pub(super) scan: Option<Running>,
}

/// The stage's scan: the product of those of its families.
pub(super) struct Running {
    pub(super) course: Course,
    pub(super) axis: Axis,
    pub(super) families: Vec<Family>,
    pub(super) operator: OperatorId,
    pub(super) elements: Vec<Value>,
    pub(super) init: Vec<Value>,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(cutter: &'a Cutter<'a>, group: &Group, name: &str, axes: Vec<Axis>) -> Result<Self, TypeError> {
        let mut builder = Builder::new(name);
        for axis in &axes {
            builder.axis(cutter.program.axis_name(*axis))?;
        }
        if axes.is_empty() {
            builder.axis("one")?;
        }
        let (sources, views, params) = (vec![], vec![], HashMap::new());
        Ok(Assembly { cutter, builder, axes, sources, views, params, course: group.home, scan: None })
    }

    /// The stage's axis that stands for one of the whole program.
    pub(super) fn axis(&self, axis: Axis) -> Result<Axis, TypeError> {
        let place = self.axes.iter().position(|a| *a == axis);
        place.map(|i| Axis(i as u32)).ok_or(TypeError::Unknown { kind: "axis", index: axis.0 })
    }

    pub(super) fn axis_list(&self, axes: &[Axis]) -> Result<Vec<Axis>, TypeError> {
        axes.iter().map(|a| self.axis(*a)).collect()
    }

    /// The tensor that holds a stored value.
    pub(super) fn holder(&self, value: Value) -> Source {
        match self.cutter.roots[self.cutter.stored[&value]].sink {
            Sink::Output(i) => Source::Output(i),
            Sink::Buffer(i) => Source::Buffer(i),
        }
    }

    /// The value of a tensor, seen through a view.
    pub(super) fn param(&mut self, source: Source, views: Vec<View>) -> Built {
        let program = self.cutter.program;
        let (mut name, axes, elem) = match source {
            Source::Param(i) => {
                let param = &program.params[i as usize];
                (param.name.clone(), self.axis_list(&param.axes)?, param.elem)
            }
            Source::Output(i) => {
                let output = &program.outputs[i as usize];
                (output.name.clone(), self.axis_list(&output.axes)?, output.elem)
            }
            Source::Buffer(i) => {
                let buffer = &self.cutter.buffers[i as usize];
                (buffer.name.clone(), self.axis_list(&buffer.axes)?, buffer.elem)
            }
        };
        let views: Vec<View> = views.into_iter().filter(|v| v.by != 0 && axes.contains(&v.axis)).collect();
        if let Some(known) = self.params.get(&(source, views.clone())) {
            return Ok(*known);
        }
        for view in &views {
            name = format!("{name}_at_{}{}", self.builder.program().axis_name(view.axis), signed(-view.by));
        }
        let value = self.builder.param(&name, &axes, elem, None)?;
        self.sources.push(source);
        self.views.push(views.clone());
        self.params.insert((source, views), value);
        Ok(value)
    }

    pub(super) fn constant(&mut self, ty: Ty, literal: Literal) -> Built {
        let literal = match literal {
            Literal::Int(i) if ty.is_float() => Literal::Float(i as f64),
            other => other,
        };
        self.builder.constant(ty, literal)
    }

    pub(super) fn finish(self, group: &Group) -> Stage {
        let axes = if self.axes.is_empty() { vec![vec![]] } else { self.axes.iter().map(|a| vec![*a]).collect() };
        let sinks = group.roots.iter().map(|r| self.cutter.roots[*r].sink).collect();
        let part = group.roots.iter().find_map(|r| self.cutter.own_partial_axis(&self.cutter.roots[*r]));
        let partial_axis = part.and_then(|part| self.axis(part).ok());
        let program = self.builder.finish();
        Stage::new(NormalForm { program, axes, sources: self.sources, views: self.views, sinks, partial_axis })
    }
}

/// A number with its sign.
fn signed(x: i64) -> String {
    if x < 0 { format!("_minus_{}", -x) } else { format!("_plus_{x}") }
}
