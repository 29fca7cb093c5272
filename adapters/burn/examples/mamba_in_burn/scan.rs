//! The gated selective scan, twice.

use burn::tensor::Tensor;
use burn::tensor::activation::{silu, softplus};
use oplus_burn::Error;
use oplus_burn::models::{Mamba, mamba};

/// In the shapes of `oplus_burn::models::mamba`.
pub(crate) struct Inputs {
    pub(crate) u: Tensor<4>,
    pub(crate) delta: Tensor<4>,
    pub(crate) a: Tensor<3>,
    pub(crate) b: Tensor<4>,
    pub(crate) c: Tensor<4>,
    pub(crate) z: Tensor<4>,
    pub(crate) skip: Tensor<2>,
    pub(crate) delta_bias: Tensor<2>,
}

/// y [B, 1, D, T] by one call of oplus.
pub(crate) fn by_oplus(inputs: Inputs) -> Result<Tensor<4>, Error> {
    let Inputs { u, delta, a, b, c, z, skip, delta_bias } = inputs;
    let inputs = Mamba { u, delta, a, b, c, z, skip: Some(skip), delta_bias: Some(delta_bias), h0: None };
    Ok(mamba(inputs)?.y)
}

/// y [B, 1, D, T] by burn's own operations: what has all times at once is computed outside of the loop.
pub(crate) fn by_loop(inputs: Inputs) -> Tensor<4> {
    let Inputs { u, delta, a, b, c, z, skip, delta_bias } = inputs;
    // [B, 1, D, T] as [T, B, D], so that a time is one piece of memory.
    let by_time = |x: Tensor<4>| x.squeeze_dim::<3>(1).permute([2, 0, 1]);
    let (u, delta, b, c) = (by_time(u), by_time(delta), by_time(b), by_time(c));
    let delta = softplus(delta + delta_bias.unsqueeze(), 1.0);
    let decay = (delta.clone().unsqueeze_dim::<4>(3) * a.unsqueeze()).exp();
    let input = (delta * u.clone()).unsqueeze_dim::<4>(3) * b.unsqueeze_dim::<4>(2);
    let at = |x: &Tensor<4>, t: usize| x.clone().narrow(0, t, 1).squeeze_dim::<3>(0);
    let mut h = at(&input, 0).zeros_like();
    let mut ys = vec![];
    for t in 0..u.dims()[0] {
        h = at(&decay, t) * h + at(&input, t);
        let c = c.clone().narrow(0, t, 1).squeeze_dim::<2>(0).unsqueeze_dim::<3>(2);
        ys.push(h.clone().matmul(c).squeeze_dim::<2>(2));
    }
    let y = Tensor::stack::<3>(ys, 0) + u * skip.unsqueeze();
    y.permute([1, 2, 0]).unsqueeze_dim::<4>(1) * silu(z)
}
