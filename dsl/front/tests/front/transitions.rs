//! Operators with a state of their own: what their formulas mean, and which are refused.

use oplus_dsl::adjoint::equations;
use oplus_dsl::interpret::{Array, Mode, interpret};
use oplus_dsl::ir::{Op, Program};

fn program(text: &str) -> Program {
    let programs = oplus_front::programs(text.parse().unwrap()).unwrap_or_else(|e| panic!("{e:?}"));
    programs.into_iter().next().unwrap()
}

/// The messages of a block's mistakes.
fn mistakes(text: &str) -> Vec<String> {
    let found = oplus_front::programs(text.parse().unwrap()).expect_err("a mistake");
    found.iter().map(|diagnostic| diagnostic.mistake.to_string()).collect()
}

/// The equations of a kernel over T, V, K that scans with an operator of this declaration.
fn recurrence(operator: &str, elements: &str) -> String {
    let kernel = "pub fn f(a: f64[T], z: f64[T, K], b: f64[T, K], v: f64[T, V], x: f64[T, V, K], m: f64[T, J, K]) -> (s: f64[T, V, K])";
    equations(&program(&format!("op Own{operator} {kernel} {{ s = scan(T, Own({elements})); }}")))
}

#[test]
fn the_matrix_is_found_in_the_formula() {
    let of = |formula: &str| {
        recurrence(
            &format!("(a, z: [K], b: [K], v: [V]) -> (s: [V, K]) {{ combine(l, r) ({formula}); }}"),
            "a, z, b, v",
        )
    };
    let begins = "    (s[−1] = 0)\n";
    let same = format!("s[t] = a[t]·s[t−1] + (Σ_K s[t−1]·z[t])·b[t] + b[t]·v[t]{begins}");
    assert_eq!(of("r.a * l.s + sum(K, l.s * r.z) * r.b + r.v * r.b"), same.replace("b[t]·v[t]", "v[t]·b[t]"));
    assert_eq!(of("sum(K, r.z * l.s) * r.b - (-(r.b * r.v)) + l.s * r.a"), same);
    let delta = of("l.s + r.a * (r.v - sum(K, l.s * r.z)) * r.z");
    assert_eq!(delta, format!("s[t] = s[t−1] + (Σ_K s[t−1]·z[t])·(−a[t]·z[t]) + a[t]·v[t]·z[t]{begins}"));
    // Two sums with one vector are one pair, two vectors are two.
    let twice = of("sum(K, l.s * r.z) * r.b + sum(K, l.s * r.z) * r.z + sum(K, l.s) * r.b + r.v * r.z");
    let pairs = "(Σ_K s[t−1]·z[t])·(b[t] + z[t]) + (Σ_K s[t−1])·b[t]";
    assert_eq!(twice, format!("s[t] = {pairs} + v[t]·z[t]{begins}"));
    let chosen = of("if r.a > 0 { l.s * r.z } else { l.s + sum(K, l.s * r.z) * r.b } + r.v");
    let parts = "(if a[t] > 0 { z[t] } else { 1 })·s[t−1] + (Σ_K s[t−1]·z[t])·(if a[t] > 0 { 0 } else { b[t] })";
    assert_eq!(chosen, format!("s[t] = {parts} + v[t]{begins}"));
}

#[test]
fn whole_matrices_are_dense_terms() {
    let text = recurrence(
        "(m: [J, K], x: [V, K]) -> (s: [V, K]) { combine(l, r) (sum(J, rename(l.s, K = J) * r.m) + r.x); }",
        "m, x",
    );
    assert_eq!(text, "s[t] = s[t−1]·m[t] + x[t]    (s[−1] = 0)\n");
}

#[test]
fn a_diagonal_is_the_affine_operator() {
    let text = "op Decay(a, x: [V, K]) -> (s: [V, K]) { combine(l, r) (r.a * l.s + r.x); }
        pub fn f(a: f64[T], x: f64[T, V, K], s0: f64[V, K] = 0) -> (s: f64[T, V, K]) { s = scan(T, Decay(a, x), init = s0); }";
    let found = program(text);
    assert!(found.nodes.iter().all(|node| !matches!(node.op, Op::MatrixScan(_))), "{found}");
    assert_eq!(equations(&found), "s[t] = a[t]·s[t−1] + x[t]    (s[−1] = s0)\n");
}

#[test]
fn axes_of_a_kernel_take_the_place_of_the_operators() {
    let named = "pub fn f(k: f64[T, N], v: f64[T, P], beta: f64[T]) -> (o: f64[T, P]) {
        o = sum(N, k * scan(T, DeltaRule(beta, k, v, K = N, V = P)));
    }";
    let own = "pub fn f(k: f64[T, K], v: f64[T, V], beta: f64[T]) -> (o: f64[T, V]) {
        o = sum(K, k * scan(T, DeltaRule(beta, k, v)));
    }";
    assert_eq!(program(named).to_string().replace('N', "K").replace("P", "V"), program(own).to_string());
}

#[test]
fn reduce_gives_the_last_state() {
    let text = "pub fn f(k: f64[T, K], v: f64[T, V], beta: f64[T]) -> (s: f64[K, V], last: f64[K, V]) {
        s = reduce(T, DeltaRule(beta, k, v)).s;
        last = last(T, scan(T, DeltaRule(beta, k, v)));
    }";
    let found = program(text);
    assert_eq!(found.outputs[0].value, found.outputs[1].value);
}

#[test]
fn segments_begin_at_nothing_or_at_their_own_state() {
    let text = "pub fn f(k: f64[T, K], v: f64[T, V], beta: f64[T], r: bool[T]) -> (s: f64[T, K, V], e: f64[T, K, V]) {
        s = scan(T, segmented(DeltaRule)(beta, k, v), reset = r);
        e = scan(T, segmented(DeltaRule)(beta, k, v), reset = r, exclusive);
    }";
    let inf = f64::INFINITY;
    let k = Array::floats(&[3, 1], vec![1.0, 1.0, 1.0]);
    let v = Array::floats(&[3, 1], vec![inf, 2.0, 3.0]);
    let beta = Array::floats(&[3], vec![1.0, 0.5, 0.5]);
    let r = Array::bools(&[3], vec![false, true, false]);
    let found = interpret(&program(text), &[k, v, beta, r].map(Some), Mode::default()).unwrap();
    // A reset forgets the state before it, even an infinite one.
    assert_eq!(found[0].as_floats().unwrap(), [inf, 1.0, 2.0]);
    assert_eq!(found[1].as_floats().unwrap(), [0.0, 0.0, 1.0]);
}

#[test]
fn formulas_that_are_not_affine_are_refused() {
    let of = |formula: &str| {
        let text = format!("op Own(z: [K], v: [V], m: [J, K]) -> (s: [V, K]) {{ combine(l, r) ({formula}); }}");
        mistakes(&text)
    };
    let reason = |text: &str| {
        vec![format!(
            "`combine` of `Own` must be products of the state with values, sums of such products over one axis of the state, and values without it, but {text}"
        )]
    };
    assert_eq!(of("exp(l.s)"), reason("`exp` is not linear in the state"));
    assert_eq!(of("l.s * l.s"), reason("`*` is not linear in the state"));
    assert_eq!(of("r.z / l.s"), reason("`/` is not linear in the state"));
    assert_eq!(of("if l.s > 0 { l.s } else { 0 }"), reason("`>` is not linear in the state"));
    assert_eq!(of("r.z * r.v"), reason("it does not depend on the state"));
    assert_eq!(
        of("sum(K, l.s) + sum(V, l.s)"),
        reason("it sums the state over K and over V, but one axis of a state is summed over")
    );
    assert_eq!(
        of("l.s + sum(V, sum(K, l.s * r.z) * r.v)"),
        reason("the sum over V of a sum over K of the state is not a product of the state with vectors")
    );
    assert_eq!(
        of("l.s + rename(l.s, K = J) * r.m"),
        reason("the state over J in the place of K must be summed over J")
    );
}
