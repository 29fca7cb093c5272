//! Blocks in which some warps only copy, and the others overlap: they start the contraction of a tile before the payload's product
//! of the tile before, and evaluate its weights meanwhile.
//!
//! Each tile of columns has a ring of its own, as contractions leave theirs earlier. The tiles of contractions are copied one
//! iteration ahead of those of payloads.

use super::grouped_query::Iterations;
use super::parameters::GROUP;
use super::sums::{BlockSums, PayloadSums, Sums};
use super::vectors::Vector;
use super::walk::{Packed, Past, TileLoop, Walk};
use super::weigh::Weights;
use super::{FlashKernel, Grid, ROWS, Team};
use crate::block::ring::RingStage;
use crate::block::roles;
use crate::block::thread::Thread;
use crate::build::Builder;
use crate::schedules::{Flash, Unit};
use crate::stage::Stage;
use crate::stage::kind::Pairwise;
use crate::target::WARP;
use crate::tile::{Mbarrier, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// Registers for weights as left factors: for every 16 rows, those of every step of columns.
pub(super) type PackedRegisters = Vec<Vec<[Reg; 4]>>;

/// A tile that has been copied.
#[derive(Clone, Copy)]
pub(super) struct FilledTile {
    /// The stage of its ring.
    pub filled: RingStage,
    /// The iteration in which it is walked, `i32`.
    pub iteration: Operand,
}

/// The number of the barrier of those that walk.
pub(super) const WALKERS: u32 = 1;
/// The number of the barrier of those that copy.
pub(super) const COPIERS: u32 = 2;

/// Whether the warps of a block may overlap contractions of a stage with its payloads' products.
pub(super) fn can_overlap(stage: &Stage, form: &Pairwise, schedule: &Flash) -> bool {
    let Flash { unit, vector, warps, copiers, .. } = *schedule;
    let groups = unit == Unit::Warpgroup && warps.is_multiple_of(GROUP) && copiers > 0 && copiers.is_multiple_of(GROUP);
    let plain = form.grouped.is_none() && form.conditions.is_empty() && form.contractions.len() == 1;
    let payloads = form.payloads.iter().all(|p| p.conditions.is_empty());
    // A contraction leaves its tile before the payloads do, and numbers of columns come with no tile of their own.
    let leaf = |param: u32| form.payloads.iter().any(|p| p.leaf.is_some_and(|(own, _)| own == param));
    let apart = !form.contractions.iter().any(|c| leaf(c.right)) && Vector::params(stage, form).is_empty();
    groups && vector > 1 && plain && payloads && apart && form.gauge.is_some()
}

impl FlashKernel<'_> {
    /// Waits for all threads of the team.
    pub(super) fn team_barrier(&self, b: &mut Builder) {
        match self.team.barrier {
            0 => b.barrier(),
            id => b.push(Stmt::Barrier { id, threads: self.team.warps * WARP }),
        }
    }

    /// Says that the thread has read the tile of one ring.
    pub(super) fn leave_ring(&self, b: &mut Builder, ring: usize, stage: Operand) {
        let at = b.add(stage, ring as u32 * self.schedule.stages);
        b.arrive(self.empty, at);
    }

    /// The rings of tiles that are contracted and not read by payloads, or the others.
    pub(super) fn rings(&self, contracted: bool) -> Vec<usize> {
        let leaf = |param: u32| self.form.payloads.iter().any(|p| p.leaf.is_some_and(|(own, _)| own == param));
        (0..self.column_tiles.len()).filter(|ring| leaf(self.column_tiles[*ring].param) != contracted).collect()
    }

    /// Divides the block in warps that walk and warps that copy.
    pub(super) fn roles(&self, b: &mut Builder) {
        let Flash { warps, copiers, repeat, .. } = *self.schedule;
        let walks = b.lt(self.thread.warp, warps);
        let walk = |b: &mut Builder| {
            self.with_team(b, Team { first: 0, warps, repeat, barrier: WALKERS }).walk_role(b);
        };
        let copy = |b: &mut Builder| {
            let repeat = repeat * self.schedule.groups();
            self.with_team(b, Team { first: warps, warps: copiers, repeat, barrier: COPIERS }).copy_role(b);
        };
        roles::divide(b, walks, self.schedule.registers(), walk, copy);
    }

    /// The kernel as a team of warps sees it.
    pub(super) fn with_team(&self, b: &mut Builder, team: Team) -> Self {
        let Thread { number, warp, lane } = self.thread;
        let thread = Thread { number: b.sub(number, team.first * WARP), warp: b.sub(warp, team.first), lane };
        FlashKernel { team, thread, ..self.clone() }
    }

    /// Walks the tiles of all rows of the block.
    fn walk_role(&self, b: &mut Builder) {
        if self.schedule.persistent {
            return self.walk_all_rows(b);
        }
        self.in_tile_loop(b, Past::default(), |b, tile_loop, values| {
            self.walk(b, tile_loop, values, |b, walk| self.overlapped_tiles(b, walk));
        });
    }

    /// Copies the rows of the block and all tiles of columns.
    fn copy_role(&self, b: &mut Builder) {
        if self.schedule.persistent {
            return self.copy_all_rows(b);
        }
        self.in_tile_loop(b, Past::default(), |b, tile_loop, _| {
            self.copy_tiles(b, tile_loop, &self.rings(true), Operand::i32(0));
            self.fill_rows(b, tile_loop.source, Operand::i32(0));
            self.copy_columns(b, tile_loop);
        });
    }

    /// Copies the tiles of columns of some rows, but the first one that is contracted.
    pub(super) fn copy_columns(&self, b: &mut Builder, tile_loop: &TileLoop) {
        let (ahead, behind) = (self.rings(true), self.rings(false));
        // The last iteration only looks through the tile before.
        let more = i32::from(self.landed.is_some());
        let end = b.add(tile_loop.iterations.count, more);
        b.for_(Operand::i32(0), end, 1, |b, iteration| {
            let next = b.add(iteration, 1);
            let before = b.sub(iteration, 1);
            // The contraction that leaves the stage of the next tile needs nothing of the tile before.
            self.copy_tiles(b, tile_loop, &ahead, next);
            self.inspect(b, tile_loop, &behind, before);
            self.copy_tiles(b, tile_loop, &behind, iteration);
        });
    }

    /// Copies the tiles of some rings for an iteration, if there is one, once they have been left.
    pub(super) fn copy_tiles(&self, b: &mut Builder, tile_loop: &TileLoop, rings: &[usize], iteration: Operand) {
        let exists = b.lt(iteration, tile_loop.iterations.count);
        b.if_(exists, |b| {
            let next = tile_loop.iterations.iteration_at(b, tile_loop.ahead, iteration);
            let first = b.mul(next.tile, self.schedule.columns);
            let filled = self.filled(b, tile_loop, iteration);
            let left = filled.before(b);
            for ring in rings {
                let at = b.add(left.index, *ring as u32 * self.schedule.stages);
                b.wait(self.empty, RingStage { index: at, ..left });
                let origin = tile_loop.origins[*ring].offset.into();
                self.column_tiles[*ring].start_copies_in_steps(b, tile_loop.source, origin, first, filled.index);
                self.arrive_copied(b, tile_loop, *ring, filled.index, iteration);
            }
        });
    }

    /// All tiles that rows of the warpgroup see: first those of which rows see some columns only.
    fn overlapped_tiles(&self, b: &mut Builder, walk: &Walk) {
        let Iterations { partial, count, tiles, .. } = walk.tile_loop.iterations;
        let first = self.unseen(b, &tiles);
        if !self.form.limits.is_empty() {
            b.for_(Operand::i32(0), first, 1, |b, iteration| self.leave_out(b, walk, iteration));
        }
        let some = b.lt(first, count);
        b.if_(some, |b| {
            let packed = self.packed_registers(b);
            let is_partial = b.lt(first, partial);
            b.if_else(
                is_partial,
                |b| self.first_tile(b, walk, first, &packed, true),
                |b| self.first_tile(b, walk, first, &packed, false),
            );
            self.later_tiles(b, walk, first, &packed);
            let last = b.sub(count, 1);
            self.last_products(b, walk, last, &packed);
        });
    }

    /// The tiles behind the first one, without the products of the last.
    pub(super) fn later_tiles(&self, b: &mut Builder, walk: &Walk, first: Operand, packed: &[Option<PackedRegisters>]) {
        let Iterations { partial, count, .. } = walk.tile_loop.iterations;
        let second = b.add(first, 1);
        b.for_(second, partial, 1, |b, iteration| self.overlapped(b, walk, iteration, packed, true));
        let from = b.binary(Binary::Max, partial, second);
        b.for_(from, count, 1, |b, iteration| self.overlapped(b, walk, iteration, packed, false));
    }

    /// Registers for the packed weights of every payload with a leaf.
    pub(super) fn packed_registers(&self, b: &mut Builder) -> Vec<Option<PackedRegisters>> {
        let steps = self.schedule.columns / ROWS;
        let mut four = || [0; 4].map(|_| b.reg(Ty::U32));
        let mut rows = || (0..self.schedule.repeat).map(|_| (0..steps).map(|_| four()).collect()).collect();
        self.form.payloads.iter().map(|p| p.leaf.map(|_| rows())).collect()
    }

    /// Leaves a tile that no row of the warpgroup sees, once it has been copied.
    pub(super) fn leave_out(&self, b: &mut Builder, walk: &Walk, iteration: Operand) {
        let filled = self.filled(b, walk.tile_loop, iteration);
        self.take_turn(b, walk, iteration);
        self.pass_turn(b);
        // Contracted ones first: the copying warps wait for their stage before they look through the others.
        for ring in self.rings(true).into_iter().chain(self.rings(false)) {
            b.wait(self.column_tiles[ring].full, filled);
            self.leave_ring(b, ring, filled.index);
        }
    }

    /// Starts the contraction of the first tile that is seen, and evaluates its weights.
    fn first_tile(
        &self,
        b: &mut Builder,
        walk: &Walk,
        first: Operand,
        packed: &[Option<PackedRegisters>],
        partial: bool,
    ) {
        let filled = self.filled(b, walk.tile_loop, first);
        self.wait_for(b, &self.contracted(), filled, &mut vec![]);
        self.take_turn(b, walk, first);
        let products = self.start_contractions(b, walk, filled.index);
        self.pass_turn(b);
        self.first_weights(b, walk, &products, FilledTile { filled, iteration: first }, packed, partial);
    }

    /// Evaluates the weights of the first tile that is seen, whose contraction has been started, and packs them.
    pub(super) fn first_weights(
        &self,
        b: &mut Builder,
        walk: &Walk,
        products: &[Grid],
        at: FilledTile,
        packed: &[Option<PackedRegisters>],
        partial: bool,
    ) {
        let weights = self.evaluate(b, walk, products, at, 0, partial);
        self.take_over(b, walk, &weights, at, packed, partial);
    }

    /// Starts the contraction of a tile and the products of the one before, whose weights are packed, and evaluates the weights.
    fn overlapped(
        &self,
        b: &mut Builder,
        walk: &Walk,
        iteration: Operand,
        packed: &[Option<PackedRegisters>],
        partial: bool,
    ) {
        let filled = self.filled(b, walk.tile_loop, iteration);
        let earlier = b.sub(iteration, 1);
        let before = self.filled(b, walk.tile_loop, earlier);
        self.take_turn(b, walk, iteration);
        let products = self.start_contractions(b, walk, filled.index);
        let later = self.start_packed(b, walk.sums, packed, before);
        let at = FilledTile { filled, iteration };
        let weights = self.evaluate(b, walk, &products, at, later, partial);
        let leaves = self.form.payloads.iter().zip(&weights.grids).filter(|(p, _)| p.leaf.is_some());
        let own: Vec<Grid> = leaves.map(|(_, grid)| grid.clone()).collect();
        self.finish_sums(b, walk.sums, &own);
        for ring in self.rings(false) {
            self.leave_ring(b, ring, before.index);
        }
        self.take_over(b, walk, &weights, at, packed, partial);
    }

    /// Scales the sums to a tile's weights, which are packed for its products. Where rows see some columns only, non-finite elements
    /// have been taken out of the payloads: the rows that see them have them as sums from then on.
    fn take_over(
        &self,
        b: &mut Builder,
        walk: &Walk,
        weights: &Weights,
        FilledTile { filled, iteration }: FilledTile,
        packed: &[Option<PackedRegisters>],
        partial: bool,
    ) {
        self.shrink(b, walk.sums, weights);
        let next = self.packed(b, weights);
        let registers = packed.iter().flatten().flatten().flatten();
        for (registers, next) in registers.zip(next.iter().flatten().flatten().flatten()) {
            registers.iter().zip(next).for_each(|(reg, next)| b.assign(*reg, *next));
        }
        let non_finite = self.inspected(b, &self.hidden(partial), filled.index);
        let first = self.first_column(b, walk, iteration);
        self.put_back(b, walk, first, &non_finite);
    }

    /// The first column of an iteration's tile.
    fn first_column(&self, b: &mut Builder, walk: &Walk, iteration: Operand) -> Operand {
        let tile = walk.tile_loop.iterations.tiles.at(b, iteration);
        b.mul(tile, self.schedule.columns)
    }

    /// The products of the last tile.
    fn last_products(&self, b: &mut Builder, walk: &Walk, last: Operand, packed: &[Option<PackedRegisters>]) {
        let filled = self.filled(b, walk.tile_loop, last);
        self.start_packed(b, walk.sums, packed, filled);
        self.finish_sums(b, walk.sums, &[]);
        for ring in self.rings(false) {
            self.leave_ring(b, ring, filled.index);
        }
    }

    /// Starts the payloads' products of a tile that is there; gives how many.
    pub(super) fn start_packed(
        &self,
        b: &mut Builder,
        sums: &Sums,
        packed: &[Option<PackedRegisters>],
        filled: RingStage,
    ) -> u32 {
        for ((payload, sums), packed) in self.form.payloads.iter().zip(&sums.payloads).zip(packed) {
            if let (Some((param, _)), PayloadSums::Blocks(BlockSums::Registers(sums)), Some(packed)) =
                (payload.leaf, sums, packed)
            {
                let operands = |rows: &Vec<[Reg; 4]>| rows.iter().map(|four| four.map(Operand::Reg)).collect();
                let packed: Packed = packed.iter().map(operands).collect();
                let tile = self.column_tile(param);
                let start = b.mul(filled.index, tile.len());
                self.accumulate(b, tile, &[], &packed, sums, start);
            }
        }
        packed.iter().flatten().count() as u32 * self.schedule.repeat
    }

    /// The weights of a tile of a stage, once its contraction has ended, after which `later` products have been started.
    fn evaluate(
        &self,
        b: &mut Builder,
        walk: &Walk,
        products: &[Grid],
        FilledTile { filled, iteration }: FilledTile,
        later: u32,
        partial: bool,
    ) -> Weights {
        let first = self.first_column(b, walk, iteration);
        self.finish_before(b, &products[0], later);
        if later > 0 {
            // Not before: the tensor cores would share their time between both contractions, and both would end late.
            self.pass_turn(b);
        }
        for ring in self.rings(true) {
            self.leave_ring(b, ring, filled.index);
        }
        let weights = self.weights(b, walk, products, filled.index, first, partial);
        // The products that come next take the payloads of this tile and the contraction of the next one. These are waited for here so
        // that the assembler evaluates the weights before it waits for the products under way: it moves no instruction across the
        // branches.
        let next = b.add(iteration, 1);
        let exists = b.lt(next, walk.tile_loop.iterations.count);
        b.if_(exists, |b| {
            let filled = self.filled(b, walk.tile_loop, next);
            self.contracted().iter().for_each(|param| b.wait(self.column_tile(*param).full, filled));
        });
        self.wait_for(b, &self.leaves(), filled, &mut vec![]);
        weights
    }

    /// The parameters of payloads.
    fn leaves(&self) -> Vec<u32> {
        self.form.payloads.iter().filter_map(|p| p.leaf.map(|(param, _)| param)).collect()
    }

    /// Waits until the thread's warpgroup may start products.
    pub(super) fn take_turn(&self, b: &mut Builder, walk: &Walk, iteration: Operand) {
        if !self.schedule.turns {
            return;
        }
        let group = b.binary(Binary::Div, self.thread.warp, GROUP);
        // The first products of the first group wait for no other group.
        let number = walk.tile_loop.past.tiles.map_or(iteration, |before| b.add(before.into(), iteration));
        let first = b.eq(group, 0);
        let more = b.select(first, Operand::i32(1), Operand::i32(0));
        let number = b.add(number, more);
        let parity = b.binary(Binary::And, number, 1);
        b.push(Stmt::MbarrierWait(Mbarrier { array: self.turns, index: group }, parity));
    }

    /// Lets the next warpgroup start products.
    pub(super) fn pass_turn(&self, b: &mut Builder) {
        if !self.schedule.turns {
            return;
        }
        let group = b.binary(Binary::Div, self.thread.warp, GROUP);
        let next = b.add(group, 1);
        let next = b.binary(Binary::Rem, next, self.schedule.groups());
        b.arrive(self.turns, next);
    }
}
