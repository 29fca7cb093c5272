//! Reverse mode against forward mode: ⟨ȳ, J·ẋ⟩ = ⟨Jᵀ·ȳ, ẋ⟩ for models of matrix-valued states and of attention.

use oplus_dsl::Elem;
use oplus_dsl::forward::tangent;
use oplus_dsl::interpret::{Array, Mode};
use oplus_dsl::ir::Program;

use crate::attention::{MODELS, with_integers};
use crate::harness::{Named, Sizes, cotangents, floats, gradients, inputs, model, numbers, run};

/// Lengths of queries and keys: more of either, none, one.
const LENGTHS: [(usize, usize); 6] = [(3, 5), (5, 3), (4, 4), (1, 7), (2, 0), (0, 2)];

fn sizes(m: usize, n: usize) -> Vec<(&'static str, usize)> {
    vec![
        ("B", 2),
        ("G", 2),
        ("R", 2),
        ("H", 2),
        ("M", m),
        ("N", n),
        ("E", 3),
        ("F", 2),
        ("T", m + n),
        ("P", n),
        ("K", 2),
        ("V", 2),
        ("S", 4),
    ]
}

fn dot(a: &Named, b: &Named) -> f64 {
    a.iter().map(|(name, a)| floats(a).iter().zip(floats(&b[name])).map(|(a, b)| a * b).sum::<f64>()).sum()
}

/// Checks a program at random inputs, tangents and cotangents.
fn check(program: &Program, sizes: Sizes<'_>, seed: u64) {
    let given = with_integers(inputs(program, sizes, seed, |_| true), sizes);
    let outputs = run(program, &given, sizes, Mode::default());
    let mut rng = oplus_dsl::rng::Rng::new(seed + 1);
    let mut direction = |array: &Array| Array::floats(&array.sizes, numbers(floats(array).len(), &mut rng, -1.0, 1.0));
    let mut names: Vec<&String> = given.keys().filter(|name| given[*name].as_floats().is_some()).collect();
    names.sort();
    let dots: Named = names.into_iter().map(|name| (name.clone(), direction(&given[name]))).collect();
    let along = dots.iter().map(|(name, dot)| (format!("{name}.dot"), dot.clone()));
    let all: Named = given.clone().into_iter().chain(along).collect();
    let tangents = run(&tangent(program).expect("a tangent"), &all, sizes, Mode::default());
    let bars = cotangents(&outputs, seed + 2);
    let moved: Named = bars.keys().map(|name| (name.clone(), tangents[&format!("{name}.dot")].clone())).collect();
    let gradients = gradients(program, (&given, &outputs, &bars), sizes, Mode::default());
    let (forward, reverse) = (dot(&bars, &moved), dot(&gradients, &dots));
    let size = forward.abs().max(1.0);
    assert!((forward - reverse).abs() <= 1e-12 * size, "{} at {sizes:?}: {forward} and {reverse}", program.name);
}

#[test]
fn reverse_mode_is_the_transpose_of_forward_mode() {
    let names =
        ["ssd", "ssd_softplus", "mamba2", "ssd_packed", "retention", "linear_attention", "gated_linear_attention"];
    let merges = ["merge", "merge_parts"];
    for (k, name) in names.into_iter().chain(MODELS).chain(merges).enumerate() {
        for (m, n) in LENGTHS {
            // In f32 the log-sum-exp is an output without rounding, which the adjoint reads; in general it is not.
            check(&model(name).instantiate(Elem::F32), &sizes(m, n), k as u64);
            check(&model(name), &sizes(m, n), 100 + k as u64);
        }
    }
}
