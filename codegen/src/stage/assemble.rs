//! The program of a stage, from the roots that it writes.

use std::collections::BTreeSet;

use oplus_dsl::ir::{Op, Value};
use oplus_dsl::typing::TypeError;

use super::assembly::{Assembly, Running};
use super::cutter::{Cutter, Root};
use super::family::{Family, families};
use super::group::Group;
use super::import::{Import, Place};
use super::leaves::{Leaves, stage_axes};
use super::product::product;
use super::{Sink, Source, Stage};

/// The stage of a group, number `number` of `count`.
pub(super) fn assemble(cutter: &Cutter<'_>, group: &Group, number: usize, count: usize) -> Result<Stage, TypeError> {
    let name = match count {
        1 => cutter.program.name.clone(),
        _ => format!("{}_{}", cutter.program.name, number + 1),
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

impl Assembly<'_> {
    /// Declares a parameter for everything that is read.
    fn declare_tensors(&mut self, leaves: Leaves, unread: &BTreeSet<Source>) -> Result<(), TypeError> {
        let params = leaves.params.into_iter().map(Source::Param);
        let read: Vec<Source> = leaves.read.into_iter().map(|value| self.holder(value)).collect();
        for source in params.chain(read).filter(|source| !unread.contains(source)) {
            self.param(source, vec![])?;
        }
        Ok(())
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

    fn output(&mut self, root: &Root) -> Result<(), TypeError> {
        let mut import = Import::new(&root.read);
        let value = self.import(&mut import, root.value, &Place::default())?;
        let axes = self.axis_list(&root.axes)?;
        self.builder.output(&tensor_name(self.cutter, root.sink), &axes, root.elem, value)
    }
}

/// The name of a tensor that a stage writes or an earlier one has written.
fn tensor_name(cutter: &Cutter<'_>, sink: Sink) -> String {
    match sink {
        Sink::Output(i) => cutter.program.outputs[i as usize].name.clone(),
        Sink::Buffer(i) => cutter.buffers[i as usize].name.clone(),
    }
}
