//! Delta rules in chunks whose queries have warps of their own: the bits of those whose warps take them while they walk.

use oplus_codegen::schedules::Schedule;
use oplus_codegen::simulate::Order;
use oplus_dsl::Elem;
use oplus_dsl::ir::Program;

use crate::chunk_delta::{CHANNELS, OTHERS, TWO_KEYS, inputs, model, model_of, simulated, sizes, written};
use crate::device::Placement;

/// Compares the outputs of both by blocks of so many places.
fn check(program: &Program, places: u32, lengths: [usize; 5], how: (Placement, Order)) {
    let given = inputs(program, &sizes(program, lengths));
    let outputs = |readers: bool| {
        let is_meant = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDelta(own) if own.readers == readers && own.places == places);
        let found = simulated(program, (lengths, &given), how, is_meant);
        let bits = |x: &f64| x.to_bits();
        found.iter().map(|o| o.as_floats().expect("floats").iter().map(bits).collect()).collect::<Vec<Vec<u64>>>()
    };
    let (alone, beside) = (outputs(false), outputs(true));
    assert!(alone.iter().flatten().any(|bits| *bits != 0) || lengths.contains(&0), "{}", program.name);
    for ((alone, beside), output) in alone.iter().zip(&beside).zip(&program.outputs) {
        assert!(alone == beside, "{} {lengths:?} {how:?}: `{}` differs", program.name, output.name);
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
