//! The search for pair sums among reductions.

use std::collections::{BTreeMap, BTreeSet};

use oplus_dsl::ir::{Axis, AxisSet, Binary, Op, Program, Unary, Value};

use super::Group;
use super::extract::Stored;
use crate::stage::reduction::{Reduction, is_sum};

/// The pair sums of a program.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// The sums, in order of evaluation.
    pub sums: Vec<PairSum>,
    /// The fields of these sums that something else reads than the maps of outputs.
    pub demanded: BTreeSet<Value>,
    /// Rows and columns that are stored before.
    pub leaves: BTreeSet<Value>,
    /// Their places among `sums`, by their tuples.
    place: BTreeMap<Value, usize>,
}

/// A sum or a softmax merge over the columns of maps of contractions.
#[derive(Clone, Debug)]
pub(super) struct PairSum {
    /// The axis summed.
    pub column: Axis,
    /// The axes of the contractions.
    pub pair: AxisSet,
    /// The axes of their rows.
    rows: AxisSet,
    /// The values that must be in memory: scans, other reductions, positions.
    pub needs: BTreeSet<Value>,
    /// The number of pair sums that wait for each other up to this one.
    pub level: u32,
    /// The number of the stage among those of one level: sums of different numbers have different stages.
    pub own: u32,
    /// An axis of the pairs over which the sums are added up.
    pub over: Option<Axis>,
    /// The columns and the axis added up of the group that it belongs to, if they are not its own: it is a sum over their rows.
    pub group: Option<(Axis, Option<Axis>)>,
}

/// The pair sums that share a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// The sums over the same columns and pairs.
    Fused,
    /// No sums: each has a stage.
    Separate,
    /// The sums over the same columns and pairs, with the sums over an axis that repeats them.
    GroupedQuery,
    /// As before, and those over the rows of the same pairs.
    Across,
}

impl Pairs {
    /// The sums over pairs of a program.
    pub(super) fn of(program: &Program, sharing: Sharing) -> Pairs {
        Pairs::among(program, sharing, &BTreeSet::new(), &BTreeSet::new())
    }

    /// The pair sums of a program, some of whose values are stored before; without these tuples.
    pub(super) fn among(
        program: &Program,
        sharing: Sharing,
        stored: &BTreeSet<Value>,
        left_out: &BTreeSet<Value>,
    ) -> Pairs {
        let mut pairs = Pairs { leaves: stored.clone(), ..Pairs::default() };
        for tuple in (0..program.nodes.len() as u32).map(Value).filter(|tuple| !left_out.contains(tuple)) {
            if let Some(sum) = pair_sum(program, stored, tuple) {
                let beneath = pairs.fields_beneath(program, &program.node(tuple).op.operands(), &Stored::new());
                let levels = beneath.iter().filter_map(|v| pairs.of_field(program, *v)).map(|sum| sum.level);
                let level = 1 + levels.max().unwrap_or(0);
                let own = if sharing == Sharing::Separate { tuple.0 } else { 0 };
                pairs.place.insert(tuple, pairs.sums.len());
                pairs.sums.push(PairSum { level, own, ..sum });
            } else if matches!(sharing, Sharing::GroupedQuery | Sharing::Across) {
                pairs.gather(program, tuple);
            }
        }
        if sharing == Sharing::Across {
            pairs.join_across();
        }
        pairs.demanded = pairs.demanded_fields(program);
        pairs
    }

    /// Puts a sum over the rows of pairs into the group of the sums over their columns, which are several.
    fn join_across(&mut self) {
        let of = |sum: &PairSum| (sum.level, sum.pair);
        let all = self.sums.clone();
        for sum in &mut self.sums {
            let beside = |other: &&PairSum| of(other) == of(sum) && other.column != sum.column;
            let alone = all.iter().filter(|other| of(other) == of(sum) && other.column == sum.column).count() == 1;
            let others: Vec<&PairSum> = all.iter().filter(beside).collect();
            if let Some(first) = others.first()
                && alone
                && sum.over.is_none()
                && others.len() > 1
                && others.iter().all(|other| Group::of(other) == Group::of(first))
            {
                sum.group = Some((first.column, first.over));
            }
        }
    }

    /// Whether a group has sums over rows beside those over columns.
    pub(super) fn has_across(&self) -> bool {
        self.sums.iter().any(|sum| sum.group.is_some())
    }

    /// Makes a sum over an axis that repeats a pair sum part of the pair sum, if nothing else reads that.
    fn gather(&mut self, program: &Program, tuple: Value) {
        let Some(Reduction { axis, operator, elements }) = Reduction::of(program, tuple) else { return };
        let [field] = elements[..] else { return };
        let Op::Field(inner, 0) = program.node(field).op else { return };
        let Some(place) = self.place.get(&inner).copied() else { return };
        let sum = &mut self.sums[place];
        let same = Reduction::of(program, inner).is_some_and(|own| own.operator == operator) && is_sum(operator);
        if same && sum.over.is_none() && sum.pair.minus(sum.rows).contains(axis) && is_read_once(program, inner) {
            sum.over = Some(axis);
            self.place.remove(&inner);
            self.place.insert(tuple, place);
        }
    }

    /// Whether a tuple is a pair sum.
    pub(super) fn contains(&self, tuple: Value) -> bool {
        self.place.contains_key(&tuple)
    }

    /// The tuples of the sums of a group.
    pub(super) fn tuples(&self, group: super::Group) -> impl Iterator<Item = Value> {
        self.place
            .iter()
            .filter(move |(_, place)| super::Group::of(&self.sums[**place]) == group)
            .map(|(tuple, _)| *tuple)
    }

    /// The pair sum that a value is a field of.
    pub(super) fn of_field(&self, program: &Program, value: Value) -> Option<&PairSum> {
        let Op::Field(tuple, _) = program.node(value).op else { return None };
        self.place.get(&tuple).map(|place| &self.sums[*place])
    }

    /// The pair sums that a value is a map of; `None` if it depends on other scans, reductions or positions, or on no
    /// pair sum.
    pub(super) fn beneath_maps(&self, program: &Program, value: Value) -> Option<Vec<PairSum>> {
        let (mut found, mut stack, mut seen) = (vec![], vec![value], BTreeSet::new());
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            match self.of_field(program, value) {
                Some(sum) => found.push(sum.clone()),
                None if is_point(&program.node(value).op) => stack.extend(program.node(value).op.operands()),
                None => return None,
            }
        }
        (!found.is_empty()).then_some(found)
    }

    /// The fields of pair sums that values depend on, but not those beneath what is stored or beneath other fields.
    pub(super) fn fields_beneath(&self, program: &Program, values: &[Value], stored: &Stored) -> BTreeSet<Value> {
        let (mut found, mut stack, mut seen) = (BTreeSet::new(), values.to_vec(), BTreeSet::new());
        while let Some(value) = stack.pop() {
            if stored.contains_key(&value) || !seen.insert(value) {
                continue;
            }
            if self.of_field(program, value).is_some() {
                found.insert(value);
            } else {
                stack.extend(program.node(value).op.operands());
            }
        }
        found
    }

    /// The fields that something else reads than an output that is a map of pair sums of one group.
    fn demanded_fields(&self, program: &Program) -> BTreeSet<Value> {
        let mut stack: Vec<Value> = vec![];
        for output in &program.outputs {
            match self.beneath_maps(program, output.value) {
                Some(sums) if sums.iter().all(|sum| super::Group::of(sum) == super::Group::of(&sums[0])) => {
                    let fields = self.fields_beneath(program, &[output.value], &Stored::new());
                    stack.extend(fields.iter().flat_map(|v| beneath(program, *v)));
                }
                _ => stack.push(output.value),
            }
        }
        let (mut demanded, mut seen) = (BTreeSet::new(), BTreeSet::new());
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            if self.of_field(program, value).is_some() {
                demanded.insert(value);
                stack.extend(beneath(program, value));
            } else {
                stack.extend(program.node(value).op.operands());
            }
        }
        demanded
    }
}

/// Whether one node reads a tuple's fields, and no output is one of them.
fn is_read_once(program: &Program, tuple: Value) -> bool {
    let is_field = |v: &Value| matches!(program.node(*v).op, Op::Field(own, _) if own == tuple);
    let readers = program.nodes.iter().flat_map(|node| node.op.operands()).filter(is_field).count();
    readers == 1 && !program.outputs.iter().any(|o| is_field(&o.value))
}

/// The operands of the tuple that a value is a field of.
fn beneath(program: &Program, field: Value) -> Vec<Value> {
    program.node(field).op.operands().into_iter().flat_map(|tuple| program.node(tuple).op.operands()).collect()
}

/// Whether a value is a point value if its operands are.
fn is_point(op: &Op) -> bool {
    op.is_map() || matches!(op, Op::Param(_) | Op::Const(_) | Op::Index(_) | Op::Size(_))
}

/// The pair sum that a tuple is.
fn pair_sum(program: &Program, stored: &BTreeSet<Value>, tuple: Value) -> Option<PairSum> {
    let Reduction { axis: column, operator, elements } = Reduction::of(program, tuple)?;
    if !is_sum(operator) && operator.gauge.is_none() {
        return None;
    }
    let (mut pair, mut rows, mut needs) = (AxisSet::EMPTY, AxisSet::EMPTY, BTreeSet::new());
    let (mut stack, mut seen) = (elements.to_vec(), BTreeSet::new());
    while let Some(value) = stack.pop() {
        let op = &program.node(value).op;
        if !seen.insert(value) {
            continue;
        }
        let contracted = match op {
            Op::Field(own, _) => row_of(program, stored, *own, column).map(|row| (*own, row)),
            _ => None,
        };
        match (contracted, op) {
            _ if stored.contains(&value) => _ = needs.insert(value),
            (Some((own, row)), _) => {
                pair = pair.union(program.node(own).axes);
                rows = rows.union(program.node(row).axes);
                stack.extend(program.node(own).op.operands());
            }
            (None, op) if is_point(op) => stack.extend(op.operands()),
            _ => _ = needs.insert(value),
        }
    }
    (!pair.is_empty()).then_some(PairSum { column, pair, rows, needs, level: 0, own: 0, over: None, group: None })
}

/// The row of a tuple that is the sum of products of a row and a column, both parameters or stored, with the axis that is summed.
fn row_of(program: &Program, stored: &BTreeSet<Value>, tuple: Value, column: Axis) -> Option<Value> {
    let Reduction { axis, operator, elements } = Reduction::of(program, tuple)?;
    if axis == column || !is_sum(operator) {
        return None;
    }
    let factors = factors(program, elements[0], stored);
    let along = |v: &&Value| program.node(**v).axes.contains(axis);
    let is_param = |v: &Value| stored.contains(v) || matches!(program.node(*v).op, Op::Param(_));
    let leaves: Vec<&Value> = factors.iter().filter(along).collect();
    let in_column = |v: &Value| program.node(*v).axes.contains(column);
    let [one, other] = leaves[..] else { return None };
    let row = if in_column(one) { other } else { one };
    (is_param(one) && is_param(other) && in_column(one) != in_column(other)).then_some(*row)
}

/// The factors of a product; a selection with 0 otherwise has those of the value selected. A value in `whole` is not divided.
pub(super) fn factors(program: &Program, value: Value, whole: &BTreeSet<Value>) -> Vec<Value> {
    let (mut found, mut open) = (vec![], vec![value]);
    // A value that is multiplied with itself again and again has more factors than matter.
    while let Some(value) = open.pop().filter(|_| found.len() <= program.nodes.len()) {
        match program.node(value).op {
            _ if whole.contains(&value) => found.push(value),
            Op::Binary(Binary::Mul, l, r) => open.extend([r, l]),
            Op::Select(_, x, zero) if is_zero(program, zero) => open.push(x),
            Op::Broadcast(x) | Op::Unary(Unary::Neg, x) => open.push(x),
            _ => found.push(value),
        }
    }
    found
}

/// Whether a value is the constant 0.
pub(super) fn is_zero(program: &Program, value: Value) -> bool {
    matches!(program.node(value).op, Op::Const(literal) if literal.as_f64() == 0.0)
}
