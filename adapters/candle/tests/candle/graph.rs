//! The graph that calls record, and several ways through it.

use std::sync::Arc;
use std::thread;

use candle_core::{Result, Tensor, Var};
use oplus_candle::call;
use oplus_candle::kernels::{Affine, affine, cumsum};

use crate::{Random, assert_close, by_steps, loss};

fn x(var: &Var) -> Tensor {
    var.as_tensor().clone()
}

#[test]
fn nothing_is_recorded_without_variables() -> Result<()> {
    let mut random = Random::new(1);
    let (a, b) = (random.tensor(&[2, 3])?, random.var(&[2, 3])?);
    let out = affine(Affine { a: a.clone(), b: b.detach(), h0: None })?;
    assert!(!out.h.track_op() && !out.h_last.track_op());
    let out = affine(Affine { a, b: x(&b), h0: None })?;
    assert!(out.h.track_op() && out.h_last.track_op());
    Ok(())
}

#[test]
fn one_tensor_given_twice_gets_the_sum_of_both_gradients() -> Result<()> {
    let v = Random::new(2).var(&[2, 5])?;
    let h0 = x(&v).narrow(1, 0, 1)?.squeeze(1)?;
    let theirs = loss(&[&by_steps::affine(&v, &v, &h0)?.0], 1)?.backward()?;
    let ours = affine(Affine { a: x(&v), b: x(&v), h0: Some(h0) })?;
    let ours = loss(&[&ours.h], 1)?.backward()?;
    assert_close("v", ours.get(&v).unwrap(), theirs.get(&v).unwrap(), 1e-12);
    Ok(())
}

#[test]
fn one_graph_is_gone_through_twice() -> Result<()> {
    let mut random = Random::new(3);
    let (a, b) = (random.var(&[2, 5])?, random.var(&[2, 5])?);
    let out = affine(Affine { a: x(&a), b: x(&b), h0: None })?;
    let both = loss(&[&out.h, &out.h_last], 1)?;
    let (first, second) = (both.backward()?, both.backward()?);
    assert_close("a", first.get(&a).unwrap(), second.get(&a).unwrap(), 0.0);
    let (first, other) = (loss(&[&out.h], 1)?.backward()?, out.h_last.sum_all()?.backward()?);
    let again = loss(&[&out.h], 1)?.backward()?;
    assert_close("b", first.get(&b).unwrap(), again.get(&b).unwrap(), 0.0);
    assert!(other.get(&b).is_some());
    Ok(())
}

#[test]
fn a_kernel_on_top_of_a_kernel() -> Result<()> {
    let mut random = Random::new(4);
    let (a, b, h0) = (random.var(&[2, 5])?, random.var(&[2, 5])?, random.var(&[2])?);
    let ours = affine(Affine { a: x(&a), b: x(&b), h0: Some(x(&h0)) })?;
    let ours = affine(Affine { a: (ours.h.tanh()? * 0.5)?, b: ours.h, h0: Some(ours.h_last) })?;
    let theirs = by_steps::affine(&a, &b, &h0)?;
    let theirs = by_steps::affine(&(theirs.0.tanh()? * 0.5)?, &theirs.0, &theirs.1)?;
    let (ours, theirs) = (loss(&[&ours.h], 1)?.backward()?, loss(&[&theirs.0], 1)?.backward()?);
    for (name, var) in [("a", &a), ("b", &b), ("h0", &h0)] {
        assert_close(name, ours.get(var).unwrap(), theirs.get(var).unwrap(), 1e-12);
    }
    Ok(())
}

#[test]
fn only_what_is_tracked_has_a_gradient() -> Result<()> {
    let mut random = Random::new(5);
    let (a, b) = (random.tensor(&[2, 5])?, random.var(&[2, 5])?);
    let out = affine(Affine { a: a.clone(), b: x(&b), h0: None })?;
    let gradients = out.h.sum_all()?.backward()?;
    assert!(gradients.get(&a).is_none() && gradients.get(&b).is_some());
    Ok(())
}

#[test]
fn threads_go_through_one_graph_at_a_time_of_their_own() -> Result<()> {
    let mut random = Random::new(6);
    let (a, b) = (random.var(&[3, 50])?, random.var(&[3, 50])?);
    let out = affine(Affine { a: x(&a), b: x(&b), h0: None })?;
    let wanted: Vec<Tensor> =
        (0..4).map(|seed| Ok(loss(&[&out.h], seed)?.backward()?.remove(&a).unwrap())).collect::<Result<_>>()?;
    let (h, a) = (&out.h, &a);
    let found = thread::scope(|scope| {
        let go = |seed| scope.spawn(move || Ok(loss(&[h], seed)?.backward()?.remove(a).unwrap()));
        let running: Vec<_> = (0..4).map(go).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<Vec<_>>>()
    })?;
    wanted.iter().zip(&found).for_each(|(one, other)| assert_close("a", one, other, 0.0));
    Ok(())
}

#[test]
fn a_graph_frees_what_it_holds() -> Result<()> {
    let mut random = Random::new(7);
    let kernel = Arc::new(oplus::Kernel::new("cumsum", cumsum::TEXT));
    let v = random.var(&[2, 5])?;
    let out = call(kernel.clone(), &[Some(&v)])?;
    out[0].sum_all()?.backward()?;
    assert_eq!(Arc::strong_count(&kernel), 2);
    drop(out);
    assert_eq!(Arc::strong_count(&kernel), 1);
    Ok(())
}
