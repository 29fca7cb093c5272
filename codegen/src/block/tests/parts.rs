//! Factors that are made of elements in shared memory: of `f32` in two parts, and of `f16` in `bf16`.

use super::matmul::{WIDTH, expected, kernel, lanes};
use super::{Y, numbers, run, thread};
use crate::block::layout::{Tile, TileStage, left_rows, right_rows};
use crate::block::matmul::{COLUMNS, Factor, ROWS, zeros};
use crate::block::parts::{Parts, multiply_in_time};
use crate::block::prepare::prepare;
use crate::block::split_tile::{block_of, load_one};
use crate::build::Builder;
use crate::tile::{Kernel, Mbarrier, Operand, ParamId, ParamKind, SharedKind, Stmt};
use oplus_dsl::ir::Literal;
use oplus_dsl::{Elem, Ty};

const NONE: Operand = Operand::i32(0);

/// Numbers of 16 bits or fewer: high and low part of each hold it exactly.
pub(super) fn long_numbers(count: usize) -> Vec<f64> {
    numbers(count).into_iter().enumerate().map(|(i, x)| x * 257.0 + (i % 7) as f64).collect()
}

/// Makes factors of all rows of a tile.
fn prepare_all(b: &mut Builder, tile: &Tile, lane: Operand) {
    for first in (0..tile.rows).step_by(ROWS as usize) {
        prepare(b, &[TileStage::only(tile)], lane, Operand::i32(first as i32));
    }
    b.push(Stmt::SyncWarp);
}

/// Compares with a relative error of the largest number.
pub(super) fn assert_near(found: &[f64], wanted: &[f64], error: f64, what: &str) {
    let most = wanted.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    assert!(most > 0.0 && found.len() == wanted.len(), "{what}");
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() <= error * most, "{what}: {found}, not {wanted}");
    }
}

#[test]
fn products_of_two_parts_over_the_depth_are_nearly_exact() {
    for depth in [16, 32, 48, 64, 128] {
        let kernel = kernel(Elem::F32, [WIDTH, depth], depth, |b, sums, lane, (left, right)| {
            [left, right].into_iter().for_each(|tile| prepare_all(b, tile, lane));
            let (rows, columns) = (left_rows(b, lane), right_rows(b, lane));
            let (of_left, of_right) = (lanes(b, left, rows), lanes(b, right, columns));
            let left = Factor::of(b, left, &of_left, NONE);
            let right = Factor::of(b, right, &of_right, NONE);
            for sixteen in 0..depth / ROWS {
                let rows = left.parts(b, 0, sixteen, false);
                for (pair, sums) in (0..).zip(sums.chunks_exact_mut(2)) {
                    let columns = right.parts(b, pair * ROWS, sixteen, false);
                    rows.multiply(b, Elem::F32, sums, columns);
                }
            }
        });
        let x = long_numbers(((ROWS + WIDTH) * depth) as usize);
        let wanted = expected(&x, depth as usize, |k, n| n * depth as usize + k);
        assert_near(&run(&kernel, &x, (ROWS * WIDTH) as usize), &wanted, 1e-4, &format!("depth {depth}"));
    }
}

#[test]
fn products_of_two_parts_over_rows_are_nearly_exact() {
    for depth in [16, 32, 64, 128] {
        let kernel = kernel(Elem::F32, [depth, WIDTH], depth, |b, sums, lane, (left, right)| {
            [left, right].into_iter().for_each(|tile| prepare_all(b, tile, lane));
            let rows = left_rows(b, lane);
            let [of_left, of_right] = [left, right].map(|tile| lanes(b, tile, rows));
            let left = Factor::of(b, left, &of_left, NONE);
            let right = Factor::of(b, right, &of_right, NONE);
            for sixteen in 0..depth / ROWS {
                let fragment = left.parts(b, 0, sixteen, false);
                multiply_in_time(b, sums, fragment, right, sixteen);
            }
        });
        let x = long_numbers(((ROWS + WIDTH) * depth) as usize);
        let wanted = expected(&x, depth as usize, |k, n| k * WIDTH as usize + n);
        assert_near(&run(&kernel, &x, (ROWS * WIDTH) as usize), &wanted, 1e-4, &format!("depth {depth}"));
    }
}

/// The left factor itself, read by blocks or one by one, goes to y.
#[test]
fn elements_of_two_parts_are_read_back() {
    for one_by_one in [false, true] {
        let kernel = kernel(Elem::F32, [WIDTH, ROWS], ROWS, |b, sums, lane, (left, _)| {
            prepare_all(b, left, lane);
            let [group, member] = b.div_rem(lane, 4);
            let column = b.mul(member, 2);
            for (eight, block) in (0..).zip(sums.iter_mut()) {
                *block = if one_by_one {
                    [0, 1, 2, 3].map(|r: u32| {
                        let row = b.add(group, r / 2 * COLUMNS);
                        let column = b.add(column, eight as u32 * COLUMNS + r % 2);
                        load_one(b, left, row, column)
                    })
                } else {
                    block_of(b, TileStage::only(left), group, Operand::i32(eight), column)
                };
            }
        });
        let x = long_numbers((ROWS * ROWS + WIDTH * ROWS) as usize);
        assert_eq!(run(&kernel, &x, (ROWS * WIDTH) as usize), x[..(ROWS * WIDTH) as usize], "{one_by_one}");
    }
}

/// A kernel that copies 16 × 32 elements of `f16` to a tile of `bf16`, and writes the product of its first and its second 16 columns.
fn half_kernel() -> Kernel {
    let mut b = Builder::new("half", 32);
    b.param("x", ParamKind::Read(Elem::F16));
    b.param("y", ParamKind::Write(Elem::F32));
    let tile = Tile::bare(&mut b, "tile", Elem::Bf16, ROWS, 2 * ROWS);
    let full = b.shared("full", SharedKind::Mbarrier, 1);
    let mbarrier = Mbarrier { array: full, index: NONE };
    let lane = thread(&mut b);
    let first = b.eq(lane, NONE);
    b.if_(first, |b| b.push(Stmt::MbarrierInit(mbarrier, 32)));
    b.barrier();
    for by in [0, 32] {
        let number = b.add(lane, by);
        let [row, piece] = b.div_rem(number, tile.pieces());
        let to_index = tile.piece_index(&mut b, row, piece);
        let from = b.mul(number, tile.piece());
        let from_index = b.convert(Ty::I64, from);
        b.push(Stmt::CopyAsync { to: tile.array, to_index, from: ParamId(0), from_index, elements: 8, guard: None });
    }
    b.push(Stmt::CopyAsyncArrive(mbarrier));
    b.push(Stmt::MbarrierWait(mbarrier, NONE));
    prepare_all(&mut b, &tile, lane);
    let rows = left_rows(&mut b, lane);
    let lanes = tile.lanes(&mut b, rows.0, rows.1);
    let factor = Factor::of(&mut b, &tile, &lanes, NONE);
    let left = factor.parts(&mut b, 0, 0, false);
    let right = factor.parts(&mut b, 0, 1, false).as_right();
    let mut sums = vec![zeros(); 2];
    left.multiply(&mut b, Elem::Bf16, &mut sums, right);
    let [group, member] = b.div_rem(lane, 4);
    for (eight, block) in (0..).zip(&sums) {
        for (r, sum) in (0..).zip(block) {
            let row = b.add(group, r / 2 * COLUMNS);
            let column = b.mul(member, 2);
            let at = b.mul(row, ROWS);
            let at = b.add(at, column);
            let at = b.add(at, eight * COLUMNS + r % 2);
            let at = b.convert(Ty::I64, at);
            b.store(Y, at, &[*sum], None);
        }
    }
    b.finish()
}

#[test]
fn elements_of_f16_become_factors_of_bf16() {
    let x = numbers((2 * ROWS * ROWS) as usize);
    let of = |m: usize, n: usize| (0..16).map(|k| x[m * 32 + k] * x[n * 32 + 16 + k]).sum::<f64>();
    let wanted: Vec<f64> = (0..256).map(|i| of(i / 16, i % 16)).collect();
    assert_eq!(run(&half_kernel(), &x, 256), wanted);
}

/// A number of two parts times a number for its column.
#[test]
fn parts_are_multiplied_by_columns() {
    let kernel = kernel(Elem::F32, [WIDTH, ROWS], ROWS, |b, sums, lane, (left, _)| {
        prepare_all(b, left, lane);
        let rows = left_rows(b, lane);
        let of_left = lanes(b, left, rows);
        let factor = Factor::of(b, left, &of_left, NONE);
        let parts: Parts = factor.parts(b, 0, 0, false);
        let two = [3.0, 5.0].map(|x: f64| Operand::Const(Ty::F32, Literal::Float(x)));
        let scaled = parts.times_columns(b, Elem::F32, [two, two]).pairs(b, Elem::F32);
        for (eight, block) in sums.iter_mut().enumerate() {
            let [first, second] = [0, 1].map(|h: usize| scaled[2 * eight + h]);
            *block = [first[0], first[1], second[0], second[1]];
        }
    });
    let x = numbers((ROWS * ROWS + WIDTH * ROWS) as usize);
    let wanted: Vec<f64> = (0..256).map(|i| x[i] * [3.0, 5.0][i % 2]).collect();
    assert_eq!(run(&kernel, &x, 256), wanted);
}
