//! Moving averages, state spaces and selective scans with rarer options, in calls of `f64`, against the plain loops.

use oplus_dsl::interpret::{Array, Data, Order};
use oplus_dsl::ir::Program;

use crate::harness::{Named, close, cotangents, floats, gradients, in_f64, inputs, run, shape, stored};
use crate::recurrence_loops::complex;
use crate::space_loops::{self, Outputs, Space, Tensors};
use crate::spaces::{Diagonal, Fixed, Linear, Selective};

const BOUND: f64 = 1e-12;

/// Times: none, one, a prime.
const TIMES: [usize; 3] = [0, 1, 13];

fn sizes(t: usize) -> [(&'static str, usize); 6] {
    [("B", 2), ("G", 2), ("D", 3), ("N", 4), ("P", 3), ("T", t)]
}

/// The factor of the input that is added to y in every row, and the gate behind it.
struct Behind {
    skip: Option<Box<dyn Fn(usize) -> usize>>,
    gated: bool,
}

const NOTHING: Behind = Behind { skip: None, gated: false };

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// All float parameters as plain tensors, with zeros for those left out.
fn plain(program: &Program, given: &Named, sizes: &[(&str, usize)]) -> Tensors {
    let of = |param: &oplus_dsl::ir::Param| {
        let n = shape(program, &param.axes, sizes).iter().product();
        given.get(&param.name).map_or(vec![0.0; n], |array| floats(array).to_vec())
    };
    let names = program.params.iter().filter(|param| param.elem.is_float());
    names.map(|param| (&*param.name.clone().leak(), of(param))).collect()
}

/// y = (inner + skip·u)·silu(z), in place; with the derivatives of y by what is before the gate.
fn behind(x: &Tensors, behind: &Behind, y: &mut [f64], times: usize) -> Vec<f64> {
    if let Some(channel) = &behind.skip {
        y.iter_mut().enumerate().for_each(|(k, y)| *y += x["skip"][channel(k / times)] * x["u"][k]);
    }
    let gate = |k: usize| if behind.gated { x["z"][k] * sigmoid(x["z"][k]) } else { 1.0 };
    y.iter_mut().enumerate().map(|(k, y)| (*y, *y *= gate(k)).0).collect()
}

/// The cotangents of what is before the gate, from those of y.
fn behind_back(
    x: &Tensors,
    behind: &Behind,
    ungated: &[f64],
    y_bar: &[f64],
    times: usize,
    grad: &mut Tensors,
) -> Vec<f64> {
    let mut bar = y_bar.to_vec();
    if behind.gated {
        for (k, bar) in bar.iter_mut().enumerate() {
            let (z, sigma) = (x["z"][k], sigmoid(x["z"][k]));
            space_loops::add(grad, "z", k, *bar * ungated[k] * sigma * (1.0 + z * (1.0 - sigma)));
            *bar *= z * sigma;
        }
    }
    if let Some(channel) = &behind.skip {
        for (k, bar) in bar.iter().enumerate() {
            space_loops::add(grad, "skip", channel(k / times), bar * x["u"][k]);
            space_loops::add(grad, "u", k, bar * x["skip"][channel(k / times)]);
        }
    }
    bar
}

/// Checks a model; states are called after these.
fn check(name: &str, space: &dyn Space, after: &Behind, given: &Named, state: [&'static str; 4]) {
    type Part = fn(&crate::recurrence_loops::Complex) -> f64;
    let (program, times) = (in_f64(name), space.sizes()[3]);
    let (sizes, what) = (sizes(times), format!("{name}, {times} times, {} given", given.len()));
    let [h0_re, h0_im, last_re, last_im] = state;
    let x = plain(&program, given, &sizes);
    let found = run(&program, given, &sizes, stored(Order::Sequential));
    let mut expected = space_loops::outputs(space, &x);
    let ungated = behind(&x, after, &mut expected.y, times);
    close(&format!("{what}: y"), floats(&found["y"]), &expected.y, BOUND);
    let parts: [(&str, Part); 2] = [(last_re, |z| z.re), (last_im, |z| z.im)];
    for (output, part) in parts.iter().filter(|(output, _)| found.contains_key(*output)) {
        let last: Vec<f64> = expected.last.iter().map(part).collect();
        close(&format!("{what}: {output}"), floats(&found[*output]), &last, BOUND);
    }

    let bars = cotangents(&found, 13);
    let of = |name: &str, k: usize| bars.get(name).map_or(0.0, |bar| floats(bar)[k]);
    let mut grad: Tensors = x.iter().map(|(name, tensor)| (*name, vec![0.0; tensor.len()])).collect();
    let bar = Outputs {
        y: behind_back(&x, after, &ungated, floats(&bars["y"]), times, &mut grad),
        last: (0..expected.last.len()).map(|k| complex(of(last_re, k), of(last_im, k))).collect(),
    };
    let initial = space_loops::gradients(space, &x, &bar, &mut grad);
    for (k, z) in initial.into_iter().enumerate() {
        space_loops::add_number(&mut grad, (h0_re, h0_im), k, z);
    }
    let derived = gradients(&program, (given, &found, &bars), &sizes, stored(Order::Sequential));
    for (name, expected) in grad.iter().filter(|(name, _)| given.contains_key(**name)) {
        close(&format!("{what}: the gradient of {name}"), floats(&derived[*name]), expected, BOUND);
    }
}

/// Checks a model with all parameters, and with the required ones.
fn check_both(name: &str, space: &dyn Space, behind: &Behind, state: [&'static str; 4]) {
    let sizes = sizes(space.sizes()[3]);
    let program = in_f64(name);
    for (seed, all) in [(3, true), (4, false)] {
        check(name, space, behind, &inputs(&program, &sizes, seed, |p| all || p.default.is_none()), state);
    }
}

#[test]
fn moving_averages_and_linear_state_spaces_are_those_of_the_loops() {
    for t in TIMES {
        let space = |n, is_average, varies| Linear { rows: 2, n, t, is_average, varies };
        let average = ["y0", "", "y_last", ""];
        check_both("ema_constant", &space(1, true, false), &NOTHING, average);
        check_both("ema_varying", &space(1, true, true), &NOTHING, average);
        let states = ["h0", "", "h_last", ""];
        check_both("ssm_constant", &space(1, false, false), &NOTHING, states);
        check_both("ssm_varying", &space(1, false, true), &NOTHING, states);
        check_both("multi_state_ssm", &space(4, false, true), &NOTHING, states);
    }
}

const STATES: [&str; 4] = ["h0_re", "h0_im", "h_last_re", "h_last_im"];

#[test]
fn complex_state_spaces_are_those_of_the_loops() {
    for t in TIMES {
        let space = |kind, channels, readouts| Fixed { kind, b: 2, channels, readouts, n: 4, t };
        let skip = Behind { skip: Some(Box::new(|row| row % 3)), gated: false };
        check_both("s4d", &space(Diagonal::S4d, 3, 1), &skip, STATES);
        check_both("s5", &space(Diagonal::S5, 1, 3), &NOTHING, STATES);
        check_both("lru", &space(Diagonal::Lru, 1, 3), &NOTHING, STATES);
    }
}

/// The selective scans with rarer options: name, whether complex, whether b and c are constant.
const SELECTIVE: [(&str, bool, bool, bool); 7] = [
    ("selective_scan_constant_b", false, true, false),
    ("selective_scan_constant_c", false, false, true),
    ("selective_scan_constant", false, true, true),
    ("selective_scan_complex", true, false, false),
    ("selective_scan_complex_constant_b", true, true, false),
    ("selective_scan_complex_constant_c", true, false, true),
    ("selective_scan_complex_constant", true, true, true),
];

#[test]
fn selective_scans_with_constant_and_complex_parameters_are_those_of_the_loops() {
    for (name, is_complex, constant_b, constant_c) in SELECTIVE {
        let program = in_f64(name);
        let state = if is_complex { STATES } else { ["h0", "", "h_last", ""] };
        for (t, softplus, gated) in
            TIMES.into_iter().flat_map(|t| [(t, false, true), (t, true, false), (t, true, true)])
        {
            let space = Selective { b: 2, g: 2, d: 3, n: 4, t, is_complex, constant_b, constant_c, softplus };
            let wanted = |name: &str| (gated || name != "z") && (softplus || name != "delta_softplus");
            let mut given = inputs(&program, &sizes(t), 5, |p| wanted(&p.name));
            if softplus {
                given.insert("delta_softplus".into(), Array { sizes: vec![], data: Data::Bool(vec![true]) });
            }
            let behind = Behind { skip: Some(Box::new(|row| row % 6)), gated };
            check(name, &space, &behind, &given, state);
        }
    }
}

#[test]
fn an_infinite_gate_is_none_and_has_no_gradient() {
    let (program, sizes) = (in_f64("selective_scan_constant"), sizes(5));
    let mut given = inputs(&program, &sizes, 6, |p| p.name != "delta_softplus");
    let without: Named = given.clone().into_iter().filter(|(name, _)| name != "z").collect();
    let z = given.get_mut("z").expect("a gate");
    *z = Array::floats(&z.sizes, vec![f64::INFINITY; floats(z).len()]);
    let mode = stored(Order::Sequential);
    let (found, expected) = (run(&program, &given, &sizes, mode), run(&program, &without, &sizes, mode));
    assert_eq!(found, expected);
    let bars = cotangents(&found, 7);
    let with = gradients(&program, (&given, &found, &bars), &sizes, mode);
    let plain = gradients(&program, (&without, &found, &bars), &sizes, mode);
    for (name, expected) in plain {
        if name != "z" {
            assert_eq!(with[&name], expected, "the gradient of {name}");
        }
    }
    assert!(floats(&with["z"]).iter().all(|bar| *bar == 0.0));
}
