//! Three gated recurrent networks, each in a few lines, with gradients that nobody wrote.
//!
//! RG-LRU (De et al., "Griffin", 2024, §2.4), HGRN (Qin et al., "Hierarchically gated recurrent neural network", 2023, §3)
//! and minGRU (Feng et al., "Were RNNs all we needed?", 2024, §3.1): each channel has a decay of its own that depends on
//! the input, and channels come last in memory. The projections before and after them are ordinary matrix products and left
//! to the caller.
//!
//! `cargo run --release -p oplus --example gates` checks every derived gradient against differences of the loss, prints both,
//! and runs each network in one pass and in single steps.

use oplus::{Error, Kernel, Tensor, scan};

scan! {
    /// RG-LRU: a = exp(−8·softplus(lambda)·sigmoid(r)) and h\[t\] = a·h\[t−1\] + sqrt(1 − a²)·sigmoid(i)·x.
    pub fn rg_lru(
        x: [B, T, D], r: [B, T, D], i: [B, T, D], lambda: f32[D], h0: f32[B, D] = 0,
    ) -> (h: [B, T, D], h_last: f32[B, D]) {
        let log_a = -8 * softplus(lambda) * sigmoid(r);
        let input = sqrt(1 - exp(2 * log_a)) * sigmoid(i) * x;
        h = scan(T, LogDecay(log_a, input), init = h0).x;
        h_last = last(T, h);
    }

    /// HGRN: a forget gate f = low + (1 − low)·sigmoid(mu) above a learned bound, h\[t\] = f·h\[t−1\] + (1 − f)·silu(c), read
    /// through the gate o.
    pub fn hgrn(
        c: [B, T, D], mu: [B, T, D], o: [B, T, D], low: f32[D], h0: f32[B, D] = 0,
    ) -> (y: [B, T, D], h_last: f32[B, D]) {
        let bound = sigmoid(low);
        let f = bound + (1 - bound) * sigmoid(mu);
        let h = scan(T, Affine(f, (1 - f) * silu(c)), init = h0).b;
        y = sigmoid(o) * h;
        h_last = last(T, h);
    }

    /// minGRU: h\[t\] = (1 − z)·h\[t−1\] + z·c with the gate z = sigmoid(k).
    pub fn min_gru(k: [B, T, D], c: [B, T, D], h0: f32[B, D] = 0) -> (h: [B, T, D], h_last: f32[B, D]) {
        let z = sigmoid(k);
        h = scan(T, Affine(1 - z, z * c), init = h0).b;
        h_last = last(T, h);
    }
}

/// Sequences, times, channels.
const SHAPE: [usize; 3] = [2, 50, 4];

fn main() -> Result<(), Error> {
    check(rg_lru::kernel(), rg_lru::step::kernel())?;
    check(hgrn::kernel(), hgrn::step::kernel())?;
    check(min_gru::kernel(), min_gru::step::kernel())
}

/// Prints derived gradients of a random input's last element beside differences, and how far single steps are from the
/// whole.
fn check(kernel: &Kernel, step: &Kernel) -> Result<(), Error> {
    let program = kernel.program()?;
    let mut random = fastrand::Rng::with_seed(7);
    let mut inputs = vec![];
    for param in &program.params {
        let shape = match param.axes.len() {
            1 => &SHAPE[2..],
            2 => &[SHAPE[0], SHAPE[2]][..],
            _ => &SHAPE[..],
        };
        let elements: Vec<f32> = (0..shape.iter().product()).map(|_| random.f32() * 2.0 - 1.0).collect();
        inputs.push(Tensor::from_vec(elements, shape)?);
    }
    let given = |inputs: &[Tensor]| inputs.iter().cloned().map(Some).collect::<Vec<_>>();
    let (outputs, call) = kernel.call(&refs(&given(&inputs)))?;
    let ones = Tensor::full(1.0_f32, outputs[0].shape(), &outputs[0].device())?;
    let gradients = kernel.backward(&call, &[Some(&ones), None])?;
    println!("{}: the sum of its outputs by one element of each input", kernel.name());
    for (k, param) in program.params.iter().enumerate() {
        let derived = gradients[k].as_ref().map(Tensor::to_vec::<f32>).transpose()?.unwrap_or_default();
        let sum_at = |by: f32| -> Result<f64, Error> {
            let mut elements = inputs[k].to_vec::<f32>()?;
            *elements.last_mut().expect("inputs are not empty") += by;
            let mut moved = inputs.clone();
            moved[k] = Tensor::from_vec(elements, inputs[k].shape())?;
            let (outputs, _) = kernel.call(&refs(&given(&moved)))?;
            Ok(outputs[0].to_vec::<f32>()?.into_iter().map(f64::from).sum())
        };
        let difference = (sum_at(0.01)? - sum_at(-0.01)?) / 0.02;
        let derived = f64::from(derived.last().copied().unwrap_or_default());
        println!("  {:8} derived {derived:9.5}   by differences {difference:9.5}", param.name);
        assert!((derived - difference).abs() < 1e-3 * (1.0 + difference.abs()), "a wrong gradient");
    }
    println!("  single steps end {:.1e} from the whole\n", apart(step, &inputs, &outputs)?);
    Ok(())
}

/// The largest difference of the last states, in one pass and step by step. The last parameter is the state.
fn apart(step: &Kernel, inputs: &[Tensor], outputs: &[Tensor]) -> Result<f32, Error> {
    let mut state = inputs.last().cloned();
    for t in 0..SHAPE[1] {
        let at = |x: &Tensor| match x.shape().len() {
            3 => x.as_strided(&[SHAPE[0], SHAPE[2]], &[(SHAPE[1] * SHAPE[2]) as i64, 1], t * SHAPE[2]),
            _ => Ok(x.clone()),
        };
        let mut given = inputs.iter().map(|x| at(x).map(Some)).collect::<Result<Vec<_>, _>>()?;
        *given.last_mut().expect("a state") = state;
        let (stepped, _) = step.call(&refs(&given))?;
        state = stepped.into_iter().nth(1);
    }
    let last = state.map(|s| s.to_vec::<f32>()).transpose()?.unwrap_or_default();
    let pairs = last.into_iter().zip(outputs[1].to_vec::<f32>()?);
    Ok(pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max))
}

fn refs(tensors: &[Option<Tensor>]) -> Vec<Option<&Tensor>> {
    tensors.iter().map(Option::as_ref).collect()
}
