//! Gradients of calls on the CPU.

use crate::common::{AFFINE, ramp};
use oplus::{Call, Device, Elem, Error, Kernel, Tensor};

const LEN: usize = 7;

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

/// λ[t] = ȳ[t] + a[t+1]·λ[t+1] per row, with the last state's cotangent added at the end; ā = λ·h[t−1], x̄ = λ, h̄0 = a[0]·λ[0].
fn expected(a: &[f32], h: &[f32], h0: &[f32], dy: &[f32], dlast: &[f32]) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let (mut da, mut dx, mut dh0) = (vec![0.0; a.len()], vec![0.0; a.len()], vec![]);
    for (row, (&start, &end)) in h0.iter().zip(dlast).enumerate() {
        let mut carry = end;
        for t in (row * LEN..(row + 1) * LEN).rev() {
            let lambda = dy[t] + carry;
            dx[t] = lambda;
            da[t] = lambda * if t % LEN == 0 { start } else { h[t - 1] };
            carry = a[t] * lambda;
        }
        dh0.push(carry);
    }
    (da, dx, dh0)
}

fn assert_close(found: &Tensor, expected: &[f32]) {
    let found = floats(found);
    assert_eq!(found.len(), expected.len());
    assert!(
        found.iter().zip(expected).all(|(x, y)| (x - y).abs() <= 1e-5 * y.abs().max(1.0)),
        "{found:?} {expected:?}"
    );
}

fn forward(h0: Option<&Tensor>) -> (Tensor, Vec<Tensor>, Call) {
    let a = ramp(&[2, LEN]);
    let (outputs, call) = AFFINE.call(&[Some(&a), Some(&ramp(&[2, LEN])), h0, None]).unwrap();
    (a, outputs, call)
}

#[test]
fn the_gradient_of_the_affine_scan_couples_its_fields() {
    let (h0, dy, dlast) = (ramp(&[2]), ramp(&[2, LEN]), ramp(&[2]));
    let (a, outputs, call) = forward(Some(&h0));
    let gradients = AFFINE.backward(&call, &[Some(&dy), Some(&dlast)]).unwrap();
    let expected = expected(&floats(&a), &floats(&outputs[0]), &floats(&h0), &floats(&dy), &floats(&dlast));
    let [Some(da), Some(dx), Some(dh0)] = &gradients[..] else { panic!("{gradients:?}") };
    assert_close(da, &expected.0);
    assert_close(dx, &expected.1);
    assert_close(dh0, &expected.2);
}

#[test]
fn absent_cotangents_are_zero_and_absent_inputs_have_no_gradient() {
    let (a, outputs, call) = forward(None);
    let gradients = AFFINE.backward(&call, &[None, Some(&ramp(&[2]))]).unwrap();
    let zeros = vec![0.0; 2 * LEN];
    let expected = expected(&floats(&a), &floats(&outputs[0]), &[0.0, 0.0], &zeros, &floats(&ramp(&[2])));
    assert_close(gradients[0].as_ref().unwrap(), &expected.0);
    assert_close(gradients[1].as_ref().unwrap(), &expected.1);
    assert!(gradients[2].is_none());
    let gradients = AFFINE.backward(&call, &[None, None]).unwrap();
    assert_close(gradients[0].as_ref().unwrap(), &zeros);
}

#[test]
fn gradients_go_into_tensors_of_the_callers() {
    let (_, _, call) = forward(None);
    let dy = ramp(&[2, LEN]);
    let fresh = AFFINE.backward(&call, &[Some(&dy), None]).unwrap();
    let dx = Tensor::zeros(Elem::F32, &[LEN, 2], &Device::Cpu).unwrap().permute(&[1, 0]).unwrap();
    AFFINE.backward_into(&call, &[Some(&dy), None], &[None, Some(&dx), None]).unwrap();
    assert_eq!(floats(&dx), floats(fresh[1].as_ref().unwrap()));
    let error = AFFINE.backward_into(&call, &[Some(&dy), None], &[None, Some(&dy), None]).unwrap_err().to_string();
    assert_eq!(error, "`x.bar` and `h.bar` overlap in memory; an output needs memory of its own");
}

#[test]
fn cotangents_that_do_not_fit_are_named() {
    let (_, _, call) = forward(None);
    let message = |cotangents: &[Option<&Tensor>]| AFFINE.backward(&call, cotangents).unwrap_err().to_string();
    assert_eq!(message(&[Some(&ramp(&[2, 8]))]), "2 cotangents are needed, 1 were given");
    let error = message(&[Some(&ramp(&[2, 8])), None]);
    assert!(error.starts_with("axis L has size 7 in ") && error.ends_with(" but 8 in `h.bar`"), "{error}");
    let halves = Tensor::full(half::f16::ONE, &[2, LEN], &Device::Cpu).unwrap();
    assert!(message(&[Some(&halves), None]).contains("`h.bar` stores f16"));
    let error = AFFINE.backward_into(&call, &[None, None], &[]).unwrap_err().to_string();
    assert_eq!(error, "3 gradients are needed, 0 were given");
}

#[test]
fn a_call_of_another_kernel_is_refused() {
    static OTHER: Kernel = Kernel::new(
        "other",
        "program other { axes N; param x: call[N]; %0: call[N] = param x; output y: call[N] = %0; }",
    );
    let (_, _, call) = forward(None);
    let error = OTHER.backward(&call, &[None]).unwrap_err().to_string();
    assert_eq!(error, "kernel `other` has no gradient: the call was made by another kernel");
}

#[test]
fn a_kernel_without_floats_has_no_gradient_and_says_why() {
    static COUNT: Kernel =
        Kernel::new("count", "program count { axes N; param x: i32[N]; %0: i32[N] = param x; output y: i32[N] = %0; }");
    let x = Tensor::from_slice(&[1, 2, 3], &[3]).unwrap();
    let (_, call) = COUNT.call(&[Some(&x)]).unwrap();
    assert!(matches!(COUNT.backward(&call, &[]), Err(Error::NoGradient { kernel, .. }) if kernel == "count"));
}

#[test]
fn a_gradient_needs_no_tensor_to_know_its_shape() {
    static SUM: Kernel = Kernel::new(
        "sum",
        "program sum {
            axes N;
            param x: call[N];
            operator Sum(s: call) {
                identity (0.0);
                %0: call = input l.s;
                %1: call = input r.s;
                %2: call = %0 + %1;
                combine (%2);
            }
            %0: call[N] = param x;
            %1: tuple = reduce(N, Sum, (%0));
            %2: call = %1.s;
            output y: call = %2;
        }",
    );
    let (_, call) = SUM.call(&[Some(&ramp(&[5]))]).unwrap();
    let one = Tensor::from_slice(&[1.0_f32], &[]).unwrap();
    assert_eq!(floats(SUM.backward(&call, &[Some(&one)]).unwrap()[0].as_ref().unwrap()), [1.0; 5]);
    assert_eq!(floats(SUM.backward(&call, &[None]).unwrap()[0].as_ref().unwrap()), [0.0; 5]);
}
