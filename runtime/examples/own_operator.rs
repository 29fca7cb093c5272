//! An operator that the library does not have, and its gradient.
//!
//! A *leaky maximum*: h[t] = max(h[t−1] − d[t], x[t]), a peak detector whose peaks sink by d[t] per step. As an operator
//! on pairs (d, h) it is associative, so it scans in parallel; the gradient of a peak goes to the sample that made it,
//! and the gradient of the decay to every step that the peak sank through. Both are derived from the two lines below.
//!
//! `cargo run --release -p oplus --example own_operator`

use oplus::{Tensor, scan};

scan! {
    /// Peaks that sink: first by d, then overtaken by h.
    pub op LeakyMax(d, h) {
        identity (0, -inf);
        combine(l, r) (l.d + r.d, max(l.h - r.d, r.h));
    }

    /// h[t] = max(h[t−1] − d[t], x[t]).
    pub fn peaks(x: f64[T], d: f64[T]) -> (h: f64[T]) {
        h = scan(T, LeakyMax(d, x)).h;
    }
}

fn main() -> Result<(), oplus::Error> {
    let signal = [0.0, 3.0, 1.0, 0.5, 0.2, 2.2, 0.1, 0.0];
    let sink = [0.4; 8];
    let (x, d) = (Tensor::from_slice(&signal, &[8])?, Tensor::from_slice(&sink, &[8])?);
    let out = peaks(Peaks { x, d })?;
    let cotangent = Tensor::from_slice(&[1.0_f64; 8], &[8])?;
    let gradients = out.backward(PeaksCotangents { h: Some(cotangent) })?;
    println!("  x      h      x̄      d̄");
    let (h, x_bar, d_bar) = (out.h.to_vec::<f64>()?, gradients.x.to_vec::<f64>()?, gradients.d.to_vec::<f64>()?);
    for t in 0..8 {
        println!("{:5.2}  {:5.2}  {:5.2}  {:5.2}", signal[t], h[t], unsigned_zero(x_bar[t]), unsigned_zero(d_bar[t]));
    }
    Ok(())
}

/// x, where it is −0 without the sign, which a product of a negative number and zero has.
fn unsigned_zero(x: f64) -> f64 {
    x + 0.0
}
