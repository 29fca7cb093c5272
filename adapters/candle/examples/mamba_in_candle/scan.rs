//! The gated selective scan, twice.

use candle_core::{D, Result, Tensor};
use oplus_candle::models::{Mamba, mamba};

/// In the shapes of `oplus_candle::models::mamba`.
pub(crate) struct Inputs {
    pub(crate) u: Tensor,
    pub(crate) delta: Tensor,
    pub(crate) a: Tensor,
    pub(crate) b: Tensor,
    pub(crate) c: Tensor,
    pub(crate) z: Tensor,
    pub(crate) skip: Tensor,
    pub(crate) delta_bias: Tensor,
}

/// y [B, 1, D, T] by one call of oplus.
pub(crate) fn by_oplus(inputs: Inputs) -> Result<Tensor> {
    let Inputs { u, delta, a, b, c, z, skip, delta_bias } = inputs;
    let inputs = Mamba { u, delta, a, b, c, z, skip: Some(skip), delta_bias: Some(delta_bias), h0: None };
    Ok(mamba(inputs)?.y)
}

/// y [B, 1, D, T] by candle's own operations: what has all times at once is computed outside of the loop, as in candle's own model.
pub(crate) fn by_loop(inputs: Inputs) -> Result<Tensor> {
    let Inputs { u, delta, a, b, c, z, skip, delta_bias } = inputs;
    // [B, 1, D, T] as [T, B, D], so that a time is one piece of memory.
    let by_time = |x: &Tensor| x.squeeze(1)?.permute((2, 0, 1))?.contiguous();
    let (u, delta, b, c) = (by_time(&u)?, by_time(&delta)?, by_time(&b)?, by_time(&c)?);
    let delta = (delta.broadcast_add(&delta_bias)?.exp()? + 1.0)?.log()?;
    let decay = delta.unsqueeze(D::Minus1)?.broadcast_mul(&a)?.exp()?;
    let input = (delta * &u)?.unsqueeze(D::Minus1)?.broadcast_mul(&b.unsqueeze(2)?)?;
    let mut h = input.get(0)?.zeros_like()?;
    let mut ys = vec![];
    for t in 0..u.dim(0)? {
        h = ((decay.get(t)? * h)? + input.get(t)?)?;
        ys.push(h.matmul(&c.get(t)?.unsqueeze(2)?)?.squeeze(2)?);
    }
    let y = (Tensor::stack(&ys, 0)? + u.broadcast_mul(&skip)?)?;
    y.permute((1, 2, 0))?.unsqueeze(1)? * candle_nn::ops::silu(&z)?
}
