//! The calls that are run again and again.

use std::fmt;

use oplus::{Elem, Kernel, kernels, models};

/// A call of a kernel, and of its gradient from the cotangent of its first output.
#[derive(Clone)]
pub(super) struct Subject {
    pub kernel: &'static Kernel,
    pub elem: Elem,
    /// The inputs that are given; the others are left out.
    pub inputs: Vec<Input>,
    pub cotangent: Input,
    /// Whether it is attention or a recurrence of matrices.
    pub is_matrix: bool,
}

/// A tensor of uniform numbers.
#[derive(Clone)]
pub(super) struct Input {
    pub shape: Vec<usize>,
    pub range: (f64, f64),
    /// Whether it is in `f32` whatever the call's type is.
    pub is_wide: bool,
}

impl Input {
    pub(super) fn new(shape: impl Into<Vec<usize>>, range: (f64, f64)) -> Input {
        Input { shape: shape.into(), range, is_wide: false }
    }

    fn wide(shape: impl Into<Vec<usize>>, range: (f64, f64)) -> Input {
        Input { is_wide: true, ..Input::new(shape, range) }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject { kernel, elem, cotangent, is_matrix, .. } = self;
        let elem = if *is_matrix { format!("{elem}/") } else { String::new() };
        write!(f, "{}/{elem}{:?}", kernel.name(), cotangent.shape)
    }
}

pub(super) const REAL: (f64, f64) = (-1.0, 1.0);
/// Decays of 1 − 2⁻¹² to 1 − 2⁻²⁰, and logarithms of such.
const NEAR_ONE: (f64, f64) = (1.0 - 1.0 / 4096.0, 1.0 - 1.0 / 1_048_576.0);
const NEAR_ZERO: (f64, f64) = (-1.0 / 4096.0, -1.0 / 1_048_576.0);
const LOG_DECAY: (f64, f64) = (-0.1, -0.001);
const STEP: (f64, f64) = (0.001, 0.1);
const RATE: (f64, f64) = (-1.5, -0.5);

pub(super) fn subjects() -> Vec<Subject> {
    let mut all = scans();
    all.extend([Elem::F32, Elem::Bf16].map(selective_scan));
    for elem in [Elem::F32, Elem::F16, Elem::Bf16] {
        all.extend([ssd(elem), retention(elem), gated_linear_attention(elem), delta_rule(elem)]);
    }
    all.extend([Elem::Bf16, Elem::F16].map(attention));
    all
}

/// Scans whose inputs all have the shape of the output.
fn scans() -> Vec<Subject> {
    let scan = |kernel, shape: &[usize], ranges: &[(f64, f64)]| {
        let inputs = ranges.iter().map(|range| Input::new(shape, *range)).collect();
        Subject { kernel, elem: Elem::F32, inputs, cotangent: Input::new(shape, REAL), is_matrix: false }
    };
    vec![
        scan(kernels::cumsum::kernel(), &[1, (1 << 20) + 12], &[REAL]),
        scan(kernels::affine::kernel(), &[1, 1 << 20], &[NEAR_ONE, REAL]),
        scan(kernels::affine::kernel(), &[3, 300_007], &[NEAR_ONE, REAL]),
        scan(kernels::affine::kernel(), &[300, 4096], &[NEAR_ONE, REAL]),
        scan(kernels::log_decay_channels::kernel(), &[2, 8192, 64], &[NEAR_ZERO, REAL]),
        scan(kernels::cumsum_time_first::kernel(), &[100_003, 8], &[REAL]),
    ]
}

fn matrix(kernel: &'static Kernel, elem: Elem, inputs: Vec<Input>, cotangent: &[usize]) -> Subject {
    Subject { kernel, elem, inputs, cotangent: Input::new(cotangent, REAL), is_matrix: true }
}

/// u, delta, a, b, c, skip.
fn selective_scan(elem: Elem) -> Subject {
    let [batch, channels, states, steps] = [2, 1024, 16, 520];
    let [row, of_states] = [[batch, 1, channels, steps], [batch, 1, states, steps]];
    let inputs = vec![
        Input::new(row, REAL),
        Input::new(row, STEP),
        Input::wide([1, channels, states], RATE),
        Input::new(of_states, REAL),
        Input::new(of_states, REAL),
        Input::wide([1, channels], REAL),
    ];
    matrix(models::selective_scan::kernel(), elem, inputs, &row)
}

/// x, dt, a, b, c.
fn ssd(elem: Elem) -> Subject {
    let [batch, steps, heads, size, states] = [2, 1100, 8, 64, 128];
    let x = [batch, steps, 1, heads, size];
    let group = [batch, steps, 1, states];
    let inputs = vec![
        Input::new(x, REAL),
        Input::wide([batch, steps, 1, heads], STEP),
        Input::wide([1, heads], RATE),
        Input::new(group, REAL),
        Input::new(group, REAL),
    ];
    matrix(models::ssd::kernel(), elem, inputs, &x)
}

/// Queries, keys and values of heads with as many keys as a chunk takes.
fn factors(keys: usize, values: usize) -> ([Input; 3], [usize; 4]) {
    let of = |width: usize| [2, 4, 1100, width];
    ([of(keys), of(keys), of(values)].map(|shape| Input::new(shape, REAL)), of(values))
}

fn retention(elem: Elem) -> Subject {
    let (factors, output) = factors(64, 64);
    let inputs = factors.into_iter().chain([Input::wide([4], LOG_DECAY)]).collect();
    matrix(models::retention::kernel(), elem, inputs, &output)
}

fn gated_linear_attention(elem: Elem) -> Subject {
    let (factors, output) = factors(128, 128);
    let inputs = factors.into_iter().chain([Input::wide([2, 4, 1100, 128], LOG_DECAY)]).collect();
    matrix(models::gated_linear_attention::kernel(), elem, inputs, &output)
}

fn delta_rule(elem: Elem) -> Subject {
    let (mut factors, output) = factors(64, 64);
    // Keys whose squares add up to less than 1.
    factors[1].range = (-0.125, 0.125);
    let inputs = factors.into_iter().chain([Input::wide([2, 4, 1100], (0.1, 0.9))]).collect();
    matrix(models::delta_rule::kernel(), elem, inputs, &output)
}

fn attention(elem: Elem) -> Subject {
    let queries = [2, 4, 1, 1100, 64];
    let keys = [2, 4, 1100, 64];
    let inputs = vec![Input::new(queries, REAL), Input::new(keys, REAL), Input::new(keys, REAL)];
    matrix(models::attention_causal::kernel(), elem, inputs, &queries)
}
