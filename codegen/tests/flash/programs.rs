//! Stages of softmax attention.

use oplus_codegen::stage::Stage;

use crate::common::stage;

const SUM: &str = "operator Sum(s: f32) {
        identity (0.0);
        %0: f32 = input l.s;
        %1: f32 = input r.s;
        %2: f32 = %0 + %1;
        combine (%2);
    }";

/// The beginning of every program, from value `%first` on: the scaled contraction of queries (`%0`) and keys (`%1`), the
/// numbers 1, 0 and −∞, and positions, those of queries counted from the last key.
fn begun(first: usize) -> String {
    let value = |k: usize| format!("%{}", first + k);
    let [product, sum, s, size, count, scale, scaled, one, zero, lowest, m, n, rows, columns, more, at] =
        std::array::from_fn(value);
    format!(
        "{product}: f32[B, G, R, M, N, E] = %0 * %1;
    {sum}: tuple[B, G, R, M, N] = reduce(E, Sum, ({product}));
    {s}: f32[B, G, R, M, N] = {sum}.s;
    {size}: i64 = size(E);
    {count}: f32 = convert(f32, {size});
    {scale}: f32 = rsqrt({count});
    {scaled}: f32[B, G, R, M, N] = {s} * {scale};
    {one}: f32 = const 1.0;
    {zero}: f32 = const 0.0;
    {lowest}: f32 = const -inf;
    {m}: i64[M] = index(M);
    {n}: i64[N] = index(N);
    {rows}: i64 = size(M);
    {columns}: i64 = size(N);
    {more}: i64 = {columns} - {rows};
    {at}: i64[M] = {m} + {more};"
    )
}

/// Attention with statements that compute `%score`, `%one` and `%value` from the contraction `%s`, the number 1 and v.
fn attention(elem: &str, params: &str, scores: &str) -> Stage {
    let begun = begun(3);
    let text = format!(
        "program attention {{
    axes B, G, R, M, N, E, F;
    param q: {elem}[B, G, R, M, E];
    param k: {elem}[B, G, N, E];
    param v: {elem}[B, G, N, F];
    {params}
    {SUM}
    operator Softmax(m: f32, d: f32, o: f32) {{
        identity (-inf, 0.0, 0.0);
        gauge m;
        %0: f32 = input l.m;
        %1: f32 = input l.d;
        %2: f32 = input l.o;
        %3: f32 = input r.m;
        %4: f32 = input r.d;
        %5: f32 = input r.o;
        %6: f32 = max(%0, %3);
        %7: bool = %0 == %6;
        %8: f32 = const 1.0;
        %9: f32 = %0 - %6;
        %10: f32 = exp(%9);
        %11: f32 = select(%7, %8, %10);
        %12: bool = %3 == %6;
        %13: f32 = %3 - %6;
        %14: f32 = exp(%13);
        %15: f32 = select(%12, %8, %14);
        %16: f32 = %11 * %1;
        %17: f32 = %15 * %4;
        %18: f32 = %16 + %17;
        %19: f32 = %11 * %2;
        %20: f32 = %15 * %5;
        %21: f32 = %19 + %20;
        combine (%6, %18, %21);
    }}
    %0: f32[B, G, R, M, E] = param q;
    %1: f32[B, G, N, E] = param k;
    %2: f32[B, G, N, F] = param v;
    {begun}
    {scores}
    output o: {elem}[B, G, R, M, F] = %95;
    output lse: f32[B, G, R, M] = %97;
}}"
    );
    stage(&numbered(&text))
}

/// The text with its values numbered in order: those of `scores` and what follows have names of their own.
fn numbered(text: &str) -> String {
    let mut names: Vec<String> = vec![];
    let program = text.find("    %0: f32[B, G, R, M, E]").expect("begins");
    let (head, body) = text.split_at(program);
    let mut lines = vec![];
    for line in body.lines() {
        let mut out = String::new();
        let defined = line.trim_start().strip_prefix('%').and_then(|l| l.split(':').next()).map(str::to_owned);
        let mut rest = line;
        while let Some(at) = rest.find('%') {
            let digits = rest[at + 1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - at - 1);
            let name = &rest[at + 1..at + 1 + digits];
            out += &rest[..=at];
            let number = names.iter().position(|n| n == name).unwrap_or(names.len());
            out += &number.to_string();
            if Some(name) == defined.as_deref() && number == names.len() {
                names.push(name.to_owned());
            }
            rest = &rest[at + 1 + digits..];
        }
        lines.push(out + rest);
    }
    format!("{head}{}", lines.join("\n"))
}

/// The end of every program: the merge of (score, one, value) and its mean and logarithm.
fn merged(score: &str, one: &str, value: &str) -> String {
    format!(
        "%90: tuple[B, G, R, M, F] = reduce(N, Softmax, ({score}, {one}, {value}));
    %91: f32[B, G, R, M] = %90.m;
    %92: f32[B, G, R, M] = %90.d;
    %93: f32[B, G, R, M, F] = %90.o;
    %89: bool[B, G, R, M] = %92 == %11;
    %94: f32[B, G, R, M] = select(%89, %10, %92);
    %95: f32[B, G, R, M, F] = %93 / %94;
    %96: f32[B, G, R, M] = ln(%94);
    %97: f32[B, G, R, M] = %91 + %96;"
    )
}

/// Scores where a condition holds.
fn where_seen(condition: &str, seen: &str, axes: &str) -> String {
    let selects = format!(
        "%80: f32[B, G, R, M, N] = select({seen}, %9, %12);
    %81: f32[{axes}] = select({seen}, %10, %11);
    %82: f32[B, G, {axes}, F] = select({seen}, %2, %11);"
    );
    format!("{condition}\n    {selects}\n    {}", merged("%80", "%81", "%82"))
}

/// Attention to all keys.
pub(crate) fn plain(elem: &str) -> Stage {
    attention(elem, "", &merged("%9", "%10", "%2"))
}

/// Attention to the keys up to the query's own position, the last query at the last key.
pub(crate) fn causal(elem: &str) -> Stage {
    attention(elem, "", &where_seen("%20: bool[M, N] = %14 <= %18;", "%20", "M, N"))
}

/// Keys within a window around the query.
pub(crate) fn window() -> Stage {
    let condition = "%19: i64 = const 9;
    %20: i64[M] = %18 - %19;
    %21: i64 = const 4;
    %22: i64[M] = %18 + %21;
    %23: bool[M, N] = %14 >= %20;
    %24: bool[M, N] = %14 <= %22;
    %25: bool[M, N] = %23 & %24;";
    attention("bf16", "", &where_seen(condition, "%25", "M, N"))
}

/// A bias for every pair, −∞ in some places.
pub(crate) fn biased() -> Stage {
    let scores = "%20: f32[M, N] = param bias;
    %21: bool[M, N] = %20 > %12;
    %22: f32[B, G, R, M, N] = %9 + %20;
    %23: f32[B, G, R, M, N] = select(%21, %22, %12);
    %24: f32[M, N] = select(%21, %10, %11);
    %25: f32[B, G, M, N, F] = select(%21, %2, %11);";
    attention("bf16", "param bias: f32[M, N];", &format!("{scores}\n    {}", merged("%23", "%24", "%25")))
}

/// Values that are multiplied with a number of their key.
pub(crate) fn weighted() -> Stage {
    let scores = "%20: f32[B, G, N] = param weight;
    %21: f32[B, G, N, F] = %2 * %20;";
    attention("bf16", "param weight: f32[B, G, N];", &format!("{scores}\n    {}", merged("%9", "%10", "%21")))
}

/// Causal scores within ±3.
pub(crate) fn softcapped() -> Stage {
    let scores = "%20: bool[M, N] = %14 <= %18;
    %21: f32 = const 3.0;
    %22: f32[B, G, R, M, N] = %9 / %21;
    %23: f32[B, G, R, M, N] = tanh(%22);
    %24: f32[B, G, R, M, N] = %23 * %21;
    %25: f32[B, G, R, M, N] = select(%20, %24, %12);
    %26: f32[M, N] = select(%20, %10, %11);
    %27: f32[B, G, M, N, F] = select(%20, %2, %11);";
    attention("bf16", "", &format!("{scores}\n    {}", merged("%25", "%26", "%27")))
}

/// The part of the adjoint of [`attention`] that a stage is: the gradient of the queries, or of the keys and the values.
/// `delta` is Σ ō·o − l̄se.
fn backward(elem: &str, seen: &str, outputs: &str) -> Stage {
    let (pair, begun) = (if seen == SEEN[0] { "N" } else { "M, N" }, begun(6));
    let text = format!(
        "program attention.bar {{
    axes B, G, R, M, N, E, F;
    param q: {elem}[B, G, R, M, E];
    param k: {elem}[B, G, N, E];
    param v: {elem}[B, G, N, F];
    param lse: f32[B, G, R, M];
    param o.bar: {elem}[B, G, R, M, F];
    param delta: f32[B, G, R, M];
    {SUM}
    %0: f32[B, G, R, M, E] = param q;
    %1: f32[B, G, N, E] = param k;
    %2: f32[B, G, N, F] = param v;
    %3: f32[B, G, R, M] = param lse;
    %4: f32[B, G, R, M, F] = param o.bar;
    %5: f32[B, G, R, M] = param delta;
    {begun}
    %22: bool[{pair}] = {seen};
    %23: f32[B, G, R, M, N] = select(%22, %12, %15);
    %24: bool[B, G, R, M, N] = %23 == %3;
    %25: f32[B, G, R, M, N] = %23 - %3;
    %26: f32[B, G, R, M, N] = exp(%25);
    %27: f32[B, G, R, M, N] = select(%24, %13, %26);
    %28: f32[B, G, R, M, N, F] = %4 * %27;
    %29: f32[B, G, {pair}, F] = select(%22, %2, %14);
    %30: f32[B, G, R, M, N, F] = %28 * %29;
    %31: tuple[B, G, R, M, N] = reduce(F, Sum, (%30));
    %32: f32[B, G, R, M, N] = %31.s;
    %33: f32[B, G, R, M, N] = %5 * %27;
    %34: f32[B, G, R, M, N] = %32 - %33;
    %35: f32[B, G, R, M, N] = select(%22, %34, %14);
    %36: f32[B, G, R, M, N] = %35 * %11;
    {outputs}
}}"
    );
    stage(&text)
}

/// The gradient of the queries.
pub(crate) fn backward_queries(elem: &str, seen: &str) -> Stage {
    let sums = "%37: f32[B, G, R, M, N, E] = %36 * %1;
    %38: tuple[B, G, R, M, E] = reduce(N, Sum, (%37));
    %39: f32[B, G, R, M, E] = %38.s;";
    backward(elem, seen, &format!("{sums}\n    output q.bar: {elem}[B, G, R, M, E] = %39;"))
}

/// The gradients of the keys and values, for every query head.
pub(crate) fn backward_keys(elem: &str, seen: &str) -> Stage {
    let sums = "%37: f32[B, G, R, M, N, E] = %36 * %0;
    %38: tuple[B, G, R, N, E] = reduce(M, Sum, (%37));
    %39: f32[B, G, R, N, E] = %38.s;
    %40: f32[B, G, R, M, N, F] = select(%22, %28, %14);
    %41: tuple[B, G, R, N, F] = reduce(M, Sum, (%40));
    %42: f32[B, G, R, N, F] = %41.s;";
    let outputs = "output k.bar: f32[B, G, R, N, E] = %39;
    output v.bar: f32[B, G, R, N, F] = %42;";
    backward(elem, seen, &format!("{sums}\n    {outputs}"))
}

/// The gradient of the values, for every query head: of one contraction.
pub(crate) fn backward_values(elem: &str, seen: &str) -> Stage {
    let sums = "%37: f32[B, G, R, M, N, F] = select(%22, %28, %14);
    %38: tuple[B, G, R, N, F] = reduce(M, Sum, (%37));
    %39: f32[B, G, R, N, F] = %38.s;";
    backward(elem, seen, &format!("{sums}\n    output v.bar: f32[B, G, R, N, F] = %39;"))
}

/// The gradients of the keys and values, of all query heads that share them.
pub(crate) fn backward_shared_keys(elem: &str, seen: &str) -> Stage {
    let sums = "%37: f32[B, G, R, M, N, E] = %36 * %0;
    %38: tuple[B, G, R, N, E] = reduce(M, Sum, (%37));
    %39: f32[B, G, R, N, E] = %38.s;
    %40: tuple[B, G, N, E] = reduce(R, Sum, (%39));
    %41: f32[B, G, N, E] = %40.s;
    %42: f32[B, G, R, M, N, F] = select(%22, %28, %14);
    %43: tuple[B, G, R, N, F] = reduce(M, Sum, (%42));
    %44: f32[B, G, R, N, F] = %43.s;
    %45: tuple[B, G, N, F] = reduce(R, Sum, (%44));
    %46: f32[B, G, N, F] = %45.s;";
    let outputs = format!(
        "output k.bar: {elem}[B, G, N, E] = %41;
    output v.bar: {elem}[B, G, N, F] = %46;"
    );
    backward(elem, seen, &format!("{sums}\n    {outputs}"))
}

/// The condition of full attention and that of causal attention, for the backward programs.
pub(crate) const SEEN: [&str; 2] = ["%17 < %19", "%17 <= %21"];
