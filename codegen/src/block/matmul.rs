//! Products of matrices: by warps, or started by a warpgroup, of factors in shared memory or in registers.
//!
//! Factors have 16 bits; those of `f32`, and sums beside them, are in [`tf32`].

pub(crate) use super::fragment::{
    Blocks, COLUMNS, Factor, ROWS, assign_blocks, block_numbers, block_values, block_vars, load_four, mma, mma_two,
    new_sums, zeros,
};
use super::layout::{Tile, TileStage};
use super::tf32;
use crate::build::{Builder, swizzle, zero};
use crate::tile::{Left, Memory, Operand, Panels, Reg, Stmt};
use oplus_dsl::{Elem, Ty};

/// The row and the column of the first element of a packed pair.
#[derive(Clone, Copy)]
pub(crate) struct PairPlace {
    pub row: Operand,
    pub column: Operand,
}

/// Maps the packed pairs of 16 columns of a left factor, number `sixteen`, each with the row and the column of its first element;
/// `first` is the place of the thread's first pair.
pub(crate) fn map_left(
    b: &mut Builder,
    packed: [Operand; 4],
    first: PairPlace,
    sixteen: u32,
    map: impl Fn(&mut Builder, Operand, Operand, Operand) -> Operand,
) -> [Operand; 4] {
    // Registers 0 and 2 have the first eight rows, 2 and 3 the columns from the eighth on.
    map_pairs(b, packed, first, sixteen, |register| (register % 2, register / 2), map)
}

/// Maps the packed pairs of a right factor over 16 of its columns, number `sixteen`, each with the row and the column of its first
/// element; `first` is the place of the thread's first pair.
pub(crate) fn map_right(
    b: &mut Builder,
    packed: [Operand; 4],
    first: PairPlace,
    sixteen: u32,
    map: impl Fn(&mut Builder, Operand, Operand, Operand) -> Operand,
) -> [Operand; 4] {
    // Registers 0 and 1 have the first eight rows, 1 and 3 the columns from the eighth on.
    map_pairs(b, packed, first, sixteen, |register| (register / 2, register % 2), map)
}

/// Maps packed pairs over the sixteen columns of a number; `eights` gives the eight rows and the eight columns of each register.
fn map_pairs(
    b: &mut Builder,
    packed: [Operand; 4],
    first: PairPlace,
    sixteen: u32,
    eights: impl Fn(u32) -> (u32, u32),
    map: impl Fn(&mut Builder, Operand, Operand, Operand) -> Operand,
) -> [Operand; 4] {
    let mut register = 0;
    packed.map(|pair| {
        let (rows, columns) = eights(register);
        register += 1;
        let row = b.add(first.row, rows * COLUMNS);
        let column = b.add(first.column, columns * COLUMNS + sixteen * ROWS);
        map(b, pair, row, column)
    })
}

/// Maps the packed pairs of a transposed right factor, each with the block of eight columns that it belongs to, 0 or 1, and the
/// number of its first row from that of the thread on.
pub(crate) fn map_transposed(
    b: &mut Builder,
    packed: [Operand; 4],
    map: impl Fn(&mut Builder, Operand, usize, u32) -> Operand,
) -> [Operand; 4] {
    let mut register = 0;
    packed.map(|pair| {
        // Registers 0 and 1 have the first eight columns, 1 and 3 the rows from the eighth on.
        let (block, row) = (register / 2, (register % 2) as u32 * COLUMNS);
        register += 1;
        map(b, pair, block, row)
    })
}

/// The two elements of a packed pair, each times a number.
pub(crate) fn scale_pair(b: &mut Builder, elem: Elem, pair: Operand, by: [Operand; 2]) -> Operand {
    let [low, high] = b.unpack(elem, pair);
    let (low, high) = (b.mul(low, by[0]), b.mul(high, by[1]));
    b.pack(elem, low, high)
}

/// Adds left·rightᵀ over the depth.
pub(crate) fn multiply(b: &mut Builder, sums: &mut Blocks, left: Factor, right: Factor) {
    if right.tile.elem == Elem::F32 {
        return tf32::multiply(b, sums, left, right);
    }
    for sixteen in 0..left.tile.depth / ROWS {
        let rows = left.four(b, 0, sixteen, false);
        for (pair, sums) in (0..).zip(sums.chunks_exact_mut(2)) {
            let columns = right.four(b, pair * ROWS, sixteen, false);
            mma_two(b, left.tile.elem, sums, rows, columns);
        }
    }
}

/// Adds left·right over 16 rows of the right factor.
pub(crate) fn multiply_in_time(
    b: &mut Builder,
    sums: &mut [[Operand; 4]],
    left: [Operand; 4],
    right: Factor,
    sixteen: u32,
) {
    for (pair, sums) in (0..).zip(sums.chunks_exact_mut(2)) {
        let columns = right.four(b, sixteen * ROWS, pair, true);
        mma_two(b, right.tile.elem, sums, left, columns);
    }
}

/// One step of a product of a warpgroup: 16 terms of each sum.
pub(crate) type Step = (Left, Panels);

/// Starts a product of a warpgroup: adds left·right over the rows of the right factor, 16 for each left factor.
pub(crate) fn start_in_time(b: &mut Builder, sums: &[[Reg; 4]], left: &[[Operand; 4]], right: TileStage) {
    let step = |(sixteen, left): (usize, &[Operand; 4])| {
        let row = Operand::i32((sixteen as u32 * ROWS) as i32);
        (Left::Registers(*left), right.tile.panels(b, right.start, row, 0))
    };
    let steps = left.iter().enumerate().map(step).collect();
    b.push(Stmt::WarpgroupMma { elem: right.tile.elem, sums: sums.concat(), clear: false, steps, transposed: true });
}

/// The steps of left·rightᵀ over the depth, from shared memory, for the left factor's rows from `row` (`i32`) on.
pub(crate) fn steps_over_depth(b: &mut Builder, left: TileStage, row: Operand, right: TileStage) -> Vec<Step> {
    let none = Operand::i32(0);
    let step = |sixteen: u32| {
        let rows = left.tile.panels(b, left.start, row, sixteen);
        (Left::Shared(rows), right.tile.panels(b, right.start, none, sixteen))
    };
    (0..right.tile.depth / ROWS).map(step).collect()
}

/// The steps of left·right over the rows of the right factor, from shared memory, for the left factor's rows from `row` (`i32`) on and
/// the columns of a panel of the right factor.
pub(crate) fn steps_over_rows(
    b: &mut Builder,
    left: TileStage,
    row: Operand,
    right: TileStage,
    panel: u32,
) -> Vec<Step> {
    let first = panel * right.tile.panel() / ROWS;
    let step = |sixteen: u32| {
        let rows = left.tile.panels(b, left.start, row, sixteen);
        let of_right = Operand::i32((sixteen * ROWS) as i32);
        (Left::Shared(rows), right.tile.panels(b, right.start, of_right, first))
    };
    (0..left.tile.depth / ROWS).map(step).collect()
}

/// Starts left·rightᵀ over the depth, by a warpgroup, from shared memory. Its sums are not to be read before [`finish`].
pub(crate) fn start(b: &mut Builder, left: TileStage, right: TileStage) -> Vec<[Reg; 4]> {
    let sums = new_sums(b, right.tile.rows);
    let steps = steps_over_depth(b, left, Operand::i32(0), right);
    b.push(Stmt::WarpgroupMma { elem: right.tile.elem, sums: sums.concat(), clear: true, steps, transposed: false });
    sums
}

/// Starts left·right over the rows of the right factor, by a warpgroup, from shared memory: the columns of a panel of the right factor.
/// Its sums are not to be read before [`finish`].
pub(crate) fn start_panel(b: &mut Builder, left: TileStage, right: TileStage, panel: u32) -> Vec<[Reg; 4]> {
    let sums = new_sums(b, right.tile.panel());
    let steps = steps_over_rows(b, left, Operand::i32(0), right, panel);
    b.push(Stmt::WarpgroupMma { elem: right.tile.elem, sums: sums.concat(), clear: true, steps, transposed: true });
    sums
}

/// Starts to add left·right over the rows of the right factor, by a warpgroup, from shared memory.
pub(crate) fn start_rows(b: &mut Builder, sums: &[[Reg; 4]], left: TileStage, right: TileStage) {
    let steps = steps_over_rows(b, left, Operand::i32(0), right, 0);
    b.push(Stmt::WarpgroupMma { elem: right.tile.elem, sums: sums.concat(), clear: false, steps, transposed: true });
}

/// Starts left·rightᵀ over the depth, as [`start`], for the left factor's rows from `row` (`i32`) on and new sums.
pub(crate) fn start_from_row(b: &mut Builder, left: TileStage, row: Operand, right: TileStage) -> Vec<[Reg; 4]> {
    let steps = steps_over_depth(b, left, row, right);
    let sums = new_sums(b, right.tile.rows);
    b.push(Stmt::WarpgroupMma { elem: right.tile.elem, sums: sums.concat(), clear: true, steps, transposed: false });
    sums
}

/// Starts left·right over the rows of the right factor, as [`start_panel`] for its first panel, for the left factor's rows from `row`
/// (`i32`) on and new sums.
pub(crate) fn start_rows_from(b: &mut Builder, left: TileStage, row: Operand, right: TileStage) -> Vec<[Reg; 4]> {
    let steps = steps_over_rows(b, left, row, right, 0);
    let sums = new_sums(b, right.tile.panel());
    b.push(Stmt::WarpgroupMma { elem: right.tile.elem, sums: sums.concat(), clear: true, steps, transposed: true });
    sums
}

/// Waits for the sums of a warpgroup's product, after which `later` others have started.
pub(crate) fn finish(b: &mut Builder, sums: &[[Reg; 4]], later: u32) {
    finish_all(b, sums.concat(), later);
}

/// Waits for sums of warpgroups' products, after which `later` others have started.
pub(crate) fn finish_all(b: &mut Builder, sums: Vec<Reg>, later: u32) {
    b.push(Stmt::WarpgroupWait { pending: later, sums });
}

/// Two neighbouring blocks as a left factor.
pub(crate) fn pack(b: &mut Builder, elem: Elem, two: &[[Operand; 4]]) -> [Operand; 4] {
    let mut pack = |block: usize, h: usize| b.pack(elem, two[block][2 * h], two[block][2 * h + 1]);
    [pack(0, 0), pack(0, 1), pack(1, 0), pack(1, 1)]
}

/// The elements of a left factor's fragment times a number for each of its two rows.
pub(crate) fn scale_rows(b: &mut Builder, elem: Elem, packed: [Operand; 4], rows: [Operand; 2]) -> [Operand; 4] {
    let mut register = 0;
    packed.map(|pair| {
        // Registers 0 and 2 have the first eight rows, 1 and 3 the others.
        let scale = rows[register % 2];
        register += 1;
        scale_pair(b, elem, pair, [scale; 2])
    })
}

/// The index of the first of eight elements of a row of a stage that begins at 0: those of number `piece`.
pub(crate) fn piece_index(b: &mut Builder, tile: &Tile, row: Operand, piece: Operand) -> Operand {
    let (panel, pieces) = (tile.panel(), tile.panel() / COLUMNS);
    let [of_panel, within] = b.div_rem(piece, pieces);
    let place = swizzle(b, row, within, pieces);
    let from_panel = b.mul(of_panel, tile.rows * panel);
    let from_row = b.mul(row, panel);
    let from_piece = b.mul(place, COLUMNS);
    let index = b.add(from_panel, from_row);
    b.add(index, from_piece)
}

/// The elements of a tile's stage in a block: of the rows `row` and `row` + 8, two from element `column` of piece `piece` on.
pub(crate) fn block_of(
    b: &mut Builder,
    tile: &Tile,
    start: Operand,
    row: Operand,
    piece: Operand,
    column: Operand,
) -> [Operand; 4] {
    // Of `f32` eight elements are two pieces.
    let (piece, column) = match tile.elem {
        Elem::F32 => {
            let half = Operand::i32((COLUMNS / 2) as i32);
            let [of_piece, within] = b.div_rem(column, half);
            let first = b.mul(piece, 2);
            (b.add(first, of_piece), within)
        }
        _ => (piece, column),
    };
    let from = b.add(start, column);
    let mut two = |by: u32| {
        let row = b.add(row, by);
        let index =
            if tile.elem == Elem::F32 { tile.piece_index(b, row, piece) } else { piece_index(b, tile, row, piece) };
        let index = b.add(index, from);
        b.load(Memory::Shared(tile.array), index, 2, None, zero(Ty::F32))
    };
    let (one, two) = (two(0), two(COLUMNS));
    [one[0], one[1], two[0], two[1]]
}
