//! The parts of a block in kernels of their own, which the simulator runs against plain loops.

mod args;
mod bits;
mod carry;
mod copy;
mod copy_loop;
mod evaluate;
mod halves;
mod lane_sum;
mod matmul;
mod messages;
mod non_finite;
mod pair;
mod parts;
mod persistent;
mod powers;
mod pressure;
mod reads;
mod ring;
mod roles;
mod sequence;
mod state_step;
mod steps;
mod tf32;
mod thread;
mod two_parts;
mod warpgroup;
mod words;

use crate::block::layout::Tile;
use crate::build::Builder;
use crate::simulate::{Arg, Buffer, Launch, Memory, Options, Order, simulate};
use crate::tile::{Kernel, Memory as Place, Operand, ParamId, ParamKind, Special};
use oplus_dsl::ir::Literal;
use oplus_dsl::{Elem, Ty};

/// A kernel of one warp or more with the parameters x (read) and y (written).
fn builder(threads: u32, elem: Elem) -> Builder {
    let mut b = Builder::new("k", threads);
    b.param("x", ParamKind::Read(elem));
    b.param("y", ParamKind::Write(elem));
    b
}

const X: Place = Place::Global(ParamId(0));
const Y: Place = Place::Global(ParamId(1));

/// The orders in which a launch is simulated.
const ORDERS: [Order; 4] = [Order::Ascending, Order::Descending, Order::Random(1), Order::Random(2)];

/// The y that a kernel makes of x, the same in every order; NaN where it writes nothing.
fn run(kernel: &Kernel, x: &[f64], len: usize) -> Vec<f64> {
    let of = |order| {
        let mut memory = Memory::new();
        let elem = |place| kernel.elem(place).expect("elements");
        let is_float = elem(X).value().is_float();
        let literal = |x: &f64| if is_float { Literal::Float(*x) } else { Literal::Int(*x as i64) };
        let input = memory.add(Buffer::of(elem(X), x.iter().map(literal)));
        let output = memory.add(Buffer::unwritten(elem(Y), len));
        let args: Vec<Arg> = vec![input.into(), output.into()];
        let options = Options { order, resident: 2, limit: 1 << 24 };
        simulate(kernel, &Launch { grid: [1, 1], args }, &mut memory, &options)
            .unwrap_or_else(|e| panic!("{order:?}: {e}\n{kernel}"));
        memory.buffer(output).to_floats()
    };
    let all = ORDERS.map(of);
    assert!(all.iter().all(|y| format!("{y:?}") == format!("{:?}", all[0])), "{kernel}");
    all.into_iter().next().unwrap_or_default()
}

/// Writes the elements of x from one on to a tile, by so many threads.
fn fill(b: &mut Builder, tile: &Tile, threads: u32, from: u32) {
    let number = thread(b);
    b.for_(number, tile.rows * tile.pieces(), threads, |b, number| {
        let [row, piece] = b.div_rem(number, tile.pieces());
        let to = tile.piece_index(b, row, piece);
        for k in 0..tile.piece() {
            let at = index(b, number, tile.piece() as i32, (from + k) as i32);
            let element = b.load1(X, at);
            let to = b.add(to, k);
            b.store(Place::Shared(tile.array), to, &[element], None);
        }
    });
}

/// The thread's number, `i32`.
fn thread(b: &mut Builder) -> Operand {
    b.special(Special::Thread)
}

/// `x · by + plus` of an index, as the `i64` index of a parameter.
fn index(b: &mut Builder, x: Operand, by: i32, plus: i32) -> Operand {
    let scaled = b.mul(x, by);
    let moved = b.add(scaled, plus);
    b.convert(Ty::I64, moved)
}

/// Small whole numbers, whose sums and products are exact.
fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7 + i / 5) % 11) as f64 - 5.0).collect()
}
