//! The tensors of a call of a program in parts, and its groups run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use bytemuck::{cast_slice, cast_slice_mut};
use oplus_dsl::ir::Axis;
use oplus_dsl::{Elem, Ty};

use crate::cpu::{Compiled, CpuError, Data, DataMut, View, ViewMut, pool};
use crate::room::zeros;

use super::code::Code;
use super::group::Group;
use super::loops::Real;
use super::walk::{Import, Machine, Walk, Written};
use super::{Parts, Source, Tensor};

/// The tensors that parts hand each other, in one call.
pub(super) struct Buffers<'p> {
    parts: &'p Parts,
    sizes: &'p [usize],
    words: Vec<Vec<u64>>,
}

/// The tensors of a group, by number.
#[derive(Clone, Copy)]
pub(super) struct GroupTensors<'a> {
    /// The tensors that it reads.
    pub(super) imports: &'a [usize],
    /// The tensors of values at all times, and of those at one end of time.
    pub(super) exports: &'a [usize],
    pub(super) ends: &'a [usize],
}

impl<'p> Buffers<'p> {
    pub(super) fn new(parts: &'p Parts, sizes: &'p [usize]) -> Buffers<'p> {
        Buffers { parts, sizes, words: vec![vec![]; parts.tensors.len()] }
    }

    /// Frees what no later part reads.
    pub(super) fn free(&mut self, part: usize) {
        for (words, tensor) in self.words.iter_mut().zip(&self.parts.tensors) {
            if tensor.last_use == part {
                *words = vec![];
            }
        }
    }

    /// Bytes of all tensors, if all were in memory together.
    pub(super) fn bytes(&self) -> Result<u64, CpuError> {
        let bytes = |tensor: &Tensor| Ok(self.count(&tensor.axes)? as u64 * tensor.elem.bytes().unwrap_or(8) as u64);
        self.parts.tensors.iter().map(bytes).sum()
    }

    fn size(&self, axis: Axis) -> usize {
        self.sizes[axis.0 as usize]
    }

    /// The number of elements along some axes.
    fn count(&self, axes: &[Axis]) -> Result<usize, CpuError> {
        let count = axes.iter().try_fold(1_usize, |n, axis| n.checked_mul(self.size(*axis)));
        count.filter(|n| *n < 1 << 48).ok_or_else(|| CpuError::TooLarge { value: "of a recurrence".into() })
    }

    fn strides(&self, tensor: &Tensor) -> Vec<usize> {
        let after = |d: usize| tensor.axes[d + 1..].iter().map(|axis| self.size(*axis).max(1)).product();
        (0..tensor.axes.len()).map(after).collect()
    }

    fn stride(&self, tensor: &Tensor, axis: Axis) -> usize {
        tensor.axes.iter().position(|own| *own == axis).map_or(0, |d| self.strides(tensor)[d])
    }

    /// Memory of a tensor.
    fn room(&self, k: usize) -> Result<Vec<u64>, CpuError> {
        let Tensor { elem, axes, .. } = &self.parts.tensors[k];
        Ok(zeros(self.count(axes)? * elem.bytes().unwrap_or(8))?)
    }

    /// Where the elements of a dense tensor lie; none of an empty one anywhere.
    pub(super) fn layout(&self, tensor: &Tensor) -> Vec<i64> {
        let is_empty = tensor.axes.iter().any(|axis| self.size(*axis) == 0);
        self.strides(tensor).into_iter().map(|stride| if is_empty { 0 } else { stride as i64 }).collect()
    }

    fn view(&self, k: usize) -> Option<View<'_>> {
        let tensor = &self.parts.tensors[k];
        let len = self.count(&tensor.axes).unwrap_or(0) * tensor.elem.bytes().unwrap_or(8);
        let data = Data::cast(tensor.elem, &cast_slice(&self.words[k])[..len])?;
        Some(View { data, offset: 0, strides: self.layout(tensor) })
    }

    fn view_mut<'w>(&self, k: usize, words: &'w mut [u64]) -> Option<ViewMut<'w>> {
        let tensor = &self.parts.tensors[k];
        let len = self.count(&tensor.axes).unwrap_or(0) * tensor.elem.bytes().unwrap_or(8);
        let data = DataMut::cast(tensor.elem, &mut cast_slice_mut(words)[..len])?;
        Some(ViewMut { data, offset: 0, strides: self.layout(tensor) })
    }

    /// Runs a program without recurrences of matrices.
    pub(super) fn program(
        &mut self,
        compiled: &Compiled,
        sources: &[Source],
        tensors: Option<&[usize]>,
        inputs: &[Option<View<'_>>],
        outputs: &mut [ViewMut<'_>],
    ) -> Result<(), CpuError> {
        let mut written = tensors.unwrap_or_default().iter().map(|k| self.room(*k)).collect::<Result<Vec<_>, _>>()?;
        let given: Vec<Option<View<'_>>> = sources
            .iter()
            .map(|source| match source {
                Source::Param(k) => inputs[*k].clone(),
                Source::Tensor(k) => self.view(*k),
            })
            .collect();
        match tensors {
            None => compiled.run(self.sizes, &given, outputs)?,
            Some(tensors) => {
                let targets = tensors.iter().zip(&mut written);
                let mut targets: Vec<ViewMut<'_>> = targets.filter_map(|(k, words)| self.view_mut(*k, words)).collect();
                compiled.run(self.sizes, &given, &mut targets)?;
            }
        }
        for (k, words) in tensors.unwrap_or_default().iter().zip(written) {
            self.words[*k] = words;
        }
        Ok(())
    }

    /// Runs a group; with `ordered` every operation in the order of the program, see [`code`](super::code).
    pub(super) fn group(
        &mut self,
        group: &Group,
        code: &Code,
        tensors: GroupTensors<'_>,
        ordered: bool,
        workers: usize,
    ) -> Result<(), CpuError> {
        match group.ty {
            Ty::F32 => self.walk::<f32>(group, code, tensors, ordered, workers),
            _ => self.walk::<f64>(group, code, tensors, ordered, workers),
        }
    }

    fn walk<T: Real>(
        &mut self,
        group: &Group,
        code: &Code,
        GroupTensors { imports, exports, ends }: GroupTensors<'_>,
        ordered: bool,
        workers: usize,
    ) -> Result<(), CpuError> {
        let numbers = exports.iter().chain(ends);
        let mut written = numbers.map(|k| self.room(*k)).collect::<Result<Vec<_>, _>>()?;
        let import = |k: &usize| {
            let tensor = &self.parts.tensors[*k];
            let outer = |axis: &Axis| group.lanes.contains(axis) || *axis == group.time;
            let len = tensor.axes.iter().filter(|axis| !outer(axis)).map(|axis| self.size(*axis)).product();
            Import {
                data: &cast_slice::<u64, T>(&self.words[*k])[..self.count(&tensor.axes).unwrap_or(0)],
                lanes: group.lanes.iter().map(|axis| self.stride(tensor, *axis)).collect(),
                time: self.stride(tensor, group.time),
                len,
            }
        };
        let walk = Walk {
            code,
            imports: imports.iter().map(import).collect(),
            times: self.size(group.time),
            size: (self.size(group.along), group.across.map_or(1, |axis| self.size(axis))),
            ordered,
            is_last: group.ends.iter().map(|end| end.last).collect(),
        };
        let sizes: Vec<usize> = group.lanes.iter().map(|axis| self.size(*axis)).collect();
        let lanes: usize = sizes.iter().product();
        if lanes > 0 && walk.times > 0 && walk.size.0 > 0 && walk.size.1 > 0 {
            let mut slices: Vec<&mut [T]> = vec![];
            for (words, k) in written.iter_mut().zip(exports.iter().chain(ends)) {
                let len = self.count(&self.parts.tensors[*k].axes)?;
                slices.push(&mut cast_slice_mut::<u64, T>(words)[..len]);
            }
            run_lanes(&walk, &sizes, lanes, slices, exports.len(), workers)?;
        }
        for (k, words) in exports.iter().chain(ends).zip(written) {
            self.words[*k] = words;
        }
        Ok(())
    }
}

/// Threads take lanes until there are none left. The first `exports` slices are exports, the others ends.
fn run_lanes<T: Real>(
    walk: &Walk<'_, T>,
    sizes: &[usize],
    lanes: usize,
    slices: Vec<&mut [T]>,
    exports: usize,
    workers: usize,
) -> Result<(), CpuError> {
    let mut tasks: Vec<Written<'_, T>> = (0..lanes).map(|_| Written { exports: vec![], ends: vec![] }).collect();
    for (number, slice) in slices.into_iter().enumerate() {
        let len = slice.len() / lanes;
        for (task, part) in tasks.iter_mut().zip(slice.chunks_mut(len.max(1))) {
            if number < exports { task.exports.push(part) } else { task.ends.push(part) }
        }
    }
    let tasks: Vec<Mutex<Written<'_, T>>> = tasks.into_iter().map(Mutex::new).collect();
    let (next, failure) = (AtomicUsize::new(0), OnceLock::new());
    let work = || -> Result<(), CpuError> {
        let mut machine = Machine::new(walk)?;
        while failure.get().is_none() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(number) else { break };
            machine.run(&digits(number, sizes), &mut task.lock().unwrap_or_else(PoisonError::into_inner))?;
        }
        Ok(())
    };
    pool::together(lanes.min(workers), || {
        if let Err(error) = work() {
            failure.get_or_init(|| error);
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}

/// The index along each axis of a number that counts all indices, the last axis fastest.
fn digits(mut number: usize, sizes: &[usize]) -> Vec<usize> {
    let mut digits = vec![0; sizes.len()];
    for (digit, size) in digits.iter_mut().zip(sizes).rev() {
        (*digit, number) = (number % size, number / size);
    }
    digits
}

/// The type of the elements of a tensor between parts.
pub(super) fn elem(ty: Ty) -> Elem {
    ty.elem().unwrap_or(Elem::F64)
}
