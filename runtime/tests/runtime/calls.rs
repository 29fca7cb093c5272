//! Calls on the CPU: results, and every way in which tensors can be wrong, word by word.

use crate::common::{AFFINE, ramp};
use oplus::{Device, Elem, Error, Tensor, models};
use rayon::prelude::*;

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

/// The recurrence, row by row, in f64.
fn affine(a: &[f32], x: &[f32], h0: &[f32], len: usize) -> Vec<f32> {
    let row = |b: usize| {
        let mut h = f64::from(h0[b]);
        (0..len).map(move |t| {
            h = f64::from(a[b * len + t]) * h + f64::from(x[b * len + t]);
            h as f32
        })
    };
    (0..h0.len()).flat_map(row).collect()
}

fn message(result: Result<(Vec<Tensor>, oplus::Call), Error>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn outputs_have_the_declared_types_and_values() {
    for len in [0, 1, 2, 7, 128, 1009] {
        let (a, x, h0) = (ramp(&[3, len]), ramp(&[3, len]), ramp(&[3]));
        let a = Tensor::from_vec(floats(&a).iter().map(|v| (v * 0.01).cos()).collect::<Vec<f32>>(), &[3, len]).unwrap();
        let (outputs, _) = AFFINE.call(&[Some(&a), Some(&x), Some(&h0), None]).unwrap();
        let expected = affine(&floats(&a), &floats(&x), &floats(&h0), len);
        let close = |x: &f32, y: &f32| (x - y).abs() <= 1e-5 * y.abs().max(1.0) * (len as f32).sqrt();
        assert_eq!(outputs[0].shape(), [3, len]);
        assert!(floats(&outputs[0]).iter().zip(&expected).all(|(x, y)| close(x, y)));
        let last = if len == 0 { floats(&h0) } else { expected[len - 1..].iter().step_by(len).copied().collect() };
        assert!(floats(&outputs[1]).iter().zip(&last).all(|(x, y)| close(x, y)));
        assert_eq!(outputs[2].to_vec::<i32>().unwrap(), [7, 7, 7]);
    }
}

/// The elements of a state come back as they went in: nothing rounds them on the way.
#[test]
fn states_have_the_type_in_which_a_call_computes() {
    let (affine, third) = (oplus::kernels::affine::kernel(), 1.0 / 3.0);
    let (a, b) = (Tensor::full(1.0, &[1, 2], &Device::Cpu).unwrap(), Tensor::full(0.0, &[1, 2], &Device::Cpu).unwrap());
    let h0 = Tensor::from_slice(&[third], &[1]).unwrap();
    let (outputs, call) = affine.call(&[Some(&a), Some(&b), Some(&h0)]).unwrap();
    assert_eq!(outputs[1].to_vec::<f64>().unwrap(), [third]);
    let gradients = affine.backward(&call, &[None, Some(&h0)]).unwrap();
    assert_eq!(gradients[2].as_ref().unwrap().to_vec::<f64>().unwrap(), [third]);
    let narrow = Tensor::from_slice(&[third as f32], &[1]).unwrap();
    let wrong = affine.call(&[Some(&a), Some(&b), Some(&narrow)]).map(drop).unwrap_err();
    assert_eq!(wrong, Error::WrongElem { tensor: "h0".into(), expected: "f64".into(), found: Elem::F32 });
    let [a, b] = [half::bf16::ONE, half::bf16::ZERO].map(|x| Tensor::full(x, &[1, 2], &Device::Cpu).unwrap());
    let (outputs, _) = affine.call(&[Some(&a), Some(&b), Some(&narrow)]).unwrap();
    assert_eq!(outputs[1].to_vec::<f32>().unwrap(), [third as f32]);
}

#[test]
fn strides_do_not_change_the_result() {
    let (a, x) = (ramp(&[2, 5]), ramp(&[2, 5]));
    let (dense, _) = AFFINE.call(&[Some(&a), Some(&x), None, None]).unwrap();
    let columns = |t: &Tensor| {
        let turned: Vec<f32> =
            (0..5).flat_map(|l| (0..2).map(move |b| (l, b))).map(|(l, b)| floats(t)[b * 5 + l]).collect();
        Tensor::from_vec(turned, &[5, 2]).unwrap().permute(&[1, 0]).unwrap()
    };
    let (strided, _) = AFFINE.call(&[Some(&columns(&a)), Some(&columns(&x)), None, None]).unwrap();
    assert_eq!(floats(&dense[0]), floats(&strided[0]));
    let last = floats(&a)[9];
    let reversed = a.as_strided(&[1, 5], &[0, -1], 9).unwrap();
    assert_eq!(floats(&reversed)[0], last);
    let (from_view, _) = AFFINE.call(&[Some(&reversed), Some(&x.slice(0, 1..2).unwrap()), None, None]).unwrap();
    let mut turned = floats(&a)[5..].to_vec();
    turned.reverse();
    assert_eq!(floats(&from_view[0]), affine(&turned, &floats(&x)[5..], &[0.0], 5));
}

#[test]
fn an_output_of_any_strides_is_written_in_place() {
    let (a, x) = (ramp(&[2, 5]), ramp(&[2, 5]));
    let (fresh, _) = AFFINE.call(&[Some(&a), Some(&x), None, None]).unwrap();
    let memory = Tensor::full(9.0_f32, &[5, 3], &Device::Cpu).unwrap();
    let h = memory.slice(1, 0..2).unwrap().permute(&[1, 0]).unwrap();
    let last = Tensor::zeros(Elem::F32, &[2], &Device::Cpu).unwrap();
    let steps = Tensor::zeros(Elem::I32, &[2], &Device::Cpu).unwrap();
    AFFINE.call_into(&[Some(&a), Some(&x), None, None], &[&h, &last, &steps]).unwrap();
    assert_eq!(floats(&h), floats(&fresh[0]));
    assert_eq!(floats(&memory.slice(1, 2..3).unwrap()), [9.0; 5]);
}

#[test]
fn outputs_and_inputs_may_share_a_memory_that_they_do_not_share_elements_of() {
    let memory = ramp(&[6, 5]);
    let rows = |range| memory.slice(0, range).unwrap();
    let (a, x, h) = (rows(0..2), rows(4..6), rows(2..4));
    let expected = affine(&floats(&a), &floats(&x), &[0.0, 0.0], 5);
    let last = Tensor::zeros(Elem::F32, &[2], &Device::Cpu).unwrap();
    let steps = Tensor::zeros(Elem::I32, &[2], &Device::Cpu).unwrap();
    AFFINE.call_into(&[Some(&a), Some(&x), None, None], &[&h, &last, &steps]).unwrap();
    assert_eq!(floats(&h), expected);
    assert_eq!(floats(&a), floats(&ramp(&[6, 5]))[..10]);
}

#[test]
fn sizes_that_disagree_name_axis_tensors_and_sizes() {
    let error = message(AFFINE.call(&[Some(&ramp(&[2, 5])), Some(&ramp(&[2, 6])), None, None]));
    assert_eq!(error, "axis L has size 5 in `a` but 6 in `x`");
    let (a, x, h0) = (ramp(&[2, 5]), ramp(&[2, 5]), ramp(&[3]));
    let error = message(AFFINE.call(&[Some(&a), Some(&x), Some(&h0), None]));
    assert_eq!(error, "axis B has size 2 in `a` but 3 in `h0`");
    let error = message(AFFINE.call(&[Some(&ramp(&[5])), Some(&x), None, None]));
    assert_eq!(error, "`a` has 1 axes, it must have 2: [B, L]");
}

#[test]
fn element_types_that_disagree_are_named() {
    let (a, x) = (ramp(&[2, 5]), ramp(&[2, 5]));
    let halves = Tensor::full(half::bf16::ONE, &[2, 5], &Device::Cpu).unwrap();
    let error = message(AFFINE.call(&[Some(&a), Some(&halves), None, None]));
    assert_eq!(error, "`a` stores f32 but `x` stores bf16; both take the element type of the call");
    let error = message(AFFINE.call(&[Some(&a), Some(&x), None, Some(&ramp(&[2]))]));
    assert_eq!(error, "`steps` must store i32, it stores f32");
    let ints = Tensor::full(1_i64, &[2, 5], &Device::Cpu).unwrap();
    let error = message(AFFINE.call(&[Some(&ints), Some(&x), None, None]));
    assert_eq!(error, "`a` must store a floating-point type (f64, f32, bf16 or f16), it stores i64");
    let error = a.to_vec::<f64>().unwrap_err().to_string();
    assert_eq!(error, "`tensor` must store f64, it stores f32");
}

#[test]
fn missing_tensors_are_named() {
    let a = ramp(&[2, 5]);
    let error = message(AFFINE.call(&[Some(&a), None, None, None]));
    assert_eq!(error, "`x` is missing; it has no default");
    assert_eq!(message(AFFINE.call(&[Some(&a)])), "4 inputs are needed, 1 were given");
    let error = AFFINE.call_into(&[Some(&a), Some(&a), None, None], &[&a]).unwrap_err().to_string();
    assert_eq!(error, "3 outputs are needed, 1 were given");
}

#[test]
fn outputs_without_memory_of_their_own_are_refused_and_nothing_is_written() {
    let (a, x, last) = (ramp(&[2, 5]), ramp(&[2, 5]), ramp(&[2]));
    let steps = Tensor::zeros(Elem::I32, &[2], &Device::Cpu).unwrap();
    let inputs = [Some(&a), Some(&x), None, None];
    let error = AFFINE.call_into(&inputs, &[&x, &last, &steps]).unwrap_err().to_string();
    assert_eq!(error, "`h` and `x` overlap in memory; an output needs memory of its own");
    let h = ramp(&[2, 6]);
    let (front, back) = (h.slice(1, 0..5).unwrap(), h.slice(1, 5..6).unwrap().reshape(&[2]).unwrap());
    let error = AFFINE.call_into(&inputs, &[&front, &back, &steps]).unwrap_err();
    assert_eq!(error, Error::Overlap { first: "h".into(), second: "last".into() });
    let broadcast = h.as_strided(&[2, 5], &[0, 1], 0).unwrap();
    let error = AFFINE.call_into(&inputs, &[&broadcast, &last, &steps]).unwrap_err().to_string();
    assert_eq!(error, "`h` overlaps itself: strides [0, 1] of shape [2, 5] name an element twice");
    assert_eq!((floats(&x), floats(&h)), (floats(&ramp(&[2, 5])), floats(&ramp(&[2, 6]))));
}

#[test]
fn calls_from_many_threads_that_share_memory_do_not_wait_for_each_other_for_ever() {
    let memory = ramp(&[8, 32]);
    std::thread::scope(|scope| {
        for k in 0..4 {
            let memory = &memory;
            scope.spawn(move || {
                let other = Tensor::zeros(Elem::F32, &[8, 32], &Device::Cpu).unwrap();
                let own = if k % 2 == 0 { (memory, &other) } else { (&other, memory) };
                let steps = Tensor::zeros(Elem::I32, &[2], &Device::Cpu).unwrap();
                for _ in 0..20 {
                    let row = |t: &Tensor, at: usize| t.slice(0, at..at + 2).unwrap();
                    let last = Tensor::zeros(Elem::F32, &[2], &Device::Cpu).unwrap();
                    let inputs = [Some(&row(own.0, 0)), Some(&row(own.1, 0)), None, None].map(|t| t.cloned());
                    let inputs = inputs.each_ref().map(Option::as_ref);
                    AFFINE.call_into(&inputs, &[&row(own.1, 2 + 2 * (k / 2)), &last, &steps]).unwrap();
                }
            });
        }
    });
    assert_eq!(floats(&memory)[..64], floats(&ramp(&[8, 32]))[..64]);
}

#[test]
fn tasks_of_a_thread_pool_write_parts_of_one_memory() {
    let (rows, len) = (16, 100_003);
    let all = Tensor::zeros(Elem::F32, &[rows, len], &Device::Cpu).unwrap();
    let ones = Tensor::full(1.0_f32, &[1, len], &Device::Cpu).unwrap();
    (0..rows).into_par_iter().for_each(|row| {
        let h = all.slice(0, row..row + 1).unwrap();
        let last = Tensor::zeros(Elem::F32, &[1], &Device::Cpu).unwrap();
        let steps = Tensor::zeros(Elem::I32, &[1], &Device::Cpu).unwrap();
        AFFINE.call_into(&[Some(&ones), Some(&ones), None, None], &[&h, &last, &steps]).unwrap();
    });
    assert!(floats(&all).chunks(len).all(|row| (1..=len).zip(row).all(|(t, h)| *h == t as f32)));
}

#[test]
fn a_text_that_is_no_program_says_so() {
    static BROKEN: oplus::Kernel = oplus::Kernel::new("broken", "program broken { axes ; ");
    assert!(matches!(BROKEN.call(&[]), Err(Error::Program { kernel, .. }) if kernel == "broken"));
}

#[test]
fn the_laws_of_a_text_written_by_hand_are_checked_on_demand() {
    let kernel = |combination: &str| {
        let text = format!(
            "program p {{ axes N; param a: i32[N]; operator Plus(a: i32) {{ identity (0); %0: i32 = input l.a;
            %1: i32 = input r.a; %2: i32 = {combination}; combine (%2); }} %0: i32[N] = param a;
            %1: tuple[N] = scan(N, Plus, (%0)); %2: i32[N] = %1.a; output y: i32[N] = %2; }}"
        );
        oplus::Kernel::new("p", text.leak())
    };
    assert_eq!(kernel("%0 + %1").check_laws(), Ok(()));
    let wrong = kernel("%0 - %1").check_laws().unwrap_err().to_string();
    assert!(wrong.contains("the identity of `Plus` is wrong in field `a`"), "{wrong}");
    assert!(wrong.contains("`Plus` is not associative in field `a`"), "{wrong}");
}

#[test]
fn axes_of_absent_tensors_have_no_size() {
    static FILL: oplus::Kernel = oplus::Kernel::new(
        "fill",
        "program fill { axes N; param x: f32[N] = 2.5; %0: f32[N] = param x; output y: f32[N] = %0; }",
    );
    assert_eq!(message(FILL.call(&[None])), "the size of axis N is unknown: none of the tensors given has it");
    let y = Tensor::zeros(Elem::F32, &[3], &Device::Cpu).unwrap();
    FILL.call_into(&[None], &[&y]).unwrap();
    assert_eq!(floats(&y), [2.5; 3]);
}

#[test]
fn tasks_may_share_an_axis_that_an_output_does_not_have() {
    // Channels of values are shared among tasks, and the log-sum-exp has none.
    let (queries, channels) = (3, 20_000);
    let q = Tensor::from_slice(&[0.5f32, -1.0, 2.0], &[1, 1, 1, queries, 1]).unwrap();
    let k = Tensor::from_slice(&[1.0f32, -2.0], &[1, 1, 2, 1]).unwrap();
    let values: Vec<f32> = (0..2 * channels).map(|i| (i as f32).sin()).collect();
    let v = Tensor::from_slice(&values, &[1, 1, 2, channels]).unwrap();
    let (outputs, _) = models::attention::kernel().call(&[Some(&q), Some(&k), Some(&v)]).unwrap();
    let (o, lse) = (floats(&outputs[0]), floats(&outputs[1]));
    for (m, q) in floats(&q).into_iter().enumerate() {
        let (first, second) = (q.exp(), (-2.0 * q).exp());
        let sum = first + second;
        assert!((lse[m] - sum.ln()).abs() <= 1e-5, "query {m}: {} instead of {}", lse[m], sum.ln());
        for f in 0..channels {
            let mean = (first * values[f] + second * values[channels + f]) / sum;
            let found = o[m * channels + f];
            assert!((found - mean).abs() <= 1e-5, "query {m}, channel {f}: {found} instead of {mean}");
        }
    }
}
