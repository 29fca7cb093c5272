//! Ranks with a GPU each, connected by NCCL.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{Group, Transport};
use crate::cuda::{CudaDevice, Exchange, Nccl, Place, Transfer, unique_id};
use crate::tensor::{Storage, elem_bytes};
use crate::{Device, Error, Tensor};

/// A number by which the ranks of a group of GPUs find each other. One rank makes it, and the others must be given its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId([u8; 128]);

impl UniqueId {
    /// A new number. The process that makes it must be there until all ranks have met.
    ///
    /// # Errors
    /// [`Error::NoNccl`], [`Error::Nccl`].
    pub fn new() -> Result<UniqueId, Error> {
        unique_id().map(UniqueId)
    }

    /// Its bytes, to be sent to other processes.
    pub fn to_bytes(&self) -> [u8; 128] {
        self.0
    }

    /// The number of these bytes.
    pub fn from_bytes(bytes: [u8; 128]) -> UniqueId {
        UniqueId(bytes)
    }

    /// One number for all processes that see the same file: rank 0 makes it and writes it there, the others wait until it is
    /// there. Every group needs a path of its own, at which there is no file before.
    ///
    /// # Errors
    /// [`Error::UniqueId`] when the file cannot be written, is no such number or has not been written in time; those of
    /// [`UniqueId::new`].
    pub fn through_file(path: impl AsRef<Path>, rank: usize, timeout: Duration) -> Result<UniqueId, Error> {
        let path = path.as_ref();
        let failure = |reason: String| Error::UniqueId { path: path.display().to_string(), reason };
        if rank == 0 {
            let (id, new) = (UniqueId::new()?, path.with_extension("new"));
            // Under its name it is complete.
            let written = fs::write(&new, id.0).and_then(|()| fs::rename(&new, path));
            return written.map(|()| id).map_err(|e| failure(e.to_string()));
        }
        let start = Instant::now();
        while !path.exists() {
            if start.elapsed() > timeout {
                return Err(failure(format!("rank 0 has not written it in {timeout:?}")));
            }
            thread::sleep(Duration::from_millis(5));
        }
        let bytes = fs::read(path).map_err(|e| failure(e.to_string()))?;
        let len = bytes.len();
        bytes.try_into().map(UniqueId).map_err(|_| failure(format!("it has {len} bytes, a unique id has 128")))
    }
}

impl std::fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UniqueId({})", blake3::hash(&self.0).to_hex().split_at(16).0)
    }
}

/// A rank.
struct Rank(Nccl);

/// A rank of a group of that size, on a device.
pub(super) fn group(id: &UniqueId, place: Place, device: &Device) -> Result<Group, Error> {
    let Place { rank, size, .. } = place;
    if rank >= size {
        return Err(Error::NoRank { rank, size });
    }
    let Device::Cuda(device) = device else {
        return Err(Error::NoNccl { reason: "it connects GPUs, and the device is the CPU".into() });
    };
    Ok(Group::new(Rank(Nccl::new(id.0, place, device)?)))
}

/// The ranks of a group within this process, one for each device.
pub(super) fn groups(devices: &[Device], timeout: Duration) -> Result<Vec<Group>, Error> {
    let (id, size) = (UniqueId::new()?, devices.len());
    thread::scope(|scope| {
        let meet = |(rank, device)| scope.spawn(move || group(&id, Place { rank, size, timeout }, device));
        let ranks: Vec<_> = devices.iter().enumerate().map(meet).collect();
        let lost = |rank| Error::LostRank { rank, reason: "its thread has panicked".into() };
        ranks.into_iter().enumerate().map(|(k, rank)| rank.join().map_err(|_| lost(k))?).collect()
    })
}

impl Rank {
    /// Exchanges tensors at once; what comes has the shapes that are said. Tensors of the CPU go to the GPU and come back.
    fn exchange(&self, exchange: Exchange, tensors: &[&Tensor], shapes: &[Vec<usize>]) -> Result<Vec<Tensor>, Error> {
        let given = tensors.iter().map(|tensor| self.on_gpu(tensor)).collect::<Result<Vec<_>, _>>()?;
        let result =
            |(tensor, shape): (&Tensor, &Vec<usize>)| Tensor::uninitialised(tensor.elem(), shape, &tensor.device());
        let work = || {
            let results = given.iter().zip(shapes).map(result).collect::<Result<Vec<_>, _>>()?;
            let transfers = given.iter().zip(&results).filter_map(|(from, to)| transfer(from, to));
            self.0.exchange(exchange, &transfers.collect::<Vec<_>>())?;
            Ok(results)
        };
        let results = given.first().map_or(Device::Cpu, Tensor::device).in_order(work)?;
        results.into_iter().zip(tensors).map(|(result, tensor)| back(result, tensor)).collect()
    }

    /// The tensor in row-major order on this rank's GPU.
    fn on_gpu(&self, tensor: &Tensor) -> Result<Tensor, Error> {
        let own = self.0.device();
        match tensor.device() {
            Device::Cuda(device) if device.shares_memory(own) => tensor.contiguous(),
            Device::Cpu => tensor.to_device(&Device::Cuda(own.clone())),
            Device::Cuda(device) => Err(elsewhere(&device, own)),
        }
    }
}

fn elsewhere(device: &CudaDevice, own: &CudaDevice) -> Error {
    let (first, second) = ("an exchanged tensor".into(), "the rank".into());
    Error::DeviceMismatch { first, first_device: device.to_string(), second, second_device: own.to_string() }
}

fn transfer<'a>(from: &'a Tensor, to: &'a Tensor) -> Option<Transfer<'a>> {
    let (Storage::Cuda(read, here), Storage::Cuda(written, _)) = (&from.storage, &to.storage) else { return None };
    let bytes = |tensor: &Tensor| tensor.len() * elem_bytes(tensor.elem());
    let (given, gotten) = (bytes(from), bytes(to));
    Some(Transfer { here, from: (from.device_ptr()?, read), to: (to.device_ptr()?, written), given, gotten })
}

/// A result, on the CPU if what was given was.
fn back(result: Tensor, given: &Tensor) -> Result<Tensor, Error> {
    if given.device() == Device::Cpu { result.to_cpu() } else { Ok(result) }
}

impl Transport for Rank {
    fn rank(&self) -> usize {
        self.0.place().rank
    }

    fn size(&self) -> usize {
        self.0.place().size
    }

    fn all_gather(&self, tensor: &Tensor) -> Result<Tensor, Error> {
        one(self.all_gather_many(&[tensor])?)
    }

    fn all_gather_many(&self, tensors: &[&Tensor]) -> Result<Vec<Tensor>, Error> {
        let shape = |tensor: &&Tensor| [&[self.size()], tensor.shape()].concat();
        self.exchange(Exchange::AllGather, tensors, &tensors.iter().map(shape).collect::<Vec<_>>())
    }

    fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Tensor, Error> {
        one(self.exchange(Exchange::Broadcast { root }, &[tensor], &[tensor.shape().to_vec()])?)
    }

    fn pass(&self, tensors: &[&Tensor], to: usize, from: usize, shapes: &[Vec<usize>]) -> Result<Vec<Tensor>, Error> {
        self.exchange(Exchange::SendReceive { to, from }, tensors, shapes)
    }
}

fn one(mut results: Vec<Tensor>) -> Result<Tensor, Error> {
    results.pop().ok_or(Error::Count { what: "tensors", expected: 1, found: 0 })
}
