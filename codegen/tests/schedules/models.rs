//! The standard models that scan, and their gradients: the kernels of whole plans, one after another.

use oplus_codegen::simulate::Order;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

use crate::device::Placement;
use crate::oracle::Case;

/// The models that scan, in f32: those of packed sequences with states, or the others.
fn models(with_states: bool) -> impl Iterator<Item = Program> {
    let is_meant =
        move |program: &Program| program.axis("T").is_some() && program.axis("S.ends").is_some() == with_states;
    oplus_front::model_programs().into_iter().filter(is_meant).map(|program| program.instantiate(Elem::F32))
}

/// Sizes of a program's axes for some time and states; six offsets make segments of no and of one element likely.
fn sizes(program: &Program, time: usize, states: usize) -> Vec<usize> {
    let size = |axis: &String| match axis.as_str() {
        "T" => time,
        "N" | "K" => states,
        "S" => 6,
        "S.ends" => 7,
        "D" | "V" | "P" => 3,
        _ => 2,
    };
    program.axes.iter().map(size).collect()
}

/// The plans of the first ranks give what the program means.
fn check(program: &Program, ranks: &[usize]) {
    for (k, (time, states)) in [(19, 4), (8, 3), (1, 1)].into_iter().enumerate() {
        let (sizes, order) = (sizes(program, time, states), Order::Random(k as u64));
        let case = Case { program, sizes: &sizes, placement: Placement::Contiguous, order };
        ranks.iter().for_each(|rank| case.check_ranked(&Target::H200, *rank));
        case.check_ranked(&Target::A100, ranks[k % ranks.len()]);
    }
}

#[test]
fn plans_of_models() {
    models(false).for_each(|model| check(&model, &[0, 1, 3]));
}

#[test]
fn plans_of_gradients_of_models() {
    models(false).for_each(|model| check(&adjoint(&model).expect("differentiable"), &[0, 1]));
}

#[test]
fn plans_of_packed_sequences_with_states_and_their_gradients() {
    for model in models(true) {
        check(&model, &[0, 1]);
        check(&adjoint(&model).expect("differentiable"), &[0]);
    }
}
