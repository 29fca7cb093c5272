//! Laws, counter-examples and conditions in words.

use std::fmt;

use crate::adjoint::equations;
use crate::build::Builder;
use crate::elem::Elem;
use crate::ir::{Literal, Op, Operator, Value};
use crate::typing::TypeError;

use super::{Counterexample, Evidence, Law, NamedState, Outside};

/// The condition of number k of an operator's domain, written as in an equation.
pub fn condition(operator: &Operator, k: usize) -> String {
    const NAME: &str = "holds";
    let text = condition_program(operator, k, NAME).map(|builder| equations(&builder.finish())).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let text = lines.join("; ");
    text.strip_prefix(&format!("{NAME} = ")).map(str::to_owned).unwrap_or(text)
}

/// The condition as a program of scalars, whose parameters are the fields.
fn condition_program(operator: &Operator, k: usize, output: &str) -> Result<Builder, TypeError> {
    let domain = &operator.domain;
    let mut builder = Builder::new(&operator.name);
    let mut fields = vec![];
    for field in &operator.fields {
        fields.push(builder.param(&field.name, &[], field.ty.elem().unwrap_or(Elem::Call), None)?);
    }
    let mut values: Vec<Value> = vec![];
    for node in &domain.body {
        values.push(match &node.op {
            Op::Input(k) => fields[*k as usize],
            op => builder.append(op.map_operands(|v| values[v.0 as usize]), node.ty, node.axes)?,
        });
    }
    builder.output(output, &[], Elem::Bool, values[domain.conditions[k].0 as usize])?;
    Ok(builder)
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Law::LeftIdentity => "identity ⊕ x = x",
            Law::RightIdentity => "x ⊕ identity = x",
            Law::Associativity => "(x ⊕ y) ⊕ z = x ⊕ (y ⊕ z)",
            Law::Gauge => "the invariance of p·exp(m) under (m + c, p·exp(−c))",
            Law::Closure => "that x ⊕ y is in the domain",
        })
    }
}

impl Counterexample {
    /// Whether the combination is no number, of states that are numbers.
    pub fn is_nan(&self) -> bool {
        [self.left, self.right].iter().any(|side| matches!(side, Literal::Float(x) if x.is_nan()))
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counterexample { operator, field, law, left, right, .. } = self;
        match law {
            Law::Associativity => write!(f, "`{operator}` is not associative in field `{field}`: ")?,
            Law::Gauge => write!(f, "field `{field}` of `{operator}` depends on the choice of the gauge: ")?,
            _ if self.is_nan() => write!(f, "the combination of `{operator}` gives NaN in field `{field}`: ")?,
            _ => write!(f, "the identity of `{operator}` is wrong in field `{field}`: ")?,
        }
        write_states(f, &self.states)?;
        match law {
            Law::Associativity => write!(f, ", (x ⊕ y) ⊕ z gives {left}, but x ⊕ (y ⊕ z) gives {right}"),
            Law::Gauge => write!(f, ", {field}·exp(gauge) of x ⊕ y is {right}, but {left} after shifting the gauges"),
            Law::RightIdentity => write!(f, ", x ⊕ identity gives {left} instead of {right}"),
            _ => write!(f, ", identity ⊕ x gives {left} instead of {right}"),
        }
    }
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outside { operator, text, state, .. } = self;
        let state = in_words(state);
        if self.operands.is_empty() {
            return write!(f, "the identity of `{operator}`, {state}, is not in its domain: {text} does not hold");
        }
        write!(f, "a combination leaves the domain of `{operator}`: ")?;
        write_states(f, &self.operands)?;
        write!(f, ", x ⊕ y is {state}, for which {text} does not hold")
    }
}

/// `with x = (m: 1), y = (m: 2)`.
fn write_states(f: &mut fmt::Formatter<'_>, states: &[NamedState]) -> fmt::Result {
    for (name, state) in ["x", "y", "z"].into_iter().zip(states) {
        write!(f, "{}{name} = {}", if name == "x" { "with " } else { ", " }, in_words(state))?;
    }
    Ok(())
}

/// `(m: 1, d: 2)`.
fn in_words(state: &NamedState) -> String {
    let fields: Vec<String> = state.iter().map(|(field, literal)| format!("{field}: {literal}")).collect();
    format!("({})", fields.join(", "))
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |laws: &[Law]| {
            let laws: Vec<String> = laws.iter().map(ToString::to_string).collect();
            laws.join(", ")
        };
        if !self.proved.is_empty() {
            write!(f, "Proved by algebra, so true up to rounding: {}.", listed(&self.proved))?;
        }
        if !self.sampled.is_empty() {
            let space = if self.proved.is_empty() { "" } else { " " };
            let (laws, samples) = (listed(&self.sampled), self.samples);
            write!(f, "{space}Tried at {samples} triples of states, without a counter-example: {laws}.")?;
        }
        Ok(())
    }
}
