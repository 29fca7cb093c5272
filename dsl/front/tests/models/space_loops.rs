//! State spaces as plain loops over their rows and states, with gradients derived by hand.
//!
//! Each model is a diagonal recurrence whose decay, input and readout follow from its parameters; [`Space`] says how. What it
//! is given and what it gives back are tensors by name, so that one loop serves all of them. The gradient of a number that
//! several elements share is the sum over them.

use std::collections::HashMap;

use crate::recurrence_loops::{Complex, backward, complex, states};

/// Tensors by name, row-major.
pub(crate) type Tensors = HashMap<&'static str, Vec<f64>>;

/// One state of one row: its indices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The index of the state among all states of all rows.
    pub(crate) state: usize,
    /// The index of its row.
    pub(crate) row: usize,
    /// The index of the state in its row.
    pub(crate) n: usize,
}

/// A model's decays and inputs from its parameters, and the gradients back.
pub(crate) trait Space {
    /// Rows, states of each, readouts of each, times.
    fn sizes(&self) -> [usize; 4];
    /// The decay and the input at a time.
    fn element(&self, x: &Tensors, at: Place, t: usize) -> (Complex, Complex);
    /// Adds what the cotangents of decay and input are to parameters.
    fn element_back(&self, x: &Tensors, at: Place, t: usize, bar: (Complex, Complex), grad: &mut Tensors);
    /// The factor k of y[p] = Re Σ k·h.
    fn readout(&self, x: &Tensors, at: Place, p: usize, t: usize) -> Complex;
    /// Adds what the cotangent of that factor is to parameters.
    fn readout_back(&self, x: &Tensors, at: Place, p: usize, t: usize, bar: Complex, grad: &mut Tensors);
    /// The initial state.
    fn initial(&self, x: &Tensors, at: Place) -> Complex;
}

/// Outputs, or their cotangents: y[row, p, t] and the last states.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    pub(crate) y: Vec<f64>,
    pub(crate) last: Vec<Complex>,
}

fn places(rows: usize, n: usize) -> impl Iterator<Item = Place> {
    (0..rows * n).map(move |state| Place { state, row: state / n, n: state % n })
}

fn walk(space: &dyn Space, x: &Tensors, at: Place) -> (Vec<Complex>, Vec<Complex>) {
    let times = space.sizes()[3];
    let (a, w): (Vec<_>, Vec<_>) = (0..times).map(|t| space.element(x, at, t)).unzip();
    let all = states(&a, &w, space.initial(x, at));
    (a, all)
}

/// The outputs.
pub(crate) fn outputs(space: &dyn Space, x: &Tensors) -> Outputs {
    let [rows, n, readouts, times] = space.sizes();
    let mut out = Outputs { y: vec![0.0; rows * readouts * times], last: vec![] };
    for at in places(rows, n) {
        let (_, h) = walk(space, x, at);
        for (p, t) in (0..readouts).flat_map(|p| (0..times).map(move |t| (p, t))) {
            out.y[(at.row * readouts + p) * times + t] += (space.readout(x, at, p, t) * h[t + 1]).re;
        }
        out.last.push(h[times]);
    }
    out
}

/// The gradients, added to those that are there; the cotangents of the initial states.
pub(crate) fn gradients(space: &dyn Space, x: &Tensors, bar: &Outputs, grad: &mut Tensors) -> Vec<Complex> {
    let [rows, n, readouts, times] = space.sizes();
    let mut initial = vec![];
    for at in places(rows, n) {
        let (a, h) = walk(space, x, at);
        let mut h_bar = vec![complex(0.0, 0.0); times];
        for (p, t) in (0..readouts).flat_map(|p| (0..times).map(move |t| (p, t))) {
            // y = Re(k·h): the cotangent of k·h is real.
            let y_bar = complex(bar.y[(at.row * readouts + p) * times + t], 0.0);
            h_bar[t] = h_bar[t] + y_bar * space.readout(x, at, p, t).conj();
            space.readout_back(x, at, p, t, y_bar * h[t + 1].conj(), grad);
        }
        let back = backward(&a, &h, &h_bar, bar.last[at.state]);
        for t in 0..times {
            space.element_back(x, at, t, (back.a[t], back.w[t]), grad);
        }
        initial.push(back.h0);
    }
    initial
}

/// Adds to an element of a gradient.
pub(crate) fn add(grad: &mut Tensors, name: &'static str, k: usize, bar: f64) {
    if let Some(grad) = grad.get_mut(name) {
        grad[k] += bar;
    }
}

/// A complex number of two tensors; what is not given is 0.
pub(crate) fn number(x: &Tensors, (re, im): (&str, &str), k: usize) -> Complex {
    let of = |name: &str| x.get(name).map_or(0.0, |tensor| tensor[k]);
    complex(of(re), of(im))
}

/// Adds a cotangent to the two tensors of a complex number.
pub(crate) fn add_number(grad: &mut Tensors, (re, im): (&'static str, &'static str), k: usize, bar: Complex) {
    add(grad, re, k, bar.re);
    add(grad, im, k, bar.im);
}
