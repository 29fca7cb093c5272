//! Kernels that plans choose fit the registers.

use crate::check::ptx;
use crate::common::stage;
use oplus_codegen::lower::lower;
use oplus_codegen::plan::variants;
use oplus_codegen::target::Isa;

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
