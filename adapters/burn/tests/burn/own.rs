//! Kernels of one's own, by `scan!` and at run time.

use std::sync::Arc;

use burn::tensor::{DType, Tensor};
use oplus_burn::{Error, call};

use crate::{Random, assert_close, device};

oplus_burn::scan! {
    /// Peaks that sink: first by d, then overtaken by h.
    pub op LeakyMax(d, h) {
        identity (0, -inf);
        combine(l, r) (l.d + r.d, max(l.h - r.d, r.h));
    }

    /// h[t] = max(h[t−1] − d[t], x[t]), with the state in and out.
    pub fn peaks(x: [B, T], d: [B, T], h0: state[B] = -inf) -> (h: [B, T], h_last: state[B]) {
        h = scan(T, LeakyMax(d, x), init = (h: h0)).h;
        h_last = last(T, h);
    }

    /// All elements times one number, their sum, and where they are positive.
    pub fn scaled(x: [T], factor: wide) -> (y: [T], total: wide, positive: bool[T], at: i64[T]) {
        y = factor * x;
        total = sum(T, factor * x);
        positive = x > 0;
        at = index(T);
    }
}

fn peaks_by_steps(x: &Tensor<2>, d: &Tensor<2>) -> Tensor<2> {
    let mut all: Vec<Tensor<2>> = vec![];
    for t in 0..x.dims()[1] {
        let (x, d) = (x.clone().narrow(1, t, 1), d.clone().narrow(1, t, 1));
        all.push(match all.last() {
            Some(h) => (h.clone() - d).max_pair(x),
            None => x,
        });
    }
    Tensor::cat(all, 1)
}

#[test]
fn an_operator_of_ones_own_is_differentiated() -> Result<(), Error> {
    let mut random = Random::new(1);
    let (x, d) = (random.leaf([3, 11]), random.leaf([3, 11]));
    let ours = peaks(Peaks { x: x.clone(), d: d.clone(), h0: None })?.h;
    let theirs = peaks_by_steps(&x, &d);
    assert_close("h", &ours, &theirs, 1e-12);
    let (ours, theirs) = (ours.square().sum().backward(), theirs.square().sum().backward());
    assert_close("x", &x.grad(&ours).unwrap(), &x.grad(&theirs).unwrap(), 1e-12);
    assert_close("d", &d.grad(&ours).unwrap(), &d.grad(&theirs).unwrap(), 1e-12);
    Ok(())
}

#[test]
fn single_steps_give_what_the_whole_gives() -> Result<(), Error> {
    let mut random = Random::new(2);
    let (x, d) = (random.tensor([2, 4]), random.tensor([2, 4]));
    let whole = peaks(Peaks { x: x.clone(), d: d.clone(), h0: None })?;
    let mut state = None;
    for t in 0..4 {
        let at = |x: &Tensor<2>| x.clone().narrow(1, t, 1).squeeze_dim::<1>(1);
        let out = peaks::step(peaks::Step { x: at(&x), d: at(&d), h0: state })?;
        assert_close("h", &out.h, &at(&whole.h), 1e-12);
        state = Some(out.h_last);
    }
    assert_close("h_last", &state.expect("four steps"), &whole.h_last, 1e-12);
    Ok(())
}

#[test]
fn what_has_no_axes_is_a_tensor_of_one_element() -> Result<(), Error> {
    let mut random = Random::new(3);
    let (x, factor) = (random.leaf([5]), random.leaf([1]));
    let out = scaled(Scaled { x: x.clone(), factor: factor.clone() })?;
    assert_close("y", &out.y, &(x.clone() * factor.clone()), 1e-12);
    assert_close("total", &out.total, &(x.clone() * factor.clone()).sum(), 1e-12);
    assert_eq!(out.at.into_data().try_to_vec::<i64>().expect("integers"), [0, 1, 2, 3, 4]);
    let positive = x.clone().inner().greater_elem(0.0);
    out.positive.into_data().assert_eq(&positive.into_data(), false);
    let ours = (out.y.square().sum() + out.total).backward();
    let theirs = ((x.clone() * factor.clone()).square().sum() + (x.clone() * factor.clone()).sum()).backward();
    assert_close("x", &x.grad(&ours).unwrap(), &x.grad(&theirs).unwrap(), 1e-12);
    assert_close("factor", &factor.grad(&ours).unwrap(), &factor.grad(&theirs).unwrap(), 1e-12);
    Ok(())
}

#[test]
fn a_kernel_made_at_run_time_is_shared() -> Result<(), Error> {
    let kernel = Arc::new(oplus_burn::oplus::Kernel::new("peaks", peaks::TEXT));
    let of = |x: [[f32; 2]; 1]| Tensor::<2>::from_data(x, (&device(), DType::F32));
    let d = of([[0.5, 0.5]]).require_grad();
    let outputs = call(kernel, &[Some(of([[3.0, 0.0]]).into_dispatch()), Some(d.clone().into_dispatch()), None])?;
    let h = Tensor::<2>::from_dispatch(outputs[0].clone());
    assert_close("h", &h, &of([[3.0, 2.5]]), 0.0);
    assert_close("d", &d.grad(&h.backward()).unwrap(), &of([[0.0, -1.0]]).inner(), 0.0);
    Ok(())
}
