//! The items that `scan!` declares, as a user's crate sees them: documented, without warnings, callable, differentiable.

#![deny(warnings, missing_docs)]

use oplus::{Tensor, scan};

/// Kernels of the crate's interface.
pub mod public {
    oplus::scan! {
        /// Addition, written out once more.
        pub op Plus(s) {
            identity (0);
            combine(l, r) (l.s + r.s);
        }

        /// Counting up to 255.
        pub op Saturating(n: u32) where n <= 255 {
            identity (0);
            combine(l, r) (min(l.n + r.n, 255));
        }

        /// Counts that stop at 255.
        pub fn counts(x: u32[T]) -> (y: u32[T]) {
            y = scan(T, Saturating(x));
        }

        /// Sums from the left, and the total.
        pub fn sums(x: [B, T], s0: f32[B] = 0) -> (y: [B, T], total: f32[B]) {
            let s = scan(T, Plus(x), init = s0);
            y = s;
            total = last(T, s);
        }
    }
}

scan! {
    // Names that the expansion itself might use.
    fn awkward(inputs: [T], outputs: [T], gradients: f32, kernel: f32 = 1) -> (call: [T], call_: [T], cotangents: []) {
        call = scan(T, Sum(inputs * outputs));
        call_ = kernel * gradients * inputs;
        cotangents = sum(T, inputs);
    }

    fn counted(x: [T]) -> (n: i64) {
        n = sum(T, select(x > 0, 1, 0) as i64);
    }
}

/// A scope in which the names of tensors, of the prelude and of derives mean other things.
pub mod crowded {
    #![allow(missing_docs, non_camel_case_types, clippy::exhaustive_structs)]

    pub struct x;
    pub struct y;
    pub struct offset;
    pub struct Some;
    pub struct Ok;
    pub trait Option {}
    pub trait Result {}
    pub trait TryFrom {}
    pub trait Clone {}
    pub trait Debug {}
    pub trait Default {}

    oplus::scan! {
        /// Addition under the name of another.
        pub op Sum(s) {
            identity (0);
            combine(l, r) (l.s + r.s);
        }

        /// Sums from an offset.
        pub fn shifted(x: [T], offset: f32 = 0) -> (y: [T]) {
            y = scan(T, Sum(x)) + offset;
        }
    }
}

fn tensor(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::from_slice(data, shape).expect("a tensor")
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().expect("f32 on the CPU")
}

#[test]
fn a_kernel_is_called_with_named_fields_and_optional_ones() {
    use public::{Sums, SumsCotangents, sums};
    let x = tensor(&[1, 3], &[1.0, 2.0, 3.0]);
    let out = sums(Sums { x: x.clone(), s0: None }).expect("outputs");
    assert_eq!(floats(&out.y), [1.0, 3.0, 6.0]);
    let grads = out.backward(SumsCotangents { y: Some(x.clone()), total: None }).expect("gradients");
    assert_eq!(floats(&grads.x), [6.0, 5.0, 3.0]);
    assert!(grads.s0.is_none());
    let s0 = Some(tensor(&[1], &[10.0]));
    let out = sums(Sums { x: x.clone(), s0 }).expect("outputs");
    assert_eq!(floats(&out.total), [16.0]);
    let total = Some(tensor(&[1], &[2.0]));
    let grads = out.backward(SumsCotangents { total, ..SumsCotangents::default() }).expect("gradients");
    assert_eq!(floats(&grads.s0.expect("a gradient of a given input")), [2.0]);
    assert_eq!(floats(&grads.x), [2.0, 2.0, 2.0]);
}

#[test]
fn an_operator_for_some_states_only_runs() {
    use public::{Counts, Saturating, counts};
    let x = Tensor::from_slice(&[200u32, 50, 50, 1], &[4]).expect("a tensor");
    let out = counts(Counts { x }).expect("outputs");
    assert_eq!(out.y.to_vec::<u32>().expect("integers"), [200, 250, 255, 255]);
    assert!(Saturating::TEXT.contains("holds (%2);"), "{}", Saturating::TEXT);
    assert_eq!(counts::kernel().check_laws(), Ok(()));
}

#[test]
fn names_do_not_collide_with_those_of_the_expansion() {
    let x = tensor(&[2], &[1.0, 2.0]);
    let gradients = tensor(&[], &[3.0]);
    let out = awkward(Awkward { inputs: x.clone(), outputs: x, gradients, kernel: None }).expect("outputs");
    assert_eq!(floats(&out.call), [1.0, 5.0]);
    assert_eq!(floats(&out.call_), [3.0, 6.0]);
    let cotangents = AwkwardCotangents { cotangents: Some(tensor(&[], &[1.0])), ..AwkwardCotangents::default() };
    assert_eq!(floats(&out.backward(cotangents).expect("gradients").inputs), [1.0, 1.0]);
}

#[test]
fn items_of_the_users_do_not_disturb_the_expansion() {
    use crowded::{Shifted, ShiftedCotangents, shifted};
    let x = tensor(&[2], &[1.0, 2.0]);
    let out = shifted(Shifted { x: x.clone(), offset: Some(tensor(&[], &[10.0])) }).expect("outputs");
    assert_eq!(floats(&out.y), [11.0, 13.0]);
    let gradients = out.backward(ShiftedCotangents { y: Some(x) }).expect("gradients");
    assert_eq!((floats(&gradients.x), floats(&gradients.offset.expect("given"))), (vec![3.0, 2.0], vec![3.0]));
}

#[test]
fn a_kernel_whose_state_goes_in_and_out_has_a_step() {
    use public::sums;
    let step = |x: f32, s0: Option<Tensor>| sums::step(sums::Step { x: tensor(&[1], &[x]), s0 }).expect("outputs");
    let first = step(1.0, None);
    let second = step(2.0, Some(first.total));
    assert_eq!((floats(&first.y), floats(&second.y)), (vec![1.0], vec![3.0]));
    let cotangents = sums::StepCotangents { total: Some(tensor(&[1], &[4.0])), ..Default::default() };
    let gradients = second.backward(cotangents).expect("gradients");
    assert_eq!((floats(&gradients.x), floats(&gradients.s0.expect("of the state"))), (vec![4.0], vec![4.0]));
    assert!(sums::step::TEXT.starts_with("program sums_step {\n    axes B;"));
}

#[test]
fn the_standard_models_prefill_and_decode() {
    use oplus::models::{SsmVarying, ssm_varying};
    let all = tensor(&[1, 3], &[1.0, 0.5, 2.0]);
    let whole = |x: &Tensor| SsmVarying { x: x.clone(), a: x.clone(), b: x.clone(), c: x.clone(), h0: None };
    let part = |from: usize, to: usize| all.slice(1, from..to).expect("a part");
    let expected = floats(&ssm_varying(whole(&all)).expect("outputs").y);
    let prefill = ssm_varying(whole(&part(0, 2))).expect("outputs");
    let x = part(2, 3).reshape(&[1]).expect("one time");
    let inputs = ssm_varying::Step { x: x.clone(), a: x.clone(), b: x.clone(), c: x, h0: Some(prefill.h_last) };
    assert_eq!(floats(&ssm_varying::step(inputs).expect("outputs").y), expected[2..]);
}

#[test]
fn a_block_may_stand_in_a_function() {
    scan! { fn doubled(x: [T]) -> (y: [T]) { y = 2 * x; } }
    let out = doubled(Doubled { x: tensor(&[1], &[4.0]) }).expect("outputs");
    assert_eq!(floats(&out.y), [8.0]);
    assert_eq!(doubled::kernel().name(), "doubled");
    assert!(doubled::TEXT.starts_with("program doubled {"));
}

#[test]
fn integers_have_no_gradient_and_no_items_for_one() {
    let out = counted(Counted { x: tensor(&[3], &[1.0, -1.0, 2.0]) }).expect("outputs");
    assert_eq!(out.n.to_vec::<i64>().expect("an integer"), [2]);
}

#[test]
fn the_standard_library_documents_and_runs() {
    use oplus::kernels::{Ema, ema};
    let inputs = Ema { x: tensor(&[1, 2], &[1.0, 1.0]), alpha: tensor(&[], &[0.5]), y0: None };
    assert_eq!(floats(&ema(inputs).expect("outputs").y), [0.5, 0.75]);
    assert!(oplus::operators::Affine::TEXT.contains("operator Affine"));
}
