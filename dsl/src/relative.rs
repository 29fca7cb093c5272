//! Relative positions: angles that are differences of a row's and a column's position.
//!
//! A rotary embedding may be written inside the score, with the cosine and the sine of (i − j)·f. Such a sum has no product of a row and
//! a column that could lie in memory. By the theorems of addition it is a sum of such products:
//!
//! ```text
//! Σ (q·k)·cos((i − j)·f)  =  Σ (q·cos(i·f))·(k·cos(j·f)) + (q·sin(i·f))·(k·sin(j·f))
//! ```
//!
//! The summand is expanded into products of values of the row and values of the column (`polynomial`). Values of columns that are
//! multiplied with the same value of the row, up to sign, are added up: a rotation of pairs is two products and not eight.
//!
//! Angles are rounded where the program rounds their difference: what is 2⁻²⁴ of the distance in one form is 2⁻²⁴ of the position in the other.

mod polynomial;

use std::collections::{BTreeMap, BTreeSet};
use std::iter::successors;

use crate::build::{Builder, Built};
use crate::ir::{AxisSet, Binary, Op, Output, Program, Unary, Value};
use crate::transition::is_sum;
use crate::typing::TypeError;
use polynomial::{Factor, Monomial, Polynomial};

/// The most products of a row and a column that a sum becomes.
const PRODUCTS: usize = 4;

/// The program in which sums over angles that are differences of positions are sums of products of a row and a column.
pub fn relative(program: &Program) -> Program {
    let mut sums: BTreeMap<Value, Sum> = BTreeMap::new();
    for node in &program.nodes {
        if let Op::Reduce { operator, elements, .. } = &node.op
            && let [element] = elements[..]
            && is_sum(program.operator(*operator))
            && let Some(sum) = Sum::of(program, element)
        {
            sums.insert(element, sum);
        }
    }
    if sums.is_empty() {
        return program.clone();
    }
    rebuilt(program, &sums).unwrap_or_else(|_| program.clone())
}

/// The program with other summands.
fn rebuilt(program: &Program, sums: &BTreeMap<Value, Sum>) -> Result<Program, TypeError> {
    let mut b = Builder::from_program(program.without_nodes());
    let (mut place, mut summands): (Vec<Value>, BTreeMap<Value, Value>) = (vec![], BTreeMap::new());
    for (i, node) in program.nodes.iter().enumerate() {
        let is_reduction = matches!(node.op, Op::Reduce { .. });
        let at = |v: Value| summands.get(&v).filter(|_| is_reduction).copied().unwrap_or(place[v.0 as usize]);
        let value = b.append(node.op.map_operands(at), node.ty, node.axes)?;
        place.push(value);
        if let Some(sum) = sums.get(&Value(i as u32)) {
            let built = Build { program, sum, place: &place }.summand(&mut b)?;
            summands.insert(Value(i as u32), b.broadcast(built, node.axes)?);
        }
    }
    let outputs = program.outputs.iter().map(|o| Output { value: place[o.value.0 as usize], ..o.clone() }).collect();
    Ok(Program { outputs, ..b.finish() })
}

/// The axes that only one side of an angle has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sides {
    row: AxisSet,
    column: AxisSet,
}

impl Sides {
    /// Whether a value has axes of both sides.
    fn meet_in(self, program: &Program, value: Value) -> bool {
        let axes = program.node(value).axes;
        meets(axes, self.row) && meets(axes, self.column)
    }
}

fn meets(axes: AxisSet, others: AxisSet) -> bool {
    axes.minus(others) != axes
}

/// An angle that is a multiple of the difference or the sum of a value of the row and one of the column.
#[derive(Clone, Debug)]
struct Angle {
    /// The values from the angle down to the difference, without that.
    path: Vec<Value>,
    difference: Value,
    /// The operands of the difference.
    operands: [Value; 2],
    is_subtracted: bool,
    sides: Sides,
}

impl Angle {
    fn of(program: &Program, value: Value) -> Option<Angle> {
        let (path, difference) = down_to_difference(program, value)?;
        let (l, r, is_subtracted) = sum_of_sides(program, difference)?;
        let axes = |v: Value| program.node(v).axes;
        let sides = Sides { row: axes(l).minus(axes(r)), column: axes(r).minus(axes(l)) };
        // A factor with an axis of one side would bring it to the other.
        let is_free = |v: &Value| !meets(axes(*v), sides.row) && !meets(axes(*v), sides.column);
        let is_beside = |v: &Value| *v != difference && !path.contains(v);
        let mut beside = path.iter().flat_map(|v| program.node(*v).op.operands()).filter(is_beside);
        beside.all(|v| is_free(&v)).then_some(Angle { path, difference, operands: [l, r], is_subtracted, sides })
    }
}

/// The first sum or difference of two sides that a value is a multiple of, with the values above it, the topmost first.
fn down_to_difference(program: &Program, value: Value) -> Option<(Vec<Value>, Value)> {
    let (mut above, mut open) = (BTreeMap::from([(value, None)]), vec![value]);
    while let Some(value) = open.pop() {
        if sum_of_sides(program, value).is_some() {
            let mut path: Vec<Value> = successors(above[&value], |v| above[v]).collect();
            path.reverse();
            return Some((path, value));
        }
        let factors = match program.node(value).op {
            Op::Broadcast(x) | Op::Convert(_, x) | Op::Unary(Unary::Neg, x) | Op::Binary(Binary::Div, x, _) => vec![x],
            Op::Binary(Binary::Mul, x, y) => vec![y, x],
            _ => vec![],
        };
        for factor in factors {
            above.entry(factor).or_insert_with(|| {
                open.push(factor);
                Some(value)
            });
        }
    }
    None
}

/// The operands of a sum or a difference, each of which has an axis that the other lacks, and whether the second is subtracted.
fn sum_of_sides(program: &Program, value: Value) -> Option<(Value, Value, bool)> {
    let (l, r, is_subtracted) = match program.node(value).op {
        Op::Binary(Binary::Sub, l, r) => (l, r, true),
        Op::Binary(Binary::Add, l, r) => (l, r, false),
        _ => return None,
    };
    let [left, right] = [l, r].map(|v| program.node(v).axes);
    (left.minus(right) != AxisSet::EMPTY && right.minus(left) != AxisSet::EMPTY).then_some((l, r, is_subtracted))
}

/// A summand as a sum of products of a row and a column.
#[derive(Clone, Debug)]
struct Sum {
    angles: BTreeMap<Value, Angle>,
    products: Vec<(Polynomial, Polynomial)>,
}

impl Sum {
    /// The products that a summand is the sum of; `None` where it has no such angles, or is no such sum.
    fn of(program: &Program, element: Value) -> Option<Sum> {
        let angles = angles_beneath(program, element);
        let sides = angles.values().next()?.sides;
        if angles.values().any(|angle| angle.sides != sides) {
            return None;
        }
        let expanded = polynomial::expand(program, element, sides, &angles)?;
        let products = polynomial::products(program, &expanded, sides)?;
        (products.len() <= PRODUCTS).then_some(Sum { angles, products })
    }
}

/// The angles of the cosines and sines that a value is a map of.
fn angles_beneath(program: &Program, value: Value) -> BTreeMap<Value, Angle> {
    let (mut found, mut open, mut seen) = (BTreeMap::new(), vec![value], BTreeSet::new());
    while let Some(value) = open.pop() {
        if !seen.insert(value) {
            continue;
        }
        match program.node(value).op {
            Op::Unary(Unary::Cos | Unary::Sin, angle) => {
                found.extend(Angle::of(program, angle).map(|own| (angle, own)));
            }
            Op::Binary(Binary::Add | Binary::Sub | Binary::Mul, l, r) => open.extend([l, r]),
            Op::Broadcast(x) | Op::Unary(Unary::Neg, x) => open.push(x),
            _ => {}
        }
    }
    found
}

/// Writes a summand.
struct Build<'a> {
    program: &'a Program,
    sum: &'a Sum,
    /// Where the values of the program are.
    place: &'a [Value],
}

impl Build<'_> {
    fn summand(&self, b: &mut Builder) -> Built {
        let mut total: Option<Value> = None;
        for (row, column) in &self.sum.products {
            let (row, column) = (self.polynomial(b, row)?, self.polynomial(b, column)?);
            let product = b.binary(Binary::Mul, row, column)?;
            total = Some(total.map_or(Ok(product), |total| b.binary(Binary::Add, total, product))?);
        }
        total.ok_or(TypeError::NotATuple)
    }

    fn polynomial(&self, b: &mut Builder, terms: &Polynomial) -> Built {
        let mut total: Option<Value> = None;
        for (monomial, count) in terms {
            let term = self.monomial(b, monomial)?;
            total = Some(match (total, *count > 0) {
                (None, true) => term,
                (None, false) => b.unary(Unary::Neg, term)?,
                (Some(total), true) => b.binary(Binary::Add, total, term)?,
                (Some(total), false) => b.binary(Binary::Sub, total, term)?,
            });
        }
        total.ok_or(TypeError::NotATuple)
    }

    fn monomial(&self, b: &mut Builder, factors: &Monomial) -> Built {
        let mut product: Option<Value> = None;
        for factor in factors {
            let factor = match *factor {
                Factor::Value(value) => self.place[value.0 as usize],
                Factor::Wave { of, angle, side } => {
                    let angle = self.angle(b, angle, side)?;
                    b.unary(of.unary(), angle)?
                }
            };
            product = Some(product.map_or(Ok(factor), |product| b.binary(Binary::Mul, product, factor))?);
        }
        product.ok_or(TypeError::NotATuple)
    }

    /// The part of an angle that one side has.
    fn angle(&self, b: &mut Builder, angle: Value, side: usize) -> Built {
        let Some(own) = self.sum.angles.get(&angle) else { return Err(TypeError::NotATuple) };
        let at = |v: Value| self.place[v.0 as usize];
        let (mut value, mut below) = (at(own.operands[side]), own.difference);
        for node in own.path.iter().rev() {
            value = match self.program.node(*node).op {
                Op::Broadcast(_) => value,
                Op::Convert(elem, _) => b.convert(elem, value)?,
                Op::Unary(op, _) => b.unary(op, value)?,
                Op::Binary(Binary::Mul, x, y) if y == below => b.binary(Binary::Mul, at(x), value)?,
                Op::Binary(op, _, y) => b.binary(op, value, at(y))?,
                _ => return Err(TypeError::NotATuple),
            };
            below = *node;
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
