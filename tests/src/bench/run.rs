//! One case: inputs, check against the CPU, time.

use cudarc::driver::CudaSlice;
use oplus::{Call, Device, Elem, Element, Kernel, Tensor};
use oplus_dsl::ir::Axis;
use rayon::prelude::*;
use serde::Serialize;

use super::candidates::Candidate;
use super::cases::{Case, Group, Work};
use super::random;
use super::sample::Sample;
use super::timer::Timer;
use super::{BenchError, cases::Fill};

/// A line of the bench program's output, in the yardstick's format.
#[derive(Debug, Serialize)]
pub struct Line {
    /// The case.
    pub case: String,
    /// Whose time it is.
    #[serde(rename = "impl")]
    pub implementation: &'static str,
    /// Milliseconds: the median on a GPU, the least on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<f64>,
    /// On the CPU: the least milliseconds of a plain copy of as many bytes by all threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_ms: Option<f64>,
    /// `ms / copy_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Bytes that had to move.
    pub bytes: u64,
    /// The schedules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// How many plans are estimated to be faster, where several are timed, and what they are a choice of.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<Candidate>,
    /// Why there is no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a case runs on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Whether results are compared with the CPU's first.
    pub check: bool,
    /// How many of the next schedules in the planner's order run as well. Gradients then compute what they need of the forward
    /// pass themselves, as only the fastest plan starts from what a call has kept.
    pub more: usize,
    /// Whether kernels are those for all devices.
    pub portable: bool,
}

/// Runs a case and gives its lines, one for the schedules taken and one for each other plan among the next `more` in the
/// planner's order; a failure is part of the line.
pub fn lines(case: &Case, timer: &mut Timer, seed: u64, how: How) -> Vec<Line> {
    let name = format!("{}{}", case.name, timer.suffix());
    let line = |result: Result<(f64, String), BenchError>, candidate: Option<Candidate>| {
        let (ms, plan, error) = match result {
            Ok((ms, plan)) => (Some(ms), Some(plan), None),
            Err(error) => (None, candidate.as_ref().map(Candidate::plan), Some(error.to_string())),
        };
        let (case, bytes, implementation) = (name.clone(), case.bytes, "oplus");
        Line { case, implementation, ms, copy_ms: None, ratio: None, bytes, plan, candidate, error }
    };
    if let Work::Copy(n) = case.work {
        return vec![line(copy(n, timer).map(|ms| (ms, "cuMemcpyDtoDAsync".into())), None)];
    }
    let prepare = |timer: &Timer| -> Result<_, BenchError> {
        let device = Device::from_stream(timer.stream().clone())?;
        if let Device::Cuda(cuda) = &device {
            cuda.set_portable(how.portable);
        }
        Ok((Prepared::new(case, &device, seed, how.more == 0)?, device, timer.stream().context().name()?))
    };
    let (prepared, device, name) = match prepare(timer) {
        Ok(prepared) => prepared,
        Err(error) => return vec![line(Err(error), None)],
    };
    let (mut lines, mut last): (Vec<Line>, Option<String>) = (vec![], None);
    for rank in 0..=how.more {
        let candidate = Candidate::of(case, &device, &name, rank);
        let plan = candidate.as_ref().map(Candidate::plan).ok();
        if rank > 0 && plan == last {
            // Every stage has its slowest schedule.
            break;
        }
        let is_known = rank > 0 && lines.iter().any(|line| plan.is_some() && line.plan == plan);
        last = plan;
        if is_known {
            continue;
        }
        // The first one is timed with care: it is what users get.
        let most = (rank > 0).then_some(MOST_OF_OTHERS);
        let time = candidate.as_ref().map_err(ToString::to_string).cloned();
        let timed = candidate.and_then(|c| Ok((time_of(case, timer, (&prepared, how.check), most)?, c.plan())));
        lines.push(line(timed, time.ok().filter(|_| how.more > 0)));
    }
    lines
}

/// Milliseconds of all runs of a plan that is not the planner's choice, unless fewer runs take longer.
const MOST_OF_OTHERS: f64 = 400.0;

/// Milliseconds with the schedules that the device is set to.
fn time_of(
    case: &Case,
    timer: &mut Timer,
    (prepared, check): (&Prepared, bool),
    most: Option<f64>,
) -> Result<f64, BenchError> {
    if check {
        prepared.check(case)?;
    }
    timer.median_within(most, || prepared.run().map_err(Into::into))
}

fn copy(n: usize, timer: &mut Timer) -> Result<f64, BenchError> {
    let host: Vec<f32> = random::tensor(Elem::F32, &[n], Fill::Normal, 1)?.to_vec()?;
    let stream = timer.stream().clone();
    let from = stream.clone_htod(&host)?;
    let mut to: CudaSlice<f32> = stream.alloc_zeros(n)?;
    timer.median(|| Ok(stream.memcpy_dtod(&from, &mut to)?))
}

/// A case whose tensors are on the device.
pub(super) struct Prepared {
    kernel: &'static Kernel,
    inputs: Vec<Option<Tensor>>,
    outputs: Vec<Tensor>,
    call: Call,
    backward: Option<Backward>,
}

/// The tensors of a backward case.
struct Backward {
    cotangents: Vec<Option<Tensor>>,
    gradients: Vec<Option<Tensor>>,
}

impl Prepared {
    /// Random inputs of the seed, and room for the results; the forward call of a gradient keeps what it needs, if that is wanted.
    pub(super) fn new(case: &Case, device: &Device, seed: u64, records: bool) -> Result<Prepared, oplus::Error> {
        let program = case.kernel.program()?;
        let mut inputs = vec![];
        for (k, (shape, fill)) in case.inputs.iter().enumerate() {
            let elem = program.params[k].elem.in_call(case.elem);
            let host = random::tensor(elem, shape, *fill, seed + k as u64)?;
            inputs.push(Some(host.to_device(device)?));
        }
        inputs.resize(program.params.len(), None);
        // As in training: the forward call keeps what its gradient needs.
        let recording = (records && matches!(case.work, Work::Backward)).then(oplus::record);
        let (outputs, call) = case.kernel.call(&borrowed(&inputs))?;
        drop(recording);
        let backward = match case.work {
            Work::Backward => Some(backward(case, &inputs, &outputs, device, seed)?),
            _ => None,
        };
        Ok(Prepared { kernel: case.kernel, inputs, outputs, call, backward })
    }

    /// Makes the call.
    pub(super) fn run(&self) -> Result<(), oplus::Error> {
        match &self.backward {
            None => {
                let outputs: Vec<&Tensor> = self.outputs.iter().collect();
                self.kernel.call_into(&borrowed(&self.inputs), &outputs).map(drop)
            }
            Some(Backward { cotangents, gradients }) => {
                self.kernel.backward_into(&self.call, &borrowed(cotangents), &borrowed(gradients))
            }
        }
    }

    /// The tensors that the case reads: inputs and, of a gradient, outputs and the cotangent of the first.
    pub(super) fn read(&self) -> Result<Vec<Vec<f32>>, oplus::Error> {
        let given = self.inputs.iter().flatten();
        let of_gradient = self.backward.iter().flat_map(|b| self.outputs.iter().chain(b.cotangents.iter().flatten()));
        given.chain(of_gradient).map(Tensor::to_vec).collect()
    }

    /// The tensors that the case has written.
    pub(super) fn written(&self) -> Result<Vec<Vec<f32>>, oplus::Error> {
        match &self.backward {
            None => self.outputs.iter().map(Tensor::to_vec).collect(),
            Some(backward) => backward.gradients.iter().flatten().map(Tensor::to_vec).collect(),
        }
    }

    /// Compares with the same kernel on the CPU: a large case in [part](Sample).
    fn check(&self, case: &Case) -> Result<(), BenchError> {
        self.run()?;
        let program = self.kernel.program()?;
        let shapes: Vec<_> = case.inputs.iter().map(|(shape, _)| shape.clone()).collect();
        let sample = Sample::new(program, &shapes);
        let of_params =
            |tensors: &[Option<Tensor>]| parts(&sample, tensors, program.params.iter().map(|p| &p.axes[..]));
        let of_outputs =
            |tensors: &[Option<Tensor>]| parts(&sample, tensors, program.outputs.iter().map(|o| &o.axes[..]));
        let inputs = of_params(&self.inputs)?;
        let (outputs, call) = self.kernel.call(&borrowed(&inputs))?;
        let (ours, reference) = match &self.backward {
            None => {
                let ours: Vec<_> = self.outputs.iter().cloned().map(Some).collect();
                (of_outputs(&ours)?, outputs.into_iter().map(Some).collect())
            }
            Some(Backward { cotangents, gradients }) => {
                let reference = self.kernel.backward(&call, &borrowed(&of_outputs(cotangents)?))?;
                (of_params(gradients)?, reference)
            }
        };
        let bound = match case.elem {
            Elem::Bf16 => 2e-2,
            // Recurrences of matrices multiply `f16` as `bf16`, within the rule of flash-linear-attention.
            Elem::F16 if matches!(case.group, Group::Ssd | Group::Linear | Group::Delta) => 5e-3,
            Elem::F16 => 2e-3,
            _ => 2e-5,
        };
        for (output, (ours, reference)) in Vec::into_iter(ours).zip(reference).enumerate() {
            if let (Some(ours), Some(reference)) = (ours, reference) {
                let error = distance(&ours, &reference)?;
                if error.is_nan() || error > bound {
                    return Err(BenchError::Wrong { output, error, bound });
                }
            }
        }
        Ok(())
    }
}

/// A cotangent of the first output, and room for the gradients of the inputs that were given.
fn backward(
    case: &Case,
    inputs: &[Option<Tensor>],
    outputs: &[Tensor],
    device: &Device,
    seed: u64,
) -> Result<Backward, oplus::Error> {
    let shape = outputs[0].shape().to_vec();
    let cotangent = random::tensor(outputs[0].elem(), &shape, Fill::Normal, seed + 1000)?.to_device(device)?;
    let mut cotangents = vec![Some(cotangent)];
    cotangents.resize(outputs.len(), None);
    let room = |t: &Option<Tensor>| t.as_ref().map(|t| Tensor::zeros(t.elem(), t.shape(), device)).transpose();
    let gradients = inputs.iter().map(room).collect::<Result<Vec<_>, _>>()?;
    debug_assert!(case.inputs.len() <= gradients.len());
    Ok(Backward { cotangents, gradients })
}

fn borrowed(tensors: &[Option<Tensor>]) -> Vec<Option<&Tensor>> {
    tensors.iter().map(Option::as_ref).collect()
}

/// The part of tensors that is compared, on the CPU; each has axes of its own.
fn parts<'a>(
    sample: &Sample,
    tensors: &[Option<Tensor>],
    axes: impl Iterator<Item = &'a [Axis]>,
) -> Result<Vec<Option<Tensor>>, oplus::Error> {
    let part = |(t, axes): (&Option<Tensor>, &[Axis])| t.as_ref().map(|t| sample.of(t, axes)?.to_cpu()).transpose();
    tensors.iter().zip(axes).map(part).collect()
}

/// The distance of two tensors of one type and shape.
fn distance(ours: &Tensor, reference: &Tensor) -> Result<f64, oplus::Error> {
    fn of<T: Element + Into<f64>>(ours: &Tensor, reference: &Tensor) -> Result<f64, oplus::Error> {
        Ok(relative::<T>(&ours.to_vec()?, &reference.to_vec()?))
    }
    match ours.elem() {
        Elem::Bf16 => of::<half::bf16>(ours, reference),
        Elem::F16 => of::<half::f16>(ours, reference),
        Elem::F64 => of::<f64>(ours, reference),
        _ => of::<f32>(ours, reference),
    }
}

/// ‖ours − reference‖ / ‖reference‖.
pub(super) fn relative<T: Copy + Sync + Into<f64>>(ours: &[T], reference: &[T]) -> f64 {
    let pairs = || ours.par_iter().zip(reference).map(|(x, y)| ((*x).into(), (*y).into()));
    let errors: f64 = pairs().map(|(x, y): (f64, f64)| (x - y) * (x - y)).sum();
    let squares: f64 = pairs().map(|(_, y): (f64, f64)| y * y).sum();
    (errors / squares.max(f64::MIN_POSITIVE)).sqrt()
}
