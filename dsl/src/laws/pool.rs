//! The numbers near which an operator may behave differently: those that its text names.
//!
//! Every literal of the body, of the domain and of the identity, in the type of a field, with its neighbours: the literal
//! itself, one more and one less, its half, its double, and the same with the other sign.

use crate::elem::Ty;
use crate::ir::{Literal, Node, Op, Operator};
use crate::rng::Rng;
use crate::scalar;

/// The most numbers that are kept of a field.
const SIZE: usize = 256;

/// The numbers of a type near the literals of an operator, in random order.
pub(super) fn near_literals(operator: &Operator, ty: Ty, rng: &mut Rng) -> Vec<Literal> {
    let named = |node: &Node| match node.op {
        Op::Const(literal) => Some((node.ty, literal)),
        _ => None,
    };
    let nodes = operator.body.iter().chain(&operator.domain.body).filter_map(named);
    let identities = operator.fields.iter().map(|field| field.ty).zip(operator.identity.iter().copied());
    let mut pool: Vec<Literal> = vec![];
    for (from, literal) in identities.chain(nodes) {
        for number in neighbours(from, literal, ty) {
            if pool.len() < SIZE && !pool.contains(&number) {
                pool.push(number);
            }
        }
    }
    for last in (1..pool.len()).rev() {
        pool.swap(last, rng.below(last + 1));
    }
    pool
}

fn neighbours(from: Ty, literal: Literal, ty: Ty) -> Vec<Literal> {
    match literal {
        Literal::Bool(_) => vec![],
        Literal::Float(x) if x.is_nan() => vec![],
        _ if ty.is_float() => {
            let x = if let Literal::Int(i) = literal { scalar::widen(from, i) as f64 } else { literal.as_f64() };
            let around = [x, x - 1.0, x + 1.0, x / 2.0, x * 2.0, -x, -x / 2.0, -x * 2.0];
            let kept = around.into_iter().map(|x| if x == 0.0 { 0.0 } else { x });
            kept.filter(|y| y.is_finite() || y.to_bits() == x.to_bits()).map(Literal::Float).collect()
        }
        _ => {
            let x = match literal {
                Literal::Int(i) => scalar::widen(from, i),
                literal => literal.as_f64() as i128,
            };
            let x = x.clamp(-(1 << 100), 1 << 100);
            let around = [x, x - 1, x + 1, x / 2, x * 2, -x, -x / 2, -x * 2];
            around.into_iter().filter_map(|x| held(ty, x)).collect()
        }
    }
}

/// The integer in a type that holds it.
fn held(ty: Ty, x: i128) -> Option<Literal> {
    let held = i64::try_from(x).ok().or_else(|| u64::try_from(x).ok().map(|x| x as i64))?;
    let wrapped = scalar::wrap(ty, i128::from(held));
    (ty.is_int() && scalar::widen(ty, wrapped) == x).then_some(Literal::Int(wrapped))
}
