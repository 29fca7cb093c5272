//! Types of operands and expressions.

use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_dsl::{Elem, Ty};

use super::{Checker, Fault};
use crate::math;
use crate::tile::{Expr, Operand, ParamKind, Reg};

impl Checker<'_> {
    /// The type of an operand; `None` (and an error) for an unknown register or a constant that does not fit.
    pub(super) fn ty(&mut self, what: &'static str, operand: Operand) -> Option<Ty> {
        match operand {
            Operand::Reg(reg) => self.reg(reg),
            Operand::Const(ty, literal) if fits(ty, literal) => Some(ty),
            Operand::Const(ty, _) => {
                self.fault(Fault::Constant { what, ty });
                None
            }
        }
    }

    /// The type of a register.
    pub(super) fn reg(&mut self, reg: Reg) -> Option<Ty> {
        match self.kernel.regs.get(reg.0 as usize) {
            Some(ty) => Some(*ty),
            None => self.undeclared(format!("register {}", reg.0)),
        }
    }

    /// Checks `dst = expr`.
    pub(super) fn assignment(&mut self, dst: Reg, expr: &Expr) {
        let Some(to) = self.reg(dst) else { return };
        match *expr {
            Expr::Copy(a) => self.typed("the value", a, to),
            Expr::Unary(op, a) => {
                let defined = match op {
                    Unary::Not => to.is_int() || to == Ty::Bool,
                    Unary::Neg | Unary::Abs | Unary::Sign | Unary::Relu => to != Ty::Bool,
                    _ => to.is_float(),
                };
                if !math::is_native(op) {
                    self.fault(Fault::Unexpanded(op));
                } else if !defined {
                    self.fault(Fault::NoSuchFunction { op, ty: to });
                }
                self.typed("the operand", a, to);
            }
            Expr::Binary(op, a, b) => self.binary(to, op, a, b),
            Expr::Fma(a, b, c) => {
                self.class("the result", to, "a float", Ty::is_float);
                [a, b, c].into_iter().for_each(|x| self.typed("an operand", x, to));
            }
            Expr::Select(c, a, b) => {
                self.typed("the condition", c, Ty::Bool);
                self.typed("the first choice", a, to);
                self.typed("the second choice", b, to);
            }
            Expr::Convert(elem, a) => {
                self.ty("the operand", a);
                self.result(to, elem.value());
            }
            Expr::Bits(a) => self.bits(to, a),
            Expr::Param(p) => match self.kernel.params.get(p.0 as usize) {
                Some(param) => match param.kind {
                    ParamKind::Scalar(ty) => self.result(to, ty),
                    kind => self.kind(&param.name, kind, "a scalar"),
                },
                None => self.fault(Fault::Undeclared(format!("parameter {}", p.0))),
            },
            Expr::Special(_) => self.result(to, Ty::I32),
            Expr::Pack(elem, a, b) => {
                self.result(to, Ty::U32);
                self.packed(elem);
                [a, b].into_iter().for_each(|x| self.typed("an operand", x, Ty::F32));
            }
            Expr::Unpack(elem, _, a) => {
                self.result(to, Ty::F32);
                self.packed(elem);
                self.typed("the operand", a, Ty::U32);
            }
            Expr::Exp2Fast(a) | Expr::Log2Fast(a) | Expr::TanhFast(a) | Expr::RecipFast(a) => {
                self.result(to, Ty::F32);
                self.typed("the operand", a, Ty::F32);
            }
        }
    }

    fn binary(&mut self, to: Ty, op: Binary, a: Operand, b: Operand) {
        let Some(ty) = self.ty("the left operand", a) else { return };
        self.typed("the right operand", b, ty);
        self.result(to, if op.is_comparison() { Ty::Bool } else { ty });
        let defined = match op {
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Max | Binary::Min => ty != Ty::Bool,
            Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge => ty != Ty::Bool,
            Binary::Eq | Binary::Ne => true,
            Binary::Rem | Binary::Shl | Binary::Shr => ty.is_int(),
            Binary::And | Binary::Or | Binary::Xor => ty.is_int() || ty == Ty::Bool,
        };
        if !defined {
            self.fault(Fault::NoSuchOperation { op, ty });
        }
    }

    fn bits(&mut self, to: Ty, a: Operand) {
        let Some(from) = self.ty("the operand", a) else { return };
        let size = |ty: Ty| ty.elem().and_then(oplus_dsl::Elem::bytes);
        if size(from) != size(to) || from == Ty::Bool || to == Ty::Bool {
            self.fault(Fault::Type { what: "the operand", found: from, expected: "of the same size as the result" });
        }
    }

    fn packed(&mut self, elem: Elem) {
        if !matches!(elem, Elem::Bf16 | Elem::F16) {
            self.fault(Fault::Elements { found: elem, expected: "bf16 or f16" });
        }
    }

    fn result(&mut self, found: Ty, expected: Ty) {
        if found != expected {
            self.fault(Fault::Type { what: "the result", found, expected: expected.name() });
        }
    }

    /// Demands that a type be of a class.
    pub(super) fn class(&mut self, what: &'static str, found: Ty, expected: &'static str, is: impl Fn(Ty) -> bool) {
        if !is(found) {
            self.fault(Fault::Type { what, found, expected });
        }
    }
}

/// Whether a type can hold a constant.
fn fits(ty: Ty, literal: Literal) -> bool {
    match (ty, literal) {
        (Ty::F64, Literal::Float(_)) | (Ty::Bool, Literal::Bool(_)) => true,
        (Ty::F32, Literal::Float(x)) => Literal::Float(f64::from(x as f32)) == literal,
        (Ty::I32, Literal::Int(i)) => i32::try_from(i).is_ok(),
        (Ty::U32, Literal::Int(i)) => u32::try_from(i).is_ok(),
        (Ty::I64 | Ty::U64, Literal::Int(_)) => true,
        _ => false,
    }
}
