//! Random programs, along each of their axes.

use oplus::Elem;
use oplus_dsl::rng::Rng;
use oplus_dsl::testing::{Ingredients, program};

use crate::harness::{Case, divisions};

fn check(seed: u64, ingredients: &Ingredients) {
    let mut rng = Rng::new(seed);
    let mut program = program(seed, ingredients);
    program.operators.iter_mut().for_each(|operator| operator.gauge = None);
    let sizes: Vec<usize> = program.axes.iter().map(|_| rng.pick(&[1, 2, 3, 5, 7])).collect();
    for axis in program.axes.clone() {
        let along = program.axis(&axis).expect("it is one of the program's");
        let is_list =
            program.nodes.iter().any(|node| matches!(node.op, oplus_dsl::ir::Op::Starts { list, .. } if list == along));
        if is_list || !program.params.iter().any(|param| param.axes.contains(&along)) {
            continue;
        }
        let case = Case::new(&program, &axis, &sizes, seed);
        if !case.is_finite() {
            continue;
        }
        let parts = divisions(case.size());
        case.check(&parts[1 + rng.below(3)], 1e-9);
        case.check_in_segments(&parts[rng.below(4)], 1 + rng.below(4), 1e-9);
    }
}

#[test]
fn differentiable_programs() {
    let ingredients = Ingredients { elems: vec![Elem::Call], steps: 8, differentiable: true };
    (0..60).for_each(|seed| check(seed, &ingredients));
}

#[test]
fn programs_of_whole_numbers_too() {
    (1000..1060).for_each(|seed| check(seed, &Ingredients::default()));
}
