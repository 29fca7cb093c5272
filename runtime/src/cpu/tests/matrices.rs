//! Recurrences of matrices on the engine against the interpreter.

use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::forward::tangent;
use oplus_dsl::ir::Program;
use oplus_dsl::step::step;
use oplus_dsl::testing::inputs;

use super::harness::{Strides, check, run_with};
use crate::cpu::Compiled;

/// Every form of operands, of readouts, and of recurrences beside each other.
const KERNELS: &str = "
    op TwoPairs(w: [K], z: [K], b: [K], y: [K], x: [V, K]) -> (s: [V, K]) {
        combine(l, r) (r.w * l.s + sum(K, l.s * r.z) * r.b - sum(K, l.s * r.b) * r.y + r.x);
    }
    op Spread(w: [V, K], z: [V, K], b: [V, K], x: [V]) -> (s: [V, K]) {
        combine(l, r) (r.w * l.s / 2 + sum(K, l.s * r.z) * r.b + r.x);
    }
    op Line(w, z: [K], b: [K]) -> (s: [K]) {
        combine(l, r) (r.w * l.s + sum(K, l.s * r.z) * r.b + r.b);
    }
    pub fn states(w: [T, K], z: [T, K], b: [T, K], y: [T, K], x: [T, V, K], s0: [V, K]) -> (s: [T, V, K], e: [T, V, K]) {
        s = scan(T, TwoPairs(w, z, b, y, x), init = s0);
        e = scan(T, TwoPairs(w, z, b, y, x), init = s0, exclusive, reverse);
    }
    pub fn wide(w: [T, V, K], z: [T, V, K], b: [V, K], x: [V], q: [T, V]) -> (o: [T, K], p: [T], f: [T, V, K], s_first: [V, K]) {
        let s = scan(T, Spread(w, z, b, x), reverse);
        o = sum(V, s * q);
        p = sum(K, sum(V, s * s));
        f = tanh(s);
        s_first = first(T, s);
    }
    pub fn vector(w: [B, T], z: [B, T, K], b: [T, K], q: [K]) -> (o: [B, T], last: [B, K]) {
        let s = scan(T, Line(w, z, b));
        o = sum(K, if w > 0 { s * q } else { s - q });
        last = last(T, s);
    }
    pub fn dense(m: [T, K, J], x: [T, V, K], q: [K], s0: [V, K] = 0) -> (o: [T, V], last: [V, K]) {
        let s = scan(T, MatrixAffine(m, x), init = s0);
        o = sum(K, s * q);
        last = last(T, s);
    }
    pub fn stacked(k: [T, K], v: [T, V], beta: [T], r: [T, K], q: [K, L]) -> (o: [T, V, L], s: [K, V]) {
        let first = scan(T, DeltaRule(beta, k, v));
        let read = sum(K, first * r);
        let second = scan(T, DeltaRule(beta, r, read), reverse);
        o = sum(K, second * q);
        s = first(T, second);
    }
    pub fn resets(k: [B, T, K], v: [B, T, V], beta: [T], q: [T, K]) -> (o: [B, T, V], e: [B, T, K, V]) {
        let s = scan(T, segmented(DeltaRule)(beta, k, v), reset = beta > 0.5);
        o = sum(K, s * q);
        e = scan(T, segmented(DeltaRule)(beta, k, v), reset = beta > 0.5, exclusive);
    }
";

fn programs() -> Vec<Program> {
    let models = ["delta_rule", "gated_delta_rule", "kda", "rwkv7"];
    let models = oplus_front::model_programs().into_iter().filter(|model| models.contains(&&model.name[..]));
    let own = oplus_front::programs(KERNELS.parse().expect("tokens")).expect("kernels");
    models.chain(own).collect()
}

/// A size for every axis.
fn sizes(program: &Program, times: usize, [k, v]: [usize; 2]) -> Vec<usize> {
    let size = |axis: &String| match axis.as_str() {
        "T" => times,
        "K" | "J" => k,
        "V" => v,
        _ => 2,
    };
    program.axes.iter().map(size).collect()
}

fn check_all(program: &Program, shapes: &[(usize, [usize; 2])]) {
    for (seed, (times, size)) in shapes.iter().enumerate() {
        for elem in [Elem::F64, Elem::F32, Elem::Bf16] {
            let program = program.instantiate(elem);
            let sizes = sizes(&program, *times, *size);
            let inputs = inputs(&program, &sizes, seed as u64 + 1);
            let strides = if seed % 2 == 0 { Strides::Dense } else { Strides::Scattered };
            check(&program, &sizes, &inputs, strides);
        }
    }
}

const SHAPES: [(usize, [usize; 2]); 9] = [
    (0, [2, 3]),
    (1, [1, 1]),
    (2, [3, 2]),
    (5, [17, 33]),
    (64, [2, 3]),
    (65, [3, 2]),
    (130, [2, 5]),
    (3, [0, 2]),
    (3, [2, 0]),
];

#[test]
fn states_and_readouts_agree_with_the_interpreter() {
    for program in programs() {
        check_all(&program, &SHAPES);
    }
}

#[test]
fn gradients_agree_with_the_interpreter() {
    for program in programs() {
        check_all(&adjoint(&program).expect("a gradient"), &SHAPES);
    }
}

#[test]
fn tangents_and_second_derivatives_agree_with_the_interpreter() {
    for program in programs() {
        let shapes = [(3, [2, 2]), (66, [1, 2])];
        check_all(&tangent(&program).expect("a tangent"), &shapes);
        check_all(&adjoint(&adjoint(&program).expect("a gradient")).expect("a second one"), &shapes);
    }
}

#[test]
fn threads_change_no_bit() {
    for program in programs() {
        for program in [adjoint(&program).expect("a gradient"), program] {
            let program = program.instantiate(Elem::F32);
            let sizes = sizes(&program, 70, [5, 19]);
            let inputs = inputs(&program, &sizes, 3);
            let run = |workers| {
                let compiled = Compiled::new(&program, false).unwrap().with_workers(workers);
                run_with(&compiled, &program, &sizes, &inputs, Strides::Dense)
            };
            assert_eq!(run(1), run(usize::MAX), "{}", program.name);
        }
    }
}

#[test]
fn steps_run_too() {
    for program in programs() {
        if let Ok(step) = step(&program) {
            check_all(&step.program, &[(1, [3, 2]), (1, [17, 33])]);
        }
    }
}

/// Models and their gradients hand no tensor of all states from part to part: what parts pass on has no more axes of a
/// matrix than one beside the time.
#[test]
fn no_states_of_all_times_are_stored() {
    for program in programs().into_iter().take(4) {
        for program in [adjoint(&program).expect("a gradient"), program] {
            let compiled = Compiled::new(&program.instantiate(Elem::F32), false).unwrap();
            let tensors = &compiled.parts().expect("parts").tensors;
            assert!(!tensors.is_empty());
            for tensor in tensors {
                let names: Vec<&str> = tensor.axes.iter().map(|axis| program.axis_name(*axis)).collect();
                assert!(!["T", "K", "V"].iter().all(|axis| names.contains(axis)), "{}: {names:?}", program.name);
            }
        }
    }
}

#[test]
fn the_plan_is_told_in_words() {
    let program = programs().remove(0);
    let compiled = |program: &Program| Compiled::new(&program.instantiate(Elem::F32), false).unwrap();
    let explained = |program: &Program| {
        let sizes = sizes(program, 100, [4, 4]);
        let dense = |axes: &[oplus_dsl::ir::Axis]| {
            Strides::Dense.of(&axes.iter().map(|axis| sizes[axis.0 as usize]).collect::<Vec<_>>()).0
        };
        let params: Vec<Vec<i64>> = program.params.iter().map(|param| dense(&param.axes)).collect();
        let outputs: Vec<Vec<i64>> = program.outputs.iter().map(|output| dense(&output.axes)).collect();
        let params: Vec<&[i64]> = params.iter().map(Vec::as_slice).collect();
        let outputs: Vec<&[i64]> = outputs.iter().map(Vec::as_slice).collect();
        compiled(program).explain(&sizes, &params, &outputs).unwrap().to_string()
    };
    let forward = explained(&program);
    assert!(
        forward.contains("over B = 2, H = 2, T = 100, K = 4, V = 4; states along T from the first index to the last"),
        "{forward}"
    );
    assert!(forward.contains("4 tasks of B 1 × H 1 × T 100 × K 4 × V 4"), "{forward}");
    let backward = explained(&adjoint(&program).expect("a gradient"));
    assert!(backward.contains("states along T from the last index to the first"), "{backward}");
    assert!(backward.contains("each in tiles of B 1 × H 1 × T 64 × K 4 × V 4"), "{backward}");
}
