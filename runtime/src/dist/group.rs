//! Groups of ranks, and the few ways in which they exchange tensors.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::agree::{Agreements, Sizes};
use super::{UniqueId, nccl, threads};
use crate::cuda::Place;
use crate::{Device, Error, Tensor};

/// A way to move tensors between ranks. All ranks of a group make the same exchanges in the same order. On a GPU an exchange is
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

    /// [`Transport::all_gather`] of several tensors, in one exchange where that is cheaper.
    ///
    /// # Errors
    /// The errors of [`Transport::all_gather`].
    fn all_gather_many(&self, tensors: &[&Tensor]) -> Result<Vec<Tensor>, Error> {
        tensors.iter().map(|tensor| self.all_gather(tensor)).collect()
    }

    /// The tensor of the rank `root`; every rank gives one of its shape and element type.
    ///
    /// # Errors
    /// The errors of [`Transport::all_gather`].
    fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Tensor, Error>;

    /// Sends a tensor to a rank, and receives one of the same shape and element type from another: with neighbours, a step of a
    /// ring.
    ///
    /// # Errors
    /// The errors of [`Transport::all_gather`].
    fn send_receive(&self, tensor: &Tensor, to: usize, from: usize) -> Result<Tensor, Error> {
        let came = self.pass(&[tensor], to, from, &[tensor.shape().to_vec()])?.pop();
        came.ok_or(Error::Count { what: "tensors", expected: 1, found: 0 })
    }

    /// [`Transport::send_receive`] of several tensors at once, where what comes has these shapes and the element types of what is
    /// sent.
    ///
    /// # Errors
    /// The errors of [`Transport::all_gather`].
    fn pass(&self, tensors: &[&Tensor], to: usize, from: usize, shapes: &[Vec<usize>]) -> Result<Vec<Tensor>, Error>;
}

/// A rank of a group. A clone is the same rank.
#[derive(Clone)]
pub struct Group {
    inner: Arc<Inner>,
    shards: Option<Sizes>,
    segments: Option<usize>,
    parts: usize,
}

struct Inner {
    transport: Box<dyn Transport>,
    agreements: Mutex<Agreements>,
    exchanges: AtomicU64,
    bytes: AtomicU64,
}

/// Messages and bytes that a rank has sent: see [`Group::traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many exchanges it took part in.
    pub exchanges: u64,
    /// Bytes of the tensors that it gave to them, each counted once, however many ranks received it.
    pub bytes: u64,
}

/// How long ranks wait for each other.
const PATIENCE: Duration = Duration::from_secs(300);

impl Group {
    /// The rank that a transport belongs to.
    pub fn new(transport: impl Transport + 'static) -> Group {
        let (transport, agreements) = (Box::new(transport), Mutex::default());
        let (exchanges, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Group {
            inner: Arc::new(Inner { transport, agreements, exchanges, bytes }),
            shards: None,
            segments: None,
            parts: 1,
        }
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

    /// This rank of a group of GPUs, which NCCL connects. All ranks are made at the same time, each by its own process or its own
    /// thread, with one id; this returns when they have met. They wait for each other for five minutes.
    ///
    /// Tensors are exchanged in the memory of the GPU, on a stream of the group's own: an exchange waits for what is queued on
    /// the tensor's stream, which waits for the exchange when it next uses what comes. Tensors on the CPU go through the GPU.
    ///
    /// An exchange that does not end in time is aborted, and from then on every wait for a stream that has used the group is
    /// [`Error::LostRanks`], until the group and the calls made with it are dropped. Drop it on all ranks: the last handle
    /// waits for what is queued.
    ///
    /// # Errors
    /// [`Error::NoNccl`] when NCCL is not installed or the device is the CPU, [`Error::LostRanks`] when the ranks do not meet,
    /// [`Error::NoRank`], [`Error::Nccl`], errors of the device.
    pub fn nccl(id: &UniqueId, rank: usize, size: usize, device: &Device) -> Result<Group, Error> {
        Group::nccl_with_timeout(id, rank, size, device, PATIENCE)
    }

    /// [`Group::nccl`], whose ranks wait for each other for as long as is said.
    ///
    /// # Errors
    /// The errors of [`Group::nccl`].
    pub fn nccl_with_timeout(
        id: &UniqueId,
        rank: usize,
        size: usize,
        device: &Device,
        timeout: Duration,
    ) -> Result<Group, Error> {
        nccl::group(id, Place { rank, size, timeout }, device)
    }

    /// The ranks of a group within this process, one for each GPU, to be used by one thread each: see [`Group::nccl`].
    ///
    /// # Errors
    /// The errors of [`Group::nccl`].
    pub fn nccl_devices(devices: &[Device]) -> Result<Vec<Group>, Error> {
        nccl::groups(devices, PATIENCE)
    }

    /// This rank, for calls in which the shards of the ranks have these sizes. Ranks that do not know the sizes tell each other
    /// before every call, and the CPU waits for it; ranks that do compare what they do at the first such call, and then
    /// wait no more.
    ///
    /// # Errors
    /// [`Error::Count`] unless there is one size for each rank.
    pub fn with_shards(&self, sizes: &[usize]) -> Result<Group, Error> {
        if sizes.len() != self.size() {
            return Err(Error::Count { what: "sizes of shards", expected: self.size(), found: sizes.len() });
        }
        Ok(self.knowing(Arc::new(sizes.to_vec())))
    }

    /// This rank, when all have agreed on the sizes of shards.
    pub(super) fn knowing(&self, sizes: Sizes) -> Group {
        Group { shards: Some(sizes), ..self.clone() }
    }

    /// This rank, for calls that divide its shard into that many equal segments and compute all of them at once, where a kernel can
    /// and the size of the shard is a multiple. Otherwise calls on a GPU take the number that is estimated to be fastest; calls
    /// on a CPU take one. The bits of a call depend on it.
    #[must_use]
    pub fn with_segments(&self, segments: usize) -> Group {
        Group { segments: Some(segments.max(1)), ..self.clone() }
    }

    /// How many segments a shard is to have, where that was said.
    pub(super) fn segments(&self) -> Option<usize> {
        self.segments
    }

    /// This rank, for calls that divide their rows into that many parts, so that a part is exchanged while the next one is computed. They
    /// are divided along the first axis over which every row is computed by itself, such as that of sequences; a call that has none
    /// with as many indices is not divided. All ranks must say the same. On a CPU the bits of a call are those of the whole; on a GPU a part
    /// may have another plan or another number of segments than the whole, and then other bits, the same in every run.
    #[must_use]
    pub fn with_parts(&self, parts: usize) -> Group {
        Group { parts: parts.max(1), ..self.clone() }
    }

    /// Into how many parts calls divide their rows.
    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    /// The sizes of shards, where they are known.
    pub(super) fn shards(&self) -> Option<&Sizes> {
        self.shards.as_ref()
    }

    /// The number of this rank, below [`Group::size`].
    pub fn rank(&self) -> usize {
        self.inner.transport.rank()
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.inner.transport.size()
    }

    /// Messages and bytes that this rank has sent so far.
    pub fn traffic(&self) -> Traffic {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic { exchanges: count(&self.inner.exchanges), bytes: count(&self.inner.bytes) }
    }

    /// See [`Transport::all_gather`].
    ///
    /// # Errors
    /// The errors of [`Transport::all_gather`].
    pub fn all_gather(&self, tensor: &Tensor) -> Result<Tensor, Error> {
        self.count(tensor);
        self.inner.transport.all_gather(tensor)
    }

    /// See [`Transport::all_gather_many`].
    ///
    /// # Errors
    /// The errors of [`Transport::all_gather`].
    pub fn all_gather_many(&self, tensors: &[&Tensor]) -> Result<Vec<Tensor>, Error> {
        tensors.iter().for_each(|tensor| self.count(tensor));
        self.inner.transport.all_gather_many(tensors)
    }

    /// See [`Transport::broadcast`].
    ///
    /// # Errors
    /// The errors of [`Transport::all_gather`].
    pub fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<Tensor, Error> {
        self.check_rank(root)?;
        self.count(tensor);
        self.inner.transport.broadcast(tensor, root)
    }

    /// See [`Transport::send_receive`].
    ///
    /// # Errors
    /// The errors of [`Transport::all_gather`].
    pub fn send_receive(&self, tensor: &Tensor, to: usize, from: usize) -> Result<Tensor, Error> {
        self.check_rank(to)?;
        self.check_rank(from)?;
        self.count(tensor);
        self.inner.transport.send_receive(tensor, to, from)
    }

    /// See [`Transport::pass`].
    ///
    /// # Errors
    /// The errors of [`Transport::all_gather`]; [`Error::Count`] unless there is a shape for each tensor.
    pub fn pass(
        &self,
        tensors: &[&Tensor],
        to: usize,
        from: usize,
        shapes: &[Vec<usize>],
    ) -> Result<Vec<Tensor>, Error> {
        self.check_rank(to)?;
        self.check_rank(from)?;
        crate::bind::check_count("shapes", tensors.len(), shapes.len())?;
        tensors.iter().for_each(|tensor| self.count(tensor));
        self.inner.transport.pass(tensors, to, from, shapes)
    }

    /// The calls that all ranks have agreed to make.
    pub(super) fn agreements(&self) -> &Mutex<Agreements> {
        &self.inner.agreements
    }

    fn count(&self, tensor: &Tensor) {
        let bytes = tensor.len() * crate::tensor::elem_bytes(tensor.elem());
        self.inner.exchanges.fetch_add(1, Ordering::Relaxed);
        self.inner.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
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
