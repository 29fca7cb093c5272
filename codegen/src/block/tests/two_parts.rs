//! Factors in two parts: products of a warpgroup, and blocks of sums that are written and read, against plain loops.

use super::parts::{assert_near, long_numbers};
use super::{X, Y, run, thread};
use crate::block::copy::ReadPiece;
use crate::block::layout::{Tile, TileStage, left_rows};
use crate::block::matmul::{COLUMNS, ROWS, block_values, finish, new_sums};
use crate::block::parts::Parts;
use crate::block::two_parts::{Order, Step, start, start_over_depth};
use crate::build::Builder;
use crate::tile::{Kernel, Operand, ParamKind, Reg, Stmt};
use oplus_dsl::Elem;

/// Rows and columns of the product.
const SIZE: u32 = 64;
/// Threads of a warpgroup.
const THREADS: u32 = 128;
/// A product of high parts alone is further off than this.
const ERROR: f64 = 3e-5;

const NONE: Operand = Operand::i32(0);

/// The place of a thread.
struct Place {
    lane: Operand,
    /// The first of the 16 rows of its warp.
    warp_row: Operand,
}

/// A kernel that writes the sums which `compute` gives for two factors, of x, to y; the right factor has this shape.
fn kernel(
    depth: u32,
    right_shape: [u32; 2],
    compute: impl FnOnce(&mut Builder, &Place, &Tile, &Tile) -> Vec<[Operand; 4]>,
) -> Kernel {
    let mut builder = Builder::new("product", THREADS);
    let b = &mut builder;
    b.param("x", ParamKind::Read(Elem::F32));
    b.param("y", ParamKind::Write(Elem::F32));
    let [left, right] = [("left", [SIZE, depth]), ("right", right_shape)]
        .map(|(name, [rows, depth])| Tile::bare(b, name, Elem::Bf16, rows, depth).in_parts(b, 1));
    let number = thread(b);
    let [warp, lane] = b.div_rem(number, 32);
    let warp_row = b.mul(warp, ROWS);
    fill(b, &left, number, 0);
    fill(b, &right, number, SIZE * depth);
    publish(b);
    let sums = compute(b, &Place { lane, warp_row }, &left, &right);
    let [group, member] = b.div_rem(lane, 4);
    let row = b.add(warp_row, group);
    let own = b.mul(row, SIZE);
    let column = b.mul(member, 2);
    let own = b.add(own, column);
    for (j, block) in (0..).zip(&sums) {
        for (r, sum) in (0..).zip(block) {
            let at = super::index(b, own, 1, (r / 2 * COLUMNS * SIZE + j * COLUMNS + r % 2) as i32);
            b.store(Y, at, &[*sum], None);
        }
    }
    builder.finish()
}

/// Writes both parts of the elements of x from one on to a tile.
fn fill(b: &mut Builder, tile: &Tile, number: Operand, from: u32) {
    b.for_(number, tile.rows * tile.pieces(), THREADS, |b, number| {
        let [row, piece] = b.div_rem(number, tile.pieces());
        let at = tile.piece_index(b, row, piece);
        let load = |k: u32| {
            let index = super::index(b, number, tile.piece() as i32, (from + k) as i32);
            b.load1(X, index)
        };
        let elements = (0..tile.piece()).map(load).collect();
        tile.write_parts(b, vec![ReadPiece { at, elements }], NONE);
    });
}

/// Makes what all threads have written visible to the warpgroup.
fn publish(b: &mut Builder) {
    b.push(Stmt::FenceAsync);
    b.barrier();
}

/// The sums of a product that has been started.
fn finished(b: &mut Builder, sums: &[[Reg; 4]]) -> Vec<[Operand; 4]> {
    finish(b, sums, 0);
    block_values(sums)
}

/// The warp's rows of a tile as left factors.
fn rows_of(b: &mut Builder, place: &Place, tile: &Tile) -> Vec<Parts> {
    let (row, half) = left_rows(b, place.lane);
    let row = b.add(row, place.warp_row);
    let lanes = tile.lanes(b, row, half);
    let sixteen = |sixteen: u32| {
        let index = tile.index(b, &lanes, 0, sixteen);
        Parts::at(b, tile, index, false)
    };
    (0..tile.depth / ROWS).map(sixteen).collect()
}

/// Σ_k left[m, k]·right(k, n).
fn expected(x: &[f64], depth: usize, right: impl Fn(usize, usize) -> usize) -> Vec<f64> {
    let size = SIZE as usize;
    let (left, other) = x.split_at(size * depth);
    let of = |m: usize, n: usize| (0..depth).map(|k| left[m * depth + k] * other[right(k, n)]).sum();
    (0..size * size).map(|at| of(at / size, at % size)).collect()
}

fn check(kernel: &Kernel, depth: u32, right: impl Fn(usize, usize) -> usize) {
    let x = long_numbers((2 * SIZE * depth) as usize);
    let found = run(kernel, &x, (SIZE * SIZE) as usize);
    assert_near(&found, &expected(&x, depth as usize, right), ERROR, &format!("depth {depth}"));
}

#[test]
fn products_over_the_depth_are_nearly_exact() {
    for depth in [16, 32, 64, 128] {
        let kernel = kernel(depth, [SIZE, depth], |b, _, left, right| {
            let sums = start_over_depth(b, TileStage::only(left), TileStage::only(right));
            finished(b, &sums)
        });
        check(&kernel, depth, |k, n| n * depth as usize + k);
    }
}

#[test]
fn products_over_rows_are_nearly_exact_in_both_orders() {
    for (depth, order) in [16, 64].into_iter().flat_map(|d| [(d, Order::SmallestFirst), (d, Order::StepByStep)]) {
        let kernel = kernel(depth, [depth, SIZE], |b, place, left, right| {
            let left = rows_of(b, place, left);
            let steps = Step::over_rows(b, &left, right, NONE);
            let sums = new_sums(b, SIZE);
            start(b, &sums, true, &steps, order, true);
            finished(b, &sums)
        });
        check(&kernel, depth, |k, n| k * SIZE as usize + n);
    }
}

#[test]
fn blocks_of_sums_are_written_in_both_parts_and_read_back() {
    let depth = 64;
    let kernel = kernel(depth, [SIZE, depth], |b, place, left, right| {
        let sums = start_over_depth(b, TileStage::only(left), TileStage::only(right));
        let sums = finished(b, &sums);
        b.barrier();
        let (row, half) = left_rows(b, place.lane);
        let row = b.add(row, place.warp_row);
        let lanes = left.lanes(b, row, half);
        for (step, two) in (0..).zip(sums.chunks(2)) {
            let index = left.index(b, &lanes, 0, step);
            left.store_blocks(b, index, two);
        }
        b.barrier();
        let [group, member] = b.div_rem(place.lane, 4);
        let (row, column) = (b.add(place.warp_row, group), b.mul(member, 2));
        let blocks = 0..SIZE / COLUMNS;
        blocks.map(|k| left.whole_block(b, NONE, row, Operand::i32(k as i32), column)).collect()
    });
    check(&kernel, depth, |k, n| n * depth as usize + k);
}
