//! The softmax merge: operators with a maximum, and payloads that are scaled by powers of their distance from it.

use oplus_dsl::interpret::{Combiner, Precision};
use oplus_dsl::ir::{Literal, Operator};

/// Pairs of bases at which an operator is tried.
const BASES: [(f64, f64); 7] =
    [(0.0, 0.0), (0.5, -1.25), (-2.0, 0.75), (3.0, 2.5), (-1.0, -4.0), (10.0, -3.0), (f64::NEG_INFINITY, 1.5)];
/// Payloads at which an operator is tried.
const PAYLOADS: [(f64, f64); 3] = [(1.0, 0.0), (0.0, 1.0), (2.0, -3.0)];

/// The rate κ of an operator of a field m and payloads p whose combination is, with M = max(l.m, r.m), M and
/// l.p·2^(κ·(l.m − M)) + r.p·2^(κ·(r.m − M)); `None` when it is another operator, judged by its values.
pub fn rate(operator: &Operator, gauge: usize) -> Option<f64> {
    let at = |l: (f64, f64), r: (f64, f64)| combined(operator, gauge, l, r);
    let payloads = (0..operator.fields.len()).filter(|k| *k != gauge);
    let rate = -payloads.clone().next().map(|k| at((0.0, 0.0), (-1.0, 1.0))[k])?.log2();
    let is_one = |(l, r): (f64, f64), (x, y): (f64, f64)| {
        let (found, most) = (at((l, x), (r, y)), l.max(r));
        let want = x * (rate * (l - most)).exp2() + y * (rate * (r - most)).exp2();
        found[gauge] == most && payloads.clone().all(|k| (found[k] - want).abs() <= 1e-9 * (1.0 + want.abs()))
    };
    let all = BASES.iter().all(|bases| PAYLOADS.iter().all(|payloads| is_one(*bases, *payloads)));
    (rate > 0.0 && all && operator.identity[gauge].as_f64() == f64::NEG_INFINITY).then_some(rate)
}

/// The combination of two states given as (base, every payload).
fn combined(operator: &Operator, gauge: usize, l: (f64, f64), r: (f64, f64)) -> Vec<f64> {
    let state = |(base, payload): (f64, f64)| -> Vec<Literal> {
        (0..operator.fields.len()).map(|k| Literal::Float(if k == gauge { base } else { payload })).collect()
    };
    let combined = Combiner::new(operator, Precision::Exact).combine(&state(l), &state(r));
    combined.into_iter().map(Literal::as_f64).collect()
}
