//! Factors of `f16` for a warpgroup, which are multiplied as they are: states, weights and scaled values take the range of `f16` by powers
//! of two.
//!
//! A warp multiplies its rows of the state by a power of two and keeps them so; the product with queries is divided by it. The power is
//! at most the inverse of the greatest of the gains scaled to a chunk's end, so that no value beside it is too large for `f16`. It changes when
//! a number of the state is 2 or more, or all are below 2⁻⁷: so what is rounded away is below 2⁻¹⁸ of the largest number. A row of
//! weights is divided by a power of two, and what it is added to as well, where its largest number is far from 1.
//!
//! In the walks of a gradient no queries read the state, so the power is the greatest that is possible. States are saved with
//! [another](super::range).

use super::decay::Decays;
use super::numbers::ChunkNumbers;
use super::scale::{Powers, Scale};
use super::state::State;
use super::{ChunkwiseKernel, ROWS};
use crate::block::lane_sum::over_lanes;
use crate::block::layout::{Lanes, Tile};
use crate::block::matmul::{Blocks, block_values, block_vars, pack};
use crate::block::powers::{LARGE, NOT_SMALL, at_most, inverse};
use crate::build::{Builder, f32, zero};
use crate::tile::{Memory, Operand, Reg};
use oplus_dsl::ir::{Binary, Unary};
use oplus_dsl::{Elem, Ty};

/// A new power brings the largest number of a state to at least this, and to less than twice this.
const MIDDLE: f64 = 0.125;
/// Rows of weights whose largest number is between these have room in `f16`.
const LEAST_WEIGHT: f64 = 1.0 / 8192.0;
const MOST_WEIGHT: f64 = 32768.0;
/// Beside this part of the greatest power, values have enough bits.
const ENOUGH: f64 = 1.0 / 1024.0;

/// The powers of two by which a thread's two rows of weights were divided.
#[derive(Clone, Copy)]
pub(super) struct RowPowers([Reg; 2]);

impl RowPowers {
    /// Numbers of the rows, divided by the powers.
    pub(super) fn divided(self, b: &mut Builder, rows: [Operand; 2]) -> [Operand; 2] {
        [0, 1].map(|h: usize| {
            let by = inverse(b, self.0[h].into());
            b.mul(rows[h], by)
        })
    }

    /// Numbers of the rows times the powers.
    pub(super) fn undone(self, b: &mut Builder, rows: [Operand; 2]) -> [Operand; 2] {
        [0, 1].map(|h: usize| b.mul(rows[h], Operand::Reg(self.0[h])))
    }
}

impl ChunkwiseKernel<'_> {
    /// The most that a state may be multiplied by beside factors of columns, those of all lanes of a warp, each times a number.
    pub(super) fn most_power(&self, b: &mut Builder, factors: &[Operand], by: Operand) -> Operand {
        if self.powers.is_none() {
            return f32(1.0);
        }
        let largest = largest(b, factors);
        let largest = over_lanes(b, Binary::Max, largest, &[1, 2, 4, 8, 16]);
        let largest = b.mul(largest, by);
        let power = at_most(b, largest);
        let above = b.mul(power, f32(2.0));
        inverse(b, above)
    }

    /// Writes the state for queries. Where its numbers have left their range, the state is rescaled first.
    pub(super) fn store_scaled_state(
        &self,
        b: &mut Builder,
        states: &Tile,
        lanes: &Lanes,
        state: &State,
        Powers { of_states }: Powers,
        scale: Scale,
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
            rescale(b, state, scale);
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
        b.store(Memory::Shared(of_states), self.thread.warp, &[undone], Some(first));
    }

    /// Multiplies what queries have read of scaled states by numbers of the thread's rows, and undoes the powers of the states.
    pub(super) fn scale_scaled(&self, b: &mut Builder, y: &[[Reg; 4]], rows: [Operand; 2]) {
        let Some(Powers { of_states }) = self.powers else { return };
        let warps = self.schedule.width() / ROWS;
        let undone = b.load(Memory::Shared(of_states), Operand::i32(0), warps, None, zero(Ty::F32));
        // A warp has the state's rows of two blocks.
        for (two, undone) in y.chunks(2).zip(undone) {
            let rows = rows.map(|row| b.mul(row, undone));
            self.scale_rows_of(b, two, rows);
        }
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
        (block_values(&regs), Some(RowPowers(powers)))
    }

    /// Makes the state's power one that is possible beside a chunk's gains; gives the number that the state is to be multiplied by beside its decay, and
    /// the one for factors of columns. Where nothing reads the state it is the greatest that is possible; elsewhere it grows where values would be
    /// too small beside a state of which decays leave little.
    pub(super) fn next_power(&self, b: &mut Builder, state: &State, decays: &Decays) -> Option<[Operand; 2]> {
        let (scale, ChunkNumbers { most, is_near, .. }) = state.scale.zip(decays.numbers)?;
        let undone = scale.undone(b);
        let power = match self.queries {
            Some(_) => {
                let left = at_most(b, decays.whole);
                let grown = inverse(b, left);
                let grown = b.mul(scale.power.into(), grown);
                let enough = b.mul(most, f32(ENOUGH));
                let grown = b.binary(Binary::Min, grown, enough);
                let power = b.binary(Binary::Max, scale.power.into(), grown);
                b.binary(Binary::Min, power, most)
            }
            None => most,
        };
        b.assign(scale.most, most);
        b.assign(scale.power, power);
        let whole = b.select(is_near, decays.whole, f32(1.0));
        Some([b.mul(power, undone), b.mul(whole, power)])
    }
}

/// Multiplies a state and its power by another power of two, after which the largest of the warp's numbers is near 1 if that is possible.
fn rescale(b: &mut Builder, state: &State, scale: Scale) {
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
