//! Programs in text form: forward passes, their adjoints, and what has to be cut.

macro_rules! affine {
    () => {
        "operator Affine(a: f32, b: f32) { identity (1.0, 0.0);
            %0: f32 = input l.a; %1: f32 = input l.b; %2: f32 = input r.a; %3: f32 = input r.b;
            %4: f32 = %0 * %2; %5: f32 = %2 * %1; %6: f32 = %5 + %3; combine (%4, %6); }"
    };
}

macro_rules! decay {
    () => {
        "operator Decay(g: f32, x: f32) { identity (0.0, 0.0);
            %0: f32 = input l.g; %1: f32 = input l.x; %2: f32 = input r.g; %3: f32 = input r.x;
            %4: f32 = %0 + %2; %5: f32 = exp(%2); %6: f32 = %5 * %1; %7: f32 = %6 + %3; combine (%4, %7); }"
    };
}

macro_rules! sum {
    () => {
        "operator Sum(s: f32) { identity (0.0); %0: f32 = input l.s; %1: f32 = input r.s; %2: f32 = %0 + %1;
            combine (%2); }"
    };
}

/// y = running sum of x.
pub(crate) const CUMSUM: &str = concat!(
    "program cumsum { axes B, L; param x: f32[B, L];",
    sum!(),
    "%0: f32[B, L] = param x; %1: tuple[B, L] = scan(L, Sum, (%0)); %2: f32[B, L] = %1.s;
    output y: f32[B, L] = %2; }"
);

/// h[t] = a[t]·h[t−1] + b[t] with h[−1] = h0, and the last state.
pub(crate) const AFFINE: &str = concat!(
    "program affine { axes B, L; param a: f32[B, L]; param b: f32[B, L]; param h0: f32[B] = 0.0;",
    affine!(),
    "%0: f32[B, L] = param a; %1: f32[B, L] = param b; %2: f32[B] = param h0; %3: f32 = const 1.0;
    %4: tuple[B, L] = scan(L, Affine, (%0, %1), init (%3, %2)); %5: f32[B, L] = %4.b; %6: f32[B] = last(L, %5, %2);
    output h: f32[B, L] = %5; output h_last: f32[B] = %6; }"
);

/// Its adjoint: λ[t] = h̄[t] + a[t+1]·λ[t+1], ā = λ·h[t−1], b̄ = λ, h̄0 = a[0]·λ[0].
pub(crate) const AFFINE_BACKWARD: &str = concat!(
    "program affine_bar { axes B, L; param a: f32[B, L]; param h0: f32[B]; param h: f32[B, L];
    param h.bar: f32[B, L]; param h_last.bar: f32[B];",
    affine!(),
    "%0: f32[B, L] = param a; %1: f32[B] = param h0; %2: f32[B, L] = param h; %3: f32[B, L] = param h.bar;
    %4: f32[B] = param h_last.bar; %5: f32 = const 0.0; %6: f32 = const 1.0;
    %7: f32[B, L] = shift(L, -1, %0, %6); %8: tuple[B, L] = scan(L, Affine, (%7, %3), init (%6, %4), reverse);
    %9: f32[B, L] = %8.b; %10: f32[B, L] = shift(L, 1, %2, %1); %11: f32[B, L] = %9 * %10;
    %12: f32[B] = first(L, %9, %4); %13: f32[B] = first(L, %0, %6); %14: f32[B] = %12 * %13;
    output a.bar: f32[B, L] = %11; output b.bar: f32[B, L] = %9; output h0.bar: f32[B] = %14; }"
);

/// Adjoint of s[t] = exp(g[t])·s[t−1] + x[t] with one decay for all of K and V.
pub(crate) const DECAY_BACKWARD: &str = concat!(
    "program decay_bar { axes B, T, K, V; param g: f32[B, T]; param s: f32[B, T, K, V];
    param s.bar: f32[B, T, K, V];",
    decay!(),
    sum!(),
    "%0: f32[B, T] = param g; %1: f32[B, T, K, V] = param s; %2: f32[B, T, K, V] = param s.bar;
    %3: f32 = const 0.0; %4: f32[B, T] = shift(T, -1, %0, %3);
    %5: tuple[B, T, K, V] = scan(T, Decay, (%4, %2), reverse); %6: f32[B, T, K, V] = %5.x;
    %7: f32[B, T, K, V] = shift(T, 1, %1, %3); %8: f32[B, T] = exp(%0); %9: f32[B, T, K, V] = %6 * %7;
    %10: f32[B, T, K, V] = %8 * %9; %11: tuple[B, T, K] = reduce(V, Sum, (%10)); %12: f32[B, T, K] = %11.s;
    %13: tuple[B, T] = reduce(K, Sum, (%12)); %14: f32[B, T] = %13.s;
    output g.bar: f32[B, T] = %14; output x.bar: f32[B, T, K, V] = %6; }"
);

/// Two scans of different operators over the same axes.
pub(crate) const TWO_SCANS: &str = concat!(
    "program two { axes B, L; param a: f32[B, L]; param b: f32[B, L];",
    affine!(),
    sum!(),
    "%0: f32[B, L] = param a; %1: f32[B, L] = param b; %2: tuple[B, L] = scan(L, Affine, (%0, %1));
    %3: f32[B, L] = %2.b; %4: tuple[B, L] = scan(L, Sum, (%1)); %5: f32[B, L] = %4.s; %6: f32[B, L] = %3 * %5;
    %7: tuple[B] = reduce(L, Sum, (%1)); %8: f32[B] = %7.s;
    output y: f32[B, L] = %6; output total: f32[B] = %8; }"
);

/// Sum of what is before and what is after.
pub(crate) const BOTH_DIRECTIONS: &str = concat!(
    "program both { axes L; param x: f32[L];",
    sum!(),
    "%0: f32[L] = param x; %1: tuple[L] = scan(L, Sum, (%0)); %2: f32[L] = %1.s;
    %3: tuple[L] = scan(L, Sum, (%0), reverse, exclusive); %4: f32[L] = %3.s; %5: f32[L] = %2 - %4;
    output y: f32[L] = %5; }"
);

/// x divided by its sum.
pub(crate) const NORMALISE: &str = concat!(
    "program normalise { axes B, L; param x: f32[B, L];",
    sum!(),
    "%0: f32[B, L] = param x; %1: f32[B, L] = exp(%0); %2: tuple[B] = reduce(L, Sum, (%1)); %3: f32[B] = %2.s;
    %4: f32[B, L] = %1 / %3; output y: f32[B, L] = %4; }"
);

/// States over N, read out by a sum over N.
pub(crate) const STATE_SPACE: &str = concat!(
    "program ssm { axes B, D, L, N; param u: f32[B, D, L]; param a: f32[D, N]; param c: f32[B, N, L];",
    affine!(),
    sum!(),
    "%0: f32[B, D, L] = param u; %1: f32[D, N] = param a; %2: f32[B, N, L] = param c;
    %3: tuple[B, D, L, N] = scan(L, Affine, (%1, %0)); %4: f32[B, D, L, N] = %3.b;
    %5: f32[B, D, L, N] = %2 * %4; %6: tuple[B, D, L] = reduce(N, Sum, (%5)); %7: f32[B, D, L] = %6.s;
    output y: f32[B, D, L] = %7; }"
);

/// An affine scan that starts from its initial state again wherever a segment begins.
pub(crate) const SEGMENTED: &str = concat!(
    "program segmented { axes B, L, S; param a: f32[B, L]; param b: f32[B, L]; param offsets: i64[S];",
    affine!(),
    "%0: f32[B, L] = param a; %1: f32[B, L] = param b; %2: i64[S] = param offsets;
    %3: bool[L] = starts(L, S, %2); %4: f32 = const 0.0; %5: f32[B, L] = select(%3, %4, %0);
    %6: tuple[B, L] = scan(L, Affine, (%5, %1)); %7: f32[B, L] = %6.b; output y: f32[B, L] = %7; }"
);

/// States before each element, with a fill of their own, in a map, and with the scan's own initial state.
pub(crate) const SHIFTED_STATES: &str = concat!(
    "program shifted { axes B, L; param x: f32[B, L]; param z: f32[B];",
    sum!(),
    "%0: f32[B, L] = param x; %1: f32[B] = param z; %2: tuple[B, L] = scan(L, Sum, (%0), reverse);
    %3: f32[B, L] = %2.s; %4: f32[B, L] = %3 * %0; %5: f32[B, L] = shift(L, -1, %4, %1);
    %6: f32 = const 0.0; %7: f32[B, L] = shift(L, -1, %3, %6); %8: f32[B, L] = %5 + %7;
    output y: f32[B, L] = %8; output h: f32[B, L] = %3; }"
);

/// States after each element, two before it, at the first index, at another row, and a scan-dependent fill.
pub(crate) const OTHER_POSITIONS: &str = concat!(
    "program positions { axes B, L; param x: f32[B, L];",
    sum!(),
    "%0: f32[B, L] = param x; %1: tuple[B, L] = scan(L, Sum, (%0)); %2: f32[B, L] = %1.s; %3: f32 = const 0.5;
    %4: f32[B, L] = shift(L, -1, %2, %3); %5: f32[B, L] = shift(L, 2, %2, %3); %6: f32[B] = first(L, %2, %3);
    %7: f32[B, L] = shift(B, 1, %2, %3); %8: f32[B] = last(L, %2, %3); %9: f32[B, L] = shift(L, 1, %0, %8);
    %10: f32[B, L] = %4 * %5; %11: f32[B, L] = %10 + %7; %12: f32[B, L] = %11 - %6; %13: f32[B, L] = %12 + %9;
    output y: f32[B, L] = %13; output h: f32[B, L] = %2; }"
);

/// The sum of a running sum.
pub(crate) const NESTED: &str = concat!(
    "program nested { axes B, L; param x: f32[B, L];",
    sum!(),
    "%0: f32[B, L] = param x; %1: tuple[B, L] = scan(L, Sum, (%0)); %2: f32[B, L] = %1.s;
    %3: tuple[B, L] = scan(L, Sum, (%2)); %4: f32[B, L] = %3.s; %5: f32[B, L] = %4 + %2;
    output y: f32[B, L] = %5; }"
);

/// Both fields of a log-decay scan; the base has fewer axes than the payload.
pub(crate) const DECAY_WITH_BASE: &str = concat!(
    "program decay { axes T, K; param g: f32[T]; param x: f32[T, K];",
    decay!(),
    "%0: f32[T] = param g; %1: f32[T, K] = param x; %2: tuple[T, K] = scan(T, Decay, (%0, %1));
    %3: f32[T, K] = %2.x; %4: f32[T] = %2.g; output s: f32[T, K] = %3; output total: f32[T] = %4; }"
);

/// Nothing along any axis, and positions and sizes of axes that no tensor of the output has.
pub(crate) const SCALARS: &str = concat!(
    "program scalars { axes L, M; param x: f32[L]; param k: f32;",
    "%0: f32[L] = param x; %1: f32 = param k; %2: i64 = size(L); %3: f32 = convert(f32, %2);
    %4: f32 = %1 / %3; %5: f32 = last(L, %0, %1); %6: f32 = %4 + %5; %7: i64[M] = index(M);
    output y: f32 = %6; output i: i64[M] = %7; }"
);

/// The adjoint of s[t] = a[t]·s[t−1] + x[t] with one decay for all columns.
pub(crate) const DECAY_OF_COLUMNS_BACKWARD: &str = concat!(
    "program columns_bar { axes B, T, K, V; param a: f32[B, T]; param s: f32[B, T, K, V]; param s.bar: f32[B, T, K, V];",
    affine!(),
    sum!(),
    "%0: f32[B, T] = param a; %1: f32[B, T, K, V] = param s; %2: f32[B, T, K, V] = param s.bar; %3: f32 = const 0.0;
    %4: f32[B, T] = shift(T, -1, %0, %3); %5: tuple[B, T, K, V] = scan(T, Affine, (%4, %2), reverse);
    %6: f32[B, T, K, V] = %5.b; %7: f32[B, T, K, V] = shift(T, 1, %1, %3); %8: f32[B, T, K, V] = %6 * %7;
    %9: tuple[B, T, K] = reduce(V, Sum, (%8)); %10: f32[B, T, K] = %9.s;
    %11: tuple[B, T] = reduce(K, Sum, (%10)); %12: f32[B, T] = %11.s; %13: f32[B, T] = %12 * %0;
    output x.bar: f32[B, T, K, V] = %6; output a.bar: f32[B, T] = %13; }"
);
