//! Programs that the tests call, and tensors to call them with.

use std::collections::HashMap;

use oplus::{Kernel, Tensor};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::rng::Rng;

/// h[t] = a[t]·h[t−1] + x[t] over L with h[−1] = h0, its last state, and the count of steps as an integer.
pub(crate) static AFFINE: Kernel = Kernel::new(
    "affine",
    "program affine {
        axes B, L;
        param a: call[B, L];
        param x: call[B, L];
        param h0: f32[B] = 0.0;
        param steps: i32[B] = 7;
        operator Affine(a: call, b: call) {
            identity (1.0, 0.0);
            %0: call = input l.a;
            %1: call = input l.b;
            %2: call = input r.a;
            %3: call = input r.b;
            %4: call = %0 * %2;
            %5: call = %2 * %1;
            %6: call = %5 + %3;
            combine (%4, %6);
        }
        %0: call[B, L] = param a;
        %1: call[B, L] = param x;
        %2: f32[B] = param h0;
        %3: call[B] = convert(call, %2);
        %4: call = const 1.0;
        %5: tuple[B, L] = scan(L, Affine, (%0, %1), init (%4, %3));
        %6: call[B, L] = %5.b;
        %7: call[B] = last(L, %6, %3);
        %8: f32[B] = convert(f32, %7);
        %9: i32[B] = param steps;
        output h: call[B, L] = %6;
        output last: f32[B] = %8;
        output steps_out: i32[B] = %9;
    }",
);

/// An f32 tensor whose element k is k·0.25 − 1.
pub(crate) fn ramp(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_vec((0..n).map(|k| k as f32 * 0.25 - 1.0).collect(), shape).unwrap()
}

/// Tensors by the names of parameters.
pub(crate) type Named = HashMap<String, Tensor>;

/// Random `f32` in (−1, 1) for every floating-point parameter.
pub(crate) fn random_inputs(program: &Program, sizes: &[(&str, usize)], rng: &mut Rng) -> Named {
    let size = |axis: &Axis| sizes.iter().find(|(name, _)| *name == program.axis_name(*axis)).map_or(3, |(_, n)| *n);
    let mut random = |param: &Param| {
        let shape: Vec<usize> = param.axes.iter().map(size).collect();
        let elements: Vec<f32> = (0..shape.iter().product()).map(|_| rng.between(-1.0, 1.0) as f32).collect();
        (param.name.clone(), Tensor::from_vec(elements, &shape).unwrap())
    };
    program.params.iter().filter(|param| param.elem.is_float()).map(&mut random).collect()
}

/// A program's inputs in order; `None` for those that are not there.
pub(crate) fn named<'t>(program: &Program, tensors: &'t Named) -> Vec<Option<&'t Tensor>> {
    program.params.iter().map(|param| tensors.get(&param.name)).collect()
}
