//! Exchanges between GPUs by NCCL, on the memory of tensors and on a stream of their own.
//!
//! An exchange waits for what is queued so far on the streams of its tensors, and their streams wait for it when they next use
//! what it reads or writes: until then it goes on beside their work. A thread watches the exchanges. One that does not end in
//! time is aborted, and from then on whoever waits for a stream that has used the communicator is told so.

mod communicator;
mod library;
mod watch;

use std::sync::Arc;

use library::{BYTES, Id, Library, Raw};

use super::memory::{DeviceMemory, hold};
use super::sharing::Access;
use super::stream::CudaDevice;
use crate::Error;
use communicator::Communicator;
use watch::{Queued, Watch};

pub(super) use communicator::Failure;
pub(crate) use communicator::Place;

/// A rank of a group whose ranks NCCL connects.
pub(crate) struct Nccl {
    // First, so that it ends first.
    watch: Watch,
    communicator: Arc<Communicator>,
}

/// The tensors that ranks exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// Every rank gets the bytes of all.
    AllGather,
    /// Every rank gets those of one.
    Broadcast {
        /// The rank that sends.
        root: usize,
    },
    /// Every rank sends to one, and receives from one.
    SendReceive {
        /// To whom it sends.
        to: usize,
        /// From whom it receives.
        from: usize,
    },
}

/// Bytes that this rank gives and gets.
pub(crate) struct Transfer<'a> {
    /// The stream on which its memories were used so far.
    pub(crate) here: &'a CudaDevice,
    /// Where the bytes are that it gives, and their memory.
    pub(crate) from: (u64, &'a DeviceMemory),
    /// Where the bytes go that it gets, and their memory.
    pub(crate) to: (u64, &'a DeviceMemory),
    /// How many bytes it gives.
    pub(crate) given: usize,
    /// How many bytes it gets.
    pub(crate) gotten: usize,
}

/// A number by which the ranks of a group find each other.
pub(crate) fn unique_id() -> Result<[u8; 128], Error> {
    let (library, mut id) = (library::library()?, Id([0; 128]));
    // SAFETY: writes one such number.
    let code = unsafe { (library.unique_id)(&mut id) };
    library.check("ncclGetUniqueId", code)?;
    Ok(id.0)
}

impl Nccl {
    /// Meets the other ranks.
    pub(crate) fn new(id: [u8; 128], place: Place, device: &CudaDevice) -> Result<Nccl, Error> {
        let library = library::library()?;
        let stream = device.context().new_stream().map_err(|e| device.0.context.failure("cuStreamCreate", e))?;
        let own = CudaDevice::from_stream(stream)?;
        let communicator = Arc::new(Communicator::new(library, Id(id), place, own)?);
        Ok(Nccl { watch: Watch::new(communicator.clone())?, communicator })
    }

    /// The stream of the exchanges.
    pub(crate) fn device(&self) -> &CudaDevice {
        &self.communicator.device
    }

    /// Which rank this is.
    pub(crate) fn place(&self) -> Place {
        self.communicator.place
    }

    /// Queues an exchange of several memories at once.
    pub(crate) fn exchange(&self, exchange: Exchange, transfers: &[Transfer<'_>]) -> Result<(), Error> {
        let (communicator, own) = (&*self.communicator, self.device());
        communicator.check()?;
        for transfer in transfers {
            let Transfer { here, from, to, .. } = transfer;
            here.refuse_in_capture("an exchange with other ranks has no place in it")?;
            here.0.depend_on(&communicator.failure);
            [from, to].into_iter().try_for_each(|(_, memory)| memory.share(here, own))?;
        }
        let transfers: Vec<&Transfer<'_>> = transfers.iter().filter(|t| t.given > 0 || t.gotten > 0).collect();
        if transfers.is_empty() {
            return Ok(());
        }
        own.0.depend_on(&communicator.failure);
        let uses = transfers.iter().flat_map(|t| [(t.from.1, Access::Read), (t.to.1, Access::Write)]);
        let held = hold(own, uses.collect())?;
        let event = || own.stream().record_event(None).map_err(|e| own.0.context.failure("cuEventRecord", e));
        let (what, ready) = (exchange.name(), event()?);
        own.0.context.bind()?;
        communicator.call(what, |library, raw| self.queue(library, raw, exchange, &transfers))?;
        drop(held);
        self.watch.add(Queued { what, ready, done: event()? });
        Ok(())
    }

    /// Calls NCCL for every transfer; it makes one exchange of them.
    fn queue(&self, library: &Library, raw: Raw, exchange: Exchange, transfers: &[&Transfer<'_>]) -> Result<(), Error> {
        let check = |call, code| library.check(call, code);
        let stream = self.device().stream().cu_stream();
        // SAFETY: groups of calls belong to the thread.
        check("ncclGroupStart", unsafe { (library.group_start)() })?;
        let queued = transfers.iter().try_for_each(|transfer| {
            let (from, to, n) = (transfer.from.0, transfer.to.0, transfer.given);
            // SAFETY: communicator and stream are alive. The memories have at least as many bytes from the addresses on: those that
            // are given, of all ranks for what an all-gather writes, and those that are gotten. They stay until the stream has
            // done the exchange, as it shares them.
            unsafe {
                match exchange {
                    Exchange::AllGather => {
                        check("ncclAllGather", (library.all_gather)(from, to, n, BYTES, raw, stream))
                    }
                    Exchange::Broadcast { root } => {
                        check("ncclBroadcast", (library.broadcast)(from, to, n, BYTES, root as i32, raw, stream))
                    }
                    Exchange::SendReceive { to: next, from: last } => {
                        if n > 0 {
                            check("ncclSend", (library.send)(from, n, BYTES, next as i32, raw, stream))?;
                        }
                        let gotten = transfer.gotten;
                        let receive = || (library.receive)(to, gotten, BYTES, last as i32, raw, stream);
                        if gotten > 0 { check("ncclRecv", receive()) } else { Ok(()) }
                    }
                }
            }
        });
        // SAFETY: ends the group that was started above, also after an error.
        let ended = check("ncclGroupEnd", unsafe { (library.group_end)() });
        queued.and(ended)
    }
}

impl Exchange {
    /// Its name.
    fn name(self) -> &'static str {
        match self {
            Exchange::AllGather => "all-gather",
            Exchange::Broadcast { .. } => "broadcast",
            Exchange::SendReceive { .. } => "send and receive",
        }
    }
}
