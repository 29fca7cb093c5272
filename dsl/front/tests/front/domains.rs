//! Operators for some states only, and what is said of laws: meaning, text form and documentation.

use oplus_dsl::interpret::Array;
use oplus_dsl::parse::parse;
use oplus_front::{Mistake, expand, programs};
use proc_macro2::TokenStream;

use crate::common::{close, int_row, lowered, row, run};

/// The one output of a block's one kernel of one row.
fn output(block: &str, inputs: &[(&str, Array)]) -> Array {
    let [program] = &lowered(block)[..] else { panic!("one kernel") };
    assert_eq!(parse(&program.to_string()).as_ref(), Ok(program), "the text form carries the domain");
    run(program, inputs).remove(0)
}

/// The codes of the mistakes of a block.
fn codes(block: &str) -> Vec<&'static str> {
    let tokens: TokenStream = block.parse().expect("tokens");
    let mistakes = programs(tokens).err().unwrap_or_default();
    mistakes.iter().map(|diagnostic| diagnostic.mistake.code()).collect()
}

#[test]
fn a_saturating_counter() {
    let block = "
        op Sat(m: u32) where m <= 255 { identity (0); combine(l, r) (min(l.m + r.m, 255)); }
        fn count(x: u32[B, T]) -> (y: u32[B, T]) { y = scan(T, Sat(x)); }
    ";
    assert_eq!(output(block, &[("x", int_row(&[100, 100, 100, 1]))]), int_row(&[100, 200, 255, 255]));
}

#[test]
fn sums_of_non_negative_numbers_with_their_maximum() {
    let block = "
        op SumMax(s, m) where s >= 0, m >= 0, m <= s { identity (0, 0); combine(l, r) (l.s + r.s, max(l.m, r.m)); }
        fn share(x: [B, T]) -> (y: [B, T]) { let h = scan(T, SumMax(x, x)); y = h.m / h.s; }
    ";
    let found = output(block, &[("x", row(&[1.0, 3.0, 4.0]))]);
    close(found.as_floats().expect("floats"), &[1.0, 0.75, 0.5]);
}

#[test]
fn welford_with_an_integer_count() {
    let block = "
        op Moments(n: i64, mean: f64, m2: f64) where n > 0 || n == 0 && mean == 0 && m2 == 0, no overflow {
            identity (0, 0, 0);
            combine(l, r) {
                let n = l.n + r.n;
                let part = if n == 0 { 0 } else { r.n as f64 / n as f64 };
                let delta = r.mean - l.mean;
                (n, l.mean + delta * part, l.m2 + r.m2 + delta * delta * l.n as f64 * part)
            }
        }
        fn variance(x: f64[B, T]) -> (y: f64[B, T]) { let h = scan(T, Moments(1, x, 0)); y = h.m2 / h.n as f64; }
    ";
    let found = output(block, &[("x", row(&[1.0, 3.0, 5.0]))]);
    close(found.as_floats().expect("floats"), &[0.0, 1.0, 8.0 / 3.0]);
}

#[test]
fn the_last_value_that_was_there() {
    let block = "
        op Last(value, has: bool) where has || value == 0 {
            identity (0, false);
            combine(l, r) (if r.has { r.value } else { l.value }, l.has || r.has);
        }
        fn filled(x: [B, T]) -> (y: [B, T]) { let has = x > 0; y = scan(T, Last(select(has, x, 0), has)).value; }
    ";
    let found = output(block, &[("x", row(&[-1.0, 2.0, -1.0, 5.0, -3.0]))]);
    close(found.as_floats().expect("floats"), &[0.0, 2.0, 2.0, 5.0, 5.0]);
}

#[test]
fn matching_of_brackets() {
    let block = "
        op Brackets(close: u32, open: u32) where no overflow {
            identity (0, 0);
            combine(l, r) {
                let matched = min(l.open, r.close);
                (l.close + (r.close - matched), l.open - matched + r.open)
            }
        }
        fn depth(close: u32[B, T], open: u32[B, T]) -> (y: u32[B, T]) { y = scan(T, Brackets(close, open)).open; }
    ";
    let (close, open) = (int_row(&[0, 0, 1, 1, 1, 0]), int_row(&[1, 1, 0, 0, 0, 1]));
    assert_eq!(output(block, &[("close", close), ("open", open)]), int_row(&[1, 2, 1, 0, 0, 1]));
}

#[test]
fn conditions_follow_commas_or_conjunctions() {
    let with =
        |conditions: &str| format!("op Unit(p) where {conditions} {{ identity (1); combine(l, r) (l.p * r.p); }}");
    for conditions in ["p >= 0, p <= 1", "p >= 0 && p <= 1", "p >= 0, p <= 1,", "(p >= 0) && (p <= 1 || p == 1)"] {
        assert_eq!(codes(&with(conditions)), [""; 0], "{conditions}");
    }
    assert_eq!(codes(&with("p >= 0 && p <= 0.5")), ["law"], "the identity is outside");
    assert_eq!(codes(&with("0 <= p <= 1")), ["chained-comparison"]);
}

#[test]
fn a_domain_holds_for_every_type_of_elements() {
    let block = |elem: &str| {
        format!(
            "op Sat(m) where m >= 0, m <= 255 {{ identity (0); combine(l, r) (min(l.m + r.m, 255)); }}
            fn count(x: {elem}[T]) -> (y: {elem}[T]) {{ y = scan(T, Sat(x)); }}"
        )
    };
    for elem in ["f64", "f32", "bf16", "i32", "i64", "u32", "u64"] {
        assert_eq!(codes(&block(elem)), [""; 0], "{elem}");
    }
}

#[test]
fn laws_are_checked_for_the_types_of_elements() {
    let block = |operator: &str, elem: &str| {
        format!("fn scores(a: {elem}[T], b: {elem}[T]) -> (h: {elem}[T]) {{ h = scan(T, {operator}(a, b)).b; }}")
    };
    for elem in ["i32", "i64", "u32", "u64"] {
        assert_eq!(codes(&block("MaxPlus", elem)), ["element-laws"], "{elem}");
        assert_eq!(codes(&block("Affine", elem)), [""; 0], "{elem}");
    }
    for elem in ["f32", "f64", "f16"] {
        assert_eq!(codes(&block("MaxPlus", elem)), [""; 0], "{elem}");
    }
}

#[test]
fn standard_operators_that_take_integers_keep_their_laws_on_them() {
    for (operator, fields) in [("Sum", 1), ("Product", 1), ("Max", 1), ("Min", 1), ("Affine", 2), ("Matrix2", 4)] {
        for elem in ["i32", "i64", "u32", "u64"] {
            let elements = vec!["x"; fields].join(", ");
            let block = format!(
                "fn all(x: {elem}[T]) -> (y: {elem}[]) {{ let h = reduce(T, {operator}({elements})); y = {}; }}",
                if fields == 1 {
                    "h"
                } else if fields == 2 {
                    "h.b"
                } else {
                    "h.d"
                }
            );
            assert_eq!(codes(&block), [""; 0], "{operator} of {elem}");
        }
    }
}

#[test]
fn a_wrong_operator_is_reported_where_it_is_declared_and_not_at_its_uses() {
    let block = "
        op Less(s) { identity (0); combine(l, r) (l.s - r.s); }
        fn all(x: i32[T]) -> (y: i32[T]) { y = scan(T, Less(x)); }
    ";
    assert_eq!(codes(block), ["law", "law"], "identity and associativity");
}

#[test]
fn the_documentation_says_how_laws_were_checked() {
    let block = "
        /// Counts up to 255.
        op Sat(m: u32) where m <= 255 { identity (0); combine(l, r) (min(l.m + r.m, 255)); }
        /// Composition of affine maps.
        op Maps(a, b) { identity (1, 0); combine(l, r) (l.a * r.a, r.a * l.b + r.b); }
        fn count(x: u32[T]) -> (y: u32[T]) { y = scan(T, Sat(x)); }
    ";
    let file = syn::parse2(expand(block.parse().expect("tokens"))).expect("the expansion is Rust");
    let text = prettyplease::unparse(&file);
    let documentation: Vec<&str> = text.lines().filter(|line| line.starts_with("///")).collect();
    insta::assert_snapshot!(documentation.join("\n"));
}

#[test]
fn the_counter_example_at_a_use_names_operator_and_type() {
    let block = "fn f(a: i32[T], b: i32[T]) -> (h: i32[T]) { h = scan(T, MaxPlus(a, b)).b; }";
    let mistakes = programs(block.parse().expect("tokens")).expect_err("a mistake");
    let first = mistakes.iter().next().expect("a mistake");
    let Mistake::ElementLaws { operator, types, message } = &first.mistake else { panic!("{first}") };
    assert_eq!((operator.as_str(), types.as_str()), ("MaxPlus", "`i32`"));
    assert!(message.starts_with("the identity of `MaxPlus` is wrong in field `b`: with x = (a: "), "{message}");
}

/// Operators of textbooks, lawful as they stand.
const LAWFUL: [&str; 14] = [
    "LeakyMax(d, h) { identity (0, -inf); combine(l, r) (l.d + r.d, max(l.h - r.d, r.h)); }",
    "Subarray(total, best, first, last) {
        identity (0, -inf, -inf, -inf);
        combine(l, r) (
            l.total + r.total,
            max(max(l.best, r.best), l.last + r.first),
            max(l.first, l.total + r.first),
            max(r.last, r.total + l.last),
        );
    }",
    "Viterbi(a, b) where a >= 0, b >= 0 { identity (1, 0); combine(l, r) (l.a * r.a, max(l.b * r.a, r.b)); }",
    "TopTwo(m, n) where n <= m {
        identity (-inf, -inf);
        combine(l, r) (max(l.m, r.m), max(min(l.m, r.m), max(l.n, r.n)));
    }",
    "Hash(h: u64, p: u64) { identity (0, 1); combine(l, r) (l.h * r.p + r.h, l.p * r.p); }",
    "Parity(x: bool) { identity (false); combine(l, r) (l.x != r.x); }",
    "Masks(all: u32, any: u32) { identity (0xffffffff, 0); combine(l, r) (l.all & r.all, l.any | r.any); }",
    "Length(x) where x >= 0 { identity (0); combine(l, r) (sqrt(l.x * l.x + r.x * r.x)); }",
    "Probably(p) where p >= 0, p <= 1 { identity (0); combine(l, r) (l.p + r.p - l.p * r.p); }",
    "Parallel(r) where r > 0 { identity (inf); combine(l, r) (1 / (1 / l.r + 1 / r.r)); }",
    "Velocity(v) where v > -1, v < 1 { identity (0); combine(l, r) ((l.v + r.v) / (1 + l.v * r.v)); }",
    "Quaternion(w, x, y, z) {
        identity (1, 0, 0, 0);
        combine(l, r) (
            l.w * r.w - l.x * r.x - l.y * r.y - l.z * r.z,
            l.w * r.x + l.x * r.w + l.y * r.z - l.z * r.y,
            l.w * r.y - l.x * r.z + l.y * r.w + l.z * r.x,
            l.w * r.z + l.x * r.y - l.y * r.x + l.z * r.w,
        );
    }",
    "Range(low: i64, high: i64) { identity (inf, -inf); combine(l, r) (min(l.low, r.low), max(l.high, r.high)); }",
    "Clamp(low, high) where low <= high {
        identity (-inf, inf);
        combine(l, r) (max(min(l.low, r.high), r.low), max(min(l.high, r.high), r.low));
    }",
];

/// Operators that are wrong at some states only.
const WRONG: [&str; 8] = [
    "Last(x) { identity (0); combine(l, r) (if r.x == 0 { l.x } else { if r.x == 4096 { l.x } else { r.x } }); }",
    "Rounded(x) { identity (0); combine(l, r) (floor(l.x + r.x)); }",
    "Capped(x: i32) { identity (0); combine(l, r) (min(l.x + r.x, 2000000000)); }",
    "Mean(n, mean) { identity (0, 0); combine(l, r) {
        let n = l.n + r.n;
        (n, if n == 0 { 0 } else { (l.n * l.mean + r.n * r.mean) / n })
    } }",
    "Peak(s, m) where m >= 0 { identity (0, 0); combine(l, r) (l.s + r.s, max(l.m, l.s + r.m)); }",
    "Brackets(close: i32, open: i32) { identity (0, 0); combine(l, r) {
        let matched = min(l.open, r.close);
        (l.close + r.close - matched, l.open + r.open - matched)
    } }",
    "Automaton(f0: u32, f1: u32) { identity (0, 1);
        combine(l, r) (if l.f0 == 0 { r.f0 } else { r.f1 }, if l.f1 == 0 { r.f0 } else { r.f1 });
    }",
    "Halves(x) where x >= 0, x <= 1 { identity (0); combine(l, r) (min(1, l.x + r.x + 0.001 * l.x * r.x * (l.x - r.x))); }",
];

#[test]
fn operators_of_textbooks_pass() {
    for operator in LAWFUL {
        let tokens: TokenStream = format!("op {operator}").parse().expect("tokens");
        let mistakes = programs(tokens).err().unwrap_or_default();
        assert!(mistakes.is_empty(), "{operator}\n{mistakes}");
    }
}

#[test]
fn operators_that_are_wrong_at_some_states_only_are_refused() {
    for operator in WRONG {
        let found = codes(&format!("op {operator}"));
        assert!(!found.is_empty() && found.iter().all(|code| *code == "law"), "{operator}: {found:?}");
    }
}
