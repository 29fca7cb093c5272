//! Tickets, and messages between blocks. A published word is under way for a while before others see it.

use super::clocks::{Abroad, bits};
use super::device::InFlight;
use super::fault::{Hazard, Hit};
use super::run::{Flow, Run};
use super::warp::Status;
use crate::tile::{Memory, Operand, ParamId, PollEntry, Reg};

/// A message word of a value and a tag.
fn word(value: u64, tag: u64) -> u64 {
    tag << 32 | value & 0xffff_ffff
}

impl Run<'_, '_> {
    /// The position of `n` words, aligned as the access needs it.
    fn words(&mut self, param: ParamId, index: i64, n: usize, lane: usize) -> Result<usize, Hit> {
        let (view, _) = self.view(Memory::Global(param));
        let bytes = if n >= 2 { 16 } else { 8 };
        view.locate(index, n, bytes).map_err(|hazard| Hit { lane, hazard })
    }

    /// The position of the control word.
    fn control_word(&mut self, control: ParamId, lane: usize) -> Result<usize, Hit> {
        let (view, _) = self.view(Memory::Global(control));
        view.locate(0, 1, 8).map_err(|hazard| Hit { lane, hazard })
    }

    pub(super) fn draw_ticket(&mut self, ticket: Reg, tag: Reg, control: ParamId) -> Result<Flow, Hit> {
        for lane in self.lanes() {
            let position = self.control_word(control, lane)?;
            let old = self.device.buffer(control).get(position);
            self.warp.slots[ticket.0 as usize][lane] = old & 0xffff_ffff;
            self.warp.slots[tag.0 as usize][lane] = old >> 32;
            self.device.buffer(control).set(position, old.wrapping_add(1));
            self.device.events += 1;
        }
        Ok(Flow::Next)
    }

    pub(super) fn reset_tickets(&mut self, control: ParamId, tag: Operand) -> Result<Flow, Hit> {
        for lane in self.lanes() {
            let position = self.control_word(control, lane)?;
            let tag = self.value(tag)[lane];
            self.device.buffer(control).set(position, word(0, tag));
            self.device.events += 1;
        }
        Ok(Flow::Next)
    }

    pub(super) fn publish(
        &mut self,
        messages: ParamId,
        index: Operand,
        values: &[Operand],
        tag: Operand,
        guard: Option<Operand>,
    ) -> Result<Flow, Hit> {
        for lane in bits(self.guarded(guard)) {
            let index = self.i64(index, lane);
            let position = self.words(messages, index, values.len(), lane)?;
            let tag = self.value(tag)[lane];
            for (k, value) in values.iter().enumerate() {
                let word = word(self.value(*value)[lane], tag);
                let told = self.block.clocks.message(self.block.number, self.warp.thread(lane));
                self.device.tell(messages, position + k, told);
                if !self.device.send(messages, position + k, word) {
                    let messages = self.device.program.kernel.params[messages.0 as usize].name.clone();
                    return Err(Hit { lane, hazard: Hazard::Republished { messages, index: index + k as i64 } });
                }
            }
        }
        Ok(Flow::Next)
    }

    /// Orders accesses to global memory with messages.
    pub(super) fn fence_device(&mut self) -> Result<Flow, Hit> {
        self.block.clocks.fence_device(self.warp.index, self.warp.active);
        Ok(Flow::Next)
    }

    pub(super) fn poll(&mut self, messages: ParamId, entries: &[PollEntry], tag: Operand) -> Result<Flow, Hit> {
        let mut missing = false;
        for (lane, entry) in self.lanes().flat_map(|lane| entries.iter().map(move |e| (lane, e))) {
            let wanted = self.value(tag)[lane];
            let has_all = |run: &Self| entry.tags.iter().all(|t| run.warp.slots[t.0 as usize][lane] == wanted);
            if has_all(self) {
                continue;
            }
            let position = self.words(messages, self.i64(entry.index, lane), entry.values.len(), lane)?;
            for (k, (value, tag)) in entry.values.iter().zip(&entry.tags).enumerate() {
                let word = self.device.buffer(messages).get(position + k);
                self.warp.slots[value.0 as usize][lane] = word & 0xffff_ffff;
                self.warp.slots[tag.0 as usize][lane] = word >> 32;
            }
            if has_all(self) {
                let thread = self.warp.thread(lane);
                for k in 0..entry.values.len() {
                    if let Some(told) = self.device.told(messages, position + k) {
                        self.block.clocks.poll(thread, told);
                    }
                }
            } else {
                missing = true;
            }
        }
        Ok(if missing { Flow::Then(Status::Polling { events: self.device.events }) } else { Flow::Next })
    }
}

impl super::device::Device<'_> {
    /// Keeps what a message word tells of accesses before it.
    fn tell(&mut self, messages: ParamId, position: usize, told: Abroad) {
        let buffer = self.buffer_of(messages);
        self.told.insert((buffer, position), told);
    }

    /// The accesses that the word at a position tells of.
    fn told(&self, messages: ParamId, position: usize) -> Option<&Abroad> {
        self.told.get(&(self.buffer_of(messages), position))
    }

    /// Sends a message word; `false` where the word has, or will have, that tag already.
    fn send(&mut self, messages: ParamId, position: usize, word: u64) -> bool {
        let buffer = self.buffer_of(messages);
        let under_way = self.in_flight.iter().any(|item| {
            matches!(item, InFlight::Word { buffer: b, position: p, word: w }
                if *b == buffer && *p == position && w >> 32 == word >> 32)
        });
        let there = self.memory.buffers[buffer].get(position) >> 32 == word >> 32;
        if !under_way && !there {
            self.in_flight.push(InFlight::Word { buffer, position, word });
        }
        !under_way && !there
    }
}
