//! Packed sequences on the CPU: outputs and gradients are those of each sequence on its own.

use oplus::{Call, Elem, Kernel, Tensor, models};
use oplus_dsl::rng::Rng;

use crate::common::{named, random_inputs};

const SIZES: [(&str, usize); 9] =
    [("B", 2), ("G", 2), ("D", 3), ("N", 4), ("T", 23), ("H", 2), ("K", 3), ("V", 2), ("P", 3)];

/// Where sequences begin and the last one ends: some of them are empty, some have one element.
const PACKED: [&[i32]; 5] = [&[0, 23], &[0, 0, 1, 2, 2, 9, 22, 23, 23], &[0, 1, 23], &[0, 0, 23, 23], &[0, 11, 12, 23]];

/// The models of packed sequences, each with that of a single one.
fn models() -> [(&'static Kernel, &'static Kernel); 4] {
    [
        (models::selective_scan_packed::kernel(), models::selective_scan::kernel()),
        (models::mamba_packed::kernel(), models::mamba::kernel()),
        (models::monoid_attention_packed::kernel(), models::monoid_attention::kernel()),
        (models::ssd_packed::kernel(), models::ssd_softplus::kernel()),
    ]
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

/// Where the time stands among the axes of a parameter.
fn time_of(kernel: &Kernel, name: &str) -> Option<usize> {
    let program = kernel.program().unwrap();
    let time = program.axis("T");
    program.params.iter().find(|p| p.name == name)?.axes.iter().position(|axis| Some(*axis) == time)
}

/// The gradients of all parameters that are given, for this cotangent of the first output.
fn gradients(kernel: &Kernel, call: &Call, bar: &Tensor) -> Vec<(String, Tensor)> {
    let program = kernel.program().unwrap();
    let mut bars = vec![None; program.outputs.iter().filter(|o| o.elem.is_float()).count()];
    bars[0] = Some(bar);
    let all = kernel.backward(call, &bars).unwrap();
    let floats = program.params.iter().filter(|p| p.elem.is_float());
    floats.zip(all).filter_map(|(p, bar)| Some((p.name.clone(), bar?))).collect()
}

fn assert_close(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0f32, |m, x| m.max(x.abs()));
    for (k, (x, y)) in found.iter().zip(expected).enumerate() {
        assert!((x - y).abs() <= 1e-5 * largest, "{what}, element {k}: {x} instead of {y}");
    }
}

fn check(packed: &Kernel, single: &Kernel, offsets: &[i32]) {
    let program = packed.program().unwrap();
    let mut inputs = random_inputs(program, &SIZES, &mut Rng::new(offsets.len() as u64));
    inputs.insert("cu_seqlens".into(), Tensor::from_slice(offsets, &[offsets.len()]).unwrap());
    let (outputs, call) = packed.call(&named(program, &inputs)).unwrap();
    let output = &program.outputs[0];
    let time = output.axes.iter().position(|axis| Some(*axis) == program.axis("T")).unwrap();
    let bar = Tensor::from_vec((0..floats(&outputs[0]).len()).map(|k| (k as f32).sin()).collect(), outputs[0].shape());
    let bar = bar.unwrap();
    let found = gradients(packed, &call, &bar);
    let mut sums: Vec<Vec<f32>> = found.iter().map(|(_, bar)| vec![0.0; floats(bar).len()]).collect();
    for bounds in offsets.windows(2) {
        let times = bounds[0] as usize..bounds[1] as usize;
        let part = |name: &String, tensor: &Tensor| match time_of(packed, name) {
            Some(at) => tensor.slice(at, times.clone()).unwrap(),
            None => tensor.clone(),
        };
        let own = inputs.iter().map(|(name, tensor)| (name.clone(), part(name, tensor))).collect();
        let (alone, own_call) = single.call(&named(single.program().unwrap(), &own)).unwrap();
        let what = format!("{} of {offsets:?}, {times:?}", packed.name());
        assert_close(&what, &floats(&outputs[0].slice(time, times.clone()).unwrap()), &floats(&alone[0]));
        let own_bar = bar.slice(time, times.clone()).unwrap();
        for ((name, expected), ((_, all), sum)) in
            gradients(single, &own_call, &own_bar).iter().zip(found.iter().zip(&mut sums))
        {
            match time_of(packed, name) {
                Some(_) => {
                    assert_close(
                        &format!("{what}: the gradient of {name}"),
                        &floats(&part(name, all)),
                        &floats(expected),
                    );
                }
                None => sum.iter_mut().zip(floats(expected)).for_each(|(sum, x)| *sum += x),
            }
        }
    }
    for ((name, bar), sum) in found.iter().zip(&sums).filter(|((name, _), _)| time_of(packed, name).is_none()) {
        assert_close(&format!("{} of {offsets:?}: the gradient of {name}", packed.name()), &floats(bar), sum);
    }
    assert_eq!(found.len(), inputs.values().filter(|tensor| tensor.elem() == Elem::F32).count());
}

#[test]
fn packed_sequences_are_each_on_their_own() {
    for (packed, single) in models() {
        PACKED.into_iter().for_each(|offsets| check(packed, single, offsets));
    }
}
