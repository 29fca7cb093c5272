//! States of `f16` that are saved: as the walk's warps save the state before a chunk, all its numbers take one power of two.
//!
//! The sweep that reads them sums products over the rows of all warps, so these agree on a power. Each warp says by one number whether those
//! that it has written to shared memory are too large for `f16`, or so small that bits are lost; behind the barrier that hands the
//! state over all warps read what each has said, and find another power together where one asks for it. The inverse of the power is
//! saved behind the state.

use super::state::State;
use super::{ChunkwiseKernel, Saved};
use crate::block::bits::in_bits_of;
use crate::block::lane_sum::over_lanes;
use crate::block::layout::{Lanes, Tile};
use crate::block::matmul::pack;
use crate::block::powers::{LARGE, NOT_SMALL};
use crate::block::powers::{at_most, inverse, largest_finite};
use crate::build::{Builder, f32, zero};
use crate::tile::{Memory, Operand, Reg, SharedId, Stmt};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

/// What a warp says of its numbers: that they are within the range, all small, or that one is too large.
const WITHIN: f64 = 0.0;
const ALL_SMALL: f64 = 1.0;
const TOO_LARGE: f64 = 2.0;
/// A new power brings the largest number of a state to at least this, and to less than twice this.
const MIDDLE: f64 = 0.25;

/// The bits of a power of two as an element of `f16`: those of `bf16`, which has all powers.
fn as_element(b: &mut Builder, power: Operand) -> Operand {
    in_bits_of(b, Elem::Bf16, Elem::F16, [power; 2])[0]
}

/// The power of two of which an element behind a state has the bits.
pub(crate) fn power_of_element(b: &mut Builder, element: Operand) -> Operand {
    in_bits_of(b, Elem::F16, Elem::Bf16, [element; 2])[0]
}

impl ChunkwiseKernel<'_> {
    /// The register of the power of two by which saved states are multiplied, if they take one.
    pub(super) fn saved_power(&self, b: &mut Builder) -> Option<Reg> {
        self.saved.filter(|saved| saved.elem == Elem::F16).map(|_| b.var(f32(1.0)))
    }

    /// Writes the warp's rows of a state that is saved to shared memory, and says whether they are within the range.
    pub(super) fn store_in_range(&self, b: &mut Builder, states: &Tile, lanes: &Lanes, state: &State, power: Reg) {
        let Some(words) = self.words_of_warps() else { return };
        let seen = self.store_multiplied(b, states, lanes, state, power);
        let mut are_none = |bits: i32| {
            let set = b.binary(Binary::And, seen, bits);
            let is_none = b.eq(set, 0);
            b.all(is_none)
        };
        let (none_large, all_small) = (are_none(LARGE), are_none(NOT_SMALL));
        let word = b.select(all_small, f32(ALL_SMALL), f32(WITHIN));
        let word = b.select(none_large, word, f32(TOO_LARGE));
        self.say(b, words, word);
    }

    /// Finds another power for a state in shared memory, by all warps, where one of them has asked for it.
    pub(super) fn keep_in_range(&self, b: &mut Builder, state: &State) {
        let (Some(words), Some(power), Some(states)) = (self.words_of_warps(), state.saved, &self.states) else {
            return;
        };
        let all = self.read_words(b, words);
        let [least, most] = [Binary::Min, Binary::Max].map(|op| reduce(b, op, &all));
        let (are_small, is_large) = (b.ge(least, f32(ALL_SMALL)), b.ge(most, f32(TOO_LARGE)));
        let leaves = b.binary(Binary::Or, are_small, is_large);
        b.if_(leaves, |b| {
            // All warps have read what the others said.
            self.walkers_barrier(b);
            self.find_power(b, words, state, power);
            let lanes = self.lanes_of_rows(b, states);
            self.store_multiplied(b, states, &lanes, state, power);
            b.push(Stmt::FenceAsync);
            self.walkers_barrier(b);
        });
    }

    /// Makes the power the one that brings the largest number of all warps near 1; that of a state of zeros stays.
    fn find_power(&self, b: &mut Builder, words: SharedId, state: &State, power: Reg) {
        let all: Vec<Operand> = state.blocks.iter().flatten().map(|reg| Operand::Reg(*reg)).collect();
        let own = largest_finite(b, &all);
        let own = over_lanes(b, Binary::Max, own, &[1, 2, 4, 8, 16]);
        let own = match state.scale {
            Some(scale) => {
                let undone = scale.undone(b);
                b.mul(own, undone)
            }
            None => own,
        };
        self.say(b, words, own);
        self.walkers_barrier(b);
        let all = self.read_words(b, words);
        let most = reduce(b, Binary::Max, &all);
        let below = at_most(b, most);
        let by = inverse(b, below);
        let by = b.mul(by, f32(MIDDLE));
        let found = at_most(b, by);
        let is_zero = b.eq(most, f32(0.0));
        let found = b.select(is_zero, power.into(), found);
        b.assign(power, found);
    }

    /// Writes the warp's rows of a state times a power of two; gives the bits that are set in any of its packed pairs.
    fn store_multiplied(&self, b: &mut Builder, states: &Tile, lanes: &Lanes, state: &State, power: Reg) -> Operand {
        let by = match state.scale {
            Some(scale) => {
                let undone = scale.undone(b);
                b.mul(undone, Operand::Reg(power))
            }
            None => power.into(),
        };
        let mut seen = zero(Ty::U32);
        for (step, two) in (0..).zip(state.blocks.chunks(2)) {
            let two: Vec<[Operand; 4]> = two.iter().map(|block| block.map(|reg| b.mul(reg.into(), by))).collect();
            let packed = pack(b, Elem::F16, &two);
            seen = packed.into_iter().fold(seen, |seen, pair| b.binary(Binary::Or, seen, pair));
            let index = states.index(b, lanes, 0, step);
            b.store_matrix(states.array, index, &packed, false);
        }
        seen
    }

    /// Saves the number that the elements of a state are to be multiplied by, behind them, by one thread.
    pub(super) fn save_power(&self, b: &mut Builder, state: &State, first_index: Operand) {
        let (Some(power), Some(Saved { to, .. }), Some(states)) = (state.saved, self.saved, &self.states) else {
            return;
        };
        let undone = inverse(b, power.into());
        let element = as_element(b, undone);
        let at = b.add(first_index, states.len());
        b.store(Memory::Global(to), at, &[element], None);
    }

    /// The array in which each warp says something of its rows of a state.
    fn words_of_warps(&self) -> Option<SharedId> {
        self.powers.map(|powers| powers.of_states)
    }

    fn say(&self, b: &mut Builder, words: SharedId, word: Operand) {
        let first = b.eq(self.thread.lane, 0);
        b.store(Memory::Shared(words), self.thread.warp, &[word], Some(first));
    }

    fn read_words(&self, b: &mut Builder, words: SharedId) -> Vec<Operand> {
        b.load(Memory::Shared(words), Operand::i32(0), self.schedule.warps, None, zero(Ty::F32))
    }
}

/// The numbers combined by an operation.
fn reduce(b: &mut Builder, op: Binary, all: &[Operand]) -> Operand {
    all.iter().copied().reduce(|x, y| b.binary(op, x, y)).unwrap_or(zero(Ty::F32))
}
