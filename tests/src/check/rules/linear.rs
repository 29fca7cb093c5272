//! Linear attention with decays and the state-space dual by the rule of flash-linear-attention, with the shapes of its tests.

use oplus::{Device, Elem, Kernel, models};
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::rng::Rng;
use oplus_dsl::scalar;

use super::gated::{rates_linear_attention, shared_linear_attention, time_invariant_linear_attention};
use super::recurrence::{Outcome, Recurrence};
use super::{floats, numbers, tensor};
use crate::check::CheckError;
use crate::check::case::Extent;
use crate::check::oracle::Agreement;
use crate::check::scenario::Scenario;

/// The root mean square of an error may be so much of that of what is exact.
pub(super) const RULE: f64 = 0.005;
/// Gradients of decays are also accepted when no element is wrong by more.
const DECAYS: f64 = 2e-4;

/// The decays of a recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decay {
    /// None: linear attention.
    Never,
    /// One for a head: retention.
    Head,
    /// One for a head and time.
    Time,
    /// One for a head and time, of packed sequences: nothing reaches from one into the next.
    Packed,
    /// One for every channel of the keys: gated linear attention.
    Channel,
    /// One for every channel of the keys, with keys and queries that heads share.
    Shared,
    /// One for every channel of the keys, the same at all times.
    TimeInvariant,
    /// A rate for every channel of the keys, times a step for every head and time.
    Rates,
}

/// A call: batch, times, heads, channels of keys, channels of values; logarithms of decays are those of a sigmoid over
/// `normaliser`.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    decay: Decay,
    elem: Elem,
    sizes: [usize; 5],
    normaliser: f64,
}

const ALL: [Decay; 8] = [
    Decay::Time,
    Decay::Packed,
    Decay::Channel,
    Decay::Shared,
    Decay::TimeInvariant,
    Decay::Rates,
    Decay::Head,
    Decay::Never,
];

/// All scenarios of linear attention.
pub fn scenarios(extent: Extent) -> Vec<Scenario> {
    let shapes = [
        ([1, 63, 1, 64, 64], 1.0),
        ([2, 500, 4, 60, 60], 1.0),
        ([2, 1024, 8, 128, 128], 0.1),
        ([2, 1024, 8, 128, 128], 1.0),
        ([2, 1024, 8, 128, 128], 10.0),
        ([4, 2048, 8, 64, 64], 0.1),
        // Widths that end in the middle of a part.
        ([2, 1024, 4, 64, 65], 1.0),
        ([2, 1024, 8, 128, 80], 1.0),
        ([2, 1024, 4, 64, 136], 1.0),
        // More keys than a block sums over: the axis is in two.
        ([2, 512, 4, 256, 64], 1.0),
        ([1, 500, 2, 192, 128], 10.0),
        ([1, 512, 2, 256, 512], 1.0),
    ];
    let elems: &[Elem] = if extent == Extent::Long { &[Elem::Bf16, Elem::F16, Elem::F32] } else { &[Elem::Bf16] };
    let mut all: Vec<Scenario> = vec![];
    for (decay, elem) in ALL.iter().flat_map(|decay| elems.iter().map(move |elem| (*decay, *elem))) {
        // The cotangent of a decay at all times is a sum over them: of weak decays it leaves the range of f16.
        let is_summed = matches!(decay, Decay::TimeInvariant | Decay::Rates);
        let is_in_range = |normaliser: f64| !is_summed || elem != Elem::F16 || normaliser <= 1.0;
        for (sizes, normaliser) in shapes.into_iter().filter(|(_, normaliser)| is_in_range(*normaliser)) {
            let subject = Subject { decay, elem, sizes, normaliser };
            let [b, t, h, k, v] = sizes;
            let values = if v == k { String::new() } else { format!("x{v}") };
            let name =
                format!("rules/linear attention {decay:?} {elem} {b}x{t}x{h}x{k}{values} normaliser {normaliser}");
            all.push(Scenario::new(name, move |world| subject.check(&world.device()?)));
        }
    }
    all
}

/// The tensors of a call by name, axes as in its program.
type Named = Vec<(String, Vec<f64>)>;

fn named<'n>(all: &'n Named, name: &str) -> &'n [f64] {
    all.iter().find(|(own, _)| own == name).map_or(&[], |(_, numbers)| numbers)
}

impl Subject {
    /// Runs forward and backward and compares.
    ///
    /// # Errors
    /// [`CheckError::Wrong`] when the error is larger than the rule allows; those of the device.
    pub fn check(&self, device: &Device) -> Result<Agreement, CheckError> {
        let program = self.kernel().program()?;
        let (given, bars) = self.given(program);
        let found = self.run(program, (&given, &bars), device)?;
        let wanted = self.wanted(&given, &bars);
        let mut all = Agreement::default();
        for (name, wanted) in &wanted {
            let worst = judge(name, named(&found, name), wanted)?;
            all = Agreement { worst: all.worst.max(worst), compared: all.compared + wanted.len(), unbounded: 0 };
        }
        Ok(all)
    }

    fn kernel(&self) -> &'static Kernel {
        match self.decay {
            Decay::Never => models::linear_attention::kernel(),
            Decay::Head => models::retention::kernel(),
            Decay::Time => models::monoid_attention::kernel(),
            Decay::Packed => models::monoid_attention_packed::kernel(),
            Decay::Channel => models::gated_linear_attention::kernel(),
            Decay::Shared => shared_linear_attention::kernel(),
            Decay::TimeInvariant => time_invariant_linear_attention::kernel(),
            Decay::Rates => rates_linear_attention::kernel(),
        }
    }

    fn shape(&self, program: &Program, axes: impl IntoIterator<Item = Axis>) -> Vec<usize> {
        let names = ["B", "T", "H", "K", "V"];
        let size = |axis: Axis| match names.iter().position(|n| *n == program.axis_name(axis)) {
            Some(place) => self.sizes[place],
            None => self.offsets().len(),
        };
        axes.into_iter().map(size).collect()
    }

    /// Where packed sequences begin, and the end of the last: of several lengths, one of them 0.
    fn offsets(&self) -> [usize; 6] {
        let t = self.sizes[1];
        [0, t / 7, t / 3, t / 3, t / 2 + 1, t]
    }

    /// Random inputs, and cotangents of o and of the last state.
    fn given(&self, program: &Program) -> (Named, Named) {
        let mut rng = Rng::new(self.sizes[1] as u64);
        let mut of = |name: &str, elem: Elem, axes: &[Axis]| {
            let len = self.shape(program, axes.iter().copied()).iter().product();
            if name == "cu_seqlens" {
                return self.offsets().map(|time| time as f64).to_vec();
            }
            let mut all = numbers(elem, len, &mut rng);
            if name == "g" {
                let gate = |x: &mut f64| *x = scalar::round(elem, -(-*x).exp().ln_1p() / self.normaliser);
                all.iter_mut().for_each(gate);
            }
            if name == "dt" {
                all.iter_mut().for_each(|x| *x = scalar::round(elem, 0.1 + x.abs() / 2.0));
            }
            all
        };
        let params = program.params.iter().filter(|p| p.name != "g0");
        let given = params.map(|p| (p.name.clone(), of(&p.name, p.elem.in_call(self.elem), &p.axes))).collect();
        let outputs = program.outputs.iter().filter(|o| o.name != "g_last");
        let bars = outputs.map(|o| (o.name.clone(), of("", o.elem.in_call(self.elem), &o.axes))).collect();
        (given, bars)
    }

    fn run(&self, program: &Program, (given, bars): (&Named, &Named), device: &Device) -> Result<Named, CheckError> {
        let place = |name: &str, elem: Elem, axes: &[Axis], all: &Named| {
            let numbers = named(all, name);
            let shape = self.shape(program, axes.iter().copied());
            let absent = !all.iter().any(|(own, _)| own == name);
            (!absent).then(|| tensor(elem.in_call(self.elem), &shape, numbers, device)).transpose()
        };
        let inputs = program.params.iter().map(|p| place(&p.name, p.elem, &p.axes, given));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let (outputs, call) = self.kernel().call(&inputs.iter().map(Option::as_ref).collect::<Vec<_>>())?;
        let cotangents = program.outputs.iter().map(|o| place(&o.name, o.elem, &o.axes, bars));
        let cotangents = cotangents.collect::<Result<Vec<_>, _>>()?;
        let gradients = self.kernel().backward(&call, &cotangents.iter().map(Option::as_ref).collect::<Vec<_>>())?;
        let mut found: Named = vec![];
        for (output, tensor) in program.outputs.iter().zip(&outputs) {
            found.push((output.name.clone(), floats(tensor)?));
        }
        for (param, gradient) in program.params.iter().zip(&gradients) {
            if let Some(gradient) = gradient {
                found.push((format!("{}.bar", param.name), floats(gradient)?));
            }
        }
        Ok(found)
    }

    /// The expected results, by loops over every head.
    fn wanted(&self, given: &Named, bars: &Named) -> Named {
        let [b, t, h, k, v] = self.sizes;
        // Packed sequences take no state and leave none.
        let part = |all: &[f64], head: usize, len: usize| {
            all.get(head * len..(head + 1) * len).map_or_else(|| vec![0.0; len], <[f64]>::to_vec)
        };
        let starts = self.offsets();
        let logs = |head: usize| -> Vec<f64> {
            let g = named(given, "g");
            let log = |(time, channel): (usize, usize)| match self.decay {
                Decay::Never => 0.0,
                Decay::Head => g[head % h],
                Decay::Packed if starts.contains(&time) => f64::NEG_INFINITY,
                Decay::Time | Decay::Packed => g[head * t + time],
                Decay::Channel | Decay::Shared => g[(head * t + time) * k + channel],
                Decay::TimeInvariant => g[head % h * k + channel],
                Decay::Rates => g[head % h * k + channel] * named(given, "dt")[head * t + time],
            };
            (0..t).flat_map(|time| (0..k).map(move |channel| (time, channel))).map(log).collect()
        };
        let outcome = |head: usize| {
            let shared = if self.decay == Decay::Shared { head / h } else { head };
            let factor = |name: &str, (head, width): (usize, usize)| part(named(given, name), head, t * width);
            Recurrence {
                sizes: [t, k, v],
                factors: [factor("q", (shared, k)), factor("k", (shared, k)), factor("v", (head, v))],
                g: logs(head),
                s0: part(named(given, "s0"), head, k * v),
                bars: [part(named(bars, "o"), head, t * v), part(named(bars, "s_last"), head, k * v)],
            }
            .run()
        };
        let outcomes: Vec<Outcome> = (0..b * h).map(outcome).collect();
        let joined = |of: &dyn Fn(&Outcome) -> &Vec<f64>| outcomes.iter().flat_map(|o| of(o).clone()).collect();
        let mut all: Named = vec![
            ("o".into(), joined(&|o| &o.outputs[0])),
            ("s_last".into(), joined(&|o| &o.outputs[1])),
            ("q.bar".into(), self.of_keys(joined(&|o| &o.gradients[0]))),
            ("k.bar".into(), self.of_keys(joined(&|o| &o.gradients[1]))),
            ("v.bar".into(), joined(&|o| &o.gradients[2])),
            ("s0.bar".into(), joined(&|o| &o.gradients[4])),
        ];
        let decays: Vec<f64> = joined(&|o| &o.gradients[3]);
        all.extend(self.decay_gradients(given, decays));
        all.retain(|(name, _)| self.decay != Decay::Packed || !["s_last", "s0.bar"].contains(&name.as_str()));
        all
    }

    /// The gradient of keys or queries from that of every head.
    fn of_keys(&self, all: Vec<f64>) -> Vec<f64> {
        let [_, t, h, k, _] = self.sizes;
        let summed = |heads: &[f64]| (0..t * k).map(|at| heads.iter().skip(at).step_by(t * k).sum::<f64>()).collect();
        match self.decay {
            Decay::Shared => all.chunks(h * t * k).flat_map(|heads| -> Vec<f64> { summed(heads) }).collect(),
            _ => all,
        }
    }

    /// The gradients of what decays are computed from, from those of every head, time and channel.
    fn decay_gradients(&self, given: &Named, all: Vec<f64>) -> Named {
        let [_, t, h, k, _] = self.sizes;
        let summed = |len: usize| all.chunks(len).map(|part| part.iter().sum()).collect::<Vec<f64>>();
        let gradient = match self.decay {
            Decay::Never => return vec![],
            Decay::Rates => return self.rate_gradients(given, &all),
            Decay::Channel | Decay::Shared => all,
            Decay::TimeInvariant => self.over_times(&all),
            Decay::Time | Decay::Packed => summed(k),
            Decay::Head => {
                let heads = summed(t * k);
                (0..h).map(|head| heads.iter().skip(head).step_by(h).sum()).collect()
            }
        };
        vec![("g.bar".into(), gradient)]
    }

    /// Sums over batches and times.
    fn over_times(&self, all: &[f64]) -> Vec<f64> {
        let [_, t, h, k, _] = self.sizes;
        let of = |head: usize, channel: usize| all.iter().skip(head * t * k + channel).step_by(k).take(t);
        let batches = all.len() / (h * t * k);
        let sum = |at: usize| (0..batches).flat_map(|b| of(b * h + at / k, at % k)).sum();
        (0..h * k).map(sum).collect()
    }

    /// The gradients of rates and of steps, whose products are the logarithms of decays.
    fn rate_gradients(&self, given: &Named, all: &[f64]) -> Named {
        let [_, t, h, k, _] = self.sizes;
        let (g, dt) = (named(given, "g"), named(given, "dt"));
        let by_steps: Vec<f64> = all.iter().enumerate().map(|(at, bar)| bar * dt[at / k]).collect();
        let rates = |at: usize| &g[at / t % h * k..][..k];
        let of_step = |(at, bars): (usize, &[f64])| bars.iter().zip(rates(at)).map(|(bar, g)| bar * g).sum();
        let steps = all.chunks(k).enumerate().map(of_step).collect();
        vec![("g.bar".into(), self.over_times(&by_steps)), ("dt.bar".into(), steps)]
    }
}

/// The error of an output in units of what the rule allows.
pub(super) fn judge(output: &str, found: &[f64], exact: &[f64]) -> Result<f64, CheckError> {
    judge_by(RULE, output, found, exact)
}

/// The error of an output in units of a relative root mean square.
pub(super) fn judge_by(rule: f64, output: &str, found: &[f64], exact: &[f64]) -> Result<f64, CheckError> {
    let square = |all: &mut dyn Iterator<Item = f64>| all.map(|x| x * x).sum::<f64>().sqrt();
    let error = square(&mut found.iter().zip(exact).map(|(a, b)| a - b));
    let at = |all: &[f64], i: usize| all.get(i).copied().unwrap_or(f64::NAN);
    // Numbers that are too small for f32 count as 0.
    let bound = (rule * square(&mut exact.iter().copied())).max(f64::from(f32::MIN_POSITIVE));
    let (ratio, apart) = (error / bound, |i: usize| (at(found, i) - exact[i]).abs());
    let most = (0..exact.len()).max_by(|a, b| apart(*a).total_cmp(&apart(*b))).unwrap_or(0);
    if found.len() == exact.len() && (ratio <= 1.0 || output == "g.bar" && apart(most) <= DECAYS) {
        return Ok(ratio.min(1.0));
    }
    let (output, found, wanted) = (output.to_owned(), at(found, most), at(exact, most));
    Err(CheckError::Wrong { output, index: most, found, wanted, bound: (wanted - found).abs() / ratio })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_follows_the_rule_on_a_cpu() {
        for decay in ALL {
            for (elem, sizes, normaliser) in [
                (Elem::Bf16, [1, 63, 1, 16, 12], 1.0),
                (Elem::F16, [2, 50, 3, 6, 7], 10.0),
                (Elem::F32, [1, 33, 2, 5, 3], 0.1),
            ] {
                let subject = Subject { decay, elem, sizes, normaliser };
                let agreement = subject.check(&Device::Cpu).unwrap_or_else(|e| panic!("{subject:?}: {e}"));
                assert!(agreement.compared > 0 && agreement.worst > 0.0, "{subject:?}");
            }
        }
    }

    #[test]
    fn an_error_of_a_hundredth_breaks_the_rule() {
        let exact: Vec<f64> = (1..50).map(f64::from).collect();
        let wrong: Vec<f64> = exact.iter().map(|x| 1.01 * x).collect();
        assert!(judge("o", &wrong, &exact).is_err() && judge("o", &exact, &exact).is_ok());
        assert!(judge("o", &[0.0], &[1e-168]).is_ok() && judge("o", &[1e-30], &[1e-168]).is_err());
        assert!(judge("o", &[f64::NAN; 49], &exact).is_err() && judge("o", &exact[1..], &exact).is_err());
    }
}
