//! Contractions that are computed wherever they are needed.

use std::collections::{BTreeSet, HashMap};

use oplus_dsl::ir::{Axis, AxisSet, Op, Program, Value};

use super::Form;

/// The contractions that float, and those beneath every value.
#[derive(Clone, Debug, Default)]
pub(super) struct Floats {
    all: BTreeSet<Value>,
    /// The contractions that float beneath the operands of every node, with nothing but maps and others of them between.
    beneath: Vec<BTreeSet<Value>>,
}

impl Floats {
    /// Of all sums of products those that can float.
    pub(super) fn of(program: &Program, live: &[bool], forms: &mut HashMap<Value, Form>) -> Floats {
        let is_sum = |(_, form): &(&Value, &Form)| form.gauge.is_none();
        let all = forms.iter().filter(is_sum).map(|(value, _)| *value).collect();
        let mut floats = Floats { all, beneath: vec![] };
        loop {
            floats.find_beneath(program, live, forms);
            let fixed = floats.fixed(program, live, forms);
            if fixed.is_empty() {
                break;
            }
            floats.all.retain(|value| !fixed.contains(value));
        }
        for (value, form) in forms.iter_mut() {
            let is_right =
                |p: &super::form::Payload| p.right.iter().flat_map(|r| r.values()).any(|v| floats.has(program, v));
            if form.gauge.is_none() && form.payloads.iter().any(is_right) && !floats.is_one(*value) {
                form.turn();
            }
        }
        floats
    }

    pub(super) fn is_one(&self, tuple: Value) -> bool {
        self.all.contains(&tuple)
    }

    /// The contractions that float beneath a sum.
    pub(super) fn beneath(&self, tuple: Value) -> impl Iterator<Item = Value> {
        self.beneath.get(tuple.0 as usize).into_iter().flatten().copied()
    }

    /// Whether any contraction floats in a value.
    fn has(&self, program: &Program, value: Value) -> bool {
        !self.within(program, value).is_empty()
    }

    /// The contractions that float in a value.
    fn within(&self, program: &Program, value: Value) -> BTreeSet<Value> {
        match program.node(value).op {
            Op::Field(tuple, _) if self.all.contains(&tuple) => self.beneath(tuple).chain([tuple]).collect(),
            Op::Field(..) => BTreeSet::new(),
            _ if is_map(&program.node(value).op) => self.beneath(value).collect(),
            _ => BTreeSet::new(),
        }
    }

    fn find_beneath(&mut self, program: &Program, live: &[bool], forms: &HashMap<Value, Form>) {
        self.beneath = vec![BTreeSet::new(); program.nodes.len()];
        for at in (0..program.nodes.len()).filter(|at| live[*at]) {
            let operands =
                forms.get(&Value(at as u32)).map_or_else(|| program.nodes[at].op.operands().to_vec(), Form::values);
            self.beneath[at] = operands.into_iter().flat_map(|v| self.within(program, v)).collect();
        }
    }

    /// Contractions that cannot float: first those with others in their matrices, which float there instead, then those that something
    /// reads that does not go through tiles of rows and columns.
    fn fixed(&self, program: &Program, live: &[bool], forms: &HashMap<Value, Form>) -> BTreeSet<Value> {
        let has_others = |value: &&Value| {
            let mut sides = forms[value].sides();
            sides.any(|side| side.values().any(|v| self.has(program, v)))
        };
        let fixed: BTreeSet<Value> = self.all.iter().filter(has_others).copied().collect();
        if !fixed.is_empty() {
            return fixed;
        }
        let mut fixed: BTreeSet<Value> =
            program.outputs.iter().flat_map(|output| self.within(program, output.value)).collect();
        for at in (0..program.nodes.len()).filter(|at| live[*at]) {
            let (value, beneath) = (Value(at as u32), &self.beneath[at]);
            let is_fine = match &program.nodes[at].op {
                Op::Reduce { .. } if self.is_one(value) => true,
                Op::Reduce { axis, .. } => self.suits(program, value, *axis, forms),
                op => is_map(op) || matches!(op, Op::Field(..)),
            };
            if !is_fine {
                fixed.extend(beneath);
            }
        }
        fixed
    }

    /// Whether a sum over an axis can compute what floats beneath it, tile by tile: the axis is one of rows or columns.
    fn suits(&self, program: &Program, tuple: Value, axis: Axis, forms: &HashMap<Value, Form>) -> bool {
        let form = forms.get(&tuple);
        let axes = |values: &[Value]| values.iter().map(|v| program.node(*v).axes).fold(AxisSet::EMPTY, AxisSet::union);
        let rows = match form {
            None => {
                let all = axes(&program.node(tuple).op.operands());
                // Each float would be computed again for every index of another axis.
                if !self.beneath(tuple).all(|float| program.node(float).axes.contains_all(all)) {
                    return false;
                }
                all
            }
            Some(form) => {
                let [left, right] = [true, false].map(|is_left| {
                    let sides =
                        form.payloads.iter().filter_map(|p| if is_left { Some(&p.left) } else { p.right.as_ref() });
                    sides.flat_map(|side| side.values()).collect::<Vec<Value>>()
                });
                let has = |values: &[Value]| values.iter().any(|v| self.has(program, *v));
                match (form.gauge, has(&left), has(&right)) {
                    _ if form.has_outside() => return false,
                    (Some(_), _, true) | (None, true, true) => return false,
                    (Some(gauge), ..) => axes(&left).union(program.node(gauge.score).axes),
                    (None, false, true) => axes(&right),
                    (None, ..) => axes(&left),
                }
            }
        };
        let contracted =
            |float: &Value| matches!(program.node(*float).op, Op::Reduce { axis, .. } if rows.contains(axis));
        let suits = |float: Value| forms[&float].has_row_or_column(program, axis) && !contracted(&float);
        rows.contains(axis) && self.beneath(tuple).all(suits)
    }
}

/// Whether a node is computed index by index.
fn is_map(op: &Op) -> bool {
    matches!(op, Op::Unary(..) | Op::Binary(..) | Op::Select(..) | Op::Convert(..) | Op::Broadcast(..))
}
