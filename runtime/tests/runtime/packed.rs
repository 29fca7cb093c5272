//! Packed sequences on the CPU: outputs and gradients are those of each sequence on its own.

use std::ops::Range;

use oplus::{Call, Elem, Kernel, Tensor, models};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::rng::Rng;

use crate::common::{named, random_inputs};

const SIZES: [(&str, usize); 9] =
    [("B", 2), ("G", 2), ("D", 3), ("N", 4), ("T", 23), ("H", 2), ("K", 3), ("V", 2), ("P", 3)];

/// Where sequences begin and the last one ends: some of them are empty, some have one element.
const PACKED: [&[i32]; 5] = [&[0, 23], &[0, 0, 1, 2, 2, 9, 22, 23, 23], &[0, 1, 23], &[0, 0, 23, 23], &[0, 11, 12, 23]];

/// The models of packed sequences, each with that of a single one.
fn models() -> [(&'static Kernel, &'static Kernel); 10] {
    [
        (models::affine_packed_states::kernel(), oplus::kernels::affine::kernel()),
        (models::selective_scan_packed_states::kernel(), models::selective_scan::kernel()),
        (models::mamba_packed_states::kernel(), models::mamba::kernel()),
        (models::monoid_attention_packed_states::kernel(), models::monoid_attention::kernel()),
        (models::gated_linear_attention_packed_states::kernel(), models::gated_linear_attention::kernel()),
        (models::ssd_packed_states::kernel(), models::ssd_softplus::kernel()),
        (models::selective_scan_packed::kernel(), models::selective_scan::kernel()),
        (models::mamba_packed::kernel(), models::mamba::kernel()),
        (models::monoid_attention_packed::kernel(), models::monoid_attention::kernel()),
        (models::ssd_packed::kernel(), models::ssd_softplus::kernel()),
    ]
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

/// Where an axis stands among those of a parameter or an output.
fn place(program: &Program, axes: &[Axis], name: &str) -> Option<usize> {
    axes.iter().position(|axis| program.axis_name(*axis) == name)
}

/// The part of a tensor that belongs to a sequence: its times, and its own index along S.
fn part(program: &Program, axes: &[Axis], tensor: &Tensor, (times, s): (Range<usize>, usize)) -> Tensor {
    let mut part = tensor.clone();
    if let Some(at) = place(program, axes, "T") {
        part = part.slice(at, times).unwrap();
    }
    if let Some(at) = place(program, axes, "S") {
        let kept = part.shape().iter().enumerate().filter(|(k, _)| *k != at).map(|(_, n)| *n);
        let shape: Vec<usize> = kept.collect();
        part = Tensor::from_vec(floats(&part.slice(at, s..s + 1).unwrap()), &shape).unwrap();
    }
    part
}

/// The gradients of all parameters that are given, for these cotangents of the outputs.
fn gradients(kernel: &Kernel, call: &Call, bars: &[Option<Tensor>]) -> Vec<(Param, Tensor)> {
    let program = kernel.program().unwrap();
    let bars: Vec<Option<&Tensor>> = bars.iter().map(Option::as_ref).collect();
    let all = kernel.backward(call, &bars).unwrap();
    let floats = program.params.iter().filter(|p| p.elem.is_float());
    floats.zip(all).filter_map(|(p, bar)| Some((p.clone(), bar?))).collect()
}

/// Cotangents of the outputs that single sequences have too.
fn bars(packed: &Program, outputs: &[Tensor]) -> Vec<Option<Tensor>> {
    let bar = |tensor: &Tensor, seed: usize| {
        let n = floats(tensor).len();
        Tensor::from_vec((0..n).map(|k| ((k + 7 * seed) as f32).sin()).collect(), tensor.shape()).unwrap()
    };
    packed.outputs.iter().zip(outputs).enumerate().map(|(k, (_, tensor))| Some(bar(tensor, k))).collect()
}

fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0f32, |m, x| m.max(x.abs()));
    for (k, (x, y)) in found.iter().zip(expected).enumerate() {
        assert!((x - y).abs() <= 1e-5 * largest, "{what}, element {k}: {x} instead of {y}");
    }
}

fn check(packed: &Kernel, single: &Kernel, offsets: &[i32]) {
    let (program, alone) = (packed.program().unwrap(), single.program().unwrap());
    let sizes = [&SIZES[..], &[("S", offsets.len() - 1)]].concat();
    let mut inputs = random_inputs(program, &sizes, &mut Rng::new(offsets.len() as u64));
    inputs.insert("cu_seqlens".into(), Tensor::from_slice(offsets, &[offsets.len()]).unwrap());
    let (outputs, call) = packed.call(&named(program, &inputs)).unwrap();
    let bars = bars(program, &outputs);
    let found = gradients(packed, &call, &bars);
    let mut sums: Vec<Vec<f32>> = found.iter().map(|(_, bar)| vec![0.0; floats(bar).len()]).collect();
    for (s, bounds) in offsets.windows(2).enumerate() {
        let own = (bounds[0] as usize..bounds[1] as usize, s);
        let what = format!("{} of {offsets:?}, sequence {s}", packed.name());
        let given = program.params.iter().filter(|p| p.elem.is_float());
        let given = given.map(|p| (p.name.clone(), part(program, &p.axes, &inputs[&p.name], own.clone()))).collect();
        let (results, own_call) = single.call(&named(alone, &given)).unwrap();
        let mut own_bars = vec![None; alone.outputs.iter().filter(|o| o.elem.is_float()).count()];
        for ((output, tensor), bar) in program.outputs.iter().zip(&outputs).zip(&bars) {
            let at = alone.outputs.iter().position(|o| o.name == output.name).unwrap();
            let mine = part(program, &output.axes, tensor, own.clone());
            assert_close(&format!("{what}: {}", output.name), &floats(&mine), &floats(&results[at]));
            own_bars[at] = bar.as_ref().map(|bar| part(program, &output.axes, bar, own.clone()));
        }
        for (param, expected) in gradients(single, &own_call, &own_bars) {
            let Some(at) = found.iter().position(|(p, _)| p.name == param.name) else { continue };
            let ((p, all), sum) = (&found[at], &mut sums[at]);
            if ["T", "S"].iter().any(|axis| place(program, &p.axes, axis).is_some()) {
                let mine = part(program, &p.axes, all, own.clone());
                assert_close(&format!("{what}: the gradient of {}", p.name), &floats(&mine), &floats(&expected));
            } else {
                sum.iter_mut().zip(floats(&expected)).for_each(|(sum, x)| *sum += x);
            }
        }
    }
    for ((p, bar), sum) in found.iter().zip(&sums) {
        if ["T", "S"].iter().all(|axis| place(program, &p.axes, axis).is_none()) {
            assert_close(&format!("{} of {offsets:?}: the gradient of {}", packed.name(), p.name), &floats(bar), sum);
        }
    }
    assert_eq!(found.len(), inputs.values().filter(|tensor| tensor.elem() == Elem::F32).count());
}

#[test]
fn packed_sequences_are_each_on_their_own() {
    for (packed, single) in models() {
        PACKED.into_iter().for_each(|offsets| check(packed, single, offsets));
    }
}

/// The first steps at once, the others one by one: packed, each sequence one element at a time, and by the one-step form of the
/// kernel of single sequences.
#[test]
fn packed_sequences_go_on_step_by_step() {
    let mut rng = Rng::new(9);
    let mut random = |shape: &[usize]| {
        let n = shape.iter().product::<usize>();
        Tensor::from_vec((0..n).map(|_| rng.between(-1.0, 1.0) as f32).collect(), shape).unwrap()
    };
    let prompt = models::AffinePackedStates {
        a: random(&[1, 6]),
        b: random(&[1, 6]),
        cu_seqlens: Tensor::from_slice(&[0_i64, 4, 4, 6], &[4]).unwrap(),
        h0: Some(random(&[1, 3])),
    };
    let state = models::affine_packed_states(prompt).unwrap().h_last;
    let (a, b) = (random(&[1, 3]), random(&[1, 3]));
    let next = models::affine_packed_states(models::AffinePackedStates {
        a: a.clone(),
        b: b.clone(),
        cu_seqlens: Tensor::from_slice(&[0_i64, 1, 2, 3], &[4]).unwrap(),
        h0: Some(state.clone()),
    });
    let [a, b, h0] = [a, b, state].map(|tensor| tensor.reshape(&[3]).unwrap());
    let step = oplus::kernels::affine::step(oplus::kernels::affine::Step { a, b, h0: Some(h0) }).unwrap();
    let next = next.unwrap();
    assert_eq!(floats(&next.h_last), floats(&step.h_last));
    assert_eq!(floats(&next.h), floats(&step.h));
}
