//! The engine against the interpreter.

mod borders;
mod gradients;
mod harness;
mod order;
mod stages;

use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::testing::{Ingredients, inputs, program};

use harness::{Strides, check};

/// Sizes around the engine's own: lanes, parts, tiles.
const SIZES: [usize; 12] = [0, 1, 2, 3, 7, 16, 31, 33, 64, 65, 129, 257];
const ELEMS: [Elem; 4] = [Elem::F64, Elem::F32, Elem::Bf16, Elem::F16];

fn sizes(program: &Program, seed: usize, most: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        (0..program.axes.len()).map(|axis| SIZES[(seed * 7 + axis * 5 + seed / 12) % SIZES.len()]).collect();
    while sizes.iter().product::<usize>() > most {
        let largest = (0..sizes.len()).max_by_key(|k| sizes[*k]).unwrap();
        sizes[largest] = sizes[largest] / 3 + 1;
    }
    sizes
}

fn strides(seed: usize) -> Strides {
    if seed.is_multiple_of(3) { Strides::Scattered } else { Strides::Dense }
}

#[test]
fn random_programs_agree_with_the_interpreter() {
    for seed in 0..400 {
        let ingredients = Ingredients { elems: ELEMS.to_vec(), ..Ingredients::default() };
        let program = program(seed as u64, &ingredients).instantiate(ELEMS[seed % 4]);
        let sizes = sizes(&program, seed, 20000);
        let inputs = inputs(&program, &sizes, seed as u64);
        check(&program, &sizes, &inputs, strides(seed));
    }
}

#[test]
fn adjoints_of_random_programs_agree_with_the_interpreter() {
    let mut adjoints = 0;
    for seed in 0..120 {
        let elem = ELEMS[seed % 2];
        let ingredients = Ingredients { elems: vec![elem], steps: 6, differentiable: true };
        let mut program = program(seed as u64, &ingredients).instantiate(elem);
        program.operators.iter_mut().for_each(|operator| operator.gauge = None);
        let Ok(program) = adjoint(&program) else { continue };
        let sizes = sizes(&program, seed, 3000);
        let inputs = inputs(&program, &sizes, seed as u64);
        check(&program, &sizes, &inputs, strides(seed));
        adjoints += 1;
    }
    assert!(adjoints > 60, "{adjoints}");
}
