//! Products in `tf32`, numbers of 11 bits with the range of `f32`, by warps.
//!
//! Numbers beside factors of `f16` may leave the range of `f16`: they are rounded to as many bits in `tf32`.
//! Packed pairs of tiles are unpacked, exactly. A fragment has eight places of the axis that is summed over: the elements 2t and
//! 2t + 1 of a pair become the places t and t + 4 of it, in both factors. So do two neighbours of a block of sums
//! that becomes a left factor, whose fragments have eight columns.
//!
//! Factors of `f32` are [split](split), and all products but that of both low parts are summed. Tensor cores cut sums off
//! instead of rounding them: small products are summed apart from large ones, both begin at zero, and their sums are added
//! to what there is.

use super::fragment::{Blocks, COLUMNS, Factor, ROWS, load_four, mma, zeros};
use super::layout::Tile;
use super::rematerialise::Rematerialiser;
use super::thread::FragmentPlace;
use crate::build::Builder;
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::ir::{Binary, Literal};
use oplus_dsl::{Elem, Ty};

/// The registers of a factor, whole or as its high and low part.
pub(crate) type FactorParts<const N: usize> = Vec<[Operand; N]>;

/// Half of the last place of 11 bits, by which numbers are rounded.
pub(crate) const HALF: Operand = Operand::Const(Ty::U32, Literal::Int(0x1000));

/// Blocks of split products that are computed at once: as many as registers have room for.
const BLOCKS_AT_ONCE: usize = 4;

/// Sums of products of some blocks.
pub(crate) struct Sums {
    large: Blocks,
    /// Products with a low part, if factors are split.
    small: Option<Blocks>,
}

impl Sums {
    /// The number of `count` blocks that are summed at once.
    pub(crate) fn at_once(elem: Elem, count: usize) -> usize {
        if elem == Elem::F32 { BLOCKS_AT_ONCE.min(count) } else { count }
    }

    /// The sums that are to be added to some blocks.
    pub(crate) fn of(elem: Elem, sums: &[[Operand; 4]]) -> Sums {
        match elem {
            Elem::F32 => Sums { large: vec![zeros(); sums.len()], small: Some(vec![zeros(); sums.len()]) },
            _ => Sums { large: sums.to_vec(), small: None },
        }
    }

    /// A left factor as it is multiplied: rounded, or split.
    pub(crate) fn left(&self, b: &mut Builder, rows: [Operand; 4], half: Operand) -> Vec<[Operand; 4]> {
        if self.small.is_some() { split(b, rows, half).to_vec() } else { vec![rows] }
    }

    /// Adds a product to a block.
    pub(crate) fn add(&mut self, b: &mut Builder, block: usize, left: &[[Operand; 4]], columns: [Operand; 2]) {
        let Some(small) = &mut self.small else {
            return mma(b, Elem::F32, &mut self.large[block], left[0], columns);
        };
        let columns = split(b, columns, HALF);
        mma_low_parts(b, &mut small[block], left, &columns);
        mma(b, Elem::F32, &mut self.large[block], left[0], columns[0]);
    }

    /// Adds the sums to the blocks.
    pub(crate) fn finish(self, b: &mut Builder, sums: &mut [[Operand; 4]]) {
        // Loads for later products, moved up, would take registers now.
        b.push(Stmt::SyncWarp);
        let Some(small) = self.small else { return sums.copy_from_slice(&self.large) };
        for ((sums, large), small) in sums.iter_mut().zip(&self.large).zip(&small) {
            *sums = std::array::from_fn(|i| {
                let both = b.add(large[i], small[i]);
                b.add(sums[i], both)
            });
        }
    }
}

/// Adds left·rightᵀ over the depth. The right factor is of `f32`; if the left one is not, it has the places of the depth in
/// the order of fragments, see [`ChunkwiseKernel::store_tf32`].
pub(crate) fn multiply(b: &mut Builder, sums: &mut Blocks, left: Factor, right: Factor) {
    multiply_by(b, sums, left.tile, right, |b, step| rows_of(b, left, step));
}

/// Adds left·rightᵀ over the depth, from the fragments of eight places that a step of the left factor gives.
pub(crate) fn multiply_by(
    b: &mut Builder,
    sums: &mut Blocks,
    left: &Tile,
    right: Factor,
    rows_of: impl Fn(&mut Builder, u32) -> Vec<[Operand; 4]>,
) {
    let elem = left.elem;
    let at_once = Sums::at_once(elem, sums.len());
    for (group, sums) in (0..).zip(sums.chunks_mut(at_once)) {
        let first = group * at_once as u32 * COLUMNS;
        let mut own = Sums::of(elem, sums);
        for step in 0..left.depth / left.step() {
            let rows = rows_of(b, step);
            for (k, rows) in (0..).zip(&rows) {
                let eight = step * eights(left) + k;
                let rows = own.left(b, *rows, HALF);
                for pair in 0..sums.len() / 2 {
                    let [x, y, z, w] = right.four(b, first + pair as u32 * ROWS, eight, false);
                    own.add(b, 2 * pair, &rows, [x, y]);
                    own.add(b, 2 * pair + 1, &rows, [z, w]);
                }
                // Loads for later products, moved up, would take registers.
                if eight % 2 == 1 {
                    b.push(Stmt::SyncWarp);
                }
            }
        }
        own.finish(b, sums);
    }
}

/// The fragments of eight places that a step of a tile has.
pub(crate) fn eights(tile: &Tile) -> u32 {
    tile.step() / COLUMNS
}

/// A step of a left factor as fragments of eight places.
pub(crate) fn rows_of(b: &mut Builder, left: Factor, step: u32) -> Vec<[Operand; 4]> {
    let (elem, rows) = (left.tile.elem, left.four(b, 0, step, false));
    if elem == Elem::F32 { vec![rows] } else { unpacked(b, elem, rows).to_vec() }
}

/// Adds left·right over the rows of the right factor, of which every left one has eight. Where registers are scarce, groups of blocks are
/// computed [apart](Rematerialiser::apart).
pub(crate) fn multiply_in_time(
    b: &mut Builder,
    rematerialiser: Rematerialiser,
    sums: &mut Blocks,
    left: &[[Operand; 4]],
    right: Factor,
    is_scarce: bool,
) {
    let elem = right.tile.elem;
    let at_once = Sums::at_once(elem, sums.len());
    for (group, sums) in (0..).zip(sums.chunks_mut(at_once)) {
        let add = |b: &mut Builder, sums: &mut [[Operand; 4]]| {
            let mut own = Sums::of(elem, sums);
            if elem == Elem::F32 {
                // High and low parts of the left factor would be kept for all groups: twice its registers.
                let half = rematerialiser.of_bits(b, HALF);
                add_in_time(b, &mut own, left, right, group * at_once as u32, half);
            } else {
                add_packed_in_time(b, &mut own, left, right, 0);
            }
            own.finish(b, sums);
        };
        if is_scarce {
            rematerialiser.apart(b, sums, |sums| sums.iter_mut().flatten().collect(), add);
        } else {
            add(b, sums);
        }
    }
}

/// The sums of left·right over all rows of the right factor, for so many blocks of its columns from a number on. Left factors are
/// made for 16 rows at a time: two of eight columns each. `elem` is the type that factors have in memory; beside `f16`
/// a right factor in `f32` is rounded.
pub(crate) fn product_in_time(
    b: &mut Builder,
    elem: Elem,
    first: u32,
    count: u32,
    left: impl Fn(&mut Builder, u32) -> [[Operand; 4]; 2],
    right: Factor,
) -> Blocks {
    let mut sums: Blocks = vec![zeros(); count as usize];
    let mut own = Sums::of(elem, &sums);
    for sixteen in 0..right.tile.rows / ROWS {
        let left = left(b, sixteen);
        let below = b.add(right.start, sixteen * ROWS * right.tile.panel());
        let right = Factor { start: below, ..right };
        match right.tile.elem {
            Elem::F32 => add_in_time(b, &mut own, &left, right, first, HALF),
            _ => add_packed_in_time(b, &mut own, &left, right, first),
        }
        // Loads for later products, moved up, would take registers now.
        b.push(Stmt::SyncWarp);
    }
    own.finish(b, &mut sums);
    sums
}

/// The number of blocks whose products are computed at once.
pub(crate) fn blocks_at_once(blocks: u32) -> u32 {
    blocks.min(BLOCKS_AT_ONCE as u32)
}

/// Adds left·right over rows for blocks from a number on, of tiles of `f32`: lanes read the elements of rows 2t and 2t + 1
/// one by one. `half` is the rounding constant of [`split`] for the left factor.
fn add_in_time(b: &mut Builder, sums: &mut Sums, left: &[[Operand; 4]], right: Factor, first: u32, half: Operand) {
    let below = right.tile.lanes_below(b, right.lanes);
    for (eight, left) in (0..).zip(left) {
        let left = sums.left(b, *left, half);
        for block in 0..sums.large.len() {
            let columns = [right.lanes, &below].map(|lanes| {
                let index = right.tile.index(b, lanes, eight * COLUMNS, first + block as u32);
                let index = b.add(index, right.start);
                let value = b.load1(Memory::Shared(right.tile.array), index);
                b.bits(Ty::U32, value)
            });
            sums.add(b, block, &left, columns);
        }
    }
}

/// Adds left·right over rows for blocks from a number on, of tiles of 16 bits.
fn add_packed_in_time(b: &mut Builder, sums: &mut Sums, left: &[[Operand; 4]], right: Factor, first: u32) {
    for (sixteen, left) in (0..).zip(left.chunks(2)) {
        for pair in 0..sums.large.len() / 2 {
            let packed = right.four(b, sixteen * ROWS, first / 2 + pair as u32, true);
            for (k, packed) in packed.chunks(2).enumerate() {
                for (left, packed_pair) in left.iter().zip(packed) {
                    let columns = b.unpack(right.tile.elem, *packed_pair).map(|x| b.bits(Ty::U32, x));
                    sums.add(b, 2 * pair + k, &[*left], columns);
                }
            }
        }
        b.push(Stmt::SyncWarp);
    }
}

/// Adds left·right over 16 rows of the right factor, of which each left one has eight.
pub(crate) fn add_sixteen(b: &mut Builder, elem: Elem, sums: &mut Blocks, left: &[[Operand; 4]; 2], right: Factor) {
    let at_once = Sums::at_once(elem, sums.len());
    for (first, sums) in (0..).step_by(at_once).zip(sums.chunks_mut(at_once)) {
        let mut own = Sums::of(elem, sums);
        match right.tile.elem {
            Elem::F32 => add_in_time(b, &mut own, left, right, first, HALF),
            _ => add_packed_in_time(b, &mut own, left, right, first),
        }
        own.finish(b, sums);
    }
}

/// Elements of 16 rows and 16 columns of a right factor over rows, as they are in its tile: for both eights of the columns, both of the
/// rows, those of rows 2t and 2t + 1.
pub(crate) fn elements_in_time(b: &mut Builder, right: Factor, sixteen: u32, pair: u32) -> [[[Operand; 2]; 2]; 2] {
    if right.tile.elem != Elem::F32 {
        let packed = right.four(b, sixteen * ROWS, pair, true);
        let two = |b: &mut Builder, pair| b.unpack(right.tile.elem, pair).map(|x| b.bits(Ty::U32, x));
        return [0, 2].map(|block| [0, 1].map(|half| two(b, packed[block + half])));
    }
    let below = right.tile.lanes_below(b, right.lanes);
    [0, 1].map(|block| {
        [0, 1].map(|half| {
            [right.lanes, &below].map(|lanes| {
                let index = right.tile.index(b, lanes, sixteen * ROWS + half * COLUMNS, 2 * pair + block);
                let index = b.add(index, right.start);
                let element = b.load1(Memory::Shared(right.tile.array), index);
                b.bits(Ty::U32, element)
            })
        })
    })
}

/// Unpacks a left factor of 16 columns, in packed pairs, into two of eight.
pub(crate) fn unpacked(b: &mut Builder, elem: Elem, packed: [Operand; 4]) -> [[Operand; 4]; 2] {
    let both = packed.map(|pair| b.unpack(elem, pair).map(|x| b.bits(Ty::U32, x)));
    // Registers 0 and 1 have the first eight columns.
    [0, 2].map(|r| [both[r][0], both[r + 1][0], both[r][1], both[r + 1][1]])
}

/// Rounds to the nearest number of 11 bits; the lower bits are left undefined. A NaN, which may have all bits set, stays
/// what it is.
pub(crate) fn rounded(b: &mut Builder, x: Operand) -> Operand {
    let bits = b.bits(Ty::I32, x);
    let bits = b.binary(Binary::Min, bits, 0x7fff_efff);
    let nearest = b.add(bits, 0x1000);
    b.bits(Ty::F32, nearest)
}

/// Rounds to the nearest number of 11 bits with the lower bits 0: what is saved is read as a number, too.
pub(crate) fn cut_off(b: &mut Builder, x: Operand) -> Operand {
    let bits = b.bits(Ty::U32, x);
    let upper = b.binary(Binary::And, bits, !0x1fff_u32);
    b.bits(Ty::F32, upper)
}

/// A number as a register of a factor beside tiles of a type.
pub(crate) fn tf32_bits(b: &mut Builder, elem: Elem, x: Operand) -> Operand {
    let x = if elem == Elem::F32 { x } else { rounded(b, x) };
    b.bits(Ty::U32, x)
}

/// A block of sums as a left factor of eight columns.
pub(crate) fn left_of(b: &mut Builder, elem: Elem, [x, y, z, w]: [Operand; 4]) -> [Operand; 4] {
    [x, z, y, w].map(|sum| tf32_bits(b, elem, sum))
}

/// Transposed elements of a tile in 16 of its rows, of which each eight rows are one factor: of the thread's two columns of
/// 16, in two rows.
pub(crate) fn transposed(b: &mut Builder, from: Factor, place: Operand, sixteen: u32) -> [[[Operand; 2]; 2]; 2] {
    let tile = from.tile;
    let start = b.add(from.start, sixteen * ROWS * tile.panel());
    if tile.elem != Elem::F32 {
        let index = b.add(place, start);
        let packed = load_four(b, tile, index, true);
        return [0, 2].map(|r| [0, 1].map(|h| b.unpack(tile.elem, packed[r + h])));
    }
    let places = [0, COLUMNS].map(|by| {
        // With the swizzle, this is the place eight elements further.
        let first = b.binary(Binary::Xor, place, by);
        [first, tile.below(b, first)]
    });
    [0, COLUMNS].map(|rows| {
        let start = b.add(start, rows * tile.panel());
        places.map(|own| {
            own.map(|place| {
                let index = b.add(place, start);
                b.load1(Memory::Shared(tile.array), index)
            })
        })
    })
}

/// The index of the first transposed element, of `f32`: of 16 columns of this number the thread's first one, in row 2t.
pub(crate) fn first_transposed(b: &mut Builder, tile: &Tile, place: FragmentPlace, sixteen: Operand) -> Operand {
    let piece = Operand::i32(tile.piece() as i32);
    let [of_group, within] = b.div_rem(place.group, piece);
    let of_sixteen = b.mul(sixteen, ROWS / tile.piece());
    let piece = b.add(of_sixteen, of_group);
    let row = place.column(b);
    let place = tile.piece_index(b, row, piece);
    b.add(place, within)
}

/// Splits numbers in a high part, the nearest number of 11 bits, and a low part, what is left; `half` is [`HALF`]. If high parts
/// were cut off instead of rounded, low parts would have the sign of their factors, and the product of low parts, which is left
/// out, would be a bias.
pub(crate) fn split<const N: usize>(b: &mut Builder, registers: [Operand; N], half: Operand) -> [[Operand; N]; 2] {
    let high = registers.map(|x| {
        let nearest = b.add(x, half);
        b.binary(Binary::And, nearest, !0x1fff_u32)
    });
    let low = |i: usize| {
        let [x, high] = [registers[i], high[i]].map(|bits| b.bits(Ty::F32, bits));
        let low = b.sub(x, high);
        b.bits(Ty::U32, low)
    };
    [high, std::array::from_fn(low)]
}

/// A factor as products read it: itself, or of `f32` its high and low part ([`split`]).
pub(crate) fn factor_parts<const N: usize>(b: &mut Builder, elem: Elem, registers: [Operand; N]) -> FactorParts<N> {
    if elem == Elem::F32 { split(b, registers, HALF).to_vec() } else { vec![registers] }
}

/// Adds the two products of one factor's low part with the other's high part, if factors are split.
pub(crate) fn mma_low_parts(b: &mut Builder, sums: &mut [Operand; 4], rows: &[[Operand; 4]], columns: &[[Operand; 2]]) {
    if let ([high, low], [column_high, column_low]) = (rows, columns) {
        mma(b, Elem::F32, sums, *low, *column_high);
        mma(b, Elem::F32, sums, *high, *column_low);
    }
}
