//! Inputs that are views: transposed, sliced, turned, repeated.

use burn::tensor::Tensor;
use oplus_burn::Error;
use oplus_burn::kernels::{Affine, affine};

use crate::{Random, assert_close, by_steps, loss};

/// Compares a call on views of two leaves, and their gradients, with a loop.
fn compare(shapes: [[usize; 2]; 2], view: impl Fn(usize, Tensor<2>) -> Tensor<2>) -> Result<(), Error> {
    let mut random = Random::new(1);
    let leaves = shapes.map(|shape| random.leaf(shape));
    // burn goes through a graph once, so that each side has views of its own.
    let views = || (view(0, leaves[0].clone()), view(1, leaves[1].clone()));
    let (a, b) = views();
    let h0 = random.tensor([a.dims()[0]]);
    let theirs = by_steps::affine(&a, &b, &h0);
    let (a, b) = views();
    let ours = affine(Affine { a, b, h0: Some(h0) })?;
    assert_close("h", &ours.h, &theirs.0, 1e-12);
    // The cotangent is a view, too.
    let of = |h: Tensor<2>, h_last: Tensor<1>| (loss(&h.transpose(), 2) + loss(&h_last, 3)).backward();
    let (ours, theirs) = (of(ours.h, ours.h_last), of(theirs.0, theirs.1));
    for (name, leaf) in ["a", "b"].iter().zip(&leaves) {
        assert_close(name, &leaf.grad(&ours).unwrap(), &leaf.grad(&theirs).unwrap(), 1e-12);
    }
    Ok(())
}

#[test]
fn transposed() -> Result<(), Error> {
    compare([[7, 3], [7, 3]], |_, x| x.transpose())
}

#[test]
fn sliced() -> Result<(), Error> {
    compare([[5, 11], [5, 11]], |k, x| x.narrow(0, 1, 3).narrow(1, 2 + k, 7))
}

#[test]
fn turned() -> Result<(), Error> {
    compare([[3, 6], [3, 6]], |k, x| if k == 0 { x.flip([1]) } else { x.flip([0, 1]) })
}

#[test]
fn repeated_with_strides_of_zero() -> Result<(), Error> {
    compare([[1, 6], [4, 1]], |_, x| x.expand([4, 6]))
}

#[test]
fn a_cotangent_that_is_repeated() -> Result<(), Error> {
    let mut random = Random::new(4);
    let (a, b, h0) = (random.leaf([2, 5]), random.leaf([2, 5]), random.tensor([2]));
    let theirs = by_steps::affine(&a, &b, &h0).0.sum().backward();
    let ours = affine(Affine { a: a.clone(), b: b.clone(), h0: Some(h0) })?.h.sum().backward();
    assert_close("a", &a.grad(&ours).unwrap(), &a.grad(&theirs).unwrap(), 1e-12);
    assert_close("b", &b.grad(&ours).unwrap(), &b.grad(&theirs).unwrap(), 1e-12);
    Ok(())
}
