//! Element types of models on the CPU: calls of `f64` are as exact as `f64`, and what a parameter may store instead.

use std::collections::HashMap;

use half::bf16;
use oplus::{Elem, Error, Kernel, Tensor, kernels, models};
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::alternative::choose;
use oplus_dsl::interpret::{Array, Data, Mode, Precision, interpret_sized};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::rng::Rng;

const SIZES: [(&str, usize); 13] = [
    ("B", 2),
    ("G", 2),
    ("R", 2),
    ("D", 3),
    ("N", 5),
    ("T", 13),
    ("H", 2),
    ("K", 3),
    ("V", 2),
    ("M", 7),
    ("E", 4),
    ("S", 3),
    ("S.ends", 4),
];

fn size(program: &Program, axis: Axis) -> usize {
    let name = program.axis_name(axis);
    SIZES.iter().find(|(known, _)| *known == name).map_or(3, |(_, n)| *n)
}

/// Numbers of a type that a tensor of it holds exactly.
fn stored(elem: Elem, array: &Array) -> Tensor {
    let shape = &array.sizes;
    match &array.data {
        Data::Float(x) => match elem {
            Elem::F64 => Tensor::from_slice(x, shape),
            Elem::F32 => Tensor::from_vec(x.iter().map(|x| *x as f32).collect(), shape),
            _ => Tensor::from_vec(x.iter().map(|x| bf16::from_f64(*x)).collect(), shape),
        },
        Data::Int(x) if elem == Elem::I32 => Tensor::from_vec(x.iter().map(|x| *x as i32).collect(), shape),
        Data::Int(x) => Tensor::from_slice(x, shape),
        Data::Bool(x) => Tensor::from_slice(x, shape),
    }
    .unwrap()
}

/// The elements of a tensor, as an array of the interpreter.
fn array(tensor: &Tensor) -> Array {
    let floats = match tensor.elem() {
        Elem::F64 => tensor.to_vec::<f64>().unwrap(),
        Elem::F32 => tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect(),
        _ => tensor.to_vec::<bf16>().unwrap().into_iter().map(f64::from).collect(),
    };
    Array::floats(tensor.shape(), floats)
}

/// Random numbers for every parameter: floats in (−1, 1), offsets in order, truth values.
fn random(program: &Program, rng: &mut Rng) -> HashMap<String, Array> {
    let of = |param: &Param, rng: &mut Rng| {
        let sizes: Vec<usize> = param.axes.iter().map(|axis| size(program, *axis)).collect();
        let n = sizes.iter().product();
        let data = match param.elem {
            elem if elem.is_float() => Data::Float((0..n).map(|_| rng.between(-1.0, 1.0)).collect()),
            Elem::Bool => Data::Bool((0..n).map(|_| rng.below(2) == 1).collect()),
            _ => Data::Int((0..n as i64).map(|k| 2 * k).collect()),
        };
        Array { sizes, data }
    };
    program.params.iter().map(|param| (param.name.clone(), of(param, rng))).collect()
}

/// The results of a kernel: outputs, and `p.bar` for gradients of the sum of all outputs times their cotangents.
struct Results(HashMap<String, Tensor>);

/// Calls a kernel and its gradient.
fn call(kernel: &Kernel, inputs: &HashMap<String, Tensor>, bars: &HashMap<String, Array>) -> Results {
    let program = kernel.program().unwrap();
    let given: Vec<_> = program.params.iter().map(|param| inputs.get(&param.name)).collect();
    let (outputs, call) = kernel.call(&given).unwrap();
    let floats: Vec<_> = program.outputs.iter().zip(&outputs).filter(|(o, _)| o.elem.is_float()).collect();
    let bars: Vec<Tensor> = floats.iter().map(|(o, t)| stored(t.elem(), &bars[&o.name])).collect();
    let gradients = kernel.backward(&call, &bars.iter().map(Some).collect::<Vec<_>>()).unwrap();
    let params = program.params.iter().filter(|param| param.elem.is_float());
    let gradients = params.zip(gradients).filter_map(|(param, bar)| Some((format!("{}.bar", param.name), bar?)));
    let outputs = program.outputs.iter().zip(&outputs).map(|(o, t)| (o.name.clone(), t.clone()));
    Results(outputs.chain(gradients).collect())
}

/// Runs a program by the interpreter, in exact arithmetic.
fn interpreted(program: &Program, given: &HashMap<String, Array>, mode: Mode) -> HashMap<String, Array> {
    let inputs: Vec<_> = program.params.iter().map(|param| given.get(&param.name).cloned()).collect();
    let sizes: Vec<_> = (0..program.axes.len() as u32).map(|k| (Axis(k), size(program, Axis(k)))).collect();
    let outputs = interpret_sized(program, &inputs, &sizes, mode).unwrap();
    program.outputs.iter().zip(outputs).map(|(output, array)| (output.name.clone(), array)).collect()
}

/// Cotangents of the outputs, numbers that every type holds.
fn cotangents(outputs: &HashMap<String, Array>, rng: &mut Rng) -> HashMap<String, Array> {
    let mut names: Vec<&String> = outputs.keys().collect();
    names.sort();
    let mut bar = |name: &String| {
        let sizes = &outputs[name].sizes;
        let data: Vec<f64> = (0..sizes.iter().product()).map(|_| rng.below(129) as f64 / 64.0 - 1.0).collect();
        (name.clone(), Array::floats(sizes, data))
    };
    names.into_iter().map(&mut bar).collect()
}

/// Asserts that what a kernel gives is what the interpreter does, relative to the largest.
fn assert_close(what: &str, found: &Results, expected: &HashMap<String, Array>, bound: f64) {
    for (name, expected) in expected {
        let (found, expected) = (array(&found.0[name]), expected.as_floats().unwrap());
        let largest = expected.iter().filter(|x| x.is_finite()).fold(1.0f64, |m, x| m.max(x.abs()));
        for (x, y) in found.as_floats().unwrap().iter().zip(expected) {
            assert!(x == y || (x - y).abs() <= bound * largest, "{what}, {name}: {x} instead of {y}");
        }
    }
}

/// Outputs and gradients of calls of an element type by the interpreter, and the cotangents.
fn expected(
    program: &Program,
    elem: Elem,
    given: &HashMap<String, Array>,
    rng: &mut Rng,
    mode: Mode,
) -> [HashMap<String, Array>; 2] {
    let mut all = interpreted(&program.instantiate(elem), given, mode);
    let bars = cotangents(&all, rng);
    let named = bars.iter().map(|(name, bar)| (format!("{name}.bar"), bar.clone()));
    let known = given.clone().into_iter().chain(all.clone()).chain(named).collect();
    all.extend(interpreted(&adjoint(program).unwrap().instantiate(elem), &known, mode));
    [all, bars]
}

#[test]
fn calls_of_f64_are_as_exact_as_f64() {
    for model in oplus_front::model_programs() {
        let (mut rng, program) = (Rng::new(7), model.instantiate(Elem::F64));
        let given = random(&program, &mut rng);
        let [expected, bars] = expected(&model, Elem::F64, &given, &mut rng, Mode::default());
        let kernel = Kernel::new(model.name.clone().leak(), model.to_string().leak());
        let elem = |name: &str| program.params[program.param(name).unwrap() as usize].elem;
        let inputs = given.iter().map(|(name, array)| (name.clone(), stored(elem(name), array))).collect();
        assert_close(&model.name, &call(&kernel, &inputs, &bars), &expected, 1e-12);
    }
}

#[test]
fn offsets_of_either_type_give_the_same_bits() {
    let all = [
        models::selective_scan_packed::kernel(),
        models::mamba_packed::kernel(),
        models::monoid_attention_packed::kernel(),
        models::ssd_packed::kernel(),
        models::attention_packed::kernel(),
        models::attention_packed_causal::kernel(),
        kernels::segmented_cumsum::kernel(),
        kernels::segmented_affine::kernel(),
    ];
    for kernel in all {
        let (mut rng, program) = (Rng::new(9), kernel.program().unwrap());
        let given = random(program, &mut rng);
        let [_, bars] = expected(program, Elem::F32, &given, &mut rng, Mode::default());
        let is_int = |name: &str| !program.params[program.param(name).unwrap() as usize].elem.is_float();
        let with = |elem: Elem| {
            let of = |(name, array): (&String, &Array)| {
                (name.clone(), stored(if is_int(name) { elem } else { Elem::F32 }, array))
            };
            call(kernel, &given.iter().map(of).collect(), &bars).0
        };
        let (narrow, wide) = (with(Elem::I32), with(Elem::I64));
        for (name, found) in &narrow {
            assert_eq!(array(found), array(&wide[name]), "{}, {name}", kernel.name());
        }
    }
}

#[test]
fn decays_in_f32_beside_bf16_are_not_rounded() {
    let all = [
        (models::monoid_states::kernel(), "g"),
        (models::monoid_attention::kernel(), "g"),
        (models::monoid_attention_packed::kernel(), "g"),
        (models::gated_linear_attention::kernel(), "g"),
        (models::retention::kernel(), "g"),
        (models::ssd::kernel(), "dt"),
        (models::ssd_softplus::kernel(), "dt"),
        (models::ssd_packed::kernel(), "dt"),
        (models::mamba2::kernel(), "dt"),
        (models::ssd_combined::kernel(), "dt"),
        (kernels::log_decay::kernel(), "g"),
        (kernels::log_decay_channels::kernel(), "g"),
        (kernels::monoid::kernel(), "g"),
    ];
    for (kernel, decay) in all {
        let (mut rng, written) = (Rng::new(5), kernel.program().unwrap());
        let k = written.param(decay).unwrap() as usize;
        let other = choose(written, k).unwrap();
        let program = other.instantiate(Elem::Bf16);
        assert_eq!(program.params[k].elem, Elem::F32, "{}", kernel.name());
        let mut given = random(&program, &mut rng);
        let elem = |name: &str| program.params[program.param(name).unwrap() as usize].elem;
        let inputs: HashMap<String, Tensor> =
            given.iter().map(|(name, array)| (name.clone(), stored(elem(name), array))).collect();
        for (name, tensor) in inputs.iter().filter(|(_, tensor)| tensor.elem().is_float()) {
            given.insert(name.clone(), array(tensor));
        }
        let [expected, bars] =
            expected(&other, Elem::Bf16, &given, &mut rng, Mode { precision: Precision::Storage, ..Mode::default() });
        let found = call(kernel, &inputs, &bars);
        assert_eq!(found.0[&format!("{decay}.bar")].elem(), Elem::F32, "{}", kernel.name());
        // Two roundings to bf16, of the largest.
        assert_close(kernel.name(), &found, &expected, 2f64.powi(-7));
        let exact: HashMap<_, _> = expected.into_iter().filter(|(name, _)| found.0[name].elem() == Elem::F32).collect();
        assert_close(kernel.name(), &found, &exact, 1e-5);
    }
}

#[test]
fn other_element_types_are_refused_in_words() {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[1, 3]).unwrap();
    let offsets = Tensor::from_slice(&[0u32, 1], &[2]).unwrap();
    let refused = kernels::segmented_cumsum::kernel().call(&[Some(&x), Some(&offsets)]).unwrap_err();
    let words = "`cu_seqlens` must store i32 or i64, it stores u32";
    assert_eq!(refused.to_string(), words);
    let g = Tensor::from_slice(&[0.0f64, 1.0, 2.0], &[1, 3]).unwrap();
    let refused = kernels::log_decay::kernel().call(&[Some(&g), Some(&x), None]).unwrap_err();
    assert!(matches!(refused, Error::ElemMismatch { .. }), "{refused}");
    let half = Tensor::from_vec(vec![bf16::ZERO; 3], &[1, 3]).unwrap();
    let (outputs, _) = kernels::log_decay::kernel().call(&[Some(&x), Some(&half), None]).unwrap();
    assert_eq!(outputs[0].elem(), Elem::Bf16, "the decay does not say what the call's type is");
}

#[test]
fn a_gradient_of_another_kernels_call_is_refused() {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[1, 3]).unwrap();
    let half = Tensor::from_vec(vec![bf16::ONE; 3], &[1, 3]).unwrap();
    let (outputs, call) = kernels::log_decay::kernel().call(&[Some(&x), Some(&half), None]).unwrap();
    let bars = [Some(&outputs[0]), None];
    assert!(kernels::log_decay::kernel().backward(&call, &bars).is_ok());
    let other = Kernel::new("log_decay", kernels::log_decay::TEXT);
    assert!(matches!(other.backward(&call, &bars), Err(Error::NoGradient { .. })));
}
