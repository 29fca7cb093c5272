//! Kernels on several ranks: checked against one device, and timed as the ranks grow.

use std::ops::Range;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use oplus::dist::Group;
use oplus::{Call, Device, Elem, Error, Kernel, Tensor, kernels, models};
use oplus_dsl::ir::{Axis, Param, Program};
use serde::Serialize;

/// A kernel with the axis along which it is divided, and the sizes of its other axes.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    kernel: &'static Kernel,
    axis: &'static str,
    sizes: &'static [(&'static str, usize)],
}

/// The cases that are checked and timed.
pub fn cases() -> [Case; 4] {
    let case = |name, kernel, axis, sizes| Case { name, kernel, axis, sizes };
    let heads = &[("B", 1), ("G", 1), ("H", 4), ("P", 64), ("N", 64)];
    let attention = &[("B", 1), ("G", 2), ("R", 1), ("M", 64), ("E", 64), ("F", 64)];
    [
        case("affine", kernels::affine::kernel(), "T", &[("B", 64)]),
        case("selective_scan", models::selective_scan::kernel(), "T", &[("B", 1), ("G", 1), ("D", 256), ("N", 16)]),
        case("ssd", models::ssd::kernel(), "T", heads),
        case("attention", models::attention::kernel(), "N", attention),
    ]
}

/// One line of the result.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The case.
    pub case: &'static str,
    /// `check`, `strong` (the tokens are divided) or `weak` (each rank has as many as one device).
    pub kind: &'static str,
    /// How many ranks there were.
    pub ranks: usize,
    /// Tokens of the whole sequence.
    pub tokens: usize,
    /// What each rank ran on.
    pub device: String,
    /// The largest difference from one device, of outputs and gradients, relative to the largest number of its tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Whether a second run gave the same bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_bits: Option<bool>,
    /// Milliseconds of a forward call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_ms: Option<f64>,
    /// Milliseconds of a forward call and its gradient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub both_ms: Option<f64>,
}

/// Outputs and gradients, on the CPU.
type Results = Vec<Tensor>;

impl Case {
    fn program(&self) -> Result<&'static Program, Error> {
        self.kernel.program()
    }

    /// Random inputs with that many tokens: decays are below 1, step sizes above 0.
    fn inputs(&self, tokens: usize) -> Result<Vec<Option<Tensor>>, Error> {
        let program = self.program()?;
        let mut rng = fastrand::Rng::with_seed(0xd157);
        let mut tensor = |param: &Param| {
            let shape = self.shape(program, &param.axes, tokens);
            let number = || match param.name.as_str() {
                "a" if param.axes.len() == shape.len() && self.name != "affine" => -rng.f32(),
                "a" | "delta" | "dt" => 0.9 * rng.f32(),
                _ => 2.0 * rng.f32() - 1.0,
            };
            Tensor::from_vec(std::iter::repeat_with(number).take(shape.iter().product()).collect::<Vec<f32>>(), &shape)
        };
        let given = |param: &Param| (param.default.is_none()).then(|| tensor(param)).transpose();
        program.params.iter().map(given).collect()
    }

    fn shape(&self, program: &Program, axes: &[Axis], tokens: usize) -> Vec<usize> {
        let size = |axis: &Axis| {
            let name = program.axis_name(*axis);
            let known = self.sizes.iter().find(|(other, _)| *other == name);
            if name == self.axis { tokens } else { known.map_or(1, |(_, size)| *size) }
        };
        axes.iter().map(size).collect()
    }

    /// The part of tensors, by their axes, on a device.
    fn parts<'a>(
        &self,
        tensors: impl Iterator<Item = (&'a [Axis], &'a Tensor)>,
        part: &Range<usize>,
        device: &Device,
    ) -> Result<Vec<Tensor>, Error> {
        let along = self.program()?.axis(self.axis);
        let cut = |(axes, tensor): (&[Axis], &Tensor)| {
            let at = axes.iter().position(|axis| Some(*axis) == along);
            let part = at.map_or(Ok(tensor.clone()), |at| tensor.slice(at, part.clone()))?;
            part.contiguous()?.to_device(device)
        };
        tensors.map(cut).collect()
    }
}

/// A rank's tensors.
struct Shard<'a> {
    case: &'a Case,
    inputs: Vec<Option<Tensor>>,
    cotangents: Vec<Tensor>,
}

impl<'a> Shard<'a> {
    fn of(case: &'a Case, whole: &[Option<Tensor>], part: &Range<usize>, device: &Device) -> Result<Shard<'a>, Error> {
        let program = case.program()?;
        let given = program.params.iter().zip(whole).filter_map(|(p, t)| Some((&p.axes[..], t.as_ref()?)));
        let mut parts = case.parts(given, part, device)?.into_iter();
        let inputs = whole.iter().map(|tensor| tensor.as_ref().and_then(|_| parts.next())).collect();
        let floats = program.outputs.iter().filter(|output| output.elem.is_float());
        let ones = |axes: &[Axis], elem: Elem| {
            let shape = case.shape(program, axes, part.len());
            debug_assert_eq!(elem.in_call(Elem::F32), Elem::F32);
            Tensor::full(1.0_f32, &shape, device)
        };
        let cotangents = floats.map(|output| ones(&output.axes, output.elem)).collect::<Result<_, _>>()?;
        Ok(Shard { case, inputs, cotangents })
    }

    fn forward(&self, group: Option<&Group>) -> Result<(Vec<Tensor>, Call), Error> {
        let inputs: Vec<_> = self.inputs.iter().map(Option::as_ref).collect();
        match group {
            Some(group) => self.case.kernel.call_sharded(group, self.case.axis, &inputs),
            None => self.case.kernel.call(&inputs),
        }
    }

    fn backward(&self, call: &Call) -> Result<Vec<Option<Tensor>>, Error> {
        self.case.kernel.backward(call, &self.cotangents.iter().map(Some).collect::<Vec<_>>())
    }

    fn results(&self, group: Option<&Group>) -> Result<Results, Error> {
        let (outputs, call) = self.forward(group)?;
        let gradients = self.backward(&call)?;
        outputs.iter().chain(gradients.iter().flatten()).map(Tensor::to_cpu).collect()
    }
}

/// Where every rank runs.
pub struct Ranks {
    /// One device for each rank.
    pub devices: Vec<Device>,
}

impl Ranks {
    fn part(&self, tokens: usize, rank: usize) -> Range<usize> {
        let ranks = self.devices.len();
        tokens * rank / ranks..tokens * (rank + 1) / ranks
    }

    /// Does some work on every rank with its part of the inputs.
    fn each<T: Send>(
        &self,
        case: &Case,
        tokens: usize,
        work: impl Fn(&Shard<'_>, &Group) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let whole = case.inputs(tokens)?;
        let rank = |group: Group| {
            let device = &self.devices[group.rank()];
            work(&Shard::of(case, &whole, &self.part(tokens, group.rank()), device)?, &group)
        };
        thread::scope(|scope| {
            let rank = &rank;
            let groups = Group::threads(self.devices.len()).into_iter();
            let ranks: Vec<_> = groups.map(|group| scope.spawn(move || rank(group))).collect();
            let lost = |_| Error::LostRank { rank: 0, reason: "its thread has panicked".into() };
            ranks.into_iter().map(|rank| rank.join().map_err(lost)?).collect()
        })
    }

    /// Compares every rank's results with those of one device.
    pub fn check(&self, case: &Case, tokens: usize) -> Result<Line, Error> {
        let whole = Shard::of(case, &case.inputs(tokens)?, &(0..tokens), &self.devices[0])?.results(None)?;
        let run = || self.each(case, tokens, |shard, group| shard.results(Some(group)));
        let (first, second) = (run()?, run()?);
        let program = case.program()?;
        let given = program.params.iter().filter(|p| p.elem.is_float() && p.default.is_none());
        let axes: Vec<&[Axis]> =
            program.outputs.iter().map(|o| &o.axes[..]).chain(given.map(|p| &p.axes[..])).collect();
        let (mut error, mut same_bits) = (0.0_f64, true);
        for (rank, (first, second)) in first.iter().zip(&second).enumerate() {
            let named = axes.iter().copied().zip(&whole);
            let wanted = case.parts(named, &self.part(tokens, rank), &Device::Cpu)?;
            for ((found, again), wanted) in first.iter().zip(second).zip(&wanted) {
                let (found, again, wanted) = (found.to_vec::<f32>()?, again.to_vec::<f32>()?, wanted.to_vec::<f32>()?);
                same_bits &= found.iter().zip(&again).all(|(x, y)| x.to_bits() == y.to_bits());
                error = error.max(difference(&found, &wanted));
            }
        }
        Ok(Line { error: Some(error), same_bits: Some(same_bits), ..self.line(case, "check", tokens) })
    }

    /// Times a call on all ranks; the fastest of some runs.
    pub fn time(&self, case: &Case, kind: &'static str, tokens: usize, runs: usize) -> Result<Line, Error> {
        let barrier = Barrier::new(self.devices.len());
        let timed = |shard: &Shard<'_>, group: &Group| {
            let group = (self.devices.len() > 1).then_some(group);
            let device = shard.inputs.iter().flatten().next().map_or(Device::Cpu, Tensor::device);
            let clock = |work: &dyn Fn() -> Result<(), Error>| -> Result<f64, Error> {
                let mut fastest = f64::INFINITY;
                for run in 0..=runs {
                    barrier.wait();
                    let start = Instant::now();
                    let done = work().and_then(|()| device.synchronize());
                    barrier.wait();
                    done?;
                    fastest = if run == 0 { fastest } else { fastest.min(start.elapsed().as_secs_f64() * 1e3) };
                }
                Ok(fastest)
            };
            let forward = clock(&|| shard.forward(group).map(drop))?;
            let both = clock(&|| shard.forward(group).and_then(|(_, call)| shard.backward(&call)).map(drop))?;
            Ok((forward, both))
        };
        let times = self.each(case, tokens, timed)?;
        let slowest = times.iter().fold((0.0_f64, 0.0_f64), |most, time| (most.0.max(time.0), most.1.max(time.1)));
        Ok(Line { forward_ms: Some(slowest.0), both_ms: Some(slowest.1), ..self.line(case, kind, tokens) })
    }

    fn line(&self, case: &Case, kind: &'static str, tokens: usize) -> Line {
        let (ranks, device) = (self.devices.len(), self.devices[0].to_string());
        let (error, same_bits, forward_ms, both_ms) = (None, None, None, None);
        Line { case: case.name, kind, ranks, tokens, device, error, same_bits, forward_ms, both_ms }
    }
}

/// The largest difference, relative to the largest number.
fn difference(found: &[f32], wanted: &[f32]) -> f64 {
    let scale = wanted.iter().fold(f32::MIN_POSITIVE, |scale, x| scale.max(x.abs()));
    let apart = found.iter().zip(wanted).map(|(x, y)| if x == y { 0.0 } else { f64::from((x - y).abs() / scale) });
    apart.fold(0.0, |most, x| if x.is_nan() || x > most { x } else { most })
}
