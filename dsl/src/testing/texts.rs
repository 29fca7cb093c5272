//! Operators and programs in text form.

/// The affine recurrence, h ↦ a·h + b, in f32.
pub const AFFINE: &str = "operator Affine(a: f32, b: f32) {
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

/// Running sums of rows, and their last ones.
pub const SUMS: &str = "program p {
    axes B, L;
    param x: f32[B, L];
    operator Sum(s: f32) {
        identity (0.0);
        %0: f32 = input l.s;
        %1: f32 = input r.s;
        %2: f32 = %0 + %1;
        combine (%2);
    }
    %0: f32[B, L] = param x;
    %1: tuple[B, L] = scan(L, Sum, (%0));
    %2: f32[B, L] = %1.s;
    %3: f32 = const 0.0;
    %4: f32[B] = last(L, %2, %3);
    output y: f32[B, L] = %2;
    output total: f32[B] = %4;
}";
