//! One diagonal recurrence over the complex numbers as plain loops, with its gradients derived by hand.
//!
//! Nothing here comes from the compiler. For h[t] = a[t]·h[t−1] + w[t], and a cotangent x̄ = ∂L/∂Re x + i·∂L/∂Im x of every
//! number x, from z = x·y follows x̄ = z̄·conj(y), so that
//!
//! ```text
//! λ[t] = h̄[t] + conj(a[t+1])·λ[t+1]      w̄[t] = λ[t]      ā[t] = λ[t]·conj(h[t−1])
//! ```
//!
//! Over the real numbers the imaginary parts are 0.

use std::iter::Sum;
use std::ops::{Add, Div, Mul, Sub};

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Complex {
    pub(crate) re: f64,
    pub(crate) im: f64,
}

/// re + i·im.
pub(crate) fn complex(re: f64, im: f64) -> Complex {
    Complex { re, im }
}

/// A real number.
pub(crate) fn real(re: f64) -> Complex {
    complex(re, 0.0)
}

impl Complex {
    pub(crate) fn conj(self) -> Complex {
        complex(self.re, -self.im)
    }

    pub(crate) fn exp(self) -> Complex {
        complex(self.re.exp() * self.im.cos(), self.re.exp() * self.im.sin())
    }
}

impl Add for Complex {
    type Output = Complex;
    fn add(self, o: Complex) -> Complex {
        complex(self.re + o.re, self.im + o.im)
    }
}

impl Sub for Complex {
    type Output = Complex;
    fn sub(self, o: Complex) -> Complex {
        complex(self.re - o.re, self.im - o.im)
    }
}

impl Mul for Complex {
    type Output = Complex;
    fn mul(self, o: Complex) -> Complex {
        complex(self.re * o.re - self.im * o.im, self.re * o.im + self.im * o.re)
    }
}

impl Div for Complex {
    type Output = Complex;
    fn div(self, o: Complex) -> Complex {
        let square = o.re * o.re + o.im * o.im;
        let product = self * o.conj();
        complex(product.re / square, product.im / square)
    }
}

impl Sum for Complex {
    fn sum<I: Iterator<Item = Complex>>(all: I) -> Complex {
        all.fold(Complex::default(), Add::add)
    }
}

/// The states before the first time and after each.
pub(crate) fn states(a: &[Complex], w: &[Complex], h0: Complex) -> Vec<Complex> {
    let mut all = vec![h0];
    for (a, w) in a.iter().zip(w) {
        all.push(*a * all[all.len() - 1] + *w);
    }
    all
}

/// Gradients of the recurrence.
pub(crate) struct Gradients {
    pub(crate) a: Vec<Complex>,
    pub(crate) w: Vec<Complex>,
    pub(crate) h0: Complex,
}

/// The gradients from the cotangents of all states, without the first, and of the last one once more.
pub(crate) fn backward(a: &[Complex], states: &[Complex], h_bar: &[Complex], last_bar: Complex) -> Gradients {
    let none = || vec![Complex::default(); a.len()];
    let mut grad = Gradients { a: none(), w: none(), h0: Complex::default() };
    let mut lambda = last_bar;
    for t in (0..a.len()).rev() {
        lambda = lambda + h_bar[t];
        grad.w[t] = lambda;
        grad.a[t] = lambda * states[t].conj();
        lambda = lambda * a[t].conj();
    }
    grad.h0 = lambda;
    grad
}
