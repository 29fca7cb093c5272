//! Copies of the rows of a tile by few threads, in a loop.

use crate::abi::{Extras, Role, Slot, Tensor, abi};
use crate::block::args::Args;
use crate::block::copy::Source;
use crate::block::layout::{Tile, TileOf, TileShape};
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::simulate::{Arg, Buffer, Launch, Memory, Options, simulate};
use crate::stage::{Stage, cut};
use crate::tile::{Kernel, Memory as Place, Operand, SharedKind, Special};
use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Literal};
use oplus_dsl::parse::parse;

const T: Axis = Axis(0);
const D: Axis = Axis(1);
/// Rows of a tile, and times of x.
const TIMES: u32 = 64;
const LENGTH: i64 = 150;

fn stage() -> Stage {
    let text = "program p { axes T, D; param x: bf16[T, D]; %0: f32[T, D] = param x; %1: f32[T, D] = %0 * %0;
        output y: bf16[T, D] = %1; }";
    let program = parse(text).unwrap_or_else(|e| panic!("{e}"));
    cut(&program).expect("cuts").stages.remove(0)
}

fn slots(stage: &Stage) -> Vec<Slot> {
    abi(stage, &Extras::default())
}

/// A kernel that copies the rows of x from one on to stage 1 of a tile, and writes the tile's rows to y.
fn kernel(stage: &Stage, depth: u32, threads: u32, first: i32) -> Kernel {
    let mut b = Builder::new("k", threads);
    let args = Args::declare(&mut b, stage, slots(stage));
    let of = TileOf { param: 0, along: T, inner: D };
    let tile = Tile::declare_as(&mut b, stage, of, TileShape { rows: TIMES, depth, stages: 2 }, Elem::Bf16);
    let full = b.shared("full", SharedKind::Mbarrier, 1);
    let thread = b.special(Special::Thread);
    let is_first = b.eq(thread, 0);
    b.if_(is_first, |b| b.init_mbarriers(full, 1, threads));
    b.barrier();
    let source = Source {
        args: &args,
        outer: &[],
        threads,
        thread,
        vector: tile.piece(),
        padded: false,
        fenced: false,
        rolled: Some(1),
    };
    let from = b.var(Operand::i32(first));
    tile.start_copies_in_loop(&mut b, &source, from.into(), Operand::i32(1));
    b.arrive_with_copies(full, Operand::i32(0));
    b.wait(full, RingStage::FIRST);
    let y = Place::Global(args.pointer(Tensor::Output(0)));
    b.for_(thread, TIMES * tile.pieces(), threads, |b, number| {
        let [row, piece] = b.div_rem(number, tile.pieces());
        let place = tile.piece_index(b, row, piece);
        let place = b.add(place, tile.len());
        for k in 0..tile.piece() {
            let at = b.add(place, k);
            let value = b.load1(Place::Shared(tile.array), at);
            let to = super::index(b, number, tile.piece() as i32, k as i32);
            b.store(y, to, &[value], None);
        }
    });
    b.finish()
}

/// The tile's rows that a kernel gives of a tensor whose rows are `stride` apart.
fn run(stage: &Stage, kernel: &Kernel, depth: u32, stride: i64) -> Vec<f64> {
    let mut memory = Memory::new();
    let x = memory.add(Buffer::floats(Elem::Bf16, super::numbers((LENGTH * stride) as usize)));
    let y = memory.add(Buffer::unwritten(Elem::Bf16, (TIMES * depth) as usize));
    let arg = |slot: Slot| match slot.role {
        Role::Size(axis) => Arg::Scalar(Literal::Int(if axis == T { LENGTH } else { i64::from(depth) })),
        Role::Stride(_, axis) => Arg::Scalar(Literal::Int(if axis == T { stride } else { 1 })),
        Role::Pointer(Tensor::Param(_)) => x.into(),
        _ => y.into(),
    };
    let launch = Launch { grid: [1, 1], args: slots(stage).into_iter().map(arg).collect() };
    simulate(kernel, &launch, &mut memory, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    memory.buffer(y).to_floats()
}

#[test]
fn rows_are_copied_and_those_beyond_the_end_are_zeros() {
    let stage = stage();
    for (depth, threads) in [(64, 32), (64, 64), (128, 32), (128, 128)] {
        for (first, further) in [(0, 0), (64, 16), (128, 0), (149, 8)] {
            let stride = i64::from(depth) + further;
            let found = run(&stage, &kernel(&stage, depth, threads, first), depth, stride);
            let x = super::numbers((LENGTH * stride) as usize);
            let wanted = |row: i64, column: i64| {
                let time = i64::from(first) + row;
                if time < LENGTH { x[(time * stride + column) as usize] } else { 0.0 }
            };
            let rows = (0..i64::from(TIMES)).flat_map(|row| (0..i64::from(depth)).map(move |column| (row, column)));
            let wanted: Vec<f64> = rows.map(|(row, column)| wanted(row, column)).collect();
            assert_eq!(found, wanted, "{depth} columns, {threads} threads, from {first}");
        }
    }
}
