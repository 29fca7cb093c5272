//! `combine` of one scan or reduction as a program of its own, to be differentiated.
//!
//! Its parameters stand for the fields of the left operand l = s[t−1], of the right operand r = e[t], of the
//! combination c = l ⊕ r = s[t], and for the cotangents λ[t] of c; its nodes are the body of the operator.
//!
//! A [gauge](super::gauge) is a constant here: that of the combination is not computed but read from c, so its gradient
//! is stopped.

use std::collections::HashMap;

use crate::build::{Builder, Built};
use crate::copy::Copy;
use crate::elem::{Elem, Ty};
use crate::ir::{AxisSet, Node, Op, Operator, Program, Value};
use crate::typing::TypeError;

use super::sweep::Sweep;
use super::{AdjointError, gauge, rules};

/// The axes of everything that meets in a combination, field by field.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    /// The axes of s[t−1].
    pub(crate) left: Vec<AxisSet>,
    /// The axes of e[t].
    pub(crate) right: Vec<AxisSet>,
    /// The axes of the combination as it is available.
    pub(crate) after: Vec<AxisSet>,
    /// The axes of the combination at every t: what the cotangents are summed over.
    pub(crate) full: Vec<AxisSet>,
}

impl Axes {
    /// Scalars in all n fields.
    pub(crate) fn none(n: usize) -> Axes {
        let none = vec![AxisSet::EMPTY; n];
        Axes { left: none.clone(), right: none.clone(), after: none.clone(), full: none }
    }
}

/// One combination l ⊕ r under differentiation.
#[derive(Clone, Debug)]
pub(crate) struct Combination {
    builder: Builder,
    operator: Operator,
    axes: Axes,
    /// 1; what comes back to it comes back to the gauge of e[t].
    unit: Option<Value>,
    /// s[t−1], field by field.
    pub(crate) left: Vec<Value>,
    /// e[t].
    pub(crate) right: Vec<Value>,
    /// s[t], read rather than computed.
    pub(crate) after: Vec<Value>,
    /// λ[t].
    pub(crate) lambda: Vec<Value>,
    /// s[t], computed from l and r, the gauge read.
    combine: Vec<Value>,
}

/// ∂cⱼ/∂xᵢ at row j and column i, values of the combination's program; `None` for structural zeros.
pub(crate) type Jacobian = Vec<Vec<Option<Value>>>;

impl Combination {
    /// The combination of an operator in a program with these axes.
    pub(crate) fn new(names: &[String], operator: &Operator, axes: &Axes) -> Result<Combination, TypeError> {
        let program = Program {
            name: operator.name.clone(),
            axes: names.to_vec(),
            params: vec![],
            operators: vec![],
            nodes: vec![],
            outputs: vec![],
        };
        let mut b = Builder::from_program(program);
        let left = tuple(&mut b, "l", operator, &axes.left)?;
        let right = tuple(&mut b, "r", operator, &axes.right)?;
        let after = tuple(&mut b, "c", operator, &axes.after)?;
        let lambda = tuple(&mut b, "lambda", operator, &axes.after)?;
        let combine = combine(&mut b, operator, &left, &right, &after)?;
        let (operator, axes) = (operator.clone(), axes.clone());
        Ok(Combination { builder: b, operator, axes, unit: None, left, right, after, lambda, combine })
    }

    /// The program that its values belong to.
    pub(crate) fn program(&self) -> &Program {
        self.builder.program()
    }

    /// A copy of its program's values in which operands are these values of the target program.
    pub(crate) fn at(
        &self,
        b: &mut Builder,
        left: &[Value],
        right: &[Value],
        after: &[Value],
    ) -> Result<Copy<'_>, TypeError> {
        let mut copy = Copy::of(self.program());
        copy.set_all(&self.left, left);
        copy.set_all(&self.right, right);
        copy.set_all(&self.after, after);
        if let Some(unit) = self.unit {
            copy.set(unit, b.float(self.builder.ty(unit)?, 1.0)?);
        }
        Ok(copy)
    }

    /// J_L = ∂c/∂l, the gauge a constant.
    pub(crate) fn left_jacobian(&mut self) -> Result<Jacobian, TypeError> {
        self.jacobian(&self.left.clone())
    }

    /// J_R = ∂c/∂r, the gauge a constant.
    pub(crate) fn right_jacobian(&mut self) -> Result<Jacobian, TypeError> {
        self.jacobian(&self.right.clone())
    }

    fn jacobian(&mut self, inputs: &[Value]) -> Result<Jacobian, TypeError> {
        let mut rows: Jacobian = vec![vec![]; inputs.len()];
        for (i, input) in inputs.iter().enumerate() {
            let column = if self.operator.gauge == Some(i as u32) { HashMap::new() } else { self.column(*input)? };
            rows.iter_mut().zip(&self.combine).for_each(|(row, c)| row.push(column.get(c).copied()));
        }
        Ok(rows)
    }

    /// The derivatives of all nodes with respect to one input.
    fn column(&mut self, input: Value) -> Result<HashMap<Value, Value>, TypeError> {
        let b = &mut self.builder;
        let ty = b.ty(input)?;
        if !ty.is_float() {
            return Ok(HashMap::new());
        }
        let mut derivatives = HashMap::from([(input, b.float(ty, 1.0)?)]);
        let last = self.combine.iter().map(|c| c.0 + 1).max().unwrap_or(0);
        for y in (0..last).map(Value) {
            if let Some(derivative) = rules::tangent(b, y, &derivatives)? {
                derivatives.insert(y, derivative);
            }
        }
        Ok(derivatives)
    }

    /// ē = J_R ᵀ·λ, λ taken of the fields given: values of the combination's program, summed to the elements' axes.
    pub(crate) fn element_cotangents(&mut self, fields: &[usize]) -> Result<Vec<Option<Value>>, AdjointError> {
        let combine = self.gauged_combine()?;
        let mut sweep = Sweep::of(self.builder.clone());
        for &j in fields {
            sweep.cotangents.add(&sweep.b, combine[j], self.lambda[j], self.axes.full[j])?;
        }
        sweep.run()?;
        let mut sources = self.right.clone();
        if let (Some(unit), Some(m)) = (self.unit, self.operator.gauge) {
            sources[m as usize] = unit;
        }
        let found = sources.into_iter().map(|source| sweep.cotangents.take(&mut sweep.b, source));
        let found = found.collect::<Result<_, _>>()?;
        self.builder = sweep.b;
        Ok(found)
    }

    /// The combination with the fields of r scaled by the unit that stands for the gauge's action.
    fn gauged_combine(&mut self) -> Result<Vec<Value>, TypeError> {
        let Some(m) = self.operator.gauge.map(|m| m as usize) else { return Ok(self.combine.clone()) };
        let b = &mut self.builder;
        let unit = param(b, "unit", self.operator.fields[m].ty, self.axes.right[m])?;
        self.unit = Some(unit);
        let scaled = gauge::scaled(b, &self.operator, &self.right, unit)?;
        combine(b, &self.operator, &self.left, &scaled, &self.after)
    }
}

/// Parameters for the fields of one operand.
fn tuple(b: &mut Builder, name: &str, operator: &Operator, axes: &[AxisSet]) -> Result<Vec<Value>, TypeError> {
    let fields = operator.fields.iter().zip(axes);
    fields.map(|(field, axes)| param(b, &format!("{name}.{}", field.name), field.ty, *axes)).collect()
}

fn param(b: &mut Builder, name: &str, ty: Ty, axes: AxisSet) -> Built {
    b.param(name, &axes.iter().collect::<Vec<_>>(), ty.elem().unwrap_or(Elem::Call), None)
}

/// The operator's body on (l, r), the gauge of the combination replaced by that of `after`.
fn combine(
    b: &mut Builder,
    operator: &Operator,
    l: &[Value],
    r: &[Value],
    after: &[Value],
) -> Result<Vec<Value>, TypeError> {
    let inputs: Vec<Value> = l.iter().chain(r).copied().collect();
    let gauge = operator.gauge.map(|m| (operator.combine[m as usize], after[m as usize]));
    let mut values: Vec<Value> = vec![];
    for (i, Node { op, ty, .. }) in operator.body.iter().enumerate() {
        let value = match (op, gauge) {
            (Op::Input(k), _) => inputs[*k as usize],
            (_, Some((combined, read))) if combined == Value(i as u32) => read,
            _ => b.append(op.map_operands(|v| values[v.0 as usize]), *ty, AxisSet::EMPTY)?,
        };
        values.push(value);
    }
    let combine: Vec<Value> = operator.combine.iter().map(|v| values[v.0 as usize]).collect();
    Ok(combine)
}
