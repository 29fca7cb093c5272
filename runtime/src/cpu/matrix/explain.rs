//! The walks of a program in parts.

use oplus_dsl::ir::{Axis, Program};

use crate::cpu::{CpuError, CpuPlan, Walk, pool};

use super::code::Code;
use super::group::Group;
use super::walk::INTERVAL;
use super::{Buffers, Part, Parts, Source};

/// How the names of tensors that parts hand each other begin in derived programs.
const NAMES: [&str; 2] = [super::derive::TENSOR, super::derive::IMPORT];

impl Parts {
    /// The plan of a call with these sizes and strides.
    ///
    /// # Errors
    /// [`CpuError`] where a call of these sizes and strides is refused.
    pub(in crate::cpu) fn explain(
        &self,
        program: &Program,
        sizes: &[usize],
        params: &[&[i64]],
        outputs: &[&[i64]],
    ) -> Result<CpuPlan, CpuError> {
        let buffers = Buffers::new(self, sizes);
        let mut plan = CpuPlan {
            walks: vec![],
            threads: pool::threads(),
            temporary_bytes: buffers.bytes()?,
            element_by_element: vec![],
        };
        for part in &self.parts {
            match part {
                Part::Program { compiled, inputs, tensors } => {
                    let dense = |k: &usize| buffers.layout(&self.tensors[*k]);
                    let given: Vec<Vec<i64>> = inputs
                        .iter()
                        .map(|source| match source {
                            Source::Param(k) => params[*k].to_vec(),
                            Source::Tensor(k) => dense(k),
                        })
                        .collect();
                    let own: Option<Vec<Vec<i64>>> =
                        tensors.as_ref().map(|tensors| tensors.iter().map(dense).collect());
                    let given: Vec<&[i64]> = given.iter().map(Vec::as_slice).collect();
                    let written = own.as_ref().map(|own| own.iter().map(Vec::as_slice).collect::<Vec<_>>());
                    let inner = compiled.explain(sizes, &given, written.as_deref().unwrap_or(outputs))?;
                    plan.temporary_bytes += inner.temporary_bytes;
                    plan.element_by_element.extend(inner.element_by_element);
                    let tensors = tensors.as_deref().unwrap_or_default();
                    plan.walks.extend(inner.walks.into_iter().map(|walk| named(walk, tensors)));
                }
                Part::Group { group, code, imports, exports, ends } => {
                    let written = exports.iter().chain(ends).map(|k| tensor(*k)).collect();
                    let read = imports.iter().map(|k| tensor(*k)).collect();
                    plan.walks.push(walk(program, sizes, group, code, read, written));
                }
            }
        }
        Ok(plan)
    }
}

fn tensor(k: usize) -> String {
    format!("states' tensor {}", k + 1)
}

/// The walk with the names of tensors that parts hand each other.
fn named(mut walk: Walk, tensors: &[usize]) -> Walk {
    for name in walk.reads.iter_mut().chain(&mut walk.writes) {
        let number = |start: &str| name.strip_prefix(start).and_then(|number| number.parse::<usize>().ok());
        match NAMES.map(number) {
            [Some(k), _] => *name = tensor(k),
            [_, Some(at)] => *name = tensors.get(at).map_or(String::new(), |k| tensor(*k)),
            _ => {}
        }
    }
    walk
}

/// The walk of a group: a task is a lane.
fn walk(
    program: &Program,
    sizes: &[usize],
    group: &Group,
    code: &Code,
    reads: Vec<String>,
    writes: Vec<String>,
) -> Walk {
    let size = |axis: &Axis| sizes[axis.0 as usize];
    let axis = |axis: &Axis| (program.axis_name(*axis).to_owned(), size(axis));
    let own: Vec<Axis> = [group.time, group.along].into_iter().chain(group.across).collect();
    let directions: Vec<bool> = code.families.iter().map(|family| family.scan.reverse).collect();
    let both = directions.iter().any(|reverse| *reverse != directions[0]);
    let interval = if both { INTERVAL } else { 1 };
    let lanes = group.lanes.iter().map(|_| 1);
    Walk {
        reads,
        writes,
        axes: group.lanes.iter().chain(&own).map(axis).collect(),
        along: Some((program.axis_name(group.time).to_owned(), directions.first().is_some_and(|first| *first != both))),
        tile: lanes.clone().chain([interval]).chain(own[1..].iter().map(size)).collect(),
        task: lanes.chain(own.iter().map(size)).collect(),
        tasks: group.lanes.iter().map(size).product(),
        parts: 1,
        is_small: false,
        is_compiled: false,
        not_compiled: None,
        products: vec![],
    }
}
