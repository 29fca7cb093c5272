//! Calls on the CPU: locks the tensors' memory and hands it to the executor as slices.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};

use oplus_dsl::Elem;
use oplus_dsl::ir::Program;

use crate::element::HostBytes;
use crate::layout::Layout;
use crate::tensor::{HostMemory, Storage};
use crate::{Error, Tensor, interpreted as cpu};

/// A tensor that is read: the element of an index is `offset + Σ index·stride` of `bytes`, in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuView<'a> {
    pub(crate) elem: Elem,
    pub(crate) bytes: &'a [u8],
    pub(crate) offset: usize,
    pub(crate) strides: &'a [i64],
}

/// A tensor that is written. No two of a call share a byte, with each other or with a [`CpuView`].
#[derive(Debug)]
pub(crate) struct CpuViewMut<'a> {
    pub(crate) elem: Elem,
    pub(crate) bytes: &'a mut [u8],
    pub(crate) offset: usize,
    pub(crate) strides: &'a [i64],
}

/// Runs an instantiated program. Outputs have memory of their own.
pub(crate) fn run(program: &Program, sizes: &[usize], inputs: &[&Tensor], outputs: &[Tensor]) -> Result<(), Error> {
    let mut locks = Locks::take(inputs, outputs);
    let mut parts = locks.parts(inputs, outputs);
    let mut outputs: Vec<CpuViewMut<'_>> = outputs.iter().zip(parts.outputs.iter_mut()).map(write_view).collect();
    let inputs: Vec<CpuView<'_>> = inputs.iter().zip(&parts.inputs).map(|(t, bytes)| read_view(t, bytes)).collect();
    cpu::run(program, sizes, &inputs, &mut outputs)
}

fn read_view<'a>(tensor: &'a Tensor, bytes: &'a [u8]) -> CpuView<'a> {
    CpuView { elem: tensor.elem(), bytes, offset: offset(&tensor.layout), strides: tensor.strides() }
}

fn write_view<'a>((tensor, bytes): (&'a Tensor, &'a mut &mut [u8])) -> CpuViewMut<'a> {
    CpuViewMut { elem: tensor.elem(), bytes, offset: offset(&tensor.layout), strides: tensor.strides() }
}

/// Distance from the first element of a layout's span to the element of index 0, 0, ….
fn offset(layout: &Layout) -> usize {
    layout.offset - layout.span().start
}

/// The memories of a call's tensors, each locked once, for writing if an output lies in it.
///
/// They are locked in the order of their addresses, so that calls on several threads cannot wait for each other in a
/// circle.
struct Locks<'a>(Vec<(*const HostMemory, Lock<'a>)>);

enum Lock<'a> {
    Read(RwLockReadGuard<'a, Box<dyn HostBytes>>),
    Write(RwLockWriteGuard<'a, Box<dyn HostBytes>>),
}

/// The bytes of every tensor's span.
struct Parts<'a> {
    inputs: Vec<&'a [u8]>,
    outputs: Vec<&'a mut [u8]>,
}

impl<'a> Locks<'a> {
    fn take(inputs: &[&'a Tensor], outputs: &'a [Tensor]) -> Locks<'a> {
        let written = outputs.iter().filter_map(memory).map(|m| (m, true));
        let read = inputs.iter().filter_map(|t| memory(t)).map(|m| (m, false));
        let mut all: Vec<(&HostMemory, bool)> = written.chain(read).collect();
        all.sort_by_key(|(m, write)| (std::ptr::from_ref(*m).addr(), !write));
        all.dedup_by_key(|(m, _)| std::ptr::from_ref(*m));
        let lock = |(memory, write): (&'a HostMemory, bool)| {
            let lock = if write {
                Lock::Write(memory.write().unwrap_or_else(PoisonError::into_inner))
            } else {
                Lock::Read(memory.read().unwrap_or_else(PoisonError::into_inner))
            };
            (std::ptr::from_ref(memory), lock)
        };
        Locks(all.into_iter().map(lock).collect())
    }

    /// Takes the memories apart into the spans of the tensors.
    fn parts<'l>(&'l mut self, inputs: &[&Tensor], outputs: &[Tensor]) -> Parts<'l> {
        // Spans without bytes stay as they are here: slices at an address that suits every element type.
        let mut parts = Parts { inputs: vec![bytemuck::cast_slice::<u64, u8>(&[]); inputs.len()], outputs: Vec::new() };
        parts.outputs.resize_with(outputs.len(), || bytemuck::cast_slice_mut::<u64, u8>(&mut []));
        for (address, lock) in &mut self.0 {
            let here = |tensor: &Tensor| memory(tensor).is_some_and(|m| std::ptr::eq(m, *address));
            let inputs = inputs.iter().enumerate().filter(|(_, t)| here(t)).map(|(k, t)| (k, t.byte_span()));
            match lock {
                Lock::Read(bytes) => {
                    let filled = inputs.filter(|(_, span)| !span.is_empty());
                    filled.for_each(|(k, span)| parts.inputs[k] = &bytes.bytes()[span]);
                }
                Lock::Write(bytes) => {
                    let outputs = outputs.iter().enumerate().filter(|(_, t)| here(t)).map(|(k, t)| (k, t.byte_span()));
                    parts.split(bytes.bytes_mut(), inputs.collect(), outputs.collect());
                }
            }
        }
        parts
    }
}

impl<'l> Parts<'l> {
    /// Divides a memory between outputs, which have their spans to themselves, and inputs, which may share theirs.
    fn split(
        &mut self,
        mut rest: &'l mut [u8],
        inputs: Vec<(usize, Range<usize>)>,
        mut outputs: Vec<(usize, Range<usize>)>,
    ) {
        outputs.sort_by_key(|(_, span)| (span.start, span.end));
        let mut at = 0;
        let mut gaps: Vec<(usize, &'l [u8])> = Vec::new();
        for (k, span) in outputs.into_iter().filter(|(_, span)| !span.is_empty()) {
            let (gap, tail) = std::mem::take(&mut rest).split_at_mut(span.start - at);
            let (own, tail) = tail.split_at_mut(span.len());
            gaps.push((at, gap));
            (self.outputs[k], rest, at) = (own, tail, span.end);
        }
        gaps.push((at, rest));
        for (k, span) in inputs.into_iter().filter(|(_, span)| !span.is_empty()) {
            let gap = gaps.iter().rfind(|(start, _)| *start <= span.start);
            self.inputs[k] = gap.map_or(&[], |(start, gap)| &gap[span.start - start..span.end - start]);
        }
    }
}

fn memory(tensor: &Tensor) -> Option<&HostMemory> {
    match &tensor.storage {
        Storage::Host(memory) => Some(Arc::as_ref(memory)),
        Storage::Cuda(..) => None,
    }
}
