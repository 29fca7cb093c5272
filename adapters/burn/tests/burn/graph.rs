//! The graph that calls record, and several ways through it.

use std::sync::Arc;

use burn::tensor::Tensor;
use oplus_burn::kernels::{Affine, affine, cumsum};
use oplus_burn::{Error, call};

use crate::{Random, assert_close, by_steps, loss};

#[test]
fn nothing_is_recorded_without_leaves_that_require_gradients() -> Result<(), Error> {
    let mut random = Random::new(1);
    let (a, b) = (random.tensor([2, 3]), random.leaf([2, 3]));
    let out = affine(Affine { a: a.clone(), b: b.clone().set_require_grad(false), h0: None })?;
    assert!(!out.h.is_tracked() && out.h.is_autodiff());
    let out = affine(Affine { a: a.clone().inner(), b: b.clone().inner(), h0: None })?;
    assert!(!out.h.is_autodiff());
    let out = affine(Affine { a: a.inner(), b, h0: None })?;
    assert!(out.h.is_tracked() && out.h_last.is_tracked());
    Ok(())
}

#[test]
fn one_tensor_given_twice_gets_the_sum_of_both_gradients() -> Result<(), Error> {
    let v = Random::new(2).leaf([2, 5]);
    // burn goes through a graph once, so that each side has a view of its own.
    let h0 = || v.clone().narrow(1, 0, 1).squeeze_dim::<1>(1);
    let theirs = loss(&by_steps::affine(&v, &v, &h0()).0, 1).backward();
    let ours = affine(Affine { a: v.clone(), b: v.clone(), h0: Some(h0()) })?;
    let ours = loss(&ours.h, 1).backward();
    assert_close("v", &v.grad(&ours).unwrap(), &v.grad(&theirs).unwrap(), 1e-12);
    Ok(())
}

#[test]
fn leaves_go_through_several_graphs() -> Result<(), Error> {
    let mut random = Random::new(3);
    let (a, b) = (random.leaf([2, 5]), random.leaf([2, 5]));
    let gradient = || {
        let out = affine(Affine { a: a.clone(), b: b.clone(), h0: None })?;
        let gradients = (loss(&out.h, 1) + loss(&out.h_last, 2)).backward();
        Ok::<_, Error>(a.grad(&gradients).unwrap())
    };
    assert_close("a", &gradient()?, &gradient()?, 0.0);
    Ok(())
}

#[test]
fn a_kernel_on_top_of_a_kernel() -> Result<(), Error> {
    let mut random = Random::new(4);
    let (a, b, h0) = (random.leaf([2, 5]), random.leaf([2, 5]), random.leaf([2]));
    let first = affine(Affine { a: a.clone(), b: b.clone(), h0: Some(h0.clone()) })?;
    let ours = affine(Affine { a: first.h.clone().tanh() * 0.5, b: first.h, h0: Some(first.h_last) })?.h;
    let first = by_steps::affine(&a, &b, &h0);
    let theirs = by_steps::affine(&(first.0.clone().tanh() * 0.5), &first.0, &first.1).0;
    let (ours, theirs) = (loss(&ours, 1).backward(), loss(&theirs, 1).backward());
    assert_close("a", &a.grad(&ours).unwrap(), &a.grad(&theirs).unwrap(), 1e-12);
    assert_close("b", &b.grad(&ours).unwrap(), &b.grad(&theirs).unwrap(), 1e-12);
    assert_close("h0", &h0.grad(&ours).unwrap(), &h0.grad(&theirs).unwrap(), 1e-12);
    Ok(())
}

#[test]
fn a_graph_frees_what_it_holds() -> Result<(), Error> {
    let kernel = Arc::new(oplus_burn::oplus::Kernel::new("cumsum", cumsum::TEXT));
    let x = Random::new(7).leaf([2, 5]);
    let out = call(kernel.clone(), &[Some(x.into_dispatch())])?;
    assert_eq!(Arc::strong_count(&kernel), 2);
    let _ = Tensor::<2>::from_dispatch(out[0].clone()).sum().backward();
    drop(out);
    assert_eq!(Arc::strong_count(&kernel), 1);
    Ok(())
}
