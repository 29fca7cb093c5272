//! Sums by products of matrices.

use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::testing::inputs;

use super::harness::{Strides, check};

/// The library's program of a name.
fn library(name: &str) -> Program {
    oplus_front::library_programs().into_iter().find(|program| program.name == name).unwrap()
}

/// Sizes by the names of axes.
fn sizes(program: &Program, of: impl Fn(&str) -> usize) -> Vec<usize> {
    program.axes.iter().map(|axis| of(axis)).collect()
}

#[test]
fn attention_agrees_with_the_interpreter() {
    for elem in [Elem::F32, Elem::F64, Elem::Bf16] {
        for name in ["attention", "attention_causal", "attention_window", "attention_bias", "attention_softcap"] {
            let forward = library(name);
            let backward = adjoint(&forward).unwrap().instantiate(elem);
            for (m, n) in [(5, 7), (33, 300), (131, 31)] {
                for program in [&forward.instantiate(elem), &backward] {
                    let sizes = sizes(program, |axis| match axis {
                        "M" => m,
                        "N" => n,
                        "E" => 5,
                        "F" => 6,
                        "R" => 2,
                        _ => 1,
                    });
                    let inputs = inputs(program, &sizes, 7);
                    check(program, &sizes, &inputs, Strides::Dense);
                    check(program, &sizes, &inputs, Strides::Scattered);
                }
            }
        }
    }
}
