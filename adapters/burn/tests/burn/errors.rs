//! What is refused, in which words.

use burn::tensor::{DType, Device, Int, Tensor};
use oplus_burn::kernels::{Affine, affine};
use oplus_burn::{Error, call};

fn zeros(dtype: DType, shape: [usize; 2]) -> Tensor<2> {
    Tensor::zeros(shape, (&Device::flex(), dtype))
}

fn refused(a: Tensor<2>, b: Tensor<2>) -> Error {
    affine(Affine { a, b, h0: None }).expect_err("the call is refused")
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let error = refused(zeros(DType::F32, [2, 3]), zeros(DType::F32, [2, 4]));
    assert_eq!(error.to_string(), "axis T has size 3 in `a` but 4 in `b`");
    assert!(matches!(error, Error::Call(oplus_burn::oplus::Error::ShapeMismatch { .. })));
    let error = refused(zeros(DType::F32, [2, 3]), zeros(DType::F64, [2, 3])).to_string();
    assert!(error.contains("`a` stores f32 but `b` stores f64"), "{error}");
}

#[test]
fn types_that_no_kernel_takes_are_refused() {
    let kernel = oplus_burn::kernels::affine::kernel;
    let small = Tensor::<2, Int>::zeros([2, 3], (&Device::flex(), DType::I16)).into_dispatch();
    let a = || Some(zeros(DType::F32, [2, 3]).into_dispatch());
    let error = call(kernel(), &[a(), Some(small), None]).expect_err("the call is refused");
    assert_eq!(error, Error::Stored { tensor: "b".into(), found: "I16".into() });
    let wide = Tensor::<2, Int>::zeros([2, 3], (&Device::flex(), DType::I64)).into_dispatch();
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
