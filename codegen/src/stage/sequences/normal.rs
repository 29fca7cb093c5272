//! Values as sums of products, so that those that are written in different ways can be compared.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, Binary, Op, Program, Unary, Value};
use oplus_dsl::transition::is_sum;

/// The most products of a value; one with more is left as it is.
const MOST: usize = 256;

/// A factor of a product.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Factor {
    /// A value of the program.
    Leaf(u32),
    /// A number, by its bits.
    Number(u64),
    /// An operation of sums.
    Made(String, Vec<Sum>),
    /// The sum of a product over an axis.
    Over(Axis, Vec<Factor>),
    /// 1 where a condition has this value, 0 elsewhere.
    Where(bool, Sum),
}

/// A sum of products, each with the number of times that it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sum(BTreeMap<Vec<Factor>, i64>);

impl Sum {
    fn of(factor: Factor) -> Sum {
        Sum(BTreeMap::from([(vec![factor], 1)]))
    }

    fn number(x: f64) -> Sum {
        match x {
            0.0 => Sum::default(),
            1.0 => Sum(BTreeMap::from([(vec![], 1)])),
            x => Sum::of(Factor::Number(x.to_bits())),
        }
    }

    fn plus(mut self, other: &Sum, times: i64) -> Sum {
        for (product, count) in &other.0 {
            *self.0.entry(product.clone()).or_default() += times * count;
        }
        self.0.retain(|_, count| *count != 0);
        self
    }

    fn times(&self, other: &Sum) -> Sum {
        let mut all = Sum::default();
        for (x, m) in &self.0 {
            for (y, n) in &other.0 {
                all = all.plus(&Sum(BTreeMap::from([(joined(x, y), 1)])), m * n);
            }
        }
        all
    }

    fn over(&self, axis: Axis) -> Sum {
        let of = |(product, count): (&Vec<Factor>, &i64)| (vec![Factor::Over(axis, product.clone())], *count);
        Sum(self.0.iter().map(of).collect())
    }
}

/// The factors of two products; a condition counts once.
fn joined(x: &[Factor], y: &[Factor]) -> Vec<Factor> {
    let mut all: Vec<Factor> = x.iter().chain(y).cloned().collect();
    all.sort();
    all.dedup_by(|a, b| a == b && matches!(a, Factor::Where(..)));
    all
}

/// The sums that values are, where some values stand for others.
pub(super) struct Normal<'a> {
    program: &'a Program,
    /// The replacements of values.
    instead: &'a HashMap<Value, Instead>,
    at: At,
    known: HashMap<Value, Sum>,
}

/// The replacement of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Instead {
    /// An earlier value.
    Value(Value),
    /// A number.
    Number(f64),
}

/// The times at which values are compared.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum At {
    /// All, or all sequences.
    AnyTime,
    /// The first one alone, at which the first of a value is the value.
    FirstTime,
}

impl<'a> Normal<'a> {
    pub(super) fn new(b: &'a Builder, instead: &'a HashMap<Value, Instead>, at: At) -> Normal<'a> {
        Normal { program: b.program(), instead, at, known: HashMap::new() }
    }

    /// The sum that a value is.
    pub(super) fn of(&mut self, value: Value) -> Sum {
        let (mut beneath, mut open) = (BTreeSet::new(), vec![value]);
        while let Some(value) = open.pop() {
            if !self.known.contains_key(&value) && beneath.insert(value) {
                open.extend(self.operands(value));
            }
        }
        for value in beneath {
            let sum = self.found(value);
            self.known.insert(value, sum);
        }
        self.known[&value].clone()
    }

    fn operands(&self, value: Value) -> Vec<Value> {
        match (self.instead.get(&value), &self.program.node(value).op) {
            (Some(Instead::Value(other)), _) => vec![*other],
            (Some(Instead::Number(_)), _) | (None, Op::Scan { .. } | Op::MatrixScan(_)) => vec![],
            (None, Op::First { value, .. }) if self.at == At::FirstTime => vec![*value],
            (None, Op::Field(tuple, 0)) => match &self.program.node(*tuple).op {
                Op::Reduce { elements, .. } => vec![elements[0]],
                _ => vec![],
            },
            (None, Op::Field(..)) => vec![],
            (None, op) => op.operands().to_vec(),
        }
    }

    fn found(&self, value: Value) -> Sum {
        let leaf = || Sum::of(Factor::Leaf(value.0));
        let of = |v: Value| self.known[&v].clone();
        let sum = match (self.instead.get(&value), &self.program.node(value).op) {
            (Some(Instead::Value(other)), _) => of(*other),
            (Some(Instead::Number(x)), _) => Sum::number(*x),
            (None, Op::Const(x)) => Sum::number(x.as_f64()),
            (None, Op::Broadcast(x)) => of(*x),
            (None, Op::First { value, .. }) if self.at == At::FirstTime => of(*value),
            (None, Op::Convert(elem, x)) if Some(*elem) == self.program.node(*x).ty.elem() => of(*x),
            (None, Op::Unary(Unary::Neg, x)) => Sum::default().plus(&of(*x), -1),
            (None, Op::Unary(Unary::Exp, x)) => {
                let by = Sum::number(std::f64::consts::LOG2_E);
                Sum::of(Factor::Made(format!("{:?}", Op::Unary(Unary::Exp2, Value(0))), vec![of(*x).times(&by)]))
            }
            (None, Op::Binary(Binary::Add, x, y)) => of(*x).plus(&of(*y), 1),
            (None, Op::Binary(Binary::Sub, x, y)) => of(*x).plus(&of(*y), -1),
            (None, Op::Binary(Binary::Mul, x, y)) => of(*x).times(&of(*y)),
            (None, Op::Select(c, x, y)) => self.selected(*c, [*x, *y]),
            (None, Op::Field(tuple, 0)) => match &self.program.node(*tuple).op {
                Op::Reduce { axis, operator, elements } if is_sum(self.program.operator(*operator)) => {
                    of(elements[0]).over(*axis)
                }
                _ => leaf(),
            },
            (None, op) if op.is_map() && !op.operands().is_empty() => {
                let operands = op.operands().iter().map(|v| of(*v)).collect();
                Sum::of(Factor::Made(format!("{:?}", op.map_operands(|_| Value(0))), operands))
            }
            _ => leaf(),
        };
        if sum.0.len() > MOST { leaf() } else { sum }
    }

    fn selected(&self, condition: Value, two: [Value; 2]) -> Sum {
        let when = |holds: bool| Sum::of(Factor::Where(holds, self.known[&condition].clone()));
        let [x, y] = two.map(|v| &self.known[&v]);
        x.times(&when(true)).plus(&y.times(&when(false)), 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oplus_dsl::{Elem, Ty};

    /// Whether the two last outputs of what is built are the same sum, with the first parameter for the second.
    fn are_same(build: impl FnOnce(&mut Builder, Axis, [Value; 4]) -> [Value; 2]) -> bool {
        let mut b = Builder::new("sums");
        let axis = b.axis("T").expect("an axis");
        let params = ["x", "y", "z", "w"].map(|name| b.param(name, &[axis], Elem::F32, None).expect("a parameter"));
        let two = build(&mut b, axis, params);
        let instead = HashMap::from([(params[1], Instead::Value(params[0])), (params[3], Instead::Number(0.0))]);
        let mut normal = Normal::new(&b, &instead, At::AnyTime);
        let [x, y] = two.map(|value| normal.of(value));
        x == y
    }

    fn binary(b: &mut Builder, op: Binary, x: Value, y: Value) -> Value {
        b.binary(op, x, y).expect("a value")
    }

    #[test]
    fn sums_of_products_are_the_same_in_any_order() {
        assert!(are_same(|b, axis, [x, y, z, _]| {
            let difference = binary(b, Binary::Sub, x, z);
            let product = binary(b, Binary::Mul, difference, y);
            let one = b.sum(axis, product).expect("a sum");
            let [square, mixed] = [y, z].map(|v| binary(b, Binary::Mul, x, v));
            let [square, mixed] = [square, mixed].map(|v| b.sum(axis, v).expect("a sum"));
            [one, binary(b, Binary::Sub, square, mixed)]
        }));
        assert!(!are_same(|b, _, [x, _, z, _]| { [binary(b, Binary::Sub, x, z), binary(b, Binary::Sub, z, x)] }));
    }

    #[test]
    fn what_stands_for_0_leaves_nothing() {
        assert!(are_same(|b, _, [x, _, z, w]| {
            let product = binary(b, Binary::Mul, w, z);
            [binary(b, Binary::Add, x, product), x]
        }));
        assert!(!are_same(|b, _, [x, _, z, _]| [binary(b, Binary::Add, x, z), x]));
    }

    #[test]
    fn a_mask_is_a_factor() {
        let masked = |b: &mut Builder, mask: Value, v: Value| {
            let zero = b.float(Ty::F32, 0.0).expect("0");
            b.select(mask, zero, v).expect("a value")
        };
        assert!(are_same(|b, _, [x, _, z, _]| {
            let mask = binary(b, Binary::Lt, x, z);
            let [first, second] = [x, z].map(|v| masked(b, mask, v));
            [binary(b, Binary::Mul, first, z), binary(b, Binary::Mul, x, second)]
        }));
        assert!(!are_same(|b, _, [x, y, z, _]| {
            let masks = [binary(b, Binary::Lt, x, z), binary(b, Binary::Lt, z, y)];
            masks.map(|mask| masked(b, mask, x))
        }));
    }
}
