//! The saved states that sub-tiles start from. They come from memory before their sub-tile begins: to registers, or to shared memory,
//! where each thread that walks has a place of its own.

use super::lane::Lane;
use super::row_sums::HALF;
use super::subtile::Carry;
use super::{SUBTILE, StateSpaceBackwardKernel};
use crate::block::ring::RingStage;
use crate::build::{Builder, zero};
use crate::schedules::StateSpaceBackward;
use crate::schedules::state_space::CHUNK;
use crate::target::WARP;
use crate::tile::{Memory, Operand, Reg, SharedId, SharedKind, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// A lane's states of which two sub-tiles fit into registers.
const FEW: u32 = 2;

/// Shared memory for the saved states of the next sub-tiles.
#[derive(Clone, Copy)]
pub(super) struct NextStates {
    /// For each of the next sub-tiles, and each row and access of a lane, the elements of all threads.
    array: SharedId,
    /// For each of these sub-tiles the mbarrier of each warp, which completes when the copies of its lanes have landed.
    landed: SharedId,
}

impl NextStates {
    pub(super) fn declare(b: &mut Builder, schedule: &StateSpaceBackward) -> NextStates {
        let of_lane = schedule.rows * schedule.states;
        NextStates {
            array: b.shared_values("next_states", Ty::F32, schedule.saved_ahead * schedule.warps * WARP * of_lane),
            landed: b.shared("next_states_landed", SharedKind::Mbarrier, schedule.saved_ahead * schedule.warps),
        }
    }

    pub(super) fn init(self, b: &mut Builder, schedule: &StateSpaceBackward) {
        b.init_mbarriers(self.landed, schedule.saved_ahead * schedule.warps, WARP);
    }
}

impl StateSpaceBackwardKernel<'_> {
    /// Registers for the saved states of the next sub-tiles, by sub-tile, row of the lane and state; none where shared memory has them.
    pub(super) fn registers_of_saved(&self, b: &mut Builder, lane_rows: usize) -> Vec<Vec<Vec<Reg>>> {
        let states = self.schedule.states;
        let of_row = |b: &mut Builder| (0..states).map(|_| b.var(zero(Ty::F32))).collect::<Vec<_>>();
        let ahead = if self.next_states.is_some() { 0 } else { self.ahead() };
        (0..ahead).map(|_| (0..lane_rows).map(|_| of_row(b)).collect()).collect()
    }

    /// The number of sub-tiles that saved states are taken up ahead. Loading them takes longer than to walk one sub-tile, but registers have
    /// room for those of one, unless states are few.
    fn ahead(&self) -> u32 {
        match self.schedule.saved_ahead {
            0 if self.schedule.rows * self.schedule.states <= FEW => HALF,
            ahead => ahead.max(1),
        }
    }

    /// Takes up the states saved before the first sub-tiles.
    pub(super) fn take_up_first(&self, b: &mut Builder, lane: &Lane, carry: &Carry) {
        self.take_up(b, lane, carry, 0);
        (1..self.ahead()).for_each(|j| self.take_up_next(b, lane, carry, j));
    }

    /// The states saved before the `j`-th sub-tile of half a tile, by row of the lane; `half` counts the halves that have been walked. From
    /// shared memory they are read at once, so that later ones can be on their way to the same place while this sub-tile is walked.
    pub(super) fn saved_before(
        &self,
        b: &mut Builder,
        lane: &Lane,
        carry: &Carry,
        (half, j): (Operand, u32),
    ) -> Vec<Vec<Operand>> {
        let Some(next) = self.next_states else {
            let of_row = |regs: &Vec<Reg>| regs.iter().map(|reg| Operand::Reg(*reg)).collect();
            return carry.before(j).iter().map(of_row).collect();
        };
        self.await_copies(b, next, (half, j));
        let read = |b: &mut Builder, r: usize, access: u32| {
            let at = self.own_place(b, (j, r, access));
            b.load(Memory::Shared(next.array), at, self.width(), None, zero(Ty::F32))
        };
        let accesses = self.schedule.states / self.width();
        let rows = 0..lane.rows.len();
        let saved = rows.map(|r| (0..accesses).flat_map(|access| read(b, r, access)).collect()).collect();
        self.take_up_next(b, lane, carry, j);
        saved
    }

    /// Waits for the copies that nothing reads: none may be on its way when the block ends.
    pub(super) fn await_last_copies(&self, b: &mut Builder) {
        if let Some(next) = self.next_states {
            let halves = b.mul(self.base.own_tiles(), self.schedule.steps / SUBTILE / HALF);
            (0..self.ahead()).for_each(|j| self.await_copies(b, next, (halves, j)));
        }
    }

    /// Waits for the copies of the `j`-th sub-tile of half a tile. With one place, its mbarrier has a phase for each of the two sub-tiles of a
    /// half. With two places, each mbarrier has one phase in a half.
    fn await_copies(&self, b: &mut Builder, next: NextStates, (half, j): (Operand, u32)) {
        const { assert!(HALF == 2) };
        let parity = if self.ahead() == 1 { Operand::i32(j as i32) } else { b.binary(Binary::And, half, 1) };
        let index = self.mbarrier_of(b, j);
        b.wait(next.landed, RingStage { index, parity });
    }

    fn mbarrier_of(&self, b: &mut Builder, j: u32) -> Operand {
        b.add(self.base.frame.warp, j % self.ahead() * self.schedule.warps)
    }

    /// Elements of an access.
    fn width(&self) -> u32 {
        self.schedule.states.min(CHUNK)
    }

    /// The thread's place in shared memory for an access of a row, before the `j`-th sub-tile of half a tile.
    fn own_place(&self, b: &mut Builder, (j, r, access): (u32, usize, u32)) -> Operand {
        let threads = self.schedule.warps * WARP;
        let accesses = self.schedule.states / self.width();
        let first = b.mul(self.base.frame.warp, WARP);
        let thread = b.add(first, self.base.frame.lane);
        let row = j % self.ahead() * self.schedule.rows + r as u32;
        let place = b.add(thread, (row * accesses + access) * threads);
        b.mul(place, self.width())
    }

    /// Takes up the states saved before the sub-tile of the carry's number, if there are any.
    fn take_up(&self, b: &mut Builder, lane: &Lane, carry: &Carry, j: u32) {
        let Some(saved) = &self.scratch.saved else { return };
        let number = b.convert(Ty::I64, carry.number.into());
        let (below, above) = (b.lt(number, saved.subtiles), b.ge(number, 0));
        let there = b.and(below, above);
        for (r, exists) in lane.row_exists.iter().enumerate() {
            let guard = b.and(there, *exists);
            for access in 0..self.schedule.states / self.width() {
                let guard = self.holds(b, lane, access, guard);
                let at = b.add(carry.saved[r].into(), access * CHUNK);
                self.take_up_access(b, carry, (j, r, access), at, guard);
            }
        }
        if let Some(next) = self.next_states {
            let mbarrier = self.mbarrier_of(b, j);
            b.arrive_with_copies(next.landed, mbarrier);
        }
    }

    /// Loads or copies one access of a row.
    fn take_up_access(
        &self,
        b: &mut Builder,
        carry: &Carry,
        (j, r, access): (u32, usize, u32),
        from_index: Operand,
        guard: Operand,
    ) {
        let from = self.base.args.scratch[0];
        if let Some(NextStates { array: to, .. }) = self.next_states {
            let to_index = self.own_place(b, (j, r, access));
            let elements = self.width();
            b.push(Stmt::CopyAsync { to, to_index, from, from_index, elements, guard: Some(guard) });
            return;
        }
        let first = (access * CHUNK) as usize;
        let regs = &carry.before(j)[r][first..first + self.width() as usize];
        let values = b.load(Memory::Global(from), from_index, self.width(), Some(guard), zero(Ty::F32));
        regs.iter().zip(values).for_each(|(reg, value)| b.assign(*reg, value));
    }

    /// Moves the carry to the sub-tile behind those that have been taken up.
    pub(super) fn take_up_next(&self, b: &mut Builder, lane: &Lane, carry: &Carry, j: u32) {
        let Some(saved) = &self.scratch.saved else { return };
        let way = if self.form.reverse { Binary::Add } else { Binary::Sub };
        let next = b.binary(way, carry.number.into(), 1);
        b.assign(carry.number, next);
        let apart = saved.apart(b);
        for place in &carry.saved {
            let at = b.binary(way, (*place).into(), apart);
            b.assign(*place, at);
        }
        self.take_up(b, lane, carry, j);
    }
}
