//! Schedules by look-back whose registers suffice by the planner's estimate: operators with many fields have smaller windows and
//! tiles, and fewer warps; those with few keep what they have.

use oplus_codegen::plan::{cuts, variants};
use oplus_codegen::schedules::lookback::{register_limit, registers};
use oplus_codegen::schedules::{LookBack, Schedule};
use oplus_codegen::stage::{CutKind, Stage};
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

/// Operators as users write them, of 2 to 16 fields.
const SURVEY: &str = include_str!("../../../cli/survey/operators.rs");

/// The schedules by look-back of a program and its gradient.
fn look_back(program: &Program, elem: Elem) -> Vec<(Stage, LookBack)> {
    let both = [Some(program.clone()), adjoint(program).ok()].into_iter().flatten();
    let plain = |program: Program| cuts(&program.instantiate(elem)).expect("cuts").get(CutKind::Plain).cloned();
    let stages = both.filter_map(plain).flat_map(|cut| cut.stages);
    let all = stages.flat_map(|stage| Isa::ALL.map(|isa| variants(&stage, isa))).flatten();
    all.filter_map(|(stage, schedule)| if let Schedule::LookBack(s) = schedule { Some((stage, s)) } else { None })
        .collect()
}

fn programs() -> Vec<Program> {
    oplus_front::scan_source_file(SURVEY).expect("operators")
}

#[test]
fn estimates_keep_to_what_threads_have_or_the_schedule_is_the_smallest() {
    let (mut kept, mut smallest) = (0, 0);
    for (program, elem) in programs().iter().flat_map(|program| [(program, Elem::F32), (program, Elem::F64)]) {
        for (stage, s) in look_back(program, elem) {
            // Where nothing suffices single elements are left, whose threads hold least.
            let least = s.scan_warps == 4 && s.reduce_warps == 1 && s.window == 1 && s.vectors == 1 && s.vector == 1;
            let few = stage.scan().is_some_and(|scan| stage.program.operator(scan.operator).fields.len() <= 4);
            let suffices = few || registers(&stage, &s) <= register_limit(s.warps());
            assert!(suffices || least, "{} {elem}: {s}", stage.program.name);
            kept += usize::from(suffices);
            smallest += usize::from(!suffices);
        }
    }
    assert!(kept > 12 * smallest, "{kept} and {smallest}");
}

#[test]
fn operators_with_many_fields_have_smaller_windows_than_those_with_few() {
    let windows = |name: &str| -> Vec<u32> {
        let program = programs().into_iter().find(|program| program.name == name).expect("a kernel of the survey");
        look_back(&program, Elem::F32).into_iter().map(|(_, s)| s.window).collect()
    };
    assert!(windows("peaks").iter().all(|w| *w == 6 || *w == 3));
    assert!(windows("matrix4_corner").iter().any(|w| *w < 3));
}

#[test]
fn standard_operators_keep_their_tiles() {
    let texts = |name: &str| -> Vec<String> {
        let program = oplus_front::standard_programs().into_iter().find(|p| p.name == name).expect("a standard kernel");
        look_back(&program, Elem::F32).iter().map(|(_, s)| Schedule::LookBack(*s).to_string()).collect()
    };
    let first = |name: &str, wanted: &str| {
        let all = texts(name);
        assert!(all.iter().any(|s| s.starts_with(wanted)), "{name}: {all:?}");
    };
    first("cumsum", "lookback(scan_warps=6, reduce_warps=6, vector=4, vectors=16,");
    first("affine", "lookback(scan_warps=8, reduce_warps=4, vector=4, vectors=8,");
    first("complex_affine", "lookback(scan_warps=8, reduce_warps=8, vector=4, vectors=2,");
}
