//! Recurrences whose decays are above 1: whole = chunks = single steps where every state is finite, although the product of
//! the decays is not.
//!
//! Every model below is h[t] = a[t]·h[t−1] + b[t] with a, b ≥ 0 in another form. The numbers are compared with the recurrence
//! in f64, within a bound that runs along with it: e[t] = a[t]·e[t−1] + C·(ε·h[t] + δ), ε and δ the spacing of `f32` at 1
//! and at 0, and 2⁻¹²⁶ of the largest state so far, which may be forgotten.

use oplus::kernels::{affine, affine_time_first, affine_with_resets, complex_affine, log_decay, matrix2};
use oplus::models::{multi_state_ssm, ssm_varying};
use oplus::{Kernel, Tensor, ordered};
use oplus_dsl::rng::Rng;

/// The tensors of a call, and what it gives.
type Tensors = Vec<Option<Tensor>>;

const EPSILON: f64 = f32::EPSILON as f64;
const FORGOTTEN: f64 = f32::MIN_POSITIVE as f64;
const LEAST: f64 = 1.0 / (1_u64 << 50) as f64 / (1_u64 << 50) as f64 / (1_u64 << 49) as f64;

/// A recurrence of one row: decays, what is added, and the state before.
#[derive(Clone, Debug)]
struct Row {
    a: Vec<f32>,
    b: Vec<f32>,
    h0: f32,
}

/// States of a recurrence in f64 and how far `f32` may be off.
struct States {
    h: Vec<f64>,
    off: Vec<f64>,
}

impl States {
    /// The states of h[t] = a[t]·h[t−1] + b[t], `c` the rounding errors of a step.
    fn of(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>, h0: f64, c: f64) -> States {
        let (mut h, mut off, mut most) = (h0, 0.0, h0);
        let step = |(a, b): (f64, f64)| {
            h = a * h + b;
            off = a * off + if h > 0.0 { c * (EPSILON * h + LEAST) } else { 0.0 };
            most = h.max(most);
            (h, off + FORGOTTEN * most)
        };
        let (h, off) = a.zip(b).map(step).unzip();
        States { h, off }
    }

    fn check(&self, found: &[f32], what: &str) {
        assert_eq!(found.len(), self.h.len(), "{what}");
        for (t, (found, (h, off))) in found.iter().zip(self.h.iter().zip(&self.off)).enumerate() {
            assert!((f64::from(*found) - h).abs() <= *off, "{what}, time {t}: {found} instead of {h} ± {off:e}");
        }
    }
}

/// Sequences whose states are finite: at first all that is met is 0.
fn rows(n: usize) -> Vec<(&'static str, Row)> {
    let constant = |a: f32| vec![a; n];
    let late = |value: f32| {
        let mut b = vec![0.0; n];
        b[n - 9000.min(n)] = value;
        b
    };
    let mut all = vec![
        ("nothing grows", Row { a: constant(1.0055), b: constant(0.0), h0: 0.0 }),
        ("a late element grows", Row { a: constant(1.0055), b: late(1e-20), h0: 0.0 }),
        ("nothing grows fast", Row { a: constant(1e30), b: constant(0.0), h0: 0.0 }),
        ("everything is forgotten", Row { a: constant(0.25), b: late(2e38), h0: 2e38 }),
        ("nothing is left", Row { a: constant(0.5), b: constant(1e-41), h0: 1e-38 }),
    ];
    all.extend((0..4).map(|seed| ("random", random(n, seed))));
    all
}

/// Decays from 1e−10 to 1e30 and elements from 1e−44 to 1, such that no state exceeds 1; resets, and long times at 0.
fn random(n: usize, seed: u64) -> Row {
    let mut rng = Rng::new(seed);
    let h0 = [0.0, 1e-30, 1.0, 1e-44][seed as usize % 4];
    let (mut h, mut row) = (f64::from(h0), Row { a: vec![], b: vec![], h0 });
    for _ in 0..n {
        let a = [1.0055, 1.5, 0.5, 1e10, 1e30, 1e-10, 0.0, 1.0][rng.below(if h == 0.0 { 5 } else { 8 })] as f32;
        let b = [1e-44, 1e-20, 1.0][rng.below(3)] as f32;
        let a = if f64::from(a) * h > 0.5 { 0.5 } else { a };
        let b = if rng.below(if h == 0.0 { 5000 } else { 50 }) == 0 && f64::from(a) * h < 1e-3 { 0.5 * b } else { 0.0 };
        h = f64::from(a) * h + f64::from(b);
        // A state that no `f32` tells from 0 is 0, so that it does not grow again.
        if h < 1e-43 && a < 1.0 {
            row.a.push(0.0);
            row.b.push(b);
            h = f64::from(b);
            continue;
        }
        row.a.push(a);
        row.b.push(b);
    }
    row
}

/// A form of the recurrence.
struct Model {
    kernel: &'static Kernel,
    /// The inputs that hold the recurrence of one row, the last of them the states.
    inputs: fn(&Row) -> Tensors,
    /// The inputs that are states: all of one length.
    states: &'static [(usize, usize)],
    /// The axis of time of the inputs.
    time: usize,
    /// How the output of some numbers is read as states.
    read: fn(&[Vec<f32>]) -> Vec<f32>,
    /// Rounding errors of a step.
    rounding: f64,
    /// The input whose gradient is λ[t] = a[t+1]·λ[t+1] + h̄[t].
    adds: Option<usize>,
}

fn tensor(all: &[f32], shape: &[usize]) -> Option<Tensor> {
    Some(Tensor::from_slice(all, shape).unwrap())
}

fn row(all: &[f32]) -> Option<Tensor> {
    tensor(all, &[1, all.len()])
}

/// Checks several rows or channels, of which only the first is not 0.
fn widened(all: &[f32], lanes: usize, is_inside: bool) -> Vec<f32> {
    let mut wide = vec![0.0; all.len() * lanes];
    for (t, x) in all.iter().enumerate() {
        wide[if is_inside { t * lanes } else { t }] = *x;
    }
    wide
}

/// The angle by which complex numbers turn at every step.
const TURN: f32 = 0.7;

fn turned(all: &[f32]) -> [Vec<f32>; 2] {
    [TURN.cos(), TURN.sin()].map(|part| all.iter().map(|x| part * x).collect())
}

fn lengths(pairs: &[Vec<f32>]) -> Vec<f32> {
    let squares = |k: usize, x: f32| pairs[0][k].hypot(x);
    pairs[1].iter().enumerate().map(|(k, x)| squares(k, *x)).collect()
}

/// The recurrence with states of one number, which are the input 2 and the output 1, and λ the gradient of the input 1.
fn affine_of(
    kernel: &'static Kernel,
    inputs: fn(&Row) -> Tensors,
    read: fn(&[Vec<f32>]) -> Vec<f32>,
    rounding: f64,
) -> Model {
    Model { kernel, inputs, states: &[(2, 1)], time: 1, read, rounding, adds: Some(1) }
}

fn first(all: &[Vec<f32>]) -> Vec<f32> {
    all[0].clone()
}

fn models() -> Vec<Model> {
    [plain(), structured(), state_spaces()].into_iter().flatten().collect()
}

/// Rows, channels, and decays as logarithms.
fn plain() -> Vec<Model> {
    vec![
        affine_of(affine::kernel(), |r| vec![row(&r.a), row(&r.b), tensor(&[r.h0], &[1])], first, 8.0),
        affine_of(
            affine::kernel(),
            |r| {
                let wide = |x: &[f32]| tensor(&widened(x, 3, false), &[3, x.len()]);
                vec![wide(&r.a), wide(&r.b), tensor(&[r.h0, 0.0, 0.0], &[3])]
            },
            |all| all[0][..all[0].len() / 3].to_vec(),
            8.0,
        ),
        affine_of(
            affine_time_first::kernel(),
            |r| {
                let wide = |x: &[f32]| tensor(&widened(x, 3, true), &[1, x.len(), 3]);
                vec![wide(&r.a), wide(&r.b), tensor(&[r.h0, 0.0, 0.0], &[1, 3])]
            },
            |all| all[0].iter().step_by(3).copied().collect(),
            8.0,
        ),
        affine_of(
            log_decay::kernel(),
            |r| {
                let g: Vec<f32> = r.a.iter().map(|a| a.ln()).collect();
                vec![row(&g), row(&r.b), tensor(&[r.h0], &[1])]
            },
            first,
            400.0,
        ),
    ]
}

/// Resets, and complex numbers.
fn structured() -> Vec<Model> {
    vec![
        Model {
            kernel: affine_with_resets::kernel(),
            inputs: |r| {
                let resets: Vec<bool> = r.a.iter().map(|a| *a == 0.0).collect();
                let a: Vec<f32> = r.a.iter().map(|a| if *a == 0.0 { 1e30 } else { *a }).collect();
                let resets = Tensor::from_slice(&resets, &[1, resets.len()]).unwrap();
                vec![row(&a), row(&r.b), Some(resets), tensor(&[r.h0], &[1])]
            },
            states: &[(3, 1)],
            time: 1,
            read: first,
            rounding: 8.0,
            adds: Some(1),
        },
        Model {
            kernel: complex_affine::kernel(),
            inputs: |r| {
                let [re, im] = turned(&r.a);
                // Elements turn as the states do, so that their lengths add up.
                let angle = |t: usize| (t + 1) as f64 * f64::from(TURN);
                let part = |of: fn(f64) -> f64| r.b.iter().enumerate().map(move |(t, b)| b * of(angle(t)) as f32);
                let (b_re, b_im): (Vec<f32>, Vec<f32>) = (part(f64::cos).collect(), part(f64::sin).collect());
                vec![row(&re), row(&im), row(&b_re), row(&b_im), tensor(&[r.h0], &[1]), tensor(&[0.0], &[1])]
            },
            states: &[(4, 2), (5, 3)],
            time: 1,
            read: lengths,
            rounding: 40.0,
            adds: None,
        },
    ]
}

/// State spaces, of one state and of several.
fn state_spaces() -> Vec<Model> {
    vec![
        affine_of(
            ssm_varying::kernel(),
            |r| {
                let ones = vec![1.0; r.a.len()];
                vec![row(&r.b), row(&r.a), row(&ones), row(&ones), tensor(&[r.h0], &[1])]
            },
            first,
            8.0,
        )
        .with_states(&[(4, 1)])
        .adding(0),
        affine_of(
            multi_state_ssm::kernel(),
            |r| {
                let n = r.a.len();
                let three = |x: &[f32]| tensor(&[x, x, x].concat(), &[1, 3, n]);
                let quarters = vec![0.25; n];
                let c = tensor(&[&quarters[..], &quarters, &[0.5].repeat(n)].concat(), &[1, 3, n]);
                vec![row(&r.b), three(&r.a), three(&vec![1.0; n]), c, tensor(&[r.h0; 3], &[1, 3])]
            },
            first,
            16.0,
        )
        .with_states(&[(4, 1)])
        .adding(0),
    ]
}

impl Model {
    fn with_states(self, states: &'static [(usize, usize)]) -> Model {
        Model { states, ..self }
    }

    fn adding(self, input: usize) -> Model {
        Model { adds: Some(input), ..self }
    }

    fn call(&self, inputs: &Tensors) -> (Vec<Tensor>, oplus::Call) {
        self.kernel.call(&inputs.iter().map(Option::as_ref).collect::<Vec<_>>()).unwrap()
    }

    /// The inputs of some times, with states that are given.
    fn cut(&self, inputs: &Tensors, (from, to): (usize, usize), states: Option<&[Tensor]>) -> Tensors {
        let is_state = |k: usize| self.states.iter().find(|(input, _)| *input == k);
        let times = |x: &Tensor| x.slice(x.shape().len() - 1 - (self.inside(x)), from..to).unwrap();
        let own = inputs.iter().enumerate().map(|(k, x)| match (is_state(k), states) {
            (Some((_, output)), Some(outputs)) => Some(outputs[*output].clone()),
            (Some(_), None) => x.clone(),
            (None, _) => x.as_ref().map(times),
        });
        own.collect()
    }

    /// How many axes lie inside that of time.
    fn inside(&self, x: &Tensor) -> usize {
        if x.shape().len() == 3 && self.time == 1 && x.shape()[1] > 3 { 1 } else { 0 }
    }

    fn read(&self, outputs: &[Tensor]) -> Vec<f32> {
        (self.read)(&outputs.iter().map(|y| y.to_vec::<f32>().unwrap()).collect::<Vec<_>>())
    }

    /// The states of a sequence read in chunks that end at some times.
    fn in_chunks(&self, inputs: &Tensors, ends: &[usize]) -> Vec<f32> {
        let (mut from, mut states, mut all): (usize, Option<Vec<Tensor>>, Vec<f32>) = (0, None, vec![]);
        for to in ends {
            let outputs = self.call(&self.cut(inputs, (from, *to), states.as_deref())).0;
            all.extend(self.read(&outputs));
            (from, states) = (*to, Some(outputs));
        }
        all
    }

    fn check(&self, what: &str, given: &Row) {
        let n = given.a.len();
        let what = format!("{} of {n}, {what}", self.kernel.name());
        let wide = |x: &[f32]| x.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let (a, b) = (wide(&given.a), wide(&given.b));
        let states = States::of(a.iter().copied(), b.iter().copied(), f64::from(given.h0), self.rounding);
        let inputs = (self.inputs)(given);
        let (outputs, call) = self.call(&inputs);
        let whole = self.read(&outputs);
        states.check(&whole, &what);
        let borders: Vec<usize> = (1..).map(|k| k * 16_384).take_while(|end| *end < n).chain([n]).collect();
        let at_borders = self.in_chunks(&inputs, &borders);
        assert!(bits(&at_borders) == bits(&whole), "{what}: chunks at borders");
        states.check(&self.in_chunks(&inputs, &[1, n / 3, n - 100, n]), &format!("{what}, in chunks"));
        let guard = ordered();
        let (in_order, ordered_call) = self.call(&inputs);
        states.check(&self.read(&in_order), &format!("{what}, in order"));
        assert!(bits(&self.in_chunks(&inputs, &[n / 2, n])) == bits(&self.read(&in_order)), "{what}: in order");
        if let Some(input) = self.adds {
            self.check_gradient(&ordered_call, &a, input, &format!("{what}, in order"));
            drop(guard);
            self.check_gradient(&call, &a, input, &what);
        }
    }

    /// Cotangents that are 0 but for a few early ones: λ[t] = a[t+1]·λ[t+1] + h̄[t], where it is finite.
    fn check_gradient(&self, call: &oplus::Call, a: &[f64], input: usize, what: &str) {
        let n = a.len();
        let mut bar = vec![0.0_f32; n];
        [0, 17, n / 5, n / 5 + 1].into_iter().for_each(|t| bar[t] = 1e-20);
        let next = a.iter().skip(1).rev().copied();
        let lambda =
            States::of([0.0].into_iter().chain(next), bar.iter().rev().map(|x| f64::from(*x)), 0.0, self.rounding);
        let Some(finite) = lambda.h.iter().position(|x| *x > 1e30).or(Some(n)).filter(|n| *n > 0) else { return };
        let lanes = call_lanes(&self.read, n);
        let shape = self.cotangent_shape(n, lanes);
        let bars =
            [tensor(&if shape.len() == 3 { widened(&bar, lanes, true) } else { widened(&bar, lanes, false) }, &shape)];
        let floats = self.kernel.program().unwrap().outputs.len();
        let all: Vec<Option<&Tensor>> = (0..floats).map(|k| bars.get(k).and_then(Option::as_ref)).collect();
        let gradients = self.kernel.backward(call, &all).unwrap();
        let found = (self.read)(&[gradients[input].as_ref().unwrap().to_vec::<f32>().unwrap()]);
        let found: Vec<f32> = found.into_iter().rev().take(finite).collect();
        let lambda = States { h: lambda.h[..finite].to_vec(), off: lambda.off[..finite].to_vec() };
        lambda.check(&found, &format!("{what}, the gradient"));
    }

    fn cotangent_shape(&self, n: usize, lanes: usize) -> Vec<usize> {
        match self.kernel.name() {
            "affine_time_first" => vec![1, n, lanes],
            _ => vec![lanes, n],
        }
    }
}

/// How many rows or channels stand beside each other, of which the first is read.
fn call_lanes(read: &fn(&[Vec<f32>]) -> Vec<f32>, n: usize) -> usize {
    if read(&[vec![0.0; 3 * n]]).len() == n { 3 } else { 1 }
}

fn bits(all: &[f32]) -> Vec<u32> {
    all.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn states_that_are_finite_stay_so_whatever_their_decays() {
    for n in [300, 16_384, 16_500, 60_000] {
        for (what, row) in rows(n) {
            models().iter().for_each(|model| model.check(what, &row));
        }
    }
}

/// Products of matrices that grow from 0 and from small numbers.
#[test]
fn products_of_matrices_that_grow_from_little_are_finite() {
    for n in [300, 16_384, 60_000] {
        for (first, growth) in [(0.0, 1e30), (0.0, 1.0055), (1e-30, 1.001), (1e-44, 1.0008)] {
            let mut a = vec![growth; n];
            a[0] = first;
            let [re, im] = turned(&a);
            let negative: Vec<f32> = im.iter().map(|x| -x).collect();
            let inputs = [row(&re), row(&negative), row(&im), row(&re)];
            let call = || matrix2::kernel().call(&inputs.each_ref().map(Option::as_ref)).unwrap().0;
            let lengths = |all: Vec<Tensor>| {
                let all: Vec<Vec<f32>> = all.iter().map(|x| x.to_vec::<f32>().unwrap()).collect();
                lengths(&[all[0].clone(), all[2].clone()])
            };
            let steps = a.iter().map(|x| f64::from(*x));
            let states = States::of(steps, std::iter::repeat_n(0.0, n), 1.0, 60.0);
            states.check(&lengths(call()), &format!("{n} matrices of {growth} after {first}"));
            let _order = ordered();
            states.check(&lengths(call()), &format!("{n} matrices of {growth} after {first}, in order"));
        }
    }
}
