//! Kernels that plans choose fit the registers.

use crate::check::{assembled_from, ptx};
use crate::clean::assemble_once;
use crate::common::{affine, affine_backward, stage};
use oplus_codegen::key::Key;
use oplus_codegen::plan::variants;
use oplus_codegen::schedules::Schedule;
use oplus_codegen::schedules::{lower, lower_fast_tier};
use oplus_codegen::stage::cut_matrix_backward;
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;

/// A moving average in f64 with a weight in f32, which is converted for every element that is combined.
const EMA: &str = "program ema { axes B, L; param x: f64[B, L]; param alpha: f32; param y0: f64[B] = 0.0;
    operator Affine(a: f32, b: f64) {
        identity (1.0, 0.0);
        %0: f32 = input l.a; %1: f64 = input l.b; %2: f32 = input r.a; %3: f64 = input r.b;
        %4: f32 = %0 * %2; %5: f64 = convert(f64, %2); %6: f64 = %5 * %1; %7: f64 = %6 + %3;
        combine (%4, %7);
    }
    %0: f64[B, L] = param x; %1: f32 = param alpha; %2: f64[B] = param y0; %3: f32 = const 1.0; %4: f32 = %3 - %1;
    %5: f64 = convert(f64, %1); %6: f64[B, L] = %5 * %0;
    %7: tuple[B, L] = scan(L, Affine, (%4, %6), init (%3, %2)); %8: f64[B, L] = %7.b; output y: f64[B, L] = %8; }";

#[test]
fn operators_that_convert_do_not_spill() {
    let mut assembled = 0;
    for isa in Isa::ALL {
        for (stage, schedule) in variants(&stage(EMA), isa) {
            let own = schedule.isa(isa);
            ptx(&lower(&stage, &schedule, own).expect("lowers"), own);
            assembled += 1;
        }
    }
    assert!(assembled > 0);
}

#[test]
fn kernels_that_stand_in_are_short_and_do_not_spill() {
    let mut assembled = 0;
    for (stage, schedule) in [affine(), affine_backward()].iter().flat_map(|stage| variants(stage, Isa::Sm90a)) {
        let isa = schedule.isa(Isa::Sm90a);
        let Some(short) = lower_fast_tier(&stage, &schedule, isa).expect("lowers") else { continue };
        let lines = |text: String| text.lines().count();
        let text = oplus_llvm::compile_quickly(&short, isa).expect("compiles");
        assembled_from(&text, &short.name, isa);
        let itself = ptx(&lower(&stage, &schedule, isa).expect("lowers"), isa);
        let (short, long) = (lines(ptx(&short, isa)), lines(itself));
        assert!(4 * short < 3 * long, "{schedule}: {short} lines instead of {long}");
        assembled += 1;
    }
    assert!(assembled > 0);
}

#[test]
fn gradients_with_decays_of_channels_do_not_spill() {
    let models = oplus_front::model_programs();
    let model = models.into_iter().find(|model| model.name == "gated_linear_attention").expect("a model");
    let gradient = adjoint(&model.instantiate(Elem::Bf16)).expect("differentiable");
    let stages = cut_matrix_backward(&gradient).expect("cuts").into_iter().flat_map(|cut| cut.stages);
    let stage =
        stages.into_iter().find(|stage| stage.kind().matrices_back().is_ok()).expect("a stage that chunks take");
    let mut assembled = 0;
    for (stage, schedule) in variants(&stage, Isa::Sm90a) {
        if !matches!(schedule, Schedule::ChunkwiseBackward(_)) {
            continue;
        }
        let isa = Isa::Sm90a;
        assemble_once(Key::of(&stage, &*schedule, isa), isa, isa, || lower(&stage, &schedule, isa).expect("lowers"));
        assembled += 1;
    }
    assert!(assembled > 0);
}
