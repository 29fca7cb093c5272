//! The builder's errors as mistakes, with what to write instead.

use oplus_dsl::Ty;
use oplus_dsl::typing::TypeError;

use super::number;
use crate::mistake::Mistake;

/// The mistake that an error of the builder shows.
pub(super) fn mistake(error: &TypeError) -> Mistake {
    match error {
        TypeError::Operand { op, expected, found } => Mistake::OperandType {
            function: (*op).into(),
            expected: (*expected).into(),
            found: in_words(*found),
            hint: operand_hint(expected, *found).into(),
        },
        TypeError::Mismatch { op, left, right } => Mistake::TypeMismatch {
            function: (*op).into(),
            left: in_words(*left),
            right: in_words(*right),
            hint: mismatch_hint(*left, *right),
        },
        TypeError::Varies { op, what, axis } => {
            Mistake::ExtraAxis { argument: (*what).into(), function: (*op).into(), axis: axis.clone() }
        }
        TypeError::Literal { literal, ty } => {
            Mistake::LiteralType { literal: number::text(*literal), ty: in_words(*ty) }
        }
        TypeError::FieldType { operator, field, expected, found, what } => Mistake::ElementType {
            operator: operator.clone(),
            field: field.clone(),
            ty: in_words(*expected),
            what: (*what).into(),
            found: in_words(*found),
            cast: cast(*expected).into(),
        },
        other => Mistake::Invalid { message: other.to_string() },
    }
}

fn operand_hint(expected: &str, found: Ty) -> &'static str {
    match (expected, found) {
        (_, Ty::Bool) => "choose numbers with `if x { 1 } else { 0 }`",
        ("a float", _) => "convert it with `as f32`",
        _ => "convert it with `as i64`",
    }
}

fn mismatch_hint(left: Ty, right: Ty) -> String {
    match (left, right) {
        (Ty::Bool, _) | (_, Ty::Bool) => {
            "turn the bool into a number with `if x { 1 } else { 0 }`, or compare the number, as in `x != 0`".into()
        }
        (Ty::F64 | Ty::F32 | Ty::Wide | Ty::Call, _) => format!("convert the `{right}` with `as {}`", cast(left)),
        (_, Ty::F64 | Ty::F32 | Ty::Wide | Ty::Call) => format!("convert the `{left}` with `as {}`", cast(right)),
        _ => format!("convert the `{right}` with `as {left}`"),
    }
}

/// A type as messages name it.
pub(super) fn in_words(ty: Ty) -> String {
    match ty {
        Ty::Call => "a float of the call's type".into(),
        Ty::Wide => "a float of the call's type, at least `f32`".into(),
        ty => format!("`{ty}`"),
    }
}

/// A type that can be written behind `as` in any kernel.
pub(super) fn cast(ty: Ty) -> &'static str {
    if matches!(ty, Ty::Call | Ty::Wide) { "f32" } else { ty.name() }
}
