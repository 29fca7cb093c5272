//! Programs with recurrences of matrices.
//!
//! Such a program runs in parts: programs without these recurrences, which the rest of the engine runs, and [`group`]s of recurrences
//! with what is computed beside their states. Parts hand each other tensors. A group walks the time state by state, a lane for each index of
//! the axes that matrices do not have, and threads share the lanes; see [`walk`]. The result does not depend on the number of
//! threads.

mod code;
mod derive;
mod explain;
mod group;
mod loops;
mod run;
mod step;
mod walk;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Program, Value};

use super::{Compiled, CpuError, View, ViewMut};
use code::Code;
use derive::Derived;
use group::{Group, Known};
use run::{Buffers, GroupTensors};

/// A tensor that parts hand each other.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) elem: Elem,
    /// Its axes, the last fastest.
    pub(super) axes: Vec<Axis>,
    /// The last part that reads it.
    pub(super) last_use: usize,
}

/// A tensor that a part of the program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Param(usize),
    Tensor(usize),
}

/// One part.
#[derive(Debug)]
enum Part {
    /// A program without recurrences of matrices, which writes tensors, or the outputs of all.
    Program { compiled: Box<Compiled>, inputs: Vec<Source>, tensors: Option<Vec<usize>> },
    /// A group, with the tensors that it reads, writes at every time, and writes at ends.
    Group { group: Box<Group>, code: Box<Code>, imports: Vec<usize>, exports: Vec<usize>, ends: Vec<usize> },
}

/// A program in parts.
#[derive(Debug)]
pub(super) struct Parts {
    parts: Vec<Part>,
    pub(super) tensors: Vec<Tensor>,
    ordered: bool,
}

impl Parts {
    /// The parts of a valid program.
    ///
    /// # Errors
    /// [`CpuError::Invalid`] never, for a valid program.
    pub(super) fn new(program: &Program, ordered: bool) -> Result<Parts, CpuError> {
        let mut parts = Parts { parts: vec![], tensors: vec![], ordered };
        let (mut known, mut derived) = (Known::default(), Derived::new(program));
        while let Some(group) = Group::next(program, &known) {
            let code = code::code(program, &group, ordered);
            let imports: Vec<usize> = group.imports.iter().map(|v| parts.import(program, &group, *v)).collect();
            let own = &parts.tensors[parts.tensors.len() - imports.len()..];
            let reads = derived.importing(&group, own, &parts.tensors);
            if !imports.is_empty() {
                parts.program(&reads, &derived, Some(imports.clone()))?;
            }
            let exports = group.exports.iter().map(|v| parts.export(program, &group, *v, true)).collect::<Vec<_>>();
            let ends = group.ends.iter().map(|end| parts.export(program, &group, end.of, false)).collect::<Vec<_>>();
            let number = parts.parts.len();
            imports.iter().for_each(|k| parts.tensors[*k].last_use = number);
            known.ran.extend(&group.scans);
            known.tensors.extend(group.exports.iter().copied().chain(group.ends.iter().map(|end| end.node)));
            derived.know(&group, &exports, &ends);
            let (group, code) = (Box::new(group), Box::new(code));
            parts.parts.push(Part::Group { group, code, imports, exports, ends });
        }
        let rest = derived.rest(&parts.tensors);
        parts.program(&rest, &derived, None)?;
        Ok(parts)
    }

    fn program(
        &mut self,
        program: &Program,
        derived: &Derived<'_>,
        tensors: Option<Vec<usize>>,
    ) -> Result<(), CpuError> {
        debug_assert!(!program.has_matrix_scans(), "{program}");
        let inputs: Vec<Source> = program.params.iter().map(|param| derived.source(&param.name)).collect();
        let number = self.parts.len();
        for input in &inputs {
            if let Source::Tensor(k) = input {
                self.tensors[*k].last_use = number;
            }
        }
        let compiled = Box::new(Compiled::new(program, self.ordered)?);
        self.parts.push(Part::Program { compiled, inputs, tensors });
        Ok(())
    }

    /// A tensor that a group reads: lanes, the time, then the axes of matrices.
    fn import(&mut self, program: &Program, group: &Group, value: Value) -> usize {
        let node = program.node(value);
        let others = group.others(program);
        let order = group.lanes.iter().copied().chain([group.time, group.along]).chain(group.across).chain(others);
        let mut axes: Vec<Axis> = vec![];
        for axis in order.filter(|axis| node.axes.contains(*axis)) {
            if !axes.contains(&axis) {
                axes.push(axis);
            }
        }
        self.add(group, axes)
    }

    /// A tensor that a group writes, at every time or at an end.
    fn export(&mut self, program: &Program, group: &Group, value: Value, times: bool) -> usize {
        let axes = program.node(value).axes;
        let order = group.lanes.iter().copied().chain([group.time, group.along]).chain(group.across);
        let axes = order.filter(|axis| axes.contains(*axis) && (times || *axis != group.time)).collect();
        self.add(group, axes)
    }

    fn add(&mut self, group: &Group, axes: Vec<Axis>) -> usize {
        self.tensors.push(Tensor { elem: run::elem(group.ty), axes, last_use: 0 });
        self.tensors.len() - 1
    }

    /// Runs all parts, one after the other.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`] and [`CpuError::TooLarge`].
    pub(super) fn run(
        &self,
        sizes: &[usize],
        inputs: &[Option<View<'_>>],
        outputs: &mut [ViewMut<'_>],
        workers: usize,
    ) -> Result<(), CpuError> {
        let mut buffers = Buffers::new(self, sizes);
        for (number, part) in self.parts.iter().enumerate() {
            match part {
                Part::Program { compiled, inputs: sources, tensors } => {
                    buffers.program(compiled, sources, tensors.as_deref(), inputs, outputs)?;
                }
                Part::Group { group, code, imports, exports, ends } => {
                    let tensors = GroupTensors { imports, exports, ends };
                    buffers.group(group, code, tensors, self.ordered, workers)?;
                }
            }
            buffers.free(number);
        }
        Ok(())
    }
}
