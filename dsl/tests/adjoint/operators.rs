//! Operators that only these tests need, beside those of [`oplus_dsl::testing::operators`].

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Literal, Operator};
use oplus_dsl::testing::operator;

const ZERO: Literal = Literal::Float(0.0);
const ONE: Literal = Literal::Float(1.0);

pub(crate) fn min() -> Operator {
    let fields = [("m", Ty::F64, Literal::Float(f64::INFINITY))];
    operator("Min", fields, |[l], [r]| [l.binary(Binary::Min, r)])
}

/// x ↦ A·x + v for 2×2 matrices A whose entries are independent.
pub(crate) fn matrix_affine() -> Operator {
    let field = |name, identity| (name, Ty::F64, identity);
    let matrix = [field("a", ONE), field("b", ZERO), field("c", ZERO), field("d", ONE)];
    let [a, b, c, d] = matrix;
    let fields = [a, b, c, d, field("x", ZERO), field("y", ZERO)];
    operator("MatrixAffine", fields, |[la, lb, lc, ld, lx, ly], [ra, rb, rc, rd, rx, ry]| {
        let matrix = [ra * la + rb * lc, ra * lb + rb * ld, rc * la + rd * lc, rc * lb + rd * ld];
        let [a, b, c, d] = matrix;
        [a, b, c, d, ra * lx + rb * ly + rx, rc * lx + rd * ly + ry]
    })
}

/// Products of (1, u, v; 0, 1, w; 0, 0, 1): v depends on u and w, couplings without a cycle.
pub(crate) fn heisenberg() -> Operator {
    let fields = [("u", Ty::F64, ZERO), ("v", Ty::F64, ZERO), ("w", Ty::F64, ZERO)];
    operator("Heisenberg", fields, |[lu, lv, lw], [ru, rv, rw]| [lu + ru, lv + rv + lu * rw, lw + rw])
}

/// The product l·r of quaternions.
pub(crate) fn quaternion() -> Operator {
    let fields = [("w", Ty::F64, ONE), ("x", Ty::F64, ZERO), ("y", Ty::F64, ZERO), ("z", Ty::F64, ZERO)];
    operator("Quaternion", fields, |[lw, lx, ly, lz], [rw, rx, ry, rz]| {
        [
            lw * rw - lx * rx - ly * ry - lz * rz,
            lw * rx + lx * rw + ly * rz - lz * ry,
            lw * ry - lx * rz + ly * rw + lz * rx,
            lw * rz + lx * ry - ly * rx + lz * rw,
        ]
    })
}
