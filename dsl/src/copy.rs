//! Copying values of one program into another, with all that they depend on.

use crate::build::{Builder, Built};
use crate::ir::{Op, Program, Value};
use crate::typing::TypeError;

/// A copy in progress: what the values of `from` are in the target.
///
/// Both programs must have the same axes. A value whose image was set beforehand is a leaf of the copy; this is how
/// parameters, inputs of an operator's body or any other values are replaced.
pub(crate) struct Copy<'a> {
    from: &'a Program,
    images: Vec<Option<Value>>,
}

impl<'a> Copy<'a> {
    /// Nothing copied yet.
    pub(crate) fn of(from: &'a Program) -> Copy<'a> {
        Copy { from, images: vec![None; from.nodes.len()] }
    }

    /// Sets what a value is in the target.
    pub(crate) fn set(&mut self, value: Value, image: Value) {
        self.images[value.0 as usize] = Some(image);
    }

    /// Sets what several values are in the target.
    pub(crate) fn set_all(&mut self, values: &[Value], images: &[Value]) {
        values.iter().zip(images).for_each(|(value, image)| self.set(*value, *image));
    }

    /// The images of the roots, after whatever they need was copied.
    pub(crate) fn run(&mut self, into: &mut Builder, roots: &[Value]) -> Result<Vec<Value>, TypeError> {
        let from = self.from;
        self.run_with(into, roots, |into, op, value| into.append(op, from.node(value).ty, from.node(value).axes))
    }

    /// [`Copy::run`] where `append` adds the operation of each value, its operands already those of the target.
    pub(crate) fn run_with(
        &mut self,
        into: &mut Builder,
        roots: &[Value],
        mut append: impl FnMut(&mut Builder, Op, Value) -> Built,
    ) -> Result<Vec<Value>, TypeError> {
        for value in self.missing(roots)? {
            let mut op = self.from.node(value).op.map_operands(|v| self.images[v.0 as usize].unwrap_or(v));
            if let Op::Reduce { operator, .. } | Op::Scan { operator, .. } = &mut op {
                let unknown = TypeError::Unknown { kind: "operator", index: operator.0 };
                let own = self.from.operators.get(operator.0 as usize).ok_or(unknown)?;
                *operator = into.operator(own.clone());
            }
            let image = append(into, op, value)?;
            self.set(value, image);
        }
        Ok(roots.iter().filter_map(|v| self.images[v.0 as usize]).collect())
    }

    /// The values that the roots need and that have no image yet, in order of evaluation.
    pub(crate) fn missing(&self, roots: &[Value]) -> Result<Vec<Value>, TypeError> {
        let mut needed = vec![false; self.from.nodes.len()];
        let need = |needed: &mut Vec<bool>, value: Value, before: usize| {
            let known = needed.get_mut(value.0 as usize).filter(|_| (value.0 as usize) < before);
            known.map(|flag| *flag = true).ok_or(TypeError::Unknown { kind: "value", index: value.0 })
        };
        roots.iter().try_for_each(|v| need(&mut needed, *v, usize::MAX))?;
        for i in (0..needed.len()).rev() {
            needed[i] = needed[i] && self.images[i].is_none();
            if needed[i] {
                self.from.nodes[i].op.operands().iter().try_for_each(|v| need(&mut needed, *v, i))?;
            }
        }
        Ok((0..needed.len()).filter(|i| needed[*i]).map(|i| Value(i as u32)).collect())
    }
}
