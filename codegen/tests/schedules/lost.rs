//! Products of decays that overflow where all states are finite: the whole equals its chunks and its single steps.

use oplus_codegen::schedules::{Columns, Fold, Form, Loader, LookBack, Rows, Schedule};
use oplus_codegen::simulate::Order;
use oplus_codegen::target::Isa;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Program};

use crate::device::{Placement, Setting, Work, run};
use crate::oracle::{Case, program};

/// h[t] = a[t]·h[t−1] + b[t], the states before, and the last one; with another axis before the time or behind it.
fn forward(axes: &str) -> Program {
    let text = "program forward { axes B, L; param a: f32[AXES]; param b: f32[AXES]; param h0: f32[B];
    operator Affine(a: f32, b: f32) { identity (1.0, 0.0);
        %0: f32 = input l.a; %1: f32 = input l.b; %2: f32 = input r.a; %3: f32 = input r.b;
        %4: f32 = %0 * %2; %5: f32 = %2 * %1; %6: f32 = %5 + %3; combine (%4, %6); }
    %0: f32[AXES] = param a; %1: f32[AXES] = param b; %2: f32[B] = param h0; %3: f32 = const 1.0;
    %4: tuple[AXES] = scan(L, Affine, (%0, %1), init (%3, %2)); %5: f32[AXES] = %4.b; %6: f32[B] = last(L, %5, %2);
    output h: f32[AXES] = %5; output last: f32[B] = %6; }";
    program(&text.replace("AXES", axes))
}

/// The gradient of it: g[t] = a[t+1]·g[t+1] + c[t], from the end.
fn backward(axes: &str) -> Program {
    let text = "program backward { axes B, L; param a: f32[AXES]; param h: f32[AXES]; param c: f32[AXES];
    param end: f32[B];
    operator Affine(a: f32, b: f32) { identity (1.0, 0.0);
        %0: f32 = input l.a; %1: f32 = input l.b; %2: f32 = input r.a; %3: f32 = input r.b;
        %4: f32 = %0 * %2; %5: f32 = %2 * %1; %6: f32 = %5 + %3; combine (%4, %6); }
    %0: f32[AXES] = param a; %1: f32[AXES] = param h; %2: f32[AXES] = param c; %3: f32[B] = param end;
    %4: f32 = const 1.0; %5: f32[AXES] = shift(L, -1, %0, %4);
    %6: tuple[AXES] = scan(L, Affine, (%5, %2), init (%4, %3), reverse); %7: f32[AXES] = %6.b;
    %8: f32 = const 1.0; %9: f32[AXES] = shift(L, 1, %1, %8); %10: f32[AXES] = %7 * %9;
    %11: f32[B] = first(L, %7, %3);
    output a_bar: f32[AXES] = %10; output b_bar: f32[AXES] = %7; output start: f32[B] = %11; }";
    program(&text.replace("AXES", axes))
}

/// The element of a tensor at an index of the other axis and of time.
type Value = fn(decay: f32, row: usize, time: usize) -> f32;

/// Decays, inputs and the state before. The states of the first row and of the last are 0, that of the second grows from 1e-30 on,
/// the third row forgets a 1 at some times, and the fourth has a 1 at the last time.
const INPUTS: [(&str, Value); 6] = [
    ("a", |decay, row, t| if row == 2 && t % 97 == 5 { 0.0 } else { decay }),
    ("b", |_, row, t| f32::from(row == 2 && t % 97 == 4)),
    ("c", |_, row, t| f32::from(row == 2 && t % 97 == 5 || row == 3 && t == 0)),
    ("h", |_, _, t| (t % 3 + 1) as f32),
    ("h0", |_, row, _| if row == 1 { 1e-30 } else { 0.0 }),
    ("end", |_, row, _| if row == 1 { 1e-30 } else { 0.0 }),
];

/// The times from one on of what a program is given.
fn given(program: &Program, decay: f32, rows: usize, (from, times): (usize, usize)) -> Vec<Array> {
    let array = |param: &oplus_dsl::ir::Param| {
        let (_, value) = INPUTS.iter().find(|(name, _)| *name == param.name).expect("a known name");
        let sizes: Vec<usize> = param.axes.iter().map(|a| [rows, times][a.0 as usize]).collect();
        let place = |i: usize| match &param.axes[..] {
            [Axis(0), Axis(1)] => (i / times, i % times),
            [Axis(1), Axis(0)] => (i % rows, i / rows),
            _ => (i, 0),
        };
        let at = |i: usize| value(decay, place(i).0, from + place(i).1);
        let values = (0..sizes.iter().product()).map(|i| f64::from(at(i)));
        Array { data: Data::Float(values.collect()), sizes }
    };
    program.params.iter().map(array).collect()
}

/// Asserts that a schedule gives what single steps give, for a decay and a number of times.
fn check(program: &Program, schedule: Schedule, decay: f32, times: usize) {
    let rows = 8;
    let sizes = [rows, times];
    let placement = Placement::Padded;
    let order = Order::Random(u64::from(decay.to_bits()) ^ times as u64);
    let case = Case { program, sizes: &sizes, placement, order };
    let given = given(program, decay, rows, (0, times));
    let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(sizes).collect();
    let optional: Vec<Option<Array>> = given.iter().cloned().map(Some).collect();
    let wanted = interpret_sized(program, &optional, &named, Mode::default()).expect("runs");
    let work = Work { message_words: 1 << 16, ..case.work(schedule) };
    let found = run(program, &work, &given, &sizes, Setting { placement, order, isa: Isa::Sm90a });
    for ((wanted, found), output) in wanted.iter().zip(&found).zip(&program.outputs) {
        for i in 0..wanted.data.len() {
            let (a, b) = (wanted.data.get(i).as_f64(), found.data.get(i).as_f64());
            let equal = (a - b).abs() <= 1e-4 * a.abs() || a.abs() > 3.4e38 && !b.is_finite();
            assert!(equal, "`{}` at {i} of {sizes:?} is {b}, not {a}; decay {decay}, {schedule}", output.name);
        }
    }
}

/// The decays, and lengths over which their product overflows.
const DECAYS: [(f32, &[usize]); 3] = [
    (1.5, &[127, 128, 129, 255, 256, 257, 300, 513, 1021]),
    (1e30, &[2, 3, 31, 32, 33, 63, 64, 65, 127, 129, 257, 300]),
    (1.0625, &[2500, 4097]),
];

fn check_all(programs: &[Program], schedules: &[Schedule]) {
    for program in programs {
        for schedule in schedules {
            for (decay, lengths) in DECAYS {
                lengths.iter().for_each(|times| check(program, *schedule, decay, *times));
            }
        }
    }
}

#[test]
fn look_back() {
    let schedule = |loader, vector, vectors, fold| {
        let window = 2;
        Schedule::LookBack(LookBack {
            scan_warps: 2,
            reduce_warps: 1,
            vector,
            vectors,
            stages: 3,
            window,
            fold,
            loader,
        })
    };
    let schedules = [
        schedule(Loader::Registers, 1, 1, Fold::Blocks),
        schedule(Loader::Bulk, 4, 1, Fold::Blocks),
        schedule(Loader::Bulk, 4, 2, Fold::Strict),
        schedule(Loader::Registers, 2, 4, Fold::Blocks),
    ];
    check_all(&[forward("B, L"), backward("B, L")], &schedules);
}

#[test]
fn rows() {
    let shapes = [
        (2, 2, 32, 1, 4, 1),
        (1, 1, 32, 1, 4, 2),
        (2, 1, 32, 3, 2, 1),
        (4, 2, 32, 2, 4, 1),
        (1, 1, 8, 2, 4, 2),
        (2, 1, 1, 1, 4, 3),
        (3, 3, 32, 1, 1, 3),
    ];
    let schedules = shapes.map(|(warps, row_warps, lanes, rows, vector, vectors)| {
        Schedule::Rows(Rows { warps, row_warps, lanes, rows, vector, vectors })
    });
    check_all(&[forward("B, L"), backward("B, L")], &schedules);
}

#[test]
fn columns() {
    let ring = Columns {
        lane: 1,
        form: Form::Ring,
        warps: 2,
        reduce_warps: 1,
        lanes: 8,
        vector: 4,
        steps: 3,
        stages: 3,
        group: 3,
        window: 2,
        points: 1,
    };
    let walk = Columns { form: Form::Walk, reduce_warps: 0, lanes: 32, stages: 0, group: 0, window: 0, ..ring };
    let forms = [walk, ring, Columns { group: 1, ..ring }, Columns { lanes: 2, vector: 1, window: 3, ..ring }];
    check_all(&[forward("L, B"), backward("L, B")], &forms.map(Schedule::Columns));
}
