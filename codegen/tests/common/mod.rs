//! Stages written by hand, for tests of single schedules.

use oplus_codegen::stage::{Sink, Source, Stage};

/// `op Affine` in the text form of programs, for one element type.
pub(crate) const AFFINE: &str = "operator Affine(a: f32, b: f32) {
    identity (1.0, 0.0);
    %0: f32 = input l.a;
    %1: f32 = input l.b;
    %2: f32 = input r.a;
    %3: f32 = input r.b;
    %4: f32 = %0 * %2;
    %5: f32 = %2 * %1;
    %6: f32 = %5 + %3;
    combine (%4, %6);
}";

/// The stage of a whole program that is already in normal form.
pub(crate) fn stage(text: &str) -> Stage {
    let program = oplus_dsl::parse::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let axes = (0..program.axes.len() as u32).map(|i| vec![oplus_dsl::ir::Axis(i)]).collect();
    let sources = (0..program.params.len() as u32).map(Source::Param).collect();
    let sinks = (0..program.outputs.len() as u32).map(Sink::Output).collect();
    Stage { program, axes, sources, sinks }
}

/// h[t] = a[t]·h[t−1] + b[t] with an initial and a final state.
pub(crate) fn affine() -> Stage {
    stage(&format!(
        "program affine {{
    axes B, L;
    param a: f32[B, L];
    param b: f32[B, L];
    param h0: f32[B];
    {AFFINE}
    %0: f32[B, L] = param a;
    %1: f32[B, L] = param b;
    %2: f32[B] = param h0;
    %3: f32 = const 1.0;
    %4: tuple[B, L] = scan(L, Affine, (%0, %1), init (%3, %2));
    %5: f32[B, L] = %4.b;
    %6: f32[B] = last(L, %5, %2);
    output h: f32[B, L] = %5;
    output h_last: f32[B] = %6;
}}"
    ))
}

/// λ[t] = h̄[t] + a[t+1]·λ[t+1]; ā[t] = λ[t]·h[t−1]; b̄[t] = λ[t].
pub(crate) fn affine_backward() -> Stage {
    stage(&format!(
        "program affine_bar {{
    axes B, L;
    param a: f32[B, L];
    param h: f32[B, L];
    param h.bar: f32[B, L];
    {AFFINE}
    %0: f32[B, L] = param a;
    %1: f32[B, L] = param h;
    %2: f32[B, L] = param h.bar;
    %3: f32 = const 0.0;
    %4: f32[B, L] = shift(L, -1, %0, %3);
    %5: tuple[B, L] = scan(L, Affine, (%4, %2), reverse);
    %6: f32[B, L] = %5.b;
    %7: f32[B, L] = shift(L, 1, %1, %3);
    %8: f32[B, L] = %6 * %7;
    output a.bar: f32[B, L] = %8;
    output b.bar: f32[B, L] = %6;
}}"
    ))
}
