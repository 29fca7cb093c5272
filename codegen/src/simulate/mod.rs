//! Runs a kernel on the CPU, with its warps, blocks and copies in the least favourable order that a GPU may take, and
//! reports what a GPU would not.
//!
//! # What runs
//!
//! Blocks start in the order of [`Options::order`] as soon as fewer than [`Options::resident`] are running. The lanes
//! of a warp run in lockstep, the first branch of an `If` before the second; warps and blocks interleave as the order
//! says. Asynchronous copies and message words land late: in the fixed orders only when no warp can go on, in random
//! order at any time, words of one message apart from each other. Arithmetic has the bits of PTX, except that the
//! operations of the special-function unit are correctly rounded.
//!
//! # What is reported
//!
//! The first of these, with the statement, block, warp, lane and element ([`Fault`]):
//! * accesses outside an array, and vectors or copies at addresses that are not multiples of their size;
//! * reads of elements of shared or global memory that nobody has written;
//! * races: two accesses of an element of shared memory or of a buffer that the kernel writes, one of them a write, by
//!   threads between which no barrier, warp barrier or mbarrier orders them. Lanes of one warp are threads like any
//!   others, and so race within one statement and until the next `SyncWarp`. Threads of different blocks are never
//!   ordered: messages carry values, not order;
//! * accesses of elements that an asynchronous copy still reads or writes, unless the thread knows that the copy was waited for;
//!   bulk copies of elements that were written without a later `FenceAsync`; the end of a block before the end of its copies;
//! * warp-collective statements and barriers in divergent branches, barriers with different counts;
//! * mbarriers used before their initialisation is known, initialised twice or not fenced, with more arrivals or more
//!   bytes than a phase has;
//! * words published twice with one tag, and loop steps that are not positive.
//!
//! When no warp can ever go on, [`SimError::Deadlock`] lists what each waits for. A wait that only the other branch of
//! its own warp could end counts as such.

mod access;
mod block;
mod clocks;
mod copies;
mod device;
mod fault;
pub(crate) mod lanes;
mod matrix;
mod memory;
mod messages;
mod pending;
mod program;
mod random;
mod registers;
mod run;
mod schedule;
mod shadow;
mod sync;
#[cfg(test)]
mod tests;
mod view;
mod warp;
mod warpgroup;

pub use fault::{Fault, Hazard, Party, SimError, Waiting};
pub use memory::{Buffer, BufferId, Memory};

use oplus_dsl::Elem;
use oplus_dsl::ir::Literal;

use crate::target::Target;
use crate::tile::{Kernel, ParamKind};
use crate::verify::verify;

/// The arguments that a launch passes to a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Blocks along x and y.
    pub grid: [u32; 2],
    /// One argument per parameter.
    pub args: Vec<Arg>,
}

/// One argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// A pointer to an element of a buffer.
    Buffer {
        /// The buffer.
        buffer: BufferId,
        /// The element that the kernel sees as its first.
        offset: usize,
    },
    /// A number.
    Scalar(Literal),
}

/// Options of a simulated launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The order of events that nothing else orders.
    pub order: Order,
    /// The blocks that run at once. A kernel must work with one, unless it says otherwise.
    pub resident: usize,
    /// Warp statements after which the launch is given up.
    pub limit: u64,
}

/// The order in which blocks start, warps run and copies land.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the first to the last; copies and messages as late as possible.
    Ascending,
    /// From the last to the first; copies and messages as late as possible.
    Descending,
    /// A random order that a seed determines.
    Random(u64),
}

/// The effects of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Blocks that ran.
    pub blocks: u32,
    /// Statements that warps executed.
    pub statements: u64,
}

impl From<BufferId> for Arg {
    fn from(buffer: BufferId) -> Arg {
        Arg::Buffer { buffer, offset: 0 }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options { order: Order::Ascending, resident: 4, limit: 1 << 32 }
    }
}

/// Runs a launch to its end; buffers change as on a device.
///
/// # Errors
///
/// Whatever the [module documentation](self) lists; arguments that do not suit the parameters; a kernel that
/// [`verify`] refuses.
pub fn simulate(kernel: &Kernel, launch: &Launch, memory: &mut Memory, options: &Options) -> Result<Stats, SimError> {
    verify(kernel, &Target::H200).map_err(SimError::Invalid)?;
    check_arguments(kernel, launch, memory)?;
    let program = program::Program::new(kernel);
    let device = device::Device::new(&program, launch, memory);
    let [x, y] = launch.grid;
    schedule::Machine::new(device, options, x * y).run()
}

fn check_arguments(kernel: &Kernel, launch: &Launch, memory: &Memory) -> Result<(), SimError> {
    let wrong = |index, reason: String| Err(SimError::Argument { index, reason });
    if kernel.params.len() != launch.args.len() {
        return wrong(launch.args.len(), format!("the kernel has {} parameters", kernel.params.len()));
    }
    for (index, (param, arg)) in kernel.params.iter().zip(&launch.args).enumerate() {
        let elem = match param.kind {
            ParamKind::Read(elem) | ParamKind::Write(elem) => Some(elem),
            ParamKind::Messages | ParamKind::Control => Some(Elem::U64),
            ParamKind::Scalar(_) => None,
        };
        match (elem, arg) {
            (Some(elem), Arg::Buffer { buffer, offset }) => match memory.buffers.get(buffer.0) {
                Some(b) if b.elem == elem && *offset <= b.len() => {}
                Some(b) if b.elem == elem => return wrong(index, format!("offset {offset} of {} elements", b.len())),
                Some(b) => return wrong(index, format!("`{}` is {}, not {}", param.name, param.kind, b.elem)),
                None => return wrong(index, "no such buffer".into()),
            },
            (None, Arg::Scalar(_)) => {}
            _ => return wrong(index, format!("`{}` is {}", param.name, param.kind)),
        }
    }
    Ok(())
}
