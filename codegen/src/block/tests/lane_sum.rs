//! Sums over lanes.

use super::{X, Y, builder, index, numbers, run, thread};
use crate::block::lane_sum::{Lanes, Neighbours, Side, over_lanes, sum_beside};
use crate::build::Builder;
use crate::tile::{Expr, Operand};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

/// A warp whose lane l is at position (l / stride) mod count; y gets of each lane its steps, the first of them and whether it
/// keeps them.
fn sums(count: u32, stride: u32, length: u32) -> (Vec<f64>, usize) {
    let mut b = builder(32, Elem::F32);
    let lane = thread(&mut b);
    let far = b.binary(Binary::Div, lane, stride);
    let position = b.binary(Binary::Rem, far, count);
    let lanes = Lanes { count, stride, position, length };
    let steps: Vec<Operand> = (0..length)
        .map(|s| {
            let at = index(&mut b, lane, length as i32, s as i32);
            b.load1(X, at)
        })
        .collect();
    let mut results = lanes.sum(&mut b, &steps);
    let first = lanes.first_step(&mut b);
    let keeps = lanes.keeps(&mut b);
    let keeps = b.select(keeps, Operand::i32(1), Operand::i32(0));
    results.extend([first, keeps].map(|whole| b.let_(Ty::F32, Expr::Convert(Elem::F32, whole))));
    let width = results.len();
    for (k, value) in results.into_iter().enumerate() {
        let at = index(&mut b, lane, width as i32, k as i32);
        b.store(Y, at, &[value], None);
    }
    let x = numbers((32 * length) as usize);
    (run(&b.finish(), &x, 32 * width), width)
}

fn check(count: u32, stride: u32, length: u32) {
    let x = numbers((32 * length) as usize);
    let (y, width) = sums(count, stride, length);
    let steps = width - 2;
    let mut kept = vec![0; (32 / count * length) as usize];
    for lane in 0..32_u32 {
        let own = &y[lane as usize * width..][..width];
        let (first, keeps) = (own[steps] as usize, own[steps + 1] == 1.0);
        // The lanes of one sum differ in their position alone.
        let (column, group) = (lane % stride, lane / (stride * count));
        for (k, sum) in own[..steps].iter().enumerate() {
            let step = first + k;
            let members = (0..count).map(|position| group * stride * count + position * stride + column);
            let expected: f64 = members.map(|member| x[member as usize * length as usize + step]).sum();
            assert_eq!(*sum, expected, "count {count}, stride {stride}, length {length}, lane {lane}, step {step}");
            kept[(group * stride + column) as usize * length as usize + step] += u32::from(keeps);
        }
    }
    assert!(kept.iter().all(|n| *n == 1), "count {count}, stride {stride}, length {length}: {kept:?}");
}

#[test]
fn every_step_is_summed_and_kept_once() {
    for log_count in 0..=5 {
        let count = 1 << log_count;
        for stride in [1, 32 / count] {
            for length in [1, 2, 8, 32] {
                check(count, stride, length);
            }
        }
    }
}

/// The numbers that the lanes of a warp make of their own.
fn of_lanes(emit: impl Fn(&mut Builder, Operand, Operand) -> Operand) -> Vec<f64> {
    let mut b = builder(32, Elem::F32);
    let lane = thread(&mut b);
    let at = index(&mut b, lane, 1, 0);
    let own = b.load1(X, at);
    let result = emit(&mut b, lane, own);
    b.store(Y, at, &[result], None);
    run(&b.finish(), &numbers(32), 32)
}

#[test]
fn a_lane_has_the_sum_of_those_beside_it() {
    let x = numbers(32);
    for (side, count) in [Side::Before, Side::Behind].into_iter().flat_map(|side| [32, 8, 2].map(|n| (side, n))) {
        let y = of_lanes(|b, lane, own| {
            let lane = match count {
                32 => Neighbours::in_warp(lane),
                count => Neighbours { place: b.binary(Binary::Rem, lane, count), count },
            };
            sum_beside(b, lane, own, side)
        });
        for (lane, sum) in y.iter().enumerate() {
            let first = lane / count as usize * count as usize;
            let beside = if side == Side::Before { &x[first..lane] } else { &x[lane + 1..first + count as usize] };
            assert_eq!(*sum, beside.iter().sum::<f64>(), "{side:?} of {count}, lane {lane}");
        }
    }
}

#[test]
fn lanes_that_are_apart_are_combined() {
    let x = numbers(32);
    for apart in [&[][..], &[1, 2], &[4, 8, 16], &[16, 8, 4, 2, 1]] {
        let mask: usize = apart.iter().map(|by| *by as usize).sum();
        for (op, name) in [(Binary::Add, "sum"), (Binary::Max, "largest")] {
            let y = of_lanes(|b, _, own| over_lanes(b, op, own, apart));
            for (lane, all) in y.iter().enumerate() {
                let group = (0..32).filter(|other| other & !mask == lane & !mask).map(|other| x[other]);
                let expected = if op == Binary::Add { group.sum() } else { group.fold(f64::NEG_INFINITY, f64::max) };
                assert_eq!(*all, expected, "{name} over {apart:?}, lane {lane}");
            }
        }
    }
}
