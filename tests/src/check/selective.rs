//! Mamba's selective scan where cases do not reach: every number of states, one row of 2²⁰ steps, more than 2³¹ elements.
//!
//! The expected numbers are computed here by plain loops over the recurrence, in f64, together with a bound. With ε the unit
//! roundoff of f32, H the recurrence of absolute values and decay a = exp(x), a step adds to the error of h
//!
//! ```text
//! E[t] = a·E[t−1] + ε·((|x| + 4)·a·H[t−1] + 4·|δ·b·u|)
//! ```
//!
//! and a sum of N products c·h is off by at most Σ|c|·E + (N + 4)·ε·Σ|c|·H. The gradient by u is the same recurrence
//! backwards, of λ\[t\] = c·ȳ + a\[t+1\]·λ\[t+1\].

use half::bf16;
use oplus::models::selective_scan;
use oplus::{Call, Device, Tensor};
use oplus_dsl::rng::Rng;

use super::CheckError;
use super::case::Extent;
use super::large::{compare, copied, ranked, together};
use super::oracle::Agreement;
use super::scenario::{Scenario, World, unexpected};

/// Unit roundoff of f32.
const EPSILON: f64 = f32::EPSILON as f64 / 2.0;
/// Numbers of states: all powers of two up to 256, and their neighbours.
const STATES: [usize; 20] = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 255, 256];

/// All scenarios of selective scans.
pub fn scenarios(extent: Extent) -> Vec<Scenario> {
    if extent == Extent::Quick {
        return vec![];
    }
    let mut all = vec![];
    for states in STATES {
        all.push(Scenario::new(format!("selective/{states} states"), move |world| {
            let sizes = Sizes { channels: 5, states, steps: 300 };
            (0..4).try_fold(Agreement::default(), |all, rank| Ok(together(all, agree(world, sizes, rank)?)))
        }));
    }
    let row = Sizes { channels: 1, states: 16, steps: 1 << 20 };
    all.push(Scenario::new("selective/one row of 2^20 steps", move |world| agree(world, row, 0)));
    all.push(Scenario::new("selective/more than 2^31 elements", many));
    all
}

/// The sizes of one sequence.
#[derive(Clone, Copy)]
struct Sizes {
    channels: usize,
    states: usize,
    steps: usize,
}

/// The inputs of one sequence, and the cotangent of y; steps are the last axis.
struct Inputs {
    sizes: Sizes,
    u: Vec<f32>,
    delta: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    y_bar: Vec<f32>,
}

/// A number and how far a result may be from it.
type Bounded = (f64, f64);

impl Inputs {
    /// Random numbers that `stored` keeps, decays from 0.3 to 1 − 2⁻¹³.
    fn random(sizes: Sizes, stored: fn(f32) -> f32) -> Inputs {
        let Sizes { channels, states, steps } = sizes;
        let mut rng = Rng::new((states + steps) as u64);
        let mut many = |n: usize, low: f64, high: f64| -> Vec<f32> {
            (0..n).map(|_| stored(rng.between(low, high) as f32)).collect()
        };
        let (u, y_bar) = (many(channels * steps, -1.0, 1.0), many(channels * steps, -1.0, 1.0));
        let (b, c) = (many(states * steps, -1.0, 1.0), many(states * steps, -1.0, 1.0));
        let delta = many(channels * steps, 1.0 / 4096.0, 1.0);
        let a = many(channels * states, -1.2, -0.5);
        Inputs { sizes, u, delta, a, b, c, y_bar }
    }

    /// The recurrence of one state of a channel over the times in order, from what each adds and how it is read; its sum
    /// goes to `out`, with the sum of absolute values.
    fn state(
        &self,
        (channel, state): (usize, usize),
        order: impl Iterator<Item = usize>,
        decays: impl Fn(usize) -> Option<usize>,
        (adds, reads): (impl Fn(usize) -> f64, impl Fn(usize) -> f64),
        out: &mut [(f64, f64, f64)],
    ) {
        let a = f64::from(self.a[channel * self.sizes.states + state]);
        let (mut h, mut total, mut error) = (0.0, 0.0, 0.0);
        for t in order {
            let x = decays(t).map_or(f64::NEG_INFINITY, |t| f64::from(self.delta[channel * self.sizes.steps + t]) * a);
            let (decay, added) = (x.exp(), adds(t));
            let slack = if decay > 0.0 { (x.abs() + 4.0) * decay * total } else { 0.0 };
            error = decay * error + EPSILON * (slack + 4.0 * added.abs());
            (h, total) = (decay * h + added, decay * total + added.abs());
            let read = reads(t);
            let sums = &mut out[channel * self.sizes.steps + t];
            *sums = (sums.0 + read * h, sums.1 + read.abs() * total, sums.2 + read.abs() * error);
        }
    }

    /// y and the gradient by u.
    fn expected(&self) -> [Vec<Bounded>; 2] {
        let Sizes { channels, states, steps } = self.sizes;
        let mut sums = [vec![(0.0, 0.0, 0.0); channels * steps], vec![(0.0, 0.0, 0.0); channels * steps]];
        let at = |all: &[f32], row: usize, t: usize| f64::from(all[row * steps + t]);
        for (d, n) in (0..channels).flat_map(|d| (0..states).map(move |n| (d, n))) {
            let adds = |t| at(&self.delta, d, t) * at(&self.b, n, t) * at(&self.u, d, t);
            let before = |t: usize| t.checked_sub(1).map(|_| t);
            self.state((d, n), 0..steps, before, (adds, |t| at(&self.c, n, t)), &mut sums[0]);
            let adds = |t| at(&self.c, n, t) * at(&self.y_bar, d, t);
            let after = |t: usize| (t + 1 < steps).then_some(t + 1);
            let reads = |t| at(&self.delta, d, t) * at(&self.b, n, t);
            self.state((d, n), (0..steps).rev(), after, (adds, reads), &mut sums[1]);
        }
        let bounded = |(value, total, error): (f64, f64, f64)| (value, error + (states + 6) as f64 * EPSILON * total);
        sums.map(|all| all.into_iter().map(bounded).collect())
    }

    /// The tensors of u, delta, a, b and c, and the cotangent, for one sequence.
    fn tensors(&self, device: &Device) -> Result<[Tensor; 6], CheckError> {
        let Sizes { channels, states, steps } = self.sizes;
        let tensor = |all: &[f32], shape: &[usize]| Tensor::from_slice(all, shape)?.to_device(device);
        let (rows, columns) = ([1, 1, channels, steps], [1, 1, states, steps]);
        Ok([
            tensor(&self.u, &rows)?,
            tensor(&self.delta, &rows)?,
            tensor(&self.a, &[1, channels, states])?,
            tensor(&self.b, &columns)?,
            tensor(&self.c, &columns)?,
            tensor(&self.y_bar, &rows)?,
        ])
    }
}

/// y and the gradient by u.
fn run([u, delta, a, b, c, y_bar]: &[Tensor; 6]) -> Result<[Tensor; 2], CheckError> {
    let kernel = selective_scan::kernel();
    let given = [Some(u), Some(delta), Some(a), Some(b), Some(c), None, None, None];
    let (mut outputs, call): (Vec<Tensor>, Call) = kernel.call(&given)?;
    match kernel.backward(&call, &[Some(y_bar), None])?.swap_remove(0) {
        Some(gradient) => Ok([outputs.swap_remove(0), gradient]),
        None => unexpected("no gradient by u"),
    }
}

/// One sequence, against the loops.
fn agree(world: &World, sizes: Sizes, rank: usize) -> Result<Agreement, CheckError> {
    let (device, inputs) = (world.device()?, Inputs::random(sizes, |x| x));
    ranked(&device, rank);
    let found = run(&inputs.tensors(&device)?)?;
    let mut all = Agreement::default();
    for (what, (found, expected)) in ["y", "u.bar"].into_iter().zip(found.iter().zip(inputs.expected())) {
        let found: Vec<f64> = found.to_vec::<f32>()?.into_iter().map(f64::from).collect();
        all = together(all, within(what, &found, &expected, 0.0)?);
    }
    Ok(all)
}

/// Compares numbers with bounds, and with a relative error besides.
fn within(what: &str, found: &[f64], expected: &[Bounded], relative: f64) -> Result<Agreement, CheckError> {
    let mut all = Agreement { compared: found.len(), ..Agreement::default() };
    for (index, (found, (wanted, bound))) in found.iter().zip(expected).enumerate() {
        let bound = bound + relative * wanted.abs() + f64::from(f32::MIN_POSITIVE);
        let error = (found - wanted).abs() / bound;
        if error.is_nan() || error > 1.0 {
            let (output, found, wanted) = (what.to_owned(), *found, *wanted);
            return Err(CheckError::Wrong { output, index, found, wanted, bound });
        }
        all.worst = all.worst.max(error);
    }
    Ok(all)
}

/// Many equal sequences of bf16: the first against the loops, the others against the first, to the bit.
fn many(world: &World) -> Result<Agreement, CheckError> {
    let (device, sizes) = (world.device()?, Sizes { channels: 1024, states: 4, steps: 2048 });
    let inputs = Inputs::random(sizes, |x| bf16::from_f32(x).to_f32());
    let sequences = (1 << 31) / (sizes.channels * sizes.steps) + 1;
    let tensor = |all: &[f32], rows: usize| -> Result<Tensor, CheckError> {
        let block: Vec<bf16> = all.iter().map(|x| bf16::from_f32(*x)).collect();
        Ok(Tensor::from_cuda_slice(copied(&block, sequences, &device)?, &[sequences, 1, rows, sizes.steps])?)
    };
    let (rows, columns) = (|all| tensor(all, sizes.channels), |all| tensor(all, sizes.states));
    let a = Tensor::from_slice(&inputs.a, &[1, sizes.channels, sizes.states])?.to_device(&device)?;
    let given =
        [rows(&inputs.u)?, rows(&inputs.delta)?, a, columns(&inputs.b)?, columns(&inputs.c)?, rows(&inputs.y_bar)?];
    let mut all = Agreement::default();
    for (what, (found, expected)) in ["y", "u.bar"].into_iter().zip(run(&given)?.iter().zip(inputs.expected())) {
        let first = found.slice(0, 0..1)?.to_vec::<bf16>()?;
        let numbers: Vec<f64> = first.iter().map(|x| x.to_f64()).collect();
        all = together(all, within(what, &numbers, &expected, bf16::EPSILON.to_f64())?);
        all = together(all, compare(what, found, &first)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loops_are_what_the_library_gives_on_the_cpu() -> Result<(), CheckError> {
        for states in [1, 5, 16] {
            let inputs = Inputs::random(Sizes { channels: 3, states, steps: 200 }, |x| x);
            let found = run(&inputs.tensors(&Device::Cpu)?)?;
            for (what, (found, expected)) in ["y", "u.bar"].into_iter().zip(found.iter().zip(inputs.expected())) {
                let found: Vec<f64> = found.to_vec::<f32>()?.into_iter().map(f64::from).collect();
                let all = within(what, &found, &expected, 0.0)?;
                assert!(all.compared == 600 && all.worst < 1.0, "{what}: {}", all.worst);
                let mut wrong = found.clone();
                wrong[77] += 20.0 * expected[77].1;
                assert!(within(what, &wrong, &expected, 0.0).is_err());
            }
        }
        Ok(())
    }
}
