//! The look-back schedule.

#[allow(dead_code, reason = "every test uses some of these stages")]
mod common;

use oplus_codegen::schedules::lookback::{self, Form};
use oplus_codegen::schedules::{Fold, Loader, LookBack};
use oplus_codegen::stage::Stage;
use oplus_codegen::target::Target;
use oplus_codegen::verify::verify;

fn schedule(loader: Loader, fold: Fold, vector: u32) -> LookBack {
    LookBack { scan_warps: 2, reduce_warps: 1, vector, vectors: 2, stages: 3, window: 2, fold, loader }
}

fn check(stage: &Stage, schedule: &LookBack) {
    for form in [Form::Fast, Form::Short] {
        let kernel = lookback::lower(stage, schedule, "k", form).expect("lowers");
        if let Err(errors) = verify(&kernel, &Target::H200) {
            panic!("{}\n{kernel}", errors.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n"));
        }
    }
}

#[test]
fn kernels_verify() {
    for stage in [common::affine(), common::affine_backward()] {
        for loader in [Loader::Bulk, Loader::Registers] {
            for fold in [Fold::Strict, Fold::Blocks] {
                for vector in [1, 4] {
                    check(&stage, &schedule(loader, fold, vector));
                }
            }
        }
    }
}
