//! Calls that leave out optional parameters, cotangents among them: what is left has stages.

use oplus_codegen::plan::cuts;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::specialize::for_call;

/// The program of calls without these parameters, and so without their gradients.
fn without(program: &Program, absent: &[&str]) -> Program {
    let is_wanted = |name: &&str| name.strip_suffix(".bar").is_none_or(|param| !absent.contains(&param));
    let wanted: Vec<&str> = program.outputs.iter().map(|o| o.name.as_str()).filter(is_wanted).collect();
    for_call(program, Elem::F32, &wanted, absent)
}

/// Every single optional parameter left out, every one but one, and all.
fn left_out(program: &Program) -> Vec<Vec<&str>> {
    let optional: Vec<&str> = program.params.iter().filter(|p| p.default.is_some()).map(|p| p.name.as_str()).collect();
    let others = |one: &&str| optional.iter().copied().filter(|name| name != one).collect();
    let singles = optional.iter().map(|one| vec![*one]);
    singles.chain(optional.iter().map(others)).chain([optional.clone()]).collect()
}

#[test]
fn programs_without_optional_parameters_have_stages() {
    let mut count = 0;
    for form in oplus_front::library_programs() {
        for program in [adjoint(&form).ok(), Some(form)].into_iter().flatten() {
            for absent in left_out(&program) {
                let called = without(&program, &absent);
                assert!(cuts(&called).is_ok(), "{} without {absent:?}", program.name);
                count += 1;
            }
        }
    }
    assert!(count > 300, "{count}");
}
