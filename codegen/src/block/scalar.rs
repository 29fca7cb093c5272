//! One map operation of the program IR as tile arithmetic.

use crate::build::Builder;
use crate::math;
use crate::tile::{Expr, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::Op;

/// The value of a constant or a map whose operands are already in registers.
///
/// Every other operation is a matter of schedules, not of scalars; asking for one is a mistake of the caller.
pub fn emit_map(b: &mut Builder, op: &Op, ty: Ty, operands: &[Operand]) -> Operand {
    match (op, operands) {
        (Op::Const(literal), _) => Operand::Const(ty, *literal),
        (Op::Unary(function, _), [x]) => math::expand(b, *function, *x),
        (Op::Binary(function, ..), [x, y]) => math::expand_binary(b, *function, *x, *y),
        (Op::Select(..), [c, x, y]) => b.select(*c, *x, *y),
        (Op::Convert(elem, _), [x]) => b.let_(ty, Expr::Convert(*elem, *x)),
        (Op::Broadcast(_), [x]) => *x,
        _ => unreachable!("{op:?} is not a map"),
    }
}
