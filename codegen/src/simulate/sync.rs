//! Warp collectives, barriers and mbarriers.

use super::clocks::bits;
use super::fault::{Hazard, Hit};
use super::lanes::{LANES, Lanes};
use super::run::{Flow, Run};
use super::warp::{Status, mask};
use crate::tile::{Mbarrier, Operand, Reg, Shuffle};

impl Run<'_, '_> {
    pub(super) fn shuffle(&mut self, dst: Reg, value: Operand, mode: Shuffle, by: Operand) -> Result<Flow, Hit> {
        self.converged()?;
        let (value, by) = (*self.value(value), *self.value(by));
        let received: Lanes = std::array::from_fn(|lane| {
            let n = i64::from(by[lane] as i32);
            let source = match mode {
                Shuffle::Up => lane as i64 - n,
                Shuffle::Down => lane as i64 + n,
                Shuffle::Xor => lane as i64 ^ n,
                Shuffle::Index => n,
            };
            usize::try_from(source).ok().filter(|s| *s < LANES).map_or(value[lane], |s| value[s])
        });
        self.warp.assign(dst.0 as usize, &received);
        Ok(Flow::Next)
    }

    pub(super) fn all(&mut self, dst: Reg, condition: Operand) -> Result<Flow, Hit> {
        self.converged()?;
        let all = mask(self.value(condition)) == u32::MAX;
        self.warp.assign(dst.0 as usize, &[u64::from(all); LANES]);
        Ok(Flow::Next)
    }

    pub(super) fn sync_warp(&mut self) -> Result<Flow, Hit> {
        self.converged()?;
        self.block.clocks.synchronise(std::iter::once(self.warp.index));
        Ok(Flow::Next)
    }

    pub(super) fn barrier(&mut self, id: u32, threads: u32) -> Result<Flow, Hit> {
        self.converged()?;
        let completed = self.block.arrive(self.warp.index, id, threads).map_err(|hazard| Hit { lane: 0, hazard })?;
        Ok(Flow::Then(Status::Barrier { id: id as usize, completed }))
    }

    // ---- mbarriers

    /// The number of an mbarrier in its block.
    fn mbarrier_number(&self, mbarrier: Mbarrier, lane: usize) -> Result<usize, Hit> {
        let array = mbarrier.array.0 as usize;
        let index = self.i32(mbarrier.index, lane);
        let shared = &self.device.program.kernel.shared[array];
        match u32::try_from(index) {
            Ok(i) if i < shared.len => Ok(self.block.first_mbarrier[array] + i as usize),
            _ => {
                let (array, len) = (shared.name.clone(), shared.len as usize);
                Err(Hit { lane, hazard: Hazard::OutOfBounds { array, index: i64::from(index), len } })
            }
        }
    }

    /// The number of an mbarrier whose initialisation the lane's thread knows of.
    pub(super) fn known_mbarrier(&self, mbarrier: Mbarrier, lane: usize) -> Result<usize, Hit> {
        let number = self.mbarrier_number(mbarrier, lane)?;
        match self.block.mbarriers[number].init {
            Some(init) if self.accessor(lane).after(&init).is_ok() => Ok(number),
            _ => Err(Hit { lane, hazard: Hazard::NoMbarrier(self.mbarrier_name(number)) }),
        }
    }

    /// The number of an mbarrier whose initialisation the lane's thread knows of and has fenced, as asynchronous copies need it.
    pub(super) fn fenced_mbarrier(&self, mbarrier: Mbarrier, lane: usize) -> Result<usize, Hit> {
        let number = self.known_mbarrier(mbarrier, lane)?;
        if self.block.mbarriers[number].init.is_some_and(|init| self.block.init_is_fenced(&init)) {
            Ok(number)
        } else {
            Err(Hit { lane, hazard: Hazard::UnfencedMbarrier(self.mbarrier_name(number)) })
        }
    }

    /// An mbarrier as messages name it.
    pub(super) fn mbarrier_name(&self, number: usize) -> String {
        self.block.mbarrier_name(self.device.program.kernel, number)
    }

    pub(super) fn mbarrier_init(&mut self, mbarrier: Mbarrier, count: u32) -> Result<Flow, Hit> {
        for lane in self.lanes() {
            let number = self.mbarrier_number(mbarrier, lane)?;
            if self.block.mbarriers[number].init.is_some() {
                return Err(Hit { lane, hazard: Hazard::MbarrierAgain(self.mbarrier_name(number)) });
            }
            let init = Some(self.accessor(lane).access(self.at()));
            let state = &mut self.block.mbarriers[number];
            (state.init, state.count, state.pending) = (init, count, count);
        }
        Ok(Flow::Next)
    }

    pub(super) fn fence_init(&mut self) -> Result<Flow, Hit> {
        let now = self.block.clocks.now(self.warp.index);
        for lane in self.lanes() {
            self.block.init_fences[self.warp.thread(lane)] = Some(now);
        }
        Ok(Flow::Next)
    }

    pub(super) fn mbarrier_arrive(&mut self, mbarrier: Mbarrier, bytes: Option<Operand>) -> Result<Flow, Hit> {
        let mut left = self.warp.active;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            let number = self.known_mbarrier(mbarrier, lane)?;
            let mut together = 0u32;
            for other in bits(left) {
                together |= u32::from(self.known_mbarrier(mbarrier, other)? == number) << other;
            }
            left &= !together;
            let announced = bytes.map_or(0, |b| bits(together).map(|l| i64::from(self.i32(b, l))).sum());
            self.arrive_together(number, together, announced)?;
        }
        self.block.clocks.advance(self.warp.index);
        Ok(Flow::Next)
    }

    fn arrive_together(&mut self, number: usize, lanes: u32, bytes: i64) -> Result<(), Hit> {
        let agent = self.block.clocks.mbarrier_agent(number);
        let state = &mut self.block.mbarriers[number];
        self.block.clocks.release(self.warp.index, lanes, &mut state.arrived);
        state.bytes += bytes;
        let completes = state.arrive(lanes.count_ones(), agent);
        let too_many = (state.pending == 0 && state.bytes < 0).then_some(-state.bytes);
        let hit = |hazard| Hit { lane: lanes.trailing_zeros() as usize, hazard };
        match (completes, too_many) {
            (None, _) => Err(hit(Hazard::Arrivals(self.mbarrier_name(number)))),
            (_, Some(bytes)) => Err(hit(Hazard::Bytes { mbarrier: self.mbarrier_name(number), bytes })),
            (Some(completes), _) => {
                self.block.events += u64::from(completes);
                Ok(())
            }
        }
    }

    pub(super) fn mbarrier_wait(&mut self, mbarrier: Mbarrier, parity: Operand) -> Result<Flow, Hit> {
        let mut numbers = [0; LANES];
        for lane in self.lanes() {
            numbers[lane] = self.known_mbarrier(mbarrier, lane)?;
            let phase = self.block.mbarriers[numbers[lane]].phase;
            if phase & 1 == self.i32(parity, lane) as u32 & 1 {
                return Ok(Flow::Again(Status::Block { events: self.block.events }));
            }
        }
        let mut left = self.warp.active;
        while left != 0 {
            let number = numbers[left.trailing_zeros() as usize];
            let together = bits(left).filter(|l| numbers[*l] == number).fold(0, |m, l| m | 1 << l);
            left &= !together;
            let completed = self.block.mbarriers[number].completed.clone();
            self.block.clocks.acquire(self.warp.index, together, &completed);
        }
        Ok(Flow::Next)
    }
}
