//! Factors of `f16` for a warpgroup, which are multiplied as they are: states, weights and scaled values take the range of `f16` by powers
//! of two.
//!
//! A warp multiplies its rows of the state by a power of two and keeps them so; the product with queries is divided by it. The power is
//! at most the inverse of the greatest of the gains scaled to a chunk's end, so that no value beside it is too large for `f16`. It changes when
//! a number of the state is 2 or more, or all are below 2⁻⁷: so what is rounded away is below 2⁻¹⁸ of the largest number. A row of
//! weights is divided by a power of two, and what it is added to as well, where its largest number is far from 1.

use super::decay::{Decays, f32};
use super::state::State;
use super::{ChunkwiseKernel, ROWS};
use crate::block::lane_sum::over_lanes;
use crate::block::layout::{Lanes, Tile};
use crate::block::matmul::{Blocks, block_values, block_vars, pack};
use crate::block::powers::{self, at_most, inverse};
use crate::block::ring::Ring;
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, Reg, SharedId, SharedKind};
use oplus_dsl::ir::{Binary, Unary};
use oplus_dsl::{Elem, Ty};

/// The bits of a pair of `f16` of which one is set where a number is 2 or more; and those where a number is 2⁻⁷ or more.
const LARGE: i32 = 0x4000_4000;
const NOT_SMALL: i32 = 0x6000_6000;
/// The largest number of a state that has been scaled anew is at least this, and below twice this.
const MIDDLE: f64 = 0.125;
/// Rows of weights whose largest number is between these have room in `f16`.
const LEAST_WEIGHT: f64 = 1.0 / 8192.0;
const MOST_WEIGHT: f64 = 32768.0;

/// The powers of two that threads share.
#[derive(Clone, Copy)]
pub(crate) struct Powers {
    /// The inverse of the power by which each warp's rows of the state are multiplied.
    of_states: SharedId,
    /// The most that a state may be multiplied by beside the gains of each stage.
    most: SharedId,
}

/// The power of two by which the warp's rows of the state are multiplied.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    power: Reg,
    /// The most that it may be beside the gains of the chunk before.
    most: Reg,
}

/// The powers of two by which a thread's two rows of weights were divided.
pub(super) struct RowPowers {
    powers: [Reg; 2],
    /// Whether one of the warp is not 1.
    any: Operand,
}

impl Powers {
    /// Declares the arrays, for so many warps and stages.
    pub(super) fn declare(b: &mut Builder, warps: u32, stages: u32) -> Powers {
        let mut array = |name: &str, len: u32| b.shared(name, SharedKind::Elem(Elem::F32), len);
        Powers { of_states: array("state_powers", warps), most: array("most_powers", stages) }
    }
}

impl Scale {
    /// The scale of a state that is as it is.
    pub(super) fn none(b: &mut Builder) -> Scale {
        Scale { power: b.var(f32(1.0)), most: b.var(f32(powers::MOST)) }
    }

    /// The number by which a number of the state was divided.
    pub(super) fn undone(self, b: &mut Builder) -> Operand {
        inverse(b, self.power.into())
    }
}

impl ChunkwiseKernel<'_> {
    /// Writes the most that states may be multiplied by beside a lane's gains of a stage, and those of the other lanes of its warp.
    pub(super) fn store_most_power(&self, b: &mut Builder, gains: &[Operand], stage: Operand) {
        let Some(Powers { most, .. }) = self.powers else { return };
        let largest = largest(b, gains);
        let largest = over_lanes(b, Binary::Max, largest, &[1, 2, 4, 8, 16]);
        let power = at_most(b, largest);
        let above = b.mul(power, f32(2.0));
        let power = inverse(b, above);
        let first = b.eq(self.thread.lane, 0);
        b.store(Memory::Shared(most), stage, &[power], Some(first));
    }

    /// Writes the state for queries, scaled anew where its numbers have left their range.
    pub(super) fn store_scaled_state(
        &self,
        b: &mut Builder,
        (states, lanes): (&Tile, &Lanes),
        state: &State,
        (powers, scale): (Powers, Scale),
    ) {
        let packed: Vec<[Reg; 4]> = state.blocks.chunks(2).map(|two| packed(b, two).map(|pair| b.var(pair))).collect();
        let pairs = packed.iter().flatten().map(|pair| Operand::Reg(*pair));
        let seen = pairs.reduce(|seen, pair| b.binary(Binary::Or, seen, pair)).unwrap_or(zero(Ty::U32));
        let mut are_none = |bits: i32| {
            let set = b.binary(Binary::And, seen, bits);
            let is_none = b.eq(set, 0);
            b.all(is_none)
        };
        let (none_large, all_small) = (are_none(LARGE), are_none(NOT_SMALL));
        let may_grow = b.lt(scale.power.into(), Operand::Reg(scale.most));
        let grows = b.and(all_small, may_grow);
        let stays = b.unary(Unary::Not, grows);
        let stays = b.and(stays, none_large);
        let leaves = b.unary(Unary::Not, stays);
        b.if_(leaves, |b| {
            scale_anew(b, state, scale);
            for (packed, two) in packed.iter().zip(state.blocks.chunks(2)) {
                let again = self::packed(b, two);
                packed.iter().zip(again).for_each(|(reg, pair)| b.assign(*reg, pair));
            }
        });
        for (step, packed) in (0..).zip(&packed) {
            let index = states.index(b, lanes, 0, step);
            b.store_matrix(states.array, index, &packed.map(Operand::Reg), false);
        }
        let (first, undone) = (b.eq(self.thread.lane, 0), scale.undone(b));
        b.store(Memory::Shared(powers.of_states), self.thread.warp, &[undone], Some(first));
    }

    /// 2 to the sums at the thread's rows, times what undoes the powers of the state's rows that warps have: the factors of 16 columns each of
    /// what queries read.
    pub(super) fn from_start_scaled(&self, b: &mut Builder, decays: &Decays, rows: Option<&RowPowers>) -> Vec<[Operand; 2]> {
        let warps = self.schedule.width() / ROWS;
        let Some(Powers { of_states, .. }) = self.powers else { return vec![decays.from_start; warps as usize] };
        let of_warps = b.load(Memory::Shared(of_states), Operand::i32(0), warps, None, zero(Ty::F32));
        let own = [0, 1].map(|h: usize| match rows {
            Some(rows) => {
                let divided = inverse(b, rows.powers[h].into());
                b.mul(decays.from_start[h], divided)
            }
            None => decays.from_start[h],
        });
        of_warps.into_iter().map(|undone| own.map(|own| b.mul(own, undone))).collect()
    }

    /// The weights of pairs of times within the range of `f16`, and the powers by which rows were divided.
    pub(super) fn weights_in_range(&self, b: &mut Builder, weights: Blocks) -> (Blocks, Option<RowPowers>) {
        if self.powers.is_none() {
            return (weights, None);
        }
        let most = [0, 1].map(|h: usize| {
            let own: Vec<Operand> = weights.iter().flat_map(|block| [block[2 * h], block[2 * h + 1]]).collect();
            let own = largest(b, &own);
            over_lanes(b, Binary::Max, own, &[1, 2])
        });
        let are_within = most.map(|most| {
            let (above, below) = (b.ge(most, f32(LEAST_WEIGHT)), b.binary(Binary::Le, most, f32(MOST_WEIGHT)));
            b.and(above, below)
        });
        let within = b.and(are_within[0], are_within[1]);
        let all_within = b.all(within);
        let any = b.unary(Unary::Not, all_within);
        let (regs, powers) = (block_vars(b, &weights), [0, 1].map(|_| b.var(f32(1.0))));
        b.if_(any, |b| {
            for (h, power) in powers.into_iter().enumerate() {
                let own = at_most(b, most[h]);
                b.assign(power, own);
                let by = inverse(b, own);
                for reg in regs.iter().flat_map(|block| [block[2 * h], block[2 * h + 1]]) {
                    let scaled = b.mul(reg.into(), by);
                    b.assign(reg, scaled);
                }
            }
        });
        (block_values(&regs), Some(RowPowers { powers, any }))
    }

    /// Undoes the powers by which rows were divided in sums that have ended.
    pub(super) fn undo_row_powers(&self, b: &mut Builder, sums: &[[Reg; 4]], rows: Option<&RowPowers>) {
        let Some(RowPowers { powers, any }) = rows else { return };
        b.if_(*any, |b| {
            for block in sums {
                for (r, reg) in block.iter().enumerate() {
                    let whole = b.mul((*reg).into(), Operand::Reg(powers[r / 2]));
                    b.assign(*reg, whole);
                }
            }
        });
    }

    /// Makes the state's power one that is possible beside a chunk's gains; gives the number that the state is to be multiplied by, and the power.
    /// Where nothing reads the state it is the greatest that is possible.
    pub(super) fn next_power(&self, b: &mut Builder, state: &State, iteration: Operand) -> Option<[Operand; 2]> {
        let (Powers { most, .. }, scale) = self.powers.zip(state.scale)?;
        let stage = Ring::of(self.schedule.stages).stage(b, iteration);
        let most = b.load1(Memory::Shared(most), stage);
        let undone = scale.undone(b);
        let power = match self.states {
            Some(_) => b.binary(Binary::Min, scale.power.into(), most),
            None => most,
        };
        b.assign(scale.most, most);
        b.assign(scale.power, power);
        Some([b.mul(power, undone), power])
    }
}

/// Multiplies a state and its power by another power of two, after which the largest of the warp's numbers is near 1 if that is possible.
fn scale_anew(b: &mut Builder, state: &State, scale: Scale) {
    let all: Vec<Operand> = state.blocks.iter().flatten().map(|reg| Operand::Reg(*reg)).collect();
    let largest = largest(b, &all);
    let largest = over_lanes(b, Binary::Max, largest, &[1, 2, 4, 8, 16]);
    let largest = at_most(b, largest);
    let by = inverse(b, largest);
    let by = b.mul(by, f32(MIDDLE));
    let power = b.mul(scale.power.into(), by);
    let power = at_most(b, power);
    let power = b.binary(Binary::Min, power, Operand::Reg(scale.most));
    let undone = scale.undone(b);
    let by = b.mul(power, undone);
    b.assign(scale.power, power);
    for reg in state.blocks.iter().flatten() {
        let scaled = b.mul((*reg).into(), by);
        b.assign(*reg, scaled);
    }
}

/// The largest magnitude of numbers.
fn largest(b: &mut Builder, numbers: &[Operand]) -> Operand {
    let all: Vec<Operand> = numbers.iter().map(|x| b.unary(Unary::Abs, *x)).collect();
    all.into_iter().reduce(|x, y| b.binary(Binary::Max, x, y)).unwrap_or(f32(0.0))
}

/// Two blocks of the state as the packed pairs of a fragment.
fn packed(b: &mut Builder, two: &[[Reg; 4]]) -> [Operand; 4] {
    pack(b, Elem::F16, &block_values(two))
}
