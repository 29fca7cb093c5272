//! States of `f16` that are multiplied by a power of two, so that products take the state and keys as `f16` without leaving its range.
//!
//! A warp multiplies its rows of the state by one power of two and keeps them so. What is read of the state is divided by it; everything else of a
//! chunk, but the rows that are added times keys, is as without.
//!
//! A warp walks a tile of times with one power, and sees at the end whether a number has left the range, which leaves an infinity or a NaN in
//! every number of its row, or whether all numbers have been small before some chunk. Then it walks the tile once more, from the state that it
//! has kept in shared memory, and [changes the power](PowerCheck::BeforeProducts) where it has to: when a number of the state is 2 or more, all are below 2⁻⁷, or a row
//! that is added would leave the range. Few tiles need it,
//! and branches between products would slow down all of them.

use super::rates::ADDED;
use super::state::{Scale, State};
use super::{ChunkDelta, DeltaKernel, ELEMENTS, RuleSweep};
use crate::abi::{Tensor, elem};
use crate::block::lane_sum::over_lanes;
use crate::block::matmul::{Blocks, assign_blocks, block_values, block_vars};
use crate::block::parts::Parts;
use crate::block::powers::{LARGE, NOT_SMALL, at_most, inverse, largest_finite};
use crate::block::prepare::factor_elem;
use crate::build::{Builder, f32, zero};
use crate::stage::Stage;
use crate::stage::kind::DeltaRule;
use crate::target::WARP;
use crate::tile::{Expr, Memory, Operand, Reg};
use oplus_dsl::ir::{Binary, Unary};
use oplus_dsl::{Elem, Ty};
use std::cell::RefCell;

/// The bits of a pair of `f16` of which one is set where a number is 2⁻¹¹ or more: before every chunk of a tile that is walked with one power some
/// number of a state is. What rounding takes away is below 2⁻¹⁴ of it.
const ENOUGH: i32 = 0x7000_7000;
/// A new power brings the largest number of a state to at least this, and to less than twice this.
const MIDDLE: f64 = 0.125;
/// A power that is changed for the rows that are added brings the largest of these to at least this, and to less than twice this.
const MIDDLE_OF_ROWS: f64 = 1024.0;
/// Rows that are added may be as large as this.
const MOST_OF_ROWS: f64 = 32768.0;
/// The greatest power: a state below its inverse gives nothing that `f16` could hold.
const MOST_POWER: f64 = (1_u64 << 30) as f64;

/// When a walk checks whether the power of its state has to change.
pub(in crate::schedules) enum PowerCheck {
    /// Before products are taken.
    BeforeProducts,
    /// After the tile, by bits of the state that each thread has collected: one word for each chunk. A vote of the warp between products would
    /// keep reads of shared memory from moving ahead.
    AfterTile(RefCell<Vec<Operand>>),
}

/// Blocks of walks share a multiprocessor up to this depth. Their threads then have too few registers to walk a tile twice.
const MOST_SHARED: u32 = 64;

/// Whether products take a rule's keys as `f16`, and its states times powers of two: in the walks of gradients of large depth, whose states would
/// else be in two parts. Decays for each channel leave that range.
pub(in crate::schedules) fn are_scaled(stage: &Stage, form: &DeltaRule, schedule: &ChunkDelta) -> bool {
    let is_half = elem(stage, Tensor::Param(form.key)) == Elem::F16 && schedule.vector > 1;
    let is_walk = stage.kind().delta_back().is_ok() && schedule.depth > MOST_SHARED;
    is_half && is_walk && form.channels.is_none() && !form.has_two_keys()
}

/// The type in which the factors over the depth lie in shared memory, where they are not made of other tiles.
pub(super) fn deep_elem(stage: &Stage, form: &DeltaRule, schedule: &ChunkDelta) -> Elem {
    let own = elem(stage, Tensor::Param(form.key));
    // A kernel that prepares tiles writes factors in the place of these elements.
    let is_made = form.channels.is_some() && schedule.sweep != RuleSweep::Prepare;
    let is_copied = is_made || are_scaled(stage, form, schedule);
    if is_copied { own } else { factor_elem(own, schedule.vector, schedule.depth) }
}

impl Scale {
    /// Multiplies a state, and its power, by a power of two.
    fn change(self, b: &mut Builder, blocks: &[[Reg; 4]], by: Operand) {
        let (power, by_undone) = (b.mul(self.power.into(), by), inverse(b, by));
        let undone = b.mul(self.undone.into(), by_undone);
        b.assign(self.power, power);
        b.assign(self.undone, undone);
        multiply(b, blocks, by);
    }
}

/// Numbers at the thread's two columns of both blocks of eight times of a chunk.
pub(in crate::schedules) type Columns = [[Operand; 2]; 2];

/// Rows times numbers for each time.
pub(in crate::schedules) fn times_columns(b: &mut Builder, rows: &Blocks, numbers: Columns) -> Blocks {
    let own = rows.iter().zip(numbers);
    own.map(|(rows, numbers)| ELEMENTS.map(|(h, c)| b.mul(rows[2 * h + c], numbers[c]))).collect()
}

/// Decays times the number that products with a state are to be multiplied by, where there are any.
pub(in crate::schedules) fn undecayed(
    b: &mut Builder,
    decays: Option<[Operand; 2]>,
    undone: Option<Operand>,
) -> Option<[Operand; 2]> {
    match decays {
        Some(decays) => Some(times(b, decays, undone)),
        None => undone.map(|undone| [undone; 2]),
    }
}

/// Two numbers times another one, if there is one.
pub(in crate::schedules) fn times(b: &mut Builder, two: [Operand; 2], by: Option<Operand>) -> [Operand; 2] {
    by.map_or(two, |by| two.map(|number| b.mul(number, by)))
}

impl DeltaKernel<'_> {
    /// Whether states are scaled.
    pub(in crate::schedules) fn scales_states(&self) -> bool {
        are_scaled(self.stage, self.form, self.schedule)
    }

    /// Walks a tile of times: a scaled state with one power, and once more if that has to change.
    pub(in crate::schedules) fn walk_tile(
        &self,
        b: &mut Builder,
        state: &State,
        mut walk: impl FnMut(&mut Builder, &PowerCheck),
    ) {
        let (Some(scale), Some(kept)) = (state.scale, self.kept) else { return walk(b, &PowerCheck::BeforeProducts) };
        let numbers = [scale.power, scale.undone].map(|reg| b.let_(Ty::F32, Expr::Copy(reg.into())));
        let place = |b: &mut Builder, block: usize| {
            let before = b.mul(self.thread.number, 4);
            b.add(before, block as u32 * self.schedule.walkers() * WARP * 4)
        };
        for (i, block) in state.blocks.iter().enumerate() {
            let at = place(b, i);
            b.store(Memory::Shared(kept), at, &block.map(Operand::Reg), None);
        }
        let check = PowerCheck::AfterTile(RefCell::new(vec![]));
        walk(b, &check);
        let again = self.needs_second_walk(b, state, scale, check);
        b.if_(again, |b| {
            [scale.power, scale.undone].into_iter().zip(numbers).for_each(|(reg, number)| b.assign(reg, number));
            for (i, block) in state.blocks.iter().enumerate() {
                let at = place(b, i);
                let numbers = b.load(Memory::Shared(kept), at, 4, None, zero(Ty::F32));
                block.iter().zip(numbers).for_each(|(reg, number)| b.assign(*reg, number));
            }
            walk(b, &PowerCheck::BeforeProducts);
        });
    }

    /// Whether a tile that was walked with one power has to be walked again: for all threads of a warp.
    fn needs_second_walk(&self, b: &mut Builder, state: &State, scale: Scale, check: PowerCheck) -> Operand {
        let PowerCheck::AfterTile(seen) = check else { return Operand::bool(false) };
        let may_grow = b.lt(scale.power.into(), f32(MOST_POWER));
        let are_small = seen.into_inner().into_iter().map(|seen| are_none(b, seen, ENOUGH)).collect();
        let small = in_pairs(b, Binary::Or, are_small);
        let grows = b.and(small, may_grow);
        // Of each of a thread's two rows.
        let are_finite = [0, 2].map(|element: usize| {
            let magnitude = b.unary(Unary::Abs, state.blocks[0][element].into());
            b.binary(Binary::Le, magnitude, f32(f64::from(f32::MAX)))
        });
        let finite = b.and(are_finite[0], are_finite[1]);
        let finite = b.all(finite);
        let stays = b.unary(Unary::Not, grows);
        let stays = b.and(stays, finite);
        b.unary(Unary::Not, stays)
    }

    /// What `read` computes from the state as left factors. If the power of a scaled state has to change, it is computed again. `given` are the rows
    /// of values that the next steps add. They limit how far a power grows.
    pub(in crate::schedules) fn reading(
        &self,
        b: &mut Builder,
        (state, check): (&State, &PowerCheck),
        given: impl FnOnce(&mut Builder) -> Blocks,
        read: impl Fn(&mut Builder, &[Parts]) -> Vec<Blocks>,
    ) -> Vec<Blocks> {
        let Some(scale) = state.scale else {
            let left = self.left_of(b, state);
            return read(b, &left);
        };
        if let PowerCheck::AfterTile(seen_before) = check {
            let left: Vec<[Operand; 4]> = state.blocks.chunks(2).map(|two| packed(b, two)).collect();
            let seen = in_pairs(b, Binary::Or, left.iter().flatten().copied().collect());
            seen_before.borrow_mut().push(seen);
            let left: Vec<Parts> = left.into_iter().map(|four| Parts::of_registers(four, None)).collect();
            return read(b, &left);
        }
        let packed: Vec<[Reg; 4]> = state.blocks.chunks(2).map(|two| packed(b, two).map(|pair| b.var(pair))).collect();
        let left: Vec<Parts> = packed.iter().map(|four| Parts::of_registers(four.map(Operand::Reg), None)).collect();
        let leaves = leaves(b, scale, &packed);
        let blocks: Vec<Vec<[Reg; 4]>> = read(b, &left).iter().map(|blocks| block_vars(b, blocks)).collect();
        b.if_(leaves, |b| {
            let given = given(b);
            rescale(b, state, scale, &given);
            for (regs, two) in packed.iter().zip(state.blocks.chunks(2)) {
                let again = self::packed(b, two);
                regs.iter().zip(again).for_each(|(reg, pair)| b.assign(*reg, pair));
            }
            let again = read(b, &left);
            blocks.iter().zip(again).for_each(|(regs, blocks)| assign_blocks(b, regs, &blocks));
        });
        blocks.iter().map(|regs| block_values(regs)).collect()
    }

    /// Rows that are added times keys, each times numbers of its times, as left factors: times the state's power, if it is scaled, which becomes
    /// less where one would leave the range of `f16`.
    pub(in crate::schedules) fn added_rows(
        &self,
        b: &mut Builder,
        (state, check): (&State, &PowerCheck),
        rows: &[(&Blocks, Columns)],
    ) -> Vec<Parts> {
        let Some(scale) = state.scale else {
            let left = |b: &mut Builder, (rows, numbers): (&Blocks, Columns)| {
                let rows = times_columns(b, rows, numbers);
                Parts::of_blocks(b, self.elem(), &rows)
            };
            return rows.iter().map(|own| left(b, *own)).collect();
        };
        let powered = |b: &mut Builder, (rows, numbers): (&Blocks, Columns)| {
            let numbers = numbers.map(|two| times(b, two, Some(scale.power.into())));
            times_columns(b, rows, numbers)
        };
        let rows: Vec<Blocks> = rows.iter().map(|own| powered(b, *own)).collect();
        if let PowerCheck::AfterTile(_) = check {
            return rows.iter().map(|rows| Parts::of_blocks(b, Elem::F16, rows)).collect();
        }
        let all: Vec<Operand> = rows.iter().flatten().flatten().copied().collect();
        let largest = largest(b, &all);
        let is_large = b.lt(f32(MOST_OF_ROWS), largest);
        let fits = b.unary(Unary::Not, is_large);
        let fit = b.all(fits);
        let leaves = b.unary(Unary::Not, fit);
        let regs: Vec<Vec<[Reg; 4]>> = rows.iter().map(|rows| block_vars(b, rows)).collect();
        b.if_(leaves, |b| {
            let largest = largest_finite(b, &all);
            let by = inverse_of_largest(b, largest, MIDDLE_OF_ROWS);
            let by = b.binary(Binary::Min, by, f32(1.0));
            scale.change(b, &state.blocks, by);
            regs.iter().for_each(|rows| multiply(b, rows, by));
        });
        regs.iter().map(|rows| Parts::of_blocks(b, Elem::F16, &block_values(rows))).collect()
    }

    /// The values of a chunk times their numbers.
    pub(in crate::schedules) fn given_rows(
        &self,
        b: &mut Builder,
        values: &Blocks,
        from: Operand,
        chunk: u32,
    ) -> Blocks {
        let mut rows: Blocks = vec![];
        for (eight, own) in (0..).zip(values) {
            let added = self.two_rates(b, ADDED, from, 2 * chunk + eight);
            rows.push(ELEMENTS.map(|(h, c)| b.mul(own[2 * h + c], added[c])));
        }
        rows
    }
}

/// Changes the power of a state so that its largest number is near 1, but makes it no greater than rows have room for.
fn rescale(b: &mut Builder, state: &State, scale: Scale, given: &Blocks) {
    let numbers: Vec<Operand> = state.blocks.iter().flatten().map(|reg| Operand::Reg(*reg)).collect();
    let largest = largest_finite(b, &numbers);
    let by = inverse_of_largest(b, largest, MIDDLE);
    let given: Vec<Operand> = given.iter().flatten().copied().collect();
    let of_rows = largest_finite(b, &given);
    let of_rows = b.mul(of_rows, Operand::Reg(scale.power));
    let most = inverse_of_largest(b, of_rows, MIDDLE_OF_ROWS);
    let least = b.binary(Binary::Min, by, f32(1.0));
    let by = b.binary(Binary::Min, by, most);
    let by = b.binary(Binary::Max, by, least);
    let power = b.mul(scale.power.into(), by);
    let power = b.binary(Binary::Min, power, f32(MOST_POWER));
    let by = b.mul(power, Operand::Reg(scale.undone));
    scale.change(b, &state.blocks, by);
}

/// The power of two that brings the largest of the numbers of a warp's threads to at least `to`, and to less than twice that.
fn inverse_of_largest(b: &mut Builder, largest: Operand, to: f64) -> Operand {
    let largest = over_lanes(b, Binary::Max, largest, &[1, 2, 4, 8, 16]);
    let power = at_most(b, largest);
    let by = inverse(b, power);
    b.mul(by, f32(to))
}

/// Whether packed pairs of a state say that its power has to change.
fn leaves(b: &mut Builder, scale: Scale, packed: &[[Reg; 4]]) -> Operand {
    let pairs = packed.iter().flatten().map(|pair| Operand::Reg(*pair)).collect();
    let seen = in_pairs(b, Binary::Or, pairs);
    let (none_large, all_small) = (are_none(b, seen, LARGE), are_none(b, seen, NOT_SMALL));
    let may_grow = b.lt(scale.power.into(), f32(MOST_POWER));
    let grows = b.and(all_small, may_grow);
    let stays = b.unary(Unary::Not, grows);
    let stays = b.and(stays, none_large);
    b.unary(Unary::Not, stays)
}

/// Whether no thread of the warp has seen one of some bits.
fn are_none(b: &mut Builder, seen: Operand, bits: i32) -> Operand {
    let set = b.binary(Binary::And, seen, bits);
    let is_none = b.eq(set, 0);
    b.all(is_none)
}

/// The largest magnitude of numbers.
fn largest(b: &mut Builder, numbers: &[Operand]) -> Operand {
    let all: Vec<Operand> = numbers.iter().map(|x| b.unary(Unary::Abs, *x)).collect();
    in_pairs(b, Binary::Max, all)
}

/// Numbers combined pair by pair, so that few operations wait for one another.
fn in_pairs(b: &mut Builder, op: Binary, mut all: Vec<Operand>) -> Operand {
    while all.len() > 1 {
        all =
            all.chunks(2).map(|two| two.iter().copied().reduce(|x, y| b.binary(op, x, y)).unwrap_or(two[0])).collect();
    }
    all[0]
}

/// Two blocks of a state as packed pairs.
fn packed(b: &mut Builder, two: &[[Reg; 4]]) -> [Operand; 4] {
    Parts::of_blocks(b, Elem::F16, &block_values(two)).high()
}

fn multiply(b: &mut Builder, blocks: &[[Reg; 4]], by: Operand) {
    for reg in blocks.iter().flatten() {
        let scaled = b.mul((*reg).into(), by);
        b.assign(*reg, scaled);
    }
}
