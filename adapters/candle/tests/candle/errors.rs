//! Refused calls, and the words of their errors.

use candle_core::{DType, Tensor, Var};
use oplus_candle::call;
use oplus_candle::kernels::{Affine, affine};

use crate::device;

fn zeros(dtype: DType, shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, dtype, device()).expect("memory for zeros")
}

fn message(a: Tensor, b: Tensor) -> String {
    affine(Affine { a, b, h0: None }).expect_err("the call is refused").to_string()
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let f32 = |shape: &[usize]| zeros(DType::F32, shape);
    assert!(message(f32(&[2, 3]), f32(&[2, 4])).contains("axis T has size 3 in `a` but 4 in `b`"));
    assert!(message(f32(&[2, 3]), f32(&[6])).contains("`b` has 1 axes, it must have 2: [B, T]"));
    let mixed = message(f32(&[2, 3]), zeros(DType::F64, &[2, 3]));
    assert!(mixed.contains("`a` stores f32 but `b` stores f64"), "{mixed}");
}

#[test]
fn types_that_no_kernel_takes_are_refused() {
    let mixed = message(zeros(DType::F32, &[2, 3]), zeros(DType::U8, &[2, 3]));
    assert!(mixed.contains("`b` stores u8"), "{mixed}");
    let mixed = message(zeros(DType::F32, &[2, 3]), zeros(DType::I64, &[2, 3]));
    assert!(mixed.contains("`b` must store"), "{mixed}");
}

#[test]
fn a_number_of_inputs_that_the_kernel_does_not_have_is_refused() {
    let x = zeros(DType::F32, &[2, 3]);
    let kernel = oplus_candle::kernels::affine::kernel();
    let error = call(kernel, &[Some(&x)]).expect_err("the call is refused").to_string();
    assert!(error.contains("3 inputs are needed, 1 were given"), "{error}");
    let error = call(kernel, &[Some(&x), None, None]).expect_err("the call is refused").to_string();
    assert!(error.contains("`b` is missing; it has no default"), "{error}");
}

#[test]
fn a_kernel_without_gradient_says_so_when_it_is_asked() {
    oplus_candle::scan! {
        pub fn position(x: [T]) -> (at: i64[T]) {
            at = if x > 0 { index(T) } else { 0 };
        }
    }
    let x = Var::new(&[1.0_f32, -1.0, 1.0], device()).expect("a variable");
    let at = position(Position { x: x.as_tensor().clone() }).expect("the call").at;
    assert_eq!(at.to_vec1::<i64>().expect("integers"), [0, 0, 2]);
    assert!(!at.track_op());
}
