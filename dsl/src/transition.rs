//! The matrix of one step of a state, found in the formula of the step.
//!
//! A user writes what the next state is, with products, sums over an axis of the state and terms without it.
//! [`transition`] finds w, the pairs and the matrices of a [`MatrixScan`] in such a formula, and what is added. That the formula is
//! of this form proves that it is affine in the state, so that steps combine in any grouping: the composition of affine maps is
//! associative and their identity is the identity.
//!
//! The parts of each value that depends on the state are followed from the state to the result:
//!
//! | operation | what it does to w·S + Σ (Σ S·z)·b + Σ S·D + x |
//! |---|---|
//! | `+`, `−`, negation | part by part |
//! | a product with, a division by, a choice by a value without the state | w, b, D and x alone |
//! | a sum over the axis K of the state | w becomes a pair (w, 1); each b and x is summed |
//! | another name J of K | S over J times a matrix, which a sum over J makes a whole matrix |

use std::collections::HashMap;

use thiserror::Error;

use crate::adjoint::rules;
use crate::build::{Builder, Built};
use crate::copy::Copy;
use crate::ir::{Axis, AxisSet, Binary, Literal, MatrixScan, Op, Operator, Program, Term, Unary, Value};
use crate::typing::TypeError;

/// Why a formula is not a matrix product and a sum.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TransitionError {
    /// A function of the state that is not linear.
    #[error("`{op}` is not linear in the state")]
    NotLinear {
        /// The operation.
        op: &'static str,
    },
    /// Sums over different axes of the state.
    #[error("it sums the state over {first} and over {second}, but one axis of a state is summed over")]
    SeveralAxes {
        /// An axis.
        first: String,
        /// Another axis.
        second: String,
    },
    /// A sum over an axis that the vectors of a pair have too, or of the state beside the one that is summed over.
    #[error("the sum over {axis} of a sum over {along} of the state is not a product of the state with vectors")]
    SumOfSum {
        /// The axis of the outer sum.
        axis: String,
        /// The axis of the inner sum.
        along: String,
    },
    /// A state under another name that is not summed over.
    #[error("the state over {other} in the place of {along} must be summed over {other}")]
    Unsummed {
        /// The new name.
        other: String,
        /// The axis of the state.
        along: String,
    },
    /// A formula without the state.
    #[error("it does not depend on the state")]
    NoState,
    /// An operation cannot be typed.
    #[error(transparent)]
    Type(#[from] TypeError),
}

/// One step: the matrix that multiplies the state, and the input that is added to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// The axis that it sums over; `None` if it only has a diagonal.
    pub along: Option<Axis>,
    /// The diagonal.
    pub decay: Value,
    /// The other terms.
    pub terms: Vec<Term>,
    /// The input, which is added.
    pub input: Value,
}

impl Transition {
    /// All states from given ones on, along `axis`.
    pub fn scan(&self, axis: Axis, along: Axis, init: Value) -> MatrixScan {
        let Transition { decay, terms, input, .. } = self.clone();
        MatrixScan { axis, along, decay, terms, input, init, reset: None, reverse: false, exclusive: false }
    }

    /// The values it is made of: the diagonal, those of the terms, the input.
    pub fn values(&self) -> Vec<Value> {
        let terms = self.terms.iter().flat_map(Term::values);
        std::iter::once(self.decay).chain(terms).chain([self.input]).collect()
    }

    /// This transition with its values replaced, in the order of [`Transition::values`].
    #[must_use]
    pub fn with_values(&self, values: &[Value]) -> Transition {
        let mut values = values.iter().copied();
        let mut next = |old: Value| values.next().unwrap_or(old);
        let decay = next(self.decay);
        let mut terms = self.terms.clone();
        for term in &mut terms {
            match term {
                Term::Pair { column, row } => (*column, *row) = (next(*column), next(*row)),
                Term::Dense { matrix, .. } => *matrix = next(*matrix),
            }
        }
        Transition { decay, terms, input: next(self.input), along: self.along }
    }
}

/// The parts of a formula for the next state, and a program that has their values beside those of the given one.
///
/// `state` is the value that stands for the state before the step, over all axes that the state has.
///
/// # Errors
/// [`TransitionError`] where the formula is not a matrix product and a sum.
pub fn transition(program: &Program, state: Value, next: Value) -> Result<(Program, Transition), TransitionError> {
    let axes = program.node(state).axes;
    let builder = Builder::from_program(Program { outputs: vec![], ..program.clone() });
    let mut finder = Finder { b: builder, state, axes, along: None, forms: HashMap::new() };
    for at in 0..program.nodes.len() as u32 {
        finder.visit(Value(at))?;
    }
    let form = finder.forms.remove(&next).ok_or(TransitionError::NoState)?;
    finder.finish(form)
}

/// w·S + Σ (Σ S·z)·b + Σ S\[J\]·M + Σ S·D + x; parts that are `None` or missing are 0.
#[derive(Clone, Debug, Default)]
struct Form {
    diagonal: Option<Value>,
    pairs: Vec<(Value, Value)>,
    /// S over another name of its axis, times a value.
    renamed: Vec<(Axis, Value)>,
    dense: Vec<(Axis, Value)>,
    rest: Option<Value>,
}

impl Form {
    /// The parts that a product with another value changes.
    fn factors(&mut self) -> impl Iterator<Item = &mut Value> {
        let renamed = self.renamed.iter_mut().chain(&mut self.dense).map(|(_, value)| value);
        self.diagonal.iter_mut().chain(self.pairs.iter_mut().map(|(_, row)| row)).chain(renamed).chain(&mut self.rest)
    }

    fn map(mut self, mut f: impl FnMut(Value) -> Built) -> Result<Form, TypeError> {
        for value in self.factors() {
            *value = f(*value)?;
        }
        Ok(self)
    }
}

struct Finder {
    b: Builder,
    state: Value,
    /// The axes of the state.
    axes: AxisSet,
    /// The axis that is summed over.
    along: Option<Axis>,
    forms: HashMap<Value, Form>,
}

impl Finder {
    fn visit(&mut self, value: Value) -> Result<(), TransitionError> {
        let op = self.b.program().node(value).op.clone();
        let form = if value == self.state {
            let one = self.b.float(self.b.ty(value)?, 1.0)?;
            Some(Form { diagonal: Some(one), ..Form::default() })
        } else if op.operands().iter().any(|v| self.forms.contains_key(v)) {
            Some(self.form(&op)?)
        } else {
            None
        };
        self.forms.extend(form.map(|form| (value, form)));
        Ok(())
    }

    /// The form of an operation on values of which some have one; that of a sum's only field, for the sum.
    fn form(&mut self, op: &Op) -> Result<Form, TransitionError> {
        let known = |v: &Value| self.forms.get(v).cloned();
        let not_linear = || TransitionError::NotLinear { op: op.name() };
        let form = match op {
            Op::Unary(Unary::Neg, a) => known(a).ok_or_else(not_linear)?.map(|v| self.b.unary(Unary::Neg, v))?,
            Op::Binary(Binary::Add, l, r) => self.sum(*l, *r, false)?,
            Op::Binary(Binary::Sub, l, r) => self.sum(*l, *r, true)?,
            Op::Binary(op @ (Binary::Mul | Binary::Div), l, r) => match (known(l), known(r), op) {
                (Some(form), None, _) => form.map(|v| self.b.binary(*op, v, *r))?,
                (None, Some(form), Binary::Mul) => form.map(|v| self.b.binary(*op, *l, v))?,
                _ => return Err(not_linear()),
            },
            Op::Select(c, x, y) if known(c).is_none() => self.choice(*c, *x, *y)?,
            Op::Broadcast(a) => known(a).ok_or_else(not_linear)?,
            Op::Reduce { axis, operator, elements } if is_sum(self.b.program().operator(*operator)) => {
                self.summed(*axis, known(&elements[0]).ok_or_else(not_linear)?)?
            }
            Op::Field(tuple, _) => known(tuple).ok_or_else(not_linear)?,
            Op::Gather { value: of, .. } if self.b.program().renaming(op).is_some() => {
                let Some([axis, to]) = self.b.program().renaming(op) else { return Err(not_linear()) };
                self.renamed(axis, to, known(of).ok_or_else(not_linear)?)?
            }
            _ => return Err(not_linear()),
        };
        Ok(form)
    }

    /// l + r, or l − r.
    fn sum(&mut self, l: Value, r: Value, minus: bool) -> Result<Form, TransitionError> {
        let part = |v: &Value| self.forms.get(v).cloned().unwrap_or(Form { rest: Some(*v), ..Form::default() });
        let (left, mut right) = (part(&l), part(&r));
        if minus {
            right = right.map(|v| self.b.unary(Unary::Neg, v))?;
        }
        self.together(left, right)
    }

    fn together(&mut self, mut left: Form, right: Form) -> Result<Form, TransitionError> {
        left.diagonal = self.added(left.diagonal, right.diagonal)?;
        left.rest = self.added(left.rest, right.rest)?;
        for (column, row) in right.pairs {
            match left.pairs.iter().position(|(known, _)| *known == column) {
                Some(at) => left.pairs[at].1 = self.b.binary(Binary::Add, left.pairs[at].1, row)?,
                None => left.pairs.push((column, row)),
            }
        }
        left.renamed.extend(right.renamed);
        left.dense.extend(right.dense);
        Ok(left)
    }

    fn added(&mut self, l: Option<Value>, r: Option<Value>) -> Result<Option<Value>, TypeError> {
        match (l, r) {
            (Some(l), Some(r)) => rules::add(&mut self.b, Some(l), r).map(Some),
            (l, r) => Ok(l.or(r)),
        }
    }

    /// `if condition { x } else { y }`, part by part with 0 in the place of those that the other branch has.
    fn choice(&mut self, condition: Value, x: Value, y: Value) -> Result<Form, TransitionError> {
        let zero = self.b.float(self.b.ty(x)?, 0.0)?;
        let part = |v: &Value| self.forms.get(v).cloned().unwrap_or(Form { rest: Some(*v), ..Form::default() });
        let (then, otherwise) = (part(&x), part(&y));
        let then = then.map(|v| self.b.select(condition, v, zero))?;
        let otherwise = otherwise.map(|v| self.b.select(condition, zero, v))?;
        self.together(then, otherwise)
    }

    /// The sum over an axis.
    fn summed(&mut self, axis: Axis, form: Form) -> Result<Form, TransitionError> {
        let mut total = Form { rest: form.rest.map(|x| self.b.sum(axis, x)).transpose()?, ..Form::default() };
        if let Some(w) = form.diagonal {
            if self.axes.contains(axis) {
                self.sum_over(axis)?;
                total.pairs.push((w, self.b.float(self.b.ty(w)?, 1.0)?));
            } else {
                total.diagonal = Some(self.b.sum(axis, w)?);
            }
        }
        for (column, row) in form.pairs {
            let of_sum = self.axes.contains(axis) && self.along != Some(axis);
            if of_sum || self.along != Some(axis) && self.b.axes_of(column)?.contains(axis) {
                return Err(self.sum_of_sum(axis));
            }
            total.pairs.push((column, self.b.sum(axis, row)?));
        }
        for (other, factor) in form.renamed {
            if axis == other {
                total.dense.push((other, factor));
            } else if self.axes.contains(axis) && self.along != Some(axis) {
                return Err(self.sum_of_sum(axis));
            } else {
                total.renamed.push((other, self.b.sum(axis, factor)?));
            }
        }
        for (other, matrix) in form.dense {
            if self.axes.contains(axis) || axis == other {
                return Err(self.sum_of_sum(axis));
            }
            total.dense.push((other, self.b.sum(axis, matrix)?));
        }
        Ok(total)
    }

    /// The value with another name for an axis.
    fn renamed(&mut self, axis: Axis, to: Axis, form: Form) -> Result<Form, TransitionError> {
        let mut renamed = Form::default();
        for (column, row) in form.pairs {
            renamed.pairs.push((column, self.b.renamed(axis, to, row)?));
        }
        renamed.rest = form.rest.map(|x| self.b.renamed(axis, to, x)).transpose()?;
        if let Some(w) = form.diagonal {
            self.sum_over(axis)?;
            renamed.renamed.push((to, self.b.renamed(axis, to, w)?));
        }
        match form.renamed.is_empty() && form.dense.is_empty() {
            true => Ok(renamed),
            false => Err(TransitionError::NotLinear { op: "rename" }),
        }
    }

    /// Notes that the state is summed over an axis.
    fn sum_over(&mut self, axis: Axis) -> Result<(), TransitionError> {
        match self.along.replace(axis) {
            Some(first) if first != axis => {
                let [first, second] = [first, axis].map(|axis| self.b.program().axis_name(axis).to_owned());
                Err(TransitionError::SeveralAxes { first, second })
            }
            _ => Ok(()),
        }
    }

    fn sum_of_sum(&self, axis: Axis) -> TransitionError {
        let name = |axis: Axis| self.b.program().axis_name(axis).to_owned();
        TransitionError::SumOfSum { axis: name(axis), along: self.along.map(name).unwrap_or_default() }
    }

    fn finish(mut self, form: Form) -> Result<(Program, Transition), TransitionError> {
        if let (Some((other, _)), Some(along)) = (form.renamed.first(), self.along) {
            let [other, along] = [*other, along].map(|axis| self.b.program().axis_name(axis).to_owned());
            return Err(TransitionError::Unsummed { other, along });
        }
        let zero = self.b.float(self.b.ty(self.state)?, 0.0)?;
        let pairs = form.pairs.into_iter().map(|(column, row)| Term::Pair { column, row });
        let dense = form.dense.into_iter().map(|(other, matrix)| Term::Dense { matrix, other, transposed: false });
        let transition = Transition {
            along: self.along,
            decay: form.diagonal.unwrap_or(zero),
            terms: pairs.chain(dense).collect(),
            input: form.rest.unwrap_or(zero),
        };
        Ok((self.b.finish(), transition))
    }
}

/// Values of a program in another one with the same axes; `leaves` says what some of its values are there.
///
/// # Errors
/// [`TypeError`] for values that the program does not have.
pub fn placed(
    from: &Program,
    into: &mut Builder,
    leaves: &[(Value, Value)],
    values: &[Value],
) -> Result<Vec<Value>, TypeError> {
    let mut copy = Copy::of(from);
    leaves.iter().for_each(|(value, image)| copy.set(*value, *image));
    copy.run(into, values)
}

/// Whether an operator adds its one field.
pub fn is_sum(operator: &Operator) -> bool {
    let [combine] = operator.combine[..] else { return false };
    let Op::Binary(Binary::Add, l, r) = operator.body[combine.0 as usize].op else { return false };
    let inputs = [l, r].map(|v| operator.body[v.0 as usize].op.clone());
    let sums = inputs == [Op::Input(0), Op::Input(1)] || inputs == [Op::Input(1), Op::Input(0)];
    sums && operator.identity == [Literal::Float(0.0)]
}
