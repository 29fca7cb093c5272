//! Operations on many elements at once: to each what [`scalar`] does to it.

use std::borrow::Cow;

use crate::elem::{Elem, Ty};
use crate::ir::{Binary, Literal, Node, Op, Unary, Value};
use crate::scalar;

use super::Data;
use super::combine::Combiner;

/// op x for every x.
pub(super) fn unary(op: Unary, ty: Ty, data: &Data) -> Data {
    match data {
        Data::Float(xs) => Data::Float(xs.iter().map(|x| scalar::round_to(ty, scalar::float_unary(op, *x))).collect()),
        Data::Int(xs) => Data::Int(xs.iter().map(|x| scalar::int_unary(op, ty, *x)).collect()),
        Data::Bool(xs) => Data::Bool(xs.iter().map(|x| if op == Unary::Not { !x } else { *x }).collect()),
    }
}

/// l op r for every pair of elements.
pub(super) fn binary(op: Binary, ty: Ty, l: &Data, r: &Data) -> Data {
    match (l, r) {
        (Data::Float(l), Data::Float(r)) if op.is_comparison() => {
            Data::Bool(zip(l, r, |l, r| scalar::compare(op, l, r)))
        }
        (Data::Float(l), Data::Float(r)) => Data::Float(float_binary(op, ty, l, r)),
        (Data::Int(l), Data::Int(r)) if op.is_comparison() => {
            Data::Bool(zip(l, r, |l, r| scalar::compare(op, scalar::widen(ty, l), scalar::widen(ty, r))))
        }
        (Data::Int(l), Data::Int(r)) => Data::Int(zip(l, r, |l, r| scalar::int_binary(op, ty, l, r))),
        (Data::Bool(l), Data::Bool(r)) => Data::Bool(zip(l, r, |l, r| scalar::bool_binary(op, l, r))),
        (other, _) => other.clone(),
    }
}

/// The most frequent operations in f64 have loops of their own, which are compiled to vector instructions.
fn float_binary(op: Binary, ty: Ty, l: &[f64], r: &[f64]) -> Vec<f64> {
    match op {
        Binary::Add if ty != Ty::F32 => zip(l, r, |l, r| l + r),
        Binary::Sub if ty != Ty::F32 => zip(l, r, |l, r| l - r),
        Binary::Mul if ty != Ty::F32 => zip(l, r, |l, r| l * r),
        _ => zip(l, r, |l, r| scalar::round_to(ty, scalar::float_binary(op, l, r))),
    }
}

/// The elements of `a` where the condition holds, of `b` elsewhere.
pub(super) fn select(condition: &Data, a: &Data, mut b: Data) -> Data {
    fn choose<T: Copy>(condition: &[bool], from: &[T], to: &mut [T]) {
        for ((_, from), to) in condition.iter().zip(from).zip(to).filter(|((chosen, _), _)| **chosen) {
            *to = *from;
        }
    }
    match (condition, a, &mut b) {
        (Data::Bool(condition), Data::Float(from), Data::Float(to)) => choose(condition, from, to),
        (Data::Bool(condition), Data::Int(from), Data::Int(to)) => choose(condition, from, to),
        (Data::Bool(condition), Data::Bool(from), Data::Bool(to)) => choose(condition, from, to),
        _ => {}
    }
    b
}

/// Every element converted from a type to an element type.
pub(super) fn convert(from: Ty, to: Elem, data: &Data) -> Data {
    let mut converted = Data::filled(Literal::zero(to.value()), data.len());
    (0..data.len()).for_each(|i| converted.set(i, scalar::convert(from, to, data.get(i))));
    converted
}

/// The elements that lie `offset` behind some places; zeros of an array without elements.
pub(super) fn column(data: &Data, places: &[usize], offset: usize) -> Data {
    fn read<T: Copy + Default>(xs: &[T], places: &[usize], offset: usize) -> Vec<T> {
        if xs.is_empty() {
            return vec![T::default(); places.len()];
        }
        places.iter().map(|place| xs[place + offset]).collect()
    }
    match data {
        Data::Float(xs) => Data::Float(read(xs, places, offset)),
        Data::Int(xs) => Data::Int(read(xs, places, offset)),
        Data::Bool(xs) => Data::Bool(read(xs, places, offset)),
    }
}

/// Replaces the elements that lie `offset` behind some places; those of an array without elements stay away.
pub(super) fn set_column(data: &mut Data, places: &[usize], offset: usize, column: &Data) {
    fn write<T: Copy>(xs: &mut [T], places: &[usize], offset: usize, column: &[T]) {
        if !xs.is_empty() {
            places.iter().zip(column).for_each(|(place, x)| xs[place + offset] = *x);
        }
    }
    match (data, column) {
        (Data::Float(xs), Data::Float(column)) => write(xs, places, offset, column),
        (Data::Int(xs), Data::Int(column)) => write(xs, places, offset, column),
        (Data::Bool(xs), Data::Bool(column)) => write(xs, places, offset, column),
        _ => {}
    }
}

impl Combiner<'_> {
    /// Replaces states l by l ⊕ r: of every field there are as many elements as states.
    pub(super) fn extend_all(&self, l: &mut Vec<Data>, r: &[Data]) {
        let mut values: Vec<Cow<'_, Data>> = Vec::with_capacity(self.operator.body.len());
        for node in &self.operator.body {
            let value = self.evaluate_all(node, &values, l, r);
            values.push(value);
        }
        *l = self.operator.combine.iter().map(|value| values[value.0 as usize].clone().into_owned()).collect();
    }

    fn evaluate_all<'d>(&self, node: &Node, values: &[Cow<'d, Data>], l: &'d [Data], r: &'d [Data]) -> Cow<'d, Data> {
        let count = l.first().map_or(0, Data::len);
        let value = |v: Value| &*values[v.0 as usize];
        let ty = |v: Value| self.ty(v);
        Cow::Owned(match node.op {
            Op::Input(k) if (k as usize) < l.len() => return Cow::Borrowed(&l[k as usize]),
            Op::Input(k) => return Cow::Borrowed(&r[k as usize - l.len()]),
            Op::Const(literal) => Data::filled(self.constant(node, literal), count),
            Op::Unary(op, a) => unary(op, ty(a), value(a)),
            Op::Binary(op, a, b) => binary(op, ty(a), value(a), value(b)),
            Op::Select(c, a, b) => select(value(c), value(a), value(b).clone()),
            Op::Convert(elem, a) => convert(ty(a), self.precision.elem(elem), value(a)),
            _ => Data::filled(Literal::zero(node.ty), count),
        })
    }
}

fn zip<T: Copy, U>(l: &[T], r: &[T], f: impl Fn(T, T) -> U) -> Vec<U> {
    l.iter().zip(r).map(|(l, r)| f(*l, *r)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Precision;
    use super::*;
    use crate::testing::operators;

    /// Some elements of a type, of which the first are awkward ones.
    fn elements(ty: Ty, count: usize, seed: usize) -> Data {
        let number = |i: usize| ((i * 7919 + seed * 104_729) % 1000) as f64 / 250.0 - 2.0;
        let awkward = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, 0.1];
        let float = |i: usize| awkward.get((i + seed) % count).copied().unwrap_or(number(i));
        match ty {
            Ty::Bool => Data::Bool((0..count).map(|i| number(i) > 0.0).collect()),
            _ if ty.is_int() => Data::Int((0..count).map(|i| (number(i) * 1e3) as i64).collect()),
            _ => Data::Float((0..count).map(float).collect()),
        }
    }

    fn bits(literal: Literal) -> String {
        if let Literal::Float(x) = literal { format!("{:x}", x.to_bits()) } else { format!("{literal:?}") }
    }

    #[test]
    fn states_side_by_side_are_those_of_each() {
        const COUNT: usize = 40;
        for (ty, precision) in
            [(Ty::F32, Precision::Exact), (Ty::F32, Precision::Storage), (Ty::F64, Precision::Storage)]
        {
            for operator in operators::all(ty) {
                let mut combiner = Combiner::new(&operator, precision);
                let fields = |seed| operator.fields.iter().map(|f| elements(f.ty, COUNT, seed)).collect::<Vec<_>>();
                let (l, r) = (fields(1), fields(2));
                let mut together = l.clone();
                combiner.extend_all(&mut together, &r);
                for i in 0..COUNT {
                    let state = |columns: &[Data]| columns.iter().map(|column| column.get(i)).collect::<Vec<_>>();
                    let mut alone = state(&l);
                    combiner.extend(&mut alone, &state(&r));
                    for (a, b) in alone.into_iter().zip(state(&together)) {
                        assert_eq!(bits(a), bits(b), "{} of {i} in {ty}, {precision:?}", operator.name);
                    }
                }
            }
        }
    }

    #[test]
    fn columns_are_read_and_written_where_lanes_lie() {
        let mut data = Data::Int((0..12).collect());
        assert_eq!(column(&data, &[0, 4, 8], 3), Data::Int(vec![3, 7, 11]));
        set_column(&mut data, &[0, 8], 1, &Data::Int(vec![-1, -2]));
        assert_eq!(data, Data::Int(vec![0, -1, 2, 3, 4, 5, 6, 7, 8, -2, 10, 11]));
        assert_eq!(column(&Data::Float(vec![]), &[0, 4], 3), Data::Float(vec![0.0; 2]));
    }
}
