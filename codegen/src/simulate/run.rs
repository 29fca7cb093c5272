//! One warp executing statements: reading operands, and what all kinds of statements need.

use super::block::Block;
use super::clocks::bits;
use super::device::Device;
use super::fault::{Fault, Hazard, Hit, SimError};
use super::lanes::{LANES, Lanes, Value};
use super::program::Instruction;
use super::shadow::{Accessor, Accessors};
use super::view::View;
use super::warp::{Status, Warp};
use crate::tile::{Memory, Operand, ParamId, SharedId, Special, Stmt};

/// A warp with everything it can reach.
pub(super) struct Run<'r, 'a> {
    pub device: &'r mut Device<'a>,
    pub block: &'r mut Block,
    pub warp: &'r mut Warp,
}

/// The course of a warp after a statement.
pub(super) enum Flow {
    /// The warp goes on.
    Next,
    /// The warp goes on behind the statement when it can.
    Then(Status),
    /// The warp executes the statement again when it can.
    Again(Status),
}

impl Run<'_, '_> {
    /// Executes up to so many instructions; gives how many it did.
    pub(super) fn slice(&mut self, limit: u64) -> Result<u64, SimError> {
        self.warp.status = Status::Ready;
        for done in 0..limit {
            let program = self.device.program;
            let Some(instruction) = program.code.get(self.warp.pc) else {
                self.warp.status = Status::Done;
                return Ok(done);
            };
            self.step(instruction).map_err(|hit| self.fault(hit))?;
            if self.warp.status != Status::Ready {
                return Ok(done + 1);
            }
        }
        Ok(limit)
    }

    fn step(&mut self, instruction: &Instruction) -> Result<(), Hit> {
        match *instruction {
            Instruction::Compute { dst, operation, args } => self.warp.compute(dst, operation, args),
            Instruction::Param { dst, param } => {
                let value = self.device.scalars[param.0 as usize];
                self.warp.assign(dst, &value);
            }
            Instruction::Special { dst, special } => {
                let value = self.special(special);
                self.warp.assign(dst, &value);
            }
            Instruction::Statement(stmt) if self.warp.active != 0 => match self.statement(stmt)? {
                Flow::Next => {}
                Flow::Then(status) => self.warp.status = status,
                Flow::Again(status) => {
                    self.warp.status = status;
                    return Ok(());
                }
            },
            Instruction::Statement(_) => {}
            _ => return self.warp.control(instruction),
        }
        self.warp.pc += 1;
        Ok(())
    }

    fn statement(&mut self, stmt: &Stmt) -> Result<Flow, Hit> {
        match stmt {
            Stmt::Load { dst, memory, index, guard, otherwise } => self.load(dst, *memory, *index, *guard, *otherwise),
            Stmt::Store { memory, index, values, guard } => self.store(*memory, *index, values, *guard),
            Stmt::Shuffle { dst, value, mode, lane } => self.shuffle(*dst, *value, *mode, *lane),
            Stmt::All { dst, condition } => self.all(*dst, *condition),
            Stmt::LoadMatrix { dst, array, index, transposed } => self.load_matrix(dst, *array, *index, *transposed),
            Stmt::StoreMatrix { values, array, index, transposed } => {
                self.store_matrix(values, *array, *index, *transposed)
            }
            Stmt::Mma { elem, dst, a, b, c } => self.mma(*elem, dst, a, b, c),
            Stmt::WarpgroupMma { .. } => self.warpgroup_mma(stmt),
            Stmt::WarpgroupWait { pending, sums } => self.warpgroup_wait(*pending as usize, sums),
            Stmt::SyncWarp => self.sync_warp(),
            Stmt::SetMaxRegisters { count, .. } => self.set_max_registers(*count),
            Stmt::Barrier { id, threads } => self.barrier(*id, *threads),
            Stmt::MbarrierInit(mbarrier, count) => self.mbarrier_init(*mbarrier, *count),
            Stmt::FenceInit => self.fence_init(),
            Stmt::MbarrierArrive(mbarrier) => self.mbarrier_arrive(*mbarrier, None),
            Stmt::MbarrierExpect(mbarrier, bytes) => self.mbarrier_arrive(*mbarrier, Some(*bytes)),
            Stmt::MbarrierWait(mbarrier, parity) => self.mbarrier_wait(*mbarrier, *parity),
            Stmt::BulkLoad { .. } => self.bulk_load(stmt),
            Stmt::BulkStore { .. } => self.bulk_store(stmt),
            Stmt::BulkWait { pending, read } => self.bulk_wait(*pending as usize, *read),
            Stmt::FenceAsync => {
                self.block.clocks.fence(self.warp.index, self.warp.active);
                Ok(Flow::Next)
            }
            Stmt::FenceDevice => self.fence_device(),
            Stmt::CopyAsync { .. } => self.copy_async(stmt),
            Stmt::CopyAsyncArrive(mbarrier) => self.copy_async_arrive(*mbarrier),
            Stmt::DrawTicket { ticket, tag, control } => self.draw_ticket(*ticket, *tag, *control),
            Stmt::ResetTickets { control, tag } => self.reset_tickets(*control, *tag),
            Stmt::Publish { messages, index, values, tag, guard } => {
                self.publish(*messages, *index, values, *tag, *guard)
            }
            Stmt::Poll { messages, entries, tag } => self.poll(*messages, entries, *tag),
            Stmt::Let(..) | Stmt::If { .. } | Stmt::For { .. } | Stmt::Loop(_) | Stmt::Break(_) => Ok(Flow::Next),
        }
    }

    fn special(&self, special: Special) -> Lanes {
        let [x, y] = self.device.names().block(self.block.number);
        let value = |lane| match special {
            Special::Thread => self.warp.thread(lane) as u32,
            Special::Lane => lane as u32,
            Special::Warp => self.warp.index as u32,
            Special::Block => x,
            Special::BlockY => y,
            Special::Blocks => self.device.launch.grid[0],
        };
        std::array::from_fn(|lane| u64::from(value(lane)))
    }

    // ---- operands

    /// The value of an operand in all lanes.
    pub(super) fn value(&self, operand: Operand) -> &Lanes {
        &self.warp.slots[self.device.program.slot(operand)]
    }

    /// An `i32` operand in one lane.
    pub(super) fn i32(&self, operand: Operand, lane: usize) -> i32 {
        i32::from_lane(self.value(operand)[lane])
    }

    /// An `i64` operand in one lane.
    pub(super) fn i64(&self, operand: Operand, lane: usize) -> i64 {
        i64::from_lane(self.value(operand)[lane])
    }

    /// The active lanes in which the guard, if there is one, is true.
    pub(super) fn guarded(&self, guard: Option<Operand>) -> u32 {
        guard.map_or(self.warp.active, |g| self.warp.active_where(self.device.program.slot(g)))
    }

    /// An index into a memory in every lane.
    pub(super) fn indices(&self, memory: Memory, index: Operand) -> [i64; LANES] {
        match memory {
            Memory::Global(_) => self.value(index).map(i64::from_lane),
            Memory::Shared(_) => self.value(index).map(|bits| i64::from(i32::from_lane(bits))),
        }
    }

    // ---- the statement being executed

    /// The number of the instruction.
    pub(super) fn at(&self) -> u32 {
        self.warp.pc as u32
    }

    /// The thread of a lane.
    pub(super) fn accessor(&self, lane: usize) -> Accessor<'_> {
        Accessor::new(&self.block.clocks, self.block.number, self.warp.thread(lane))
    }

    /// The array behind a memory, and those who access it.
    pub(super) fn view(&mut self, memory: Memory) -> (View<'_>, Accessors<'_>) {
        let block = &mut *self.block;
        let who = Accessors { clocks: &block.clocks, block: block.number, warp: self.warp.index };
        let view = match memory {
            Memory::Global(ParamId(p)) => self.device.view(p as usize),
            Memory::Shared(SharedId(s)) => self.device.names().shared(&mut block.arrays, s as usize),
        };
        (view, who)
    }

    /// All lanes must be active.
    pub(super) fn converged(&self) -> Result<(), Hit> {
        match self.warp.active {
            u32::MAX => Ok(()),
            active => Err(Hit { lane: active.trailing_zeros() as usize, hazard: Hazard::Diverged(active) }),
        }
    }

    /// The active lanes, for statements of single threads.
    pub(super) fn lanes(&self) -> impl Iterator<Item = usize> + use<> {
        bits(self.warp.active)
    }

    fn fault(&self, Hit { lane, hazard }: Hit) -> SimError {
        self.device.fault(self.block.number, self.at(), self.warp.thread(lane), hazard)
    }
}

impl Device<'_> {
    /// A hazard with its place.
    pub(super) fn fault(&self, block: u32, at: u32, thread: usize, hazard: Hazard) -> SimError {
        let path = self.program.paths[at as usize].clone();
        let line = path.statement(self.program.kernel).map(|s| self.program.kernel.line(s)).unwrap_or_default();
        let (warp, lane) = (thread / LANES, thread % LANES);
        SimError::Fault(Box::new(Fault { path, line, block: self.names().block(block), warp, lane, hazard }))
    }
}
