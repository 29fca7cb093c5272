//! Products of a warpgroup, of factors in shared memory and in registers, against plain loops.

use super::{Y, fill, index, numbers, run};
use crate::block::layout::{Lanes, Tile, TileStage, left_rows};
use crate::block::matmul::{
    COLUMNS, ROWS, block_values, block_vars, finish, load_four, start, start_from_row, start_in_time, start_panel,
    start_rows, start_rows_from, zeros,
};
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::Builder;
use crate::target::WARP;
use crate::tile::{Kernel, Operand, ParamKind, Reg, Stmt};
use oplus_dsl::Elem;

/// Rows and columns of the product.
const SIZE: u32 = 64;
/// Threads of a warpgroup.
const THREADS: u32 = 4 * WARP;

/// A kernel that writes the sums of a product of two tiles, of x, to y. The left tile has `rows` rows, and the right one this shape.
fn kernel(
    [rows, depth]: [u32; 2],
    right_shape: [u32; 2],
    compute: impl FnOnce(&mut Builder, TileStage, TileStage) -> Vec<[Reg; 4]>,
) -> Kernel {
    let mut builder = Builder::new("product", THREADS);
    let b = &mut builder;
    b.param("x", ParamKind::Read(Elem::Bf16));
    b.param("y", ParamKind::Write(Elem::F32));
    let left = Tile::bare(b, "left", Elem::Bf16, rows, depth);
    let right = Tile::bare(b, "right", Elem::Bf16, right_shape[0], right_shape[1]);
    let place = Thread::of(b);
    fill(b, &left, THREADS, 0);
    fill(b, &right, THREADS, rows * depth);
    b.push(Stmt::FenceAsync);
    b.barrier();
    let sums = compute(b, TileStage::only(&left), TileStage::only(&right));
    finish(b, &sums, 0);
    let fragment = FragmentPlace::of(b, place.lane);
    let row = fragment.row(b, place.warp);
    let own = b.mul(row, SIZE);
    let column = fragment.column(b);
    let own = b.add(own, column);
    for (j, block) in (0..).zip(block_values(&sums)) {
        for (r, sum) in (0..).zip(block) {
            let at = index(b, own, 1, (r / 2 * COLUMNS * SIZE + j * COLUMNS + r % 2) as i32);
            b.store(Y, at, &[sum], None);
        }
    }
    builder.finish()
}

/// The lanes by which the warp reads its 16 rows of a tile as left factors.
fn own_rows(b: &mut Builder, tile: &Tile) -> Lanes {
    let place = Thread::of(b);
    let (row, half) = left_rows(b, place.lane);
    let of_warp = b.mul(place.warp, ROWS);
    let row = b.add(of_warp, row);
    tile.lanes(b, row, half)
}

/// Compares a kernel with Σ_k left[first + m, k]·right(k, n), where left has this shape.
fn check(kernel: &Kernel, [rows, depth]: [usize; 2], first: usize, right: impl Fn(usize, usize) -> usize) {
    let size = SIZE as usize;
    let x = numbers(rows * depth + depth * 2 * size);
    let (left, other) = x.split_at(rows * depth);
    let of = |m: usize, n: usize| (0..depth).map(|k| left[(first + m) * depth + k] * other[right(k, n)]).sum();
    let wanted: Vec<f64> = (0..size * size).map(|at| of(at / size, at % size)).collect();
    assert_eq!(run(kernel, &x, size * size), wanted, "depth {depth}, from row {first}");
}

#[test]
fn products_over_the_depth_are_those_of_plain_loops() {
    for depth in [16, 32, 64, 128] {
        let right = |k: usize, n: usize| n * depth as usize + k;
        let whole = kernel([SIZE, depth], [SIZE, depth], start);
        check(&whole, [64, depth as usize], 0, right);
        let second = kernel([2 * SIZE, depth], [SIZE, depth], |b, left, right| {
            start_from_row(b, left, Operand::i32(SIZE as i32), right)
        });
        check(&second, [128, depth as usize], 64, right);
    }
}

#[test]
fn products_over_rows_are_those_of_plain_loops() {
    let right = |k: usize, n: usize| k * SIZE as usize + n;
    for depth in [16, 32, 64, 128] {
        let shape = [SIZE, depth];
        let added = kernel(shape, [depth, SIZE], |b, left, right| {
            let sums = block_vars(b, &vec![zeros(); (SIZE / COLUMNS) as usize]);
            start_rows(b, &sums, left, right);
            sums
        });
        check(&added, [64, depth as usize], 0, right);
        let second = kernel([2 * SIZE, depth], [depth, SIZE], |b, left, right| {
            start_rows_from(b, left, Operand::i32(SIZE as i32), right)
        });
        check(&second, [128, depth as usize], 64, right);
        let registers = kernel(shape, [depth, SIZE], |b, left, right| {
            let sums = block_vars(b, &vec![zeros(); (SIZE / COLUMNS) as usize]);
            let lanes = own_rows(b, left.tile);
            let four = |sixteen: u32| {
                let index = left.tile.index(b, &lanes, 0, sixteen);
                load_four(b, left.tile, index, false)
            };
            let fragments: Vec<_> = (0..depth / ROWS).map(four).collect();
            start_in_time(b, &sums, &fragments, right);
            sums
        });
        check(&registers, [64, depth as usize], 0, right);
    }
}

#[test]
fn a_product_has_the_columns_of_one_panel() {
    for (depth, panel) in [(16, 0), (64, 0), (64, 1)] {
        let kernel = kernel([SIZE, depth], [depth, 2 * SIZE], |b, left, right| start_panel(b, left, right, panel));
        let first = panel as usize * SIZE as usize;
        check(&kernel, [64, depth as usize], 0, |k, n| k * 2 * SIZE as usize + first + n);
    }
}
