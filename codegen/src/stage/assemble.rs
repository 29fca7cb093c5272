//! The program of a stage, from the roots that it writes.

use std::collections::{BTreeSet, HashMap};

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, Literal, Op, OperatorId, Value};
use oplus_dsl::typing::TypeError;

use super::cut::{Cutter, Root};
use super::family::{Family, families};
use super::group::Group;
use super::import::{Import, Place};
use super::leaves::{Leaves, stage_axes};
use super::needs::Course;
use super::product::product;
use super::{NormalForm, Sink, Source, Stage, View};

pub(super) type Built = Result<Value, TypeError>;

/// The stage of a group; `of` is its number and how many there are.
pub(super) fn assemble(cutter: &Cutter<'_>, group: &Group, of: (usize, usize)) -> Result<Stage, TypeError> {
    let name = match of {
        (_, 1) => cutter.program.name.clone(),
        (i, _) => format!("{}_{}", cutter.program.name, i + 1),
    };
    let stage = assemble_without(cutter, group, &name, &BTreeSet::new())?;
    match unread(&stage) {
        none if none.is_empty() => Ok(stage),
        unread => assemble_without(cutter, group, &name, &unread),
    }
}

/// The stage without a parameter for these tensors, of which only views are read.
fn assemble_without(
    cutter: &Cutter<'_>,
    group: &Group,
    name: &str,
    unread: &BTreeSet<Source>,
) -> Result<Stage, TypeError> {
    let families = families(cutter, &group.roots);
    let leaves = Leaves::of(cutter, &group.roots, &families);
    let mut assembly = Assembly::new(cutter, group, name, stage_axes(cutter, &group.roots, &leaves))?;
    assembly.declare_tensors(leaves, unread)?;
    assembly.declare_scan(group, families)?;
    for root in &group.roots {
        assembly.output(&cutter.roots[*root])?;
    }
    Ok(assembly.finish(group))
}

/// The tensors whose parameter no value depends on.
fn unread(stage: &Stage) -> BTreeSet<Source> {
    let nodes = &stage.program.nodes;
    let used: BTreeSet<Value> = nodes.iter().flat_map(|n| n.op.operands()).collect();
    let written: BTreeSet<Value> = stage.program.outputs.iter().map(|o| o.value).collect();
    let dead = |(i, node): (usize, &oplus_dsl::ir::Node)| match node.op {
        Op::Param(p) if !used.contains(&Value(i as u32)) && !written.contains(&Value(i as u32)) => Some(p as usize),
        _ => None,
    };
    nodes.iter().enumerate().filter_map(dead).map(|p| stage.sources[p]).collect()
}

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
    fn new(cutter: &'a Cutter<'a>, group: &Group, name: &str, axes: Vec<Axis>) -> Result<Self, TypeError> {
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

    // ---- declarations

    /// Declares a parameter for everything that is read.
    fn declare_tensors(&mut self, leaves: Leaves, unread: &BTreeSet<Source>) -> Result<(), TypeError> {
        let params = leaves.params.into_iter().map(Source::Param);
        let read: Vec<Source> = leaves.read.into_iter().map(|value| self.holder(value)).collect();
        for source in params.chain(read).filter(|source| !unread.contains(source)) {
            self.param(source, vec![])?;
        }
        Ok(())
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

    /// Declares the product of the scans, and brings in their elements and initial states.
    fn declare_scan(&mut self, group: &Group, families: Vec<Family>) -> Result<(), TypeError> {
        let Some(course) = group.home else { return Ok(()) };
        let program = self.cutter.program;
        let parts: Vec<_> = families.iter().map(|f| (program.operator(f.operator), &f.fields[..])).collect();
        let operator = self.builder.operator(product(&parts));
        let (mut elements, mut init, mut starts) = (vec![], vec![], false);
        for family in &families {
            let mut import = Import::new(&family.read);
            let body = program.operator(family.operator);
            for k in family.fields.iter().map(|k| *k as usize) {
                elements.push(self.import(&mut import, family.elements[k], &Place::default())?);
                let identity = self.constant(body.fields[k].ty, body.identity[k])?;
                let own = family.init.get(k).map(|v| self.import(&mut import, *v, &Place::default())).transpose()?;
                starts |= own.is_some_and(|v| v != identity);
                init.push(own.unwrap_or(identity));
            }
        }
        let init = if starts { init } else { vec![] };
        let axis = self.axis(course.axis)?;
        self.scan = Some(Running { course, axis, families, operator, elements, init });
        Ok(())
    }

    pub(super) fn constant(&mut self, ty: Ty, literal: Literal) -> Built {
        let literal = match literal {
            Literal::Int(i) if ty.is_float() => Literal::Float(i as f64),
            other => other,
        };
        self.builder.constant(ty, literal)
    }

    fn output(&mut self, root: &Root) -> Result<(), TypeError> {
        let mut import = Import::new(&root.read);
        let value = self.import(&mut import, root.value, &Place::default())?;
        let axes = self.axis_list(&root.axes)?;
        self.builder.output(&tensor_name(self.cutter, root.sink), &axes, root.elem, value)
    }

    fn finish(self, group: &Group) -> Stage {
        let axes = if self.axes.is_empty() { vec![vec![]] } else { self.axes.iter().map(|a| vec![*a]).collect() };
        let sinks = group.roots.iter().map(|r| self.cutter.roots[*r].sink).collect();
        let part = group.roots.iter().find_map(|r| self.cutter.own_part_axis(&self.cutter.roots[*r]));
        let part_axis = part.and_then(|part| self.axis(part).ok());
        let program = self.builder.finish();
        Stage::new(NormalForm { program, axes, sources: self.sources, views: self.views, sinks, part_axis })
    }
}

/// A number with its sign.
fn signed(x: i64) -> String {
    if x < 0 { format!("_minus_{}", -x) } else { format!("_plus_{x}") }
}

/// The name of a tensor that a stage writes or an earlier one has written.
fn tensor_name(cutter: &Cutter<'_>, sink: Sink) -> String {
    match sink {
        Sink::Output(i) => cutter.program.outputs[i as usize].name.clone(),
        Sink::Buffer(i) => cutter.buffers[i as usize].name.clone(),
    }
}
