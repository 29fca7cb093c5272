//! The hyperbolic tangent of `f32` and `f64`: one form, with the polynomial of each type.

use oplus_dsl::ir::Unary;

use super::{number, polynomial};
use crate::build::Builder;
use crate::tile::Operand;

/// tanh of one type of floats.
pub(super) struct Tanh<'a> {
    /// (tanh(x) − x) / x³ in x², below the border.
    pub coefficients: &'a [f64],
    /// |x| from which exponentials are used.
    pub border: f64,
    pub exp: fn(&mut Builder, Operand) -> Operand,
    /// 1/x for 1 ≤ x.
    pub recip: fn(&mut Builder, Operand) -> Operand,
}

impl Tanh<'_> {
    /// tanh x: an odd polynomial below the border, else ±(1 − 2/(e^2|x| + 1)).
    pub(super) fn of(&self, b: &mut Builder, x: Operand) -> Operand {
        let ty = b.ty(x);
        let size = b.unary(Unary::Abs, x);
        let z = b.mul(x, x);
        let p = polynomial(b, z, self.coefficients);
        let p = b.mul(p, z);
        let near = b.fma(p, x, x);
        let twice = b.add(size, size);
        let e = (self.exp)(b, twice);
        let e = b.add(e, number(ty, 1.0));
        let e = (self.recip)(b, e);
        let far = b.fma(e, number(ty, -2.0), number(ty, 1.0));
        let minus = b.unary(Unary::Neg, far);
        let negative = b.lt(x, number(ty, 0.0));
        let far = b.select(negative, minus, far);
        let is_near = b.lt(size, number(ty, self.border));
        b.select(is_near, near, far)
    }
}
