//! Which operations take many instructions.

use oplus_dsl::ir::{Binary, Op, Unary};

/// Whether an operation takes many instructions, so that it is better computed once than wherever it is read.
pub(crate) fn is_dear(op: &Op) -> bool {
    match op {
        Op::Unary(unary, _) => !matches!(
            unary,
            Unary::Neg | Unary::Not | Unary::Abs | Unary::Sign | Unary::Relu | Unary::Floor | Unary::Powi(_)
        ),
        Op::Binary(binary, ..) => matches!(binary, Binary::Div | Binary::Rem),
        _ => false,
    }
}
