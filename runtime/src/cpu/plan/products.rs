//! Which sums of a program are computed by products of matrices.
//!
//! A sum over an axis of left·right, where each factor has an axis that the other lacks, is a product of matrices: a
//! *contraction*. So are the payloads of a softmax merge that are values with axes of their own: its weights are the left matrix.
//!
//! A contraction whose result is read by nothing but maps beneath other sums is not stored. It *floats*: like a map it is computed
//! for a tile of rows and columns wherever the tile is needed. Attention is such a program: its scores float beneath the merge.

mod floats;
mod form;

use std::collections::HashMap;

use oplus_dsl::ir::{AxisSet, Op, Program, Value};

pub(super) use form::{Factor, Form, Payload, Refused};

use floats::Floats;

/// The sums of a program that are computed by products of matrices.
#[derive(Clone, Debug, Default)]
pub(super) struct Products {
    forms: HashMap<Value, Form>,
    floats: Floats,
    /// Why sums over products of tensors are computed element by element.
    pub(super) refused: Vec<(Value, Refused)>,
}

/// The axes of the tiles that a sum needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tiling {
    /// The axes of rows and columns, but for the one that is summed.
    pub(super) outer: AxisSet,
    /// The axes of which a tile has all indices: those within rows and columns.
    pub(super) inner: AxisSet,
}

impl Products {
    /// Finds them in a program whose axes have the given sizes.
    pub(super) fn of(program: &Program, live: &[bool], sizes: &[usize]) -> Products {
        let mut products = Products::default();
        for at in (0..program.nodes.len()).filter(|at| live[*at]) {
            let value = Value(at as u32);
            if !matches!(program.nodes[at].op, Op::Reduce { .. }) {
                continue;
            }
            match Form::of(program, value, sizes) {
                Ok(form) => drop(products.forms.insert(value, form)),
                Err(Refused::Other) => {}
                Err(refused) => products.refused.push((value, refused)),
            }
        }
        products.floats = Floats::of(program, live, &mut products.forms);
        let is_left_out = |value: &Value, form: &Form| form.has_outside() && !products.floats.is_one(*value);
        let left_out: Vec<Value> = products.forms.iter().filter(|(v, f)| is_left_out(v, f)).map(|(v, _)| *v).collect();
        for value in left_out {
            products.forms.remove(&value);
            products.refused.push((value, Refused::Outside));
        }
        products.refused.sort_by_key(|(value, _)| *value);
        products
    }

    /// Why sums of products are computed element by element, in words.
    pub(super) fn reasons(&self, program: &Program) -> Vec<String> {
        let reason = |(value, refused): &(Value, Refused)| {
            let axis = super::draft::axis_of(&program.node(*value).op)?;
            let axis = program.axis_name(axis);
            Some(format!("the products of a sum over {axis} are added up element by element, since {refused}"))
        };
        let mut reasons: Vec<String> = self.refused.iter().filter_map(reason).collect();
        reasons.dedup();
        reasons
    }

    /// The form of a sum.
    pub(super) fn form(&self, tuple: Value) -> Option<&Form> {
        self.forms.get(&tuple)
    }

    /// Whether a value is a contraction that is computed wherever it is needed.
    pub(super) fn floats(&self, tuple: Value) -> bool {
        self.floats.is_one(tuple)
    }

    /// The values that a node is computed from.
    pub(super) fn operands(&self, program: &Program, value: Value) -> Vec<Value> {
        self.form(value).map_or_else(|| program.node(value).op.operands().to_vec(), Form::values)
    }

    /// The tiles of a sum that has products in it or beneath it; `None` of any other.
    pub(super) fn tiling(&self, program: &Program, tuple: Value) -> Option<Tiling> {
        let Op::Reduce { axis, elements, .. } = &program.node(tuple).op else { return None };
        let form = self.form(tuple);
        let contracted = self.floats.beneath(tuple).filter_map(|float| match program.node(float).op {
            Op::Reduce { axis, .. } => Some(axis),
            _ => None,
        });
        let contracted: AxisSet = contracted.collect();
        let Some(form) = form else {
            let axes = elements.iter().map(|v| program.node(*v).axes).fold(AxisSet::EMPTY, AxisSet::union);
            return (!contracted.is_empty()).then(|| Tiling { outer: axes.without(*axis), inner: contracted });
        };
        let all = form.axes(program).union(program.node(tuple).axes);
        if form.gauge.is_none() && contracted.is_empty() {
            return Some(Tiling { outer: all.without(*axis), inner: AxisSet::EMPTY });
        }
        let weights = form.weight_axes(program).with(*axis);
        Some(Tiling { outer: weights.without(*axis), inner: all.minus(weights).union(contracted) })
    }
}
