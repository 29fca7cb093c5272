//! Small kernels for every feature, and one for every planted fault.

mod faults;
mod features;
mod matrix;
mod pipeline;
mod random;

use oplus_dsl::ir::Literal;
use oplus_dsl::{Elem, Ty};

use super::{Arg, Buffer, BufferId, Hazard, Launch, Memory, Options, Order, SimError, Stats, simulate};
use crate::build::Builder;
use crate::tile::{Kernel, Memory as Place, Operand, ParamId, ParamKind, SharedId, SharedKind, Special};

/// Orders that every sound kernel must survive.
fn orders() -> impl Iterator<Item = Order> {
    [Order::Ascending, Order::Descending].into_iter().chain((0..20).map(Order::Random))
}

/// The sizes of the arrays of [`builder`].
const N: usize = 256;

/// A kernel of parameters x (read), y (written) and n, with a shared tile; 64 threads.
fn builder() -> Builder {
    let mut b = Builder::new("k", 64);
    b.param("x", ParamKind::Read(Elem::F32));
    b.param("y", ParamKind::Write(Elem::F32));
    b.param("n", ParamKind::Scalar(Ty::I64));
    b.shared("tile", SharedKind::Elem(Elem::F32), N as u32);
    b
}

const X: Place = Place::Global(ParamId(0));
const Y: Place = Place::Global(ParamId(1));
const TILE: SharedId = SharedId(0);
const SHARED: Place = Place::Shared(TILE);

/// Runs such a kernel on x[i] = i and gives y.
fn run_in(kernel: &Kernel, order: Order, blocks: u32, resident: usize) -> Result<(Vec<f64>, Stats), SimError> {
    let mut memory = Memory::new();
    let x = memory.add(Buffer::floats(Elem::F32, (0..N).map(|i| i as f64)));
    let y = memory.add(Buffer::unwritten(Elem::F32, N));
    let mut args: Vec<Arg> = vec![x.into(), y.into(), Arg::Scalar(Literal::Int(N as i64))];
    add_scratch(kernel, &mut memory, &mut args);
    let options = Options { order, resident, limit: 10_000_000 };
    let stats = simulate(kernel, &Launch { grid: [blocks, 1], args }, &mut memory, &options)?;
    Ok((memory.buffer(y).to_floats(), stats))
}

/// Adds buffers for message and control parameters.
fn add_scratch(kernel: &Kernel, memory: &mut Memory, args: &mut Vec<Arg>) {
    for param in &kernel.params[args.len()..] {
        let buffer: BufferId = match param.kind {
            ParamKind::Messages => memory.add(Buffer::messages(64)),
            _ => memory.add(Buffer::control()),
        };
        args.push(buffer.into());
    }
}

/// y, the same in all orders.
fn run(b: Builder) -> Vec<f64> {
    let kernel = b.finish();
    let (first, _) = run_in(&kernel, Order::Ascending, 1, 1).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    for order in orders() {
        let (again, _) = run_in(&kernel, order, 1, 1).unwrap_or_else(|e| panic!("{order:?}: {e}\n{kernel}"));
        assert_eq!(format!("{again:?}"), format!("{first:?}"), "{order:?}");
    }
    first
}

/// The faults of a kernel, in every order.
fn hazard(b: Builder) -> Hazard {
    let kernel = b.finish();
    let mut found = None;
    for order in orders() {
        match run_in(&kernel, order, 1, 1) {
            Err(SimError::Fault(fault)) => found = Some(fault.hazard),
            other => panic!("{order:?}: {other:?}\n{kernel}"),
        }
    }
    found.unwrap_or_else(|| panic!("no order"))
}

/// The thread's number, as `i32` and `i64`.
fn thread(b: &mut Builder) -> (Operand, Operand) {
    let thread = b.special(Special::Thread);
    let wide = b.convert(Ty::I64, thread);
    (thread, wide)
}

fn float(x: f64) -> Operand {
    Operand::Const(Ty::F32, Literal::Float(x))
}
