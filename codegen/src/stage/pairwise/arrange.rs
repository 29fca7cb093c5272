//! Programs written so that more of their sums are sums over pairs that a kernel takes.
//!
//! A kernel of pairs multiplies rows and columns that lie in memory. Here
//!
//! * the sum of a sum of products becomes the sum of several sums: Σ (a·b + c·d) = Σ a·b + Σ c·d;
//! * where sums stand one above the other, the sum over columns goes innermost: Σ over B and N of x = Σ over B of Σ over N of x;
//! * a product that is divided by a value with fewer axes is multiplied by the reciprocal;
//! * rows and columns that are computed, such as keys that were rotated, become values of the call's type that are stored before.

use std::collections::{BTreeMap, BTreeSet};

use oplus_dsl::Elem;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Op, OperatorId, Program, Unary, Value};
use oplus_dsl::simplify::simplify;
use oplus_dsl::typing::TypeError;

use super::find::factors;
use super::rebuild::rebuild;
use crate::stage::reduction::{Reduction, Sum, is_sum};

/// A program, and the values in it that are stored before its sums over pairs.
pub(super) struct Arranged {
    pub program: Program,
    pub leaves: BTreeSet<Value>,
}

impl Arranged {
    /// A program as it is, with nothing stored.
    pub(super) fn plain(program: &Program) -> Arranged {
        Arranged { program: program.clone(), leaves: BTreeSet::new() }
    }

    /// A program after all of these changes; as it is where one that was changed cannot be built.
    pub(super) fn of(program: &Program) -> Arranged {
        let arranged = split_sums(program).map(|split| simplify(&split));
        let arranged = arranged.and_then(|split| store_leaves(&split));
        arranged.unwrap_or_else(|_| Arranged::plain(program))
    }
}

/// The program with sums divided and exchanged, and divisions as products.
fn split_sums(program: &Program) -> Result<Program, TypeError> {
    let quotients = quotients(program);
    rebuild(program, |b, value, place| {
        let at = |v: Value| place[v.0 as usize];
        match program.node(value).op {
            Op::Binary(Binary::Div, x, y) if quotients.contains(&value) => {
                let reciprocal = b.unary(Unary::Recip, at(y))?;
                b.binary(Binary::Mul, at(x), reciprocal).map(Some)
            }
            Op::Field(tuple, 0) => match (Terms::of(program, tuple), Nested::columns_inward(program, tuple)) {
                (Some(sum), _) => sum.build(b, place).map(Some),
                (None, Some(nested)) => nested.build(b, place).map(Some),
                (None, None) => Ok(None),
            },
            _ => Ok(None),
        }
    })
}

fn sum_of(b: &mut Builder, axis: Axis, operator: OperatorId, element: Value) -> Result<Value, TypeError> {
    b.reduce(axis, operator, &[element])?.first().copied().ok_or(TypeError::NotATuple)
}

/// A sum of several products of a row and a column.
struct Terms {
    axis: Axis,
    operator: OperatorId,
    /// The products, and whether each is subtracted.
    terms: Vec<(Value, bool)>,
}

impl Terms {
    /// The products that a tuple sums; `None` unless there are several, and nothing else is summed.
    fn of(program: &Program, tuple: Value) -> Option<Terms> {
        let Sum { axis, operator, element } = Sum::of(program, tuple)?;
        let (mut terms, mut open) = (vec![], vec![(element, false)]);
        while let Some((value, is_subtracted)) = open.pop() {
            match program.node(value).op {
                Op::Binary(Binary::Add, x, y) => open.extend([(y, is_subtracted), (x, is_subtracted)]),
                Op::Binary(Binary::Sub, x, y) => open.extend([(y, !is_subtracted), (x, is_subtracted)]),
                Op::Unary(Unary::Neg, x) => open.push((x, !is_subtracted)),
                Op::Broadcast(x) => open.push((x, is_subtracted)),
                _ => terms.push((value, is_subtracted)),
            }
        }
        let are_products = terms.iter().all(|(term, _)| row_and_column(program, *term, axis).is_some());
        (terms.len() > 1 && are_products).then_some(Terms { axis, operator, terms })
    }

    /// The sum of the sums of the products.
    fn build(&self, b: &mut Builder, place: &[Value]) -> Result<Value, TypeError> {
        let mut total: Option<Value> = None;
        for (term, is_subtracted) in &self.terms {
            let sum = sum_of(b, self.axis, self.operator, place[term.0 as usize])?;
            total = Some(match total {
                None if *is_subtracted => b.unary(Unary::Neg, sum)?,
                None => sum,
                Some(before) => b.binary(if *is_subtracted { Binary::Sub } else { Binary::Add }, before, sum)?,
            });
        }
        total.ok_or(TypeError::NotATuple)
    }
}

/// Sums one above the other, the inner ones times weights.
struct Nested {
    /// The axes from the innermost to the outermost.
    axes: Vec<Axis>,
    operator: OperatorId,
    /// The innermost summand. The weights multiply it.
    element: Value,
    weights: Vec<Value>,
    is_negated: bool,
}

impl Nested {
    /// The sums beneath a tuple with one over columns innermost: Σ over N of w·(Σ over B of x) as Σ over B of Σ over N of w·x;
    /// `None` where they are so already.
    fn columns_inward(program: &Program, tuple: Value) -> Option<Nested> {
        let Sum { axis, operator, element } = Sum::of(program, tuple)?;
        let mut nested = Nested { axes: vec![axis], operator, element, weights: vec![], is_negated: false };
        while nested.descend(program).is_some() {}
        let contractions = contractions_beneath(program, nested.element);
        let is_column = |axis: &Axis| contractions.iter().any(|c| divides(program, *c, *axis));
        let place = nested.axes.iter().position(is_column).filter(|place| *place > 0)?;
        let column = nested.axes.remove(place);
        nested.axes.insert(0, column);
        Some(nested)
    }

    /// If the summand is itself a multiple of a sum, by factors that lack the axis of that sum, adds that sum to the chain.
    fn descend(&mut self, program: &Program) -> Option<()> {
        let multiple = Multiple::of(program, self.element)?;
        let Sum { axis, operator, element } = Sum::of(program, multiple.tuple)?;
        let is_free = multiple.weights.iter().all(|w| !has(program, *w, axis));
        if operator != self.operator || !is_free || row_and_column(program, element, axis).is_some() {
            return None;
        }
        self.axes.insert(0, axis);
        self.weights.extend(multiple.weights);
        self.element = element;
        self.is_negated ^= multiple.is_negated;
        Some(())
    }

    fn build(&self, b: &mut Builder, place: &[Value]) -> Result<Value, TypeError> {
        let at = |v: &Value| place[v.0 as usize];
        let mut element = self.weights.iter().try_fold(at(&self.element), |x, w| b.binary(Binary::Mul, x, at(w)))?;
        if self.is_negated {
            element = b.unary(Unary::Neg, element)?;
        }
        self.axes.iter().try_fold(element, |x, axis| sum_of(b, *axis, self.operator, x))
    }
}

/// A multiple of a field.
struct Multiple {
    /// The tuple of the field.
    tuple: Value,
    /// The factors beside it.
    weights: Vec<Value>,
    is_negated: bool,
}

impl Multiple {
    fn of(program: &Program, value: Value) -> Option<Multiple> {
        let (mut value, mut weights, mut is_negated) = (value, vec![], false);
        loop {
            value = match program.node(value).op {
                Op::Broadcast(x) => x,
                Op::Unary(Unary::Neg, x) => {
                    is_negated = !is_negated;
                    x
                }
                Op::Binary(Binary::Mul, x, y) => {
                    let (own, weight) = if has_sum_among_factors(program, x) { (x, y) } else { (y, x) };
                    weights.push(weight);
                    own
                }
                Op::Field(tuple, 0) => return Some(Multiple { tuple, weights, is_negated }),
                _ => return None,
            };
        }
    }
}

fn has_sum_among_factors(program: &Program, value: Value) -> bool {
    let is_sum = |v: &Value| Sum::of_field(program, *v).is_some();
    factors(program, value, &BTreeSet::new()).iter().any(is_sum)
}

/// The factors of summands that are quotients whose divisor has fewer axes than the dividend.
fn quotients(program: &Program) -> BTreeSet<Value> {
    let mut found = BTreeSet::new();
    for tuple in values(program) {
        let elements = Reduction::of(program, tuple).map_or(&[][..], |own| own.elements);
        for value in elements.iter().flat_map(|element| factors(program, *element, &BTreeSet::new())) {
            let Op::Binary(Binary::Div, x, y) = program.node(value).op else { continue };
            let (axes, divisor) = (program.node(x).axes, program.node(y).axes);
            if divisor != axes && divisor.minus(axes).is_empty() {
                found.insert(value);
            }
        }
    }
    found
}

/// The program in which computed rows and columns are rounded to the type that they are stored in, and these.
fn store_leaves(program: &Program) -> Result<Arranged, TypeError> {
    let computed = computed_leaves(program);
    let mut leaves = BTreeSet::new();
    let stored = rebuild(program, |b, value, place| {
        let Some(elem) = computed.get(&value) else { return Ok(None) };
        let node = program.node(value);
        let found = b.append(node.op.map_operands(|v| place[v.0 as usize]), node.ty, node.axes)?;
        let leaf = b.convert(*elem, found)?;
        leaves.insert(leaf);
        Ok(Some(leaf))
    })?;
    Ok(Arranged { program: stored, leaves })
}

/// The rows and columns of sums over pairs that are computed, each with the element type that it is stored in.
fn computed_leaves(program: &Program) -> BTreeMap<Value, Elem> {
    let (mut found, weights) = (BTreeMap::new(), weights(program));
    for tuple in values(program) {
        let Some(Reduction { axis: column, operator, elements }) = Reduction::of(program, tuple) else { continue };
        if !is_sum(operator) && operator.gauge.is_none() {
            continue;
        }
        let score = operator.gauge.map(|k| elements[k as usize]);
        let payloads = computed_payloads(program, &weights, score, elements);
        let is_divided = |c: &Value| matches!(factors_of(program, *c), Some((x, y)) if has(program, x, column) != has(program, y, column));
        let is_leaf = |c: &Value| payloads.iter().any(|v| matches!(program.node(*v).op, Op::Field(t, _) if t == *c));
        let is_contraction = |c: &Value| is_divided(c) && !is_leaf(c) && !is_weighted(program, &weights, *c);
        let beneath = elements.iter().flat_map(|element| contractions_beneath(program, *element));
        let contractions: BTreeSet<Value> = beneath.filter(is_contraction).collect();
        let pair = contractions.iter().fold(AxisSet::EMPTY, |axes, c| axes.union(program.node(*c).axes));
        if pair.is_empty() {
            continue;
        }
        let factors = |element: &Value| factors(program, *element, &BTreeSet::new());
        let is_payload = |v: &Value| !program.node(*v).axes.minus(pair).is_empty() && has(program, *v, column);
        let payloads = elements.iter().flat_map(factors).filter(is_payload);
        let sides = contractions.iter().filter_map(|c| factors_of(program, *c)).flat_map(|(x, y)| [x, y]);
        let computed = sides.chain(payloads).filter(|v| !matches!(program.node(*v).op, Op::Param(_)));
        found.extend(computed.filter_map(|leaf| Some((leaf, stored_type(program, leaf)?))));
    }
    found
}

/// The factors of summands that are contractions themselves, such as values that are made of latents, and are weighted by maps of other
/// contractions: those of the score of a merge, or those beneath the other factors.
fn computed_payloads(
    program: &Program,
    weights: &BTreeSet<Value>,
    score: Option<Value>,
    elements: &[Value],
) -> BTreeSet<Value> {
    let is_weight = |v: &Value| weights.contains(v);
    let is_made = |v: &Value| is_made(program, weights, *v);
    let mut found = BTreeSet::new();
    for element in elements.iter().filter(|element| Some(**element) != score) {
        let factors = factors(program, *element, &BTreeSet::new());
        if score.is_some() || factors.iter().any(is_weight) {
            found.extend(factors.into_iter().filter(is_made));
        }
    }
    found
}

/// The values that are maps of the scores of merges, such as the weights of a softmax.
fn weights(program: &Program) -> BTreeSet<Value> {
    let score = |tuple: Value| {
        let Reduction { operator, elements, .. } = Reduction::of(program, tuple)?;
        Some(contractions_beneath(program, elements[operator.gauge? as usize]))
    };
    let scores: BTreeSet<Value> = values(program).filter_map(score).flatten().collect();
    let mut weights = BTreeSet::new();
    for value in values(program) {
        let op = &program.node(value).op;
        let is_weight = match op {
            Op::Field(tuple, 0) => scores.contains(tuple),
            op => op.is_map() && op.operands().iter().any(|v| weights.contains(v)),
        };
        if is_weight {
            weights.insert(value);
        }
    }
    weights
}

/// Whether a value is a contraction whose row and column are no weights, and which is no score itself.
fn is_made(program: &Program, weights: &BTreeSet<Value>, value: Value) -> bool {
    let Op::Field(tuple, 0) = program.node(value).op else { return false };
    !weights.contains(&value) && factors_of(program, tuple).is_some() && !is_weighted(program, weights, tuple)
}

/// Whether a sum of products has a weight among its factors: it is a sum over pairs itself.
fn is_weighted(program: &Program, weights: &BTreeSet<Value>, tuple: Value) -> bool {
    factors_of(program, tuple).is_some_and(|(x, y)| weights.contains(&x) || weights.contains(&y))
}

/// The narrowest type of the floats that a value is computed from.
fn stored_type(program: &Program, value: Value) -> Option<Elem> {
    let (mut open, mut seen, mut found) = (vec![value], BTreeSet::new(), None);
    while let Some(value) = open.pop().filter(|_| found != Some(Elem::Bf16)) {
        if !seen.insert(value) {
            continue;
        }
        match (&program.node(value).op, found) {
            (Op::Param(p), found_before) => match (program.params[*p as usize].elem, found_before) {
                (Elem::F64, _) => return None,
                (elem @ (Elem::Bf16 | Elem::F16), _) | (elem @ Elem::F32, None) => found = Some(elem),
                _ => {}
            },
            (op, _) => open.extend(op.operands()),
        }
    }
    found
}

/// The sums of products of a row and a column that a value is a map of.
fn contractions_beneath(program: &Program, value: Value) -> BTreeSet<Value> {
    let (mut open, mut seen, mut found) = (vec![value], BTreeSet::new(), BTreeSet::new());
    while let Some(value) = open.pop() {
        if !seen.insert(value) {
            continue;
        }
        match program.node(value).op {
            Op::Field(tuple, _) if factors_of(program, tuple).is_some() => _ = found.insert(tuple),
            Op::Field(..) => {}
            ref op => open.extend(op.operands()),
        }
    }
    found
}

/// Whether one factor of a sum of products has an axis and the other lacks it.
fn divides(program: &Program, tuple: Value, axis: Axis) -> bool {
    factors_of(program, tuple).is_some_and(|(x, y)| has(program, x, axis) != has(program, y, axis))
}

/// The row and the column of a sum of their products.
fn factors_of(program: &Program, tuple: Value) -> Option<(Value, Value)> {
    let Sum { axis, element, .. } = Sum::of(program, tuple)?;
    row_and_column(program, element, axis)
}

/// The two factors of a product along an axis, each of which has an axis that the other lacks.
fn row_and_column(program: &Program, value: Value, axis: Axis) -> Option<(Value, Value)> {
    let along: Vec<Value> =
        factors(program, value, &BTreeSet::new()).into_iter().filter(|v| has(program, *v, axis)).collect();
    let [x, y] = along[..] else { return None };
    let (left, right) = (program.node(x).axes, program.node(y).axes);
    (!left.minus(right).is_empty() && !right.minus(left).is_empty()).then_some((x, y))
}

fn has(program: &Program, value: Value, axis: Axis) -> bool {
    program.node(value).axes.contains(axis)
}

fn values(program: &Program) -> impl Iterator<Item = Value> {
    (0..program.nodes.len() as u32).map(Value)
}
