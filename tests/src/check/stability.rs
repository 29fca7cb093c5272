//! Checks that every run gives the same bits: forward and backward, alone and beside a busy stream, with carries that do not
//! die out.

use oplus::{Call, Device, Elem, Kernel, Tensor, kernels};
use oplus_dsl::rng::Rng;

use super::CheckError;
use super::case::Extent;
use super::oracle::Agreement;
use super::scenario::{Scenario, World, bits, equal};

/// Schedules of a call: more than any stage has.
const RANKS: usize = 10;

/// A kernel, the shape of its inputs, and the range of each.
struct Subject {
    kernel: &'static Kernel,
    shape: &'static [usize],
    ranges: &'static [(f64, f64)],
}

/// Decays of 1 − 2⁻¹² to 1 − 2⁻²⁰.
const NEAR_ONE: (f64, f64) = (1.0 - 1.0 / 4096.0, 1.0 - 1.0 / 1_048_576.0);
const NEAR_ZERO: (f64, f64) = (-1.0 / 4096.0, -1.0 / 1_048_576.0);
const REAL: (f64, f64) = (-1.0, 1.0);

fn subjects() -> Vec<Subject> {
    vec![
        Subject { kernel: kernels::cumsum::kernel(), shape: &[1, (1 << 20) + 12], ranges: &[REAL] },
        Subject { kernel: kernels::affine::kernel(), shape: &[1, 1 << 20], ranges: &[NEAR_ONE, REAL] },
        Subject { kernel: kernels::affine::kernel(), shape: &[3, 300_007], ranges: &[NEAR_ONE, REAL] },
        Subject { kernel: kernels::affine::kernel(), shape: &[300, 4096], ranges: &[NEAR_ONE, REAL] },
        Subject { kernel: kernels::log_decay_channels::kernel(), shape: &[2, 8192, 64], ranges: &[NEAR_ZERO, REAL] },
        Subject { kernel: kernels::cumsum_time_first::kernel(), shape: &[100_003, 8], ranges: &[REAL] },
    ]
}

/// All scenarios of stability.
pub fn scenarios(extent: Extent) -> Vec<Scenario> {
    let runs = match extent {
        Extent::Quick => 3,
        Extent::Default => 100,
        Extent::Long => 400,
    };
    let mut all = vec![];
    for subject in subjects() {
        for rank in 0..RANKS {
            if extent == Extent::Quick && rank > 0 {
                continue;
            }
            let name = format!("bits/{}/{:?}/schedule {rank}", subject.kernel.name(), subject.shape);
            let Subject { kernel, shape, ranges } = subject;
            let check = move |world: &World| stable(world, &Subject { kernel, shape, ranges }, rank, runs);
            all.push(Scenario::new(name, check));
        }
    }
    all
}

fn stable(world: &World, subject: &Subject, rank: usize, runs: usize) -> Result<Agreement, CheckError> {
    let (device, busy) = (world.device()?, Busy::new(world)?);
    let tensor = |seed: u64, range| filled(subject.shape, range, seed, &device);
    let inputs = (0..).zip(subject.ranges).map(|(k, range)| tensor(k, *range)).collect::<Result<Vec<_>, _>>()?;
    let cotangent = tensor(99, REAL)?;
    if let Device::Cuda(device) = &device {
        device.set_schedule_rank(rank);
    }
    let mut first: Option<Vec<Vec<u32>>> = None;
    for run in 0..runs {
        // Every other run has company, which moves blocks to other processors and changes who waits for whom.
        if run % 2 == 1 {
            busy.work()?;
        }
        let (outputs, call) = forward(subject.kernel, &inputs)?;
        let mut results = vec![bits(&outputs[0])?];
        for gradient in backward(subject.kernel, &call, &cotangent)? {
            results.push(bits(&gradient)?);
        }
        let first = first.get_or_insert_with(|| results.clone());
        for (k, (before, now)) in first.iter().zip(&results).enumerate() {
            equal(run, &format!("result {k}"), before, now)?;
        }
    }
    let compared = first.iter().flatten().map(Vec::len).sum::<usize>() * (runs - 1);
    Ok(Agreement { compared, ..Agreement::default() })
}

fn forward(kernel: &Kernel, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Call), CheckError> {
    let mut given: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
    given.resize(kernel.program()?.params.len(), None);
    Ok(kernel.call(&given)?)
}

/// The gradients of a call for the cotangent of its first output.
fn backward(kernel: &Kernel, call: &Call, cotangent: &Tensor) -> Result<Vec<Tensor>, CheckError> {
    let mut cotangents = vec![Some(cotangent)];
    cotangents.resize(kernel.program()?.outputs.len(), None);
    Ok(kernel.backward(call, &cotangents)?.into_iter().flatten().collect())
}

fn filled(shape: &[usize], (low, high): (f64, f64), seed: u64, device: &Device) -> Result<Tensor, CheckError> {
    let mut rng = Rng::new(seed);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.between(low, high) as f32).collect();
    Ok(Tensor::from_vec(values, shape)?.to_device(device)?)
}

/// Work on another stream, to be busy beside a call.
struct Busy {
    input: Tensor,
    output: Tensor,
}

impl Busy {
    fn new(world: &World) -> Result<Busy, CheckError> {
        let (device, shape) = (world.device()?, [7, (1 << 19) + 4]);
        let input = filled(&shape, REAL, 5, &device)?;
        Ok(Busy { input, output: Tensor::zeros(Elem::F32, &shape, &device)? })
    }

    /// Queues a few calls.
    fn work(&self) -> Result<(), CheckError> {
        self.input.device().synchronize()?;
        for _ in 0..4 {
            kernels::cumsum::kernel().call_into(&[Some(&self.input)], &[&self.output])?;
        }
        Ok(())
    }
}
