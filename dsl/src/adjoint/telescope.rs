//! Recognising reductions whose adjoint needs no scan, from the Jacobian of `combine`.

use crate::build::Builder;
use crate::copy::Copy;
use crate::ir::{Literal, Op, Operator, Value};
use crate::rng::Rng;
use crate::typing::TypeError;

use super::MAX_FIELDS;
use super::combination::{Combination, Jacobian};
use super::evaluate::{POINTS, close, combined, point, values};

/// How the total of a field depends on the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// J_L(l, c) and J_R(r, c) are one function D(x, c) with D(x, c)·D(c, d) = D(x, d).
    Telescoping,
    /// J_L = exp(l − c) and J_R = exp(r − c) for the field itself.
    LogSumExp,
    /// The field is that of one operand.
    Choice(Choice),
    /// None of these.
    General,
}

/// Which operand's field a combination has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// A value of the combination's program.
    pub(crate) condition: Value,
    /// Whether it is the left operand's where the condition holds, or the right one's.
    pub(crate) left: bool,
}

/// The shape of every field of a combination.
pub(crate) fn classify(combination: &mut Combination, operator: &Operator) -> Result<Vec<Shape>, TypeError> {
    let jacobians = [combination.left_jacobian()?, combination.right_jacobian()?];
    let recogniser = Recogniser { combination, operator, jacobians };
    (0..operator.fields.len()).map(|j| recogniser.shape(j)).collect()
}

struct Recogniser<'a> {
    combination: &'a Combination,
    operator: &'a Operator,
    /// J_L and J_R.
    jacobians: [Jacobian; 2],
}

impl Recogniser<'_> {
    fn shape(&self, j: usize) -> Result<Shape, TypeError> {
        if !self.stands_alone(j) {
            return Ok(Shape::General);
        }
        Ok(match self.choice(j) {
            Some(choice) if self.operator.fields.len() < MAX_FIELDS => Shape::Choice(choice),
            Some(_) => Shape::General,
            None if self.telescopes(j)? => Shape::Telescoping,
            None if self.is_log_sum_exp(j) => Shape::LogSumExp,
            None => Shape::General,
        })
    }

    /// Whether field j of a combination is a function of field j of both operands and of the gauge only.
    fn stands_alone(&self, j: usize) -> bool {
        self.jacobians.iter().all(|jacobian| {
            let coupled = jacobian[j].iter().enumerate().any(|(i, entry)| i != j && entry.is_some());
            jacobian[j][j].is_some() && !coupled
        })
    }

    /// The choice between the operands that the field is, if it is one.
    fn choice(&self, j: usize) -> Option<Choice> {
        let program = self.combination.program();
        let bit = |v: Value| match program.node(v).op {
            Op::Const(Literal::Float(x)) if x == 1.0 || x == 0.0 => Some(x == 1.0),
            _ => None,
        };
        let selection = |entry: Option<Value>| match program.node(entry?).op {
            Op::Select(c, a, b) => Some((c, bit(a)?, bit(b)?)),
            _ => None,
        };
        let (condition, left, otherwise) = selection(self.jacobians[0][j][j])?;
        let opposite = left != otherwise && selection(self.jacobians[1][j][j])? == (condition, otherwise, left);
        let reads_operands = self.leaves(condition).iter().all(|leaf| !self.combination.after.contains(leaf));
        (opposite && reads_operands).then_some(Choice { condition, left })
    }

    /// The parameters that a value depends on.
    fn leaves(&self, value: Value) -> Vec<Value> {
        let nodes = &self.combination.program().nodes[..=value.0 as usize];
        let mut needed = vec![false; nodes.len()];
        needed[value.0 as usize] = true;
        for (i, node) in nodes.iter().enumerate().rev() {
            if needed[i] {
                node.op.operands().iter().for_each(|v| needed[v.0 as usize] = true);
            }
        }
        let is_leaf = |i: &usize| needed[*i] && matches!(nodes[*i].op, Op::Param(_));
        (0..nodes.len()).filter(is_leaf).map(|i| Value(i as u32)).collect()
    }

    /// Whether the entry of J is D(x, c) for both operands and D telescopes.
    fn telescopes(&self, j: usize) -> Result<bool, TypeError> {
        let [Some(left), Some(right)] = [self.jacobians[0][j][j], self.jacobians[1][j][j]] else { return Ok(false) };
        Ok(self.is_one_function(left, right)? && self.chain_holds(right))
    }

    /// Whether the entries are the same function of (l, c) and of (r, c).
    fn is_one_function(&self, left: Value, right: Value) -> Result<bool, TypeError> {
        let of = |v: Value, operand: &[Value]| {
            self.leaves(v).iter().all(|leaf| operand.contains(leaf) || self.combination.after.contains(leaf))
        };
        if !of(left, &self.combination.left) || !of(right, &self.combination.right) {
            return Ok(false);
        }
        let mut renamed = Builder::from_program(self.combination.program().clone());
        let mut copy = Copy::of(self.combination.program());
        copy.set_all(&self.combination.after, &self.combination.after);
        copy.set_all(&self.combination.left, &self.combination.right);
        Ok(copy.run(&mut renamed, &[left])?[0] == right)
    }

    /// D(x, c)·D(c, d) = D(x, d) at sample points, c = x ⊕ y and d = c ⊕ z. `weight` is D(r, c).
    fn chain_holds(&self, weight: Value) -> bool {
        let mut rng = Rng::new(0);
        (0..POINTS).all(|_| {
            let [x, y, z] = [(); 3].map(|()| point(&mut rng, self.operator));
            let c = combined(self.operator, &x, &y);
            let d = combined(self.operator, &c, &z);
            let [xc, cd, xd] = [(&x, &c), (&c, &d), (&x, &d)].map(|(x, c)| self.at(weight, x, x, c));
            close(xc * cd, xd)
        })
    }

    fn is_log_sum_exp(&self, j: usize) -> bool {
        let [Some(left), Some(right)] = [self.jacobians[0][j][j], self.jacobians[1][j][j]] else { return false };
        let mut rng = Rng::new(0);
        (0..POINTS).all(|_| {
            let [l, r] = [(); 2].map(|()| point(&mut rng, self.operator));
            let c = combined(self.operator, &l, &r);
            let weight = |x: &[Literal]| (x[j].as_f64() - c[j].as_f64()).exp();
            close(self.at(left, &l, &r, &c), weight(&l)) && close(self.at(right, &l, &r, &c), weight(&r))
        })
    }

    /// A value of the combination's program for these operands.
    fn at(&self, value: Value, l: &[Literal], r: &[Literal], c: &[Literal]) -> f64 {
        values(self.combination.program(), &[l, r, c].concat())[value.0 as usize].as_f64()
    }
}
