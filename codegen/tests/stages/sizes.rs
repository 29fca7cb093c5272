//! Sizes at which counts, products of sizes and bytes leave 31, 32 and 63 bits: a call is planned so that everything is counted,
//! or refused in words. Tensors that repeat their elements (strides of 0) need no memory, so any sizes can come.

use oplus_codegen::plan::{Arg, Call, Launch, Layout, Plan, PlanError, Planner, variants};
use oplus_codegen::schedules::{Form, Schedule};
use oplus_codegen::stage::{CutKind, cut};
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Axis, Program};

use super::programs;
use super::run::program;

const LIMIT: i64 = 1 << 31;
/// Sizes of one axis, the others being small.
const ONE: [i64; 9] =
    [LIMIT - 4097, LIMIT - 1, LIMIT, LIMIT + 4096, 2 * LIMIT, (1 << 40) + 8, 1 << 59, 1 << 62, i64::MAX];
/// Sizes of all axes.
const ALL: [i64; 3] = [1 << 16, LIMIT, 1 << 62];

/// A call whose parameters repeat one element, and whose outputs are contiguous.
fn repeated(program: &Program, sizes: &[i64]) -> Call {
    let contiguous = |axes: &[Axis]| {
        let mut strides = vec![1_i64; axes.len()];
        for i in (1..axes.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(sizes[axes[i].0 as usize].max(1));
        }
        Layout { strides, align: 256 }
    };
    let zeros = |axes: &[Axis]| Layout { strides: vec![0; axes.len()], align: 256 };
    Call {
        sizes: sizes.to_vec(),
        params: program.params.iter().map(|p| Some(zeros(&p.axes))).collect(),
        outputs: program.outputs.iter().map(|o| contiguous(&o.axes)).collect(),
    }
}

/// Tiles that persistent blocks draw; `None` for launches without tickets.
fn tiles(launch: &Launch) -> Option<u128> {
    let (sizes, stage) = (launch.sizes(), &launch.stage);
    let size = |axis: Axis| sizes[axis.0 as usize] as u128;
    let rows: u128 = stage.outer_axes().iter().map(size).product();
    let len = stage.axis().map_or(1, size);
    match launch.schedule {
        Schedule::LookBack(s) => Some(rows * len.div_ceil(u128::from(s.tile()))),
        Schedule::Columns(s) if s.form == Form::Ring => {
            let width = size(Axis(s.lane)).max(1);
            let scans = rows / width * width.div_ceil(u128::from(s.tile_columns()));
            Some(scans * len.div_ceil(u128::from(s.tile_rows())))
        }
        _ => None,
    }
}

/// Checks that whatever a launch counts fits where it is counted.
#[track_caller]
fn check_launch(launch: &Launch) {
    let what = format!("{} under {} for {:?}", launch.stage.program.name, launch.schedule, launch.sizes());
    let points: u128 = launch.sizes().iter().map(|n| (*n).max(1) as u128).product();
    assert!(points <= 1 << 62, "{what}: {points} points");
    let [x, y, z] = launch.grid.map(i64::from);
    assert!((1..LIMIT).contains(&x) && (1..1 << 16).contains(&y) && z == 1, "{what}: grid {:?}", launch.grid);
    assert!(launch.args.iter().all(|arg| !matches!(arg, Arg::I64(n) if *n < 0)), "{what}: {:?}", launch.args);
    assert_eq!(tiles(launch).is_some(), launch.schedule.looks_back(), "{what}");
    if let Some(tiles) = tiles(launch) {
        // Every block draws one ticket that names no tile.
        assert!(tiles + (x as u128) < LIMIT as u128, "{what}: {tiles} tiles and {x} blocks");
    }
}

#[track_caller]
fn check_plan(plan: &Plan) {
    for launch in &plan.steps {
        check_launch(launch);
        let known = |arg: &Arg| !matches!(arg, Arg::Buffer(k) if *k as usize >= plan.buffers.len());
        assert!(launch.args.iter().all(known), "{} names a buffer that is not there", launch.schedule);
    }
    assert!(plan.buffers.iter().all(|buffer| i64::try_from(buffer.len).is_ok()));
    assert!(plan.micros() >= 0.0);
}

/// Checks that a refusal names what is refused.
#[track_caller]
fn check_error(error: &PlanError) {
    let said = error.to_string();
    match error {
        PlanError::TooLarge { name, shape } => assert!(said.contains(name) && said.contains(shape), "{said}"),
        PlanError::Reach { tensor, .. } => assert!(said.contains(tensor), "{said}"),
        PlanError::NoSchedule { stage, .. } => assert!(said.contains(stage), "{said}"),
        other => panic!("{other}"),
    }
}

/// Plans a program in every way for some sizes; how many plans there were.
fn check(planner: &Planner, sizes: &[i64]) -> usize {
    let call = repeated(planner.program(), sizes);
    let saving = planner.plan_saving(&call).map(|saving| saving.map(|(plan, _)| plan));
    let plans = [planner.plan(&call), planner.plan_ranked(&call, 3)].map(|plan| plan.map(Some));
    let mut planned = 0;
    for plan in plans.into_iter().chain([saving, planner.plan_of(CutKind::SplitK, &call, 0)]) {
        match plan {
            Ok(plan) => {
                plan.iter().for_each(check_plan);
                planned += usize::from(plan.is_some());
            }
            Err(error) => check_error(&error),
        }
    }
    planned
}

/// The sizes that are tried for so many axes: each of them long, the others short.
fn sizes(axes: usize, short: i64) -> impl Iterator<Item = Vec<i64>> {
    let long = move |k, size| (0..axes).map(|axis| if axis == k { size } else { short }).collect();
    (0..axes).flat_map(move |k| ONE.map(|size| long(k, size))).chain(ALL.map(|size| vec![size; axes]))
}

fn check_all(programs: &[Program], short: i64, target: &Target) {
    let (mut planned, mut asked) = (0, 0);
    for program in programs {
        let planner = Planner::new(program, target).expect("cuts");
        for sizes in sizes(program.axes.len(), short) {
            asked += 1;
            planned += usize::from(check(&planner, &sizes) > 0);
        }
    }
    assert!(planned * 10 > asked && planned < asked, "{planned} of {asked} calls are planned");
}

#[test]
fn standard_kernels_and_their_gradients() {
    let forward = oplus_front::standard_programs().into_iter().map(|program| program.instantiate(Elem::F32));
    let forward: Vec<Program> = forward.collect();
    let backward: Vec<Program> = forward.iter().filter_map(|program| adjoint(program).ok()).collect();
    check_all(&forward, 1, &Target::H200);
    check_all(&forward, 16, &Target::A100);
    check_all(&backward, 1, &Target::A100);
    check_all(&backward, 16, &Target::H200);
}

/// Models that take every schedule between them.
#[test]
fn models_and_their_gradients() {
    let names = ["selective_scan", "monoid_attention", "attention_causal", "ssd", "gated_linear_attention"];
    let models = oplus_front::model_programs().into_iter().filter(|program| names.contains(&program.name.as_str()));
    let models: Vec<Program> = models.map(|program| program.instantiate(Elem::Bf16)).collect();
    assert_eq!(models.len(), names.len());
    let backward: Vec<Program> = models.iter().map(|program| adjoint(program).expect("differentiable")).collect();
    check_all(&models, 64, &Target::H200);
    check_all(&backward, 64, &Target::H200);
}

/// Every schedule of a stage, asked for by itself.
#[test]
fn every_schedule_counts_its_tiles_or_says_that_it_cannot() {
    for text in [programs::CUMSUM, programs::AFFINE, programs::AFFINE_BACKWARD] {
        let program = program(text);
        let planner = Planner::new(&program, &Target::H200).expect("cuts");
        let stage = &cut(&program).expect("cuts").stages[0];
        let (mut fit, mut refused) = (0, 0);
        for (own, schedule) in variants(stage, Isa::Sm90a) {
            for sizes in sizes(program.axes.len(), 16).filter(|_| own == *stage) {
                match planner.launch(&repeated(&program, &sizes), 0, schedule) {
                    Ok(launch) => {
                        check_launch(&launch);
                        fit += 1;
                    }
                    Err(why) => {
                        assert!(matches!(why, PlanError::Misfit { .. } | PlanError::TooLarge { .. }), "{why}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(fit > 0 && refused > 0, "{fit} fit, {refused} do not");
    }
}

/// Each block of a persistent kernel draws a ticket behind the last tile: its number is to be counted, too.
#[test]
fn tickets_behind_the_last_tile_are_counted() {
    let program = program(programs::CUMSUM);
    let planner = Planner::new(&program, &Target::H200).expect("cuts");
    let stage = &cut(&program).expect("cuts").stages[0];
    let mut both = [0, 0];
    for (own, schedule) in variants(stage, Isa::Sm90a) {
        let Schedule::LookBack(s) = schedule else { continue };
        for tiles in [LIMIT - 1 - (1 << 13), LIMIT - 1 - 132, LIMIT - 132, LIMIT - 2, LIMIT - 1, LIMIT] {
            let call = repeated(&program, &[1, tiles * i64::from(s.tile())]);
            match planner.launch(&call, 0, schedule) {
                Ok(launch) if own == *stage => {
                    check_launch(&launch);
                    both[0] += 1;
                }
                Err(why) if why.to_string().contains("31 bits") => both[1] += 1,
                _ => {}
            }
        }
    }
    assert!(both.iter().all(|n| *n > 0), "{both:?}");
}

/// x[K, M]·y[M, N] as a sum over M: what is summed has more elements than both tensors.
const PRODUCT: &str = "program product {
    axes K, M, N;
    param x: f32[K, M];
    param y: f32[M, N];
    operator Sum(s: f32) {
        identity (0.0);
        %0: f32 = input l.s;
        %1: f32 = input r.s;
        %2: f32 = %0 + %1;
        combine (%2);
    }
    %0: f32[K, M] = param x;
    %1: f32[M, N] = param y;
    %2: f32[K, M, N] = %0 * %1;
    %3: tuple[K, N] = reduce(M, Sum, (%2));
    %4: f32[K, N] = %3.s;
    output z: f32[K, N] = %4;
}";

#[test]
fn what_a_stage_computes_is_counted_with_its_axes_in_words() {
    let planner = Planner::new(&program(PRODUCT), &Target::H200).expect("cuts");
    let error = |sizes: &[i64]| planner.plan(&repeated(planner.program(), sizes)).unwrap_err();
    let PlanError::TooLarge { shape, .. } = error(&[1 << 20, 1 << 30, 1 << 20]) else { panic!("it is counted") };
    assert_eq!(shape, "K=1048576, N=1048576, M=1073741824");
    assert!(matches!(error(&[1 << 40, 1, 1 << 40]), PlanError::TooLarge { name, .. } if name == "z"));
    assert!(matches!(error(&[1 << 31, 1, 1 << 31]), PlanError::Reach { tensor, .. } if tensor == "z"));
    check_plan(&planner.plan(&repeated(planner.program(), &[1 << 10, 1 << 31, 1 << 10])).expect("plans"));
    // No output is large; the bytes of the parameters are, if every element is counted.
    check(&planner, &[1, 1 << 62, 1]);
}

/// The findings of this module depend on it.
#[test]
fn overflow_is_checked_where_debug_assertions_are() {
    let sum = std::panic::catch_unwind(|| std::hint::black_box(i64::MAX) + std::hint::black_box(1));
    assert_eq!(sum.is_err(), cfg!(debug_assertions));
}
