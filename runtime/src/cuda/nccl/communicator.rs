//! A rank's communicator: NCCL's connection to the other ranks, made and ended without waiting for ever.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::library::{Config, IN_PROGRESS, Id, Library, REMOTE_ERROR, Raw, SUCCESS};
use crate::Error;
use crate::cuda::CudaDevice;

/// The first failure of a communicator, after which it exchanges nothing.
pub(in crate::cuda) type Failure = OnceLock<Error>;

/// A communicator. All its functions return at once and go on in the background.
pub(super) struct Communicator {
    pub(super) library: &'static Library,
    /// The stream of the exchanges.
    pub(super) device: CudaDevice,
    pub(super) place: Place,
    pub(super) failure: Arc<Failure>,
    /// `None` after it has ended.
    handle: Mutex<Option<Handle>>,
}

/// Which rank this is, of how many, and for how long it waits for the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) timeout: Duration,
}

struct Handle(Raw);

// SAFETY: NCCL takes calls from any thread, one at a time, as the mutex gives them.
unsafe impl Send for Handle {}

/// For how long the end of a communicator waits for the other ranks.
const FAREWELL: Duration = Duration::from_secs(10);

impl Communicator {
    /// Meets the other ranks.
    pub(super) fn new(library: &'static Library, id: Id, place: Place, device: CudaDevice) -> Result<Self, Error> {
        let count = |n: usize| c_int::try_from(n).map_err(|_| Error::NoRank { rank: place.rank, size: place.size });
        let (rank, size) = (count(place.rank)?, count(place.size)?);
        device.0.context.bind()?;
        let (mut raw, mut config) = (std::ptr::null_mut(), Config::non_blocking());
        // SAFETY: id and configuration are NCCL's, and it writes one handle.
        let code = unsafe { (library.init)(&mut raw, size, id, rank, &mut config) };
        library.check("ncclCommInitRankConfig", code)?;
        let (failure, handle) = (Arc::new(Failure::new()), Mutex::new(Some(Handle(raw))));
        let own = Communicator { library, device, place, failure, handle };
        let met = own.settled("ncclCommInitRankConfig", raw, place.timeout);
        met.inspect_err(|error| own.abort(&mut own.handle(), error))?;
        Ok(own)
    }

    fn handle(&self) -> MutexGuard<'_, Option<Handle>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The failure, if there was one.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Calls functions of NCCL and waits until they have queued their work. A failure ends the communicator.
    pub(super) fn call(
        &self,
        what: &'static str,
        work: impl FnOnce(&Library, Raw) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut handle = self.handle();
        self.check()?;
        let Some(Handle(raw)) = *handle else { return Err(self.lost("its communicator has ended".into())) };
        let queued = work(self.library, raw).and_then(|()| self.settled(what, raw, self.place.timeout));
        queued.inspect_err(|error| self.abort(&mut handle, error))
    }

    /// Notes an error that has happened in the background, and ends the communicator with it.
    pub(super) fn look(&self) -> Result<(), Error> {
        let Ok(mut handle) = self.handle.try_lock() else { return Ok(()) };
        let Some(Handle(raw)) = *handle else { return self.check() };
        match self.state(raw) {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => {
                let error = self.error("an exchange", code);
                self.abort(&mut handle, &error);
                Err(error)
            }
        }
    }

    /// Ends the communicator with an error.
    pub(super) fn fail(&self, error: &Error) {
        self.abort(&mut self.handle(), error);
    }

    /// Stops what is queued, on this rank, so that the stream goes on.
    fn abort(&self, handle: &mut Option<Handle>, error: &Error) {
        // First, so that whoever waits for the stream sees it.
        let _ = self.failure.set(error.clone());
        if let Some(Handle(raw)) = handle.take() {
            let _ = self.device.0.context.bind();
            // SAFETY: the handle is alive, and this is its last use.
            unsafe { (self.library.abort)(raw) };
        }
    }

    /// Takes leave of the other ranks, after everything that is queued.
    pub(super) fn end(&self) {
        let mut handle = self.handle();
        let Some(Handle(raw)) = handle.take() else { return };
        let _ = self.device.0.context.bind();
        // SAFETY: the handle is alive.
        let code = unsafe { (self.library.finalize)(raw) };
        let patience = self.place.timeout.min(FAREWELL);
        let ended = self.library.check("ncclCommFinalize", code);
        let ended = ended.and_then(|()| self.settled("ncclCommFinalize", raw, patience));
        // SAFETY: the handle is alive, and this is its last use.
        unsafe { if ended.is_ok() { (self.library.destroy)(raw) } else { (self.library.abort)(raw) } };
    }

    /// Waits for what goes on in the background.
    fn settled(&self, what: &'static str, raw: Raw, patience: Duration) -> Result<(), Error> {
        let start = Instant::now();
        loop {
            match self.state(raw) {
                SUCCESS => return Ok(()),
                IN_PROGRESS => {}
                code => return Err(self.error(what, code)),
            }
            let waited = start.elapsed();
            if waited > patience {
                return Err(self.lost(format!("{what} has not ended after {patience:?}")));
            }
            // Connections take long, what only queues work does not.
            if waited < Duration::from_millis(1) {
                thread::yield_now()
            } else {
                thread::sleep(Duration::from_micros(200))
            }
        }
    }

    fn state(&self, raw: Raw) -> c_int {
        let mut state = IN_PROGRESS;
        // SAFETY: the handle is alive, as whoever calls this holds its lock or is making it.
        let code = unsafe { (self.library.async_error)(raw, &mut state) };
        if code == SUCCESS { state } else { code }
    }

    fn error(&self, what: &'static str, code: c_int) -> Error {
        match self.library.failure(what, code) {
            Error::Nccl { reason, .. } if code == REMOTE_ERROR => self.lost(reason),
            error => error,
        }
    }

    /// Says that other ranks do not answer.
    pub(super) fn lost(&self, reason: String) -> Error {
        Error::LostRanks { rank: self.place.rank, size: self.place.size, reason }
    }
}
