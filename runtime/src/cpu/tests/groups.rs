//! Operators whose fields feed one another, which are stepped in groups of lanes.

use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::testing::inputs;

use super::harness::{Strides, check};
use super::operators::{ROTATIONS, programs};

/// The last product of quaternions alone, whose steps behind the last part are of no part, a sum whose chain is on the right, and choices and truth values, once in a field that all rows share.
const KERNELS: &str = "
    op Shear(a, b, c, u, v) {
        identity (0, 0, 0, 0, 0);
        combine(l, r) (
            l.a + r.a,
            l.b + r.b,
            r.c + (l.c + l.a * r.b),
            l.u + r.u,
            l.v + r.v,
        );
    }
    op Latest(value, weight, has: bool) where has || value == 0 {
        identity (0, -inf, false);
        combine(l, r) (
            if r.has { r.value } else { l.value },
            max(l.weight, r.weight),
            l.has || r.has,
        );
    }
    fn turned(w: [B, T], x: [B, T], y: [B, T], z: [B, T]) -> (a: [B], d: [B]) {
        let q = reduce(T, Quaternion(w, x, y, z));
        (a, d) = (q.w, q.z);
    }
    fn shears(a: [B, T], b: [B, T], c: [B, T], u: [B], v: [B, T]) -> (p: [B, T], q: [B, T], r: [B, T]) {
        let s = scan(T, Shear(a, b, c, u, v), reverse);
        (p, q, r) = (s.c, s.u, s.a);
    }
    op Resetting(reset: bool, s) {
        identity (false, 0);
        combine(l, r) (l.reset || r.reset, if r.reset { r.s } else { l.s + r.s });
    }
    fn shared(x: [B, T], limit: [T]) -> (y: [B, T], any: bool[T]) {
        let s = scan(T, Resetting(limit > 0.5, x), exclusive);
        (y, any) = (s.s, s.reset);
    }
    fn filled(value: [B, T], weight: [B, T]) -> (y: [B, T], m: [B, T]) {
        let s = scan(T, Latest(if weight > 0 { value } else { 0 }, value, weight > 0), exclusive);
        (y, m) = (s.value, s.weight);
    }
";

#[test]
fn operators_whose_fields_feed_one_another_agree_with_the_interpreter() {
    let kernels = programs(&format!("{ROTATIONS}{KERNELS}"));
    for (k, kernel) in kernels.iter().enumerate() {
        for elem in [Elem::F32, Elem::F64] {
            let gradient = adjoint(kernel).unwrap().instantiate(elem);
            let forward = kernel.instantiate(elem);
            // Lanes around a group's and parts of few rows, with steps around the squares that are turned at once.
            for sizes in [[1, 0], [1, 1], [1, 300], [3, 2_100], [8, 33], [63, 40], [64, 16], [65, 31], [130, 17]] {
                for strides in [Strides::Dense, Strides::Scattered] {
                    for program in [&forward, &gradient] {
                        check(program, &sizes, &inputs(program, &sizes, k as u64), strides);
                    }
                }
            }
        }
    }
}
