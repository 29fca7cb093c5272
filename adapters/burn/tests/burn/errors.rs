//! Refused calls, and the words of their errors.

use burn::tensor::{DType, Int, Tensor};
use oplus_burn::kernels::{Affine, affine};
use oplus_burn::{Error, call};

use crate::plain_device;

fn zeros(dtype: DType, shape: [usize; 2]) -> Tensor<2> {
    Tensor::zeros(shape, (&plain_device(), dtype))
}

fn refused(a: Tensor<2>, b: Tensor<2>) -> Error {
    affine(Affine { a, b, h0: None }).expect_err("the call is refused")
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let error = refused(zeros(DType::F32, [2, 3]), zeros(DType::F32, [2, 4]));
    assert_eq!(error.to_string(), "axis T has size 3 in `a` but 4 in `b`");
    assert!(matches!(error, Error::Call(oplus_burn::oplus::Error::ShapeMismatch { .. })));
    let error = refused(zeros(DType::F32, [2, 3]), zeros(DType::BF16, [2, 3])).to_string();
    assert!(error.contains("`a` stores f32 but `b` stores bf16"), "{error}");
}

#[test]
fn types_that_no_kernel_takes_are_refused() {
    let kernel = oplus_burn::kernels::affine::kernel;
    let small = Tensor::<2, Int>::zeros([2, 3], (&plain_device(), DType::I16)).into_dispatch();
    let a = || Some(zeros(DType::F32, [2, 3]).into_dispatch());
    let error = call(kernel(), &[a(), Some(small), None]).expect_err("the call is refused");
    assert_eq!(error, Error::Stored { tensor: "b".into(), found: "I16".into() });
    let wide = Tensor::<2, Int>::zeros([2, 3], (&plain_device(), DType::I64)).into_dispatch();
    let error = call(kernel(), &[a(), Some(wide), None]).expect_err("the call is refused").to_string();
    assert!(error.contains("`b` must store"), "{error}");
}

#[test]
fn a_number_of_inputs_that_the_kernel_does_not_have_is_refused() {
    let kernel = oplus_burn::kernels::affine::kernel;
    let x = || Some(zeros(DType::F32, [2, 3]).into_dispatch());
    let error = call(kernel(), &[x()]).expect_err("the call is refused").to_string();
    assert!(error.contains("3 inputs are needed, 1 were given"), "{error}");
    let error = call(kernel(), &[x(), x(), None, x()]).expect_err("the call is refused").to_string();
    assert!(error.contains("3 inputs are needed, 4 were given"), "{error}");
    let error = call(kernel(), &[x(), None, None]).expect_err("the call is refused").to_string();
    assert!(error.contains("`b` is missing; it has no default"), "{error}");
}

/// Kernels of one call run on one device.
#[cfg(feature = "cuda")]
#[test]
fn tensors_of_two_backends_are_refused() {
    if !crate::is_on_gpu() {
        return;
    }
    let other = Tensor::<2>::zeros([2, 3], (&burn::tensor::Device::flex(), DType::F32));
    let error = refused(zeros(DType::F32, [2, 3]), other).to_string();
    assert!(
        error.starts_with("`b` is on the backend") && error.ends_with("where all tensors of a call are"),
        "{error}"
    );
}
