//! Flash: fused sums over all pairs of a row and a column, by matrix products.
//!
//! A stage in this [form](Pairwise) has sums over the columns n for every row m: of values of the column, times a weight of the pair.
//!
//! ```text
//! s[m, n] = Σ_e left[m, e]·right[n, e]        contractions, one or more
//! w[m, n] = any map of them, of the indices, and of what rows and columns have
//! y[m, f] = Σ_n w[m, n]·leaf[n, f]            payloads; without a leaf the sum of the weights
//! ```
//!
//! or, with a *gauge*, the softmax merge of (score[m, n], payloads): weights are 2^(κ·(score − M)) with the maximum M so far,
//! and earlier sums are scaled whenever the maximum grows. Attention is of this form, and so are both halves of its backward pass.
//! Nothing of the size of all pairs is ever stored. Sums may also be added up over one more axis, which only columns have, such as the
//! query heads that share the head of a key (grouped queries): a block goes through that axis in `grouped_query`.
//!
//! A block has 16·warps·repeat rows, which it keeps in shared memory, and walks tiles of columns, which come through a ring
//! of asynchronous copies. Products are matrix fragments with `f32` sums. Factors have 16 bits, or are `f32` in split tf32,
//! whose sums are in shared memory; a warp has `repeat` blocks of 16 rows, so that each fragment of columns serves all of
//! them. The thread with g = lane / 4 and t = lane mod 4 holds of a 16 × 8 block the rows g and g + 8 at the columns 2t and
//! 2t + 1 ([tile IR](crate::tile)): pairs and sums alike, so that weights never leave their registers. Warpgroups
//! (`sm_90a`) multiply straight from shared memory, and their fragments are the same. The rows and columns of a thread
//! are numbered.
//!
//! Conditions that compare the column with a value of the row are ranges of columns: tiles outside of them are not visited, and
//! only tiles that some rows see in part compare pair by pair. Rows, columns and elements within them that do not exist are
//! zeros in the tiles.

mod across;
mod assignment;
mod block_rows;
mod candidates;
mod coordinates;
mod cost;
mod finals;
mod grouped_query;
mod inspect;
mod lag;
mod non_finite;
mod overlap;
mod parameters;
mod persistent;
mod products;
mod staged_rows;
mod strategy;
mod sums;
mod tf32;
mod vectors;
mod visible;
mod walk;
mod weigh;
mod whole_rows;

pub use parameters::{Flash, SumsOver};

use super::{LowerError, Strategy};
use crate::block::args::Args;
use crate::block::layout::{Lanes, Tile, TileOf, TileShape, left_rows, right_rows};
use crate::block::matmul::{COLUMNS, ROWS};
use crate::block::rematerialise::Rematerialiser;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::Builder;
use crate::schedules::Unit;
use crate::stage::Stage;
use crate::stage::kind::Pairwise;
use crate::target::WARP;
use crate::tile::{Kernel, Operand, SharedId, SharedKind};
use across::AcrossArrays;
use assignment::Assignments;
use block_rows::BlockRows;
use oplus_dsl::ir::{Axis, AxisSet, Binary};
use oplus_dsl::{Elem, Ty};

use vectors::Vector;

/// A number for every pair of the thread: four for each 16 × 8 block, blocks of one 16 rows side by side.
type Grid = Vec<[Operand; 4]>;

/// The most that weights may exceed one by, so that they are finite in all 16-bit types, as a power of two.
const MOST_SLACK: u32 = 12;

/// The tile kernel of a stage under a flash schedule.
pub fn lower(stage: &Stage, schedule: &Flash, symbol: &str) -> Result<Kernel, LowerError> {
    let parameters = LowerError::parameters(schedule);
    let Flash { warps, repeat, unit, columns, depth, width, stages, vector, blocks, .. } = *schedule;
    let sixteenths = [columns, depth, width].iter().all(|n| *n > 0 && n.is_multiple_of(ROWS));
    let vectors = matches!(vector, 1 | 2 | 4 | 8);
    let units = unit == Unit::Warp || (warps.is_multiple_of(4) && [columns, depth, width].iter().all(|n| *n <= 256));
    let needs_copiers = schedule.turns || schedule.persistent || schedule.slack > 0;
    let counts = [warps, repeat, blocks].contains(&0) || warps + schedule.copiers > WARP || stages < 2;
    if !sixteenths
        || !vectors
        || !units
        || counts
        || schedule.copiers == 0 && needs_copiers
        || schedule.assigns() && stage.partial_axis.is_some()
        || schedule.slack > MOST_SLACK
    {
        return Err(parameters);
    }
    let of_kind = |refusal| LowerError::Kind { schedule: Flash::NAME, refusal };
    let form = stage.kind().pairwise().map_err(of_kind)?;
    if schedule.sums != SumsOver::Columns || form.across.is_some() {
        stage.kind().across().map_err(of_kind)?;
        if !across::has_parameters(schedule) {
            return Err(parameters);
        }
        if schedule.sums == SumsOver::Finish {
            return Ok(across::finish(stage, schedule, symbol));
        }
    } else if schedule.copiers > 0 && !overlap::can_overlap(stage, form, schedule) {
        return Err(parameters);
    }
    let mut b = Builder::new(symbol, schedule.threads());
    b.blocks_per_sm(blocks);
    let kernel = FlashKernel::declare(&mut b, stage, form, schedule).ok_or(parameters)?;
    kernel.body(&mut b);
    Ok(b.finish())
}

/// The shared memory of the kernel.
pub fn shared_bytes(stage: &Stage, schedule: &Flash) -> u32 {
    let Ok(form) = stage.kind().pairwise() else { return 0 };
    if schedule.sums == SumsOver::Finish {
        return 0;
    }
    Builder::shared_bytes_of(|b| drop(FlashKernel::declare(b, stage, form, schedule)))
}

/// The rows and columns that a thread has in a tile; each has a number.
#[derive(Clone, Copy)]
struct ThreadTile {
    /// Rows: 2h' + h is row g + 8h of the warp's block h'.
    rows: u32,
    /// Columns: 2j + c is column 2t + c of block j.
    columns: u32,
}

/// Warps of a block that work together.
#[derive(Clone, Copy)]
struct Team {
    /// The number of its first warp in the block.
    first: u32,
    /// Its warps.
    warps: u32,
    /// Blocks of 16 rows whose ranges a warp looks at.
    repeat: u32,
    /// The number of its barrier; 0 is that of the whole block.
    barrier: u32,
}

/// A stage with its arguments, tiles and thread coordinates. Immutable while code is emitted.
#[derive(Clone)]
struct FlashKernel<'s> {
    stage: &'s Stage,
    form: &'s Pairwise,
    schedule: &'s Flash,
    args: Args,
    row_tiles: Vec<Tile>,
    column_tiles: Vec<Tile>,
    /// The vectors that come with the tiles of columns.
    vectors: Vec<Vector>,
    /// The mbarriers that say of each stage of the ring that every thread has read it; where some warps only copy, those of each tile.
    empty: SharedId,
    /// The mbarriers that say of each warpgroup that it may start products.
    turns: SharedId,
    /// The mbarriers that say that every thread has read the tiles of rows, where blocks go on to others.
    rows_empty: SharedId,
    /// The mbarriers that say of tiles that rows see in part that they have been copied, to those that look through them.
    landed: Option<SharedId>,
    /// The assignments that warps that copy hand to those that walk, where blocks go from rows to rows.
    assignments: Option<Assignments>,
    /// The warps that walk and those that copy; or all, which do both.
    team: Team,
    /// The ends of ranges, of every warp.
    ends: SharedId,
    /// Flags of the shares of a tile in which non-finite elements were found.
    flags: SharedId,
    /// The arrays of sums over rows, where there are such.
    across: Option<AcrossArrays>,
    /// The sums of payloads that stand in shared memory.
    shared_sums: Vec<Option<SharedId>>,
    thread: Thread,
    fragment: FragmentPlace,
    /// The index along every axis of pairs but those of rows and columns.
    outer: Vec<(Axis, Operand)>,
    /// The block's first row, `i32`.
    first_row: Operand,
    /// The index in the array of a tile of rows at which a stage begins that nobody reads any more, where outputs are stored.
    free_rows: Option<Operand>,
    /// Which part of the columns the block has, and how many there are, `i32`; none where it has all of them.
    part: Option<(Operand, Operand)>,
    /// The rematerialised outer indices and first row, where sums or single elements leave no registers for them.
    rematerialiser: Option<Rematerialiser>,
}

impl<'s> FlashKernel<'s> {
    fn declare(b: &mut Builder, stage: &'s Stage, form: &'s Pairwise, schedule: &'s Flash) -> Option<Self> {
        let args = Args::declare(b, stage, schedule.abi(stage));
        let depth = |inner: Axis| if form.inner.first() == Some(&inner) { schedule.depth } else { schedule.width };
        let tile = |b: &mut Builder, along: Axis, (param, inner): (u32, Axis), rows: u32, stages: u32| {
            Tile::declare(b, stage, TileOf { param, along, inner }, TileShape { rows, depth: depth(inner), stages })
        };
        let mut row_tiles: Vec<Tile> = form
            .row_leaves()
            .into_iter()
            .map(|leaf| tile(b, form.row, leaf, schedule.rows(), schedule.row_stages()))
            .collect();
        let columns = form.column_leaves().into_iter();
        let mut column_tiles: Vec<Tile> =
            columns.map(|leaf| tile(b, form.column, leaf, schedule.columns, schedule.stages)).collect();
        // It begins at a multiple of 1024 bytes, as the tiles do.
        let weights = (schedule.sums == SumsOver::Both).then(|| AcrossArrays::weights(b, stage, form, schedule));
        let vectors = Vector::all(b, stage, form, schedule.columns, schedule.stages);
        let full = |b: &mut Builder, tile: &mut Tile, stages| {
            tile.full = b.shared(format!("{}_full", tile.name), SharedKind::Mbarrier, stages);
        };
        row_tiles.iter_mut().for_each(|tile| full(b, tile, schedule.row_stages()));
        column_tiles.iter_mut().for_each(|tile| full(b, tile, schedule.stages));
        let rings = if schedule.copiers > 0 { column_tiles.len() as u32 } else { 1 };
        let empty = b.shared("empty", SharedKind::Mbarrier, schedule.stages * rings);
        let turns = if schedule.turns { b.shared("turns", SharedKind::Mbarrier, schedule.groups()) } else { empty };
        let elem = row_tiles.first()?.elem;
        let same = row_tiles.iter().chain(&column_tiles).all(|t| t.elem == elem);
        let is_f32 = elem == Elem::F32 && schedule.unit == Unit::Warp;
        if !same || !(is_f32 || matches!(elem, Elem::Bf16 | Elem::F16)) {
            return None;
        }
        let rows_empty = if schedule.persistent {
            b.shared("rows_empty", SharedKind::Mbarrier, schedule.row_stages())
        } else {
            empty
        };
        let ends = b.shared("ends", SharedKind::Elem(Elem::I32), 4 * (schedule.warps + schedule.copiers));
        let team = Team { first: 0, warps: schedule.warps, repeat: schedule.repeat, barrier: 0 };
        let thread = Thread::of(b);
        let fragment = FragmentPlace::of(b, thread.lane);
        let rows = if schedule.persistent { BlockRows::none() } else { BlockRows::of(b, stage, &args, form, schedule) };
        let BlockRows { outer, first_row, part } = rows;
        let mut kernel = FlashKernel {
            stage,
            form,
            schedule,
            args,
            row_tiles,
            column_tiles,
            vectors,
            empty,
            turns,
            rows_empty,
            landed: None,
            assignments: None,
            team,
            ends,
            flags: ends,
            across: None,
            shared_sums: vec![],
            thread,
            fragment,
            outer,
            first_row,
            free_rows: None,
            part,
            rematerialiser: None,
        };
        kernel.declare_others(b, weights);
        Some(kernel)
    }

    /// Declares the arrays that only some kernels have. Sums over rows go through the tile of `weights`.
    fn declare_others(&mut self, b: &mut Builder, weights: Option<Tile>) {
        // Other kernels of f16 with whole accesses fit, and would not if the stores at their end rematerialised.
        let has_few = self.schedule.vector == 1 || self.schedule.unit == Unit::Warp && self.elem() == Elem::Bf16;
        if self.is_scarce() && has_few || self.has_ranges_beside_sums() {
            self.rematerialiser = Some(Rematerialiser::declare(b, self.outer.len() + 1));
        }
        let flags = self.flags();
        if flags > 0 {
            self.flags = b.shared("flags", SharedKind::Elem(Elem::I32), flags);
        }
        let landed = self.landed_stages();
        if landed > 0 {
            self.landed = Some(b.shared("landed", SharedKind::Mbarrier, landed));
        }
        self.declare_assignments(b);
        self.declare_sums(b);
        let tiles: Vec<&Tile> = self.row_tiles.iter().chain(&self.column_tiles).collect();
        self.across = weights.map(|weights| AcrossArrays::declare(b, weights, self.schedule, &tiles));
    }

    /// Whether sums and the rows of tiles leave so few registers that addresses are not kept from copy to copy.
    fn is_scarce(&self) -> bool {
        let several = self.form.contractions.len() > 1;
        self.schedule.width.max(self.schedule.depth) > 128 && (self.schedule.unit == Unit::Warp || several)
    }

    /// Whether a gradient in `f16` by whole accesses keeps the ranges of its rows beside sums that take half of the registers.
    fn has_ranges_beside_sums(&self) -> bool {
        let is_gradient = self.form.gauge.is_none() && self.form.payloads.iter().any(|payload| payload.leaf.is_some());
        // Warpgroups with several contractions have smaller tiles of columns.
        let is_full = self.schedule.unit == Unit::Warp || self.form.contractions.len() == 1;
        let is_long = self.schedule.width.max(self.schedule.depth) > 128;
        let is_whole = self.elem() == Elem::F16 && self.schedule.vector > 1;
        is_gradient && !self.form.limits.is_empty() && is_full && is_long && is_whole
    }

    /// Whether the lanes of factors are rematerialised for every tile, too: copies of single elements, or ranges of rows, leave no
    /// registers for them.
    fn has_no_lanes(&self) -> bool {
        let is_full = self.schedule.vector == 1 || self.has_ranges_beside_sums();
        self.rematerialiser.is_some() && is_full && self.elem() != Elem::F32
    }

    /// The kernel with rematerialised coordinates of block and thread where registers are scarce; else as it is.
    fn rematerialised(&self, b: &mut Builder) -> Self {
        let Some(rematerialiser) = self.rematerialiser else { return self.clone() };
        let thread = self.thread.rematerialised(b, rematerialiser);
        let fragment = FragmentPlace::of(b, thread.lane);
        let outer = rematerialiser.outer(b, &self.outer);
        let first_row = rematerialiser.read(b, self.outer.len());
        let first_row = b.convert(Ty::I32, first_row);
        FlashKernel { thread, fragment, outer, first_row, ..self.clone() }
    }

    fn thread_tile(&self) -> ThreadTile {
        ThreadTile { rows: 2 * self.team.repeat, columns: self.schedule.columns / COLUMNS * 2 }
    }

    /// The type of factors.
    fn elem(&self) -> Elem {
        self.row_tiles[0].elem
    }

    /// The tile of a parameter of the columns.
    fn column_tile(&self, param: u32) -> &Tile {
        self.column_tiles.iter().find(|t| t.param == param).expect("every leaf has a tile")
    }

    /// The tile of a parameter of the rows.
    fn row_tile(&self, param: u32) -> &Tile {
        self.row_tiles.iter().find(|t| t.param == param).expect("every leaf has a tile")
    }

    /// The lanes of a tile as a left factor.
    fn left_lanes(&self, b: &mut Builder, tile: &Tile) -> Lanes {
        let (row, half) = left_rows(b, self.thread.lane);
        let first = self.first_row_of_warp(b);
        let row = b.add(row, first);
        tile.lanes(b, row, half)
    }

    /// The first row of the warp in the block's tiles; that of its next 16 rows is [`Self::row_step`] further.
    fn first_row_of_warp(&self, b: &mut Builder) -> Operand {
        let Flash { repeat, unit, .. } = *self.schedule;
        match unit {
            Unit::Warp => b.mul(self.thread.warp, ROWS * repeat),
            Unit::Warpgroup => {
                let own = b.binary(Binary::Rem, self.thread.warp, 4);
                let own = b.mul(own, ROWS);
                let first = self.first_row_of_group(b);
                b.add(first, own)
            }
        }
    }

    /// The first row of the warpgroup in the block's tiles.
    fn first_row_of_group(&self, b: &mut Builder) -> Operand {
        let group = b.binary(Binary::Div, self.thread.warp, 4);
        b.mul(group, 4 * ROWS * self.schedule.repeat)
    }

    /// The distance in rows from one block of 16 rows of a warp to its next.
    fn row_step(&self) -> u32 {
        match self.schedule.unit {
            Unit::Warp => ROWS,
            Unit::Warpgroup => 4 * ROWS,
        }
    }

    fn right_lanes(&self, b: &mut Builder, tile: &Tile) -> Lanes {
        let (row, half) = right_rows(b, self.thread.lane);
        tile.lanes(b, row, half)
    }

    /// The lanes of a leaf as a right factor: read transposed, or of `f32` the rows 2t and 2t + 1 at column g.
    fn payload_lanes(&self, b: &mut Builder, leaf: Option<u32>) -> Vec<Lanes> {
        let Some(tile) = leaf.map(|param| self.column_tile(param)) else { return vec![] };
        if tile.elem != Elem::F32 {
            let (row, half) = left_rows(b, self.thread.lane);
            return vec![tile.lanes(b, row, half)];
        }
        let half = b.binary(Binary::Div, self.fragment.group, 4);
        let twice = self.fragment.column(b);
        let next = b.add(twice, 1);
        [twice, next].map(|row| tile.lanes(b, row, half)).to_vec()
    }
}

/// The axes over which pairs are computed apart.
pub fn outer_axes(form: &Pairwise) -> AxisSet {
    form.grouped.into_iter().fold(form.pair.without(form.row).without(form.column), AxisSet::without)
}
