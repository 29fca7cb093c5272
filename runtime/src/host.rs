//! Calls on the CPU: locks the tensors' memory and hands it to the engine as slices.

use std::ops::Range;
use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

use crate::Tensor;
use crate::cpu::{Compiled, CpuError, Data, DataMut, View, ViewMut};
use crate::element::HostBytes;
use crate::layout::Layout;
use crate::tensor::{HostMemory, Storage};

/// Runs a program. Outputs have memory of their own.
pub(crate) fn run(program: &Compiled, sizes: &[usize], inputs: &[&Tensor], outputs: &[Tensor]) -> Result<(), CpuError> {
    let mut locks = Locks::take(inputs, outputs);
    let Parts { inputs: read, outputs: written } = locks.parts(inputs, outputs);
    let inputs: Vec<Option<View<'_>>> =
        inputs.iter().zip(read).map(|(tensor, bytes)| read_view(tensor, bytes).map(Some)).collect::<Result<_, _>>()?;
    let mut outputs: Vec<ViewMut<'_>> =
        outputs.iter().zip(written).map(|(tensor, bytes)| write_view(tensor, bytes)).collect::<Result<_, _>>()?;
    program.run(sizes, &inputs, &mut outputs)
}

fn read_view<'a>(tensor: &Tensor, bytes: &'a [u8]) -> Result<View<'a>, CpuError> {
    let data = Data::cast(tensor.elem(), bytes).ok_or(CpuError::Misaligned { elem: tensor.elem() })?;
    Ok(View { data, offset: offset(&tensor.layout), strides: tensor.strides().to_vec() })
}

fn write_view<'a>(tensor: &Tensor, bytes: &'a mut [u8]) -> Result<ViewMut<'a>, CpuError> {
    let data = DataMut::cast(tensor.elem(), bytes).ok_or(CpuError::Misaligned { elem: tensor.elem() })?;
    Ok(ViewMut { data, offset: offset(&tensor.layout), strides: tensor.strides().to_vec() })
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
            let lock = if write { Lock::Write(memory.write()) } else { Lock::Read(memory.read()) };
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
