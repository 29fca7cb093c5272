//! Fragments against plain loops.

use super::*;
use crate::build::{swizzle, zero};
use crate::tile::{Reg, Stmt};
use oplus_dsl::ir::Binary;

/// Depth of the product: two steps of 16-bit factors, four of `f32`.
const DEPTH: i32 = 32;

/// Elements of a 16-byte piece.
fn per_piece(elem: Elem) -> i32 {
    16 / elem.bytes().unwrap() as i32
}

/// A [16][DEPTH] and B, [8][DEPTH] or transposed [DEPTH][8], into swizzled shared memory, D = A·B to y.
fn product(elem: Elem, transposed: bool) -> Kernel {
    let mut b = Builder::new("product", 32);
    let left = b.param("a", ParamKind::Read(elem));
    let right = b.param("b", ParamKind::Read(elem));
    let y = b.param("y", ParamKind::Write(Elem::F32));
    let (rows, columns) = if transposed { (DEPTH, 8) } else { (8, DEPTH) };
    let a_tile = b.shared("a_tile", SharedKind::Elem(elem), 16 * DEPTH as u32);
    let b_tile = b.shared("b_tile", SharedKind::Elem(elem), 8 * DEPTH as u32);
    copy_in(&mut b, left, a_tile, 16, DEPTH);
    copy_in(&mut b, right, b_tile, rows, columns);
    b.push(Stmt::SyncWarp);
    let accumulator: [Reg; 4] = std::array::from_fn(|_| b.var(zero(Ty::F32)));
    let step = 2 * per_piece(elem);
    let lane = b.special(Special::Lane);
    let [low, eighth, half] =
        [(Binary::Rem, 8), (Binary::Div, 8), (Binary::Div, 16)].map(|(op, n)| b.binary(op, lane, Operand::i32(n)));
    let odd = b.binary(Binary::Rem, eighth, Operand::i32(2));
    for k in 0..DEPTH / step {
        // Matrices of A: rows 0, rows 8, then those of the next piece.
        let below = b.mul(odd, Operand::i32(8));
        let row = b.add(low, below);
        let piece = b.add(half, Operand::i32(2 * k));
        let index = element(&mut b, elem, row, piece, DEPTH);
        let fragment = b.load_matrix(a_tile, index, 4, false).try_into().unwrap();
        let index = if transposed {
            let below = b.mul(odd, Operand::i32(8));
            let row = b.add(low, below);
            let row = b.add(row, Operand::i32(k * step));
            element(&mut b, elem, row, Operand::i32(0), columns)
        } else {
            let piece = b.add(odd, Operand::i32(2 * k));
            element(&mut b, elem, low, piece, columns)
        };
        let other = b.load_matrix(b_tile, index, 2, transposed).try_into().unwrap();
        b.mma(elem, accumulator, fragment, other);
    }
    let [g, t] = [Binary::Div, Binary::Rem].map(|op| b.binary(op, lane, Operand::i32(4)));
    for r in 0..4 {
        let row = b.add(g, Operand::i32(8 * (r / 2)));
        let column = b.mul(t, Operand::i32(2));
        let column = b.add(column, Operand::i32(r % 2));
        let row = b.mul(row, Operand::i32(8));
        let index = b.add(row, column);
        let index = b.convert(Ty::I64, index);
        b.store(Place::Global(y), index, &[accumulator[r as usize].into()], None);
    }
    b.finish()
}

/// The index of a piece of a row of `columns` elements.
fn element(b: &mut Builder, elem: Elem, row: Operand, piece: Operand, columns: i32) -> Operand {
    let pieces = columns / per_piece(elem);
    let piece = if pieces == 1 { piece } else { swizzle(b, row, piece, pieces as u32) };
    let from = b.mul(row, Operand::i32(columns));
    let within = b.mul(piece, Operand::i32(per_piece(elem)));
    b.add(from, within)
}

/// Copies a matrix element by element, a lane at a time.
fn copy_in(b: &mut Builder, from: ParamId, to: SharedId, rows: i32, columns: i32) {
    let elem = b.elem(Place::Shared(to));
    let lane = b.special(Special::Lane);
    b.for_(lane, Operand::i32(rows * columns), Operand::i32(32), |b, i| {
        let wide = b.convert(Ty::I64, i);
        let value = b.load1(Place::Global(from), wide);
        let row = b.binary(Binary::Div, i, Operand::i32(columns));
        let column = b.binary(Binary::Rem, i, Operand::i32(columns));
        let piece = b.binary(Binary::Div, column, Operand::i32(per_piece(elem)));
        let within = b.binary(Binary::Rem, column, Operand::i32(per_piece(elem)));
        let at = element(b, elem, row, piece, columns);
        let at = b.add(at, within);
        b.store(Place::Shared(to), at, &[value], None);
    });
}

/// Small numbers that every element type has, different everywhere.
fn number(i: usize) -> f64 {
    ((i * 37 + 11) % 64) as f64 / 8.0 - 4.0
}

#[test]
fn products_are_those_of_plain_loops() {
    for (elem, transposed) in
        [(Elem::Bf16, false), (Elem::Bf16, true), (Elem::F16, false), (Elem::F16, true), (Elem::F32, false)]
    {
        let kernel = product(elem, transposed);
        let depth = DEPTH as usize;
        let mut memory = Memory::new();
        let a = memory.add(Buffer::floats(elem, (0..16 * depth).map(number)));
        let b = memory.add(Buffer::floats(elem, (0..8 * depth).map(|i| number(3 * i + 1))));
        let y = memory.add(Buffer::unwritten(Elem::F32, 128));
        let launch = Launch { grid: [1, 1], args: vec![a.into(), b.into(), y.into()] };
        simulate(&kernel, &launch, &mut memory, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
        let (a, b) = (memory.buffer(a).to_floats(), memory.buffer(b).to_floats());
        let at = |k: usize, n: usize| if transposed { b[k * 8 + n] } else { b[n * depth + k] };
        let entry = |i: usize| (0..depth).map(|k| a[i / 8 * depth + k] * at(k, i % 8)).sum::<f64>();
        assert_eq!(memory.buffer(y).to_floats(), (0..128).map(entry).collect::<Vec<_>>(), "{elem} {transposed}");
    }
}

#[test]
fn factors_of_f32_lose_their_lowest_bits() {
    let mut b = builder();
    let (_, index) = thread(&mut b);
    let one = b.bits(Ty::U32, float(1.0 + f64::from(f32::EPSILON)));
    let accumulator: [Reg; 4] = std::array::from_fn(|_| b.var(zero(Ty::F32)));
    b.mma(Elem::F32, accumulator, [one; 4], [one; 2]);
    b.store(Y, index, &[accumulator[3].into()], None);
    assert_eq!(run(b)[..64], [8.0; 64]);
}

#[test]
fn packed_values_come_apart_again() {
    let mut b = builder();
    let (_, index) = thread(&mut b);
    let word = b.pack(Elem::Bf16, float(2.0), float(-3.0));
    let [low, high] = b.unpack(Elem::Bf16, word);
    let difference = b.sub(low, high);
    b.store(Y, index, &[difference], None);
    assert_eq!(run(b)[..64], [5.0; 64]);
}

/// Bits travel as they are, those of a signalling NaN too, and the guard counts for all of them.
#[test]
fn packed_pairs_are_two_elements_in_memory() {
    for elem in [Elem::Bf16, Elem::F16] {
        let mut b = Builder::new("pairs", 32);
        let x = b.param("x", ParamKind::Read(elem));
        let y = b.param("y", ParamKind::Write(elem));
        let tile = Place::Shared(b.shared("tile", SharedKind::Elem(elem), 256));
        let lane = b.special(Special::Lane);
        let index = b.mul(lane, 8);
        let whole = b.convert(Ty::I64, index);
        let eight = b.load(Place::Global(x), whole, 8, None, zero(Ty::F32));
        b.store(tile, index, &eight, None);
        let four = b.load_pairs(tile, index, 4);
        b.store(tile, index, &four, None);
        let two = b.load_pairs(tile, index, 2);
        let all = [two[1], two[0], Operand::u32(0x7f81_0000), four[3]];
        let guard = b.lt(lane, 31);
        b.store(Place::Global(y), whole, &all, Some(guard));
        let mut memory = Memory::new();
        let x = memory.add(Buffer::floats(elem, (0..256).map(f64::from)));
        let y = memory.add(Buffer::unwritten(elem, 256));
        let launch = Launch { grid: [1, 1], args: vec![x.into(), y.into()] };
        simulate(&b.finish(), &launch, &mut memory, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let y = memory.buffer(y);
        let found = y.to_floats();
        for (lane, found) in found.chunks(8).enumerate().take(31) {
            let of = |k: usize| (8 * lane + k) as f64;
            assert_eq!((&found[..5], &found[6..]), (&[of(2), of(3), of(0), of(1), 0.0][..], &[of(6), of(7)][..]));
        }
        assert_eq!(y.bytes()[10..12], [0x81, 0x7f]);
        assert_eq!(y.first_unwritten(), Some(248));
    }
}

#[test]
fn every_lane_must_take_part() {
    let mut b = builder();
    let (thread, _) = thread(&mut b);
    let some = b.lt(thread, Operand::i32(40));
    let word = b.pack(Elem::F16, float(1.0), float(1.0));
    b.if_(some, |b| {
        let accumulator: [Reg; 4] = std::array::from_fn(|_| b.var(zero(Ty::F32)));
        b.mma(Elem::F16, accumulator, [word; 4], [word; 2]);
    });
    assert_eq!(hazard(b), Hazard::Diverged(0xff));
}

#[test]
fn rows_lie_at_multiples_of_sixteen_bytes() {
    let mut b = builder();
    let (thread, _) = thread(&mut b);
    let from = b.mul(thread, Operand::i32(4));
    b.store(SHARED, from, &[float(0.0); 4], None);
    let index = b.mul(thread, Operand::i32(2));
    b.barrier();
    b.load_matrix(TILE, index, 1, false);
    assert_eq!(hazard(b), Hazard::Misaligned { array: "tile".into(), index: 2, bytes: 16 });
}

#[test]
fn a_fragment_races_with_writers() {
    let mut b = builder();
    let (thread, _) = thread(&mut b);
    let index = b.mul(thread, Operand::i32(4));
    b.store(SHARED, index, &[float(0.0); 4], None);
    b.load_matrix(TILE, index, 4, false);
    assert!(matches!(hazard(b), Hazard::Race { .. }));
}

#[test]
fn swizzled_pieces_lie_in_different_places() {
    for pieces in [2u32, 4, 8] {
        let places: Vec<u32> = (0..8).map(|row| (row * pieces + (1 ^ (row * pieces / 8 % pieces))) % 8).collect();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..8).collect::<Vec<_>>(), "{pieces}: {places:?}");
    }
}

/// Matrices of a lane's words 64m + 2·lane and one more, stored by one statement and read from the tile.
fn stored(matrices: usize, transposed: bool) -> Vec<f64> {
    let mut b = Builder::new("stored", 32);
    let y = b.param("y", ParamKind::Write(Elem::F32));
    let tile = b.shared("tile", SharedKind::Elem(Elem::Bf16), 256);
    let lane = b.special(Special::Lane);
    let words: Vec<Operand> = (0..matrices as i32)
        .map(|m| {
            let low = b.mul(lane, Operand::i32(2));
            let low = b.add(low, Operand::i32(64 * m));
            let high = b.add(low, Operand::i32(1));
            let [low, high] = [low, high].map(|x| b.convert(Ty::F32, x));
            b.pack(Elem::Bf16, low, high)
        })
        .collect();
    // Rows lie in reverse.
    let index = b.mul(lane, Operand::i32(8));
    let index = b.sub(Operand::i32(248), index);
    b.store_matrix(tile, index, &words, transposed);
    b.push(Stmt::SyncWarp);
    let own = b.mul(lane, Operand::i32(8));
    let own = b.sub(Operand::i32(248), own);
    let named = b.lt(lane, Operand::i32(8 * matrices as i32));
    b.if_(named, |b| {
        let row = b.load(Place::Shared(tile), own, 8, None, zero(Ty::F32));
        let to = b.mul(lane, Operand::i32(8));
        for (k, x) in row.into_iter().enumerate() {
            let at = b.add(to, Operand::i32(k as i32));
            let at = b.convert(Ty::I64, at);
            b.store(Place::Global(y), at, &[x], None);
        }
    });
    let mut memory = Memory::new();
    let y = memory.add(Buffer::unwritten(Elem::F32, 64 * matrices));
    let launch = Launch { grid: [1, 1], args: vec![y.into()] };
    let kernel = b.finish();
    simulate(&kernel, &launch, &mut memory, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    memory.buffer(y).to_floats()
}

#[test]
fn stored_matrices_are_what_fragments_say() {
    for matrices in [1, 2, 4] {
        // Row g of a fragment is 8g, 8g + 1, … 8g + 7.
        let plain: Vec<f64> = (0..64 * matrices).map(|i| i as f64).collect();
        assert_eq!(stored(matrices, false), plain);
        let turned = |i: usize| i / 64 * 64 + i % 8 * 8 + i / 8 % 8;
        assert_eq!(stored(matrices, true), (0..64 * matrices).map(|i| turned(i) as f64).collect::<Vec<_>>());
    }
}

#[test]
fn stored_rows_lie_at_multiples_of_sixteen_bytes() {
    let mut b = Builder::new("store", 32);
    let tile = b.shared("tile", SharedKind::Elem(Elem::F16), 512);
    let lane = b.special(Special::Lane);
    let index = b.mul(lane, Operand::i32(4));
    b.store_matrix(tile, index, &[Operand::u32(0)], false);
    let launch = Launch { grid: [1, 1], args: vec![] };
    let error = simulate(&b.finish(), &launch, &mut Memory::new(), &Options::default()).unwrap_err();
    assert!(error.to_string().contains("16"), "{error}");
}
