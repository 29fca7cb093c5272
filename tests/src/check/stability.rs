//! Checks that every run gives the same bits: forward and backward, alone and beside a busy stream, with carries that do not
//! die out.

mod subjects;

use oplus::{Call, Device, Elem, Kernel, Tensor, kernels};
use oplus_dsl::rng::Rng;
use oplus_dsl::scalar;

use super::CheckError;
use super::case::Extent;
use super::oracle::Agreement;
use super::rules::tensor;
use super::scenario::{Scenario, World, bits, equal};
use subjects::{Input, REAL, Subject, subjects};

/// Schedules of a call: more than any stage has.
const RANKS: usize = 10;

/// All scenarios of stability.
pub fn scenarios(extent: Extent) -> Vec<Scenario> {
    let runs = match extent {
        Extent::Quick => 3,
        Extent::Default => 100,
        Extent::Long => 400,
    };
    let ranks = if extent == Extent::Quick { 1 } else { RANKS };
    let mut all = vec![];
    for subject in subjects() {
        // The other schedules of attention and of recurrences of matrices are slow ones that step through time.
        for rank in 0..if subject.is_matrix { 1 } else { ranks } {
            let (name, subject) = (format!("bits/{subject}/schedule {rank}"), subject.clone());
            all.push(Scenario::new(name, move |world: &World| stable(world, &subject, rank, runs)));
        }
    }
    all
}

fn stable(world: &World, subject: &Subject, rank: usize, runs: usize) -> Result<Agreement, CheckError> {
    let (device, busy) = (world.device()?, Busy::new(world)?);
    let tensor = |(seed, input): (u64, &Input)| filled(input, subject.elem, seed, &device);
    let inputs = (0..).zip(&subject.inputs).map(tensor).collect::<Result<Vec<_>, _>>()?;
    let cotangent = tensor((99, &subject.cotangent))?;
    if let Device::Cuda(device) = &device {
        device.set_schedule_rank(rank);
    }
    let mut first: Option<Vec<Vec<u64>>> = None;
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

fn filled(input: &Input, elem: Elem, seed: u64, device: &Device) -> Result<Tensor, CheckError> {
    let (Input { shape, range: (low, high), is_wide }, mut rng) = (input, Rng::new(seed));
    let elem = if *is_wide { Elem::F32 } else { elem };
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| scalar::round(elem, rng.between(*low, *high))).collect();
    Ok(tensor(elem, shape, &values, device)?)
}

/// Work on another stream, to be busy beside a call.
struct Busy {
    input: Tensor,
    output: Tensor,
}

impl Busy {
    fn new(world: &World) -> Result<Busy, CheckError> {
        let (device, shape) = (world.device()?, [7, (1 << 19) + 4]);
        let output = Tensor::zeros(Elem::F32, &shape, &device)?;
        let input = filled(&Input::new(shape, REAL), Elem::F32, 5, &device)?;
        Ok(Busy { input, output })
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
