//! Products of matrices by a warp, of tiles in every layout, against plain loops.

use super::{Y, fill, numbers, run, thread};
use crate::block::layout::{Lanes, Tile, left_rows, right_rows};
use crate::block::matmul::{Blocks, COLUMNS, Factor, ROWS, multiply, multiply_in_time, zeros};
use crate::build::Builder;
use crate::tile::{Kernel, Operand, ParamKind, Stmt};

use oplus_dsl::{Elem, Ty};

/// Columns of the product: two blocks.
pub(super) const WIDTH: u32 = 2 * COLUMNS;

/// A kernel that writes left·right, 16 × [`WIDTH`], to y; `compute` adds to the sums.
pub(super) fn kernel(
    elem: Elem,
    right_shape: [u32; 2],
    depth: u32,
    compute: impl Fn(&mut Builder, &mut Blocks, Operand, (&Tile, &Tile)),
) -> Kernel {
    let mut b = Builder::new("product", 32);
    b.param("x", ParamKind::Read(elem));
    b.param("y", ParamKind::Write(Elem::F32));
    let left = Tile::bare(&mut b, "left", elem, ROWS, depth);
    let right = Tile::bare(&mut b, "right", elem, right_shape[0], right_shape[1]);
    let lane = thread(&mut b);
    fill(&mut b, &left, 32, 0);
    fill(&mut b, &right, 32, ROWS * depth);
    b.push(Stmt::SyncWarp);
    let mut sums: Blocks = vec![zeros(); 2];
    compute(&mut b, &mut sums, lane, (&left, &right));
    let [group, member] = b.div_rem(lane, 4);
    let row = b.mul(group, WIDTH);
    let column = b.mul(member, 2);
    let own = b.add(row, column);
    for (j, block) in (0..).zip(&sums) {
        for (r, sum) in (0..).zip(block) {
            let at = b.add(own, r / 2 * COLUMNS * WIDTH + j * COLUMNS + r % 2);
            let at = b.convert(Ty::I64, at);
            b.store(Y, at, &[*sum], None);
        }
    }
    b.finish()
}

pub(super) fn lanes(b: &mut Builder, tile: &Tile, (row, half): (Operand, Operand)) -> Lanes {
    tile.lanes(b, row, half)
}

/// Two tiles as factors of a product over the depth.
pub(super) fn with_factors(
    b: &mut Builder,
    lane: Operand,
    (left, right): (&Tile, &Tile),
    then: impl FnOnce(&mut Builder, Factor, Factor),
) {
    let rows = left_rows(b, lane);
    let of_left = lanes(b, left, rows);
    let rows = right_rows(b, lane);
    let of_right = lanes(b, right, rows);
    let left = Factor::of(b, left, &of_left, Operand::i32(0));
    let right = Factor::of(b, right, &of_right, Operand::i32(0));
    then(b, left, right);
}

/// Σ_k left[m, k]·right(k, n).
pub(super) fn expected(x: &[f64], depth: usize, right: impl Fn(usize, usize) -> usize) -> Vec<f64> {
    let (left, other) = x.split_at(ROWS as usize * depth);
    let of = |m: usize, n: usize| (0..depth).map(|k| left[m * depth + k] * other[right(k, n)]).sum();
    (0..ROWS as usize).flat_map(|m| (0..WIDTH as usize).map(move |n| (m, n))).map(|(m, n)| of(m, n)).collect()
}

#[test]
fn products_over_the_depth_are_those_of_plain_loops() {
    for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
        for depth in [16, 32, 48, 64, 96, 128] {
            let kernel = kernel(elem, [WIDTH, depth], depth, |b, sums, lane, (left, right)| {
                with_factors(b, lane, (left, right), |b, left, right| multiply(b, sums, left, right));
            });
            let x = numbers(((ROWS + WIDTH) * depth) as usize);
            let y = run(&kernel, &x, (ROWS * WIDTH) as usize);
            assert_eq!(y, expected(&x, depth as usize, |k, n| n * depth as usize + k), "{elem}, depth {depth}");
        }
    }
}

#[test]
fn products_over_rows_are_those_of_plain_loops() {
    for elem in [Elem::Bf16, Elem::F16] {
        for depth in [16, 32, 48, 64, 128] {
            let kernel = kernel(elem, [depth, WIDTH], depth, |b, sums, lane, (left, right)| {
                let rows = left_rows(b, lane);
                let [of_left, of_right] = [left, right].map(|tile| lanes(b, tile, rows));
                let left = Factor::of(b, left, &of_left, Operand::i32(0));
                let right = Factor::of(b, right, &of_right, Operand::i32(0));
                for sixteen in 0..depth / ROWS {
                    let fragment = left.four(b, 0, sixteen, false);
                    multiply_in_time(b, sums, fragment, right, sixteen);
                }
            });
            let x = numbers(((ROWS + WIDTH) * depth) as usize);
            let y = run(&kernel, &x, (ROWS * WIDTH) as usize);
            assert_eq!(y, expected(&x, depth as usize, |k, n| k * WIDTH as usize + n), "{elem}, depth {depth}");
        }
    }
}
