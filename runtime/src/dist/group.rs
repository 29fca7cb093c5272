//! Groups of ranks, and the few ways in which they exchange tensors.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::agree::Agreements;
use super::threads;
use crate::{Error, Tensor};

/// What moves tensors between ranks. All ranks of a group make the same exchanges in the same order. On a GPU an exchange is
/// queued on the stream of its tensor.
pub trait Transport: Send + Sync {
    /// The number of this rank, below [`Transport::size`].
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// The tensors of all ranks, which have one shape and element type, in the order of the ranks: a tensor with one more axis, in
    /// front.
    ///
    /// # Errors
    /// [`Error::LostRank`], [`Error::RanksDisagree`], errors of the device.
    fn all_gather(&self, tensor: &Tensor) -> Result<Tensor, Error>;

    /// The tensor of the rank `root`; every rank gives one of its shape and element type.
    ///
    /// # Errors
    /// Those of [`Transport::all_gather`].
    fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Tensor, Error>;

    /// Sends a tensor to a rank, and receives one of the same shape and element type from another: with neighbours, a step of a
    /// ring.
    ///
    /// # Errors
    /// Those of [`Transport::all_gather`].
    fn send_receive(&self, tensor: &Tensor, to: usize, from: usize) -> Result<Tensor, Error>;
}

/// A rank of a group. A clone is the same rank.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

struct Inner {
    transport: Box<dyn Transport>,
    agreements: Mutex<Agreements>,
    exchanges: AtomicU64,
    bytes: AtomicU64,
}

/// What a rank has sent: see [`Group::traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many exchanges it took part in.
    pub exchanges: u64,
    /// Bytes of the tensors that it gave to them, each counted once, however many ranks received it.
    pub bytes: u64,
}

/// How long ranks of [`Group::threads`] wait for each other.
const PATIENCE: Duration = Duration::from_secs(300);

impl Group {
    /// The rank that a transport belongs to.
    pub fn new(transport: impl Transport + 'static) -> Group {
        let (transport, agreements) = (Box::new(transport), Mutex::default());
        Group(Arc::new(Inner { transport, agreements, exchanges: AtomicU64::new(0), bytes: AtomicU64::new(0) }))
    }

    /// The ranks of a group within this process, to be used by one thread each. They exchange tensors in memory, wherever these
    /// are, and wait for each other for five minutes.
    pub fn threads(size: usize) -> Vec<Group> {
        Group::threads_with_timeout(size, PATIENCE)
    }

    /// [`Group::threads`] that wait for each other for as long as is said.
    pub fn threads_with_timeout(size: usize, timeout: Duration) -> Vec<Group> {
        threads::ranks(size, timeout).into_iter().map(Group::new).collect()
    }

    /// The number of this rank, below [`Group::size`].
    pub fn rank(&self) -> usize {
        self.0.transport.rank()
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.0.transport.size()
    }

    /// What this rank has sent so far.
    pub fn traffic(&self) -> Traffic {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic { exchanges: count(&self.0.exchanges), bytes: count(&self.0.bytes) }
    }

    /// See [`Transport::all_gather`].
    ///
    /// # Errors
    /// Those of [`Transport::all_gather`].
    pub fn all_gather(&self, tensor: &Tensor) -> Result<Tensor, Error> {
        self.count(tensor);
        self.0.transport.all_gather(tensor)
    }

    /// See [`Transport::broadcast`].
    ///
    /// # Errors
    /// Those of [`Transport::all_gather`].
    pub fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Tensor, Error> {
        self.check_rank(root)?;
        self.count(tensor);
        self.0.transport.broadcast(tensor, root)
    }

    /// See [`Transport::send_receive`].
    ///
    /// # Errors
    /// Those of [`Transport::all_gather`].
    pub fn send_receive(&self, tensor: &Tensor, to: usize, from: usize) -> Result<Tensor, Error> {
        self.check_rank(to)?;
        self.check_rank(from)?;
        self.count(tensor);
        self.0.transport.send_receive(tensor, to, from)
    }

    /// What the ranks have agreed on.
    pub(super) fn agreements(&self) -> &Mutex<Agreements> {
        &self.0.agreements
    }

    fn count(&self, tensor: &Tensor) {
        let bytes = tensor.len() * crate::tensor::elem_bytes(tensor.elem());
        self.0.exchanges.fetch_add(1, Ordering::Relaxed);
        self.0.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn check_rank(&self, rank: usize) -> Result<(), Error> {
        if rank < self.size() { Ok(()) } else { Err(Error::NoRank { rank, size: self.size() }) }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.size())
    }
}
