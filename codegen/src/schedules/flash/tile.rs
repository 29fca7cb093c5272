//! Tiles of rows or columns in shared memory, as matrix fragments are read from them.
//!
//! A tile is divided along the axis within its rows into panels of at most 128 bytes, one panel after the other. The
//! 16-byte pieces of a panel's rows are swizzled. Fragments are two pieces deep, a *step*: 16 elements of 16 bits, or 8 of 32.

use crate::abi::{Tensor, elem};
use crate::block::args::Args;
use crate::build::{Builder, swizzle, zero};
use crate::stage::Stage;
use crate::tile::{Memory, Operand, Panels, ParamId, SharedId, SharedKind, Stmt};
use oplus_dsl::ir::{Axis, Binary};
use oplus_dsl::{Elem, Ty};

/// Bytes of a piece.
const PIECE: u32 = 16;
/// Rows of a matrix, and half the rows of a fragment.
const EIGHT: i32 = 8;

/// A parameter's tile, or several in a ring.
#[derive(Clone, Debug)]
pub(crate) struct Tile {
    /// The parameter.
    pub param: u32,
    /// Its axis along the tile.
    pub along: Axis,
    /// Its axis within rows.
    pub inner: Axis,
    /// The array of all stages.
    pub array: SharedId,
    /// An mbarrier for each stage, which all threads arrive at; declared after all tiles.
    pub full: SharedId,
    /// The parameter's name.
    pub name: String,
    /// Rows.
    pub rows: u32,
    /// Elements of a row, a multiple of 16.
    pub depth: u32,
    /// The type of the elements.
    pub elem: Elem,
}

/// The contents of a tile.
#[derive(Clone, Copy)]
pub(crate) struct TileOf {
    /// The parameter.
    pub param: u32,
    /// Its axis along the tile.
    pub along: Axis,
    /// Its axis within rows.
    pub inner: Axis,
}

/// The lengths of a tile.
#[derive(Clone, Copy)]
pub(crate) struct TileShape {
    /// Rows.
    pub rows: u32,
    /// Elements of a row, a multiple of 16.
    pub depth: u32,
    /// How many tiles are in flight.
    pub stages: u32,
}

/// The source of the copies of all threads of a block.
pub(crate) struct Source<'s> {
    /// The stage's parameters.
    pub args: &'s Args,
    /// Where the block is.
    pub outer: &'s [(Axis, Operand)],
    /// Threads of the block.
    pub threads: u32,
    /// The thread.
    pub thread: Operand,
    /// Elements per access.
    pub vector: u32,
    /// Whether rows may be shorter than those of tiles.
    pub padded: bool,
    /// Whether warpgroups read what is copied, so that it needs a fence.
    pub fenced: bool,
    /// Whether the copies of a thread are a loop, where registers are scarce.
    pub rolled: bool,
}

/// The rows that are copied, and where to.
struct Into {
    /// Offset of the parameter's first row, `i64`.
    origin: Operand,
    /// The first row, `i32`.
    first: Operand,
    /// Index of the stage's first element.
    start: Operand,
}

/// A piece that a thread copies.
#[derive(Clone, Copy)]
struct CopiedPiece {
    /// Its index in the array.
    to: Operand,
    /// Its offset.
    from: Operand,
    /// Rows from that of the thread's first piece on, `i32`.
    left: Operand,
    /// By how many rows this piece is further.
    rows: i32,
    /// Its number in the row.
    piece: Operand,
}

/// The indices at which a lane's rows of matrices begin, for every even piece of a panel's row.
#[derive(Clone, Debug)]
pub(crate) struct Lanes(Vec<Operand>);

impl Tile {
    /// Declares a tile of a parameter.
    pub(crate) fn declare(b: &mut Builder, stage: &Stage, of: TileOf, shape: TileShape) -> Tile {
        let TileOf { param, along, inner } = of;
        let TileShape { rows, depth, stages } = shape;
        let name = stage.program.params[param as usize].name.clone();
        let elem = elem(stage, Tensor::Param(param));
        // Every tile begins at a multiple of 1024 bytes, which the swizzle needs.
        let len = (rows * depth * stages).next_multiple_of(1024 / bytes(elem));
        let array = b.shared(format!("{name}_tile"), SharedKind::Elem(elem), len);
        Tile { param, along, inner, array, full: array, name, rows, depth, elem }
    }

    /// A tile that no parameter is copied to, of rows and elements of a row.
    pub(crate) fn bare(b: &mut Builder, name: &str, elem: Elem, rows: u32, depth: u32) -> Tile {
        let array = b.shared(name, SharedKind::Elem(elem), rows * depth);
        Tile { param: 0, along: Axis(0), inner: Axis(0), array, full: array, name: name.to_owned(), rows, depth, elem }
    }

    /// Elements of a row of a panel.
    pub(crate) fn panel(&self) -> u32 {
        (1 << self.depth.trailing_zeros()).min(128 / bytes(self.elem))
    }

    /// Elements of a piece.
    pub(crate) fn piece(&self) -> u32 {
        PIECE / bytes(self.elem)
    }

    /// Pieces of a row.
    pub(super) fn pieces(&self) -> u32 {
        self.depth / self.piece()
    }

    /// The index of a piece of a row in a stage.
    pub(crate) fn piece_index(&self, b: &mut Builder, row: Operand, piece: Operand) -> Operand {
        let pieces = self.panel() / self.piece();
        let [panel, within] = [Binary::Div, Binary::Rem].map(|op| b.binary(op, piece, Operand::i32(pieces as i32)));
        let place = swizzle(b, row, within, pieces);
        let of_panel = b.mul(panel, Operand::i32((self.rows * self.panel()) as i32));
        let of_row = b.mul(row, Operand::i32(self.panel() as i32));
        let of_piece = b.mul(place, Operand::i32(self.piece() as i32));
        [of_row, of_piece].into_iter().fold(of_panel, |sum, x| b.add(sum, x))
    }

    /// Elements of a step.
    pub(crate) fn step(&self) -> u32 {
        2 * self.piece()
    }

    /// Elements of one stage.
    pub(crate) fn len(&self) -> u32 {
        self.rows * self.depth
    }

    /// The indices of lanes that name rows: lane l names row `row` and, of each step, the piece `half`.
    pub(crate) fn lanes(&self, b: &mut Builder, row: Operand, half: Operand) -> Lanes {
        let pieces = self.panel() / self.piece();
        let own = swizzle(b, row, half, pieces);
        let from = b.mul(row, Operand::i32(self.panel() as i32));
        let place = |b: &mut Builder, even: u32| {
            let piece = b.binary(Binary::Xor, own, Operand::i32(even as i32));
            let within = b.mul(piece, Operand::i32(self.piece() as i32));
            b.add(from, within)
        };
        Lanes((0..pieces).step_by(2).map(|even| place(b, even)).collect())
    }

    /// The indices of lanes that read single elements of 32 bits: of each step, element `column` of row `row`.
    pub(crate) fn lanes_of_elements(&self, b: &mut Builder, row: Operand, column: Operand) -> Lanes {
        let piece = Operand::i32(self.piece() as i32);
        let [half, within] = [Binary::Div, Binary::Rem].map(|op| b.binary(op, column, piece));
        let Lanes(indices) = self.lanes(b, row, half);
        Lanes(indices.into_iter().map(|place| b.add(place, within)).collect())
    }

    /// The indices of lanes one row further, where rows are even.
    pub(crate) fn lanes_below(&self, b: &mut Builder, Lanes(indices): &Lanes) -> Lanes {
        Lanes(indices.iter().map(|place| self.below(b, *place)).collect())
    }

    /// The index of an element of 32 bits one row further, where the row is even.
    pub(crate) fn below(&self, b: &mut Builder, place: Operand) -> Operand {
        let panel = self.panel() as i32;
        // With eight pieces the last bit of the row is part of the swizzle.
        let is_swizzled = panel as u32 / self.piece() == EIGHT as u32;
        let beside = if is_swizzled { b.binary(Binary::Xor, place, Operand::i32(self.piece() as i32)) } else { place };
        b.add(beside, Operand::i32(panel))
    }

    /// The indices of lanes in a tile of one panel: of step number `step` of row `row`, the piece `half`.
    pub(crate) fn lanes_at(&self, b: &mut Builder, row: Operand, half: Operand, step: Operand) -> Operand {
        let own = swizzle(b, row, half, self.panel() / self.piece());
        let even = b.mul(step, Operand::i32(2));
        let piece = b.binary(Binary::Xor, own, even);
        let from = b.mul(row, Operand::i32(self.panel() as i32));
        let within = b.mul(piece, Operand::i32(self.piece() as i32));
        b.add(from, within)
    }

    /// The index of the lanes' rows in step number `step` of rows `first` on, a multiple of 8.
    pub(crate) fn index(&self, b: &mut Builder, lanes: &Lanes, first: u32, step: u32) -> Operand {
        let place = step * self.step();
        let (panel, even) = (place / self.panel(), place % self.panel() / self.step());
        let from = panel * self.rows * self.panel() + first * self.panel();
        b.add(lanes.0[even as usize], Operand::i32(from as i32))
    }

    /// The offset of the parameter's first row, for [`Tile::fill`].
    pub(crate) fn origin(&self, b: &mut Builder, source: &Source) -> Operand {
        source.args.offset(b, Tensor::Param(self.param), source.outer)
    }

    /// The panels of the 16 elements number `sixteen` of rows from `row` on, as a warpgroup reads them: along rows, or
    /// transposed.
    pub(crate) fn panels(&self, b: &mut Builder, start: Operand, row: Operand, sixteen: u32) -> Panels {
        let panel = self.panel();
        let within = sixteen * 16 / panel * self.rows * panel + sixteen * 16 % panel;
        let of_row = b.mul(row, Operand::i32(panel as i32));
        let from = b.add(start, of_row);
        let index = b.add(from, Operand::i32(within as i32));
        Panels { array: self.array, index, row: panel, apart: self.rows * panel }
    }

    /// Starts copies of the rows from `first` (`i32`) on into a stage, and arrives there.
    pub(crate) fn fill(&self, b: &mut Builder, source: &Source, origin: Operand, first: Operand, stage: Operand) {
        let pieces = self.depth / self.piece();
        let (total, rows_per_pass) = (self.rows * pieces, source.threads / pieces);
        let into = Into { origin, first, start: b.mul(stage, Operand::i32(self.len() as i32)) };
        if source.rolled {
            let step = Operand::i32(source.threads as i32);
            b.for_(source.thread, Operand::i32(total as i32), step, |b, number| {
                let copied_piece = self.copied_piece(b, source, &into, number);
                self.copy_elements(b, source, copied_piece);
            });
            return self.arrive(b, source, stage);
        }
        let whole = source.threads.is_multiple_of(pieces) && rows_per_pass.is_multiple_of(EIGHT as u32);
        let base = whole.then(|| self.copied_piece(b, source, &into, source.thread));
        for pass in 0..total.div_ceil(source.threads) {
            let number = b.add(source.thread, Operand::i32((pass * source.threads) as i32));
            let copy = |b: &mut Builder| match base {
                Some(base) => {
                    let copied_piece = self.further(b, source, base, (pass * rows_per_pass) as i32);
                    self.copy_elements(b, source, copied_piece);
                }
                None => {
                    let copied_piece = self.copied_piece(b, source, &into, number);
                    self.copy_elements(b, source, copied_piece);
                }
            };
            if (pass + 1) * source.threads > total {
                let inside = b.lt(number, Operand::i32(total as i32));
                b.if_(inside, copy);
            } else {
                copy(b);
            }
        }
        self.arrive(b, source, stage);
    }

    /// Arrives at a stage with the thread's copies.
    fn arrive(&self, b: &mut Builder, source: &Source, stage: Operand) {
        if source.fenced && source.vector == 1 {
            b.push(Stmt::FenceAsync);
        }
        if source.vector > 1 { b.arrive_with_copies(self.full, stage) } else { b.arrive(self.full, stage) }
    }

    /// The source and the destination of the piece of a number.
    fn copied_piece(&self, b: &mut Builder, source: &Source, into: &Into, number: Operand) -> CopiedPiece {
        let tensor = Tensor::Param(self.param);
        let [row, piece] =
            [Binary::Div, Binary::Rem].map(|op| b.binary(op, number, Operand::i32((self.depth / self.piece()) as i32)));
        let place = self.piece_index(b, row, piece);
        let to = b.add(into.start, place);
        let size = b.convert(Ty::I32, source.args.size(self.along));
        let left = b.sub(size, into.first);
        let left = b.sub(left, row);
        // Computed by all threads alike, and constant from tile to tile.
        let stride = source.args.stride(tensor, self.along);
        let [of_first, of_row] = [into.first, row].map(|index| {
            let index = b.convert(Ty::I64, index);
            b.mul(index, stride)
        });
        let column = b.mul(piece, Operand::i32(self.piece() as i32));
        let column = b.convert(Ty::I64, column);
        let of_column = b.mul(column, source.args.stride(tensor, self.inner));
        let [shared, own] = [b.add(into.origin, of_first), b.add(of_row, of_column)];
        CopiedPiece { to, from: b.add(shared, own), left, rows: 0, piece }
    }

    /// The piece of the same number in a row that is `rows` further, a multiple of 8.
    fn further(&self, b: &mut Builder, source: &Source, copied_piece: CopiedPiece, rows: i32) -> CopiedPiece {
        let stride = source.args.stride(Tensor::Param(self.param), self.along);
        let offset = b.mul(stride, Operand::i64(i64::from(rows)));
        let to = b.add(copied_piece.to, Operand::i32(rows * self.panel() as i32));
        CopiedPiece { to, from: b.add(copied_piece.from, offset), rows: copied_piece.rows + rows, ..copied_piece }
    }

    fn copy_elements(
        &self,
        b: &mut Builder,
        source: &Source,
        CopiedPiece { to, from, left, rows, piece }: CopiedPiece,
    ) {
        let tensor = Tensor::Param(self.param);
        let (pointer, size) = (source.args.pointer(tensor), source.args.size(self.inner));
        let exists = b.binary(Binary::Gt, left, Operand::i32(rows));
        let column = b.mul(piece, Operand::i32(self.piece() as i32));
        let column = b.convert(Ty::I64, column);
        let stride = source.args.stride(tensor, self.inner);
        let step = source.vector.min(self.piece());
        let (mut elements, mut from_index) = (vec![], from);
        let further = b.mul(Operand::i64(i64::from(step)), stride);
        for k in (0..self.piece()).step_by(step as usize) {
            let place = b.add(column, Operand::i64(i64::from(k)));
            let guard = if source.padded {
                let inside = b.lt(place, size);
                b.and(exists, inside)
            } else {
                exists
            };
            if step == 1 {
                elements.push(self.load_one(b, pointer, from_index, guard));
            } else {
                let to_index = b.add(to, Operand::i32(k as i32));
                let (array, guard) = (self.array, Some(guard));
                b.push(Stmt::CopyAsync { to: array, to_index, from: pointer, from_index, elements: step, guard });
            }
            // Added step by step: multiples of the stride would be kept in registers.
            from_index = b.add(from_index, further);
        }
        if step == 1 {
            b.store(Memory::Shared(self.array), to, &elements, None);
        }
    }

    fn load_one(&self, b: &mut Builder, pointer: ParamId, index: Operand, guard: Operand) -> Operand {
        b.load(Memory::Global(pointer), index, 1, Some(guard), zero(self.elem.value()))[0]
    }
}

/// Bytes of an element.
fn bytes(elem: Elem) -> u32 {
    elem.bytes().unwrap_or(4) as u32
}

/// The rows that lanes name of a fragment of 16 rows by 16 elements, read as a left factor; transposed, of a right one.
pub(crate) fn left_rows(b: &mut Builder, lane: Operand) -> (Operand, Operand) {
    let row = b.binary(Binary::Rem, lane, Operand::i32(2 * EIGHT));
    (row, b.binary(Binary::Div, lane, Operand::i32(2 * EIGHT)))
}

/// The rows that lanes name of two fragments of 8 columns, which are the rows of a tile, by 16 elements.
pub(crate) fn right_rows(b: &mut Builder, lane: Operand) -> (Operand, Operand) {
    let low = b.binary(Binary::Rem, lane, Operand::i32(EIGHT));
    let block = b.binary(Binary::Div, lane, Operand::i32(2 * EIGHT));
    let below = b.mul(block, Operand::i32(EIGHT));
    let eighth = b.binary(Binary::Div, lane, Operand::i32(EIGHT));
    let row = b.add(low, below);
    (row, b.binary(Binary::Rem, eighth, Operand::i32(2)))
}
