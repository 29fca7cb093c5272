//! Merging neighbouring axes of a stage into one.
//!
//! Axes B and H can be merged when every tensor has both, side by side, or neither, and nothing but the tensors'
//! addresses depends on them. The merged stage is the same program over fewer axes; a call can use it when B's stride
//! is H's size times H's stride in every tensor. It saves divisions, and makes one kernel do for every such split.

use super::bound::{Bound, Placed};
use super::tensor::{Tensor, axes, tensors};
use super::{NormalForm, Stage, View};
use oplus_dsl::ir::{Axis, AxisSet, Node, Op, Program, Value};

/// A stage with merged axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Collapsed {
    /// The stage.
    pub stage: Stage,
    /// For each of its axes, those of the original stage, outermost first.
    groups: Vec<Vec<Axis>>,
}

/// The stage with all axes merged that can be; `None` if there are none.
pub fn collapse(stage: &Stage) -> Option<Collapsed> {
    if stage.sequences().is_some() {
        return None;
    }
    if let Some(joined) = joined(stage) {
        return Some(joined);
    }
    let groups = groups(stage, &fixed_axes(stage));
    let merged = groups.iter().any(|g| g.len() > 1);
    merged.then(|| Collapsed { stage: merge(stage, &groups), groups })
}

/// The stage with the columns of its partial sums merged, and a sum of sums made one sum; `None` where there are no partial sums, or
/// columns that cannot be merged.
fn joined(stage: &Stage) -> Option<Collapsed> {
    stage.partial_axis.filter(|_| !stage.is_pairwise())?;
    let (stage, columns) = one_sum(stage);
    let groups = groups(&stage, &fixed_axes(&stage).minus(columns));
    let whole = |group: &Vec<Axis>| group.iter().copied().collect::<AxisSet>() == columns;
    groups.iter().any(whole).then(|| Collapsed { stage: merge(&stage, &groups), groups })
}

/// The stage with every sum of sums as one sum over the outermost axis, and the axes of all of them, which are about to be merged.
fn one_sum(stage: &Stage) -> (Stage, AxisSet) {
    let mut program = stage.program.clone();
    let (mut columns, mut inner) = (AxisSet::EMPTY, vec![]);
    let is_reduce = |v: Value| matches!(stage.program.node(v).op, Op::Reduce { .. });
    for top in stage.summed_tuples() {
        let mut sum = top;
        while let Op::Reduce { axis, elements, .. } = &stage.program.node(sum).op {
            columns = columns.with(*axis);
            program.nodes[top.0 as usize].op = match &program.node(top).op {
                Op::Reduce { axis, operator, .. } => {
                    Op::Reduce { axis: *axis, operator: *operator, elements: elements.clone() }
                }
                op => op.clone(),
            };
            match stage.program.node(elements[0]).op {
                Op::Field(tuple, _) if is_reduce(tuple) => {
                    inner.extend([tuple, elements[0]]);
                    sum = tuple;
                }
                _ => break,
            }
        }
    }
    (stage.with_program(without(program, &inner)), columns)
}

/// The program without some nodes, which no other reads.
fn without(program: Program, dead: &[Value]) -> Program {
    let mut place = vec![];
    let mut kept = program.without_nodes();
    for (i, node) in program.nodes.into_iter().enumerate() {
        place.push(Value(kept.nodes.len() as u32));
        if !dead.contains(&Value(i as u32)) {
            let op = node.op.map_operands(|v| place[v.0 as usize]);
            kept.nodes.push(Node { op, ..node });
        }
    }
    kept.outputs.iter_mut().for_each(|output| output.value = place[output.value.0 as usize]);
    kept
}

/// Neighbouring axes that can be merged.
fn groups(stage: &Stage, fixed: &AxisSet) -> Vec<Vec<Axis>> {
    let mut groups: Vec<Vec<Axis>> = vec![];
    for axis in (0..stage.program.axes.len() as u32).map(Axis) {
        match groups.last_mut() {
            Some(group) if can_merge(stage, *fixed, *group.last().unwrap_or(&axis), axis) => group.push(axis),
            _ => groups.push(vec![axis]),
        }
    }
    groups
}

/// The axes that something else than addresses depends on.
fn fixed_axes(stage: &Stage) -> AxisSet {
    let used = |op: &Op| match op {
        Op::Index(a) | Op::Size(a) => vec![*a],
        Op::Scan { axis, .. } | Op::Reduce { axis, .. } | Op::Shift { axis, .. } => vec![*axis],
        Op::First { axis, .. } | Op::Last { axis, .. } => vec![*axis],
        Op::Starts { axis, list, .. } => vec![*axis, *list],
        Op::Gather { axis, to, .. } => vec![*axis, *to],
        Op::MatrixScan(scan) => scan.others().chain([scan.axis, scan.along]).collect(),
        _ => vec![],
    };
    let viewed = stage.views.iter().flatten().map(|v| v.axis);
    stage.program.nodes.iter().flat_map(|n| used(&n.op)).chain(viewed).chain(stage.state_axis()).collect()
}

fn can_merge(stage: &Stage, fixed: AxisSet, outer: Axis, inner: Axis) -> bool {
    let side_by_side = |list: &[Axis]| {
        let place = |axis| list.iter().position(|a| *a == axis);
        match (place(outer), place(inner)) {
            (Some(o), Some(i)) => o + 1 == i,
            (None, None) => true,
            _ => false,
        }
    };
    !fixed.contains(outer)
        && !fixed.contains(inner)
        && tensors(stage).all(|t| side_by_side(axes(stage, t)))
        && stage.program.nodes.iter().all(|n| n.axes.contains(outer) == n.axes.contains(inner))
}

/// The stage over one axis per group.
fn merge(stage: &Stage, groups: &[Vec<Axis>]) -> Stage {
    let to = |axis: Axis| Axis(groups.iter().position(|g| g.contains(&axis)).unwrap_or(0) as u32);
    let list = |axes: &[Axis]| {
        let mut merged: Vec<Axis> = axes.iter().map(|a| to(*a)).collect();
        merged.dedup();
        merged
    };
    let old = &stage.program;
    let name = |group: &Vec<Axis>| group.iter().map(|a| old.axis_name(*a)).collect::<Vec<_>>().join("_");
    let mut program = Program { axes: groups.iter().map(name).collect(), ..old.clone() };
    program.params.iter_mut().for_each(|p| p.axes = list(&p.axes));
    program.outputs.iter_mut().for_each(|o| o.axes = list(&o.axes));
    for node in &mut program.nodes {
        node.axes = node.axes.iter().map(to).collect();
        node.op.map_axes(to);
    }
    let axes = groups.iter().map(|g| g.iter().flat_map(|a| stage.axes[a.0 as usize].clone()).collect());
    let view = |v: &View| View { axis: to(v.axis), ..*v };
    let views = stage.views.iter().map(|views| views.iter().map(view).collect()).collect();
    let partial_axis = stage.partial_axis.map(to);
    let (sources, sinks) = (stage.sources.clone(), stage.sinks.clone());
    let merged = Stage::new(NormalForm { program, axes: axes.collect(), sources, views, sinks, partial_axis });
    match stage.state_axis() {
        Some(axis) if stage.has_final_states() => merged.with_final_states(to(axis)),
        _ => merged,
    }
}

impl Collapsed {
    /// Sizes and layouts over the merged axes, if every tensor's strides allow it.
    pub fn bind(&self, stage: &Stage, bound: &Bound) -> Option<Bound> {
        let size = |group: &Vec<Axis>| i64::try_from(bound.count(group.iter().copied())).ok();
        let sizes = self.groups.iter().map(size).collect::<Option<_>>()?;
        let tensors = tensors(stage).map(|t| self.place(stage, bound, t)).collect::<Option<_>>()?;
        Some(Bound { sizes, tensors })
    }

    fn place(&self, stage: &Stage, bound: &Bound, tensor: Tensor) -> Option<Placed> {
        let has = |group: &&Vec<Axis>| group.first().is_some_and(|a| axes(stage, tensor).contains(a));
        let own: Vec<&Vec<Axis>> = self.groups.iter().filter(has).collect();
        let mut strides = vec![];
        for axis in axes(&self.stage, tensor) {
            let group = own.iter().find(|g| self.groups[axis.0 as usize] == ***g)?;
            strides.push(merged_stride(stage, bound, tensor, group)?);
        }
        Some(Placed { strides, align: bound.tensor(stage, tensor).align })
    }
}

/// The distance between neighbours along merged axes, if there is one; axes of size 1 do not matter.
fn merged_stride(stage: &Stage, bound: &Bound, tensor: Tensor, group: &[Axis]) -> Option<i64> {
    let mut run: Option<(i64, i64)> = None;
    for axis in group.iter().rev().filter(|a| bound.size(**a) != 1) {
        let (stride, size) = (bound.stride(stage, tensor, *axis)?, bound.size(*axis));
        run = match run {
            None => Some((stride, size)),
            Some((inner, count)) if inner.checked_mul(count)? == stride => Some((inner, count.checked_mul(size)?)),
            Some(_) => return None,
        };
    }
    Some(run.map_or(0, |(stride, _)| stride))
}
