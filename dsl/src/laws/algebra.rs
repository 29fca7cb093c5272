//! Laws as identities of rational functions and exponentials.
//!
//! Two rational functions that agree at a random point of a large prime field are the same but for a chance of the
//! order of degree/2⁶¹ (Schwartz and Zippel). Exponentials join in by eᵃ → gᵃ: every number is held modulo the prime
//! and, as an exponent, modulo the order of the field's units, so that eᵃ⁺ᵇ = eᵃ·eᵇ holds. What neither can express
//! (order, rounding, logarithms) makes a field undecided.
//!
//! Sums, differences and products of integers take the same way: an identity of polynomials with whole coefficients holds in
//! every commutative ring, that of integers which wrap among them.

use crate::elem::Ty;
use crate::ir::{Binary, Literal, Node, Op, Operator, Unary, Value};
use crate::rng::Rng;
use crate::scalar;

use super::Law;

/// The Mersenne prime 2⁶¹ − 1.
const PRIME: u64 = (1 << 61) - 1;

/// The order of the field's units.
const ORDER: u64 = PRIME - 1;

/// The image of e: a number of full order.
const BASE: u64 = 37;

/// A number in the field, and as an exponent where that is defined.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Residue {
    value: u64,
    exponent: Option<u64>,
}

type State = Vec<Option<Residue>>;

/// Which of identity and associativity hold for every field.
pub(super) fn proved(operator: &Operator) -> Vec<Law> {
    let mut rng = Rng::new(61);
    let typed = operator.identity.iter().zip(&operator.fields);
    let identity: State = typed.map(|(literal, field)| constant(field.ty, *literal)).collect();
    let mut proved = vec![Law::LeftIdentity, Law::RightIdentity, Law::Associativity];
    for _ in 0..2 {
        let [x, y, z] = [(); 3].map(|()| point(operator.fields.len(), &mut rng));
        proved.retain(|law| match law {
            Law::LeftIdentity => same(&combine(operator, &identity, &x), &x),
            Law::RightIdentity => same(&combine(operator, &x, &identity), &x),
            _ => {
                let left = combine(operator, &combine(operator, &x, &y), &z);
                same(&left, &combine(operator, &x, &combine(operator, &y, &z)))
            }
        });
    }
    proved
}

/// Whether every element is its field `k`, beside the identity's other fields, combined with its other fields, beside the
/// identity's field `k`: (a, b) = (a, 0) ⊕ (1, b) for the affine operator's a.
pub(crate) fn splits(operator: &Operator, k: usize) -> bool {
    let mut rng = Rng::new(62);
    let typed = operator.identity.iter().zip(&operator.fields);
    let identity: State = typed.map(|(literal, field)| constant(field.ty, *literal)).collect();
    (0..2).all(|_| {
        let whole = point(operator.fields.len(), &mut rng);
        let (mut own, mut others) = (identity.clone(), whole.clone());
        (own[k], others[k]) = (whole[k], identity[k]);
        same(&combine(operator, &own, &others), &whole)
    })
}

fn point(n: usize, rng: &mut Rng) -> State {
    let residue = |bits: u64| Residue { value: bits % PRIME, exponent: Some(bits % ORDER) };
    (0..n).map(|_| Some(residue(rng.bits() >> 4))).collect()
}

/// Whether all fields are known and have the same value; exponents follow from values.
fn same(a: &State, b: &State) -> bool {
    a.iter().zip(b).all(|(a, b)| a.is_some_and(|a| b.is_some_and(|b| a.value == b.value)))
}

fn combine(operator: &Operator, l: &State, r: &State) -> State {
    let mut values: State = Vec::with_capacity(operator.body.len());
    for node in &operator.body {
        let value = match node.op {
            Op::Input(k) if (k as usize) < l.len() => l[k as usize],
            Op::Input(k) => r[k as usize - l.len()],
            _ if node.ty == Ty::Bool => None,
            _ => map(operator, node, |v| values[v.0 as usize]),
        };
        values.push(value);
    }
    operator.combine.iter().map(|v| values[v.0 as usize]).collect()
}

fn map(operator: &Operator, node: &Node, value: impl Fn(Value) -> Option<Residue>) -> Option<Residue> {
    let is_float = |v: Value| operator.body[v.0 as usize].ty.is_float();
    match node.op {
        Op::Const(literal) => constant(node.ty, literal),
        Op::Convert(_, a) if node.ty.is_float() && is_float(a) => value(a),
        Op::Binary(Binary::Div, a, _) if !is_float(a) => None,
        Op::Unary(op, a) => unary(op, value(a)?),
        Op::Binary(op, a, b) => binary(op, value(a)?, value(b)?),
        _ => None,
    }
}

fn unary(op: Unary, a: Residue) -> Option<Residue> {
    match op {
        Unary::Neg => {
            Some(Residue { value: negative(a.value, PRIME), exponent: a.exponent.map(|e| negative(e, ORDER)) })
        }
        Unary::Exp => Some(Residue { value: power(BASE, a.exponent?), exponent: None }),
        Unary::Recip => Some(Residue { value: inverse(a.value)?, exponent: None }),
        Unary::Powi(n) => {
            let value = power(a.value, u64::from(n.unsigned_abs()));
            Some(Residue { value: if n < 0 { inverse(value)? } else { value }, exponent: None })
        }
        _ => None,
    }
}

fn binary(op: Binary, l: Residue, r: Residue) -> Option<Residue> {
    let exponents = l.exponent.zip(r.exponent);
    Some(match op {
        Binary::Add => {
            Residue { value: sum(l.value, r.value, PRIME), exponent: exponents.map(|(l, r)| sum(l, r, ORDER)) }
        }
        Binary::Sub => return binary(Binary::Add, l, unary(Unary::Neg, r)?),
        Binary::Mul => {
            Residue { value: product(l.value, r.value, PRIME), exponent: exponents.map(|(l, r)| product(l, r, ORDER)) }
        }
        Binary::Div => Residue { value: product(l.value, inverse(r.value)?, PRIME), exponent: None },
        _ => return None,
    })
}

/// A finite float is a whole number times a power of two.
fn constant(ty: Ty, literal: Literal) -> Option<Residue> {
    let x = match literal {
        Literal::Float(x) => x,
        Literal::Int(i) => {
            let value = scalar::widen(ty, i).rem_euclid(i128::from(PRIME)) as u64;
            return Some(Residue { value, exponent: None });
        }
        Literal::Bool(_) => return None,
    };
    if !x.is_finite() {
        return None;
    }
    let (bits, sign) = (x.abs().to_bits(), x.is_sign_negative());
    let (high, fraction) = (bits >> 52, bits & ((1 << 52) - 1));
    let (mantissa, shift) = if high == 0 { (fraction, -1074) } else { (fraction | 1 << 52, high as i32 - 1075) };
    let two = power(2, u64::from(shift.unsigned_abs()));
    let value = product(mantissa, if shift < 0 { inverse(two)? } else { two }, PRIME);
    let whole = x.fract() == 0.0 && x.abs() < ORDER as f64;
    let positive = Residue { value, exponent: whole.then_some(x.abs() as u64) };
    if sign { unary(Unary::Neg, positive) } else { Some(positive) }
}

fn sum(a: u64, b: u64, modulus: u64) -> u64 {
    (a + b) % modulus
}

fn product(a: u64, b: u64, modulus: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(modulus)) as u64
}

fn negative(a: u64, modulus: u64) -> u64 {
    (modulus - a) % modulus
}

fn power(base: u64, mut exponent: u64) -> u64 {
    let (mut result, mut square) = (1, base % PRIME);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = product(result, square, PRIME);
        }
        square = product(square, square, PRIME);
        exponent >>= 1;
    }
    result
}

fn inverse(a: u64) -> Option<u64> {
    (a != 0).then(|| power(a, PRIME - 2))
}
