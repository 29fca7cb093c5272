//! Pieces of a tile: the rows and steps that each copy thread takes.

use super::StateSpaceKernel;
use crate::build::Builder;
use crate::target::WARP;
use crate::tile::{Operand, Special, Stmt};
use oplus_dsl::ir::Binary;

/// The most passes over a tile that are unrolled.
const UNROLLED: u32 = 8;
/// Elements of a thread that are loaded at once.
const LOADS_IN_FLIGHT: u32 = 32;

/// Pieces of a thread that are loaded at once where threads are so many that each has few registers, and their number.
const PIECES_OF_CROWDED: usize = 4;
const CROWD: u32 = 768;

/// A rectangle of rows × steps, cut into pieces of one row and `width` steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub height: u32,
    pub steps: u32,
    pub width: u32,
    /// Whether neighbouring threads have neighbouring rows, not steps.
    pub across: bool,
}

/// A thread's piece: row and first step in the tile, both `i32`, and whether the piece exists.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub row: Operand,
    pub column: Operand,
    pub held: Operand,
    /// The pass, unless it is known at run time only.
    pub pass: Option<u32>,
}

/// A row and a step, `i32`.
#[derive(Clone, Copy)]
struct Corner {
    row: Operand,
    step: Operand,
}

/// The passes of all threads over a shape: the rows and steps of each, and their number.
struct Passes {
    rows: u32,
    columns: u32,
    row_passes: u32,
    column_passes: u32,
}

impl Shape {
    fn passes(&self, threads: u32) -> Passes {
        let (rows, columns) = if self.across {
            let rows = self.height.next_power_of_two().min(threads);
            (rows, threads / rows)
        } else {
            (threads * self.width / self.steps, self.steps)
        };
        Passes { rows, columns, row_passes: self.height.div_ceil(rows), column_passes: self.steps.div_ceil(columns) }
    }

    /// The thread's piece of the first pass.
    fn first(&self, b: &mut Builder, passes: &Passes, thread: Operand) -> Corner {
        let lanes = if self.across { passes.rows } else { self.steps / self.width };
        let low = b.binary(Binary::And, thread, lanes as i32 - 1);
        let high = b.binary(Binary::Shr, thread, lanes.trailing_zeros());
        match self.across {
            true => Corner { row: low, step: high },
            false => Corner { row: high, step: b.mul(low, self.width) },
        }
    }

    /// The thread's piece of a pass, whose row and step are counted in passes.
    fn piece(&self, b: &mut Builder, passes: &Passes, first: Corner, pass: Corner) -> Piece {
        let down = b.mul(pass.row, passes.rows);
        let along = b.mul(pass.step, passes.columns);
        let (row, column) = (b.add(first.row, down), b.add(first.step, along));
        let mut held = Operand::bool(true);
        if !self.height.is_multiple_of(passes.rows) {
            held = b.lt(row, self.height);
        }
        if !self.steps.is_multiple_of(passes.columns) {
            let inside = b.lt(column, self.steps);
            held = b.and(held, inside);
        }
        Piece { row, column, held, pass: None }
    }
}

impl StateSpaceKernel<'_> {
    /// The number of the thread among those of its team, `i32`.
    pub(crate) fn copy_thread(&self, b: &mut Builder) -> Operand {
        let thread = b.special(Special::Thread);
        let own = b.sub(thread, self.schedule.warps * WARP);
        match self.schedule.teams {
            1 => own,
            _ => b.binary(Binary::And, own, self.copy_threads() as i32 - 1),
        }
    }

    /// The number of the warp's team, `i32`.
    pub(crate) fn team(&self, b: &mut Builder) -> Operand {
        let own = b.sub(self.frame.warp, self.schedule.warps);
        b.binary(Binary::Div, own, self.schedule.copy_warps / self.schedule.teams)
    }

    fn copy_threads(&self) -> u32 {
        self.schedule.team_threads()
    }

    /// Whether a multiprocessor has so many threads that these are short of registers.
    pub(super) fn is_crowded(&self) -> bool {
        self.schedule.threads() * self.schedule.blocks >= CROWD
    }

    /// The number of a thread's pieces, if they are few.
    pub(super) fn piece_count(&self, shape: Shape) -> Option<u32> {
        let passes = shape.passes(self.copy_threads());
        Some(passes.row_passes * passes.column_passes).filter(|count| *count <= UNROLLED)
    }

    /// All pieces of a thread, if they are few.
    pub(super) fn few_pieces(&self, b: &mut Builder, shape: Shape, thread: Operand) -> Option<Vec<Piece>> {
        let count = self.piece_count(shape)?;
        let passes = shape.passes(self.copy_threads());
        let first = shape.first(b, &passes, thread);
        let pass = |i: u32| [i % passes.row_passes, i / passes.row_passes].map(|i| Operand::i32(i as i32));
        let piece = |i| {
            let [row, step] = pass(i);
            Piece { pass: Some(i), ..shape.piece(b, &passes, first, Corner { row, step }) }
        };
        Some((0..count).map(piece).collect())
    }

    /// The distance in rows between a thread's pieces, where the row is all that changes.
    pub(super) fn row_step(&self, shape: Shape) -> Option<u32> {
        let passes = shape.passes(self.copy_threads());
        (passes.column_passes == 1 && passes.row_passes <= UNROLLED).then_some(passes.rows)
    }

    /// Whether a branch keeps the loads of later pieces behind those of earlier ones: where many threads share the registers, segments of
    /// time and states that may not exist take some of them, and every piece has several loads.
    pub(super) fn branches_between_pieces(&self, loads: usize) -> bool {
        self.is_crowded() && self.schedule.segmented && self.schedule.padded && loads > 1
    }

    /// Emits statements for every piece of a thread; several at once, if each needs `loads` accesses.
    pub(crate) fn each_piece(
        &self,
        b: &mut Builder,
        shape: Shape,
        loads: usize,
        thread: Operand,
        mut body: impl FnMut(&mut Builder, &[Piece]),
    ) {
        if let Some(pieces) = self.few_pieces(b, shape, thread) {
            let at_once = ((LOADS_IN_FLIGHT / shape.width) as usize / loads.max(1)).max(1);
            let at_once = if self.is_crowded() { at_once.min(PIECES_OF_CROWDED) } else { at_once };
            return pieces.chunks(at_once).enumerate().for_each(|(number, some)| {
                if number > 0 && self.branches_between_pieces(loads) {
                    // `ptxas` moves no load across a branch. This one is always taken, which no compiler can know.
                    let has_states = b.binary(Binary::Gt, self.frame.state_count, 0);
                    return b.if_(has_states, |b| body(b, some));
                }
                if number > 0 && self.is_crowded() {
                    // `ptxas` does not move the loads of later pieces over this.
                    b.push(Stmt::SyncWarp);
                }
                body(b, some);
            });
        }
        let passes = shape.passes(self.copy_threads());
        let first = shape.first(b, &passes, thread);
        let count = Operand::i32((passes.row_passes * passes.column_passes) as i32);
        b.for_(Operand::i32(0), count, 1, |b, i| {
            let rows = Operand::i32(passes.row_passes as i32);
            let pass = Corner { row: b.binary(Binary::Rem, i, rows), step: b.binary(Binary::Div, i, rows) };
            let piece = shape.piece(b, &passes, first, pass);
            body(b, &[piece]);
        });
    }
}
