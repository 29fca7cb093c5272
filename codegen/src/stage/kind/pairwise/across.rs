//! A sum over the rows of pairs beside those over their columns, as the gradient of attention has one.

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet, Op, Program, Value};
use oplus_dsl::walk::follow;

use super::{Limit, Pairwise, Payload, beneath_sum};
use crate::stage::Refusal;
use crate::stage::kind::product::Product;
use crate::stage::reduction::{Reduction, is_sum_of_f32};

/// A sum over the rows, for each column, of the weights of one of the payloads, times a parameter of the rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Across {
    /// The tuple that the sum is a field of.
    pub state: (Value, u32),
    /// The payload whose weights it has.
    pub payload: usize,
    /// The factors of the sum.
    pub outside: Vec<Value>,
    /// The parameter that is weighted, with its axis within rows.
    pub leaf: (u32, Axis),
}

impl Across {
    /// The sum over rows of a tuple, all of whose conditions must be those of all pairs.
    pub(super) fn of(
        program: &Program,
        form: &Pairwise,
        tuple: Value,
        common: Option<&[Value]>,
    ) -> Result<Across, Refusal> {
        let Some(Reduction { axis, operator, elements }) = Reduction::of(program, tuple) else {
            return Err(Refusal::NoPairs);
        };
        if axis != form.row || !is_sum_of_f32(operator) || form.gauge.is_some() {
            return Err(Refusal::SeveralColumns);
        }
        let mut product = Product::of(program, elements[0]);
        let inner = program.node(elements[0]).axes.minus(form.pair);
        let along = inner.iter().next().filter(|axis| inner.without(*axis).is_empty());
        let along = along.ok_or(Refusal::WeightedAxes)?;
        let leaf = match &product.take_along(program, along)[..] {
            [one] => match program.node(*one).op {
                Op::Param(p) if form.contractions.iter().any(|c| (c.left, c.axis) == (p, along)) => (p, along),
                _ => return Err(Refusal::AcrossLeaf),
            },
            _ => return Err(Refusal::WeightedProduct),
        };
        let pair = AxisSet::of(form.row).with(form.column);
        let is_uniform = |v: &Value| pair.minus(program.node(*v).axes) == pair;
        let (outside, mut factors): (Vec<Value>, Vec<Value>) = product.factors.into_iter().partition(is_uniform);
        factors.sort();
        let same = |payload: &Payload| {
            let mut own = payload.factors.clone();
            own.sort();
            payload.leaf.is_some() && own == factors && payload.outside.iter().all(is_uniform)
        };
        let payload = form.payloads.iter().position(same).ok_or(Refusal::AcrossWeights)?;
        let conditions: &[Value] = common.unwrap_or_default();
        let all = [&product.conditions, &form.payloads[payload].conditions];
        if all.into_iter().any(|own| own.iter().any(|c| !conditions.contains(c))) {
            return Err(Refusal::AcrossWeights);
        }
        Ok(Across { state: (tuple, 0), payload, outside, leaf })
    }

    /// Whether one walk gives the sums over rows and over columns: of two contractions and two payloads of the same columns, on
    /// conditions that are distances from the row.
    pub(super) fn check(&self, program: &Program, form: &Pairwise) -> Result<(), Refusal> {
        let leaf = |param: u32| form.contractions.iter().any(|c| c.right == param);
        let leaves = form.payloads.iter().all(|p| p.leaf.is_some_and(|(param, _)| leaf(param)));
        let tiles = form.column_leaves().len() == 2 && form.row_leaves().len() == 2;
        if form.contractions.len() != 2 || form.payloads.len() != 2 || !leaves || !tiles {
            return Err(Refusal::AcrossLeaf);
        }
        if !form.conditions.is_empty() || form.payloads.iter().any(|p| !p.conditions.is_empty()) {
            return Err(Refusal::AcrossWeights);
        }
        if form.limits.iter().any(|limit| !follows_rows(program, form, limit)) {
            return Err(Refusal::AcrossLimits);
        }
        let elem = program.params[self.leaf.0 as usize].elem;
        if matches!(elem, Elem::Bf16 | Elem::F16) { Ok(()) } else { Err(Refusal::AcrossType) }
    }
}

/// Whether a limit lies at a distance from the row that is the same for all rows.
fn follows_rows(program: &Program, form: &Pairwise, limit: &Limit) -> bool {
    let has_rows = |term: &(Value, bool)| program.node(term.0).axes.contains(form.row);
    let (of_row, others): (Vec<(Value, bool)>, Vec<_>) = limit.terms.iter().copied().partition(has_rows);
    let is_index = |value| {
        let source = follow(value, |v| if let Op::Broadcast(x) = program.node(v).op { Some(x) } else { None });
        program.node(source).op == Op::Index(form.row)
    };
    let uniform = others.iter().all(|(term, _)| program.node(*term).axes.is_empty());
    matches!(of_row[..], [(term, false)] if is_index(term)) && uniform
}

/// The sums over columns, and the sum over their rows, if there is one: of sums over two axes the one that has no other beside it.
pub(super) fn with_across(program: &Program, sums: Vec<Value>) -> (Vec<Value>, Option<Value>) {
    let column = |sum: &Value| Reduction::of(program, beneath_sum(program, *sum).0).map(|own| own.axis);
    let is_alone = |sum: &&Value| sums.iter().filter(|other| column(other) == column(sum)).count() == 1;
    let across = sums.iter().find(is_alone).copied().filter(|_| sums.len() > 2);
    (sums.into_iter().filter(|sum| Some(*sum) != across).collect(), across)
}
