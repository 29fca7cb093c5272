//! Host time: what a call costs the caller's thread, and what the first call of a kernel costs.

mod parts;

use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use oplus::{Call, Device, Elem, Kernel, Tensor, kernels, models};
use oplus_dsl::ir::{Axis, Param};
use serde::{Deserialize, Serialize};

use crate::bench::BenchError;
use parts::Whole;

/// A line of output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// The name of the case.
    pub case: String,
    /// Microseconds.
    pub us: f64,
}

/// Calls that are queued before the stream is waited for; fewer than a stream's queue holds.
const BATCH: usize = 256;
/// Batches; the median counts.
const BATCHES: usize = 41;
/// Rows and elements of a row: so few that the GPU is faster than the host.
const SHAPE: [usize; 2] = [4, 256];
/// Sizes of the axes of scans of short rows.
const ROWS: &[(&str, usize)] = &[("B", SHAPE[0]), ("T", SHAPE[1])];
/// Sizes of the axes of selective scans; of axes that have none here, 1.
const SELECTIVE: &[(&str, usize)] = &[("B", 8), ("D", 2048), ("N", 16), ("T", 2048)];
/// Sizes of the axes of attention.
const ATTENTION: &[(&str, usize)] = &[("B", 2), ("G", 8), ("M", 1024), ("N", 1024), ("E", 64), ("F", 64)];
/// A row that is long enough for look-back.
const LONG: [usize; 2] = [1, 1 << 22];

fn line(case: impl Into<String>, time: Duration) -> Line {
    Line { case: case.into(), us: time.as_secs_f64() * 1e6 }
}

/// The time per call of queueing `work`; the GPU's own time does not count.
fn queueing(device: &Device, mut work: impl FnMut() -> Result<(), BenchError>) -> Result<Duration, BenchError> {
    let mut times = vec![];
    for _ in 0..BATCHES {
        device.synchronize()?;
        let start = Instant::now();
        (0..BATCH).try_for_each(|_| work())?;
        times.push(start.elapsed() / BATCH as u32);
    }
    device.synchronize()?;
    times.sort_unstable();
    Ok(times[BATCHES / 2])
}

/// Per call: a driver's call that queues work (a memset of four bytes, which costs the driver about what a launch does),
/// then calls of kernels into the caller's tensors and into new ones, and of a gradient.
///
/// # Errors
/// The errors of the library and of the driver.
pub fn calls(device: &Device, stream: &std::sync::Arc<CudaStream>) -> Result<Vec<Line>, BenchError> {
    let (cumsum, affine) = (kernels::cumsum::kernel(), kernels::affine::kernel());
    let fresh = || Tensor::zeros(Elem::F32, &SHAPE, device);
    let (a, b, y, last) = (fresh()?, fresh()?, fresh()?, Tensor::zeros(Elem::F32, &SHAPE[..1], device)?);
    let (grad_a, grad_b) = (fresh()?, fresh()?);
    let call = affine.call_into(&[Some(&a), Some(&b), None], &[&y, &last])?;
    let mut word = stream.alloc_zeros::<f32>(1)?;
    let bare = queueing(device, || Ok(stream.memset_zeros(&mut word)?))?;
    let into = queueing(device, || Ok(cumsum.call_into(&[Some(&a)], &[&y]).map(drop)?))?;
    let two = queueing(device, || Ok(affine.call_into(&[Some(&a), Some(&b), None], &[&y, &last]).map(drop)?))?;
    let new = queueing(device, || Ok(cumsum.call(&[Some(&a)]).map(drop)?))?;
    let gradients = [Some(&grad_a), Some(&grad_b), None];
    let backward = queueing(device, || Ok(affine.backward_into(&call, &[Some(&a), None], &gradients)?))?;
    Ok(vec![
        line("memset", bare),
        line("cumsum-into", into),
        line("affine-into", two),
        line("cumsum-new", new),
        line("affine-backward-into", backward),
    ])
}

/// A family of committed kernels, of which a program needs one. A process pays for its first call once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Family {
    /// Running sums of short rows.
    Cumsum,
    /// Affine recurrences of short rows.
    Affine,
    /// Selective scans in f32.
    SelectiveScan,
    /// Selective scans in f32 that leave out all they may. No kernels are committed for them, so they run as whole calls.
    SelectiveScanBare,
    /// Mamba's layers in bf16.
    Mamba,
    /// Attention in bf16.
    Attention,
}

impl Family {
    /// The first call until its result is there (text to program, plan, kernel from its source to the device), the first gradient,
    /// and both once more, which leaves what memory and launches take.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn first_calls(self, device: &Device) -> Result<Vec<Line>, BenchError> {
        let (name, kernel, elem, sizes) = self.case();
        let given = self.tensors(kernel.name(), elem, sizes, device)?;
        let first = first_calls(name, kernel, &given, device)?;
        let again = first_calls(name, kernel, &given, device)?;
        let again = again.map(|own| Line { case: format!("{}-again", own.case), ..own });
        Ok(first.into_iter().chain(again).collect())
    }

    /// The parts of a first call and of a first gradient that need no driver, each by itself.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn parts(self, device: &Device) -> Result<Vec<Line>, BenchError> {
        let (name, kernel, elem, sizes) = self.case();
        let given = self.tensors(kernel.name(), elem, sizes, device)?;
        Whole { name, kernel, elem, sizes, given: &given }.parts()
    }

    /// Its name, kernel, element type and sizes.
    fn case(self) -> (&'static str, &'static Kernel, Elem, &'static [(&'static str, usize)]) {
        match self {
            Family::Cumsum => ("cumsum", kernels::cumsum::kernel(), Elem::F32, ROWS),
            Family::Affine => ("affine", kernels::affine::kernel(), Elem::F32, ROWS),
            Family::SelectiveScan => ("selective-scan", models::selective_scan::kernel(), Elem::F32, SELECTIVE),
            Family::SelectiveScanBare => {
                ("selective-scan-bare", models::selective_scan::kernel(), Elem::F32, SELECTIVE)
            }
            Family::Mamba => ("mamba", models::mamba::kernel(), Elem::Bf16, SELECTIVE),
            Family::Attention => ("attention", models::attention::kernel(), Elem::Bf16, ATTENTION),
        }
    }

    /// The tensors of a call, of most models with all that may be left out: that is what is committed of them. They are made of
    /// a program apart, so that the kernel reads its own in the call that is timed.
    fn tensors(
        self,
        name: &str,
        elem: Elem,
        sizes: &[(&str, usize)],
        device: &Device,
    ) -> Result<Vec<Option<Tensor>>, BenchError> {
        let programs = oplus_front::library_programs();
        let program = programs.iter().find(|program| program.name == name);
        let program = program.ok_or_else(|| BenchError::NoKernel(name.to_owned()))?;
        let size = |axis: &Axis| {
            let name = &program.axes[axis.0 as usize];
            sizes.iter().find(|(known, _)| known == name).map_or(1, |(_, size)| *size)
        };
        let is_bare = matches!(self, Family::Cumsum | Family::Affine | Family::SelectiveScanBare);
        let tensor = |param: &Param| {
            let shape: Vec<usize> = param.axes.iter().map(size).collect();
            let is_given = param.default.is_none() || !is_bare;
            is_given.then(|| Tensor::zeros(param.elem.in_call(elem), &shape, device)).transpose()
        };
        Ok(program.params.iter().map(tensor).collect::<Result<_, _>>()?)
    }
}

/// Tensors for the parameters that a call cannot do without.
fn required(
    kernel: &Kernel,
    tensor: impl Fn() -> Result<Tensor, oplus::Error>,
) -> Result<Vec<Option<Tensor>>, BenchError> {
    let given = |param: &Param| param.default.is_none().then(&tensor).transpose();
    Ok(kernel.program()?.params.iter().map(given).collect::<Result<_, _>>()?)
}

/// A first call, its outputs, and what a gradient needs of it.
fn first(
    case: &str,
    kernel: &Kernel,
    given: &[Option<Tensor>],
    device: &Device,
) -> Result<(Line, Vec<Tensor>, Call), BenchError> {
    let given: Vec<Option<&Tensor>> = given.iter().map(Option::as_ref).collect();
    device.synchronize()?;
    let start = Instant::now();
    let (outputs, call) = kernel.call(&given)?;
    device.synchronize()?;
    Ok((line(case, start.elapsed()), outputs, call))
}

/// The first call of a kernel, and the first gradient of its first output, from wherever the library's sources have them.
fn first_calls(
    name: &str,
    kernel: &Kernel,
    given: &[Option<Tensor>],
    device: &Device,
) -> Result<[Line; 2], BenchError> {
    let (call, outputs, called) = first(&format!("first-{name}"), kernel, given, device)?;
    let start = Instant::now();
    let cotangents: Vec<Option<&Tensor>> = outputs.iter().enumerate().map(|(k, y)| (k == 0).then_some(y)).collect();
    kernel.backward(&called, &cotangents)?;
    device.synchronize()?;
    Ok([call, line(format!("first-{name}-gradient"), start.elapsed())])
}

/// A kernel that no source has: a committed one under another name, at a shape that decides its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Users {
    /// An affine recurrence of a few short rows.
    Rows,
    /// A running sum of one long row, by look-back.
    CumsumLookBack,
    /// An affine recurrence along one long row, by look-back.
    AffineLookBack,
}

impl Users {
    /// The first call of the kernel and the first gradient.
    ///
    /// # Errors
    /// The errors of the library.
    pub fn first_calls(self, device: &Device) -> Result<[Line; 2], BenchError> {
        let (kernel, name, shape) = match self {
            Users::Rows => (kernels::affine::kernel(), "users-rows", SHAPE),
            Users::CumsumLookBack => (kernels::cumsum::kernel(), "users-cumsum-look-back", LONG),
            Users::AffineLookBack => (kernels::affine::kernel(), "users-affine-look-back", LONG),
        };
        let mut program = kernel.program()?.clone();
        program.name = format!("users_{}", program.name);
        let kernel = Kernel::new(program.name.clone().leak(), program.to_string().leak());
        let given = required(&kernel, || Tensor::zeros(Elem::F32, &shape, device))?;
        first_calls(name, &kernel, &given, device)
    }
}
