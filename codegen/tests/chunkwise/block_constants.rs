//! Constants of a block that kernels read from shared memory where registers are scarce: the bits are those of kernels that keep them in registers.

use oplus_codegen::schedules::{Chunkwise, Unit};
use oplus_codegen::simulate::Order;
use oplus_dsl::Elem;

use crate::harness::{CHUNKS, Case, model, stage};

/// Checks that a schedule gives the bits of another one in several segments, and what the program means, on a width that the other has, too.
fn check(name: &str, elem: Elem, schedule: &Chunkwise, kept: &Chunkwise, width: usize) {
    let stage = stage(&model(name, elem, &[]));
    let keys = schedule.depth as usize;
    let sizes = [("B", 1), ("T", 200), ("G", 1), ("H", 2), ("P", width), ("V", width), ("N", keys), ("K", keys)];
    let case = Case::new(&stage, &sizes);
    let of = |schedule: &Chunkwise, order: Order| case.run(schedule, (3, order));
    assert_eq!(of(schedule, Order::Random(1)), of(kept, Order::Ascending), "{name} {elem} {schedule}");
    case.check(schedule, Order::Descending);
}

/// The first place of a slice of `bf16`.
#[test]
fn first_places_of_slices() {
    let schedule = Chunkwise { warps: 4, wide: true, ..CHUNKS };
    for (name, unit, depth, vector) in [
        ("ssd", Unit::Warpgroup, 128, 8),
        ("ssd_softplus", Unit::Warpgroup, 128, 8),
        ("ssd", Unit::Warp, 64, 1),
        ("mamba2", Unit::Warp, 64, 1),
    ] {
        let schedule = Chunkwise { unit, depth, vector, ..schedule };
        check(name, Elem::Bf16, &schedule, &Chunkwise { wide: false, ..schedule }, 64);
        let stage = stage(&model(name, Elem::Bf16, &[]));
        let n = (depth - vector) as usize;
        let sizes = [("B", 1), ("T", 130), ("G", 1), ("H", 1), ("P", 72), ("N", n)];
        Case::new(&stage, &sizes).check_segments(&schedule, 2, Order::Random(2));
    }
}

/// The first place of a slice of `f32` with decays of channels.
#[test]
fn first_places_of_slices_with_decays_of_channels() {
    let schedule = Chunkwise { depth: 128, padded: false, wide: true, vector: 4, ..CHUNKS };
    check("gated_linear_attention", Elem::F32, &schedule, &Chunkwise { wide: false, ..schedule }, 32);
    let stage = stage(&model("gated_linear_attention", Elem::F32, &[]));
    let sizes = [("B", 2), ("T", 70), ("H", 1), ("V", 96), ("K", 128)];
    Case::new(&stage, &sizes).check_segments(&schedule, 2, Order::Random(2));
}

/// The first chunk of a segment, in `f16` beside a gate.
#[test]
fn first_chunks_beside_a_gate() {
    let schedule = Chunkwise { warps: 4, unit: Unit::Warpgroup, copiers: 4, depth: 128, vector: 8, ..CHUNKS };
    for (padded, wide, width) in [(false, false, 64), (true, true, 128)] {
        let schedule = Chunkwise { padded, wide, ..schedule };
        check("mamba2", Elem::F16, &schedule, &Chunkwise { padded: !padded, ..schedule }, width);
    }
}

/// The first chunk of a segment and the decays behind what queries read, of single elements of `f32` beside resets.
#[test]
fn first_chunks_beside_resets() {
    let schedule = Chunkwise { warps: 4, depth: 128, vector: 1, ..CHUNKS };
    check("ssd_packed", Elem::F32, &schedule, &Chunkwise { vector: 4, ..schedule }, 64);
}
