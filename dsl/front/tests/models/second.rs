//! Second derivatives of models: the gradient of a gradient's program, against differences of the gradient.

use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Mode};
use oplus_dsl::ir::Program;

use crate::harness::{Named, Sizes, close, cotangents, floats, inputs, model, run};

const SIZES: Sizes<'static> =
    &[("B", 2), ("G", 1), ("D", 2), ("N", 2), ("T", 4), ("H", 1), ("K", 2), ("V", 2), ("S", 3)];

/// Σ over all outputs of their cotangents' products.
fn value(program: &Program, inputs: &Named, bars: &Named) -> f64 {
    let outputs = run(program, inputs, SIZES, Mode::default());
    let dot = |(name, bar): (&String, &Array)| -> f64 {
        floats(&outputs[name]).iter().zip(floats(bar)).map(|(x, y)| x * y).sum()
    };
    bars.iter().map(dot).sum()
}

fn check(name: &str) {
    let first = adjoint(&model(name)).expect("a gradient");
    let second = adjoint(&first).expect("a second derivative");
    let given = inputs(&first, SIZES, 17, |_| true);
    let outputs = run(&first, &given, SIZES, Mode::default());
    let bars = cotangents(&outputs, 19);
    let all: Named = given.iter().chain(&outputs).map(|(name, x)| (name.clone(), x.clone())).collect();
    let bars_of = bars.iter().map(|(name, bar)| (format!("{name}.bar"), bar.clone()));
    let gradients = run(&second, &all.into_iter().chain(bars_of).collect(), SIZES, Mode::default());
    for param in first.params.iter().filter(|param| param.elem.is_float()) {
        let array = &given[&param.name];
        let slope = |k: usize| {
            let at = |by: f64| {
                let mut moved = given.clone();
                let mut data = floats(array).to_vec();
                data[k] += by;
                moved.insert(param.name.clone(), Array::floats(&array.sizes, data));
                value(&first, &moved, &bars)
            };
            (at(1e-5) - at(-1e-5)) / 2e-5
        };
        let found = floats(&gradients[&format!("{}.bar", param.name)]);
        let expected: Vec<f64> = (0..found.len()).map(slope).collect();
        close(&format!("{name}: the second derivative by {}", param.name), found, &expected, 1e-7);
    }
}

#[test]
fn the_gradient_of_a_gradient_is_right() {
    let names = [
        "ema_constant",
        "ssm_varying",
        "multi_state_ssm",
        "selective_scan",
        "mamba",
        "mamba_packed",
        "monoid_attention",
    ];
    names.into_iter().for_each(check);
}
