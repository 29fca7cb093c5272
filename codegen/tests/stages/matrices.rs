//! Recurrences of matrices have no kernels for GPUs: they are refused in words, never planned wrongly.

use oplus_codegen::plan::{PlanError, Planner};
use oplus_codegen::stage::CutError;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

fn refusal(program: &Program) -> String {
    let error = match Planner::new(program, &Target::H200) {
        Err(error) => error,
        Ok(_) => panic!("{} has a planner", program.name),
    };
    assert!(matches!(error, PlanError::Cut(CutError::Matrices { .. })), "{error}");
    error.to_string()
}

#[test]
fn models_of_the_delta_rule_are_refused_in_words() {
    let (mut refused, models) = (0, oplus_front::model_programs());
    for model in models.iter().filter(|model| model.has_matrix_scans()) {
        let program = model.instantiate(Elem::Bf16);
        let wanted = format!(
            "`{}` multiplies a state by a matrix at every step along T: there are no kernels of such recurrences for GPUs; call it with tensors of the CPU",
            model.name
        );
        assert_eq!(refusal(&program), wanted);
        let gradient = adjoint(&program).expect("a gradient");
        assert!(refusal(&gradient).contains("along T"));
        refused += 1;
    }
    assert_eq!(refused, 5);
}
