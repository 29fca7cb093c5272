//! Summands as sums of products.

use std::collections::{BTreeMap, BTreeSet};

use crate::ir::{Binary, Op, Program, Unary, Value};

use super::{Angle, Sides, meets};

/// The most terms of a summand.
const TERMS: usize = 64;

/// A factor of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Factor {
    /// A value of the program.
    Value(Value),
    /// The cosine or the sine of the part of an angle that one side has.
    Wave { of: Wave, angle: Value, side: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wave {
    Cos,
    Sin,
}

impl Wave {
    pub(super) fn unary(self) -> Unary {
        match self {
            Wave::Cos => Unary::Cos,
            Wave::Sin => Unary::Sin,
        }
    }
}

/// The factors of a term, in order.
pub(super) type Monomial = Vec<Factor>;

/// Terms, each with how often it is added (negative: subtracted).
pub(super) type Polynomial = BTreeMap<Monomial, i32>;

/// A value that has axes of both sides, as a sum of products of factors that have axes of one; `None` where it is no such sum.
pub(super) fn expand(
    program: &Program,
    value: Value,
    sides: Sides,
    angles: &BTreeMap<Value, Angle>,
) -> Option<Polynomial> {
    let mut known: BTreeMap<Value, Polynomial> = BTreeMap::new();
    for v in mixed(program, value, sides) {
        let of = |x: Value| {
            let factor = || BTreeMap::from([(vec![Factor::Value(x)], 1)]);
            known.get(&x).cloned().or_else(|| (!sides.meet_in(program, x)).then(factor))
        };
        let own = match program.node(v).op {
            Op::Broadcast(x) => of(x)?,
            Op::Unary(Unary::Neg, x) => sum(BTreeMap::new(), of(x)?, -1),
            Op::Unary(Unary::Cos, x) => wave(Wave::Cos, x, angles.get(&x)?),
            Op::Unary(Unary::Sin, x) => wave(Wave::Sin, x, angles.get(&x)?),
            Op::Binary(Binary::Add, x, y) => sum(of(x)?, of(y)?, 1),
            Op::Binary(Binary::Sub, x, y) => sum(of(x)?, of(y)?, -1),
            Op::Binary(Binary::Mul, x, y) => product(&of(x)?, &of(y)?),
            _ => return None,
        };
        if own.len() > TERMS {
            return None;
        }
        known.insert(v, own);
    }
    known.remove(&value)
}

/// The values with axes of both sides that a value is computed from by sums and products, in order of evaluation.
fn mixed(program: &Program, value: Value, sides: Sides) -> BTreeSet<Value> {
    let (mut found, mut open) = (BTreeSet::new(), vec![value]);
    while let Some(value) = open.pop() {
        if !sides.meet_in(program, value) || !found.insert(value) {
            continue;
        }
        match program.node(value).op {
            Op::Binary(Binary::Add | Binary::Sub | Binary::Mul, l, r) => open.extend([l, r]),
            Op::Broadcast(x) | Op::Unary(Unary::Neg, x) => open.push(x),
            _ => {}
        }
    }
    found
}

fn sum(mut total: Polynomial, terms: Polynomial, sign: i32) -> Polynomial {
    for (term, count) in terms {
        *total.entry(term).or_default() += sign * count;
    }
    total.retain(|_, count| *count != 0);
    total
}

fn product(left: &Polynomial, right: &Polynomial) -> Polynomial {
    // More terms than there may be need not be counted.
    let pairs = left.iter().flat_map(|l| right.iter().map(move |r| (l, r))).take(TERMS * TERMS);
    pairs.fold(BTreeMap::new(), |total, ((l, n), (r, m))| {
        let mut term = [&l[..], &r[..]].concat();
        term.sort();
        sum(total, BTreeMap::from([(term, n * m)]), 1)
    })
}

/// cos(x ∓ y) = cos x·cos y ± sin x·sin y, sin(x ∓ y) = sin x·cos y ∓ cos x·sin y.
fn wave(of: Wave, value: Value, angle: &Angle) -> Polynomial {
    let term = |waves: [Wave; 2]| {
        let factor = |side: usize| Factor::Wave { of: waves[side], angle: value, side };
        let mut term = vec![factor(0), factor(1)];
        term.sort();
        term
    };
    let other = if angle.is_subtracted { 1 } else { -1 };
    match of {
        Wave::Cos => BTreeMap::from([(term([Wave::Cos, Wave::Cos]), 1), (term([Wave::Sin, Wave::Sin]), other)]),
        Wave::Sin => BTreeMap::from([(term([Wave::Sin, Wave::Cos]), 1), (term([Wave::Cos, Wave::Sin]), -other)]),
    }
}

/// The products of a polynomial of the row and one of the column that add up to a polynomial. Columns that are multiplied with
/// the same polynomial of the row, up to sign, are one. `None` where a side is empty.
pub(super) fn products(program: &Program, terms: &Polynomial, sides: Sides) -> Option<Vec<(Polynomial, Polynomial)>> {
    let is_column = |factor: &Factor| match factor {
        Factor::Value(value) => meets(program.node(*value).axes, sides.column),
        Factor::Wave { side, .. } => *side == 1,
    };
    let mut columns: BTreeMap<Monomial, Polynomial> = BTreeMap::new();
    for (term, count) in terms {
        let (column, row): (Monomial, Monomial) = term.iter().partition(|factor| is_column(factor));
        if row.is_empty() || column.is_empty() || count.abs() != 1 {
            return None;
        }
        *columns.entry(column).or_default().entry(row).or_default() += count;
    }
    let mut rows: BTreeMap<Polynomial, Polynomial> = BTreeMap::new();
    for (column, mut row) in columns {
        let sign = row.values().next().map_or(1, |count| count.signum());
        row.values_mut().for_each(|count| *count *= sign);
        rows.entry(row).or_default().insert(column, sign);
    }
    Some(rows.into_iter().collect())
}
