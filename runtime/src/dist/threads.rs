//! Ranks that are threads of one process.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use oplus_dsl::Elem;

use super::Transport;
use crate::construct::host_zeros;
use crate::layout::Layout;
use crate::tensor::{Storage, elem_bytes};
use crate::{Error, Tensor};

/// A rank of a group within this process.
pub(super) struct Rank {
    rank: usize,
    post: Arc<Post>,
}

/// The memory that all ranks share.
struct Post {
    size: usize,
    timeout: Duration,
    mail: Mutex<Mail>,
    has_changed: Condvar,
}

/// Tensors on their way, and the ranks that have left.
struct Mail {
    /// From whom and to whom, in the order in which they were sent.
    sent: HashMap<(usize, usize), VecDeque<Parcel>>,
    gone: Vec<bool>,
    /// The first error of each rank, after which it exchanges nothing.
    failed: Vec<Option<Error>>,
}

/// A tensor on its way, on the CPU and in memory of its own.
struct Parcel {
    /// The exchange that it belongs to.
    exchange: &'static str,
    tensor: Tensor,
}

/// All ranks of a group.
pub(super) fn ranks(size: usize, timeout: Duration) -> Vec<Rank> {
    let mail = Mail { sent: HashMap::new(), gone: vec![false; size], failed: vec![None; size] };
    let post = Arc::new(Post { size, timeout, mail: Mutex::new(mail), has_changed: Condvar::new() });
    (0..size).map(|rank| Rank { rank, post: post.clone() }).collect()
}

impl Post {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rank {
    /// Does an exchange, unless one has failed before; what fails now keeps failing.
    fn exchange<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if let Some(error) = self.post.mail().failed[self.rank].clone() {
            return Err(error);
        }
        work().inspect_err(|error| {
            let mut mail = self.post.mail();
            mail.failed[self.rank] = Some(error.clone());
            mail.gone[self.rank] = true;
            self.post.has_changed.notify_all();
        })
    }

    fn send(&self, exchange: &'static str, tensor: &Tensor, to: usize) {
        let parcel = Parcel { exchange, tensor: tensor.clone() };
        self.post.mail().sent.entry((self.rank, to)).or_default().push_back(parcel);
        self.post.has_changed.notify_all();
    }

    /// The next tensor from a rank, which must be of this element type and shape.
    fn receive(&self, exchange: &'static str, (elem, shape): (Elem, &[usize]), from: usize) -> Result<Tensor, Error> {
        let parcel = self.next(from)?;
        let own = format!("{exchange} of {elem}{shape:?}");
        let theirs = format!("{} of {}{:?}", parcel.exchange, parcel.tensor.elem(), parcel.tensor.shape());
        if own == theirs {
            return Ok(parcel.tensor);
        }
        let what = format!("the exchange: {own} here, {theirs} there");
        Err(Error::RanksDisagree { rank: self.rank, other: from, what })
    }

    fn next(&self, from: usize) -> Result<Parcel, Error> {
        let deadline = Instant::now() + self.post.timeout;
        let mut mail = self.post.mail();
        loop {
            if let Some(parcel) = mail.sent.get_mut(&(from, self.rank)).and_then(VecDeque::pop_front) {
                return Ok(parcel);
            }
            let lost = |reason: String| Err(Error::LostRank { rank: from, reason });
            if mail.gone[from] {
                let why = mail.failed[from].as_ref().map_or_else(|| "its group was dropped".into(), Error::to_string);
                return lost(format!("it has left: {why}"));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return lost(format!("it has sent nothing for {:?}", self.post.timeout));
            }
            mail = self.post.has_changed.wait_timeout(mail, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Transport for Rank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.post.size
    }

    fn all_gather(&self, tensor: &Tensor) -> Result<Tensor, Error> {
        self.exchange(|| {
            let own = tensor.copied_to(&crate::Device::Cpu)?;
            (0..self.size()).for_each(|to| self.send("all-gather", &own, to));
            let all = (0..self.size()).map(|from| self.receive("all-gather", (own.elem(), own.shape()), from));
            stacked(&all.collect::<Result<Vec<_>, _>>()?)?.to_device(&tensor.device())
        })
    }

    fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Tensor, Error> {
        self.exchange(|| {
            if self.rank == root {
                let own = tensor.copied_to(&crate::Device::Cpu)?;
                (0..self.size()).for_each(|to| self.send("broadcast", &own, to));
            }
            self.receive("broadcast", (tensor.elem(), tensor.shape()), root)?.to_device(&tensor.device())
        })
    }

    fn pass(&self, tensors: &[&Tensor], to: usize, from: usize, shapes: &[Vec<usize>]) -> Result<Vec<Tensor>, Error> {
        self.exchange(|| {
            for tensor in tensors {
                self.send("send and receive", &tensor.copied_to(&crate::Device::Cpu)?, to);
            }
            let came = tensors.iter().zip(shapes).map(|(tensor, shape)| {
                self.receive("send and receive", (tensor.elem(), shape), from)?.to_device(&tensor.device())
            });
            came.collect()
        })
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        self.post.mail().gone[self.rank] = true;
        self.post.has_changed.notify_all();
    }
}

/// Tensors of one shape and element type, one behind the other.
fn stacked(tensors: &[Tensor]) -> Result<Tensor, Error> {
    let shape: Vec<usize> = [tensors.len()].into_iter().chain(tensors[0].shape().iter().copied()).collect();
    let elem = tensors[0].elem();
    let bytes = tensors[0].len() * elem_bytes(elem);
    let mut memory = host_zeros(bytes * tensors.len())?;
    for (k, tensor) in tensors.iter().enumerate() {
        let place = &mut memory.bytes_mut()[k * bytes..(k + 1) * bytes];
        tensor.with_bytes(|bytes| place.copy_from_slice(bytes))?;
    }
    Ok(Tensor::of(elem, Layout::contiguous(&shape)?, Storage::host(memory)))
}
