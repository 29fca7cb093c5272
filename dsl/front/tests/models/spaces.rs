//! The state spaces that [`crate::space_loops`] walks: what decays, inputs and readouts are, and their derivatives by hand.

use crate::recurrence_loops::{Complex, complex, real};
use crate::space_loops::{Place, Space, Tensors, add, add_number, number};

const A: (&str, &str) = ("a_re", "a_im");
const B: (&str, &str) = ("b_re", "b_im");
const C: (&str, &str) = ("c_re", "c_im");
const X: (&str, &str) = ("x_re", "x_im");

/// Real recurrences: moving averages and linear state spaces, with coefficients that vary or do not.
pub(crate) struct Linear {
    pub(crate) rows: usize,
    pub(crate) n: usize,
    pub(crate) t: usize,
    /// Whether decay and input weight are 1 − alpha and alpha.
    pub(crate) is_average: bool,
    pub(crate) varies: bool,
}

impl Linear {
    /// Where the coefficients of a state stand.
    fn place(&self, at: Place, t: usize) -> usize {
        if self.varies { at.state * self.t + t } else { at.row }
    }
}

impl Space for Linear {
    fn sizes(&self) -> [usize; 4] {
        [self.rows, self.n, 1, self.t]
    }

    fn element(&self, x: &Tensors, at: Place, t: usize) -> (Complex, Complex) {
        let (k, x_t) = (self.place(at, t), x["x"][at.row * self.t + t]);
        match self.is_average {
            true => (real(1.0 - x["alpha"][k]), real(x["alpha"][k] * x_t)),
            false => (real(x["a"][k]), real(x["b"][k] * x_t)),
        }
    }

    fn element_back(&self, x: &Tensors, at: Place, t: usize, (a, w): (Complex, Complex), grad: &mut Tensors) {
        let (k, row) = (self.place(at, t), at.row * self.t + t);
        let x_t = x["x"][row];
        if self.is_average {
            add(grad, "alpha", k, w.re * x_t - a.re);
            add(grad, "x", row, w.re * x["alpha"][k]);
        } else {
            add(grad, "a", k, a.re);
            add(grad, "b", k, w.re * x_t);
            add(grad, "x", row, w.re * x["b"][k]);
        }
    }

    fn readout(&self, x: &Tensors, at: Place, _: usize, t: usize) -> Complex {
        if self.is_average { real(1.0) } else { real(x["c"][self.place(at, t)]) }
    }

    fn readout_back(&self, _: &Tensors, at: Place, _: usize, t: usize, bar: Complex, grad: &mut Tensors) {
        add(grad, "c", self.place(at, t), bar.re);
    }

    fn initial(&self, x: &Tensors, at: Place) -> Complex {
        real(x[if self.is_average { "y0" } else { "h0" }][at.state])
    }
}

/// How the decays of a diagonal state space are given.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Diagonal {
    /// S4D: zero-order hold of one real input for each row.
    S4d,
    /// S5: zero-order hold of a complex input for each state.
    S5,
    /// The linear recurrent unit.
    Lru,
}

/// Complex recurrences whose decays do not depend on the time. S4D has D channels, the others P readouts.
pub(crate) struct Fixed {
    pub(crate) kind: Diagonal,
    pub(crate) b: usize,
    pub(crate) channels: usize,
    pub(crate) readouts: usize,
    pub(crate) n: usize,
    pub(crate) t: usize,
}

impl Fixed {
    /// The channel, and where the parameters of a state stand.
    fn place(&self, at: Place) -> (usize, usize) {
        let channel = at.row % self.channels;
        (channel, channel * self.n + at.n)
    }

    /// The step size's place.
    fn step(&self, at: Place) -> usize {
        if self.kind == Diagonal::S4d { self.place(at).0 } else { at.n }
    }

    fn decay(&self, x: &Tensors, at: Place) -> Complex {
        let k = self.place(at).1;
        match self.kind {
            Diagonal::Lru => complex(-x["nu_log"][k].exp(), x["theta_log"][k].exp()).exp(),
            _ => (real(x["delta"][self.step(at)]) * number(x, A, k)).exp(),
        }
    }

    /// The weight of an input.
    fn weight(&self, x: &Tensors, at: Place) -> Complex {
        let k = self.place(at).1;
        match self.kind {
            Diagonal::Lru => real(x["gamma_log"][k].exp()),
            _ => (self.decay(x, at) - real(1.0)) / number(x, A, k),
        }
    }

    fn input(&self, x: &Tensors, at: Place, t: usize) -> Complex {
        match self.kind {
            Diagonal::S4d => real(x["u"][at.row * self.t + t]),
            _ => number(x, X, at.state * self.t + t),
        }
    }

    /// Through the decay's exponential, with what the input weight adds to its cotangent.
    fn decay_back(&self, x: &Tensors, at: Place, bar: Complex, grad: &mut Tensors) {
        let (k, exponent) = (self.place(at).1, bar * self.decay(x, at).conj());
        if self.kind == Diagonal::Lru {
            add(grad, "nu_log", k, -exponent.re * x["nu_log"][k].exp());
            add(grad, "theta_log", k, exponent.im * x["theta_log"][k].exp());
            return;
        }
        let (step, a) = (x["delta"][self.step(at)], number(x, A, k));
        add_number(grad, A, k, real(step) * exponent);
        add(grad, "delta", self.step(at), (exponent * a.conj()).re);
    }
}

impl Space for Fixed {
    fn sizes(&self) -> [usize; 4] {
        [self.b * self.channels, self.n, self.readouts, self.t]
    }

    fn element(&self, x: &Tensors, at: Place, t: usize) -> (Complex, Complex) {
        (self.decay(x, at), self.weight(x, at) * self.input(x, at, t))
    }

    fn element_back(&self, x: &Tensors, at: Place, t: usize, (a, w): (Complex, Complex), grad: &mut Tensors) {
        let (k, weight) = (self.place(at).1, self.weight(x, at));
        let weight_bar = w * self.input(x, at, t).conj();
        let input_bar = w * weight.conj();
        match self.kind {
            Diagonal::S4d => add(grad, "u", at.row * self.t + t, input_bar.re),
            _ => add_number(grad, X, at.state * self.t + t, input_bar),
        }
        if self.kind == Diagonal::Lru {
            add(grad, "gamma_log", k, weight_bar.re * weight.re);
            return self.decay_back(x, at, a, grad);
        }
        // weight = (decay − 1)/a.
        let a_k = number(x, A, k);
        let through = weight_bar * (real(1.0) / a_k).conj();
        add_number(grad, A, k, real(-1.0) * weight_bar * (weight / a_k).conj());
        self.decay_back(x, at, a + through, grad);
    }

    fn readout(&self, x: &Tensors, at: Place, p: usize, _: usize) -> Complex {
        let twice = if self.kind == Diagonal::Lru { 1.0 } else { 2.0 };
        real(twice) * number(x, C, self.place(at).1 + p * self.n)
    }

    fn readout_back(&self, _: &Tensors, at: Place, p: usize, _: usize, bar: Complex, grad: &mut Tensors) {
        let twice = if self.kind == Diagonal::Lru { 1.0 } else { 2.0 };
        add_number(grad, C, self.place(at).1 + p * self.n, real(twice) * bar);
    }

    fn initial(&self, x: &Tensors, at: Place) -> Complex {
        number(x, ("h0_re", "h0_im"), at.state)
    }
}

/// Selective scans with rarer options. Real numbers have no imaginary tensors.
pub(crate) struct Selective {
    pub(crate) b: usize,
    pub(crate) g: usize,
    pub(crate) d: usize,
    pub(crate) n: usize,
    pub(crate) t: usize,
    pub(crate) is_complex: bool,
    pub(crate) constant_b: bool,
    pub(crate) constant_c: bool,
    pub(crate) softplus: bool,
}

impl Selective {
    pub(crate) fn channel(&self, row: usize) -> usize {
        row % (self.g * self.d)
    }

    fn parameter(&self, at: Place) -> usize {
        self.channel(at.row) * self.n + at.n
    }

    /// Where b or c stands.
    fn projection(&self, constant: bool, at: Place, t: usize) -> usize {
        let group = at.row / self.d;
        if constant { self.parameter(at) } else { (group * self.n + at.n) * self.t + t }
    }

    fn names(&self, (re, im): (&'static str, &'static str)) -> (&'static str, &'static str) {
        let plain = match re {
            "a_re" => "a",
            "b_re" => "b",
            "c_re" => "c",
            _ => "h0",
        };
        if self.is_complex { (re, im) } else { (plain, im) }
    }

    /// The step size and its derivative.
    fn step(&self, x: &Tensors, at: Place, t: usize) -> (f64, f64) {
        let raw = x["delta"][at.row * self.t + t] + x["delta_bias"][self.channel(at.row)];
        if self.softplus { (raw.exp().ln_1p(), 1.0 / (1.0 + (-raw).exp())) } else { (raw, 1.0) }
    }
}

impl Space for Selective {
    fn sizes(&self) -> [usize; 4] {
        [self.b * self.g * self.d, self.n, 1, self.t]
    }

    fn element(&self, x: &Tensors, at: Place, t: usize) -> (Complex, Complex) {
        let (step, _) = self.step(x, at, t);
        let a = number(x, self.names(A), self.parameter(at));
        let b = number(x, self.names(B), self.projection(self.constant_b, at, t));
        ((real(step) * a).exp(), real(step * x["u"][at.row * self.t + t]) * b)
    }

    fn element_back(&self, x: &Tensors, at: Place, t: usize, (a_bar, w): (Complex, Complex), grad: &mut Tensors) {
        let ((step, slope), row) = (self.step(x, at, t), at.row * self.t + t);
        let (k, place) = (self.parameter(at), self.projection(self.constant_b, at, t));
        let (a, b, u) = (number(x, self.names(A), k), number(x, self.names(B), place), x["u"][row]);
        let exponent = a_bar * (real(step) * a).exp().conj();
        let along_b = (w * b.conj()).re;
        add_number(grad, self.names(A), k, real(step) * exponent);
        add_number(grad, self.names(B), place, real(step * u) * w);
        add(grad, "u", row, step * along_b);
        let step_bar = (exponent * a.conj()).re + u * along_b;
        add(grad, "delta", row, slope * step_bar);
        add(grad, "delta_bias", self.channel(at.row), slope * step_bar);
    }

    fn readout(&self, x: &Tensors, at: Place, _: usize, t: usize) -> Complex {
        let twice = if self.is_complex { 2.0 } else { 1.0 };
        real(twice) * number(x, self.names(C), self.projection(self.constant_c, at, t))
    }

    fn readout_back(&self, _: &Tensors, at: Place, _: usize, t: usize, bar: Complex, grad: &mut Tensors) {
        let twice = if self.is_complex { 2.0 } else { 1.0 };
        add_number(grad, self.names(C), self.projection(self.constant_c, at, t), real(twice) * bar);
    }

    fn initial(&self, x: &Tensors, at: Place) -> Complex {
        number(x, self.names(("h0_re", "h0_im")), at.state)
    }
}
