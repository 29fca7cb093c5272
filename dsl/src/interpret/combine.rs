//! `combine` of an operator on scalars.

use crate::elem::{Elem, Ty};
use crate::ir::{Literal, Node, Op, Operator, Value};
use crate::scalar;

use super::{Order, Precision};

/// Runs an operator on states: one literal per field, of the field's kind.
#[derive(Clone, Debug)]
pub struct Combiner<'a> {
    pub(super) operator: &'a Operator,
    pub(super) precision: Precision,
    values: Vec<Literal>,
}

impl Precision {
    /// The type in which a float of that type is computed.
    pub(super) fn ty(self, ty: Ty) -> Ty {
        if self == Precision::Exact && ty.is_float() { Ty::F64 } else { ty }
    }

    /// The element type to which a conversion or a tensor of that one rounds.
    pub(super) fn elem(self, elem: Elem) -> Elem {
        if self == Precision::Exact && elem.is_float() { Elem::F64 } else { elem }
    }

    /// A constant or a stored element, rounded.
    pub(super) fn round(self, elem: Elem, literal: Literal) -> Literal {
        match literal {
            Literal::Float(x) => Literal::Float(scalar::round(self.elem(elem), x)),
            other => other,
        }
    }
}

impl<'a> Combiner<'a> {
    /// A combiner for a valid operator.
    pub fn new(operator: &'a Operator, precision: Precision) -> Combiner<'a> {
        Combiner { operator, precision, values: vec![Literal::Bool(false); operator.body.len()] }
    }

    /// The identity.
    pub fn identity(&self) -> Vec<Literal> {
        let round = |(field, literal): (&crate::ir::Field, &Literal)| {
            self.precision.round(field.ty.elem().unwrap_or(Elem::Call), *literal)
        };
        self.operator.fields.iter().zip(&self.operator.identity).map(round).collect()
    }

    /// l ⊕ r.
    pub fn combine(&mut self, l: &[Literal], r: &[Literal]) -> Vec<Literal> {
        let mut combined = l.to_vec();
        self.extend(&mut combined, r);
        combined
    }

    /// Replaces the state l by l ⊕ r.
    pub fn extend(&mut self, l: &mut [Literal], r: &[Literal]) {
        for (i, node) in self.operator.body.iter().enumerate() {
            self.values[i] = self.evaluate(node, l, r);
        }
        for (field, value) in l.iter_mut().zip(&self.operator.combine) {
            *field = self.values[value.0 as usize];
        }
    }

    fn evaluate(&self, node: &Node, l: &[Literal], r: &[Literal]) -> Literal {
        let value = |v: Value| self.values[v.0 as usize];
        let ty = |v: Value| self.ty(v);
        match node.op {
            Op::Input(k) if (k as usize) < l.len() => l[k as usize],
            Op::Input(k) => r[k as usize - l.len()],
            Op::Const(literal) => self.constant(node, literal),
            Op::Unary(op, a) => scalar::unary(op, ty(a), value(a)),
            Op::Binary(op, a, b) => scalar::binary(op, ty(a), value(a), value(b)),
            Op::Select(c, a, b) => value(if value(c) == Literal::Bool(true) { a } else { b }),
            Op::Convert(elem, a) => scalar::convert(ty(a), self.precision.elem(elem), value(a)),
            _ => Literal::zero(node.ty),
        }
    }

    /// The type in which a value is computed.
    pub(super) fn ty(&self, value: Value) -> Ty {
        self.precision.ty(self.operator.body[value.0 as usize].ty)
    }

    /// A constant as a node holds it.
    pub(super) fn constant(&self, node: &Node, literal: Literal) -> Literal {
        self.precision.round(node.ty.elem().unwrap_or(Elem::Call), literal)
    }

    /// The combination of all elements, `init` on the left. Elements are laid out one after the other.
    pub fn fold(&mut self, init: &[Literal], elements: &[Literal], order: Order) -> Vec<Literal> {
        let mut state = init.to_vec();
        match order {
            Order::Sequential => elements.chunks(init.len()).for_each(|element| self.extend(&mut state, element)),
            Order::Tree if elements.is_empty() => {}
            Order::Tree => {
                let total = self.tree(elements, init.len());
                self.extend(&mut state, &total);
            }
        }
        state
    }

    /// Replaces every element by the combination of `init` and all elements up to it.
    pub fn prefixes(&mut self, init: &[Literal], elements: &mut [Literal], order: Order) {
        match order {
            Order::Sequential => self.running(init, elements),
            Order::Tree => {
                self.tree_prefixes(elements, init.len());
                for element in elements.chunks_mut(init.len()) {
                    let state = self.combine(init, element);
                    element.copy_from_slice(&state);
                }
            }
        }
    }

    fn running(&mut self, init: &[Literal], elements: &mut [Literal]) {
        let mut state = init.to_vec();
        for element in elements.chunks_mut(init.len()) {
            self.extend(&mut state, element);
            element.copy_from_slice(&state);
        }
    }

    /// The combination of elements of n fields by halves.
    fn tree(&mut self, elements: &[Literal], n: usize) -> Vec<Literal> {
        let count = elements.len() / n;
        if count == 1 {
            return elements.to_vec();
        }
        let (left, right) = elements.split_at(count.div_ceil(2) * n);
        let (mut left, right) = (self.tree(left, n), self.tree(right, n));
        self.extend(&mut left, &right);
        left
    }

    /// Running combinations after Brent and Kung: those of pairs first, then the elements between.
    fn tree_prefixes(&mut self, elements: &mut [Literal], n: usize) {
        if elements.len() <= n {
            return;
        }
        let mut pairs: Vec<Literal> = Vec::with_capacity(elements.len() / 2 + n);
        for pair in elements.chunks_exact(2 * n) {
            pairs.extend(self.combine(&pair[..n], &pair[n..]));
        }
        self.tree_prefixes(&mut pairs, n);
        for (i, element) in elements.chunks_mut(n).enumerate().skip(1) {
            let before = &pairs[(i - 1) / 2 * n..][..n];
            let state = if i % 2 == 1 { before.to_vec() } else { self.combine(before, element) };
            element.copy_from_slice(&state);
        }
    }
}
