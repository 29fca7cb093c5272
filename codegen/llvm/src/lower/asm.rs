//! Inline PTX.

use super::{Lower, Result};
use crate::CompileError;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::types::BasicTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, BasicValueEnum, ValueKind};

/// Inline PTX under construction. Operands are named by their position, `$0` first: outputs, then inputs.
pub(super) struct Asm<'c> {
    text: String,
    outputs: Vec<BasicTypeEnum<'c>>,
    constraints: Vec<String>,
    inputs: Vec<BasicMetadataValueEnum<'c>>,
    kind: Kind,
}

/// The side effects of instructions.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Effect,
    Pure,
    Collective,
}

impl<'c> Asm<'c> {
    /// Instructions that have an effect: never removed, duplicated or moved across another effect.
    pub(super) fn effect(text: impl Into<String>) -> Asm<'c> {
        Asm { text: text.into(), outputs: vec![], constraints: vec![], inputs: vec![], kind: Kind::Effect }
    }

    /// Replaces the instructions and keeps the operands.
    pub(super) fn with_text(self, text: String) -> Asm<'c> {
        Asm { text, ..self }
    }

    /// Instructions whose outputs depend on their inputs alone.
    pub(super) fn pure(text: impl Into<String>) -> Asm<'c> {
        Asm { kind: Kind::Pure, ..Asm::effect(text) }
    }

    /// Instructions of a whole warp whose outputs depend on the inputs of all its lanes alone.
    pub(super) fn collective(text: impl Into<String>) -> Asm<'c> {
        Asm { kind: Kind::Collective, ..Asm::effect(text) }
    }

    /// The next output. All outputs come before the first input.
    pub(super) fn output(mut self, ty: impl Into<BasicTypeEnum<'c>>) -> Asm<'c> {
        let ty = ty.into();
        self.constraints.push(format!("={}", letter(ty)));
        self.outputs.push(ty);
        self
    }

    /// The next output, which the instructions write before they have read every input.
    pub(super) fn early_output(mut self, ty: impl Into<BasicTypeEnum<'c>>) -> Asm<'c> {
        self = self.output(ty);
        if let Some(constraint) = self.constraints.last_mut() {
            constraint.insert(1, '&');
        }
        self
    }

    /// The next input.
    pub(super) fn input(mut self, value: impl Into<BasicValueEnum<'c>>) -> Asm<'c> {
        let value = value.into();
        self.constraints.push(letter(value.get_type()).to_string());
        self.inputs.push(value.into());
        self
    }

    /// The next input, which the instructions find in output `position` before they write it.
    pub(super) fn tied(mut self, position: usize, value: impl Into<BasicValueEnum<'c>>) -> Asm<'c> {
        self.constraints.push(position.to_string());
        self.inputs.push(value.into().into());
        self
    }

    /// Appends the instructions; their outputs.
    pub(super) fn emit(self, lower: &Lower<'c, '_>) -> Result<Vec<BasicValueEnum<'c>>> {
        let context = lower.context;
        let types: Vec<_> = self.inputs.iter().map(input_type).collect::<Result<_>>()?;
        let ty = match self.outputs[..] {
            [] => context.void_type().fn_type(&types, false),
            [BasicTypeEnum::IntType(one)] => inkwell::types::BasicType::fn_type(&one, &types, false),
            [BasicTypeEnum::FloatType(one)] => inkwell::types::BasicType::fn_type(&one, &types, false),
            _ => context.struct_type(&self.outputs, false).fn_type(&types, false),
        };
        let mut constraints = self.constraints;
        let has_effect = self.kind == Kind::Effect;
        if has_effect {
            constraints.push("~{memory}".into());
        }
        let asm = context.create_inline_asm(ty, self.text, constraints.join(","), has_effect, false, None, false);
        let call = lower.builder.build_indirect_call(ty, asm, &self.inputs, "")?;
        let attributes: &[&str] = match self.kind {
            Kind::Effect => &["convergent"],
            Kind::Pure => &["memory"],
            Kind::Collective => &["convergent", "memory"],
        };
        for name in attributes {
            let attribute = context.create_enum_attribute(Attribute::get_named_enum_kind_id(name), 0);
            call.add_attribute(AttributeLoc::Function, attribute);
        }
        match call.try_as_basic_value() {
            ValueKind::Basic(BasicValueEnum::StructValue(all)) => {
                (0..self.outputs.len() as u32).map(|k| Ok(lower.builder.build_extract_value(all, k, "")?)).collect()
            }
            ValueKind::Basic(one) => Ok(vec![one]),
            ValueKind::Instruction(_) => Ok(vec![]),
        }
    }

    /// Appends the instructions; their only output.
    pub(super) fn one(self, lower: &Lower<'c, '_>) -> Result<BasicValueEnum<'c>> {
        let outputs = self.emit(lower)?;
        outputs.first().copied().ok_or_else(|| CompileError::Lowering("inline PTX without an output".into()))
    }
}

fn input_type<'c>(value: &BasicMetadataValueEnum<'c>) -> Result<inkwell::types::BasicMetadataTypeEnum<'c>> {
    match value {
        BasicMetadataValueEnum::IntValue(v) => Ok(v.get_type().into()),
        BasicMetadataValueEnum::FloatValue(v) => Ok(v.get_type().into()),
        _ => Err(CompileError::Lowering("inline PTX takes numbers only".into())),
    }
}

/// The register class of a type in PTX constraints.
fn letter(ty: BasicTypeEnum<'_>) -> &'static str {
    match ty {
        BasicTypeEnum::IntType(t) => match t.get_bit_width() {
            1 => "b",
            16 => "h",
            64 => "l",
            _ => "r",
        },
        BasicTypeEnum::FloatType(t) if t.get_bit_width() == 64 => "d",
        _ => "f",
    }
}
