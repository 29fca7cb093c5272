//! Checks that are not one call on small tensors: each has a name, and gives how well its outputs agree.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::CudaContext;
use oplus::{Device, Tensor};

use super::CheckError;
use super::case::Extent;
use super::oracle::Agreement;
use super::report::{Line, Report};
use super::rules::floats;

/// Where scenarios run.
pub struct World {
    /// The GPU.
    pub context: Arc<CudaContext>,
    /// How much they do.
    pub extent: Extent,
    /// Whether kernels are those for all devices.
    pub portable: bool,
}

/// A scenario.
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Its function.
    pub run: Box<Run>,
}

/// The function of a scenario.
type Run = dyn Fn(&World) -> Result<Agreement, CheckError>;

impl World {
    /// The GPU, on a new stream.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn device(&self) -> Result<Device, CheckError> {
        let device = Device::from_stream(self.context.new_stream()?)?;
        if let Device::Cuda(cuda) = &device {
            cuda.set_portable(self.portable);
        }
        Ok(device)
    }
}

impl Scenario {
    /// A scenario of a name.
    pub fn new(name: impl Into<String>, run: impl Fn(&World) -> Result<Agreement, CheckError> + 'static) -> Scenario {
        Scenario { name: name.into(), run: Box::new(run) }
    }
}

/// Runs scenarios one after another.
pub fn run(scenarios: &[Scenario], world: &World, report: &Report) {
    for scenario in scenarios {
        let begun = Instant::now();
        let mut line = Line { check: scenario.name.clone(), ..Line::default() };
        match (scenario.run)(world) {
            Ok(Agreement { worst, compared, unbounded }) => {
                (line.worst, line.compared, line.unbounded) = (worst, compared, unbounded);
            }
            Err(error) => line.error = Some(error.to_string()),
        }
        line.seconds = Some(begun.elapsed().as_secs_f64());
        report.tell(&line);
    }
}

/// The numbers of a tensor, bit by bit; bits of `f32` where it has narrower elements.
pub(super) fn bits(tensor: &Tensor) -> Result<Vec<u64>, CheckError> {
    Ok(floats(tensor)?.into_iter().map(f64::to_bits).collect())
}

/// Checks that a run gave the bits of the first one.
pub(super) fn equal(run: usize, output: &str, first: &[u64], now: &[u64]) -> Result<(), CheckError> {
    let differs = first.iter().zip(now).position(|(a, b)| a != b);
    differs.map_or(Ok(()), |index| {
        let [found, wanted] = [now, first].map(|bits| f64::from_bits(bits[index]));
        Err(CheckError::Bits { run, output: output.to_owned(), index, found, wanted })
    })
}

/// An error that says what should not have happened.
pub(super) fn unexpected<T>(what: impl Into<String>) -> Result<T, CheckError> {
    Err(CheckError::Unexpected(what.into()))
}
