//! Inputs that are views: transposed, sliced, repeated.

use candle_core::{Result, Tensor};
use oplus_candle::kernels::{Affine, affine};

use crate::{Random, assert_close, by_steps, loss};

/// Compares a call on these tensors, and the gradients of the variables behind them, with a loop.
fn compare(seed: u64, shapes: [&[usize]; 3], view: impl Fn(usize, &Tensor) -> Result<Tensor>) -> Result<()> {
    let mut random = Random::new(seed);
    let vars = shapes.iter().map(|shape| random.var(shape)).collect::<Result<Vec<_>>>()?;
    let views = vars.iter().enumerate().map(|(k, v)| view(k, v)).collect::<Result<Vec<_>>>()?;
    let [a, b, h0] = views.try_into().expect("three views");
    let theirs = by_steps::affine(&a, &b, &h0)?;
    let ours = affine(Affine { a, b, h0: Some(h0) })?;
    assert_close("h", &ours.h, &theirs.0, 1e-12);
    // The cotangent is a view, too.
    let weigh = |h: &Tensor, last: &Tensor| loss(&[&h.t()?, &last.unsqueeze(0)?], 2);
    let (ours, theirs) = (weigh(&ours.h, &ours.h_last)?.backward()?, weigh(&theirs.0, &theirs.1)?.backward()?);
    for (k, var) in vars.iter().enumerate() {
        assert_close(["a", "b", "h0"][k], ours.get(var).unwrap(), theirs.get(var).unwrap(), 1e-12);
    }
    Ok(())
}

#[test]
fn transposed() -> Result<()> {
    compare(1, [&[7, 3], &[7, 3], &[3]], |k, x| if k < 2 { x.t() } else { Ok(x.clone()) })
}

#[test]
fn sliced() -> Result<()> {
    compare(2, [&[5, 11], &[5, 11], &[5]], |k, x| match k {
        0 | 1 => x.narrow(0, 1, 3)?.narrow(1, 2 + k, 7),
        _ => x.narrow(0, 2, 3),
    })
}

#[test]
fn repeated_with_strides_of_zero() -> Result<()> {
    compare(3, [&[1, 6], &[4, 1], &[1]], |k, x| match k {
        0 | 1 => x.broadcast_as((4, 6)),
        _ => x.broadcast_as(4),
    })
}

#[test]
fn a_cotangent_that_is_repeated() -> Result<()> {
    let mut random = Random::new(4);
    let (a, b) = (random.var(&[2, 5])?, random.var(&[2, 5])?);
    let h0 = Tensor::zeros(2, candle_core::DType::F64, crate::device())?;
    let theirs = by_steps::affine(&a, &b, &h0)?.0.sum_all()?.backward()?;
    let ours =
        affine(Affine { a: a.as_tensor().clone(), b: b.as_tensor().clone(), h0: None })?.h.sum_all()?.backward()?;
    assert_close("a", ours.get(&a).unwrap(), theirs.get(&a).unwrap(), 1e-12);
    assert_close("b", ours.get(&b).unwrap(), theirs.get(&b).unwrap(), 1e-12);
    Ok(())
}
