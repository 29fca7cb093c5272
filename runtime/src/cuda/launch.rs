//! Launches: a plan whose kernels are loaded, and the little that is left to do per call.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys;
use oplus_codegen::plan::{Arg, Launch, Places, Plan, Residual};

use super::allocation::Allocation;
use super::context::Context;
use super::driver::driver;
use super::early::{Config, EARLY, LaunchWith};
use super::module::Function;
use super::scratch::Region;
use super::stream::{CudaDevice, Stream};
use crate::Error;
use crate::source::Found;

/// A plan that is ready to be launched again and again, on any stream of its context and from any thread.
pub(crate) struct Prepared {
    steps: Vec<Step>,
    /// Where every temporary tensor lies in the call's temporary memory, and the bytes of all.
    buffers: Vec<u64>,
    buffer_bytes: usize,
    /// Launches that exchange messages, and the words that they need.
    exchanges: u64,
    message_words: u64,
    /// The form of the states that it saves.
    pub(crate) saves: Option<Residual>,
}

struct Step {
    function: Arc<Function>,
    grid: [u32; 3],
    threads: u32,
    shared_bytes: u32,
    args: Vec<Arg>,
    /// Arguments that begin elsewhere than at their tensor's first element, and by how many bytes.
    offsets: Vec<(usize, i64)>,
    /// Whether all blocks must run at once: the driver then starts none before there is room for all.
    at_once: bool,
}

/// The addresses of a call's tensors: index 0, 0, … of each.
#[derive(Clone, Copy)]
pub(crate) struct Pointers<'a> {
    /// Parameters; 0 for those left out.
    pub(crate) params: &'a [u64],
    /// Outputs.
    pub(crate) outputs: &'a [u64],
    /// States that a call hands to its gradient; 0 where there are none.
    pub(crate) residual: u64,
}

/// More bytes than any memory has; `isize` counts them.
const MOST_BYTES: u128 = 1 << 62;

impl Prepared {
    /// Loads the kernels of a plan; `find` gives the code of those that are not loaded yet.
    pub(crate) fn new(
        context: &Arc<Context>,
        plan: Plan,
        find: impl Fn(&Launch) -> Result<Found, Error>,
    ) -> Result<Prepared, Error> {
        let (buffers, buffer_bytes) = addressed(plan.places()).map_err(|bytes| {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            Error::OutOfMemory { bytes, device: context.label.clone() }
        })?;
        let exchanges = |launch: &Launch| launch.args.iter().any(|a| matches!(a, Arg::Messages | Arg::Control));
        let message_words = plan.message_words;
        let launches: Vec<Launch> = plan.steps.into_iter().filter(|launch| !launch.grid.contains(&0)).collect();
        let exchanges = launches.iter().filter(|launch| exchanges(launch)).count() as u64;
        let steps = launches.into_iter().map(|launch| Step::new(context, launch, &find)).collect::<Result<_, _>>()?;
        Ok(Prepared { steps, buffers, buffer_bytes, exchanges, message_words, saves: None })
    }

    /// Queues the launches on the stream of a device.
    pub(crate) fn run(&self, device: &CudaDevice, pointers: Pointers<'_>) -> Result<(), Error> {
        let stream = &*device.0;
        stream.context.bind()?;
        let temporary = (self.buffer_bytes > 0).then(|| stream.allocate(self.buffer_bytes)).transpose()?;
        let region = (self.exchanges > 0).then(|| stream.region(self.message_words, self.exchanges)).transpose()?;
        let call = Call { pointers, buffers: &self.buffers, temporary: temporary.as_ref(), region: region.as_deref() };
        self.steps.iter().enumerate().try_for_each(|(i, step)| step.launch(stream, &call, i > 0))
    }
}

/// Where every temporary tensor lies in the memory of all, and the bytes of that; `Err` has the bytes when there are more than
/// a device can address.
fn addressed(places: Places) -> Result<(Vec<u64>, usize), u128> {
    if places.bytes > MOST_BYTES {
        return Err(places.bytes);
    }
    Ok((places.starts.into_iter().map(|start| start as u64).collect(), places.bytes as usize))
}

/// The memory that the arguments of a call's launches refer to.
struct Call<'a> {
    pointers: Pointers<'a>,
    buffers: &'a [u64],
    temporary: Option<&'a Allocation>,
    region: Option<&'a Region>,
}

impl Call<'_> {
    /// The eight bytes of an argument; numbers of four bytes come first in them.
    fn value(&self, arg: Arg) -> u64 {
        match arg {
            Arg::Param(i) => self.pointers.params[i as usize],
            Arg::Output(i) => self.pointers.outputs[i as usize],
            Arg::Buffer(i) => self.temporary.map_or(0, |t| t.address) + self.buffers[i as usize],
            Arg::Residual => self.pointers.residual,
            Arg::Messages => self.region.map_or(0, Region::messages),
            Arg::Control => self.region.map_or(0, Region::control),
            Arg::I32(x) => u64::from(x as u32),
            Arg::I64(x) => x as u64,
        }
    }
}

impl Step {
    fn new(
        context: &Arc<Context>,
        launch: Launch,
        find: impl Fn(&Launch) -> Result<Found, Error>,
    ) -> Result<Step, Error> {
        let function = context.function(&launch, || find(&launch))?;
        let at_once = launch.schedule.runs_at_once();
        let Launch { grid, threads, shared_bytes, args, offsets, .. } = launch;
        Ok(Step { function, grid, threads, shared_bytes, args, offsets, at_once })
    }

    /// Queues the launch; `follows` says that the one ahead of it on the stream is of the same call.
    fn launch(&self, stream: &Stream, call: &Call<'_>, follows: bool) -> Result<(), Error> {
        let mut values: Vec<u64> = self.args.iter().map(|arg| call.value(*arg)).collect();
        for (place, bytes) in &self.offsets {
            values[*place] = values[*place].wrapping_add_signed(*bytes);
        }
        let mut args: Vec<*mut c_void> = values.iter_mut().map(|v| (&raw mut *v).cast()).collect();
        // A graph keeps the kernel that it is given, so it must not get one of the fast-compile tier.
        let function = self.function.now(|| stream.is_capturing().unwrap_or(false));
        let early = driver()?.launch_with.filter(|_| follows && function.waits && !self.at_once);
        let (name, launched) = match early {
            Some(launch_with) => ("cuLaunchKernelEx", self.queue_early(launch_with, function, stream, &mut args)),
            None if self.at_once => ("cuLaunchCooperativeKernel", self.queue_at_once(function, stream, &mut args)),
            None => ("cuLaunchKernel", self.queue(function, stream, &mut args)),
        };
        stream.context.check(name, launched)
    }

    fn queue(&self, function: &Function, stream: &Stream, args: &mut [*mut c_void]) -> sys::CUresult {
        let ([x, y, z], threads, shared) = (self.grid, self.threads, self.shared_bytes);
        let (raw, on, none) = (function.raw, stream.raw.cu_stream(), std::ptr::null_mut());
        // SAFETY: the plan lists the arguments of the kernel that its key names, in order; the caller has checked that
        // the tensors hold every element that their layouts name; what `args` points to outlives the call, which copies it.
        unsafe { sys::cuLaunchKernel(raw, x, y, z, threads, 1, 1, shared, on, args.as_mut_ptr(), none) }
    }

    fn queue_at_once(&self, function: &Function, stream: &Stream, args: &mut [*mut c_void]) -> sys::CUresult {
        let ([x, y, z], threads, shared) = (self.grid, self.threads, self.shared_bytes);
        let (raw, on) = (function.raw, stream.raw.cu_stream());
        // SAFETY: as in `queue`.
        unsafe { sys::cuLaunchCooperativeKernel(raw, x, y, z, threads, 1, 1, shared, on, args.as_mut_ptr()) }
    }

    fn queue_early(
        &self,
        launch_with: LaunchWith,
        function: &Function,
        stream: &Stream,
        args: &mut [*mut c_void],
    ) -> sys::CUresult {
        let config = Config {
            grid: self.grid,
            block: [self.threads, 1, 1],
            shared_bytes: self.shared_bytes,
            stream: stream.raw.cu_stream(),
            attributes: &EARLY,
            attribute_count: 1,
        };
        // SAFETY: as in `queue`; there is one attribute. The kernel waits for the launch ahead of it before it touches memory, and
        // that launch is of the same call, so all that is ahead of the call has ended by then, too.
        unsafe { launch_with(&config, function.raw, args.as_mut_ptr(), std::ptr::null_mut()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Such bytes wrap in 64 bits: to a few, which kernels would write beyond.
    #[test]
    fn more_bytes_than_are_addressed_are_refused_with_what_they_take() {
        let places = |bytes| Places { starts: vec![0, 256], bytes };
        assert_eq!(addressed(places(1 << 62)), Ok((vec![0, 256], 1 << 62)));
        for bytes in [(1 << 62) + 256, 1 << 63, (1 << 64) + 256, u128::from(u64::MAX) * 8] {
            assert_eq!(addressed(places(bytes)), Err(bytes));
        }
    }
}
