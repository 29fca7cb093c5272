//! The table of derivatives: for every map y = f(x₁, …, xₖ) the partial derivatives ∂y/∂xᵢ.
//!
//! Reverse mode adds ȳ·∂y/∂xᵢ to x̄ᵢ, forward mode gives ẏ = Σ ẋᵢ·∂y/∂xᵢ; both use this table and nothing else. A
//! partial derivative is written with the operands and the result y, so that y = exp(x) costs no second exp. Choices
//! are selections, not products with 0 or 1: a branch not taken contributes nothing even where it is infinite.

use std::collections::HashMap;
use std::f64::consts::LN_2;

use crate::build::{Builder, Built};
use crate::elem::Ty;
use crate::ir::{Binary, Literal, Node, Op, Unary, Value};
use crate::typing::TypeError;

/// A partial derivative ∂y/∂x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partial {
    /// 1.
    One,
    /// −1.
    MinusOne,
    /// A value.
    Times(Value),
    /// 1 where the condition holds, else 0.
    Where(Value),
    /// 0 where the condition holds, else 1.
    Unless(Value),
}

impl Partial {
    /// The product of the partial derivative with a cotangent or a tangent.
    pub(crate) fn times(self, b: &mut Builder, x: Value) -> Built {
        match self {
            Partial::One => Ok(x),
            Partial::MinusOne => b.unary(Unary::Neg, x),
            Partial::Times(d) => b.binary(Binary::Mul, x, d),
            Partial::Where(c) => {
                let zero = zero_of(b, x)?;
                b.select(c, x, zero)
            }
            Partial::Unless(c) => {
                let zero = zero_of(b, x)?;
                b.select(c, zero, x)
            }
        }
    }
}

/// The operands of a map that its value is a differentiable function of, each with the partial derivative. Empty for
/// everything that is not a map from floats to a float, and where the derivative is 0 everywhere it exists.
pub(crate) fn partials(b: &mut Builder, y: Value) -> Result<Vec<(Value, Partial)>, TypeError> {
    let node = b.program().node(y).clone();
    if !node.ty.is_float() {
        return Ok(vec![]);
    }
    match node.op {
        Op::Unary(op, x) => Ok(unary(b, op, x, y)?.map(|d| (x, d)).into_iter().collect()),
        Op::Binary(op, l, r) => {
            let [dl, dr] = binary(b, op, l, r, y)?;
            Ok(dl.map(|d| (l, d)).into_iter().chain(dr.map(|d| (r, d))).collect())
        }
        Op::Select(c, l, r) => match weight(&b.program().nodes, &node.op) {
            Some((x, m, _)) => {
                let minus = b.unary(Unary::Neg, y)?;
                Ok(vec![(x, Partial::Times(y)), (m, Partial::Times(minus))])
            }
            None => Ok(vec![(l, Partial::Where(c)), (r, Partial::Unless(c))]),
        },
        Op::Convert(_, x) if b.ty(x)?.is_float() => Ok(vec![(x, Partial::One)]),
        Op::Broadcast(x) => Ok(vec![(x, Partial::One)]),
        _ => Ok(vec![]),
    }
}

/// x, m and exp(x − m) where a selection is `if x == m { 1 } else { exp(x − m) }`.
///
/// This is how a weight is written that must not be NaN for x = m = −∞. As a function it is exp(x − m), and it is
/// differentiated as that: its branches alone would say that it does not depend on x where x = m, which is no rare
/// case when m is a maximum.
pub(crate) fn weight(nodes: &[Node], select: &Op) -> Option<(Value, Value, Value)> {
    let op = |v: Value| nodes[v.0 as usize].op.clone();
    let Op::Select(condition, one, exp) = *select else { return None };
    let (Op::Binary(Binary::Eq, x, m), Op::Unary(Unary::Exp, difference)) = (op(condition), op(exp)) else {
        return None;
    };
    let Op::Binary(Binary::Sub, left, right) = op(difference) else { return None };
    let same = (left, right) == (x, m) || (left, right) == (m, x);
    (same && op(one) == Op::Const(Literal::Float(1.0))).then_some((left, right, exp))
}

/// The tangent of a map, Σ ẋᵢ·∂y/∂xᵢ, from the tangents of its operands (absent where 0); `None` when it is 0.
pub(crate) fn tangent(b: &mut Builder, y: Value, tangents: &HashMap<Value, Value>) -> Result<Option<Value>, TypeError> {
    let mut total = None;
    for (x, partial) in partials(b, y)? {
        let Some(dot) = tangents.get(&x) else { continue };
        let term = partial.times(b, *dot)?;
        let term = convert_to(b, term, b.ty(y)?)?;
        total = Some(add(b, total, term)?);
    }
    Ok(total)
}

/// The sum of two contributions, the first of which may be absent.
///
/// Zeros of branches not taken are structural: `if c { x } else { 0 }` and `if c { 0 } else { y }` add to
/// `if c { x } else { y }`.
pub(crate) fn add(b: &mut Builder, total: Option<Value>, term: Value) -> Built {
    let Some(total) = total else { return Ok(term) };
    match (branch(b, total), branch(b, term)) {
        (Some((c, x, true)), Some((d, y, false))) if c == d => b.select(c, x, y),
        (Some((c, x, false)), Some((d, y, true))) if c == d => b.select(c, y, x),
        (Some((c, x, side)), Some((d, y, other))) if c == d && side == other => {
            let sum = b.binary(Binary::Add, x, y)?;
            if side { Partial::Where(c) } else { Partial::Unless(c) }.times(b, sum)
        }
        _ => b.binary(Binary::Add, total, term),
    }
}

/// The condition, the other branch and whether that is taken where the condition holds, of a selection with a zero.
fn branch(b: &Builder, value: Value) -> Option<(Value, Value, bool)> {
    let is_zero = |v: Value| b.program().node(v).op == Op::Const(Literal::Float(0.0));
    match b.program().node(value).op {
        Op::Select(c, x, zero) if is_zero(zero) => Some((c, x, true)),
        Op::Select(c, zero, x) if is_zero(zero) => Some((c, x, false)),
        _ => None,
    }
}

/// A float in another floating-point type.
pub(crate) fn convert_to(b: &mut Builder, x: Value, ty: Ty) -> Built {
    match ty.elem() {
        Some(elem) if b.ty(x)? != ty => b.convert(elem, x),
        _ => Ok(x),
    }
}

/// The zero of a value's type.
pub(crate) fn zero_of(b: &mut Builder, x: Value) -> Built {
    b.float(b.ty(x)?, 0.0)
}

/// dy/dx of y = f(x); `None` where it is 0.
fn unary(b: &mut Builder, op: Unary, x: Value, y: Value) -> Result<Option<Partial>, TypeError> {
    let ty = b.ty(x)?;
    let times = match op {
        Unary::Not | Unary::Sign | Unary::Floor | Unary::Powi(0) => return Ok(None),
        Unary::Powi(1) => return Ok(Some(Partial::One)),
        Unary::Neg => return Ok(Some(Partial::MinusOne)),
        Unary::Relu => {
            let zero = b.float(ty, 0.0)?;
            return Ok(Some(Partial::Where(b.binary(Binary::Gt, x, zero)?)));
        }
        Unary::Abs => b.unary(Unary::Sign, x)?,
        Unary::Exp => y,
        Unary::Exp2 => scaled(b, LN_2, y)?,
        Unary::Ln => b.unary(Unary::Recip, x)?,
        Unary::Log1p => {
            let one = b.float(ty, 1.0)?;
            let sum = b.binary(Binary::Add, one, x)?;
            b.unary(Unary::Recip, sum)?
        }
        Unary::Sqrt => {
            let recip = b.unary(Unary::Recip, y)?;
            scaled(b, 0.5, recip)?
        }
        Unary::Rsqrt => {
            let cube = b.unary(Unary::Powi(3), y)?;
            scaled(b, -0.5, cube)?
        }
        Unary::Recip => {
            let square = b.binary(Binary::Mul, y, y)?;
            b.unary(Unary::Neg, square)?
        }
        Unary::Tanh => {
            let square = b.binary(Binary::Mul, y, y)?;
            one_minus(b, square)?
        }
        Unary::Sigmoid => {
            let rest = one_minus(b, y)?;
            b.binary(Binary::Mul, y, rest)?
        }
        Unary::Softplus => b.unary(Unary::Sigmoid, x)?,
        Unary::Silu => silu(b, x, y)?,
        Unary::Sin => b.unary(Unary::Cos, x)?,
        Unary::Cos => {
            let sin = b.unary(Unary::Sin, x)?;
            b.unary(Unary::Neg, sin)?
        }
        Unary::Powi(n) => powi(b, n, x, y)?,
    };
    Ok(Some(Partial::Times(times)))
}

/// σ + y·(1 − σ) with σ = sigmoid(x) and y = x·σ: finite for x = −∞.
fn silu(b: &mut Builder, x: Value, y: Value) -> Built {
    let sigmoid = b.unary(Unary::Sigmoid, x)?;
    let rest = one_minus(b, sigmoid)?;
    let product = b.binary(Binary::Mul, y, rest)?;
    b.binary(Binary::Add, sigmoid, product)
}

/// n·xⁿ⁻¹; for the one n that has no n − 1 it is n·y/x.
fn powi(b: &mut Builder, n: i32, x: Value, y: Value) -> Built {
    let power = match n.checked_sub(1) {
        Some(less) => b.unary(Unary::Powi(less), x)?,
        None => b.binary(Binary::Div, y, x)?,
    };
    scaled(b, f64::from(n), power)
}

/// ∂y/∂l and ∂y/∂r of y = l op r; `None` where they are 0. At a tie max and min go with the left operand.
fn binary(b: &mut Builder, op: Binary, l: Value, r: Value, y: Value) -> Result<[Option<Partial>; 2], TypeError> {
    Ok(match op {
        Binary::Add => [Some(Partial::One), Some(Partial::One)],
        Binary::Sub => [Some(Partial::One), Some(Partial::MinusOne)],
        Binary::Mul => [Some(Partial::Times(r)), Some(Partial::Times(l))],
        Binary::Div => {
            let recip = b.unary(Unary::Recip, r)?;
            let ratio = b.binary(Binary::Mul, y, recip)?;
            [Some(Partial::Times(recip)), Some(Partial::Times(b.unary(Unary::Neg, ratio)?))]
        }
        Binary::Rem => {
            // y = l − n·r with an integer n that is constant where y is differentiable.
            let multiple = b.binary(Binary::Sub, y, l)?;
            [Some(Partial::One), Some(Partial::Times(b.binary(Binary::Div, multiple, r)?))]
        }
        Binary::Max => choice(b.binary(Binary::Ge, l, r)?),
        Binary::Min => choice(b.binary(Binary::Le, l, r)?),
        Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge | Binary::Eq | Binary::Ne => [None, None],
        Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => [None, None],
    })
}

fn choice(left: Value) -> [Option<Partial>; 2] {
    [Some(Partial::Where(left)), Some(Partial::Unless(left))]
}

fn scaled(b: &mut Builder, factor: f64, x: Value) -> Built {
    let factor = b.float(b.ty(x)?, factor)?;
    b.binary(Binary::Mul, factor, x)
}

fn one_minus(b: &mut Builder, x: Value) -> Built {
    let one = b.float(b.ty(x)?, 1.0)?;
    b.binary(Binary::Sub, one, x)
}
