//! The columns schedule.

#[allow(dead_code, reason = "every test uses some of these stages")]
mod common;

use oplus_codegen::schedules::columns;
use oplus_codegen::schedules::{Columns, Form};
use oplus_codegen::target::Target;
use oplus_codegen::verify::verify;

const WALK: Columns = Columns {
    lane: 2,
    form: Form::Walk,
    warps: 2,
    reduce_warps: 0,
    lanes: 32,
    vector: 2,
    steps: 4,
    stages: 0,
    group: 0,
    window: 0,
    points: 1,
};

const RING: Columns = Columns {
    lane: 2,
    form: Form::Ring,
    warps: 2,
    reduce_warps: 1,
    lanes: 8,
    vector: 4,
    steps: 3,
    stages: 3,
    group: 3,
    window: 2,
    points: 1,
};

#[test]
fn kernels_verify() {
    for stage in [common::decay_channels(), common::decay_channels_backward()] {
        for schedule in [WALK, RING, Columns { group: 1, ..RING }, Columns { lanes: 2, vector: 1, ..RING }] {
            let kernel = columns::lower(&stage, &schedule, "k").expect("lowers");
            if let Err(errors) = verify(&kernel, &Target::H200) {
                panic!("{}\n{kernel}", errors.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n"));
            }
        }
    }
}
