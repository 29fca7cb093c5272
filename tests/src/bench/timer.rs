//! Timing on a stream: events around the work, the L2 cache flushed before it, the median of many runs.

use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaStream, DriverError};

use super::BenchError;
use super::cache::Flush;

const WARM_UP: usize = 10;
const RUNS: usize = 50;
/// Of work that takes long.
const LEAST_RUNS: usize = 3;

/// What the names of cases end in where runs begin with a cache that has nothing to write.
pub const CLEAN: &str = "-clean";

/// A stream with events, whose cache is flushed.
pub struct Timer {
    stream: Arc<CudaStream>,
    flush: Flush,
}

impl Timer {
    /// A timer on a new stream of the first GPU; with `clean`, runs begin with a cache that has nothing to write, on
    /// which kernels that only read would wait.
    ///
    /// # Errors
    /// [`BenchError::NoGpu`] without one; faults of the driver.
    pub fn new(clean: bool) -> Result<Timer, BenchError> {
        if oplus::Device::cuda_count() == 0 {
            return Err(BenchError::NoGpu("there is none that the CUDA driver knows".into()));
        }
        let stream = CudaContext::new(0)?.new_stream()?;
        let flush = Flush::new(&stream, clean)?;
        Ok(Timer { stream, flush })
    }

    /// The stream that is timed.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The end of the names of cases: [`CLEAN`], or nothing.
    pub fn suffix(&self) -> &'static str {
        if self.flush.is_clean() { CLEAN } else { "" }
    }

    /// The median of the runs' times, in milliseconds.
    ///
    /// # Errors
    /// The errors of the work and of the driver.
    pub fn median(&mut self, work: impl FnMut() -> Result<(), BenchError>) -> Result<f64, BenchError> {
        self.median_within(None, work)
    }

    /// The median of as many runs, but no more than take so many milliseconds all together, and at least three.
    ///
    /// # Errors
    /// The errors of the work and of the driver.
    pub fn median_within(
        &mut self,
        most: Option<f64>,
        mut work: impl FnMut() -> Result<(), BenchError>,
    ) -> Result<f64, BenchError> {
        work()?;
        let first = f64::from(self.once(&mut work)?);
        let runs = most.map_or(RUNS, |most| ((most / first.max(1e-3)) as usize).clamp(LEAST_RUNS, RUNS));
        for _ in 2..WARM_UP.min(runs) {
            work()?;
        }
        let mut times = (0..runs).map(|_| self.once(&mut work)).collect::<Result<Vec<f32>, _>>()?;
        times.sort_by(f32::total_cmp);
        Ok(f64::from(times[runs / 2]))
    }

    fn once(&mut self, work: &mut impl FnMut() -> Result<(), BenchError>) -> Result<f32, BenchError> {
        self.flush.run()?;
        let start = self.event()?;
        work()?;
        let end = self.event()?;
        end.synchronize()?;
        Ok(start.elapsed_ms(&end)?)
    }

    fn event(&self) -> Result<cudarc::driver::CudaEvent, DriverError> {
        self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))
    }
}
