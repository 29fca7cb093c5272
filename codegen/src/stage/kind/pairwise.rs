//! Sums over all pairs of a row and a column, of which attention and both halves of its gradient are three.

mod across;
mod limit;

pub use across::Across;
use across::with_across;
use limit::limit;

use std::collections::BTreeSet;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Op, Program, Unary, Value};
use oplus_dsl::walk::all;

use super::gauge;
use super::product::{Product, conjunction, is};
use crate::stage::reduction::{Reduction, is_sum_of_f32};
use crate::stage::{Refusal, Stage};

/// The most axes within rows and columns.
const INNER: usize = 3;

/// A stage as sums over pairs of a row and a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairwise {
    /// The axis of the rows, among the stage's outer axes.
    pub row: Axis,
    /// The axis of the columns, over which everything is summed.
    pub column: Axis,
    /// The axes of a pair: `row`, `column`, `grouped`, and those over which everything is computed apart.
    pub pair: AxisSet,
    /// An axis that only columns have, over which the sums are added up: a row meets the columns of all its points.
    pub grouped: Option<Axis>,
    /// The axes within rows and columns: those summed by contractions, then those of payloads. At most three.
    pub inner: Vec<Axis>,
    /// Sums of products of a row and a column.
    pub contractions: Vec<Contraction>,
    /// The score that weights are measured against, if there is one.
    pub gauge: Option<Gauge>,
    /// The payloads that are summed over the columns.
    pub payloads: Vec<Payload>,
    /// Conditions on which a pair counts, of the form column ? value of the row.
    pub limits: Vec<Limit>,
    /// All conditions on which a pair counts.
    pub terms: Vec<Value>,
    /// The conditions that are no limits.
    pub conditions: Vec<Value>,
    /// The sum over rows beside those over columns, if there is one.
    pub across: Option<Across>,
}

/// Σ over `axis` of left·right, times `factors`.
#[derive(Clone, Debug, PartialEq)]
pub struct Contraction {
    /// Its tuple.
    pub tuple: Value,
    /// The axis summed.
    pub axis: Axis,
    /// The parameter with the row axis.
    pub left: u32,
    /// The parameter with the column axis.
    pub right: u32,
    /// The other factors.
    pub factors: Vec<Value>,
    /// The conditions under which it is not zero, besides those of the pair.
    pub conditions: Vec<Value>,
}

/// The base of a softmax merge.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    /// The tuple of the merged state and its field.
    pub state: (Value, u32),
    /// The score of a pair.
    pub score: Value,
    /// A weight is 2^(rate·(score − maximum)).
    pub rate: f64,
}

/// A sum over the columns of weight·leaf.
#[derive(Clone, Debug, PartialEq)]
pub struct Payload {
    /// The tuple that the sum is a field of.
    pub state: (Value, u32),
    /// The factors of the weight of a pair, besides that of the gauge.
    pub factors: Vec<Value>,
    /// The factors of the sum: those without the column axis.
    pub outside: Vec<Value>,
    /// The conditions under which it counts, besides those of the pair.
    pub conditions: Vec<Value>,
    /// The parameter that is weighted, with its axis within columns; none for the sum of the weights.
    pub leaf: Option<(u32, Axis)>,
}

/// A bound on the columns that a row sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The condition.
    pub term: Value,
    /// Whether columns lie below the bound, or from it on.
    pub above: bool,
    /// The values whose sum is the bound, each with whether it is subtracted; `i64`, without the column axis.
    pub terms: Vec<(Value, bool)>,
    /// A number that is added to the bound.
    pub shift: i64,
}

impl Pairwise {
    /// The sums of a stage, or what it lacks.
    pub(super) fn of(stage: &Stage) -> Result<Pairwise, Refusal> {
        let program = &stage.program;
        let (sums, across) = with_across(program, outermost(program));
        let Some(first) = sums.first() else { return Err(Refusal::NoPairs) };
        let (inner, over) = beneath_sum(program, *first);
        let Some(Reduction { axis: column, .. }) = Reduction::of(program, inner) else { return Err(Refusal::NoPairs) };
        let mut finder = Finder { program, column, row: None, contractions: vec![] };
        let inner: Vec<Value> = sums.iter().map(|sum| beneath_sum(program, *sum).0).collect();
        if sums.iter().any(|sum| beneath_sum(program, *sum).1 != over) {
            return Err(Refusal::SeveralTotals);
        }
        finder.contractions(&inner)?;
        let row = finder.row.ok_or(Refusal::NoProduct)?;
        let axes = finder.contractions.iter().map(|c| program.node(c.tuple).axes);
        let mut form = Pairwise {
            row,
            column,
            pair: axes.fold(AxisSet::of(row).with(column), AxisSet::union),
            grouped: over,
            inner: vec![],
            contractions: finder.contractions,
            gauge: None,
            payloads: vec![],
            limits: vec![],
            terms: vec![],
            conditions: vec![],
            across: None,
        };
        let mut common: Option<Vec<Value>> = None;
        for (tuple, inner) in sums.into_iter().zip(inner) {
            form.sum(program, tuple, inner, &mut common)?;
        }
        form.across = across.map(|tuple| Across::of(program, &form, tuple, common.as_deref())).transpose()?;
        form.divide_conditions(program, common.unwrap_or_default());
        form.collect_inner()?;
        form.check_over(program)?;
        form.check_types(program)?;
        form.across.as_ref().map_or(Ok(()), |across| across.check(program, &form))?;
        Ok(form)
    }

    /// Refuses rows and limits of columns that depend on the axis over which sums are added up.
    fn check_over(&self, program: &Program) -> Result<(), Refusal> {
        let Some(over) = self.grouped else { return Ok(()) };
        let rows = self.row_leaves().into_iter().any(|(p, _)| program.params[p as usize].axes.contains(&over));
        let limits = self.limits.iter().flat_map(|l| &l.terms).any(|(v, _)| program.node(*v).axes.contains(over));
        if rows || limits || self.gauge.is_some() || [self.row, self.column].contains(&over) {
            return Err(Refusal::Total { axis: program.axis_name(over).to_owned() });
        }
        Ok(())
    }

    /// Refuses rows and columns of several types.
    fn check_types(&self, program: &Program) -> Result<(), Refusal> {
        let leaves = self.row_leaves().into_iter().chain(self.column_leaves());
        let elems: Vec<Elem> = leaves.map(|(p, _)| program.params[p as usize].elem).collect();
        match elems.first() {
            Some(first @ (Elem::Bf16 | Elem::F16 | Elem::F32)) if elems.iter().all(|e| e == first) => Ok(()),
            _ => Err(Refusal::PairTypes),
        }
    }

    /// Adds the payloads and the gauge of a sum over the columns.
    fn sum(
        &mut self,
        program: &Program,
        tuple: Value,
        inner: Value,
        common: &mut Option<Vec<Value>>,
    ) -> Result<(), Refusal> {
        let Some(Reduction { axis, operator, elements }) = Reduction::of(program, inner) else {
            return Err(Refusal::NoPairs);
        };
        if axis != self.column {
            return Err(Refusal::SeveralColumns);
        }
        let name = || operator.name.clone();
        let gauge = operator.gauge.map(|k| k as usize).filter(|_| operator.fields.len() > 1);
        match gauge {
            Some(k) => {
                let rate = gauge::rate(operator, k).ok_or_else(|| Refusal::NotMerge { operator: name() })?;
                if self.gauge.is_some() || !self.payloads.is_empty() {
                    return Err(Refusal::BesideMerge);
                }
                let (score, seen) = masked(program, elements[k]);
                self.gauge = Some(Gauge { state: (tuple, k as u32), score, rate });
                *common = Some(seen);
            }
            None if operator.fields.len() == 1 && is_sum_of_f32(operator) && self.gauge.is_none() => {}
            None => return Err(Refusal::NeitherSumNorMerge { operator: name() }),
        }
        for (k, element) in elements.iter().enumerate().filter(|(k, _)| Some(*k) != gauge) {
            self.payload(program, (tuple, k as u32), *element, common)?;
        }
        Ok(())
    }

    fn payload(
        &mut self,
        program: &Program,
        state: (Value, u32),
        element: Value,
        common: &mut Option<Vec<Value>>,
    ) -> Result<(), Refusal> {
        let mut product = Product::of(program, element);
        let wide: Vec<Axis> = program.node(element).axes.minus(self.pair).iter().collect();
        let leaf = match wide[..] {
            [] => None,
            [axis] => match &product.take_along(program, axis)[..] {
                [one] => Some((self.leaf(program, *one)?, axis)),
                _ => return Err(Refusal::WeightedProduct),
            },
            _ => return Err(Refusal::WeightedAxes),
        };
        match common {
            None => *common = Some(product.conditions.clone()),
            // Where the score is −∞ the weight is zero whatever else holds.
            Some(_) if self.gauge.is_some() => {}
            Some(terms) => terms.retain(|c| product.conditions.contains(c)),
        }
        let varies = |v: &Value| {
            let axes = program.node(*v).axes;
            axes.contains(self.column) || self.grouped.is_some_and(|over| axes.contains(over))
        };
        let (factors, outside) = product.factors.into_iter().partition(varies);
        self.payloads.push(Payload { state, factors, outside, conditions: product.conditions, leaf });
        Ok(())
    }

    /// The parameter of columns that a factor is.
    fn leaf(&self, program: &Program, factor: Value) -> Result<u32, Refusal> {
        let node = program.node(factor);
        match node.op {
            Op::Param(p) if node.axes.contains(self.column) && !node.axes.contains(self.row) => Ok(p),
            _ => Err(Refusal::WeightedValue),
        }
    }

    /// Divides the conditions on pairs into bounds on columns and others.
    fn divide_conditions(&mut self, program: &Program, terms: Vec<Value>) {
        self.payloads.iter_mut().for_each(|p| p.conditions.retain(|c| !terms.contains(c)));
        self.contractions.iter_mut().for_each(|p| p.conditions.retain(|c| !terms.contains(c)));
        self.terms = terms.clone();
        for term in terms {
            match limit(program, self.column, term) {
                Some(limit) => self.limits.push(limit),
                None => self.conditions.push(term),
            }
        }
    }

    fn collect_inner(&mut self) -> Result<(), Refusal> {
        let contracted = self.contractions.iter().map(|c| c.axis);
        for axis in contracted.chain(self.payloads.iter().filter_map(|p| p.leaf.map(|(_, axis)| axis))) {
            if !self.inner.contains(&axis) {
                self.inner.push(axis);
            }
        }
        if self.inner.len() > INNER { Err(Refusal::InnerAxes) } else { Ok(()) }
    }

    /// The parameters that tiles of columns are read from, each once, with its axis within columns.
    pub fn column_leaves(&self) -> Vec<(u32, Axis)> {
        let rights = self.contractions.iter().map(|c| (c.right, c.axis));
        distinct(rights.chain(self.payloads.iter().filter_map(|p| p.leaf)))
    }

    /// The parameters that tiles of rows are read from.
    pub fn row_leaves(&self) -> Vec<(u32, Axis)> {
        distinct(self.contractions.iter().map(|c| (c.left, c.axis)))
    }

    /// The positive factor, equal for all pairs, by which the score is a multiple of its only contraction; `None` if it is no such
    /// multiple, `Some(None)` where the factor is 1.
    pub fn scale(&self, program: &Program) -> Option<Option<Value>> {
        let gauge = self.gauge.as_ref()?;
        let [contraction] = &self.contractions[..] else { return None };
        if !contraction.factors.is_empty() || !self.conditions.is_empty() {
            return None;
        }
        let is_contraction = |v: Value| matches!(program.node(v).op, Op::Field(t, 0) if t == contraction.tuple);
        let pair = AxisSet::of(self.row).with(self.column);
        let is_uniform = |v: Value| pair.minus(program.node(v).axes) == pair && is_positive(program, v);
        match program.node(gauge.score).op {
            _ if is_contraction(gauge.score) => Some(None),
            Op::Binary(Binary::Mul, x, y) if is_contraction(x) && is_uniform(y) => Some(Some(y)),
            Op::Binary(Binary::Mul, x, y) if is_contraction(y) && is_uniform(x) => Some(Some(x)),
            _ => None,
        }
    }
}

/// The search for contractions beneath the sums.
struct Finder<'p> {
    program: &'p Program,
    column: Axis,
    row: Option<Axis>,
    contractions: Vec<Contraction>,
}

impl Finder<'_> {
    fn contractions(&mut self, sums: &[Value]) -> Result<(), Refusal> {
        let mut stack: Vec<Value> = sums.iter().flat_map(|v| self.program.node(*v).op.operands()).collect();
        let mut seen = BTreeSet::new();
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            if Reduction::of(self.program, value).is_some() {
                let found = self.contraction(value)?;
                stack.extend(&found.factors);
                self.contractions.push(found);
            } else {
                stack.extend(self.program.node(value).op.operands());
            }
        }
        self.contractions.sort_by_key(|c| c.tuple);
        Ok(())
    }

    fn contraction(&mut self, tuple: Value) -> Result<Contraction, Refusal> {
        let program = self.program;
        let Reduction { axis, operator, elements } = Reduction::of(program, tuple).ok_or(Refusal::NoPairs)?;
        let name = || program.axis_name(axis).to_owned();
        if !is_sum_of_f32(operator) {
            return Err(Refusal::NotSum { axis: name() });
        }
        let mut product = Product::of(program, elements[0]);
        let leaves = product.take_along(program, axis);
        let (rights, lefts): (Vec<Value>, Vec<Value>) =
            leaves.into_iter().partition(|v| program.node(*v).axes.contains(self.column));
        let free = product.conditions.iter().all(|v| !program.node(*v).axes.contains(axis));
        let ([left], [right], true) = (&lefts[..], &rights[..], free) else {
            return Err(Refusal::NotRowAndColumn { axis: name() });
        };
        let (Op::Param(l), Op::Param(r)) = (&program.node(*left).op, &program.node(*right).op) else {
            return Err(Refusal::Computed { axis: name() });
        };
        let only_left = program.node(*left).axes.minus(program.node(*right).axes).without(axis);
        let declared = program.params[*l as usize].axes.iter().rev().find(|a| only_left.contains(**a)).copied();
        let row = declared.ok_or_else(|| Refusal::NoRows { axis: name() })?;
        if self.row.is_some_and(|known| known != row) {
            return Err(Refusal::SeveralRows);
        }
        self.row = Some(row);
        Ok(Contraction { tuple, axis, left: *l, right: *r, factors: product.factors, conditions: product.conditions })
    }
}

/// The reductions that outputs depend on directly.
fn outermost(program: &Program) -> Vec<Value> {
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut stack: Vec<Value> = program.outputs.iter().map(|o| o.value).collect();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        if Reduction::of(program, value).is_some() {
            found.insert(value);
        } else {
            stack.extend(program.node(value).op.operands());
        }
    }
    found.into_iter().collect()
}

/// The sum over pairs beneath a tuple, and the axis over which the tuple adds it up, if it is not that sum itself.
pub(super) fn beneath_sum(program: &Program, tuple: Value) -> (Value, Option<Axis>) {
    let itself = (tuple, None);
    let Some(outer) = Reduction::of(program, tuple) else { return itself };
    let [field] = outer.elements else { return itself };
    let Op::Field(inner, 0) = program.node(*field).op else { return itself };
    let is_same_sum =
        Reduction::of(program, inner).is_some_and(|own| own.operator == outer.operator && is_sum_of_f32(own.operator));
    // A contraction has no other reduction beneath it.
    if is_same_sum && reduces_beneath(program, inner) { (inner, Some(outer.axis)) } else { itself }
}

/// Whether the elements of a reduction depend on reductions.
fn reduces_beneath(program: &Program, tuple: Value) -> bool {
    let mut stack = program.node(tuple).op.operands();
    let mut seen = BTreeSet::new();
    while let Some(value) = stack.pop() {
        if Reduction::of(program, value).is_some() {
            return true;
        }
        if seen.insert(value) {
            stack.extend(program.node(value).op.operands());
        }
    }
    false
}

/// A score without the conditions outside which it is −∞, and these conditions.
fn masked(program: &Program, score: Value) -> (Value, Vec<Value>) {
    let (mut score, mut conditions) = (score, vec![]);
    loop {
        score = match program.node(score).op {
            Op::Select(condition, x, nothing) if is(program, nothing, f64::NEG_INFINITY) => {
                conditions.push(condition);
                x
            }
            Op::Broadcast(x) => x,
            _ => break,
        };
    }
    let mut terms = vec![];
    conditions.into_iter().rev().for_each(|condition| conjunction(program, condition, &mut terms));
    (score, terms)
}

/// Whether a value can be seen to be positive.
fn is_positive(program: &Program, value: Value) -> bool {
    all(program, value, |v| match &program.node(v).op {
        Op::Const(literal) => Some(literal.as_f64() > 0.0),
        Op::Size(_) | Op::Unary(Unary::Exp | Unary::Exp2 | Unary::Rsqrt, _) => Some(true),
        Op::Unary(Unary::Sqrt | Unary::Recip, _) | Op::Convert(..) | Op::Broadcast(_) => None,
        Op::Binary(Binary::Mul | Binary::Div | Binary::Add, ..) => None,
        _ => Some(false),
    })
}

fn distinct(leaves: impl Iterator<Item = (u32, Axis)>) -> Vec<(u32, Axis)> {
    let mut list = vec![];
    leaves.for_each(|leaf| {
        if !list.contains(&leaf) {
            list.push(leaf);
        }
    });
    list
}
