//! The gradient of a gradient: a gradient's program is a kernel like any other, on the CPU against the interpreter.

use std::collections::HashMap;

use oplus::{Kernel, Tensor, kernels, models};
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Mode, interpret};
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::rng::Rng;

const SIZES: [(&str, usize); 7] = [("B", 2), ("G", 2), ("D", 3), ("N", 4), ("T", 19), ("K", 2), ("H", 2)];

fn shape(program: &Program, axes: &[Axis]) -> Vec<usize> {
    let size = |axis: &Axis| SIZES.iter().find(|(name, _)| *name == program.axis_name(*axis)).map_or(3, |(_, n)| *n);
    axes.iter().map(size).collect()
}

/// Random numbers that f32 holds exactly.
fn random(shape: &[usize], rng: &mut Rng) -> Tensor {
    let elements: Vec<f32> = (0..shape.iter().product()).map(|_| rng.between(-1.0, 1.0) as f32).collect();
    Tensor::from_vec(elements, shape).unwrap()
}

fn array(tensor: &Tensor) -> Array {
    let elements: Vec<f64> = tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect();
    Array::floats(tensor.shape(), elements)
}

fn check(kernel: &Kernel) {
    let program = kernel.gradient_program().unwrap();
    let text: &'static str = program.to_string().leak();
    let first = Kernel::new("first", text);
    let mut rng = Rng::new(23);
    let inputs: Vec<Tensor> = program.params.iter().map(|p| random(&shape(program, &p.axes), &mut rng)).collect();
    let (outputs, call) = first.call(&inputs.iter().map(Some).collect::<Vec<_>>()).unwrap();
    let bars: Vec<Tensor> = outputs.iter().map(|output| random(output.shape(), &mut rng)).collect();
    let gradients = first.backward(&call, &bars.iter().map(Some).collect::<Vec<_>>()).unwrap();

    let second = adjoint(program).unwrap();
    let params = program.params.iter().zip(&inputs).map(|(p, x)| (p.name.clone(), array(x)));
    let results = program.outputs.iter().zip(&outputs).map(|(o, x)| (o.name.clone(), array(x)));
    let cotangents = program.outputs.iter().zip(&bars).map(|(o, x)| (format!("{}.bar", o.name), array(x)));
    let named: HashMap<String, Array> = params.chain(results).chain(cotangents).collect();
    let given: Vec<_> = second.params.iter().map(|p| named.get(&p.name).cloned()).collect();
    let expected = interpret(&second, &given, Mode::default()).unwrap();
    for (output, expected) in second.outputs.iter().zip(expected) {
        let of = output.name.strip_suffix(".bar").unwrap();
        let k = program.params.iter().position(|p| p.name == of).unwrap();
        let (found, expected) = (array(gradients[k].as_ref().unwrap()), expected.as_floats().unwrap().to_vec());
        let largest = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
        for (x, y) in found.as_floats().unwrap().iter().zip(&expected) {
            assert!((x - y).abs() <= 1e-4 * largest, "{}, {}: {x} instead of {y}", kernel.name(), output.name);
        }
    }
}

#[test]
fn gradients_of_gradients_run_on_the_cpu() {
    check(kernels::affine::kernel());
    check(models::multi_state_ssm::kernel());
    check(models::mamba::kernel());
    check(models::monoid_attention::kernel());
}
