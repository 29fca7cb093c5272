//! The rows schedule.

mod common;

use oplus_codegen::lower::rows;
use oplus_codegen::schedule::Rows;
use oplus_codegen::target::Target;
use oplus_codegen::verify::verify;

const BLOCK: Rows = Rows { warps: 4, row_warps: 4, lanes: 32, rows: 1, vector: 4, vectors: 2 };

#[test]
fn kernels_verify() {
    let schedules = [
        BLOCK,
        Rows { vector: 1, ..BLOCK },
        Rows { row_warps: 2, rows: 2, ..BLOCK },
        Rows { row_warps: 1, rows: 3, ..BLOCK },
        Rows { row_warps: 1, lanes: 8, rows: 2, ..BLOCK },
    ];
    for stage in [common::affine(), common::affine_backward(), common::decay_channels()] {
        for schedule in schedules {
            let kernel = rows::lower(&stage, &schedule, "k").expect("lowers");
            if let Err(errors) = verify(&kernel, &Target::H200) {
                panic!("{}\n{kernel}", errors.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n"));
            }
        }
    }
}
