//! Computations. Floats are IEEE 754, rounded to nearest, never contracted; integers wrap.

use super::{Asm, Lower, Result};
use crate::CompileError;
use inkwell::intrinsics::Intrinsic;
use inkwell::types::BasicTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, FloatValue, IntValue, ValueKind};
use inkwell::{FloatPredicate, IntPredicate};
use oplus_codegen::tile::{Expr, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

impl<'c> Lower<'c, '_> {
    /// The value of a computation whose register has type `ty`.
    pub(super) fn expr(&mut self, expr: &Expr, ty: Ty) -> Result<BasicValueEnum<'c>> {
        match *expr {
            Expr::Copy(x) => self.value(x),
            Expr::Unary(op, x) if ty.is_float() => self.unary_float(op, self.float(x)?),
            Expr::Unary(op, x) => self.unary_int(op, self.int(x)?, ty),
            Expr::Binary(op, a, b) if self.kernel.ty(a).is_float() => {
                self.binary_float(op, self.float(a)?, self.float(b)?)
            }
            Expr::Binary(op, a, b) => self.binary_int(op, self.int(a)?, self.int(b)?, self.kernel.ty(a)),
            Expr::Fma(a, b, c) => self.float_call("llvm.fma", &[self.float(a)?, self.float(b)?, self.float(c)?]),
            Expr::Select(c, a, b) => {
                let (condition, a, b) = (self.int(c)?, self.value(a)?, self.value(b)?);
                Ok(self.builder.build_select(condition, a, b, "")?)
            }
            Expr::Convert(elem, x) => self.convert(elem, x, ty),
            Expr::Bits(x) => Ok(self.builder.build_bit_cast(self.value(x)?, self.ty(ty), "")?),
            Expr::Param(param) if ty == Ty::Bool => {
                let byte = self.param(param)?.into_int_value();
                self.compare(IntPredicate::NE, byte, byte.get_type().const_zero())
            }
            Expr::Param(param) => self.param(param),
            Expr::Special(special) => Ok(self.special(special)?.into()),
            Expr::Pack(elem, low, high) => Ok(self.narrow_two(elem, self.float(low)?, self.float(high)?)?.into()),
            Expr::Unpack(elem, half, x) => self.widen_half(elem, half, x),
            Expr::Exp2Fast(x) => self.fast("ex2.approx.ftz.f32", x),
            Expr::Log2Fast(x) => self.fast("lg2.approx.f32", x),
            Expr::TanhFast(x) => self.fast("tanh.approx.f32", x),
            Expr::RecipFast(x) => self.fast("rcp.approx.ftz.f32", x),
        }
    }

    /// An instruction of the special-function unit.
    fn fast(&self, instruction: &str, x: Operand) -> Result<BasicValueEnum<'c>> {
        let x = self.float(x)?;
        Asm::pure(format!("{instruction} $0, $1;")).output(x.get_type()).input(x).one(self)
    }

    fn unary_float(&self, op: Unary, x: FloatValue<'c>) -> Result<BasicValueEnum<'c>> {
        let (zero, one) = (x.get_type().const_zero(), x.get_type().const_float(1.0));
        match op {
            Unary::Neg => Ok(self.builder.build_float_neg(x, "")?.into()),
            Unary::Abs => self.float_call("llvm.fabs", &[x]),
            Unary::Sqrt => self.float_call("llvm.sqrt", &[x]),
            Unary::Floor => self.float_call("llvm.floor", &[x]),
            Unary::Relu => self.float_call("llvm.maxnum", &[x, zero]),
            Unary::Recip => Ok(self.builder.build_float_div(one, x, "")?.into()),
            Unary::Sign => {
                let positive = self.builder.build_float_compare(FloatPredicate::OGT, x, zero, "")?;
                let negative = self.builder.build_float_compare(FloatPredicate::OLT, x, zero, "")?;
                let rest = self.builder.build_select(negative, x.get_type().const_float(-1.0), x, "")?;
                Ok(self.builder.build_select(positive, one.into(), rest, "")?)
            }
            _ => Err(CompileError::Lowering(format!("{op:?} of a float is no instruction"))),
        }
    }

    fn unary_int(&self, op: Unary, x: IntValue<'c>, ty: Ty) -> Result<BasicValueEnum<'c>> {
        let zero = x.get_type().const_zero();
        let signed = matches!(ty, Ty::I32 | Ty::I64);
        match op {
            Unary::Neg => Ok(self.builder.build_int_neg(x, "")?.into()),
            Unary::Not => Ok(self.builder.build_not(x, "")?.into()),
            Unary::Abs if signed => {
                self.call("llvm.abs", &[x.get_type().into()], &[x.into(), self.truth(false).into()])
            }
            Unary::Relu if signed => self.int_call("llvm.smax", x, zero),
            Unary::Abs | Unary::Relu => Ok(x.into()),
            Unary::Sign => {
                let minus = if signed { x.get_type().const_all_ones() } else { zero };
                let one = x.get_type().const_int(1, false);
                let negative = self.choose(IntPredicate::SLT, [x, zero], [minus, one])?.into_int_value();
                let nonzero = if signed { negative } else { one };
                self.choose(IntPredicate::EQ, [x, zero], [zero, nonzero])
            }
            _ => Err(CompileError::Lowering(format!("{op:?} of an integer is no instruction"))),
        }
    }

    fn binary_float(&self, op: Binary, a: FloatValue<'c>, b: FloatValue<'c>) -> Result<BasicValueEnum<'c>> {
        let compare = |predicate| -> Result<BasicValueEnum<'c>> {
            Ok(self.builder.build_float_compare(predicate, a, b, "")?.into())
        };
        match op {
            Binary::Add => Ok(self.builder.build_float_add(a, b, "")?.into()),
            Binary::Sub => Ok(self.builder.build_float_sub(a, b, "")?.into()),
            Binary::Mul => Ok(self.builder.build_float_mul(a, b, "")?.into()),
            Binary::Div => Ok(self.builder.build_float_div(a, b, "")?.into()),
            Binary::Max => self.float_call("llvm.maxnum", &[a, b]),
            Binary::Min => self.float_call("llvm.minnum", &[a, b]),
            Binary::Lt => compare(FloatPredicate::OLT),
            Binary::Le => compare(FloatPredicate::OLE),
            Binary::Gt => compare(FloatPredicate::OGT),
            Binary::Ge => compare(FloatPredicate::OGE),
            Binary::Eq => compare(FloatPredicate::OEQ),
            Binary::Ne => compare(FloatPredicate::UNE),
            _ => Err(CompileError::Lowering(format!("{op:?} of floats is no instruction"))),
        }
    }

    fn binary_int(&self, op: Binary, a: IntValue<'c>, b: IntValue<'c>, ty: Ty) -> Result<BasicValueEnum<'c>> {
        let signed = matches!(ty, Ty::I32 | Ty::I64);
        let order = |s, u| if signed { s } else { u };
        use IntPredicate::{EQ, NE, SGE, SGT, SLE, SLT, UGE, UGT, ULE, ULT};
        match op {
            Binary::Add => Ok(self.builder.build_int_add(a, b, "")?.into()),
            Binary::Sub => Ok(self.builder.build_int_sub(a, b, "")?.into()),
            Binary::Mul => Ok(self.builder.build_int_mul(a, b, "")?.into()),
            Binary::Div | Binary::Rem => self.quotient(op == Binary::Rem, a, b, signed),
            Binary::Max => self.int_call(if signed { "llvm.smax" } else { "llvm.umax" }, a, b),
            Binary::Min => self.int_call(if signed { "llvm.smin" } else { "llvm.umin" }, a, b),
            Binary::Lt => self.compare(order(SLT, ULT), a, b),
            Binary::Le => self.compare(order(SLE, ULE), a, b),
            Binary::Gt => self.compare(order(SGT, UGT), a, b),
            Binary::Ge => self.compare(order(SGE, UGE), a, b),
            Binary::Eq => self.compare(EQ, a, b),
            Binary::Ne => self.compare(NE, a, b),
            Binary::And => Ok(self.builder.build_and(a, b, "")?.into()),
            Binary::Or => Ok(self.builder.build_or(a, b, "")?.into()),
            Binary::Xor => Ok(self.builder.build_xor(a, b, "")?.into()),
            Binary::Shl | Binary::Shr => self.shift(op == Binary::Shr, a, b, signed),
        }
    }

    /// Quotient or remainder: 0 where b is 0; wrapping where b is −1.
    fn quotient(&self, remainder: bool, a: IntValue<'c>, b: IntValue<'c>, signed: bool) -> Result<BasicValueEnum<'c>> {
        let (zero, one) = (b.get_type().const_zero(), b.get_type().const_int(1, false));
        // LLVM leaves division by 0 and of the smallest number by −1 undefined, so neither is ever asked for.
        let mut divisor = self.choose(IntPredicate::EQ, [b, zero], [one, b])?.into_int_value();
        let minus = b.get_type().const_all_ones();
        if signed {
            divisor = self.choose(IntPredicate::EQ, [b, minus], [one, divisor])?.into_int_value();
        }
        let builder = &self.builder;
        let result = match (remainder, signed) {
            (false, true) => builder.build_int_signed_div(a, divisor, "")?,
            (false, false) => builder.build_int_unsigned_div(a, divisor, "")?,
            (true, true) => builder.build_int_signed_rem(a, divisor, "")?,
            (true, false) => builder.build_int_unsigned_rem(a, divisor, "")?,
        };
        let mut result = self.choose(IntPredicate::EQ, [b, zero], [zero, result])?.into_int_value();
        if signed && !remainder {
            let negated = builder.build_int_neg(a, "")?;
            result = self.choose(IntPredicate::EQ, [b, minus], [negated, result])?.into_int_value();
        }
        Ok(result.into())
    }

    /// A shift: 0 where the distance is not below the width.
    fn shift(&self, right: bool, a: IntValue<'c>, by: IntValue<'c>, signed: bool) -> Result<BasicValueEnum<'c>> {
        let width = a.get_type().const_int(u64::from(a.get_type().get_bit_width()), false);
        let mask = a.get_type().const_int(u64::from(a.get_type().get_bit_width() - 1), false);
        let distance = self.builder.build_and(by, mask, "")?;
        let shifted = if right {
            self.builder.build_right_shift(a, distance, signed, "")?
        } else {
            self.builder.build_left_shift(a, distance, "")?
        };
        self.choose(IntPredicate::ULT, [by, width], [shifted, a.get_type().const_zero()])
    }

    /// `a ? b` of two integers, a bool.
    pub(super) fn compare(&self, p: IntPredicate, a: IntValue<'c>, b: IntValue<'c>) -> Result<BasicValueEnum<'c>> {
        Ok(self.builder.build_int_compare(p, a, b, "")?.into())
    }

    /// `if x ? y { a } else { b }`.
    pub(super) fn choose(
        &self,
        predicate: IntPredicate,
        [x, y]: [IntValue<'c>; 2],
        [a, b]: [IntValue<'c>; 2],
    ) -> Result<BasicValueEnum<'c>> {
        let condition = self.builder.build_int_compare(predicate, x, y, "")?;
        Ok(self.builder.build_select(condition, a, b, "")?.into_int_value().into())
    }

    /// An intrinsic of two integers of one type.
    fn int_call(&self, name: &str, a: IntValue<'c>, b: IntValue<'c>) -> Result<BasicValueEnum<'c>> {
        self.call(name, &[a.get_type().into()], &[a.into(), b.into()])
    }

    /// An intrinsic over one float type.
    fn float_call(&self, name: &str, args: &[FloatValue<'c>]) -> Result<BasicValueEnum<'c>> {
        let ty = args.first().map(|x| BasicTypeEnum::FloatType(x.get_type()));
        let args: Vec<_> = args.iter().map(|x| (*x).into()).collect();
        self.call(name, ty.as_slice(), &args)
    }

    /// The result of an intrinsic.
    pub(super) fn call(
        &self,
        name: &str,
        overload: &[BasicTypeEnum<'c>],
        args: &[BasicMetadataValueEnum<'c>],
    ) -> Result<BasicValueEnum<'c>> {
        match self.call_any(name, overload, args)? {
            ValueKind::Basic(value) => Ok(value),
            ValueKind::Instruction(_) => Err(CompileError::Llvm(format!("{name} gives nothing"))),
        }
    }

    /// Calls an intrinsic.
    pub(super) fn call_any(
        &self,
        name: &str,
        overload: &[BasicTypeEnum<'c>],
        args: &[BasicMetadataValueEnum<'c>],
    ) -> Result<ValueKind<'c>> {
        let declaration = Intrinsic::find(name).and_then(|i| i.get_declaration(&self.module, overload));
        let function = declaration.ok_or_else(|| CompileError::Llvm(format!("no intrinsic {name}")))?;
        Ok(self.builder.build_call(function, args, "")?.try_as_basic_value())
    }
}
