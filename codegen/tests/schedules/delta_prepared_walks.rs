//! Gradients of delta rules whose walks copy tiles that a kernel of its own has prepared: fla's rule of errors against the interpreter, and
//! the bits of walks whose blocks prepare their own.

use oplus_codegen::schedules::Schedule;
use oplus_codegen::simulate::Order;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::{Output, Program};

use crate::chunk_delta::{CHANNELS, TWO_KEYS, chunked, compare, inputs, model_of, sizes, written_of};
use crate::device::{Placement, Setting, Work, run};
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

/// Whether blocks of walks have so many places, and both walks are one launch.
#[derive(Clone, Copy)]
struct Walks {
    places: u32,
    concurrent: bool,
}

const ALONE: Walks = Walks { places: 64, concurrent: false };

/// The bits of all outputs, over tiles that are prepared by a kernel of its own or not.
fn bits(
    program: &Program,
    (sizes, given): (&[usize], &[Array]),
    (placement, order): (Placement, Order),
    walks: Walks,
    prepared: bool,
) -> Vec<Vec<u64>> {
    // Of a greater depth sums would have another order.
    let depth = program.axis("K").map(|axis| sizes[axis.0 as usize] as u32);
    let is_taken = |schedule: &Schedule| {
        let Schedule::ChunkDeltaBackward(own) = schedule else { return false };
        let is_own = (own.places, own.concurrent, own.prepared) == (walks.places, walks.concurrent, prepared);
        is_own && Some(own.depth) == depth && own.vector > 1
    };
    let work = Work::of(chunked(program, sizes, placement, &Target::H200, is_taken));
    let found = run(program, &work, given, sizes, Setting { placement, order, isa: Isa::Sm90a });
    let bits = |array: &Array| array.as_floats().expect("floats").iter().map(|x| x.to_bits()).collect();
    found.iter().map(bits).collect()
}

/// Compares both for some inputs.
fn check_bits(program: &Program, of: (&[usize], &[Array]), how: (Placement, Order), walks: Walks) {
    let [own, prepared] = [false, true].map(|prepared| bits(program, of, how, walks, prepared));
    assert!(own.iter().flatten().any(|bits| *bits != 0), "{}", program.name);
    // Sums over all times are stages of their own.
    let has_time = |output: &Output| output.axes.iter().any(|axis| ["T", "S"].contains(&program.axis_name(*axis)));
    let outputs = own.iter().zip(&prepared).zip(&program.outputs);
    for ((own, prepared), output) in outputs.filter(|(_, output)| has_time(output)) {
        assert!(own == prepared, "{} {:?} {how:?}: `{}` differs", program.name, of.0, output.name);
    }
}

fn same(program: &Program, lengths: [usize; 5], order: Order, walks: Walks) {
    let sizes = sizes(program, lengths);
    check_bits(program, (&sizes, &inputs(program, &sizes)), (Placement::Contiguous, order), walks);
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
            same(program, [2, 1, times, 64, 64], Order::Random(k as u64), ALONE);
        }
    }
}

#[test]
fn prepared_tiles_give_the_bits_of_tiles_that_blocks_prepare() {
    for elem in TYPES {
        let texts = CHANNELS.iter().chain(&TWO_KEYS).map(|text| written_of(text, elem));
        for program in ["kda", "rwkv7"].map(|name| model_of(name, elem)).into_iter().chain(texts) {
            same(&gradient(&program), [1, 2, 150, 64, 64], Order::Random(1), ALONE);
        }
        let kda = &gradient(&model_of("kda", elem));
        same(kda, [1, 1, 193, 128, 128], Order::Descending, ALONE);
    }
}

#[test]
fn prepared_walks_at_the_same_time_and_of_few_places() {
    for elem in TYPES {
        for (name, keys) in [("kda", 64), ("kda", 128), ("rwkv7", 64)] {
            let program = &gradient(&model_of(name, elem));
            for (places, order) in [(64, Order::Random(1)), (32, Order::Descending), (16, Order::Random(2))] {
                // Both walks at once have no room for two tiles that blocks prepare themselves.
                let concurrent = Walks { places, concurrent: true };
                let alone = Walks { places, concurrent: false };
                let sizes = sizes(program, [1, 2, 130, keys, 64]);
                let given = inputs(program, &sizes);
                let of = |order, walks, prepared| {
                    bits(program, (&sizes, &given), (Placement::Contiguous, order), walks, prepared)
                };
                let wanted = of(Order::Ascending, alone, false);
                for walks in [alone, concurrent] {
                    assert!(of(order, walks, true) == wanted, "{name} {elem} {keys} {places}");
                }
            }
        }
    }
}

/// Sequences that begin and end at states of their own, of more and of fewer times than a chunk, of one and of none.
#[test]
fn prepared_walks_of_packed_sequences() {
    for elem in TYPES {
        for text in &sequences::WRITTEN[1..3] {
            let program = &gradient(&written_of(text, elem));
            for (offsets, order) in [(0, Order::Random(1)), (1, Order::Descending), (6, Order::Random(2))] {
                let case = Case { offsets, sizes: [1, 2, 32, 64], placement: Placement::Contiguous, order };
                let sizes = case.sizes(program);
                let given = case.inputs(program, &sizes);
                check_bits(program, (&sizes, &given), (case.placement, order), ALONE);
            }
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
