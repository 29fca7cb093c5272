//! Stages written by hand, for tests of single schedules.

use oplus_codegen::stage::{NormalForm, Sink, Source, Stage};
#[allow(unused_imports, reason = "not every test writes affine stages")]
pub(crate) use oplus_dsl::testing::texts::AFFINE;

/// The stage of a whole program that is already in normal form.
pub(crate) fn stage(text: &str) -> Stage {
    let program = oplus_dsl::parse::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let axes = (0..program.axes.len() as u32).map(|i| vec![oplus_dsl::ir::Axis(i)]).collect();
    let sources = (0..program.params.len() as u32).map(Source::Param).collect();
    let sinks = (0..program.outputs.len() as u32).map(Sink::Output).collect();
    let views = vec![vec![]; program.params.len()];
    Stage::new(NormalForm { program, axes, sources, views, sinks, partial_axis: None })
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

/// h[t] = exp(g[t])·h[t−1] + x[t] over time-major rows of channels, with an initial and a final state.
pub(crate) fn decay_channels() -> Stage {
    stage(
        "program decay_channels {
    axes B, T, D;
    param g: f32[B, T, D];
    param x: f32[B, T, D];
    param h0: f32[B, D];
    operator LogDecay(g: f32, x: f32) {
        identity (0.0, 0.0);
        %0: f32 = input l.g;
        %1: f32 = input l.x;
        %2: f32 = input r.g;
        %3: f32 = input r.x;
        %4: f32 = %0 + %2;
        %5: f32 = exp(%2);
        %6: f32 = %5 * %1;
        %7: f32 = %6 + %3;
        combine (%4, %7);
    }
    %0: f32[B, T, D] = param g;
    %1: f32[B, T, D] = param x;
    %2: f32[B, D] = param h0;
    %3: f32 = const 0.0;
    %4: tuple[B, T, D] = scan(T, LogDecay, (%0, %1), init (%3, %2));
    %5: f32[B, T, D] = %4.x;
    %6: f32[B, D] = last(T, %5, %2);
    output h: f32[B, T, D] = %5;
    output h_last: f32[B, D] = %6;
}",
    )
}

/// The adjoint of `decay_channels` without its initial and final states.
pub(crate) fn decay_channels_backward() -> Stage {
    stage(&format!(
        "program decay_channels_bar {{
    axes B, T, D;
    param g: f32[B, T, D];
    param h: f32[B, T, D];
    param h.bar: f32[B, T, D];
    {AFFINE}
    %0: f32[B, T, D] = param g;
    %1: f32[B, T, D] = param h;
    %2: f32[B, T, D] = param h.bar;
    %3: f32 = const 0.0;
    %4: f32[B, T, D] = exp(%0);
    %5: f32[B, T, D] = shift(T, -1, %4, %3);
    %6: tuple[B, T, D] = scan(T, Affine, (%5, %2), reverse);
    %7: f32[B, T, D] = %6.b;
    %8: f32[B, T, D] = shift(T, 1, %1, %3);
    %9: f32[B, T, D] = %7 * %4;
    %10: f32[B, T, D] = %9 * %8;
    output g.bar: f32[B, T, D] = %10;
    output x.bar: f32[B, T, D] = %7;
}}"
    ))
}
