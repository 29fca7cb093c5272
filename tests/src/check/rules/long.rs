//! The state-space dual over 1,048,576 times: outputs and gradients at some times, and the last state, against the recurrence.

use oplus::{Elem, models};
use oplus_dsl::rng::Rng;
use rayon::prelude::*;

use super::linear::judge;
use super::{floats, numbers, tensor};
use crate::check::CheckError;
use crate::check::oracle::Agreement;
use crate::check::scenario::{Scenario, World};

/// Times.
const TIMES: usize = 1 << 20;
/// The state's width and depth.
const WIDTH: usize = 64;
const DEPTH: usize = 64;
/// Times between those that are compared, a prime number.
const APART: usize = 9973;

/// The scenario of a sequence of 1,048,576 times.
pub fn scenario() -> Scenario {
    Scenario::new("rules/ssd bf16 of 1048576 times", dual)
}

/// The inputs, times × width or depth.
struct Given {
    x: Vec<f64>,
    dt: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
    y_bar: Vec<f64>,
    a: f64,
}

/// The results of one place of the width: y and x̄ at the times compared, and its part of the last state.
struct Row {
    y: Vec<f64>,
    x_bar: Vec<f64>,
    last: Vec<f64>,
}

impl Given {
    fn random(times: usize) -> Given {
        let mut rng = Rng::new(11);
        let mut of = |width: usize| numbers(Elem::Bf16, times * width, &mut rng);
        let (x, b, c, y_bar) = (of(WIDTH), of(DEPTH), of(DEPTH), of(WIDTH));
        let dt = (0..times).map(|t| [0.125, 0.0625, 0.03125, 0.09375][t % 4]).collect();
        Given { x, dt, b, c, y_bar, a: -0.5 }
    }

    /// h[t] = exp(δ·a)·h[t−1] + δ·x·b, y = Σ over N of c·h, and back.
    fn row(&self, place: usize) -> Row {
        let (times, decay) = (self.dt.len(), |t: usize| (self.dt[t] * self.a).exp());
        let at = |all: &[f64], t: usize| all[t * WIDTH + place];
        let (mut state, mut y, mut x_bar) = (vec![0.0; DEPTH], vec![], vec![]);
        for t in 0..times {
            let (decay, gain, b) = (decay(t), self.dt[t] * at(&self.x, t), &self.b[t * DEPTH..][..DEPTH]);
            state.iter_mut().zip(b).for_each(|(s, b)| *s = decay * *s + gain * b);
            if t % APART == 0 {
                y.push(state.iter().zip(&self.c[t * DEPTH..]).map(|(s, c)| s * c).sum());
            }
        }
        let mut bar = vec![0.0; DEPTH];
        for t in (0..times).rev() {
            let (o_bar, c) = (at(&self.y_bar, t), &self.c[t * DEPTH..][..DEPTH]);
            bar.iter_mut().zip(c).for_each(|(bar, c)| *bar += o_bar * c);
            if t % APART == 0 {
                x_bar.push(self.dt[t] * bar.iter().zip(&self.b[t * DEPTH..]).map(|(d, b)| d * b).sum::<f64>());
            }
            let decay = decay(t);
            bar.iter_mut().for_each(|bar| *bar *= decay);
        }
        x_bar.reverse();
        Row { y, x_bar, last: state }
    }
}

fn dual(world: &World) -> Result<Agreement, CheckError> {
    let (device, given) = (world.device()?, Given::random(TIMES));
    let of = |shape: &[usize], numbers: &[f64]| tensor(Elem::Bf16, shape, numbers, &device);
    let (x, dt) = (of(&[1, TIMES, 1, 1, WIDTH], &given.x)?, of(&[1, TIMES, 1, 1], &given.dt)?);
    let a = tensor(Elem::F32, &[1, 1], &[given.a], &device)?;
    let [b, c] = [&given.b, &given.c].map(|factor| of(&[1, TIMES, 1, DEPTH], factor));
    let (b, c, y_bar) = (b?, c?, of(&[1, TIMES, 1, 1, WIDTH], &given.y_bar)?);
    let kernel = models::ssd::kernel();
    let inputs = [Some(&x), Some(&dt), Some(&a), Some(&b), Some(&c), None, None, None];
    let (outputs, call) = kernel.call(&inputs)?;
    let gradients = kernel.backward(&call, &[Some(&y_bar), None])?;
    let rows: Vec<Row> = (0..WIDTH).into_par_iter().map(|place| given.row(place)).collect();
    let at_times = |all: Vec<f64>| -> Vec<f64> {
        (0..WIDTH).flat_map(|p| (0..TIMES).step_by(APART).map(move |t| t * WIDTH + p)).map(|at| all[at]).collect()
    };
    let joined = |of: fn(&Row) -> &Vec<f64>| -> Vec<f64> { rows.iter().flat_map(|row| of(row).clone()).collect() };
    let x_bar = gradients[0].as_ref().map_or(Ok(vec![]), floats)?;
    let found = [
        ("y", at_times(floats(&outputs[0])?), joined(|row| &row.y)),
        ("h_last", floats(&outputs[1])?, joined(|row| &row.last)),
        ("x.bar", at_times(x_bar), joined(|row| &row.x_bar)),
    ];
    let mut all = Agreement::default();
    for (name, found, wanted) in found {
        let worst = judge(name, &found, &wanted)?;
        all = Agreement { worst: all.worst.max(worst), compared: all.compared + wanted.len(), unbounded: 0 };
    }
    Ok(all)
}
