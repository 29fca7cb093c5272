//! Forward mode: the program of all tangents of a program.
//!
//! Every value y of the program gets a tangent ẏ, the derivative of y along a direction given by the tangents of the
//! parameters. Maps follow the table of derivatives; everything along an axis is linear. A scan or a reduction runs on
//! dual elements: the operator on (fields, tangents) is associative because the original is, and its identity is
//! (identity, 0). Nothing is known here of λ, gauges or telescoping weights, which makes forward mode the check of
//! reverse mode.

use std::collections::HashMap;

use thiserror::Error;

use crate::adjoint::{MAX_FIELDS, marked, rules};
use crate::build::{Builder, Direction};
use crate::ir::{AxisSet, Binary, Field, Literal, MatrixScan, Node, Op, Operator, Output, Program, Term, Value};
use crate::simplify::simplify;
use crate::typing::TypeError;
use crate::verify::{VerifyError, verify};

/// Why a program has no tangent program.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TangentError {
    /// The program is not valid.
    #[error("the program is not valid: {}", .0.iter().map(VerifyError::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<VerifyError>),
    /// The fields of an operator and their tangents are too many for one operator.
    #[error("operator `{operator}` and its tangents have {fields} fields, more than the {MAX_FIELDS} of an operator")]
    TooManyFields {
        /// The operator.
        operator: String,
        /// How many fields there would be.
        fields: usize,
    },
    /// An operation on tangents cannot be typed.
    #[error(transparent)]
    Type(#[from] TypeError),
}

/// The program that computes outputs and their tangents, ẏ = Σ (∂y/∂p)·ṗ.
///
/// It is called `<name>.dot`. Its parameters are those of the program and then, for every floating-point parameter p,
/// its tangent `p.dot`, 0 by default, which stores what p stores; its outputs are those of the program and then, for every
/// floating-point output y, `y.dot`. Where such a name is taken, `.dot` is repeated.
pub fn tangent(program: &Program) -> Result<Program, TangentError> {
    verify(program).map_err(TangentError::Invalid)?;
    let forward = simplify(program);
    let start = Program { name: format!("{}.dot", program.name), ..forward.clone() };
    let mut sweep = Forward { b: Builder::from_program(start), tangents: HashMap::new() };
    sweep.add_params(&forward)?;
    (0..forward.nodes.len() as u32).try_for_each(|i| sweep.visit(Value(i)))?;
    sweep.add_outputs(&forward)?;
    Ok(simplify(&sweep.b.finish()))
}

/// The forward sweep in progress.
struct Forward {
    b: Builder,
    /// The tangents that are not zero.
    tangents: HashMap<Value, Value>,
}

impl Forward {
    fn add_params(&mut self, program: &Program) -> Result<(), TypeError> {
        for (k, param) in program.params.iter().enumerate().filter(|(_, p)| p.elem.is_float()) {
            let value = self.b.append(Op::Param(k as u32), param.elem.value(), AxisSet::EMPTY)?;
            let zero = Some(Literal::Float(0.0));
            let name = marked(&param.name, ".dot", |name| self.b.program().param(name).is_some());
            let dot = self.b.param(&name, &param.axes, param.elem, zero)?;
            if let Some(other) = param.or {
                self.b.or(other);
            }
            self.tangents.insert(value, dot);
        }
        Ok(())
    }

    fn add_outputs(&mut self, program: &Program) -> Result<(), TypeError> {
        for Output { name, axes, elem, value } in program.outputs.iter().filter(|o| o.elem.is_float()) {
            let dot = self.tangent_or_zero(*value)?;
            let name = marked(name, ".dot", |name| self.b.program().outputs.iter().any(|o| o.name == name));
            self.b.output(&name, axes, *elem, dot)?;
        }
        Ok(())
    }

    fn tangent_or_zero(&mut self, value: Value) -> Result<Value, TypeError> {
        match self.tangents.get(&value) {
            Some(dot) => Ok(*dot),
            None => rules::zero_of(&mut self.b, value),
        }
    }

    fn visit(&mut self, y: Value) -> Result<(), TangentError> {
        let Node { op, .. } = self.b.program().node(y).clone();
        if !op.operands().iter().any(|v| self.tangents.contains_key(v)) {
            return Ok(());
        }
        match op {
            Op::Reduce { .. } | Op::Scan { .. } => return self.combination(y, &op),
            Op::MatrixScan(scan) => self.matrix_scan(y, &scan)?,
            Op::Last { axis, value, empty } => self.linear(y, value, empty, |b, v, e| b.last(axis, v, e))?,
            Op::First { axis, value, empty } => self.linear(y, value, empty, |b, v, e| b.first(axis, v, e))?,
            Op::Shift { axis, by, value, fill } => self.linear(y, value, fill, |b, v, f| b.shift(axis, by, v, f))?,
            Op::Gather { axis, to, value, index, inverse } => {
                if let Some(dot) = self.tangents.get(&value).copied() {
                    let dot = self.b.gather((axis, to), dot, (index, inverse))?;
                    self.tangents.insert(y, dot);
                }
            }
            _ => {
                if let Some(dot) = rules::tangent(&mut self.b, y, &self.tangents)? {
                    self.tangents.insert(y, dot);
                }
            }
        }
        Ok(())
    }

    /// Applies a linear operation to the tangents of its two operands.
    fn linear(
        &mut self,
        y: Value,
        value: Value,
        other: Value,
        op: impl FnOnce(&mut Builder, Value, Value) -> Result<Value, TypeError>,
    ) -> Result<(), TypeError> {
        let (value, other) = (self.tangent_or_zero(value)?, self.tangent_or_zero(other)?);
        let dot = op(&mut self.b, value, other)?;
        self.tangents.insert(y, dot);
        Ok(())
    }

    /// Ṡ\[t\] = Ṡ\[t−1\]·M\[t\] + (S\[t−1\]·Ṁ\[t\] + Ẋ\[t\]): the same recurrence with another input.
    fn matrix_scan(&mut self, y: Value, scan: &MatrixScan) -> Result<(), TypeError> {
        let before = self.b.matrix_scan(MatrixScan { exclusive: true, ..scan.clone() })?;
        let before = self.b.matrix_before(scan, before)?;
        let mut input = self.tangent_or_zero(scan.input)?;
        let mut changes = MatrixScan { decay: self.tangent_or_zero(scan.decay)?, terms: vec![], ..scan.clone() };
        for term in &scan.terms {
            let dot = |value: Value| self.tangents.get(&value).copied();
            match *term {
                Term::Pair { column, row } => {
                    changes.terms.extend(dot(column).map(|column| Term::Pair { column, row }));
                    changes.terms.extend(dot(row).map(|row| Term::Pair { column, row }));
                }
                Term::Dense { matrix, other, transposed } => {
                    changes.terms.extend(dot(matrix).map(|matrix| Term::Dense { matrix, other, transposed }));
                }
            }
        }
        let change = self.b.matrix_step(&changes, before)?;
        input = self.b.binary(Binary::Add, change, input)?;
        let init = self.tangent_or_zero(scan.init)?;
        let dot = self.b.matrix_scan(MatrixScan { input, init, ..scan.clone() })?;
        self.tangents.insert(y, dot);
        Ok(())
    }

    /// The scan or reduction on dual elements, and the tangents of its fields.
    fn combination(&mut self, y: Value, op: &Op) -> Result<(), TangentError> {
        let (Op::Reduce { operator, .. } | Op::Scan { operator, .. }) = op else { return Ok(()) };
        let original = self.b.program().operator(*operator).clone();
        let dual = self.b.operator(dual(&original)?);
        let fields = match op {
            Op::Reduce { axis, elements, .. } => {
                let elements = self.duals(&original, elements)?;
                self.b.reduce(*axis, dual, &elements)?
            }
            Op::Scan { axis, elements, init, reverse, exclusive, .. } => {
                let direction = Direction { reverse: *reverse, exclusive: *exclusive };
                let elements = self.duals(&original, elements)?;
                let init = if init.is_empty() { vec![] } else { self.duals(&original, init)? };
                self.b.scan(*axis, dual, &elements, &init, direction)?
            }
            _ => return Ok(()),
        };
        let mut dots = fields.into_iter().skip(original.fields.len());
        for k in floats(&original) {
            let field = self.b.field(y, k as u32)?;
            dots.next().map(|dot| self.tangents.insert(field, dot));
        }
        Ok(())
    }

    /// Values field by field, then the tangents of those that are floats.
    fn duals(&mut self, operator: &Operator, values: &[Value]) -> Result<Vec<Value>, TypeError> {
        let dots = floats(operator).map(|k| self.tangent_or_zero(values[k])).collect::<Result<Vec<_>, _>>()?;
        Ok([values, &dots].concat())
    }
}

/// The fields that have a tangent.
fn floats(operator: &Operator) -> impl Iterator<Item = usize> + '_ {
    (0..operator.fields.len()).filter(|k| operator.fields[*k].ty.is_float())
}

/// The operator on fields and tangents.
fn dual(operator: &Operator) -> Result<Operator, TangentError> {
    let n = operator.fields.len();
    let mut fields = operator.fields.clone();
    for k in floats(operator) {
        let Field { name, ty } = &operator.fields[k];
        let name = marked(name, ".dot", |name| fields.iter().any(|f| f.name == name));
        fields.push(Field { name, ty: *ty });
    }
    if fields.len() > MAX_FIELDS {
        return Err(TangentError::TooManyFields { operator: operator.name.clone(), fields: fields.len() });
    }
    let mut body = Builder::body(fields);
    let (l, r) = body.inputs()?;
    let mut combine = body.inline(operator, &l[..n], &r[..n])?;
    let mut tangents = HashMap::new();
    for (place, k) in floats(operator).enumerate() {
        tangents.extend([(l[k], l[n + place]), (r[k], r[n + place])]);
    }
    for y in (0..body.program().nodes.len() as u32).map(Value) {
        if let Some(dot) = rules::tangent(&mut body, y, &tangents)? {
            tangents.insert(y, dot);
        }
    }
    for k in floats(operator) {
        combine.push(match tangents.get(&combine[k]) {
            Some(dot) => *dot,
            None => body.float(operator.fields[k].ty, 0.0)?,
        });
    }
    let zeros = floats(operator).map(|_| Literal::Float(0.0));
    let identity = operator.identity.iter().copied().chain(zeros).collect();
    Ok(body.finish_operator(&format!("{}.dot", operator.name), identity, &combine, None)?)
}
