//! Reads beyond the ends of an axis.

use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::testing::inputs;

use super::harness::{Strides, check};

/// Shifts by few and many indices, of an axis that is scanned in either direction and of one that is not.
const KERNELS: &str = "
    op Total(s) {
        identity (0);
        combine(l, r) (l.s + r.s);
    }
    fn scanned(x: [B, T]) -> (p: [B, T], q: [B, T]) {
        p = scan(T, Total(shift(T, x, 1) + shift(T, x, 3))).s * shift(T, x, 20_000);
        q = scan(T, Total(shift(T, x, 2)), reverse).s + shift(T, x, 16_384);
    }
    fn beside(x: [B, T]) -> (y: [B, T], z: [B, T]) {
        y = scan(T, Total(shift(B, x, 1))).s - shift(B, x, 2);
        z = shift(T, shift(T, x, 5), 7) * shift(T, x, 16_383);
    }
";

#[test]
fn shifts_agree_with_the_interpreter_around_the_borders_of_tiles() {
    let kernels = oplus_front::programs(KERNELS.parse().unwrap()).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    for kernel in &kernels {
        for program in [kernel.instantiate(Elem::F32), adjoint(kernel).unwrap().instantiate(Elem::F32)] {
            for sizes in [[1, 0], [2, 1], [3, 5], [2, 16_383], [1, 16_384], [1, 16_385], [2, 40_001]] {
                for strides in [Strides::Dense, Strides::Scattered] {
                    check(&program, &sizes, &inputs(&program, &sizes, 1), strides);
                }
            }
        }
    }
}
