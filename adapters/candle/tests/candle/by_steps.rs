//! Recurrences as loops over time, by candle's own operations.

use candle_core::{Result, Tensor};

/// The inputs of a Mamba scan, in the shapes of `models::mamba`.
#[derive(Clone)]
pub(crate) struct Inputs {
    pub(crate) u: Tensor,
    pub(crate) delta: Tensor,
    pub(crate) a: Tensor,
    pub(crate) b: Tensor,
    pub(crate) c: Tensor,
    pub(crate) z: Tensor,
    pub(crate) skip: Tensor,
    pub(crate) delta_bias: Tensor,
    pub(crate) h0: Tensor,
}

/// ln(1 + exp(x)).
fn softplus(x: &Tensor) -> Result<Tensor> {
    (x.exp()? + 1.0)?.log()
}

/// `models::mamba`, one time after the other: y and the last state.
pub(crate) fn mamba(inputs: &Inputs) -> Result<(Tensor, Tensor)> {
    let Inputs { u, delta, a, b, c, z, skip, delta_bias, h0 } = inputs;
    let (mut h, mut ys) = (h0.clone(), vec![]);
    for t in 0..u.dim(3)? {
        let at = |x: &Tensor| x.narrow(3, t, 1)?.squeeze(3);
        let (u, z) = (at(u)?, at(z)?);
        let delta = softplus(&at(delta)?.broadcast_add(delta_bias)?)?;
        let decay = delta.unsqueeze(3)?.broadcast_mul(a)?.exp()?;
        let input = (delta * &u)?.unsqueeze(3)?.broadcast_mul(&at(b)?.unsqueeze(2)?)?;
        h = ((decay * h)? + input)?;
        let y = h.broadcast_mul(&at(c)?.unsqueeze(2)?)?.sum(3)?;
        let gate = (&z / ((z.neg()?.exp()? + 1.0)?))?;
        ys.push(((y + u.broadcast_mul(skip)?)? * gate)?);
    }
    Ok((Tensor::stack(&ys, 3)?, h))
}

/// h[t] = a[t]·h[t−1] + b[t] along the last of two axes: all h, and the last.
pub(crate) fn affine(a: &Tensor, b: &Tensor, h0: &Tensor) -> Result<(Tensor, Tensor)> {
    let (mut h, mut all) = (h0.clone(), vec![]);
    for t in 0..a.dim(1)? {
        let at = |x: &Tensor| x.narrow(1, t, 1)?.squeeze(1);
        h = ((at(a)? * h)? + at(b)?)?;
        all.push(h.clone());
    }
    Ok((Tensor::stack(&all, 1)?, h))
}
