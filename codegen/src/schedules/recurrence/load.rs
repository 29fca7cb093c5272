//! Loads: what a step reads, some steps before, in registers.

use std::collections::{BTreeSet, HashMap};

use oplus_dsl::ir::{Axis, Op, Value};

use super::RecurrenceKernel;
use super::place::Place;
use crate::abi::{Tensor, axes, elem, unit_axis};
use crate::build::{Builder, zero};
use crate::schedules::Strategy;
use crate::tile::{Memory, Operand, Reg, Stmt};

/// A parameter, read so many indices after the step.
type Read = (u32, i64);

/// The registers for what one step reads.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// Of each read, one register for every place, or for all of them.
    regs: HashMap<Read, Vec<Reg>>,
    /// The reads in order.
    order: Vec<Read>,
}

impl Slot {
    /// Registers for as many steps as are loaded ahead.
    pub(super) fn all(b: &mut Builder, kernel: &RecurrenceKernel<'_>) -> Vec<Slot> {
        let order = kernel.reads();
        let mut regs = |read: &Read| {
            let tensor = Tensor::Param(read.0);
            let has_places = axes(kernel.stage, tensor).contains(&kernel.scan.scan.along);
            let count = if has_places { kernel.schedule.states } else { 1 };
            let ty = elem(kernel.stage, tensor).value();
            (*read, (0..count).map(|_| b.reg(ty)).collect())
        };
        let mut slot = || Slot { regs: order.iter().map(&mut regs).collect(), order: order.clone() };
        (0..kernel.schedule.ahead).map(|_| slot()).collect()
    }

    /// A parameter at a place, if it was loaded.
    pub(super) fn get(&self, param: u32, at: Place) -> Option<Operand> {
        let regs = self.regs.get(&(param, at.offset))?;
        Some(regs[(at.state as usize).min(regs.len() - 1)].into())
    }

    /// Loads all that a step reads, numbered in the order of the scan.
    pub(super) fn load(&self, b: &mut Builder, kernel: &RecurrenceKernel<'_>, step: Operand) {
        let time = kernel.time(b, step);
        for read in &self.order {
            kernel.load_places(b, *read, time, &self.regs[read]);
        }
    }
}

impl RecurrenceKernel<'_> {
    /// The parameters that vary along time, and where they are read.
    fn reads(&self) -> Vec<Read> {
        let (program, time) = (&self.stage.program, self.scan.scan.axis);
        let (mut reads, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut open: Vec<(Value, i64)> = self.roots().into_iter().map(|v| (v, 0)).collect();
        while let Some((value, offset)) = open.pop() {
            if !seen.insert((value, offset)) {
                continue;
            }
            match &program.node(value).op {
                Op::Param(param) if program.node(value).axes.contains(time) => _ = reads.insert((*param, offset)),
                Op::MatrixScan(_) | Op::Reduce { .. } => {}
                Op::Shift { by, value, fill, .. } => open.extend([(*value, offset - by), (*fill, offset)]),
                op => open.extend(op.operands().into_iter().map(|v| (v, offset))),
            }
        }
        reads.into_iter().collect()
    }

    /// Loads a parameter at all of the lane's places.
    fn load_places(&self, b: &mut Builder, (param, offset): Read, time: Operand, regs: &[Reg]) {
        let tensor = Tensor::Param(param);
        let start = self.start(b, param, offset, time);
        let is_there = self.is_there(b, offset, time);
        let stride = self.args.stride(tensor, self.scan.scan.along);
        let access = self.access(tensor).min(regs.len() as u32);
        for (number, dst) in regs.chunks(access as usize).enumerate() {
            let place = number as u32 * access;
            let further = b.mul(stride, Operand::i64(i64::from(place)));
            let index = b.add(start, further);
            let exists = if regs.len() > 1 { self.exists[place as usize] } else { Operand::bool(true) };
            let guard = b.and(exists, is_there);
            let guard = Some(guard).filter(|guard| *guard != Operand::bool(true));
            let (memory, otherwise) = (self.memory(tensor), zero(elem(self.stage, tensor).value()));
            b.push(Stmt::Load { dst: dst.to_vec(), memory, index, guard, otherwise });
        }
    }

    /// Loads a parameter at one place, at a step, and at an index of the second axis of a matrix.
    pub(super) fn load_one(
        &self,
        b: &mut Builder,
        param: u32,
        at: Place,
        time: Operand,
        other: Option<(Axis, Operand)>,
    ) -> Operand {
        let tensor = Tensor::Param(param);
        let start = self.start(b, param, at.offset, time);
        let has = |axis: Axis| axes(self.stage, tensor).contains(&axis);
        let (has_time, has_places) = (has(self.scan.scan.axis), has(self.scan.scan.along));
        let stride = self.args.stride(tensor, self.scan.scan.along);
        let further = b.mul(stride, Operand::i64(i64::from(at.state)));
        let mut index = b.add(start, further);
        if let Some((axis, own)) = other {
            let further = b.mul(self.args.stride(tensor, axis), own);
            index = b.add(index, further);
        }
        let is_there = if has_time { self.is_there(b, at.offset, time) } else { Operand::bool(true) };
        let exists = if has_places { self.exists[at.state as usize] } else { Operand::bool(true) };
        let guard = b.and(exists, is_there);
        let otherwise = zero(elem(self.stage, tensor).value());
        b.load(self.memory(tensor), index, 1, Some(guard), otherwise)[0]
    }

    /// The offset of a parameter's element at the lane's first place, so many indices after a time.
    fn start(&self, b: &mut Builder, param: u32, offset: i64, time: Operand) -> Operand {
        let index = b.add(time, Operand::i64(offset));
        let stride = self.args.stride(Tensor::Param(param), self.scan.scan.axis);
        let further = b.mul(stride, index);
        b.add(self.bases[param as usize], further)
    }

    /// Whether there is an index along time so many after one, which may lie beyond the last step.
    fn is_there(&self, b: &mut Builder, offset: i64, time: Operand) -> Operand {
        let index = b.add(time, Operand::i64(offset));
        let reverse = self.scan.scan.reverse;
        let above = if offset == 0 && !reverse { Operand::bool(true) } else { b.ge(index, Operand::i64(0)) };
        let below = if offset == 0 && reverse { Operand::bool(true) } else { b.lt(index, self.length()) };
        b.and(above, below)
    }

    /// Elements per access of a tensor with places.
    pub(super) fn access(&self, tensor: Tensor) -> u32 {
        let unit = unit_axis(self.stage, self.schedule.unit_axes(self.stage), tensor);
        let is_wide = unit == Some(self.scan.scan.along);
        let most = 16 / elem(self.stage, tensor).bytes().unwrap_or(16) as u32;
        if is_wide { self.schedule.vector.min(most.max(1)) } else { 1 }
    }

    pub(super) fn memory(&self, tensor: Tensor) -> Memory {
        Memory::Global(self.args.pointer(tensor))
    }
}
