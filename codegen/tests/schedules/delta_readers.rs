//! Delta rules in chunks whose queries have warps of their own: the bits of those whose warps take them while they walk.

use oplus_codegen::plan::Planner;
use oplus_codegen::schedules::{ChunkDelta, RuleSweep, Schedule};
use oplus_codegen::simulate::Order;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::Program;

use crate::chunk_delta::{CHANNELS, OTHERS, TWO_KEYS, WRITTEN, chunked, inputs, model, model_of, sizes, written_of};
use crate::device::{Placement, Setting, Work, call, run};
use crate::sequences::{self, Case};

/// Compares the outputs of both by blocks of so many places.
fn check(program: &Program, places: u32, lengths: [usize; 5], how: (Placement, Order)) {
    let sizes = sizes(program, lengths);
    check_given(program, (RuleSweep::Whole, places), (&sizes, &inputs(program, &sizes)), how);
}

fn check_given(
    program: &Program,
    (sweep, places): (RuleSweep, u32),
    (sizes, given): (&[usize], &[Array]),
    (placement, order): (Placement, Order),
) {
    let outputs = |readers: bool| {
        let is_taken = |own: &ChunkDelta| own.readers == readers && (own.sweep, own.places) == (sweep, places);
        let is_meant = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDelta(own) if is_taken(own));
        let work = Work::of(chunked(program, sizes, placement, &Target::H200, is_meant));
        let found = run(program, &work, given, sizes, Setting { placement, order, isa: Isa::Sm90a });
        let bits = |x: &f64| x.to_bits();
        found.iter().map(|o| o.as_floats().expect("floats").iter().map(bits).collect()).collect::<Vec<Vec<u64>>>()
    };
    let (alone, beside) = (outputs(false), outputs(true));
    assert!(alone.iter().flatten().any(|bits| *bits != 0) || sizes.contains(&0), "{}", program.name);
    for ((alone, beside), output) in alone.iter().zip(&beside).zip(&program.outputs) {
        assert!(alone == beside, "{} {sizes:?} {placement:?} {order:?}: `{}` differs", program.name, output.name);
    }
}

/// Numbers of times about those of a chunk, of a tile and of the tiles in flight.
const LENGTHS: [usize; 10] = [0, 1, 15, 16, 17, 63, 64, 65, 129, 330];

#[test]
fn readers_give_the_bits_of_a_walk_at_any_length() {
    for name in ["delta_rule", "gated_delta_rule"] {
        let program = &model(name);
        for (k, times) in LENGTHS.into_iter().enumerate() {
            let orders = [Order::Ascending, Order::Descending, Order::Random(k as u64)];
            check(program, 16, [1, 2, times, 32, 32], (Placement::Contiguous, orders[k % 3]));
        }
    }
}

#[test]
fn readers_of_blocks_of_any_places() {
    for name in ["delta_rule", "gated_delta_rule"] {
        let program = &model(name);
        for places in [16, 32] {
            check(program, places, [1, 2, 200, 64, 64], (Placement::Contiguous, Order::Random(1)));
            check(program, places, [2, 1, 65, 128, 128], (Placement::Contiguous, Order::Descending));
            check(program, places, [1, 2, 330, 24, 8], (Placement::Padded, Order::Random(3)));
        }
    }
}

#[test]
fn readers_of_other_types() {
    for elem in OTHERS {
        for name in ["delta_rule", "gated_delta_rule"] {
            let program = &model_of(name, elem);
            check(program, 16, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
            check(program, 16, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
            check(program, 16, [2, 1, 261, 32, 16], (Placement::Contiguous, Order::Descending));
            check(program, 16, [1, 2, 130, 24, 8], (Placement::Padded, Order::Random(3)));
        }
    }
}

/// Decays for each channel, also strong ones, states that are read before they decay, and two keys.
#[test]
fn readers_of_rules_with_decays_for_each_channel_and_with_two_keys() {
    let texts = CHANNELS.iter().chain(&TWO_KEYS).map(|text| written_of(text, Elem::Bf16));
    for program in ["kda", "rwkv7"].map(model).into_iter().chain(texts) {
        check(&program, 16, [1, 1, 150, 64, 64], (Placement::Contiguous, Order::Random(1)));
        check(&program, 32, [1, 2, 65, 32, 32], (Placement::Padded, Order::Descending));
    }
    for elem in OTHERS {
        for name in ["kda", "rwkv7"] {
            check(&model_of(name, elem), 16, [1, 1, 100, 32, 32], (Placement::Contiguous, Order::Random(2)));
        }
    }
}

/// Products over pairs of times of large tiles wait for the readers of the tile before.
#[test]
fn readers_of_large_tiles() {
    for (elem, keys) in [(Elem::Bf16, 128), (Elem::F32, 64)] {
        let rwkv7 = &model_of("rwkv7", elem);
        check(rwkv7, 16, [1, 1, 193, keys, 32], (Placement::Contiguous, Order::Random(4)));
        check(rwkv7, 16, [1, 2, 131, keys - 24, 16], (Placement::Padded, Order::Descending));
    }
}

#[test]
fn readers_of_rules_as_users_write_them() {
    for text in [WRITTEN[0], WRITTEN[2]] {
        let program = &written_of(text, Elem::Bf16);
        check(program, 16, [1, 2, 150, 64, 64], (Placement::Contiguous, Order::Random(1)));
        check(program, 32, [2, 1, 70, 32, 128], (Placement::Contiguous, Order::Descending));
    }
}

/// Rules whose tiles of times are prepared by a kernel of its own.
#[test]
fn readers_of_prepared_tiles() {
    let strong = written_of(CHANNELS[0], Elem::Bf16);
    for program in ["delta_rule", "gated_delta_rule", "kda", "rwkv7"].map(model).into_iter().chain([strong]) {
        for (times, keys) in [(1, 64), (65, 64), (330, 64), (130, 128)] {
            let sizes = sizes(&program, [1, 2, times, keys, 32]);
            let how = (Placement::Contiguous, Order::Random(times as u64));
            check_given(&program, (RuleSweep::Walk, 16), (&sizes, &inputs(&program, &sizes)), how);
        }
    }
}

/// Blocks of sequences that begin and end at states of their own, of more and of fewer times than a chunk, of one and of none.
#[test]
fn readers_of_packed_sequences() {
    for text in &sequences::WRITTEN[..4] {
        let program = &written_of(text, Elem::Bf16);
        for (offsets, order) in [(0, Order::Random(1)), (1, Order::Descending), (6, Order::Random(2))] {
            let case = Case { offsets, sizes: [1, 1, 32, 32], placement: Placement::Contiguous, order };
            let sizes = case.sizes(program);
            check_given(
                program,
                (RuleSweep::Whole, 16),
                (&sizes, &case.inputs(program, &sizes)),
                (case.placement, order),
            );
        }
    }
}

#[test]
fn the_planner_takes_readers_for_few_long_sequences() {
    let has_readers = |name: &str, lengths: [usize; 5]| {
        let program = &model(name);
        let planner = Planner::new(program, &Target::H200).expect("cuts");
        let plan = planner.plan(&call(program, &sizes(program, lengths), Placement::Contiguous)).expect("plans");
        let mut walks = plan.steps.iter().filter_map(|step| match &step.schedule {
            Schedule::ChunkDelta(own) if own.sweep != RuleSweep::Prepare => Some(own.readers),
            _ => None,
        });
        walks.next_back().unwrap_or_else(|| panic!("{name} takes chunks"))
    };
    for name in ["delta_rule", "gated_delta_rule"] {
        assert!(has_readers(name, [1, 16, 65_536, 128, 128]), "{name}");
        assert!(!has_readers(name, [8, 16, 4096, 64, 64]), "{name}");
    }
    let last_only = &written_of(WRITTEN[1], Elem::Bf16);
    let planner = Planner::new(last_only, &Target::H200).expect("cuts");
    let plan = planner
        .plan(&call(last_only, &sizes(last_only, [1, 16, 65_536, 128, 128]), Placement::Contiguous))
        .expect("plans");
    let reads = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDelta(own) if own.readers);
    assert!(!plan.steps.iter().any(|step| reads(&step.schedule)), "no queries are read");
}
