//! Moving tensors between devices.

use std::sync::Arc;

use crate::construct::host_zeros;
use crate::cuda::{DeviceMemory, UPLOAD};
use crate::layout::Layout;
use crate::room::{repeated, room};
use crate::tensor::{Storage, elem_bytes};
use crate::{Device, Error, Tensor};

impl Tensor {
    /// The tensor on the CPU; waits for its stream when it is on a GPU.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn to_cpu(&self) -> Result<Tensor, Error> {
        self.to_device(&Device::Cpu)
    }

    /// The tensor on a device: itself when it is there; a handle to the same memory when only the stream differs (the
    /// device's stream then waits for the work queued so far on the tensor's); a copy in row-major order otherwise.
    ///
    /// Handles on several streams may be used by turns: a call waits for what calls on other streams do with the same
    /// memory before it, if one of both writes. Launches of a CUDA graph are not calls: order them with other streams
    /// yourself.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Captured`] while one of both streams is being captured into a graph; errors of the
    /// device.
    pub fn to_device(&self, device: &Device) -> Result<Tensor, Error> {
        match (&self.storage, device) {
            (Storage::Host(_), Device::Cpu) => Ok(self.clone()),
            (Storage::Cuda(_, here), Device::Cuda(there)) if here == there => Ok(self.clone()),
            (Storage::Cuda(memory, here), Device::Cuda(there)) if here.shares_memory(there) => {
                memory.share(here, there)?;
                let storage = Storage::Cuda(memory.clone(), there.clone());
                Ok(Tensor { storage, layout: self.layout.clone(), elem: self.elem })
            }
            _ => self.copied_to(device),
        }
    }

    /// A copy of the elements on a device, in row-major order, which goes through the memory of the CPU.
    pub(crate) fn copied_to(&self, device: &Device) -> Result<Tensor, Error> {
        match device {
            Device::Cpu => {
                let mut memory = host_zeros(self.len() * elem_bytes(self.elem))?;
                self.with_bytes(|bytes| memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes))?;
                self.copied(Storage::host(memory))
            }
            Device::Cuda(there) => {
                there.refuse_in_capture(UPLOAD)?;
                let memory = DeviceMemory::new(there, self.len() * elem_bytes(self.elem))?;
                self.with_bytes(|bytes| memory.upload(there, 0, bytes))??;
                self.copied(Storage::Cuda(Arc::new(memory), there.clone()))
            }
        }
    }

    /// The tensor over a copy of its elements in row-major order.
    fn copied(&self, storage: Storage) -> Result<Tensor, Error> {
        Ok(Tensor::of(self.elem, Layout::contiguous(self.shape())?, storage))
    }

    /// Writes the elements into a tensor of the same shape and element type, whatever its strides.
    pub(crate) fn write_to(&self, target: &Tensor) -> Result<(), Error> {
        let (span, size) = (target.byte_span(), elem_bytes(target.elem));
        let (memory, device) = match &target.storage {
            Storage::Cuda(memory, device) => (memory, device),
            Storage::Host(memory) => {
                let bytes = self.with_bytes(|bytes| {
                    let mut copy = room(bytes.len())?;
                    copy.extend_from_slice(bytes);
                    Ok::<Vec<u8>, Error>(copy)
                })??;
                let (mut memory, mut source) = (memory.write(), &bytes[..]);
                target.layout.for_each_run(|at, n| {
                    let (run, rest) = source.split_at(n * size);
                    memory.bytes_mut()[at * size..][..run.len()].copy_from_slice(run);
                    source = rest;
                });
                return Ok(());
            }
        };
        let mut bytes = repeated(0, span.len())?;
        if !target.is_contiguous() {
            memory.download(device, span.start, &mut bytes)?;
        }
        self.with_bytes(|mut source| {
            target.layout.for_each_run(|at, n| {
                let (run, rest) = source.split_at(n * size);
                bytes[at * size - span.start..][..run.len()].copy_from_slice(run);
                source = rest;
            });
        })?;
        memory.upload(device, span.start, &bytes)
    }
}
