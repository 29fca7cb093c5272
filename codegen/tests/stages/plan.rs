//! Plans: which schedule a call gets, what is launched, what is refused.

use oplus_codegen::plan::{Arg, Call, Layout, Plan, PlanError, Planner, cuts, plan, variants};
use oplus_codegen::schedules::{Form, Loader, Schedule};
use oplus_codegen::target::{Isa, Target};
use oplus_codegen::tile::ParamKind;
use oplus_dsl::ir::Program;

use super::programs;
use super::run::program;

/// A call with contiguous, aligned tensors.
pub(super) fn call(program: &Program, sizes: &[i64]) -> Call {
    Call::contiguous(program, sizes)
}

fn plan_of(text: &str, sizes: &[i64], target: &Target) -> Plan {
    let program = program(text);
    plan(&program, &call(&program, sizes), target).expect("plans")
}

fn schedule(text: &str, sizes: &[i64]) -> Schedule {
    plan_of(text, sizes, &Target::H200).steps[0].schedule
}

/// x[T, C] summed along T.
fn columns_sum() -> String {
    programs::CUMSUM.replace("[B, L]", "[T, C]").replace("B, L", "T, C").replace("scan(L", "scan(T")
}

#[test]
fn long_rows_look_back() {
    for sizes in [[1, 1 << 20], [1, 1 << 28], [1, (1 << 28) + 13], [64, 262_144]] {
        for text in [programs::CUMSUM, programs::AFFINE] {
            let chosen = schedule(text, &sizes);
            assert!(matches!(chosen, Schedule::LookBack(s) if s.loader == Loader::Bulk), "{sizes:?}: {chosen}");
        }
    }
    let backward = schedule(programs::AFFINE_BACKWARD, &[64, 262_144]);
    assert!(matches!(backward, Schedule::LookBack(_)), "{backward}");
}

/// A second poll for every tile costs more than smaller tiles save at the row's end.
#[test]
fn the_longest_rows_are_looked_back_over_in_one_poll() {
    for len in [1 << 25, 1 << 28] {
        let plan = plan_of(programs::CUMSUM, &[1, len], &Target::H200);
        let Schedule::LookBack(taken) = plan.steps[0].schedule else { panic!("{}", plan.steps[0].schedule) };
        assert!(32 * taken.window >= Target::H200.multiprocessors, "{len}: {taken}");
        let others = plan.choices[0].candidates.iter().skip(1);
        assert!(others.clone().any(|c| c.why.contains("2 polls for each")), "{:?}", plan.choices[0]);
    }
}

/// A value of f64 takes two registers.
#[test]
fn threads_hold_half_as_many_elements_of_f64() {
    let most = |text: &str| {
        let stages: Vec<_> = cuts(&program(text)).expect("cuts").all().flat_map(|cut| cut.stages).collect();
        let held = |schedule: Schedule| match schedule {
            Schedule::Rows(s) => s.rows * s.vectors * s.vector,
            Schedule::LookBack(s) => s.vectors * s.vector,
            _ => 0,
        };
        stages.iter().flat_map(|stage| variants(stage, Isa::Sm90a)).map(|(_, schedule)| held(schedule)).max()
    };
    for text in [programs::CUMSUM, programs::AFFINE, programs::AFFINE_BACKWARD] {
        let (narrow, wide) = (most(text).unwrap_or(0), most(&text.replace("f32", "f64")).unwrap_or(0));
        assert!(wide > 0 && 2 * wide <= narrow, "{wide} of f64, {narrow} of f32: {text}");
    }
}

#[test]
fn every_schedule_that_fits_has_a_rank() {
    let program = program(programs::AFFINE);
    let (planner, call) = (Planner::new(&program, &Target::H200).expect("cuts"), call(&program, &[64, 4096]));
    let fitting = planner.plan(&call).expect("plans").choices[0].candidates.clone();
    assert!(fitting.len() > 4);
    for rank in 0..fitting.len() + 2 {
        let plan = planner.plan_ranked(&call, rank).expect("plans");
        let taken = &fitting[rank.min(fitting.len() - 1)];
        assert_eq!((plan.steps[0].schedule, &plan.choices[0].candidates[0]), (taken.schedule, taken));
        assert_eq!(plan.choices[0].candidates.len(), fitting.len());
    }
}

#[test]
fn many_rows_stay_in_one_team() {
    for sizes in [[8192, 4096], [131_072, 256], [100_000, 17], [4096, 1 << 16]] {
        for text in [programs::CUMSUM, programs::AFFINE, programs::AFFINE_BACKWARD] {
            let chosen = schedule(text, &sizes);
            assert!(matches!(chosen, Schedule::Rows(_)), "{sizes:?}: {chosen}");
        }
    }
    let (long, short) = (schedule(programs::CUMSUM, &[8192, 4096]), schedule(programs::CUMSUM, &[131_072, 256]));
    assert!(matches!(long, Schedule::Rows(s) if s.tile() == 4096), "{long}");
    assert!(matches!(short, Schedule::Rows(s) if s.tile() == 256), "{short}");
}

/// A larger tile would take a thread's instructions and its compiler's time for places without elements.
#[test]
fn short_rows_take_tiles_of_their_size() {
    for (len, tile) in [(100, 1024), (256, 1024), (1000, 1024), (1024, 1024), (2000, 4096), (4096, 4096)] {
        for text in [programs::CUMSUM, programs::AFFINE] {
            let chosen = schedule(text, &[4, len]);
            assert!(matches!(chosen, Schedule::Rows(s) if s.tile() <= tile), "{len}: {chosen}");
        }
    }
}

#[test]
fn a_strided_scan_axis_takes_columns() {
    let ring = schedule(&columns_sum(), &[1 << 20, 32]);
    assert!(matches!(ring, Schedule::Columns(s) if s.form == Form::Ring && s.vector == 4), "{ring}");
    let walk = schedule(&columns_sum(), &[2048, 131_072]);
    assert!(matches!(walk, Schedule::Columns(s) if s.form == Form::Walk), "{walk}");
    let odd = schedule(&columns_sum(), &[1 << 20, 31]);
    assert!(matches!(odd, Schedule::Columns(s) if s.form == Form::Ring && s.vector == 1), "{odd}");
}

#[test]
fn one_column_is_a_row() {
    let program = program(&columns_sum());
    let plan = plan(&program, &call(&program, &[1 << 20, 1]), &Target::H200).expect("plans");
    assert!(plan.steps[0].schedule.vector() == 1 || matches!(plan.steps[0].schedule, Schedule::LookBack(_)));
}

#[test]
fn a_portable_target_gets_no_bulk_copies() {
    for sizes in [[1, 1 << 24], [64, 262_144]] {
        let plan = plan_of(programs::AFFINE, &sizes, &Target::A100);
        assert!(matches!(plan.steps[0].schedule, Schedule::LookBack(s) if s.loader == Loader::Registers));
    }
}

#[test]
fn unaligned_and_strided_tensors_take_scalar_accesses() {
    let program = program(programs::CUMSUM);
    let mut misaligned = call(&program, &[1000, 4096]);
    misaligned.outputs[0].align = 4;
    let mut strided = call(&program, &[1000, 4096]);
    strided.params[0] = Some(Layout { strides: vec![3 * 8192, -2], align: 16 });
    let odd_length = call(&program, &[1000, 4095]);
    for call in [misaligned, strided, odd_length] {
        let plan = plan(&program, &call, &Target::H200).expect("plans");
        assert_eq!(plan.steps[0].schedule.vector(), 1, "{call:?}");
        assert!(plan.choices[0].refused.len() >= 4);
    }
}

#[test]
fn neighbouring_outer_axes_are_merged_where_strides_allow() {
    let text = programs::CUMSUM.replace("[B, L]", "[B, H, L]").replace("axes B, L", "axes B, H, L");
    let program = program(&text);
    let sizes = [6, 7, 4096];
    let merged = plan(&program, &call(&program, &sizes), &Target::H200).expect("plans");
    assert_eq!(merged.steps[0].stage.program.axes, ["B_H", "L"]);
    assert!(merged.steps[0].args.contains(&Arg::I64(42)));
    let mut apart = call(&program, &sizes);
    apart.params[0] = Some(Layout { strides: vec![4096, 6 * 4096, 1], align: 16 });
    let apart = plan(&program, &apart, &Target::H200).expect("plans");
    assert_eq!(apart.steps[0].stage.program.axes, ["B", "H", "L"]);
    let mut single = call(&program, &[1, 7, 4096]);
    single.params[0] = Some(Layout { strides: vec![0, 4096, 1], align: 16 });
    let single = plan(&program, &single, &Target::H200).expect("plans");
    assert_eq!(single.steps[0].stage.program.axes, ["B_H", "L"], "the stride of an axis of size 1 does not matter");
}

#[test]
fn arguments_are_those_of_the_abi() {
    let program = program(programs::DECAY_BACKWARD);
    let plan = plan(&program, &call(&program, &[2, 300, 16, 8]), &Target::H200).expect("plans");
    assert_eq!(plan.steps.len(), 3);
    for launch in &plan.steps {
        let slots = launch.schedule.abi(&launch.stage);
        assert_eq!(slots.len(), launch.args.len());
        for (slot, arg) in slots.iter().zip(&launch.args) {
            let agrees = match slot.param.kind {
                ParamKind::Read(_) | ParamKind::Write(_) => {
                    matches!(arg, Arg::Param(_) | Arg::Output(_) | Arg::Buffer(_))
                }
                ParamKind::Messages => *arg == Arg::Messages,
                ParamKind::Control => *arg == Arg::Control,
                ParamKind::Scalar(_) => matches!(arg, Arg::I64(_)),
            };
            assert!(agrees, "{slot:?} {arg:?}");
        }
    }
    assert_eq!(plan.buffers.iter().map(|b| b.len).collect::<Vec<_>>(), [2 * 300 * 16]);
}

#[test]
fn empty_axes_launch_what_still_has_a_value() {
    let finals = plan_of(programs::AFFINE, &[5, 0], &Target::H200);
    assert_eq!(finals.steps.len(), 1, "the last state is the initial one");
    assert!(matches!(finals.steps[0].schedule, Schedule::Rows(_)));
    assert!(plan_of(programs::CUMSUM, &[5, 0], &Target::H200).steps.is_empty());
    assert!(plan_of(programs::AFFINE, &[0, 7], &Target::H200).steps.is_empty());
}

#[test]
fn a_parameter_that_is_left_out_is_a_constant() {
    let program = program(programs::AFFINE);
    let mut call = call(&program, &[8, 4096]);
    let with = plan(&program, &call, &Target::H200).expect("plans");
    call.params[2] = None;
    let without = plan(&program, &call, &Target::H200).expect("plans");
    assert_eq!(without.steps[0].stage.program.params.len(), 2);
    assert!(without.steps[0].stage.scan().is_some_and(|s| s.init.is_empty()), "zero is the identity");
    assert_ne!(with.steps[0].key, without.steps[0].key);
    call.params[0] = None;
    assert_eq!(plan(&program, &call, &Target::H200), Err(PlanError::Missing("a".into())));
}

#[test]
fn bad_calls_are_refused_in_words() {
    let program = program(programs::CUMSUM);
    let good = call(&program, &[3, 5]);
    let error = |change: &dyn Fn(&mut Call)| {
        let mut call = good.clone();
        change(&mut call);
        plan(&program, &call, &Target::H200).expect_err("is refused").to_string()
    };
    assert_eq!(error(&|c| c.sizes[1] = -1), "axis L has size -1");
    assert_eq!(error(&|c| c.sizes.truncate(1)), "the call gives 1 sizes, the program has 2");
    assert_eq!(error(&|c| c.outputs[0].strides.truncate(1)), "`y` has 2 axes, its layout has 1 strides");
    assert!(error(&|c| c.outputs[0].strides[0] = 0).contains("overlap"));
    let counted = "`x` has more elements than 64-bit indices count: B=9223372036854775807, L=4";
    assert_eq!(error(&|c| c.sizes = vec![i64::MAX, 4]), counted);
    let reaches = "`y` reaches over more bytes than 64-bit addresses count: B=3, L=5, strides [4611686018427387904, 1]";
    assert_eq!(error(&|c| c.outputs[0].strides[0] = 1 << 62), reaches);
}

#[test]
fn more_than_2_to_the_31_elements_are_planned() {
    for sizes in [[1, (1 << 33) + 5], [1 << 32, 3], [1 << 16, 1 << 17]] {
        let plan = plan_of(programs::CUMSUM, &sizes, &Target::H200);
        assert!(plan.steps[0].grid[0] > 0);
        assert!(plan.choices[0].candidates[0].bytes > 1 << 34);
    }
}

#[test]
fn every_plan_uses_a_baked_variant() {
    for text in [
        programs::CUMSUM,
        programs::AFFINE_BACKWARD,
        programs::DECAY_BACKWARD,
        programs::SEGMENTED,
        programs::STATE_SPACE,
    ] {
        let program = program(text);
        let planner = Planner::new(&program, &Target::H200).expect("cuts");
        for n in [0, 1, 2, 31, 64, 1000, 4096, 100_003] {
            let sizes: Vec<i64> = (0..program.axes.len()).map(|i| if i == 1 { n } else { 3 }).collect();
            let plan = planner.plan(&call(&program, &sizes)).expect("plans");
            for launch in &plan.steps {
                let stages = cuts(&program).expect("cuts").all().flat_map(|cut| cut.stages);
                let stages: Vec<_> = stages.collect();
                let baked = stages.iter().flat_map(|s| variants(s, Isa::Sm90a));
                assert!(baked.into_iter().any(|(stage, s)| stage == *launch.stage && s == launch.schedule));
            }
        }
    }
}
