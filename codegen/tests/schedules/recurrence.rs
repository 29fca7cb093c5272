//! Recurrences of matrices, state by state.

use oplus_codegen::plan::Planner;
use oplus_codegen::schedules::{Access, ChunkDelta, Recurrence, Schedule, Strategy};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::{CutKind, Stage};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, Binary, MatrixScan, Program, Term, Unary};
use oplus_dsl::verify::verify;

use crate::device::Placement;
use crate::oracle::Case;

/// The parts of a recurrence beside its diagonal, and how it runs.
#[derive(Clone, Copy, Debug)]
struct Form {
    elem: Elem,
    pairs: usize,
    dense: bool,
    transposed: bool,
    reverse: bool,
    exclusive: bool,
    resets: bool,
    /// o = Σ over K of S·q beside all states.
    read: bool,
    /// All states as an output.
    all: bool,
}

const PLAIN: Form = Form {
    elem: Elem::F32,
    pairs: 1,
    dense: false,
    transposed: false,
    reverse: false,
    exclusive: false,
    resets: false,
    read: true,
    all: false,
};

/// S\[t\] = S\[t−1\]·M\[t\] + y⊗v with all parts as parameters, scaled such that states stay small; the last state is an output.
fn program(form: Form) -> Program {
    let mut b = Builder::new("matrices");
    let [h, t, v, k, j] = ["H", "T", "V", "K", "J"].map(|name| b.axis(name).unwrap());
    let small = |b: &mut Builder, name: &str, axes: &[Axis], by: f64| {
        let value = b.param(name, axes, form.elem, None).unwrap();
        let wide = b.convert(form.elem.value().elem().unwrap(), value).unwrap();
        let by = b.float(form.elem.value(), by).unwrap();
        b.binary(Binary::Mul, wide, by).unwrap()
    };
    let decay = small(&mut b, "w", &[h, t, k], 0.5);
    let mut terms = vec![];
    for p in 0..form.pairs {
        let column = small(&mut b, &format!("z{p}"), &[h, t, k], 0.3);
        let row = small(&mut b, &format!("b{p}"), &[t, k], 0.3);
        terms.push(Term::Pair { column, row });
    }
    if form.dense {
        let matrix = small(&mut b, "d", &[h, t, j, k], 0.1);
        terms.push(Term::Dense { matrix, other: j, transposed: form.transposed });
    }
    let (y, x) = (small(&mut b, "y", &[h, t, k], 1.0), small(&mut b, "v", &[h, t, v], 1.0));
    let x = b.unary(Unary::Tanh, x).unwrap();
    let input = b.binary(Binary::Mul, x, y).unwrap();
    let init = small(&mut b, "s0", &[h, v, k], 1.0);
    let reset = form.resets.then(|| b.param("r", &[t], Elem::Bool, None).unwrap());
    let Form { reverse, exclusive, .. } = form;
    let scan = MatrixScan { axis: t, along: k, decay, terms, input, init, reset, reverse, exclusive };
    let states = b.matrix_scan(scan.clone()).unwrap();
    if form.read {
        let q = small(&mut b, "q", &[h, t, k], 1.0);
        let product = b.binary(Binary::Mul, states, q).unwrap();
        let read = b.sum(k, product).unwrap();
        let gated = b.binary(Binary::Mul, read, x).unwrap();
        b.output("o", &[h, t, v], form.elem, gated).unwrap();
    }
    if form.all {
        let twice = b.binary(Binary::Add, states, states).unwrap();
        b.output("s", &[h, t, v, k], form.elem, twice).unwrap();
    }
    let after = b.matrix_scan(MatrixScan { exclusive: false, ..scan }).unwrap();
    let last = if reverse { b.first(t, after, init) } else { b.last(t, after, init) }.unwrap();
    b.output("s_last", &[h, v, k], form.elem.value().elem().unwrap(), last).unwrap();
    let program = b.finish();
    assert_eq!(verify(&program), Ok(()));
    program
}

fn forms() -> Vec<Form> {
    let mut forms = vec![PLAIN, Form { elem: Elem::F64, ..PLAIN }, Form { elem: Elem::Bf16, ..PLAIN }];
    forms.extend([0, 2].map(|pairs| Form { pairs, all: true, ..PLAIN }));
    forms.push(Form { reverse: true, resets: true, ..PLAIN });
    forms.push(Form { exclusive: true, all: true, ..PLAIN });
    forms.push(Form { exclusive: true, reverse: true, elem: Elem::F16, ..PLAIN });
    forms.push(Form { dense: true, pairs: 0, ..PLAIN });
    forms.push(Form { dense: true, transposed: true, reverse: true, ..PLAIN });
    forms.push(Form { read: false, resets: true, ..PLAIN });
    forms
}

fn sizes(program: &Program, [h, t, v, k]: [usize; 4]) -> Vec<usize> {
    let size = |axis: &String| match axis.as_str() {
        "H" => h,
        "T" => t,
        "V" => v,
        _ => k,
    };
    program.axes.iter().map(size).collect()
}

/// The fastest plan of every form gives what the program means.
fn check(program: &Program, lengths: [usize; 4]) {
    let sizes = sizes(program, lengths);
    let placements = [Placement::Contiguous, Placement::Strided, Placement::Misaligned];
    for (k, placement) in placements.into_iter().enumerate() {
        let case = Case { program, sizes: &sizes, placement, order: Order::Random(k as u64) };
        case.check_plan(&Target::A100);
    }
}

#[test]
fn forms_of_steps_give_what_they_mean() {
    for form in forms() {
        let program = program(form);
        for lengths in [[2, 7, 3, 5], [1, 0, 2, 3], [1, 1, 1, 1], [2, 3, 5, 17]] {
            check(&program, lengths);
        }
    }
}

#[test]
fn gradients_of_all_forms_have_kernels() {
    for form in forms().into_iter().filter(|form| form.elem == Elem::F32) {
        let gradient = adjoint(&program(form)).expect("differentiable");
        for lengths in [[2, 5, 3, 4], [1, 0, 2, 3], [1, 1, 1, 2]] {
            check(&gradient, lengths);
        }
    }
}

#[test]
fn rows_of_any_length_up_to_two_thousand_have_room() {
    let program = program(Form { all: true, ..PLAIN });
    for k in [0, 2, 16, 31, 64, 100, 128, 129, 300, 513, 1025, 2048] {
        let sizes = sizes(&program, [1, 2, 2, k]);
        let case = Case { program: &program, sizes: &sizes, placement: Placement::Contiguous, order: Order::Ascending };
        case.check_plan(&Target::H200);
    }
    let stage = stage(&program);
    let longest = Schedule::candidates(&stage, Target::H200.isa, Access::Singles);
    assert!(matches!(longest.last(), Some(Schedule::Recurrence(Recurrence { lanes: 32, states: 64, .. }))));
    let call = crate::device::call(&program, &self::sizes(&program, [1, 2, 2, 2049]), Placement::Contiguous);
    let error = Planner::new(&program, &Target::H200).expect("cuts").plan(&call).expect_err("no room").to_string();
    assert!(error.contains("K has size 2049, more than 2048"), "{error}");
}

fn stage(program: &Program) -> Stage {
    let planner = Planner::new(program, &Target::H200).expect("cuts");
    let stages = &planner.cut(CutKind::Plain).expect("a cut").stages;
    stages.iter().find(|stage| stage.recurrence().is_some()).expect("a recurrence").clone()
}

#[test]
fn sums_over_rows_are_kept_with_their_states() {
    for model in oplus_front::model_programs().into_iter().filter(Program::has_matrix_scans) {
        let program = model.instantiate(Elem::Bf16);
        let planner = Planner::new(&program, &Target::H200).expect("cuts");
        let cut = planner.cut(CutKind::Plain).expect("a cut");
        let has_states = |axes: &[Axis]| ["T", "V", "K"].iter().all(|name| axes.contains(&program.axis(name).unwrap()));
        let stored: Vec<&str> = cut.buffers.iter().filter(|b| has_states(&b.axes)).map(|b| b.name.as_str()).collect();
        let packed = program.axis("S.ends").is_some();
        assert!(packed || stored.is_empty(), "{}: {stored:?}", program.name);
        assert!(packed || cut.stages.len() <= 2, "{}: {}", program.name, cut.stages.len());
    }
}

#[test]
fn schedules_print_and_parse_and_refuse_other_stages() {
    let stage = stage(&program(PLAIN));
    for schedule in Schedule::candidates(&stage, Target::H200.isa, Access::Singles) {
        assert_eq!(schedule.to_string().parse(), Ok(schedule));
    }
    let map = "program p { axes N; param x: f32[N]; %0: f32[N] = param x; output y: f32[N] = %0; }";
    let planner = Planner::new(&crate::oracle::program(map), &Target::H200).expect("cuts");
    let map = &planner.cut(CutKind::Plain).expect("a cut").stages[0];
    let refusal = Recurrence::takes(map.kind()).expect_err("no recurrence");
    assert_eq!(refusal.to_string(), "no state is multiplied by a matrix");
    assert_eq!(Schedule::refusals(map), [], "maps lack nothing that other schedules are for");
    let odd = Recurrence { lanes: 3, warps: 4, states: 8, ahead: 2, vector: 1, padded: true, ordered: false };
    let error = odd.lower(&stage, Target::H200.isa, "odd").expect_err("three lanes");
    assert!(error.to_string().ends_with("has numbers that no kernel can have"), "{error}");
}

#[test]
fn only_recurrences_of_matrices_are_told_what_these_schedules_want() {
    for program in oplus_front::standard_programs().into_iter().chain(oplus_front::model_programs()) {
        if program.has_matrix_scans() {
            continue;
        }
        let program = program.instantiate(Elem::F32);
        let planner = Planner::new(&program, &Target::H200).expect("cuts");
        for stage in &planner.cut(CutKind::Plain).expect("a cut").stages {
            let refused = Schedule::refusals(stage);
            let of_matrices = |name: &str| name == Recurrence::NAME || name == ChunkDelta::NAME;
            assert!(refused.iter().all(|(name, _)| !of_matrices(name)), "{}: {refused:?}", program.name);
        }
    }
}
