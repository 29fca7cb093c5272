//! The engine against the interpreter.

mod borders;
mod folds;
mod gradients;
mod groups;
mod guards;
mod harness;
mod matrices;
#[cfg(feature = "jit")]
mod native;
mod operators;
mod order;
mod products;

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

/// Every axis of the library's kernels and of their gradients in turn has no element, the others few. Outputs without the axis
/// have values: totals, last states, and whatever does not depend on it.
#[test]
fn an_empty_axis_leaves_the_others_their_values() {
    let kernels = oplus_front::library_programs();
    let gradients: Vec<Program> = kernels.iter().filter_map(|kernel| adjoint(kernel).ok()).collect();
    for program in kernels.iter().chain(&gradients) {
        let program = program.instantiate(Elem::F32);
        // Offsets and indices would have to be valid ones.
        if program.params.iter().any(|param| !param.elem.is_float()) {
            continue;
        }
        for empty in 0..program.axes.len() {
            let sizes: Vec<usize> = (0..program.axes.len()).map(|k| if k == empty { 0 } else { 2 + k % 2 }).collect();
            check(&program, &sizes, &inputs(&program, &sizes, empty as u64), strides(empty));
        }
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
