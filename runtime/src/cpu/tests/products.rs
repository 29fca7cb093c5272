//! Sums by products of matrices.

use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data};
use oplus_dsl::ir::Program;
use oplus_dsl::testing::inputs;

use super::harness::{Strides, check, run_with};
use crate::cpu::{Compiled, CpuPlan};

/// Texts whose sums are products of matrices, each in another form.
const KERNELS: &str = "
    fn weighted(seen, score, v) -> (m, d, o) {
        if seen { (score, 1, v) } else { (-inf, 0, 0) }
    }
    fn mean(all) -> (o) {
        all.o / if all.d == 0 { 1 } else { all.d }
    }
    fn linear(x: [M, D], w: [D, N], scale: [M]) -> (y: [M, N]) {
        y = sum(D, scale * x * w);
    }
    fn two_layers(x: [M, D], w: [D, N], u: [N, F]) -> (y: [M, F]) {
        y = sum(N, tanh(sum(D, x * w)) * u);
    }
    fn one_axis_within(q: [H, M, D], k: [H, N, D], v: [H, N, D]) -> (o: [H, M, D]) {
        o = mean(reduce(N, Softmax(sum(D, q * k), 1, v)));
    }
    fn padded(q: [H, M, D], k: [H, N, D], v: [H, N, F], real: bool[N], keep: bool[M, N]) -> (o: [H, M, F]) {
        let (score, one, value) = weighted(real && index(N) <= index(M), sum(D, q * k), v);
        o = mean(reduce(N, Softmax(score, one, if keep { 2 * value } else { 0 })));
    }
    fn slopes(q: [H, M, D], k: [H, N, D], v: [H, N, F], slope: [H]) -> (o: [H, M, F]) {
        let far = (index(M) - index(N)) as call;
        o = mean(reduce(N, Softmax(sum(D, q * k) - abs(slope * far), 1, v)));
    }
    fn two_scores(q: [H, M, D], k: [H, N, D], r: [M, E], s: [N, E], v: [H, N, F]) -> (o: [H, M, F]) {
        o = mean(reduce(N, Softmax(sum(D, q * k) + sum(E, r * s), 1, v)));
    }
    fn gates(q: [H, M, D], k: [H, N, D], v: [H, N, F]) -> (o: [H, M, F], total: [H, M]) {
        let gate = sigmoid(sum(D, q * k));
        o = sum(N, if index(N) <= index(M) { gate * v } else { 0 });
        total = sum(N, gate);
    }
    fn given_scores(score: [H, M, N], v: [H, N, F]) -> (o: [H, M, F]) {
        o = mean(reduce(N, Softmax(score, 1, v)));
    }
";

fn kernels() -> Vec<Program> {
    oplus_front::programs(KERNELS.parse().unwrap()).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// The kernel of a name.
fn kernel(name: &str) -> Program {
    kernels().into_iter().find(|program| program.name == name).unwrap()
}

/// The library's program of a name.
fn library(name: &str) -> Program {
    oplus_front::library_programs().into_iter().find(|program| program.name == name).unwrap()
}

/// Sizes of axes: rows, columns, and others by their names.
fn sizes(program: &Program, (m, n): (usize, usize), inner: usize) -> Vec<usize> {
    let size = |axis: &String| match axis.as_str() {
        "M" => m,
        "N" => n,
        "D" | "E" => inner,
        "F" => inner + 1,
        "R" | "H" => 2,
        _ => 1,
    };
    program.axes.iter().map(size).collect()
}

/// The plan of a call with dense tensors.
pub(super) fn plan(program: &Program, sizes: &[usize]) -> CpuPlan {
    let dense = |axes: &[oplus_dsl::ir::Axis]| {
        Strides::Dense.of(&axes.iter().map(|a| sizes[a.0 as usize]).collect::<Vec<_>>()).0
    };
    let params: Vec<Vec<i64>> = program.params.iter().map(|param| dense(&param.axes)).collect();
    let outputs: Vec<Vec<i64>> = program.outputs.iter().map(|output| dense(&output.axes)).collect();
    let [params, outputs] = [&params, &outputs].map(|all| all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    Compiled::new(program, false).unwrap().explain(sizes, &params, &outputs).unwrap()
}

/// Asserts that a program and its gradient agree with the interpreter, and that both use products.
fn agrees(forward: &Program, elem: Elem, pairs: (usize, usize), inner: usize) {
    let backward = adjoint(forward).unwrap();
    for program in [forward.instantiate(elem), backward.instantiate(elem)] {
        let sizes = sizes(&program, pairs, inner);
        let text = plan(&program, &sizes).to_string();
        assert!(pairs.0.min(pairs.1).min(inner) < 4 || text.contains("by products of matrices"), "{text}\n{program}");
        let inputs = inputs(&program, &sizes, 7);
        check(&program, &sizes, &inputs, Strides::Dense);
        check(&program, &sizes, &inputs, Strides::Scattered);
    }
}

#[test]
fn attention_agrees_with_the_interpreter() {
    for name in ["attention", "attention_causal", "attention_window", "attention_bias", "attention_softcap"] {
        for elem in [Elem::F32, Elem::F64, Elem::Bf16, Elem::F16] {
            agrees(&library(name), elem, (33, 300), 5);
        }
        for pairs in [(5, 7), (131, 31), (4, 256), (127, 257)] {
            agrees(&library(name), Elem::F32, pairs, 4);
        }
    }
}

#[test]
fn every_form_agrees_with_the_interpreter() {
    for program in kernels() {
        for (pairs, inner) in [((37, 41), 7), ((5, 4), 4), ((130, 257), 5)] {
            agrees(&program, Elem::F32, pairs, inner);
        }
        agrees(&program, Elem::F64, (33, 70), 6);
    }
}

#[test]
fn empty_and_small_axes_have_values() {
    for program in kernels().into_iter().chain([library("attention"), library("attention_causal")]) {
        for pairs in [(0, 5), (5, 0), (1, 5), (5, 1), (2, 2), (5, 5), (3, 200)] {
            for inner in [0, 1, 5] {
                agrees(&program, Elem::F32, pairs, inner);
            }
        }
    }
}

#[test]
fn offsets_of_packed_sequences_limit_what_rows_see() {
    for name in ["attention_packed", "attention_packed_causal"] {
        let forward = library(name);
        for program in [forward.instantiate(Elem::F32), adjoint(&forward).unwrap().instantiate(Elem::F32)] {
            let mut sizes = sizes(&program, (140, 150), 5);
            let sequences = program.axis("S").unwrap().0 as usize;
            sizes[sequences] = 4;
            let mut inputs = inputs(&program, &sizes, 3);
            for (param, input) in program.params.iter().zip(&mut inputs) {
                let offsets = match param.name.as_str() {
                    "cu_q" => vec![0, 20, 20, 139],
                    "cu_k" => vec![0, 0, 90, 149],
                    _ => continue,
                };
                *input = Some(Array { sizes: vec![4], data: Data::Int(offsets) });
            }
            check(&program, &sizes, &inputs, Strides::Dense);
        }
    }
}

#[test]
fn threads_change_no_bit() {
    for forward in [library("attention_causal"), kernel("linear")] {
        for program in [forward.instantiate(Elem::F32), adjoint(&forward).unwrap().instantiate(Elem::F32)] {
            let sizes = sizes(&program, (300, 290), 33);
            let inputs = inputs(&program, &sizes, 11);
            let run = |workers| {
                let compiled = Compiled::new(&program, false).unwrap().with_workers(workers);
                run_with(&compiled, &program, &sizes, &inputs, Strides::Dense)
            };
            let one = run(1);
            assert!([2, 3].into_iter().all(|workers| run(workers) == one), "{}", program.name);
        }
    }
}

/// The last keys and values are no numbers. Rows that see them are none either; the others are what they are without them.
#[test]
fn rows_are_free_of_what_they_do_not_see() {
    let forward = library("attention_causal");
    let (rows, inner) = (150, 5);
    for number in [f64::NAN, f64::INFINITY] {
        for program in [forward.instantiate(Elem::F32), adjoint(&forward).unwrap().instantiate(Elem::F32)] {
            let sizes = sizes(&program, (rows, rows), inner);
            let healthy = inputs(&program, &sizes, 5);
            let mut ill = healthy.clone();
            for (param, input) in program.params.iter().zip(&mut ill) {
                if let (true, Some(Array { data: Data::Float(all), .. })) = (["k", "v"].contains(&&*param.name), input)
                {
                    let n = all.len();
                    all[n - inner..].fill(number);
                }
            }
            let compiled = Compiled::new(&program, false).unwrap();
            let run = |inputs| run_with(&compiled, &program, &sizes, inputs, Strides::Dense);
            let (wanted, found) = (run(&healthy), run(&ill));
            for ((output, wanted), found) in program.outputs.iter().zip(&wanted).zip(&found) {
                if !["o", "lse", "q.bar"].contains(&&*output.name) {
                    continue;
                }
                let (wanted, found) = (wanted.as_floats().unwrap(), found.as_floats().unwrap());
                // Of the last row of each of the two heads nothing is expected.
                let per_row = wanted.len() / (2 * rows);
                for (at, (w, f)) in wanted.iter().zip(found).enumerate() {
                    let is_last = at / per_row % rows == rows - 1;
                    assert!(
                        is_last || (w - f).abs() <= 1e-5 * w.abs().max(1.0),
                        "{}[{at}]: {f} against {w}",
                        output.name
                    );
                }
            }
        }
    }
}

#[test]
fn explain_says_why_products_are_added_up_element_by_element() {
    let program = kernel("linear").instantiate(Elem::F32);
    let text = plan(&program, &sizes(&program, (3, 50), 50)).to_string();
    let reason = "the products of a sum over D are added up element by element, since the matrices have fewer than 4 rows or columns";
    assert!(text.contains(reason), "{text}");
}
