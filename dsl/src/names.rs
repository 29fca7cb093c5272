//! The words of the text form: names of operations, and what counts as an identifier.

use crate::ir::{Binary, Op, Unary};

/// Every unary function without a parameter, with its name.
const UNARY: [(Unary, &str); 19] = [
    (Unary::Neg, "neg"),
    (Unary::Not, "not"),
    (Unary::Abs, "abs"),
    (Unary::Sign, "sign"),
    (Unary::Exp, "exp"),
    (Unary::Exp2, "exp2"),
    (Unary::Ln, "ln"),
    (Unary::Log1p, "log1p"),
    (Unary::Sqrt, "sqrt"),
    (Unary::Rsqrt, "rsqrt"),
    (Unary::Recip, "recip"),
    (Unary::Tanh, "tanh"),
    (Unary::Sigmoid, "sigmoid"),
    (Unary::Softplus, "softplus"),
    (Unary::Silu, "silu"),
    (Unary::Relu, "relu"),
    (Unary::Sin, "sin"),
    (Unary::Cos, "cos"),
    (Unary::Floor, "floor"),
];

/// Every binary function, with its name and its sign.
const BINARY: [(Binary, &str, &str); 18] = [
    (Binary::Add, "add", "+"),
    (Binary::Sub, "sub", "-"),
    (Binary::Mul, "mul", "*"),
    (Binary::Div, "div", "/"),
    (Binary::Rem, "rem", "%"),
    (Binary::Max, "max", "max"),
    (Binary::Min, "min", "min"),
    (Binary::Lt, "lt", "<"),
    (Binary::Le, "le", "<="),
    (Binary::Gt, "gt", ">"),
    (Binary::Ge, "ge", ">="),
    (Binary::Eq, "eq", "=="),
    (Binary::Ne, "ne", "!="),
    (Binary::And, "and", "&"),
    (Binary::Or, "or", "|"),
    (Binary::Xor, "xor", "^"),
    (Binary::Shl, "shl", "<<"),
    (Binary::Shr, "shr", ">>"),
];

impl Unary {
    /// Every function, [`Unary::Powi`] left out.
    pub fn all() -> impl Iterator<Item = Unary> {
        UNARY.into_iter().map(|(op, _)| op)
    }

    /// The name in programs and messages.
    pub fn name(self) -> &'static str {
        UNARY.into_iter().find(|(op, _)| *op == self).map_or("powi", |(_, name)| name)
    }

    /// The function of that name; [`Unary::Powi`], which needs an exponent, is not found.
    pub fn from_name(name: &str) -> Option<Unary> {
        UNARY.into_iter().find(|(_, n)| *n == name).map(|(op, _)| op)
    }
}

impl Binary {
    /// Every function.
    pub fn all() -> impl Iterator<Item = Binary> {
        BINARY.into_iter().map(|(op, ..)| op)
    }

    /// The name, a word.
    pub fn name(self) -> &'static str {
        BINARY[self as usize].1
    }

    /// The sign used in programs and messages; a word for `max` and `min`.
    pub fn symbol(self) -> &'static str {
        BINARY[self as usize].2
    }

    /// The function of that sign.
    pub fn from_symbol(symbol: &str) -> Option<Binary> {
        BINARY.into_iter().find(|(.., s)| *s == symbol).map(|(op, ..)| op)
    }
}

impl Op {
    /// The name in programs and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Param(_) => "param",
            Op::Input(_) => "input",
            Op::Const(_) => "const",
            Op::Index(_) => "index",
            Op::Size(_) => "size",
            Op::Unary(op, _) => op.name(),
            Op::Binary(op, ..) => op.symbol(),
            Op::Select(..) => "select",
            Op::Convert(..) => "convert",
            Op::Broadcast(_) => "broadcast",
            Op::Reduce { .. } => "reduce",
            Op::Scan { .. } => "scan",
            Op::MatrixScan(_) => "matrix_scan",
            Op::Field(..) => "field",
            Op::Last { .. } => "last",
            Op::First { .. } => "first",
            Op::Shift { .. } => "shift",
            Op::Starts { .. } => "starts",
            Op::Gather { .. } => "gather",
        }
    }
}

/// Whether a name can be used in a program: identifiers joined by dots, as in `y.bar`.
pub fn is_name(name: &str) -> bool {
    name.split('.').all(|part| {
        let mut chars = part.chars();
        chars.next().is_some_and(starts_name) && chars.all(continues_name)
    })
}

/// Whether an identifier may start with the character.
pub(crate) fn starts_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

/// Whether an identifier may go on with the character.
pub(crate) fn continues_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_the_order_of_the_enums() {
        assert!(Binary::all().enumerate().all(|(i, op)| op as usize == i));
        assert!(Binary::all().all(|op| Binary::from_symbol(op.symbol()) == Some(op)));
        assert!(Unary::all().all(|op| Unary::from_name(op.name()) == Some(op)));
        assert_eq!(Unary::Powi(3).name(), "powi");
    }

    #[test]
    fn names_may_have_dots_inside() {
        assert!(["x", "_", "y.bar", "a_1", "ȳ"].into_iter().all(is_name));
        assert!(!["", "1x", ".x", "x.", "x..y", "a b", "x.1"].into_iter().any(is_name));
    }
}
