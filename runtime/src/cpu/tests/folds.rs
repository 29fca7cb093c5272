//! Folds of integers, of both signs and in both directions.

use oplus_dsl::testing::inputs;

use super::harness::{Strides, check};
use super::operators::programs;

const KERNELS: &str = "
    op Fold(x: TYPE) { identity (IDENTITY); combine(l, r) (COMBINED); }
    op Affine(a: TYPE, b: TYPE) { identity (1, 0); combine(l, r) (l.a * r.a, r.a * l.b + r.b); }
    fn folds(x: TYPE[B, T]) -> (whole: TYPE[B], back: TYPE[B], running: TYPE[B, T], rest: TYPE[B, T]) {
        running = scan(T, Fold(x)).x;
        rest = scan(T, Fold(x), reverse).x;
        whole = last(T, scan(T, Fold(x)).x);
        back = first(T, scan(T, Fold(x), reverse).x);
    }
    fn totals(x: TYPE[B, T]) -> (whole: TYPE[B]) { whole = last(T, scan(T, Fold(x)).x); }
    fn totals_back(x: TYPE[B, T]) -> (back: TYPE[B]) { back = first(T, scan(T, Fold(x), reverse).x); }
    fn affine_back(a: TYPE[B, T], b: TYPE[B, T]) -> (s: TYPE[B, T], last: TYPE[B]) {
        s = scan(T, Affine(a, b), reverse).b;
        last = last(T, scan(T, Affine(a, b)).b);
    }
";

/// Operations, each with its identity; of bits all are set.
const OPERATIONS: [[&str; 2]; 6] = [
    ["0", "l.x + r.x"],
    ["1", "l.x * r.x"],
    ["-inf", "max(l.x, r.x)"],
    ["inf", "min(l.x, r.x)"],
    ["0", "l.x | r.x"],
    ["BITS", "l.x & r.x"],
];

#[test]
fn integers_of_every_type_agree_with_the_interpreter() {
    let types = [("i32", "-1"), ("i64", "-1"), ("u32", "inf"), ("u64", "inf")];
    for (ty, bits) in types {
        for (seed, [identity, combined]) in OPERATIONS.into_iter().enumerate() {
            let text = KERNELS.replace("IDENTITY", identity).replace("BITS", bits).replace("COMBINED", combined);
            for program in programs(&text.replace("TYPE", ty)) {
                for sizes in [[3, 0], [2, 1], [5, 63], [1, 64], [3, 65], [2, 1000], [70, 130]] {
                    let inputs = inputs(&program, &sizes, seed as u64);
                    check(&program, &sizes, &inputs, Strides::Dense);
                }
            }
        }
    }
}
