//! The memory of tensors: used in order by every stream that has it, and freed after all of them.

use std::any::Any;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use cudarc::driver::{CudaSlice, DevicePtrMut, result};

use super::allocation::{Allocation, NotNow, defer, retry};
use super::capture::{Recording, come_back};
use super::sharing::{Access, Sharing};
use super::stream::CudaDevice;
use crate::{Element, Error};

/// The memory of a tensor on a GPU.
pub(crate) struct DeviceMemory {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    sharing: RwLock<Sharing<CudaDevice>>,
    remains: Remains,
}

/// The rest of a memory whose last handle has been dropped.
struct Remains {
    /// The device whose stream frees the memory.
    device: CudaDevice,
    /// Other streams that have had the memory.
    guests: Vec<CudaDevice>,
    owner: Option<Owner>,
}

/// The owner that frees a memory when it is dropped.
enum Owner {
    /// An allocation of ours, which knows when it may be freed.
    Ours(Arc<Allocation>),
    /// Something else that calls the driver at once.
    Foreign(#[expect(dead_code, reason = "it is dropped")] Box<dyn Any + Send + Sync>),
    /// The lender, who keeps the memory and frees it in the order of the device's stream.
    Lender,
}

/// Keeps others from using a memory out of order until the work of a call is queued.
pub(crate) enum Held<'m> {
    /// Shared use: other calls may use the memory as far as they need not wait.
    Together(#[expect(dead_code, reason = "it is held")] RwLockReadGuard<'m, Sharing<CudaDevice>>),
    /// Exclusive use: other calls wait.
    Alone(#[expect(dead_code, reason = "it is held")] RwLockWriteGuard<'m, Sharing<CudaDevice>>),
}

/// Puts the uses that a call makes of memories in their order with those of other streams, until the result is dropped.
pub(crate) fn hold<'m>(device: &CudaDevice, mut uses: Vec<(&'m DeviceMemory, Access)>) -> Result<Vec<Held<'m>>, Error> {
    // In the order of their addresses, so that calls on several threads cannot wait for each other in a circle.
    uses.sort_unstable_by_key(|(memory, access)| (std::ptr::from_ref(*memory).addr(), *access == Access::Read));
    uses.dedup_by_key(|(memory, _)| std::ptr::from_ref(*memory));
    uses.into_iter().map(|(memory, access)| memory.hold(device, access)).collect()
}

impl DeviceMemory {
    /// Memory with undefined contents.
    pub(crate) fn new(device: &CudaDevice, bytes: usize) -> Result<DeviceMemory, Error> {
        device.0.context.bind()?;
        if bytes == 0 {
            return Ok(DeviceMemory::with(device, (0, 0), Owner::Lender));
        }
        Ok(DeviceMemory::allocated(device, bytes, Arc::new(device.0.allocate(bytes)?)))
    }

    /// The first `bytes` bytes of an allocation.
    pub(super) fn allocated(device: &CudaDevice, bytes: usize, allocation: Arc<Allocation>) -> DeviceMemory {
        DeviceMemory::with(device, (allocation.address, bytes), Owner::Ours(allocation))
    }

    /// Memory that `owner` keeps alive, and frees in the order of the device's stream when dropped; of `()` its lender does.
    pub(crate) fn owned_by(
        device: &CudaDevice,
        address: u64,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> DeviceMemory {
        let owner = if (*owner).is::<()>() { Owner::Lender } else { Owner::Foreign(owner) };
        DeviceMemory::with(device, (address, bytes), owner)
    }

    /// The memory of a slice whose stream is the device's, after everything that other streams do with it.
    pub(crate) fn of_slice<T: Element>(mut slice: CudaSlice<T>, device: &CudaDevice) -> Result<DeviceMemory, Error> {
        let reason = "it cannot wait for the events of a slice; hand it over before the capture begins";
        device.in_order(|| device.refuse_in_capture(reason))?;
        let bytes = slice.num_bytes();
        let address = slice.device_ptr_mut(device.stream()).0;
        // `cudarc` keeps an error of waiting until the next call, which reports it.
        device.0.context.bind()?;
        Ok(DeviceMemory::owned_by(device, address, bytes, Box::new(slice)))
    }

    fn with(device: &CudaDevice, (address, bytes): (u64, usize), owner: Owner) -> DeviceMemory {
        let remains = Remains { device: device.clone(), guests: vec![], owner: Some(owner) };
        DeviceMemory { address, bytes, sharing: RwLock::default(), remains }
    }

    /// Lets the stream of `guest` use the memory: it waits for what has been queued so far on the stream of this handle,
    /// and for the uses of the memory on others.
    pub(crate) fn share(&self, here: &CudaDevice, guest: &CudaDevice) -> Result<(), Error> {
        guest.0.context.bind()?;
        let mut sharing = self.sharing.write().unwrap_or_else(PoisonError::into_inner);
        let others = sharing.before(guest, Access::Write);
        let wait = || {
            guest.join(here)?;
            others.iter().filter(|other| *other != here).try_for_each(|other| guest.join(other))
        };
        here.in_order(|| guest.in_order(wait))?;
        sharing.invite(guest, &self.remains.device);
        Ok(())
    }

    /// Puts a use in its order with those of other streams, until the result is dropped. Streams that do not share the
    /// memory take no part in this, and it calls the driver only where one stream must wait for another.
    fn hold(&self, device: &CudaDevice, access: Access) -> Result<Held<'_>, Error> {
        let sharing = self.sharing.read().unwrap_or_else(PoisonError::into_inner);
        if sharing.permits(device, access) {
            return Ok(Held::Together(sharing));
        }
        drop(sharing);
        let mut sharing = self.sharing.write().unwrap_or_else(PoisonError::into_inner);
        sharing.before(device, access).iter().try_for_each(|other| device.join(other))?;
        sharing.note(device, access);
        Ok(Held::Alone(sharing))
    }

    /// Sets all bytes to zero.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        if self.bytes == 0 {
            return Ok(());
        }
        let stream = &self.remains.device.0;
        // SAFETY: the memory holds `bytes` bytes and belongs to the stream.
        let result = unsafe { result::memset_d8_async(self.address, 0, self.bytes, stream.raw.cu_stream()) };
        result.map_err(|e| stream.context.failure("cuMemsetD8Async", e))
    }

    /// Copies from the host, on the stream of `device`, to the byte `at` on. Returns when `source` may be changed.
    pub(crate) fn upload(&self, device: &CudaDevice, at: usize, source: &[u8]) -> Result<(), Error> {
        assert!(at + source.len() <= self.bytes, "the copy would leave the memory");
        device.0.context.bind()?;
        if source.is_empty() {
            return Ok(());
        }
        device.in_order(|| {
            device.refuse_in_capture(UPLOAD)?;
            let (_held, to) = (self.hold(device, Access::Write)?, self.address + at as u64);
            // SAFETY: the range lies in the memory; the driver has read pageable memory when the call returns.
            let result = unsafe { result::memcpy_htod_async(to, source, device.0.raw.cu_stream()) };
            result.map_err(|e| device.0.context.failure("cuMemcpyHtoDAsync", e))
        })
    }

    /// Copies to the host, on the stream of `device`, from the byte `at` on, and waits for it.
    pub(crate) fn download(&self, device: &CudaDevice, at: usize, target: &mut [u8]) -> Result<(), Error> {
        assert!(at + target.len() <= self.bytes, "the copy would leave the memory");
        device.0.context.bind()?;
        let copied = device.in_order(|| {
            device.refuse_in_capture(DOWNLOAD)?;
            if target.is_empty() {
                return Ok(());
            }
            let (_held, from) = (self.hold(device, Access::Read)?, self.address + at as u64);
            // SAFETY: the range lies in the memory, and `target` is not touched before the copy has ended.
            let result = unsafe { result::memcpy_dtoh_async(target, from, device.0.raw.cu_stream()) };
            result.map_err(|e| device.0.context.failure("cuMemcpyDtoHAsync", e))
        });
        // Also after a failure the copy may be on its way.
        device.synchronize().and(copied)
    }
}

/// Why a stream that is being captured refuses copies from the host.
pub(crate) const UPLOAD: &str =
    "a launch of the graph would copy from memory of the host that is gone by then; copy before the capture begins";
/// Why it refuses copies to the host.
const DOWNLOAD: &str = "its work is done when the graph is launched, so that there is nothing to copy to the host yet";

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.remains.device.1.exists();
        self.remains.guests = self.sharing.get_mut().unwrap_or_else(PoisonError::into_inner).take_guests();
    }
}

impl Remains {
    /// Makes the stream that frees the memory wait for the others, unless one of them is being captured: it would be
    /// drawn into the capture, or the memory freed by every launch of the graph.
    fn settle(&self, owner: &Owner) -> Result<(), NotNow> {
        let caller = self.device.0.caller.as_ref();
        if self.guests.is_empty() && caller.is_none() && !matches!(owner, Owner::Foreign(_)) {
            return Ok(());
        }
        let context = self.device.context().cu_ctx();
        // SAFETY: the context is alive.
        retry(unsafe { result::ctx::set_current(context) })?;
        let own = &self.device.0.raw;
        for stream in self.guests.iter().map(|guest| &guest.0.raw).chain([own]).chain(caller) {
            let mut recording = Recording::Queued;
            retry(Recording::of(stream.cu_stream()).map(|found| recording = found))?;
            match (recording, owner) {
                (Recording::Queued, _) => {}
                (Recording::Captured(capture), Owner::Ours(own)) if own.is_of(capture.id) => {}
                _ => return Err(NotNow),
            }
        }
        self.guests.iter().try_for_each(|guest| retry(own.join(&guest.0.raw)))?;
        caller.map_or(Ok(()), |caller| retry(own.join(caller).and_then(|()| caller.join(own))))
    }
}

impl Drop for Remains {
    /// The owner frees the memory in the order of its own stream, which first waits for the other streams.
    fn drop(&mut self) {
        let Some(owner) = self.owner.take() else { return };
        // The caller's stream waits for every call already.
        if self.guests.is_empty() && matches!(owner, Owner::Lender) {
            return;
        }
        // A lender frees the memory soon and cannot be asked to wait, so that a failure is worth a second attempt.
        let settled = self.settle(&owner).or_else(|not_now| match owner {
            Owner::Lender => self.settle(&owner),
            _ => Err(not_now),
        });
        if settled.is_err() {
            let (device, guests) = (self.device.clone(), std::mem::take(&mut self.guests));
            return defer(Box::new(Remains { device, guests, owner: Some(owner) }));
        }
        drop(owner);
        if let Some(caller) = &self.device.0.caller {
            // Once it has been drawn into a capture of the caller's, its last work must be joined.
            let _ = come_back(&self.device.0.raw, caller);
        }
    }
}
