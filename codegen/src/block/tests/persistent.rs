//! Tickets and the ring of a persistent block: two warps, of which one draws tiles and the other works on them.

use crate::abi::{Extras, abi};
use crate::block::args::Args;
use crate::block::persistent::{Arrivals, Persistent, load_fields, shared_fields, store_fields};
use crate::build::Builder;
use crate::simulate::{Arg, Buffer, BufferId, Launch, Memory, Options, Order, simulate};
use crate::stage::{Stage, cut};
use crate::tile::{Kernel, Memory as Place, Operand, ParamKind, Reg};
use oplus_dsl::ir::Literal;
use oplus_dsl::parse::parse;
use oplus_dsl::{Elem, Ty};

/// A stage whose kernels have messages and a control word.
fn stage() -> Stage {
    let text = "program sums { axes L; param x: f32[L];
        operator Sum(s: f32) { identity (0.0); %0: f32 = input l.s; %1: f32 = input r.s; %2: f32 = %0 + %1; combine (%2); }
        %0: f32[L] = param x; %1: tuple[L] = scan(L, Sum, (%0)); %2: f32[L] = %1.s; output y: f32[L] = %2; }";
    let program = parse(text).unwrap_or_else(|e| panic!("{e}"));
    cut(&program).expect("cuts").stages.remove(0)
}

/// A kernel that adds 1 + tile to y[tile], for `n` tiles, in a ring of so many stages.
fn kernel(stages: u32) -> Kernel {
    let stage = stage();
    let mut b = Builder::new("tickets", 64);
    let args = Args::declare(&mut b, &stage, abi(&stage, &Extras { has_messages: true, ..Extras::default() }));
    let counts = b.param("counts", ParamKind::Write(Elem::I32));
    let n = b.param("tiles", ParamKind::Scalar(Ty::I32));
    let tiles = b.scalar(n);
    let block = Persistent::declare(&mut b, &args, stages, tiles);
    let values = shared_fields(&mut b, "value", &[Ty::I32], stages);
    let arrivals = Arrivals { full: 1, empty: 1, reduced: 1, carried: 1 };
    let ticket = block.start(&mut b, 0, &arrivals, |_, _| {});
    let draws = b.eq(block.warp, 0);
    b.if_else(
        draws,
        |b| block.elected(b, |b| draw_tiles(b, &block, ticket, &values)),
        |b| {
            block.scan_tiles(b, |b, tile, at| {
                let value = load_fields(b, &values, at.ring.stage.into())[0];
                block.elected(b, |b| {
                    let index = b.convert(Ty::I64, tile);
                    let old = b.load1(Place::Global(counts), index);
                    let new = b.add(old, value);
                    b.store(Place::Global(counts), index, &[new], None);
                });
                b.arrive(block.empty, at.ring.stage.into());
            });
        },
    );
    b.finish()
}

/// Fills stage after stage with the tiles of the tickets, and ends the stream.
fn draw_tiles(b: &mut Builder, block: &Persistent, ticket: Reg, values: &[crate::tile::SharedId]) {
    let at = block.cursor(b, 1);
    b.loop_(|b| {
        let tile = b.convert(Ty::I32, ticket.into());
        let more = b.lt(tile, block.tiles);
        let announced = b.select(more, tile, Operand::i32(-1));
        b.wait(block.empty, at.ring.here());
        b.store(Place::Shared(block.stage_tile), at.ring.stage.into(), &[announced], None);
        let value = b.add(tile, 1);
        store_fields(b, values, at.ring.stage.into(), &[value]);
        b.arrive(block.full, at.ring.stage.into());
        let ends = b.ge(tile, block.tiles);
        b.if_(ends, |b| block.retire(b, tile));
        b.break_if(ends);
        block.draw(b, ticket);
        block.advance(b, &at);
    });
}

/// A memory with what the kernel takes, and its arguments but for the number of tiles.
fn memory(kernel: &Kernel, tiles: usize) -> (Memory, Vec<Arg>, BufferId, BufferId) {
    let mut memory = Memory::new();
    let (counts, control) =
        (memory.add(Buffer::of(Elem::I32, vec![Literal::Int(0); tiles])), memory.add(Buffer::control()));
    let args = kernel.params.iter().map(|param| match (param.kind, param.name.as_str()) {
        (ParamKind::Control, _) => control.into(),
        (ParamKind::Messages, _) => memory.add(Buffer::messages(8)).into(),
        (ParamKind::Scalar(_), "tiles") => Arg::Scalar(Literal::Int(tiles as i64)),
        (ParamKind::Scalar(_), _) => Arg::Scalar(Literal::Int(1)),
        (_, "counts") => counts.into(),
        (ParamKind::Read(elem) | ParamKind::Write(elem), _) => memory.add(Buffer::unwritten(elem, 1)).into(),
    });
    let args = args.collect();
    (memory, args, counts, control)
}

#[test]
fn every_tile_is_drawn_once_by_any_number_of_blocks() {
    for stages in [1, 2, 3] {
        let kernel = kernel(stages);
        for (tiles, blocks, resident) in [(0, 1, 1), (1, 1, 1), (5, 1, 1), (5, 2, 2), (9, 3, 1), (2, 4, 4), (20, 3, 3)]
        {
            for order in [Order::Ascending, Order::Descending, Order::Random(1), Order::Random(2)] {
                let (mut memory, args, counts, control) = memory(&kernel, tiles);
                let launch = Launch { grid: [blocks, 1], args };
                let options = Options { order, resident, limit: 1 << 24 };
                // The control word is ready for a second launch, under another tag.
                for round in 1..=2_i64 {
                    simulate(&kernel, &launch, &mut memory, &options)
                        .unwrap_or_else(|e| panic!("{tiles} tiles, {blocks} blocks, {order:?}: {e}\n{kernel}"));
                    let found = memory.buffer(counts).to_floats();
                    let expected: Vec<f64> = (1..=tiles as i64).map(|value| (round * value) as f64).collect();
                    assert_eq!(found, expected, "{stages} stages, {tiles} tiles, {blocks} blocks, {order:?}");
                    assert_eq!(memory.buffer(control).value(0), Some(Literal::Int((round + 1) << 32)));
                }
            }
        }
    }
}
