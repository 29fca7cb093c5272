//! The element types that burn has.

use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use oplus_burn::Error;
use oplus_burn::kernels::{Affine, AffineWithResets, affine, affine_with_resets};
use oplus_burn::models::{SelectiveScan, SelectiveScanPacked, selective_scan, selective_scan_packed};

use crate::{Random, assert_close, by_steps, device, loss, widest};

#[test]
fn affine_and_its_gradient_in_every_float() -> Result<(), Error> {
    for (dtype, tolerance) in [(widest(), 1e-12), (DType::F32, 1e-5), (DType::F16, 1e-2), (DType::BF16, 6e-2)] {
        let mut random = Random::new(9);
        let mut leaf = || random.tensor([3, 7]).cast(dtype).require_grad();
        let (a, b) = (leaf(), leaf());
        let wide = |x: &Tensor<2>| x.clone().inner().cast(widest()).autodiff().require_grad();
        let (a_wide, b_wide) = (wide(&a), wide(&b));
        let theirs = by_steps::affine(&a_wide, &b_wide, &Random::new(0).tensor([3]).zeros_like()).0;
        let ours = affine(Affine { a: a.clone(), b: b.clone(), h0: None })?.h;
        assert_eq!(ours.dtype(), dtype);
        assert_close("h", &ours, &theirs, tolerance);
        let (ours, theirs) = (loss(&ours, 1).backward(), loss(&theirs, 1).backward());
        assert_close("a", &a.grad(&ours).unwrap(), &a_wide.grad(&theirs).unwrap(), 4.0 * tolerance);
        assert_close("b", &b.grad(&ours).unwrap(), &b_wide.grad(&theirs).unwrap(), 4.0 * tolerance);
        assert_eq!(a.grad(&ours).unwrap().dtype(), dtype);
    }
    Ok(())
}

#[test]
fn learned_numbers_and_states_are_f32_beside_bf16() -> Result<(), Error> {
    let mut random = Random::new(2);
    let u = random.tensor([1, 1, 2, 5]).cast(DType::BF16).require_grad();
    let b = random.tensor([1, 1, 3, 5]).cast(DType::BF16);
    let a = random.tensor([1, 2, 3]).cast(DType::F32).require_grad();
    let (skip, delta_bias, h0) = Default::default();
    let inputs =
        SelectiveScan { u: u.clone(), delta: u.clone(), a: a.clone(), b: b.clone(), c: b, skip, delta_bias, h0 };
    let out = selective_scan(inputs)?;
    assert_eq!((out.y.dtype(), out.h_last.dtype()), (DType::BF16, DType::F32));
    let gradients = (loss(&out.y, 1) + loss(&out.h_last, 2)).backward();
    assert_eq!(u.grad(&gradients).unwrap().dtype(), DType::BF16);
    assert_eq!(a.grad(&gradients).unwrap().dtype(), DType::F32);
    Ok(())
}

#[test]
fn truth_values_say_where_a_state_is_forgotten() -> Result<(), Error> {
    let mut random = Random::new(3);
    let (a, b) = (random.leaf([1, 6]), random.leaf([1, 6]));
    let reset = Tensor::<2, Bool>::from_data([[false, false, true, false, true, false]], &device());
    let kept = Tensor::from_data(TensorData::from([[1.0, 1.0, 0.0, 1.0, 0.0, 1.0]]), (&device(), widest()));
    let ours = affine_with_resets(AffineWithResets { a: a.clone(), b: b.clone(), reset, h0: None })?.h;
    let theirs = by_steps::affine(&(a.clone() * kept), &b, &random.tensor([1]).zeros_like()).0;
    assert_close("h", &ours, &theirs, 1e-12);
    let (ours, theirs) = (loss(&ours, 1).backward(), loss(&theirs, 1).backward());
    assert_close("a", &a.grad(&ours).unwrap(), &a.grad(&theirs).unwrap(), 1e-12);
    Ok(())
}

#[test]
fn offsets_are_integers_of_32_or_64_bits() -> Result<(), Error> {
    let mut random = Random::new(6);
    let (u, a, b) = (random.leaf([1, 1, 2, 6]), random.tensor([1, 2, 3]), random.tensor([1, 1, 3, 6]));
    let mut all = vec![];
    for dtype in [DType::I32, DType::I64] {
        let cu_seqlens = Tensor::<1, Int>::from_data(TensorData::from([0, 2, 6]), (&device(), dtype));
        assert_eq!(cu_seqlens.dtype(), dtype);
        let (u, a, b, c) = (u.clone(), a.clone(), b.clone(), b.clone());
        let inputs =
            SelectiveScanPacked { delta: u.clone(), u: u.clone(), a, b, c, cu_seqlens, skip: None, delta_bias: None };
        let y = selective_scan_packed(inputs)?.y;
        let gradients = loss(&y, 1).backward();
        all.push([y.inner(), u.grad(&gradients).unwrap()]);
    }
    assert_close("y", &all[0][0], &all[1][0], 0.0);
    assert_close("u", &all[0][1], &all[1][1], 0.0);
    Ok(())
}
