//! The element types that candle has.

use candle_core::{DType, Device, Result, Tensor, Var};
use oplus_candle::kernels::{Affine, AffineWithResets, affine, affine_with_resets};
use oplus_candle::models::{SelectiveScan, SelectiveScanPacked, selective_scan, selective_scan_packed};

use crate::{Random, assert_close, by_steps, device, loss};

#[test]
fn affine_and_its_gradient_in_every_float() -> Result<()> {
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5), (DType::F16, 1e-2), (DType::BF16, 6e-2)] {
        let mut random = Random::new(9);
        let rounded = |x: Tensor| x.to_dtype(dtype)?.to_dtype(DType::F64);
        let (a, b) = (rounded(random.tensor(&[3, 7])?)?, rounded(random.tensor(&[3, 7])?)?);
        let (a, b) = (Var::from_tensor(&a)?, Var::from_tensor(&b)?);
        let h0 = Tensor::zeros(3, DType::F64, device())?;
        let theirs = by_steps::affine(&a, &b, &h0)?;
        let ours = affine(Affine { a: a.to_dtype(dtype)?, b: b.to_dtype(dtype)?, h0: None })?;
        assert_eq!(ours.h.dtype(), dtype);
        assert_close("h", &ours.h, &theirs.0, tolerance);
        let (ours, theirs) = (loss(&[&ours.h], 1)?.backward()?, loss(&[&theirs.0], 1)?.backward()?);
        assert_close("a", ours.get(&a).unwrap(), theirs.get(&a).unwrap(), 4.0 * tolerance);
        assert_close("b", ours.get(&b).unwrap(), theirs.get(&b).unwrap(), 4.0 * tolerance);
    }
    Ok(())
}

#[test]
fn learned_numbers_and_states_are_f32_beside_bf16() -> Result<()> {
    let mut random = Random::new(2);
    let half = |random: &mut Random, shape: &[usize]| Var::from_tensor(&random.tensor(shape)?.to_dtype(DType::BF16)?);
    let rows = [1, 1, 2, 5];
    let (u, delta) = (half(&mut random, &rows)?, half(&mut random, &rows)?);
    let (b, c) = (half(&mut random, &[1, 1, 3, 5])?, half(&mut random, &[1, 1, 3, 5])?);
    let a = Var::from_tensor(&random.tensor(&[1, 2, 3])?.to_dtype(DType::F32)?)?;
    let x = |v: &Var| v.as_tensor().clone();
    let inputs = SelectiveScan {
        u: x(&u),
        delta: x(&delta),
        a: x(&a),
        b: x(&b),
        c: x(&c),
        skip: None,
        delta_bias: None,
        h0: None,
    };
    let out = selective_scan(inputs)?;
    assert_eq!((out.y.dtype(), out.h_last.dtype()), (DType::BF16, DType::F32));
    let gradients = loss(&[&out.y, &out.h_last], 1)?.backward()?;
    for var in [&u, &delta, &b, &c, &a] {
        assert_eq!(gradients.get(var).unwrap().dtype(), var.dtype());
    }
    Ok(())
}

#[test]
fn truth_values_are_bytes() -> Result<()> {
    let mut random = Random::new(3);
    let (a, b) = (random.var(&[1, 6])?, random.var(&[1, 6])?);
    let reset = Tensor::new(&[[0_u8, 0, 1, 0, 255, 0]], device())?;
    let x = |v: &Var| v.as_tensor().clone();
    let ours = affine_with_resets(AffineWithResets { a: x(&a), b: x(&b), reset: reset.clone(), h0: None })?.h;
    // A reset multiplies what came before it by zero.
    let kept = reset.eq(0_u8)?.to_dtype(DType::F64)?;
    let theirs = by_steps::affine(&(a.as_tensor() * kept)?, &b, &Tensor::zeros(1, DType::F64, device())?)?.0;
    assert_close("h", &ours, &theirs, 1e-12);
    let (ours, theirs) = (loss(&[&ours], 1)?.backward()?, loss(&[&theirs], 1)?.backward()?);
    assert_close("a", ours.get(&a).unwrap(), theirs.get(&a).unwrap(), 1e-12);
    Ok(())
}

#[test]
fn offsets_are_integers_of_32_or_64_bits() -> Result<()> {
    let mut random = Random::new(6);
    let (u, a) = (random.var(&[1, 1, 2, 6])?, random.var(&[1, 2, 3])?);
    let b = random.tensor(&[1, 1, 3, 6])?;
    let mut all = vec![];
    for dtype in [DType::I32, DType::I64] {
        // candle has no cast of integers on a GPU.
        let cu_seqlens = Tensor::new(&[0_i64, 2, 6], &Device::Cpu)?.to_dtype(dtype)?.to_device(device())?;
        let out = selective_scan_packed(SelectiveScanPacked {
            u: u.as_tensor().clone(),
            delta: u.as_tensor().clone(),
            a: a.as_tensor().clone(),
            b: b.clone(),
            c: b.clone(),
            cu_seqlens,
            skip: None,
            delta_bias: None,
        })?;
        let gradients = loss(&[&out.y], 1)?.backward()?;
        all.push([out.y, gradients.get(&u).unwrap().clone()]);
    }
    assert_close("y", &all[0][0], &all[1][0], 0.0);
    assert_close("u", &all[0][1], &all[1][1], 0.0);
    Ok(())
}
