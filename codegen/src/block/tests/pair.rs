//! Values at the pairs of a row and a column that a thread holds, and stores of them.

use crate::abi::{Extras, Role, Slot, Tensor, abi};
use crate::block::args::Args;
use crate::block::output::{StoredOutput, store_one, store_two};
use crate::block::pair::{Coordinates, Index, Values};
use crate::build::Builder;
use crate::simulate::{Arg, Buffer, Launch, Memory, Options, simulate};
use crate::stage::{Stage, cut};
use crate::tile::{Kernel, Memory as Place, Special};
use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet, Literal};
use oplus_dsl::parse::parse;

const M: Axis = Axis(0);
const N: Axis = Axis(1);
/// Rows and columns of the 32 threads, of which each has two of both, and of y in memory.
const ROWS: usize = 16;
const COLUMNS: usize = 8;

/// y[m, n] of x[m] and w[n].
fn stage(nodes: &str, result: u32) -> Stage {
    let text = format!(
        "program p {{ axes M, N; param x: f32[M]; param w: f32[N]; %0: f32[M] = param x; %1: f32[N] = param w; {nodes} \
         output y: f32[M, N] = %{result}; }}"
    );
    let program = parse(&text).unwrap_or_else(|e| panic!("{e}"));
    cut(&program).expect("cuts").stages.remove(0)
}

fn slots(stage: &Stage) -> Vec<Slot> {
    abi(stage, &Extras::default())
}

/// A kernel whose threads evaluate and store their four pairs.
fn kernel(stage: &Stage, store: impl Fn(&mut Builder, &mut Values, &Args)) -> Kernel {
    let mut b = Builder::new("k", 32);
    let args = Args::declare(&mut b, stage, slots(stage));
    let lane = b.special(Special::Thread);
    let [group, member] = b.div_rem(lane, 4);
    let mut values = Values::new(stage, &args, [M, N], vec![]);
    for number in 0..2 {
        let [row, column] = [group, member].map(|first| {
            let first = b.mul(first, 2);
            b.add(first, number)
        });
        let (row, column) = (Index::along(&mut b, &args, row, M), Index::along(&mut b, &args, column, N));
        values.set_row(number as u32, row);
        values.set_column(number as u32, column);
    }
    store(&mut b, &mut values, &args);
    b.finish()
}

fn at(row: u32, column: u32) -> Coordinates {
    Coordinates { row: Some(row), column: Some(column), inner: None }
}

fn inputs() -> (Vec<f64>, Vec<f64>) {
    let x = (0..ROWS).map(|i| i as f64 * 0.25 - 1.5).collect();
    (x, (0..COLUMNS).map(|i| 0.5 - i as f64 * 0.125).collect())
}

/// The elements of y after a kernel with so many rows and columns; NaN where it writes nothing.
fn run(stage: &Stage, kernel: &Kernel, sizes: [usize; 2]) -> Vec<f64> {
    run_on(stage, kernel, sizes, inputs())
}

/// The elements of y after a kernel on x and w.
fn run_on(stage: &Stage, kernel: &Kernel, [rows, columns]: [usize; 2], (x, w): (Vec<f64>, Vec<f64>)) -> Vec<f64> {
    let mut memory = Memory::new();
    let given = [x, w].map(|own| memory.add(Buffer::floats(Elem::F32, own)));
    let y = memory.add(Buffer::unwritten(Elem::F32, ROWS * COLUMNS));
    let size = |axis: Axis| [rows, columns][axis.0 as usize] as i64;
    let stride = |tensor: Tensor, axis: Axis| match (tensor, axis) {
        (Tensor::Output(_), M) => COLUMNS as i64,
        _ => 1,
    };
    let arg = |slot: Slot| match slot.role {
        Role::Size(axis) => Arg::Scalar(Literal::Int(size(axis))),
        Role::Stride(tensor, axis) => Arg::Scalar(Literal::Int(stride(tensor, axis))),
        Role::Pointer(Tensor::Param(k)) => given[k as usize].into(),
        _ => y.into(),
    };
    let launch = Launch { grid: [1, 1], args: slots(stage).into_iter().map(arg).collect() };
    simulate(kernel, &launch, &mut memory, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    memory.buffer(y).to_floats()
}

/// Compares with a function of x and w where y has rows and columns.
fn check(found: &[f64], [rows, columns]: [usize; 2], of: impl Fn(f64, f64) -> f64, error: f64) {
    let (x, w) = inputs();
    for (i, y) in found.iter().enumerate() {
        let (row, column) = (i / COLUMNS, i % COLUMNS);
        if row < rows && column < columns {
            let wanted = of(x[row], w[column]);
            assert!(
                (y - wanted).abs() <= error * wanted.abs(),
                "[{row}, {column}] of {rows} × {columns}: {y}, {wanted}"
            );
        } else {
            assert!(y.is_nan(), "[{row}, {column}] of {rows} × {columns} is written");
        }
    }
}

/// Divisors of all sizes: their reciprocals may be denormal, infinite or zero.
#[test]
fn quotients_by_what_a_row_shares() {
    let stage = stage("%2: f32[M, N] = %1 / %0;", 2);
    let kernel = kernel(&stage, |b, values, args| {
        values.reciprocal = true;
        for (row, inner) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let column = values.column(inner);
            values.forget_inner();
            values.set_inner(inner, N, column);
            let at = Coordinates { row: Some(row), column: None, inner: Some(inner) };
            let quotient = values.value(b, stage.program.outputs[0].value, at);
            let (indices, exists) = values.indices(b, at);
            let offset = args.offset(b, Tensor::Output(0), &indices);
            b.store(Place::Global(args.pointer(Tensor::Output(0))), offset, &[quotient], Some(exists));
        }
    });
    let two = |power: i32| f64::from(power).exp2();
    let x = vec![
        1.0,
        -3.0,
        0.0,
        -0.0,
        1.1 * two(-64),
        two(-65),
        -1.7 * two(-126),
        two(-149),
        1.3 * two(64),
        -1.9 * two(65),
        1.5 * two(126),
        1.9 * two(127),
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        7.0,
    ];
    let w = vec![1.0, -1.5 * two(100), two(-60), 1.7 * two(127), 0.0, f64::INFINITY, f64::NAN, -two(-100)];
    let found = run_on(&stage, &kernel, [ROWS, COLUMNS], (x.clone(), w.clone()));
    for (i, found) in found.into_iter().enumerate() {
        let (x, w) = (x[i / COLUMNS] as f32, w[i % COLUMNS] as f32);
        let wanted = f64::from(w / x);
        // What is denormal may be lost.
        let close = (found - wanted).abs() <= wanted.abs() * two(-22) + two(-126);
        assert!(found == wanted || close || found.is_nan() && wanted.is_nan(), "{w} / {x}: {found}, {wanted}");
    }
}

const DIFFERENCE: (&str, u32) = ("%2: f32[M, N] = %0 - %1; %3: f32[M, N] = %2 * %0;", 3);

#[test]
fn pairs_are_stored_one_by_one_where_the_tensor_has_them() {
    let stage = stage(DIFFERENCE.0, DIFFERENCE.1);
    let kernel = kernel(&stage, |b, values, args| {
        let pairs = [(0, 0), (0, 1), (1, 0), (1, 1)];
        pairs.iter().for_each(|(row, column)| store_one(b, values, &stage, args, 0, at(*row, *column)));
    });
    for size in [[16, 8], [5, 7], [1, 1], [3, 2]] {
        check(&run(&stage, &kernel, size), size, |x, w| (x - w) * x, 0.0);
    }
}

#[test]
fn neighbours_are_stored_in_one_access_or_two() {
    let stage = stage(DIFFERENCE.0, DIFFERENCE.1);
    for (vector, sizes) in [(2, [[16, 8], [5, 6], [1, 2]]), (1, [[16, 8], [5, 7], [3, 1]])] {
        let kernel = kernel(&stage, |b, values, args| {
            let stored = StoredOutput { stage: &stage, args, output: 0, unit: N, other: AxisSet::EMPTY, vector };
            (0..2).for_each(|row| store_two(b, values, &stored, [at(row, 0), at(row, 1)]));
        });
        let stores = kernel.to_string().matches("store y").count() as u32;
        assert_eq!(stores, 4 / vector, "{kernel}");
        for size in sizes {
            check(&run(&stage, &kernel, size), size, |x, w| (x - w) * x, 0.0);
        }
    }
}

#[test]
fn what_a_row_or_a_column_shares_is_read_and_computed_once() {
    let stage = stage("%2: f32[M] = sqrt(%0); %3: f32[N] = %1 * %1; %4: f32[M, N] = %2 * %3;", 4);
    let kernel = kernel(&stage, |b, values, _| {
        let output = stage.program.outputs[0].value;
        for (row, column) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            values.value(b, output, at(row, column));
        }
    });
    let text = kernel.to_string();
    assert_eq!([text.matches("sqrt").count(), text.matches("load ").count()], [2, 4], "{text}");
}

#[test]
fn fast_exponentials_are_powers_of_two_of_scaled_differences() {
    let stage = stage("%2: f32[M, N] = %0 - %1; %3: f32[M, N] = exp(%2);", 3);
    let kernel = kernel(&stage, |b, values, args| {
        values.fast = true;
        let pairs = [(0, 0), (0, 1), (1, 0), (1, 1)];
        pairs.iter().for_each(|(row, column)| store_one(b, values, &stage, args, 0, at(*row, *column)));
    });
    assert!(kernel.to_string().contains("exp2"), "{kernel}");
    check(&run(&stage, &kernel, [16, 8]), [16, 8], |x, w| (x - w).exp(), (-20.0_f64).exp2());
}
