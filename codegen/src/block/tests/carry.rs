//! Scans, reductions and states of an operator whose operands do not commute.

use super::{X, Y, builder, index, numbers, run, thread};
use crate::block::carry::{Fields, Monoid, WarpAxis, assign};
use crate::build::Builder;
use crate::tile::{Operand, Special};
use oplus_dsl::ir::{Binary, Operator};
use oplus_dsl::testing::operators;
use oplus_dsl::{Elem, Ty};

/// Elements (a, b) of small whole numbers: a is −1, 1 or 2, so that products of 32 stay exact in `f64`.
fn elements(count: usize) -> Vec<[f64; 2]> {
    numbers(2 * count).chunks(2).map(|pair| [[1.0, -1.0, 2.0][pair[0].abs() as usize % 3], pair[1]]).collect()
}

fn combine([la, lb]: [f64; 2], [ra, rb]: [f64; 2]) -> [f64; 2] {
    [la * ra, ra * lb + rb]
}

fn affine() -> Operator {
    operators::affine(Ty::F64)
}

/// The lane's element.
fn load(b: &mut Builder, lane: Operand) -> Fields {
    (0..2)
        .map(|field| {
            let at = index(b, lane, 2, field);
            b.load1(X, at)
        })
        .collect()
}

fn store(b: &mut Builder, lane: Operand, fields: &[Operand]) {
    for (field, value) in fields.iter().enumerate() {
        let at = index(b, lane, 2, field as i32);
        b.store(Y, at, &[*value], None);
    }
}

type Made = fn(&Monoid<'_>, &mut Builder, Fields, &WarpAxis) -> Fields;

/// The value that every lane of a warp has after a collective.
fn collective(count: u32, stride: u32, reverse: bool, made: Made) -> Vec<[f64; 2]> {
    let operator = affine();
    let monoid = Monoid::new(&operator, &[true, true]);
    let mut b = builder(32, Elem::F64);
    let lane = thread(&mut b);
    let far = b.binary(Binary::Div, lane, stride);
    let position = b.binary(Binary::Rem, far, count);
    let lanes = WarpAxis { position, count, stride, reverse };
    let element = load(&mut b, lane);
    let fields = made(&monoid, &mut b, element, &lanes);
    store(&mut b, lane, &fields);
    let y = run(&b.finish(), &elements(32).concat(), 64);
    y.chunks(2).map(|pair| [pair[0], pair[1]]).collect()
}

/// The elements of a lane's group in the order in which they are visited, and the lane's place among them.
fn group(lane: u32, count: u32, stride: u32, reverse: bool) -> (Vec<[f64; 2]>, usize) {
    let all = elements(32);
    let (column, group, own) = (lane % stride, lane / (stride * count), lane / stride % count);
    let of = |position: u32| all[(group * stride * count + position * stride + column) as usize];
    let mut visited: Vec<[f64; 2]> = (0..count).map(of).collect();
    if reverse {
        visited.reverse();
    }
    (visited, (if reverse { count - 1 - own } else { own }) as usize)
}

const IDENTITY: [f64; 2] = [1.0, 0.0];

/// Compares a collective with a fold over part of a lane's group.
fn check(made: Made, part: fn(usize, usize) -> usize) {
    for log_count in 0..=5 {
        let count = 1 << log_count;
        for (stride, reverse) in [(1, false), (1, true), (32 / count, false), (32 / count, true)] {
            let found = collective(count, stride, reverse, made);
            for lane in 0..32 {
                let (visited, own) = group(lane, count, stride, reverse);
                let expected = visited[..part(own, visited.len())].iter().fold(IDENTITY, |sum, e| combine(sum, *e));
                let of = format!("count {count}, stride {stride}, reverse {reverse}, lane {lane}");
                assert_eq!(found[lane as usize], expected, "{of}");
            }
        }
    }
}

#[test]
fn a_scan_over_lanes_is_a_fold_up_to_each() {
    check(|monoid, b, x, lanes| monoid.warp_scan(b, x, lanes), |own, _| own + 1);
}

#[test]
fn a_reduction_over_lanes_is_a_fold_over_all() {
    check(|monoid, b, x, lanes| monoid.warp_reduce(b, x, lanes), |_, all| all);
}

#[test]
fn a_shifted_scan_is_a_fold_over_those_before() {
    let shifted: Made = |monoid, b, x, lanes| {
        let inclusive = monoid.warp_scan(b, x, lanes);
        monoid.warp_shift(b, &inclusive, lanes)
    };
    check(shifted, |own, _| own);
}

#[test]
fn a_state_has_the_fields_that_are_read() {
    let operator = affine();
    let monoid = Monoid::new(&operator, &[false, true]);
    assert_eq!((monoid.live.as_slice(), monoid.state_types().len(), monoid.slot(1)), (&[false, true][..], 1, 0));
    // b of a combination depends on no earlier a, but a product is read where a is.
    assert_eq!(Monoid::new(&operator, &[true, false]).live, [true, false]);
    let mut b = builder(32, Elem::F64);
    let lane = thread(&mut b);
    let element = load(&mut b, lane);
    let mut state = monoid.identity_state();
    for _ in 0..3 {
        state = monoid.apply(&mut b, &state, &element);
    }
    let at = index(&mut b, lane, 1, 0);
    b.store(Y, at, &state, None);
    let y = run(&b.finish(), &elements(32).concat(), 32);
    let expected: Vec<f64> = elements(32).into_iter().map(|[a, x]| a * (a * x + x) + x).collect();
    assert_eq!(y, expected);
}

#[test]
fn a_fold_goes_from_left_to_right() {
    let operator = affine();
    let monoid = Monoid::new(&operator, &[true, true]);
    let mut b = builder(32, Elem::F64);
    let lane = b.special(Special::Lane);
    let all: Vec<Fields> = (0..4).map(|k| load(&mut b, Operand::i32(k))).collect();
    let sum = monoid.fold(&mut b, &all);
    let none = monoid.fold(&mut b, &[]);
    let first = b.eq(lane, 0);
    b.if_(first, |b| {
        store(b, Operand::i32(0), &sum);
        store(b, Operand::i32(1), &none);
    });
    let x = elements(4);
    let y = run(&b.finish(), &x.concat(), 4);
    let expected = x.iter().fold(IDENTITY, |sum, e| combine(sum, *e));
    assert_eq!(y, [expected, IDENTITY].concat());
}

#[test]
fn registers_can_be_exchanged() {
    let mut b = builder(32, Elem::F64);
    let lane = thread(&mut b);
    let regs: Vec<_> = load(&mut b, lane).into_iter().map(|value| b.var(value)).collect();
    assign(&mut b, &regs, &[regs[1].into(), regs[0].into()]);
    store(&mut b, lane, &[regs[0].into(), regs[1].into()]);
    let x = elements(32);
    let expected: Vec<f64> = x.iter().flat_map(|[a, b]| [*b, *a]).collect();
    assert_eq!(run(&b.finish(), &x.concat(), 64), expected);
}
