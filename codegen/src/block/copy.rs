//! Copies of a parameter's rows to a tile in shared memory, by all threads of a block.

use super::args::Args;
use super::layout::{EIGHT, Tile};
use crate::abi::Tensor;
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, ParamId, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// The source of the copies of all threads of a block.
pub(crate) struct Source<'s> {
    /// The stage's parameters.
    pub args: &'s Args,
    /// The block's index along every outer axis.
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
    /// The pieces that an iteration copies where the copies of a thread are a loop, since registers are scarce.
    pub rolled: Option<u32>,
}

/// Where a parameter's rows begin for a block.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    /// The offset of the first row, `i64`.
    pub offset: Operand,
    /// The place in the rows at which the block's slice begins, `i64`, if rows have several slices.
    pub place: Option<Operand>,
}

impl From<Operand> for Origin {
    fn from(offset: Operand) -> Origin {
        Origin { offset, place: None }
    }
}

/// The rows that are copied, and the stage that they are copied to.
struct Copied {
    /// The parameter's first row.
    origin: Origin,
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
    /// Rows that are left from the thread's first piece on, `i32`.
    left: Operand,
    /// Rows from the thread's first piece to this one.
    rows: i32,
    /// Its number in the row.
    piece: Operand,
    /// The place at which the row begins, as in [`Origin`].
    place: Option<Operand>,
}

/// Eight elements of a row that a thread has read.
pub(crate) struct ReadPiece {
    /// Their index in a stage.
    pub at: Operand,
    pub elements: Vec<Operand>,
}

impl Tile {
    /// The offset of the parameter's first row, for [`Tile::fill`].
    pub(crate) fn origin(&self, b: &mut Builder, source: &Source) -> Operand {
        source.args.offset(b, Tensor::Param(self.param), source.outer)
    }

    /// Starts copies of the rows from `first` (`i32`) on into a stage, and arrives there.
    pub(crate) fn fill(
        &self,
        b: &mut Builder,
        source: &Source,
        origin: impl Into<Origin>,
        first: Operand,
        stage: Operand,
    ) {
        self.start_copies(b, source, origin.into(), first, stage);
        self.arrive(b, source, stage);
    }

    /// Does as [`Self::start_copies`], and finds each piece from the one before: for warps that only copy and have few registers.
    pub(crate) fn start_copies_in_steps(
        &self,
        b: &mut Builder,
        source: &Source,
        origin: Origin,
        first: Operand,
        stage: Operand,
    ) {
        let pieces = self.pieces();
        let (total, rows) = (self.rows * pieces, source.threads / pieces);
        if !source.threads.is_multiple_of(pieces)
            || !rows.is_multiple_of(EIGHT as u32)
            || !total.is_multiple_of(source.threads)
        {
            return self.start_copies(b, source, origin, first, stage);
        }
        let into = Copied { origin, first, start: b.mul(stage, self.len()) };
        let mut piece = self.copied_piece(b, source, &into, source.thread);
        for _ in 0..total / source.threads {
            self.copy_elements(b, source, piece);
            piece = self.further(b, source, piece, rows as i32);
        }
    }

    /// Starts copies of the rows from `first` (`i32`) on into a stage.
    pub(crate) fn start_copies(
        &self,
        b: &mut Builder,
        source: &Source,
        origin: Origin,
        first: Operand,
        stage: Operand,
    ) {
        let pieces = self.depth / self.piece();
        let (total, rows_per_pass) = (self.rows * pieces, source.threads / pieces);
        let into = Copied { origin, first, start: b.mul(stage, self.len()) };
        if let Some(most) = source.rolled {
            let at_once = (1..=most).rev().find(|n| total.is_multiple_of(n * source.threads)).unwrap_or(1);
            let step = Operand::i32((at_once * source.threads) as i32);
            b.for_(source.thread, total, step, |b, number| {
                for pass in 0..at_once {
                    let number = b.add(number, pass * source.threads);
                    let copied_piece = self.copied_piece(b, source, &into, number);
                    self.copy_elements(b, source, copied_piece);
                }
            });
            return;
        }
        let whole = source.threads.is_multiple_of(pieces) && rows_per_pass.is_multiple_of(EIGHT as u32);
        let base = whole.then(|| self.copied_piece(b, source, &into, source.thread));
        for pass in 0..total.div_ceil(source.threads) {
            let number = b.add(source.thread, pass * source.threads);
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
                let inside = b.lt(number, total);
                b.if_(inside, copy);
            } else {
                copy(b);
            }
        }
    }

    /// Reads the rows from `first` (`i32`) on to registers, in accesses of several elements.
    pub(crate) fn read(&self, b: &mut Builder, source: &Source, origin: Origin, first: Operand) -> Vec<ReadPiece> {
        let total = self.rows * self.pieces();
        let rows_per_pass = source.threads / self.pieces();
        let into = Copied { origin, first, start: Operand::i32(0) };
        let whole = source.threads.is_multiple_of(self.pieces()) && rows_per_pass.is_multiple_of(EIGHT as u32);
        let base = whole.then(|| self.copied_piece(b, source, &into, source.thread));
        let passes = (0..total / source.threads).map(|pass| {
            let piece = match base {
                Some(base) => self.further(b, source, base, (pass * rows_per_pass) as i32),
                None => {
                    let number = b.add(source.thread, pass * source.threads);
                    self.copied_piece(b, source, &into, number)
                }
            };
            ReadPiece { at: piece.to, elements: self.read_elements(b, source, piece) }
        });
        passes.collect()
    }

    fn read_elements(&self, b: &mut Builder, source: &Source, from: CopiedPiece) -> Vec<Operand> {
        let pointer = source.args.pointer(Tensor::Param(self.param));
        let step = source.vector.min(self.piece());
        let guards = self.guards(b, source, from, step);
        let mut at = from.from;
        let mut elements = vec![];
        for guard in guards {
            elements.extend(b.load(Memory::Global(pointer), at, step, Some(guard), zero(Ty::F32)));
            at = b.add(at, step);
        }
        elements
    }

    /// Whether the elements of each access to a piece exist.
    fn guards(&self, b: &mut Builder, source: &Source, of: CopiedPiece, step: u32) -> Vec<Operand> {
        let size = source.args.size(self.inner);
        let size = of.place.filter(|_| source.padded).map_or(size, |before| b.sub(size, before));
        let exists = b.binary(Binary::Gt, of.left, of.rows);
        let column = b.mul(of.piece, self.piece());
        let column = b.convert(Ty::I64, column);
        let guard = |k: u32| {
            if !source.padded {
                return exists;
            }
            let place = b.add(column, k);
            let inside = b.lt(place, size);
            b.and(exists, inside)
        };
        (0..self.piece()).step_by(step as usize).map(guard).collect()
    }

    /// Arrives at a stage with the thread's copies.
    pub(crate) fn arrive(&self, b: &mut Builder, source: &Source, stage: Operand) {
        if source.fenced && source.vector == 1 {
            b.push(Stmt::FenceAsync);
        }
        if source.vector > 1 { b.arrive_with_copies(self.full, stage) } else { b.arrive(self.full, stage) }
    }

    /// The source and the destination of the piece of a number.
    fn copied_piece(&self, b: &mut Builder, source: &Source, into: &Copied, number: Operand) -> CopiedPiece {
        let tensor = Tensor::Param(self.param);
        let [row, piece] = b.div_rem(number, self.depth / self.piece());
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
        let column = b.mul(piece, self.piece());
        let column = b.convert(Ty::I64, column);
        let of_column = b.mul(column, source.args.stride(tensor, self.inner));
        let [shared, own] = [b.add(into.origin.offset, of_first), b.add(of_row, of_column)];
        CopiedPiece { to, from: b.add(shared, own), left, rows: 0, piece, place: into.origin.place }
    }

    /// The piece of the same number in a row that is `rows` further, a multiple of 8.
    fn further(&self, b: &mut Builder, source: &Source, copied_piece: CopiedPiece, rows: i32) -> CopiedPiece {
        let stride = source.args.stride(Tensor::Param(self.param), self.along);
        let offset = b.mul(stride, rows);
        let to = b.add(copied_piece.to, rows * self.panel() as i32);
        CopiedPiece { to, from: b.add(copied_piece.from, offset), rows: copied_piece.rows + rows, ..copied_piece }
    }

    fn copy_elements(
        &self,
        b: &mut Builder,
        source: &Source,
        CopiedPiece { to, from, left, rows, piece, place: before }: CopiedPiece,
    ) {
        let tensor = Tensor::Param(self.param);
        let (pointer, size) = (source.args.pointer(tensor), source.args.size(self.inner));
        let size = match before.filter(|_| source.padded) {
            Some(before) => b.sub(size, before),
            None => size,
        };
        let exists = b.binary(Binary::Gt, left, rows);
        let column = b.mul(piece, self.piece());
        let column = b.convert(Ty::I64, column);
        let stride = source.args.stride(tensor, self.inner);
        let step = source.vector.min(self.piece());
        let (mut elements, mut from_index) = (vec![], from);
        let further = b.mul(Operand::i64(i64::from(step)), stride);
        for k in (0..self.piece()).step_by(step as usize) {
            let place = b.add(column, k);
            let guard = if source.padded {
                let inside = b.lt(place, size);
                b.and(exists, inside)
            } else {
                exists
            };
            if step == 1 {
                elements.push(self.load_one(b, pointer, from_index, guard));
            } else {
                let to_index = b.add(to, k);
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

/// Copies of elements whose layout in memory is that of shared memory, 16 bytes at a time, as one of the threads that copy sees them.
#[derive(Clone, Copy)]
pub(crate) struct WholeCopy {
    /// The thread.
    pub thread: Operand,
    /// The threads that copy.
    pub threads: u32,
    /// The elements.
    pub len: u32,
}

impl WholeCopy {
    /// Starts the copies of a parameter's elements from number `from_index` (`i64`) on to the tile of a stage.
    pub(crate) fn start(self, b: &mut Builder, tile: &Tile, stage: Operand, from: ParamId, from_index: Operand) {
        let (to, piece) = (tile.array, tile.piece());
        let own = b.mul(self.thread, piece);
        let start = b.mul(stage, tile.len());
        let to_first = b.add(start, own);
        let own = b.convert(Ty::I64, own);
        let from_first = b.add(from_index, own);
        for by in self.pieces(piece) {
            let to_index = b.add(to_first, by);
            let from_index = b.add(from_first, by);
            b.push(Stmt::CopyAsync { to, to_index, from, from_index, elements: piece, guard: None });
        }
    }

    /// Stores the elements of a tile's first stage to a parameter, from number `to_index` (`i64`) on.
    pub(crate) fn store(self, b: &mut Builder, tile: &Tile, to: ParamId, to_index: Operand) {
        let piece = tile.piece();
        let own = b.mul(self.thread, piece);
        let from = b.convert(Ty::I64, own);
        let to_own = b.add(to_index, from);
        for by in self.pieces(piece) {
            let at = b.add(own, by);
            let elements = b.load(Memory::Shared(tile.array), at, piece, None, zero(Ty::F32));
            let to_index = b.add(to_own, by);
            b.store(Memory::Global(to), to_index, &elements, None);
        }
    }

    /// The distances of the thread's pieces from its first one.
    fn pieces(self, piece: u32) -> impl Iterator<Item = u32> {
        (0..self.len).step_by((self.threads * piece) as usize)
    }
}
