//! A warp: its registers, its place in the program, and structured control flow by masks of active lanes.

use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

use super::clocks::bits;
use super::fault::{Hazard, Hit};
use super::lanes::{LANES, Lanes, Operation, Value, compute};
use super::pending::Product;
use super::program::{Instruction, Program, Slot};
use crate::target::registers_at_start;
use crate::tile::Reg;
use std::collections::VecDeque;

/// Warps of a block run independently, the lanes of one in lockstep.
pub(super) struct Warp {
    /// Its number in the block.
    pub index: usize,
    /// The next instruction.
    pub pc: usize,
    /// The lanes that execute it.
    pub active: u32,
    /// Registers, then constants.
    pub slots: Vec<Lanes>,
    /// The event that it waits for.
    pub status: Status,
    /// Its part of the products of its warpgroup that it has started and not waited for.
    pub products: VecDeque<Product>,
    /// The registers that each of its threads has.
    pub registers: u32,
    /// The sums of products that have ended at waits that did not name them.
    pub ended: Vec<(Reg, Lanes)>,
    frames: Vec<Frame>,
}

/// Whether a warp can go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Status {
    /// The warp can go on.
    Ready,
    /// Once the barrier of that id has completed that many times.
    Barrier { id: usize, completed: u64 },
    /// Once something has happened in the block since that count of events.
    Block { events: u64 },
    /// The warp polls; it can go on once a message has arrived since that count.
    Polling { events: u64 },
    /// The warp has executed everything.
    Done,
}

/// An open branch or loop.
struct Frame {
    /// Lanes that go on behind it.
    after: u32,
    /// The lanes that take the second path of a branch.
    second: u32,
    /// Whether `Break` ends it.
    is_loop: bool,
}

impl Warp {
    /// A warp at the start of a program.
    pub(super) fn new(program: &Program, index: usize) -> Warp {
        let mut slots = vec![[0; LANES]; program.kernel.regs.len()];
        slots.extend(program.constants.iter().map(|bits| [*bits; LANES]));
        let (products, ended) = (VecDeque::new(), vec![]);
        let registers = registers_at_start(program.kernel.threads, program.kernel.blocks_per_sm);
        Warp {
            index,
            pc: 0,
            active: u32::MAX,
            slots,
            status: Status::Ready,
            products,
            registers,
            ended,
            frames: vec![],
        }
    }

    /// The number of a lane's thread in the block.
    pub(super) fn thread(&self, lane: usize) -> usize {
        self.index * LANES + lane
    }

    /// Assigns the active lanes of a register.
    pub(super) fn assign(&mut self, slot: Slot, value: &Lanes) {
        let to = &mut self.slots[slot];
        if self.active == u32::MAX {
            *to = *value;
            return;
        }
        for lane in bits(self.active) {
            to[lane] = value[lane];
        }
    }

    /// The active lanes in which a `bool` is true.
    pub(super) fn active_where(&self, condition: Slot) -> u32 {
        mask(&self.slots[condition]) & self.active
    }

    /// Computations in the active lanes.
    pub(super) fn compute(&mut self, dst: Slot, operation: Operation, args: [Slot; 3]) {
        let [a, b, c] = args.map(|arg| &self.slots[arg]);
        let value = compute(operation, a, b, c);
        self.assign(dst, &value);
    }

    /// Executes a branch or loop instruction and goes to the next one.
    pub(super) fn control(&mut self, instruction: &Instruction) -> Result<(), Hit> {
        let mut next = self.pc + 1;
        match *instruction {
            Instruction::If { condition, otherwise } => {
                let then = self.active_where(condition);
                self.open(self.active & !then, false);
                self.active = then;
                if then == 0 {
                    next = otherwise;
                }
            }
            Instruction::Else { end } => {
                self.active = self.frames.last().map_or(0, |f| f.second);
                if self.active == 0 {
                    next = end;
                }
            }
            Instruction::EndIf => self.close(),
            Instruction::For { ty, var, from, step } => {
                self.check_step(ty, step)?;
                let from = self.slots[from];
                self.open(0, false);
                self.assign(var, &from);
            }
            Instruction::ForTest { ty, var, to, end } => {
                let inside = compute(Operation::Binary(Binary::Lt, ty), &self.slots[var], &self.slots[to], &[0; LANES]);
                self.active &= mask(&inside);
                if self.active == 0 {
                    self.close();
                    next = end;
                }
            }
            Instruction::ForNext { ty, var, step, test } => {
                self.compute(var, Operation::Binary(Binary::Add, ty), [var, step, step]);
                next = test;
            }
            Instruction::Loop => self.open(0, true),
            Instruction::LoopNext { start } => {
                if self.active == 0 {
                    self.close();
                } else {
                    next = start;
                }
            }
            Instruction::Break { condition } => self.leave(self.active_where(condition)),
            _ => {}
        }
        self.pc = next;
        Ok(())
    }

    fn open(&mut self, second: u32, is_loop: bool) {
        self.frames.push(Frame { after: self.active, second, is_loop });
    }

    fn close(&mut self) {
        self.active = self.frames.pop().map_or(0, |f| f.after);
    }

    /// Lanes leave the innermost loop: they go on behind it, but behind nothing inside it.
    fn leave(&mut self, lanes: u32) {
        self.active &= !lanes;
        for frame in self.frames.iter_mut().rev().take_while(|f| !f.is_loop) {
            frame.after &= !lanes;
            frame.second &= !lanes;
        }
    }

    fn check_step(&self, ty: Ty, step: Slot) -> Result<(), Hit> {
        let value = |lane: usize| {
            let bits = self.slots[step][lane];
            if ty == Ty::I32 { i64::from(i32::from_lane(bits)) } else { i64::from_lane(bits) }
        };
        match bits(self.active).find(|lane| value(*lane) <= 0) {
            Some(lane) => Err(Hit { lane, hazard: Hazard::Step(value(lane)) }),
            None => Ok(()),
        }
    }
}

/// The lanes in which a `bool` is true.
pub(super) fn mask(lanes: &Lanes) -> u32 {
    lanes.iter().enumerate().fold(0, |mask, (lane, bits)| mask | ((*bits & 1) as u32) << lane)
}
