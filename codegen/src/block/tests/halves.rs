//! Products of eight warps, each of 16 rows and a half of the columns, against plain loops.

use super::{Y, fill, index, numbers, run};
use crate::block::halves::{HalfPlace, HalfViews};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, COLUMNS, ROWS, multiply, multiply_in_time, zeros};
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::Builder;
use crate::target::WARP;
use crate::tile::{Kernel, Operand, ParamKind};
use oplus_dsl::Elem;

/// Rows of tiles, and rows and columns of products.
const SIZE: u32 = 64;
const THREADS: u32 = 8 * WARP;
const ONLY: Operand = Operand::i32(0);

/// A kernel that writes left·rightᵀ over the depth, or left·right over rows, to y: of tiles of x, 64 rows each.
fn kernel(depth: u32, over_rows: bool) -> Kernel {
    let mut builder = Builder::new("product", THREADS);
    let b = &mut builder;
    b.param("x", ParamKind::Read(Elem::Bf16));
    b.param("y", ParamKind::Write(Elem::F32));
    // Over rows the left factor has a column for each of the right one's rows.
    let widths = if over_rows { [SIZE, depth] } else { [depth; 2] };
    let [left, right] =
        [("left", widths[0]), ("right", widths[1])].map(|(name, width)| Tile::bare(b, name, Elem::Bf16, SIZE, width));
    let place = Thread::of(b);
    fill(b, &left, THREADS, 0);
    fill(b, &right, THREADS, SIZE * widths[0]);
    b.barrier();
    let [half, block] = b.div_rem(place.warp, 4);
    let place_of_half = HalfPlace { lane: place.lane, block, half };
    let [of_left, of_right] = [&left, &right].map(|tile| HalfViews::of(b, tile, place_of_half, None));
    let columns = if over_rows { depth } else { SIZE };
    let mut sums: Blocks = vec![zeros(); (columns / 2 / COLUMNS) as usize];
    let rows = of_left.left(b, &left, ONLY);
    if over_rows {
        let right = of_right.in_time(b, &right, ONLY);
        for sixteen in 0..SIZE / ROWS {
            let fragment = rows.four(b, 0, sixteen, false);
            multiply_in_time(b, &mut sums, fragment, right, sixteen);
        }
    } else {
        let right = of_right.right(b, &right, ONLY);
        multiply(b, &mut sums, rows, right);
    }
    let fragment = FragmentPlace::of(b, place.lane);
    let row = fragment.row(b, block);
    let own = b.mul(row, columns);
    let of_half = b.mul(half, columns / 2);
    let own = b.add(own, of_half);
    let column = fragment.column(b);
    let own = b.add(own, column);
    for (j, block) in (0..).zip(&sums) {
        for (r, sum) in (0..).zip(block) {
            let at = index(b, own, 1, (r / 2 * COLUMNS * columns + j * COLUMNS + r % 2) as i32);
            b.store(Y, at, &[*sum], None);
        }
    }
    builder.finish()
}

#[test]
fn halves_of_columns_make_whole_products_over_the_depth() {
    let size = SIZE as usize;
    for depth in [32, 64, 128] {
        let x = numbers(2 * size * depth);
        let (left, right) = x.split_at(size * depth);
        let of = |m: usize, n: usize| (0..depth).map(|k| left[m * depth + k] * right[n * depth + k]).sum();
        let wanted: Vec<f64> = (0..size * size).map(|at| of(at / size, at % size)).collect();
        assert_eq!(run(&kernel(depth as u32, false), &x, size * size), wanted, "depth {depth}");
    }
}

#[test]
fn halves_of_columns_make_whole_products_over_rows() {
    let size = SIZE as usize;
    for depth in [32, 64, 128] {
        let x = numbers(size * (size + depth));
        let (left, right) = x.split_at(size * size);
        let of = |m: usize, n: usize| (0..size).map(|k| left[m * size + k] * right[k * depth + n]).sum();
        let wanted: Vec<f64> = (0..size * depth).map(|at| of(at / depth, at % depth)).collect();
        assert_eq!(run(&kernel(depth as u32, true), &x, size * depth), wanted, "width {depth}");
    }
}
