//! Recurrences as loops over time, by burn's own operations.

use burn::tensor::Tensor;
use burn::tensor::activation::{sigmoid, softplus};

/// The inputs of a Mamba scan, in the shapes of `models::mamba`.
#[derive(Clone)]
pub(crate) struct Inputs {
    pub(crate) u: Tensor<4>,
    pub(crate) delta: Tensor<4>,
    pub(crate) a: Tensor<3>,
    pub(crate) b: Tensor<4>,
    pub(crate) c: Tensor<4>,
    pub(crate) z: Tensor<4>,
    pub(crate) skip: Tensor<2>,
    pub(crate) delta_bias: Tensor<2>,
    pub(crate) h0: Tensor<4>,
}

/// `models::mamba`, one time after the other: y and the last state.
pub(crate) fn mamba(inputs: &Inputs) -> (Tensor<4>, Tensor<4>) {
    let Inputs { u, delta, a, b, c, z, skip, delta_bias, h0 } = inputs;
    let (mut h, mut ys) = (h0.clone(), vec![]);
    for t in 0..u.dims()[3] {
        let at = |x: &Tensor<4>| x.clone().narrow(3, t, 1).squeeze_dim::<3>(3);
        let (u, z) = (at(u), at(z));
        let delta = softplus(at(delta) + delta_bias.clone().unsqueeze(), 1.0);
        let decay = (delta.clone().unsqueeze_dim::<4>(3) * a.clone().unsqueeze()).exp();
        let input = (delta * u.clone()).unsqueeze_dim::<4>(3) * at(b).unsqueeze_dim::<4>(2);
        h = decay * h + input;
        let y = (h.clone() * at(c).unsqueeze_dim::<4>(2)).sum_dim(3).squeeze_dim::<3>(3);
        ys.push((y + u * skip.clone().unsqueeze()) * z.clone() * sigmoid(z));
    }
    (Tensor::stack(ys, 3), h)
}

/// h[t] = a[t]·h[t−1] + b[t] along the last of two axes: all h, and the last.
pub(crate) fn affine(a: &Tensor<2>, b: &Tensor<2>, h0: &Tensor<1>) -> (Tensor<2>, Tensor<1>) {
    let (mut h, mut all) = (h0.clone(), vec![]);
    for t in 0..a.dims()[1] {
        let at = |x: &Tensor<2>| x.clone().narrow(1, t, 1).squeeze_dim::<1>(1);
        h = at(a) * h + at(b);
        all.push(h.clone());
    }
    (Tensor::stack(all, 1), h)
}
