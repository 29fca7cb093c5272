//! Bodies of operators written as expressions.

use std::cell::RefCell;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Sub};

use crate::build::{Builder, Built};
use crate::elem::{Elem, Ty};
use crate::ir::{Binary, Domain, Field, Literal, Operator, Unary, Value};

/// A value of an operator's body under construction.
///
/// # Panics
/// All methods and signs panic when the types do not fit.
#[derive(Clone, Copy, Debug)]
pub struct Expression<'a> {
    body: &'a RefCell<Builder>,
    value: Value,
}

/// An operator: fields with their types and identities, and `combine` of the fields of l and r.
///
/// # Panics
/// When `combine` does not give one value of its type per field.
pub fn operator<const N: usize>(
    name: &str,
    fields: [(&str, Ty, Literal); N],
    combine: impl for<'a> FnOnce([Expression<'a>; N], [Expression<'a>; N]) -> [Expression<'a>; N],
) -> Operator {
    let identity = fields.iter().map(|(.., literal)| *literal).collect();
    let fields = fields.map(|(name, ty, _)| Field { name: name.to_owned(), ty });
    let mut builder = Builder::body(fields.to_vec());
    let (l, r) = builder.inputs().expect("a body has inputs");
    let body = RefCell::new(builder);
    let expressions = |values: &[Value]| std::array::from_fn(|k| Expression { body: &body, value: values[k] });
    let combined = combine(expressions(&l), expressions(&r)).map(|e| e.value);
    body.into_inner().finish_operator(name, identity, &combined, None).expect("the combination has a value per field")
}

/// The operator on the states for which all conditions hold.
///
/// # Panics
/// When a condition is not a bool, or the operator has another number of fields.
pub fn operator_on<const N: usize>(
    operator: Operator,
    conditions: impl for<'a> FnOnce([Expression<'a>; N]) -> Vec<Expression<'a>>,
) -> Operator {
    let mut builder = Builder::body(operator.fields.clone());
    let fields: Vec<Value> = (0..N as u32).map(|k| builder.input(k).expect("a field")).collect();
    let body = RefCell::new(builder);
    let conditions = conditions(std::array::from_fn(|k| Expression { body: &body, value: fields[k] }));
    let conditions = conditions.into_iter().map(|condition| condition.value).collect();
    let domain = Domain { body: body.into_inner().finish().nodes, conditions, no_overflow: false };
    Operator { domain, ..operator }
}

impl<'a> Expression<'a> {
    fn build(self, step: impl FnOnce(&mut Builder) -> Built) -> Expression<'a> {
        let value = step(&mut self.body.borrow_mut()).unwrap_or_else(|error| panic!("{error}"));
        Expression { value, ..self }
    }

    fn ty(self) -> Ty {
        self.body.borrow().ty(self.value).expect("an expression has a type")
    }

    /// A number of the same type.
    #[must_use]
    pub fn number(self, x: f64) -> Expression<'a> {
        let ty = self.ty();
        let literal = if ty.is_float() { Literal::Float(x) } else { Literal::Int(x as i64) };
        self.build(|b| b.constant(ty, literal))
    }

    /// A function of the value.
    #[must_use]
    pub fn unary(self, op: Unary) -> Expression<'a> {
        self.build(|b| b.unary(op, self.value))
    }

    /// A function of two values.
    #[must_use]
    pub fn binary(self, op: Binary, other: Expression<'a>) -> Expression<'a> {
        self.build(|b| b.binary(op, self.value, other.value))
    }

    /// eˣ.
    #[must_use]
    pub fn exp(self) -> Expression<'a> {
        self.unary(Unary::Exp)
    }

    /// The larger.
    #[must_use]
    pub fn max(self, other: Expression<'a>) -> Expression<'a> {
        self.binary(Binary::Max, other)
    }

    /// Whether it equals the other.
    #[must_use]
    pub fn is(self, other: Expression<'a>) -> Expression<'a> {
        self.binary(Binary::Eq, other)
    }

    /// Whether it is larger than the other.
    #[must_use]
    pub fn above(self, other: Expression<'a>) -> Expression<'a> {
        self.binary(Binary::Gt, other)
    }

    /// `if self { a } else { b }`
    #[must_use]
    pub fn select(self, a: Expression<'a>, b: Expression<'a>) -> Expression<'a> {
        self.build(|builder| builder.select(self.value, a.value, b.value))
    }

    /// Converted to an element type.
    #[must_use]
    pub fn to(self, elem: Elem) -> Expression<'a> {
        self.build(|b| b.convert(elem, self.value))
    }
}

impl Neg for Expression<'_> {
    type Output = Self;

    fn neg(self) -> Self {
        self.unary(Unary::Neg)
    }
}

/// A sign for a function of two values.
macro_rules! sign {
    ($($trait:ident $method:ident $op:ident),*) => {$(
        impl $trait for Expression<'_> {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                self.binary(Binary::$op, other)
            }
        }
    )*};
}

sign!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, BitAnd bitand And, BitOr bitor Or);
