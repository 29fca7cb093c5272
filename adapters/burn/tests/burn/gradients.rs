//! Gradients of models and kernels, beside those that burn finds for loops over time.

use burn::tensor::Tensor;
use oplus_burn::Error;
use oplus_burn::kernels::{Affine, affine};
use oplus_burn::models::{Mamba, MambaOutput, mamba};

use crate::by_steps::{self, Inputs};
use crate::{Random, assert_close, loss};

/// Leaves for a Mamba scan of these sizes.
fn leaves([batch, groups, channels, states, times]: [usize; 5]) -> Inputs {
    let mut random = Random::new(7);
    let rows = [batch, groups, channels, times];
    let shared = [batch, groups, states, times];
    Inputs {
        u: random.leaf(rows),
        delta: random.leaf(rows),
        a: random.leaf([groups, channels, states]),
        b: random.leaf(shared),
        c: random.leaf(shared),
        z: random.leaf(rows),
        skip: random.leaf([groups, channels]),
        delta_bias: random.leaf([groups, channels]),
        h0: random.leaf([batch, groups, channels, states]),
    }
}

fn by_oplus(inputs: &Inputs) -> Result<MambaOutput, Error> {
    let Inputs { u, delta, a, b, c, z, skip, delta_bias, h0 } = inputs.clone();
    mamba(Mamba { u, delta, a, b, c, z, skip: Some(skip), delta_bias: Some(delta_bias), h0: Some(h0) })
}

/// Compares the gradients of all inputs; what burn's own graph has no gradient of must be zero.
fn compare(inputs: &Inputs, ours: Tensor<1>, theirs: Tensor<1>) {
    let (ours, theirs) = (ours.backward(), theirs.backward());
    macro_rules! each {
        ($($name:ident),*) => {$(
            let zero = inputs.$name.clone().inner().zeros_like();
            let found = inputs.$name.grad(&ours).expect("a leaf has a gradient");
            assert_close(stringify!($name), &found, &inputs.$name.grad(&theirs).unwrap_or(zero), 1e-10);
        )*};
    }
    each!(u, delta, a, b, c, z, skip, delta_bias, h0);
}

#[test]
fn mamba_has_the_outputs_and_all_gradients_of_a_loop() -> Result<(), Error> {
    for sizes in [[2, 1, 3, 2, 5], [1, 2, 1, 3, 1], [1, 1, 2, 1, 37]] {
        let inputs = leaves(sizes);
        let (ours, theirs) = (by_oplus(&inputs)?, by_steps::mamba(&inputs));
        assert_close("y", &ours.y, &theirs.0, 1e-12);
        assert_close("h_last", &ours.h_last, &theirs.1, 1e-12);
        let of = |y: &Tensor<4>, h_last: &Tensor<4>| loss(y, 3) + loss(h_last, 4);
        compare(&inputs, of(&ours.y, &ours.h_last), of(&theirs.0, &theirs.1));
    }
    Ok(())
}

#[test]
fn a_loss_on_one_output_alone_has_its_gradients() -> Result<(), Error> {
    let inputs = leaves([1, 1, 2, 2, 4]);
    compare(&inputs, loss(&by_oplus(&inputs)?.y, 5), loss(&by_steps::mamba(&inputs).0, 5));
    compare(&inputs, loss(&by_oplus(&inputs)?.h_last, 5), loss(&by_steps::mamba(&inputs).1, 5));
    Ok(())
}

#[test]
fn what_is_left_out_is_its_default() -> Result<(), Error> {
    let inputs = leaves([2, 1, 2, 3, 6]);
    let Inputs { u, delta, a, b, c, z, .. } = inputs.clone();
    let ours = mamba(Mamba { u, delta, a, b, c, z, skip: None, delta_bias: None, h0: None })?;
    let full = inputs.clone();
    let theirs = by_steps::mamba(&Inputs {
        skip: full.skip.zeros_like(),
        delta_bias: full.delta_bias.zeros_like(),
        h0: full.h0.zeros_like(),
        ..full
    });
    assert_close("y", &ours.y, &theirs.0, 1e-12);
    let (ours, theirs) = (loss(&ours.y, 1).backward(), loss(&theirs.0, 1).backward());
    assert_close("u", &inputs.u.grad(&ours).unwrap(), &inputs.u.grad(&theirs).unwrap(), 1e-10);
    assert_close("a", &inputs.a.grad(&ours).unwrap(), &inputs.a.grad(&theirs).unwrap(), 1e-10);
    assert!(inputs.skip.grad(&ours).is_none() && inputs.h0.grad(&ours).is_none());
    Ok(())
}

#[test]
fn empty_times_hand_the_state_through() -> Result<(), Error> {
    let mut random = Random::new(1);
    let (a, b, h0) = (random.leaf([3, 0]), random.leaf([3, 0]), random.leaf([3]));
    let out = affine(Affine { a: a.clone(), b, h0: Some(h0.clone()) })?;
    assert_eq!(out.h.dims(), [3, 0]);
    assert_close("h_last", &out.h_last, &h0, 0.0);
    let gradients = out.h_last.sum().backward();
    assert_close("h0", &h0.grad(&gradients).unwrap(), &h0.clone().inner().ones_like(), 0.0);
    assert_eq!(a.grad(&gradients).unwrap().dims(), [3, 0]);
    Ok(())
}
