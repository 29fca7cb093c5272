//! A thread that watches the exchanges of a communicator, so that a rank that never answers becomes an error.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cudarc::driver::{CudaEvent, DriverError};

use super::communicator::Communicator;
use crate::Error;
use crate::cuda::capture::relaxed;

/// An exchange that has been queued.
pub(super) struct Queued {
    /// Its kind.
    pub(super) what: &'static str,
    /// When all work of this rank before it has been done.
    pub(super) ready: CudaEvent,
    /// When it has been done.
    pub(super) done: CudaEvent,
}

/// The thread.
pub(super) struct Watch {
    queue: Option<Sender<Queued>>,
    thread: Option<JoinHandle<()>>,
}

/// How often an exchange is looked at.
const PAUSE: Duration = Duration::from_millis(1);

impl Watch {
    pub(super) fn new(communicator: Arc<Communicator>) -> Result<Watch, Error> {
        let (queue, queued) = channel();
        let thread = thread::Builder::new().name(format!("oplus rank {}", communicator.place.rank));
        let thread = thread.spawn(move || watch(&communicator, &queued));
        let refused = |e: std::io::Error| Error::Nccl { call: "a thread for its exchanges", reason: e.to_string() };
        Ok(Watch { queue: Some(queue), thread: Some(thread.map_err(refused)?) })
    }

    /// Watches an exchange as well.
    pub(super) fn add(&self, queued: Queued) {
        // A thread that has ended has left its error.
        let _ = self.queue.as_ref().map(|queue| queue.send(queued));
    }
}

impl Drop for Watch {
    /// Waits for the exchanges that are queued, each no longer than the time-out, and takes leave of the other ranks.
    fn drop(&mut self) {
        drop(self.queue.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Waits for one exchange after the other, as they are done.
fn watch(communicator: &Communicator, queue: &Receiver<Queued>) {
    let is_done = queue.iter().all(|queued| match wait(communicator, &queued) {
        Ok(()) => true,
        Err(error) => {
            communicator.fail(&error);
            false
        }
    });
    if is_done {
        communicator.end();
    }
}

fn wait(communicator: &Communicator, queued: &Queued) -> Result<(), Error> {
    let context = &communicator.device.0.context;
    context.bind()?;
    let is_done = |event: &CudaEvent| -> Result<bool, Error> {
        // A capture elsewhere in the process would otherwise forbid the question.
        let found: Result<bool, DriverError> = relaxed(|| event.try_is_complete()).flatten();
        found.map_err(|e| context.failure("cuEventQuery", e))
    };
    let (mut since, patience) = (None, communicator.place.timeout);
    while !is_done(&queued.done)? {
        communicator.look()?;
        communicator.check()?;
        if since.is_none() && is_done(&queued.ready)? {
            since = Some(Instant::now());
        }
        if since.is_some_and(|since: Instant| since.elapsed() > patience) {
            return Err(communicator.lost(format!("{} has not ended after {patience:?}", queued.what)));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
