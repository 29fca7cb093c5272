//! Cutting programs into stages: the stages, run one after another, give what the program gives.

use oplus_codegen::stage::{Cut, CutKind, Kind, Sink, Source, cut, cut_contracted, cut_partial_sums, cuts};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::testing::{Ingredients, program as random};

use super::programs;
use super::run::{check, check_all_within, program};

/// A program's stages, after checking that they compute what it does.
fn stages(text: &str) -> (Program, Cut) {
    let program = program(text);
    let cut = cut(&program).expect("cuts");
    check(&program, &cut);
    (program, cut)
}

fn kinds(cut: &Cut) -> Vec<Kind> {
    cut.stages.iter().map(|s| s.kind().clone()).collect()
}

#[test]
fn a_cumulative_sum_is_one_stage() {
    let (program, cut) = stages(programs::CUMSUM);
    assert_eq!(kinds(&cut), [Kind::Scan]);
    assert_eq!(cut.stages[0].program.name, program.name);
    assert!(cut.buffers.is_empty());
}

#[test]
fn a_scan_with_initial_and_final_state_is_one_stage() {
    let (_, cut) = stages(programs::AFFINE);
    assert_eq!(kinds(&cut), [Kind::Scan]);
    let stage = &cut.stages[0];
    assert_eq!(stage.sinks, [Sink::Output(0), Sink::Output(1)]);
    assert!(!stage.is_final(0) && stage.is_final(1));
    assert_eq!(stage.scan().map(|s| s.init.len()), Some(2));
}

#[test]
fn the_affine_adjoint_is_one_reverse_stage_of_five_arrays() {
    let (_, cut) = stages(programs::AFFINE_BACKWARD);
    assert_eq!(kinds(&cut), [Kind::Scan]);
    let stage = &cut.stages[0];
    assert!(stage.scan().is_some_and(|s| s.reverse && s.exclusive.is_none()));
    assert_eq!((stage.sources.len(), stage.sinks.len()), (5, 3));
    assert!(cut.buffers.is_empty());
}

#[test]
fn the_gradient_of_a_broadcast_decay_reads_the_stored_states() {
    let (_, cut) = stages(programs::DECAY_BACKWARD);
    assert_eq!(kinds(&cut), [Kind::Scan, Kind::Reduce, Kind::Reduce]);
    assert_eq!(cut.buffers.len(), 1, "only the partial sum between the two reductions");
    assert!(cut.stages[1].sources.contains(&Source::Output(1)), "λ is read from the output that holds it");
}

#[test]
fn a_value_that_an_output_rounds_is_stored_exactly() {
    let text = programs::DECAY_BACKWARD.replace("output x.bar: f32", "output x.bar: bf16");
    let (_, cut) = stages(&text);
    assert_eq!(cut.buffers.len(), 2);
}

#[test]
fn independent_scans_along_one_axis_share_a_stage() {
    let (_, cut) = stages(programs::TWO_SCANS);
    assert_eq!(kinds(&cut), [Kind::Scan]);
    let stage = &cut.stages[0];
    let scan = stage.scan().expect("a scan");
    assert_eq!(stage.program.operator(scan.operator).fields.len(), 3);
}

#[test]
fn scans_in_both_directions_take_two_stages_and_one_array() {
    let (_, cut) = stages(programs::BOTH_DIRECTIONS);
    assert_eq!(kinds(&cut), [Kind::Scan, Kind::Scan]);
    assert_eq!(cut.buffers.len(), 1);
}

#[test]
fn normalising_by_a_total_reads_the_total() {
    let (_, cut) = stages(programs::NORMALISE);
    assert_eq!(kinds(&cut), [Kind::Reduce, Kind::Map]);
    assert_eq!(cut.buffers[0].axes.len(), 1);
}

#[test]
fn a_scan_whose_states_are_summed_over_another_axis_is_cut() {
    let (_, cut) = stages(programs::STATE_SPACE);
    assert_eq!(kinds(&cut), [Kind::Scan, Kind::Reduce]);
}

#[test]
fn a_sum_over_states_stays_with_their_scan_where_that_is_asked_for() {
    let program = program(programs::STATE_SPACE);
    let cut = cut_contracted(&program).expect("cuts").expect("has a contraction");
    check(&program, &cut);
    let [stage] = &cut.stages[..] else { panic!("{} stages", cut.stages.len()) };
    let name = |axis| stage.program.axis_name(axis);
    assert_eq!(stage.state_axis().map(name), Some("N"));
    assert_eq!(stage.outer_axes().iter().map(name).collect::<Vec<_>>(), ["B", "D"]);
    assert!(cut.buffers.is_empty());
}

#[test]
fn a_sum_over_columns_is_stored_in_parts_where_that_is_asked_for() {
    let program = program(programs::DECAY_OF_COLUMNS_BACKWARD);
    let plain = cut(&program).expect("cuts");
    assert_eq!(kinds(&plain), [Kind::Scan, Kind::Reduce, Kind::Reduce]);
    let cut = cut_partial_sums(&program).expect("cuts").expect("has a sum over columns");
    check(&program, &cut);
    assert!(matches!(kinds(&cut)[..], [Kind::PartialSums(_), Kind::Reduce]), "{:?}", kinds(&cut));
    let [scan, sum] = &cut.stages[..] else { panic!("{} stages", cut.stages.len()) };
    let name = |axis| scan.program.axis_name(axis);
    assert_eq!(scan.partial_axis.map(name), Some("part"));
    assert_eq!(scan.outer_axes().iter().map(name).collect::<Vec<_>>(), ["B", "K", "V"]);
    assert_eq!(scan.program.outputs.iter().map(|o| o.axes.len()).collect::<Vec<_>>(), [4, 3]);
    assert_eq!((sum.partial_axis, sum.axis().map(|a| sum.program.axis_name(a))), (None, Some("part")));
}

#[test]
fn segments_are_flags_and_then_a_scan() {
    let (_, cut) = stages(programs::SEGMENTED);
    assert_eq!(kinds(&cut), [Kind::Map, Kind::Scan]);
    assert_eq!(cut.buffers.len(), 1);
}

#[test]
fn an_exclusive_state_needs_no_array() {
    let (_, cut) = stages(programs::SHIFTED_STATES);
    assert_eq!(kinds(&cut), [Kind::Scan]);
    let scan = cut.stages[0].scan().expect("a scan");
    assert!(scan.inclusive.is_some() && scan.exclusive.is_some());
}

#[test]
fn every_other_position_of_a_state_is_read_from_memory() {
    let (_, cut) = stages(programs::OTHER_POSITIONS);
    assert_eq!(kinds(&cut)[0], Kind::Scan);
    assert!(kinds(&cut)[1..].iter().all(|k| *k == Kind::Map));
}

#[test]
fn a_scan_of_a_scan_is_cut() {
    let (_, cut) = stages(programs::NESTED);
    assert_eq!(kinds(&cut), [Kind::Scan, Kind::Scan]);
}

#[test]
fn fields_over_fewer_axes_are_scanned_apart() {
    let (_, cut) = stages(programs::DECAY_WITH_BASE);
    assert_eq!(kinds(&cut), [Kind::Scan, Kind::Scan]);
    let fields = |i: usize| {
        let stage = &cut.stages[i];
        stage.scan().map(|s| stage.program.operator(s.operator).fields.len())
    };
    assert_eq!((fields(0), fields(1)), (Some(2), Some(1)));
}

#[test]
fn maps_of_scalars_and_constants_are_stages_too() {
    let (_, cut) = stages(programs::SCALARS);
    assert!(kinds(&cut).iter().all(|k| *k == Kind::Map));
}

#[test]
fn a_generic_program_is_refused() {
    let program = program(&programs::CUMSUM.replace("f32", "call"));
    assert!(cut(&program).is_err());
}

#[test]
fn random_programs_are_cut_into_stages_that_compute_them() {
    let ingredients = Ingredients { elems: vec![Elem::Call, Elem::F32], ..Ingredients::default() };
    for seed in 0..400 {
        let program = random(seed, &ingredients).instantiate(if seed % 2 == 0 { Elem::F64 } else { Elem::F32 });
        let cut = cut(&program).unwrap_or_else(|e| panic!("{program}{e}"));
        check(&program, &cut);
        check_contracted(&program);
        check_partial_sums(&program);
        check_other_forms(&program);
    }
}

/// Checks the stages that store values over fewer axes, and those of programs that are written otherwise; gives how many cuts those are.
fn check_other_forms(program: &Program) -> usize {
    let cuts = cuts(program).expect("cuts");
    let forms = [CutKind::Narrow, CutKind::PairwiseArranged].into_iter().filter_map(|how| cuts.get(how));
    // Rows and columns that are stored are rounded to f32.
    forms.inspect(|cut| check_all_within(program, cut, 1e-5)).count()
}

/// Checks the stages with partial sums over columns; gives whether there are any.
fn check_partial_sums(program: &Program) -> bool {
    let cut = cut_partial_sums(program).expect("cuts");
    cut.iter().for_each(|cut| check(program, cut));
    cut.is_some_and(|cut| cut.stages.iter().any(|s| s.partial_axis.is_some()))
}

/// Checks the stages with contractions; gives whether there are any.
fn check_contracted(program: &Program) -> bool {
    let cut = cut_contracted(program).expect("cuts");
    cut.iter().for_each(|cut| check(program, cut));
    cut.is_some_and(|cut| cut.stages.iter().any(|s| s.state_axis().is_some()))
}

#[test]
fn adjoints_of_random_programs_are_cut_into_stages_that_compute_them() {
    let ingredients = Ingredients { differentiable: true, ..Ingredients::default() };
    let (mut checked, mut contracted, mut partial, mut others) = (0, 0, 0, 0);
    for seed in 0..200 {
        let Ok(program) = adjoint(&random(seed, &ingredients).instantiate(Elem::F64)) else { continue };
        let cut = cut(&program).expect("cuts");
        check(&program, &cut);
        checked += 1;
        contracted += usize::from(check_contracted(&program));
        partial += usize::from(check_partial_sums(&program));
        others += check_other_forms(&program);
    }
    assert!(checked > 100 && contracted > 0 && partial > 0 && others > 0, "{checked} {contracted} {partial} {others}");
}
