//! Operators that only these tests need, beside those of [`oplus_dsl::testing::operators`].

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Literal, Operator};
use oplus_dsl::testing::{Expression, operator};

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

/// n products l·r seen through a change of basis x = M·p, M = 1 + 1·vᵀ with weights v: every field depends on every
/// other, and no two entries of the Jacobian are the same.
pub(crate) fn mixed_products<const N: usize>() -> Operator {
    let names: [String; N] = std::array::from_fn(|k| format!("x{k}"));
    // M·1 is the identity; M⁻¹ = 1 − u·vᵀ/(1 + vᵀu) with u = 1.
    let total: f64 = (0..N).map(weight).sum();
    let fields = std::array::from_fn(|k| (names[k].as_str(), Ty::F64, Literal::Float(1.0 + total)));
    operator(&format!("Mixed{N}"), fields, |l, r| {
        let (dl, dr) = (weighted_sum(l), weighted_sum(r));
        let shrink = dl.number(1.0 / (1.0 + total));
        let products: [Expression<'_>; N] = std::array::from_fn(|k| (l[k] - dl * shrink) * (r[k] - dr * shrink));
        let mixed = weighted_sum(products);
        products.map(|p| p + mixed)
    })
}

fn weighted_sum<'a, const N: usize>(x: [Expression<'a>; N]) -> Expression<'a> {
    let terms = x.into_iter().enumerate().map(|(k, x)| x * x.number(weight(k)));
    terms.reduce(|sum, term| sum + term).expect("there is a field")
}

fn weight(k: usize) -> f64 {
    0.1 + k as f64 / 32.0
}
