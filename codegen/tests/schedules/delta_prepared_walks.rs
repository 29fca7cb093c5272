//! Gradients of delta rules whose walks copy tiles that a kernel of its own has prepared: fla's rule of errors against the interpreter, and
//! the bits of walks whose blocks prepare their own.

use oplus_codegen::schedules::Schedule;
use oplus_codegen::simulate::Order;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::{Output, Program};

use crate::chunk_delta::{CHANNELS, TWO_KEYS, chunked, compare, inputs, model_of, simulated_on, sizes, written_of};
use crate::device::{Placement, SMALL, Setting, Work, run};
use crate::sequences::{self, Case};

const TYPES: [Elem; 3] = [Elem::Bf16, Elem::F16, Elem::F32];

fn gradient(program: &Program) -> Program {
    adjoint(program).expect("differentiable")
}

/// Compares the fastest plan over prepared tiles with the interpreter.
fn check(program: &Program, lengths: [usize; 5], how: (Placement, Order)) {
    let is_prepared = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDeltaBackward(own) if own.prepared);
    compare(program, lengths, how, is_prepared);
}

/// The walks whose bits are wanted.
#[derive(Clone, Copy)]
enum Walks {
    /// Blocks prepare their own tiles, and have any places of the width.
    Own,
    /// Tiles are prepared by a kernel of its own. Blocks have so many places, and both walks may be one launch.
    Prepared { places: u32, concurrent: bool },
}

const ALONE: Walks = Walks::Prepared { places: 64, concurrent: false };

/// The bits of all outputs along time, or of sequences: sums over all times are stages of their own.
fn bits(
    program: &Program,
    (sizes, given): (&[usize], &[Array]),
    (placement, order): (Placement, Order),
    walks: Walks,
) -> Vec<Vec<u64>> {
    // Of a greater depth sums would have another order.
    let depth = program.axis("K").map(|axis| sizes[axis.0 as usize] as u32);
    let is_taken = |schedule: &Schedule| {
        let Schedule::ChunkDeltaBackward(own) = schedule else { return false };
        let is_own = match walks {
            Walks::Own => !own.prepared,
            Walks::Prepared { places, concurrent } => {
                (own.places, own.concurrent, own.prepared) == (places, concurrent, true)
            }
        };
        is_own && Some(own.depth) == depth && own.vector > 1
    };
    let work = Work::of(chunked(program, sizes, placement, &Target::H200, is_taken));
    let found = run(program, &work, given, sizes, Setting { placement, order, isa: Isa::Sm90a });
    let has_time = |output: &Output| output.axes.iter().any(|axis| ["T", "S"].contains(&program.axis_name(*axis)));
    let outputs = found.iter().zip(&program.outputs).filter(|(_, output)| has_time(output));
    outputs.map(|(array, _)| array.as_floats().expect("floats").iter().map(|x| x.to_bits()).collect()).collect()
}

/// Compares the bits over prepared tiles with those of walks whose blocks prepare their own.
fn check_bits(program: &Program, of: (&[usize], &[Array]), how: (Placement, Order), prepared: &[Walks]) {
    let wanted = bits(program, of, (how.0, Order::Ascending), Walks::Own);
    assert!(wanted.iter().flatten().any(|bits| *bits != 0), "{}", program.name);
    for walks in prepared {
        let found = bits(program, of, how, *walks);
        for (k, (wanted, found)) in wanted.iter().zip(&found).enumerate() {
            assert!(wanted == found, "{} {:?} {how:?}: output {k} of those along time differs", program.name, of.0);
        }
    }
}

fn same(program: &Program, lengths: [usize; 5], order: Order, prepared: &[Walks]) {
    let sizes = sizes(program, lengths);
    check_bits(program, (&sizes, &inputs(program, &sizes)), (Placement::Contiguous, order), prepared);
}

#[test]
fn walks_over_prepared_tiles_are_those_of_the_rule() {
    for elem in TYPES {
        let [kda, rwkv7] = ["kda", "rwkv7"].map(|name| gradient(&model_of(name, elem)));
        for program in [&kda, &rwkv7] {
            check(program, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
            check(program, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
        }
        check(&kda, [1, 1, 130, 128, 128], (Placement::Contiguous, Order::Random(2)));
        check(&kda, [1, 1, 47, 32, 64], (Placement::Contiguous, Order::Descending));
    }
}

#[test]
fn prepared_walks_of_any_number_of_times() {
    for name in ["kda", "rwkv7"] {
        let program = &gradient(&model_of(name, Elem::Bf16));
        for (k, times) in [1, 15, 16, 17, 63, 64, 65, 129, 330].into_iter().enumerate() {
            check(program, [1, 2, times, 64, 64], (Placement::Contiguous, Order::Random(k as u64)));
            same(program, [2, 1, times, 64, 64], Order::Random(k as u64), &[ALONE]);
        }
    }
}

#[test]
fn prepared_tiles_give_the_bits_of_tiles_that_blocks_prepare() {
    for elem in TYPES {
        let texts = CHANNELS.iter().chain(&TWO_KEYS).map(|text| written_of(text, elem));
        for program in ["kda", "rwkv7"].map(|name| model_of(name, elem)).into_iter().chain(texts) {
            same(&gradient(&program), [1, 2, 150, 64, 64], Order::Random(1), &[ALONE]);
        }
        let kda = &gradient(&model_of("kda", elem));
        same(kda, [1, 1, 193, 128, 128], Order::Descending, &[ALONE]);
    }
}

#[test]
fn prepared_walks_at_the_same_time_and_of_few_places() {
    for elem in TYPES {
        for (name, keys, order) in
            [("kda", 64, Order::Random(1)), ("kda", 128, Order::Descending), ("rwkv7", 32, Order::Random(2))]
        {
            let both =
                [false, true].map(|concurrent| [16, 32, 64].map(|places| Walks::Prepared { places, concurrent }));
            same(&gradient(&model_of(name, elem)), [1, 2, 130, keys, 64], order, both.as_flattened());
        }
    }
}

/// Sequences that begin and end at states of their own, of more and of fewer times than a chunk, of one and of none.
#[test]
fn prepared_walks_of_packed_sequences() {
    let cases =
        [(Elem::Bf16, 0, Order::Random(1)), (Elem::F16, 1, Order::Descending), (Elem::F32, 6, Order::Random(2))];
    for text in &sequences::WRITTEN[1..3] {
        for (elem, offsets, order) in cases {
            let program = &gradient(&written_of(text, elem));
            let case = Case { offsets, sizes: [1, 1, 32, 64], placement: Placement::Contiguous, order };
            let sizes = case.sizes(program);
            check_bits(program, (&sizes, &case.inputs(program, &sizes)), (case.placement, order), &[ALONE]);
        }
    }
}

#[test]
fn prepared_walks_of_tensors_with_padding() {
    for elem in TYPES {
        for name in ["kda", "rwkv7"] {
            check(&gradient(&model_of(name, elem)), [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
        }
    }
}

/// Devices with less shared memory have fewer tiles in flight.
#[test]
fn prepared_walks_on_devices_before_hopper() {
    for (elem, targets) in [(Elem::Bf16, vec![Target::A100, SMALL]), (Elem::F32, vec![Target::A100])] {
        let program = &gradient(&model_of("kda", elem));
        let lengths = [1, 1, 150, 128, 64];
        let given = inputs(program, &sizes(program, lengths));
        let of = |target: &Target, order: Order, prepared: bool| {
            let is_taken = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDeltaBackward(own) if own.prepared == prepared && own.vector > 1);
            let found = simulated_on(target, program, (lengths, &given), (Placement::Contiguous, order), is_taken);
            found.iter().map(|array| format!("{array:?}")).collect::<Vec<_>>()
        };
        let wanted = of(&Target::H200, Order::Ascending, false);
        for target in targets {
            assert!(of(&target, Order::Random(1), true) == wanted, "{elem} {} bytes", target.shared_bytes);
        }
    }
}

/// Rules with two keys in `f32` have room for more than 64 only where tiles are prepared.
#[test]
fn two_keys_of_more_than_64_places_in_f32() {
    let rwkv7 = &gradient(&model_of("rwkv7", Elem::F32));
    check(rwkv7, [1, 1, 131, 128, 64], (Placement::Contiguous, Order::Random(6)));
    check(rwkv7, [1, 2, 70, 116, 20], (Placement::Padded, Order::Descending));
    check(rwkv7, [1, 1, 65, 128, 128], (Placement::Contiguous, Order::Random(1)));
    check(
        &gradient(&written_of(TWO_KEYS[2], Elem::F32)),
        [1, 1, 97, 128, 64],
        (Placement::Contiguous, Order::Random(7)),
    );
}
