//! The second operand of an operation: a value, a register, or a number of the first operand's type.

use crate::tile::{Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::Literal;

/// An operand beside another one of some type.
pub trait IntoOperand {
    /// The operand; a number is a constant of that type.
    fn into_operand(self, ty: Ty) -> Operand;
}

impl IntoOperand for Operand {
    fn into_operand(self, _: Ty) -> Operand {
        self
    }
}

impl IntoOperand for Reg {
    fn into_operand(self, _: Ty) -> Operand {
        self.into()
    }
}

impl IntoOperand for i64 {
    fn into_operand(self, ty: Ty) -> Operand {
        Operand::Const(ty, if ty.is_float() { Literal::Float(self as f64) } else { Literal::Int(self) })
    }
}

impl IntoOperand for i32 {
    fn into_operand(self, ty: Ty) -> Operand {
        i64::from(self).into_operand(ty)
    }
}

impl IntoOperand for u32 {
    fn into_operand(self, ty: Ty) -> Operand {
        i64::from(self).into_operand(ty)
    }
}

impl IntoOperand for usize {
    fn into_operand(self, ty: Ty) -> Operand {
        (self as i64).into_operand(ty)
    }
}
