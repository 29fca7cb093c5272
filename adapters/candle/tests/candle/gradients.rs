//! Gradients of models and kernels, beside those that candle finds for loops over time.

use candle_core::{Result, Tensor, Var};
use oplus_candle::kernels::{Affine, affine};
use oplus_candle::models::{Mamba, mamba};

use crate::by_steps::{self, Inputs};
use crate::{Random, assert_close, loss};

const NAMES: [&str; 9] = ["u", "delta", "a", "b", "c", "z", "skip", "delta_bias", "h0"];

/// Variables for a Mamba scan of these sizes.
fn variables([batch, groups, channels, states, times]: [usize; 5]) -> Result<Vec<Var>> {
    let mut random = Random::new(7);
    let rows = [batch, groups, channels, times];
    let shared = [batch, groups, states, times];
    let shapes: [&[usize]; 9] = [
        &rows,
        &rows,
        &[groups, channels, states],
        &shared,
        &shared,
        &rows,
        &[groups, channels],
        &[groups, channels],
        &[batch, groups, channels, states],
    ];
    shapes.iter().map(|shape| random.var(shape)).collect()
}

fn inputs(vars: &[Var]) -> Inputs {
    let x = |k: usize| vars[k].as_tensor().clone();
    Inputs { u: x(0), delta: x(1), a: x(2), b: x(3), c: x(4), z: x(5), skip: x(6), delta_bias: x(7), h0: x(8) }
}

fn by_oplus(inputs: Inputs) -> Result<(Tensor, Tensor)> {
    let Inputs { u, delta, a, b, c, z, skip, delta_bias, h0 } = inputs;
    let inputs = Mamba { u, delta, a, b, c, z, skip: Some(skip), delta_bias: Some(delta_bias), h0: Some(h0) };
    let out = mamba(inputs)?;
    Ok((out.y, out.h_last))
}

#[test]
fn mamba_has_the_outputs_and_all_gradients_of_a_loop() -> Result<()> {
    for sizes in [[2, 1, 3, 2, 5], [1, 2, 1, 3, 1], [1, 1, 2, 1, 37]] {
        let vars = variables(sizes)?;
        let (ours, theirs) = (by_oplus(inputs(&vars))?, by_steps::mamba(&inputs(&vars))?);
        assert_close("y", &ours.0, &theirs.0, 1e-12);
        assert_close("h_last", &ours.1, &theirs.1, 1e-12);
        let ours = loss(&[&ours.0, &ours.1], 3)?.backward()?;
        let theirs = loss(&[&theirs.0, &theirs.1], 3)?.backward()?;
        for (name, var) in NAMES.iter().zip(&vars) {
            assert_close(name, ours.get(var).unwrap(), theirs.get(var).unwrap(), 1e-10);
        }
    }
    Ok(())
}

#[test]
fn a_loss_on_one_output_alone_has_its_gradients() -> Result<()> {
    let vars = variables([1, 1, 2, 2, 4])?;
    let (ours, theirs) = (by_oplus(inputs(&vars))?, by_steps::mamba(&inputs(&vars))?);
    let of_y = (loss(&[&ours.0], 5)?.backward()?, loss(&[&theirs.0], 5)?.backward()?);
    let of_state = (loss(&[&ours.1], 5)?.backward()?, loss(&[&theirs.1], 5)?.backward()?);
    for (name, var) in NAMES.iter().zip(&vars) {
        assert_close(name, of_y.0.get(var).unwrap(), of_y.1.get(var).unwrap(), 1e-10);
        // The state does not depend on what reads it out: candle's own graph has no gradient there, the kernel's is zero.
        let zero = var.zeros_like()?;
        assert_close(name, of_state.0.get(var).unwrap(), of_state.1.get(var).unwrap_or(&zero), 1e-10);
    }
    Ok(())
}

#[test]
fn what_is_left_out_is_its_default_and_has_no_gradient() -> Result<()> {
    let vars = variables([2, 1, 2, 3, 6])?;
    let Inputs { u, delta, a, b, c, z, .. } = inputs(&vars);
    let given = Mamba { u, delta, a, b, c, z, skip: None, delta_bias: None, h0: None };
    let ours = mamba(given)?;
    let full = inputs(&vars);
    let zero = |x: &Tensor| x.zeros_like();
    let theirs = by_steps::mamba(&Inputs {
        skip: zero(&full.skip)?,
        delta_bias: zero(&full.delta_bias)?,
        h0: zero(&full.h0)?,
        ..full
    })?;
    assert_close("y", &ours.y, &theirs.0, 1e-12);
    let (ours, theirs) = (loss(&[&ours.y], 1)?.backward()?, loss(&[&theirs.0], 1)?.backward()?);
    for (name, var) in NAMES.iter().zip(&vars).take(6) {
        assert_close(name, ours.get(var).unwrap(), theirs.get(var).unwrap(), 1e-10);
    }
    for var in &vars[6..] {
        assert!(ours.get(var).is_none());
    }
    Ok(())
}

#[test]
fn empty_times_hand_the_state_through() -> Result<()> {
    let mut random = Random::new(1);
    let (a, b, h0) = (random.var(&[3, 0])?, random.var(&[3, 0])?, random.var(&[3])?);
    let x = |v: &Var| v.as_tensor().clone();
    let out = affine(Affine { a: x(&a), b: x(&b), h0: Some(x(&h0)) })?;
    assert_eq!(out.h.dims(), [3, 0]);
    assert_close("h_last", &out.h_last, &h0, 0.0);
    let gradients = out.h_last.sum_all()?.backward()?;
    assert_close("h0", gradients.get(&h0).unwrap(), &h0.ones_like()?, 0.0);
    assert_eq!(gradients.get(&a).unwrap().dims(), [3, 0]);
    Ok(())
}
