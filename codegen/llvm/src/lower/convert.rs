//! Conversions between types, and half precision.
//!
//! Half-precision numbers are bits (`i16`, or two in an `i32`) until they are widened: neither target is asked for
//! half-precision arithmetic.

use super::{Asm, Lower, Result};
use crate::CompileError;
use inkwell::types::{BasicTypeEnum, FloatType, IntType};
use inkwell::values::{BasicValueEnum, FloatValue, IntValue};
use inkwell::{FloatPredicate, IntPredicate};
use oplus_codegen::tile::Operand;
use oplus_dsl::{Elem, Ty};

impl<'c> Lower<'c, '_> {
    /// `x` in type `ty`, through the rounding of `elem`.
    pub(super) fn convert(&self, elem: Elem, x: Operand, ty: Ty) -> Result<BasicValueEnum<'c>> {
        let middle = elem.value();
        let value = self.number(self.value(x)?, self.kernel.ty(x), middle)?;
        let value = match value {
            BasicValueEnum::FloatValue(v) if matches!(elem, Elem::Bf16 | Elem::F16) => {
                let bits = self.narrow_two(elem, v, v)?;
                self.widen(elem, bits)?.into()
            }
            _ => value,
        };
        self.number(value, middle, ty)
    }

    /// A number in another type: integers wrap, floats round to nearest or saturate to an integer, NaN becomes 0.
    fn number(&self, value: BasicValueEnum<'c>, from: Ty, to: Ty) -> Result<BasicValueEnum<'c>> {
        match (value, self.ty(to)) {
            _ if from == to => Ok(value),
            (BasicValueEnum::FloatValue(v), _) if to == Ty::Bool => {
                let zero = v.get_type().const_zero();
                Ok(self.builder.build_float_compare(FloatPredicate::UNE, v, zero, "")?.into())
            }
            (BasicValueEnum::IntValue(v), _) if to == Ty::Bool => {
                self.compare(IntPredicate::NE, v, v.get_type().const_zero())
            }
            (BasicValueEnum::FloatValue(v), BasicTypeEnum::FloatType(t)) => {
                Ok(self.builder.build_float_cast(v, t, "")?.into())
            }
            (BasicValueEnum::FloatValue(v), BasicTypeEnum::IntType(t)) => self.truncate(v, t, signed(to)),
            (BasicValueEnum::IntValue(v), BasicTypeEnum::FloatType(t)) => self.int_to_float(v, t, signed(from)),
            (BasicValueEnum::IntValue(v), BasicTypeEnum::IntType(t)) => {
                Ok(self.builder.build_int_cast_sign_flag(v, t, signed(from), "")?.into())
            }
            _ => Err(CompileError::Lowering(format!("no conversion from {from} to {to}"))),
        }
    }

    fn int_to_float(&self, value: IntValue<'c>, ty: FloatType<'c>, signed: bool) -> Result<BasicValueEnum<'c>> {
        Ok(if signed {
            self.builder.build_signed_int_to_float(value, ty, "")?.into()
        } else {
            self.builder.build_unsigned_int_to_float(value, ty, "")?.into()
        })
    }

    /// PTX saturates; NaN it turns into 0 only for 32-bit results from `f32`.
    fn truncate(&self, value: FloatValue<'c>, ty: IntType<'c>, signed: bool) -> Result<BasicValueEnum<'c>> {
        let (kind, bits) = (if signed { 's' } else { 'u' }, ty.get_bit_width());
        let from = value.get_type().get_bit_width();
        let text = format!("cvt.rzi.{kind}{bits}.f{from} $0, $1;");
        let result = Asm::pure(text).output(ty).input(value).one(self)?;
        let nan = self.builder.build_float_compare(FloatPredicate::UNO, value, value, "")?;
        Ok(self.builder.build_select(nan, ty.const_zero().into(), result, "")?)
    }

    /// The `f32` of a half-precision number in the low half of an `i32`; the high half does not matter.
    pub(super) fn widen(&self, elem: Elem, bits: IntValue<'c>) -> Result<FloatValue<'c>> {
        let f32 = self.context.f32_type();
        if elem == Elem::Bf16 {
            let high = self.builder.build_left_shift(bits, self.i32(16), "")?;
            return Ok(self.builder.build_bit_cast(high, f32, "")?.into_float_value());
        }
        let half = self.builder.build_int_truncate(bits, self.context.i16_type(), "")?;
        let half = self.builder.build_bit_cast(half, self.context.f16_type(), "")?.into_float_value();
        Ok(self.builder.build_float_ext(half, f32, "")?)
    }

    /// The `f32` of a half-precision number in the high half of an `i32`.
    pub(super) fn widen_high(&self, elem: Elem, bits: IntValue<'c>) -> Result<FloatValue<'c>> {
        if elem == Elem::Bf16 {
            let high = self.builder.build_and(bits, self.i32(0xffff_0000), "")?;
            return Ok(self.builder.build_bit_cast(high, self.context.f32_type(), "")?.into_float_value());
        }
        let low = self.builder.build_right_shift(bits, self.i32(16), false, "")?;
        self.widen(elem, low)
    }

    /// Two `f32` rounded to nearest-even half precision, in the halves of an `i32`.
    pub(super) fn narrow_two(&self, elem: Elem, low: FloatValue<'c>, high: FloatValue<'c>) -> Result<IntValue<'c>> {
        let pair = if elem == Elem::Bf16 { "bf16x2" } else { "f16x2" };
        let text = format!("cvt.rn.{pair}.f32 $0, $1, $2;");
        let bits = Asm::pure(text).output(self.context.i32_type()).input(high).input(low).one(self)?;
        Ok(bits.into_int_value())
    }
}

fn signed(ty: Ty) -> bool {
    matches!(ty, Ty::I32 | Ty::I64)
}
