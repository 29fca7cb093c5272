//! Programs with one more axis are cut as they are without it: mapped over a parameter, or for all segments of a shard at once.

use oplus_codegen::plan::Planner;
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::batched::batched;
use oplus_dsl::ir::Program;
use oplus_dsl::shard::{shard, shard_in_segments};

/// The models that scan a time, with their gradients.
fn programs() -> impl Iterator<Item = Program> {
    let is_meant = |program: &Program| program.axis("T").is_some() && program.axis("S.ends").is_none();
    let models = oplus_front::model_programs().into_iter().filter(|model| !model.has_matrix_scans());
    let models = models.filter(is_meant).map(|program| program.instantiate(Elem::F32));
    models.flat_map(|model| [adjoint(&model).expect("differentiable"), model])
}

/// The ways in which a program is cut.
fn cuts(program: &Program) -> Vec<CutKind> {
    let planner = Planner::new(program, &Target::H200).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    CutKind::ALL.into_iter().filter(|how| planner.cut(*how).is_some()).collect()
}

#[test]
fn mapped_programs_are_cut_alike() {
    for program in programs() {
        let mapped: Vec<bool> = program.params.iter().map(|param| !param.name.starts_with("cu_")).collect();
        let (wider, _) = batched(&program, &mapped).expect("can be mapped");
        assert_eq!(cuts(&wider), cuts(&program), "{}", program.name);
    }
}

#[test]
fn segments_of_shards_are_cut_alike() {
    let mut compared = 0;
    for program in programs() {
        let Some(in_segments) = shard_in_segments(&program, "T").expect("is divided") else { continue };
        for (wider, whole) in in_segments.phases.iter().zip(&shard(&program, "T").expect("is divided").phases) {
            let (Some(wider), Some(whole)) = (&wider.program, &whole.program) else { continue };
            assert_eq!(cuts(wider), cuts(whole), "{}", whole.name);
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared} programs were compared");
}
