//! Checks that a program means something.
//!
//! Every pass gives a program that verifies; what follows a verification does not look again. Checked are:
//!
//! * **Program**: its name is a name ([`crate::names::is_name`]); it has at most 64 axes.
//! * **Axes**: names are names, no two the same.
//! * **Parameters**: names are names, no two the same; axes exist, none twice; the default is of the element's kind;
//!   what may be stored instead can stand for it.
//! * **Operators**: the name is a name; 1 to 32 fields, named differently, of scalar types; the identity has a literal
//!   of its type for each; body nodes are constants, inputs that exist and maps of earlier nodes, of the types that
//!   the [rules](crate::typing) give, without axes; `combine` has a value of its type for each field; the gauge, if
//!   any, is a floating-point field; the domain's nodes are like those of the body, but of one state, and its conditions
//!   are bools among them.
//! * **Nodes**: operands are earlier nodes; parameters, axes, operators and fields that are referred to exist; scans
//!   and reductions give one element (and initial value) of its type per field, and the initial state does not vary
//!   along the axis; the values for absent elements (`empty`, `fill`) do not either; tuples are only taken
//!   apart; type and axes are those that the rules give.
//! * **Outputs**: names are names, no two the same; axes exist, none twice, and include those of the value; the value
//!   exists and is of the element's value type.
//!
//! All errors are reported at once; the users of a wrong node are checked against what it says it is.

mod operator;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};

use thiserror::Error;

use crate::alternative::common;
use crate::elem::{Elem, Ty};
use crate::ir::{Axis, AxisSet, Node, Op, OperatorId, Output, Param, Program, Value};
use crate::names::is_name;
use crate::typing::{Scope, TypeError, check_literal};

/// One thing that is wrong with a program.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("{place}: {reason}")]
pub struct VerifyError {
    /// The fault.
    pub subject: Subject,
    /// The name of the part that is wrong.
    pub place: String,
    /// Why.
    pub reason: Reason,
}

/// A part of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The program itself.
    Program,
    /// An axis.
    Axis(Axis),
    /// A parameter.
    Param(u32),
    /// An operator.
    Operator(OperatorId),
    /// A field of an operator.
    Field(OperatorId, u32),
    /// A node of an operator's body.
    Body(OperatorId, Value),
    /// A node of an operator's domain.
    Domain(OperatorId, Value),
    /// A node.
    Node(Value),
    /// An output.
    Output(u32),
}

/// Why a part of a program is wrong.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Reason {
    /// The operands do not fit the operation.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// A name that the text form could not read.
    #[error("`{0}` is not an identifier")]
    Name(String),
    /// A second axis, parameter, output or field of one name.
    #[error("the name is already taken")]
    Duplicate,
    /// A type that a parameter cannot store instead of its own.
    #[error("a tensor of `{0}` cannot be of `{1}` instead")]
    Alternative(Elem, Elem),
    /// An axis twice in one tensor.
    #[error("axis `{0}` occurs twice")]
    AxisTwice(String),
    /// An output without an axis of its value.
    #[error("the value varies along axis `{0}`, which the output lacks")]
    AxisLost(String),
    /// An operand that is not computed yet.
    #[error("operand {0} is not an earlier node")]
    Order(Value),
    /// A node whose type is not what its operands give.
    #[error("the type is `{found}`, but the operands give `{expected}`")]
    NodeType {
        /// By the rules.
        expected: Ty,
        /// In the program.
        found: Ty,
    },
    /// A node whose axes are not what its operands give.
    #[error("the axes are [{found}], but the operands give [{expected}]")]
    NodeAxes {
        /// By the rules.
        expected: String,
        /// In the program.
        found: String,
    },
    /// A value of another type than it is declared to have.
    #[error("the value is `{found}`, not `{expected}`")]
    ValueType {
        /// The type that is declared.
        expected: Ty,
        /// The value's.
        found: Ty,
    },
    /// Too few or too many fields.
    #[error("an operator has 1 to 32 fields, not {0}")]
    FieldCount(usize),
    /// An identity or a combination that does not have one part per field.
    #[error("there are {fields} field(s), but the {part} has {given} parts")]
    PartCount {
        /// `identity` or `combination`.
        part: &'static str,
        /// How many fields there are.
        fields: usize,
        /// How many parts are given.
        given: usize,
    },
    /// A gauge that is not a floating-point field.
    #[error("the gauge must be a floating-point field of the operator")]
    Gauge,
}

/// Checks a program; see the [module documentation](self) for what is checked.
pub fn verify(program: &Program) -> Result<(), Vec<VerifyError>> {
    let mut verifier = Verifier { program, errors: vec![] };
    verifier.check_program();
    verifier.check_axes();
    verifier.check_params();
    verifier.check_operators();
    verifier.check_nodes();
    verifier.check_outputs();
    if verifier.errors.is_empty() { Ok(()) } else { Err(verifier.errors) }
}

struct Verifier<'a> {
    program: &'a Program,
    errors: Vec<VerifyError>,
}

impl<'a> Verifier<'a> {
    fn report(&mut self, subject: Subject, reason: impl Into<Reason>) {
        let place = Named { subject, program: self.program }.to_string();
        self.errors.push(VerifyError { subject, place, reason: reason.into() });
    }

    fn check_program(&mut self) {
        if !is_name(&self.program.name) {
            self.report(Subject::Program, Reason::Name(self.program.name.clone()));
        }
        if self.program.axes.len() > 64 {
            self.report(Subject::Program, TypeError::TooManyAxes);
        }
    }

    fn check_axes(&mut self) {
        let axes = self.program.axes.iter().map(String::as_str);
        self.check_names(axes, |k| Subject::Axis(Axis(k)));
    }

    /// Every name is one, and none occurs twice.
    fn check_names(&mut self, names: impl Iterator<Item = &'a str>, subject: impl Fn(u32) -> Subject) {
        let mut taken = HashSet::new();
        for (k, name) in names.enumerate() {
            if !is_name(name) {
                self.report(subject(k as u32), Reason::Name(name.to_owned()));
            }
            if !taken.insert(name) {
                self.report(subject(k as u32), Reason::Duplicate);
            }
        }
    }

    fn check_params(&mut self) {
        let params = &self.program.params;
        self.check_names(params.iter().map(|p| p.name.as_str()), Subject::Param);
        for (k, Param { axes, elem, or, default, .. }) in params.iter().enumerate() {
            let subject = Subject::Param(k as u32);
            if let Some(or) = or.filter(|or| common(*elem, *or).is_none()) {
                self.report(subject, Reason::Alternative(*elem, or));
            }
            self.check_tensor_axes(subject, axes);
            for elem in [*elem].into_iter().chain(*or) {
                if let Some(Err(error)) = default.map(|literal| check_literal(literal, elem.value())) {
                    self.report(subject, error);
                }
            }
        }
    }

    /// The axes of a tensor that exist and occur once.
    fn check_tensor_axes(&mut self, subject: Subject, axes: &[Axis]) -> AxisSet {
        let mut seen = AxisSet::EMPTY;
        for axis in axes {
            if axis.0 as usize >= self.program.axes.len().min(64) {
                self.report(subject, TypeError::Unknown { kind: "axis", index: axis.0 });
            } else if seen.contains(*axis) {
                self.report(subject, Reason::AxisTwice(self.program.axis_name(*axis).to_owned()));
            } else {
                seen = seen.with(*axis);
            }
        }
        seen
    }

    fn check_nodes(&mut self) {
        let nodes = &self.program.nodes;
        for (i, node) in nodes.iter().enumerate() {
            let scope = Scope { program: self.program, nodes: &nodes[..i], fields: None };
            self.check_node(Subject::Node(Value(i as u32)), scope, node);
        }
    }

    fn check_node(&mut self, subject: Subject, scope: Scope<'_>, node: &Node) {
        let late = node.op.operands().into_iter().find(|v| v.0 as usize >= scope.nodes.len());
        if let Some(value) = late {
            return self.report(subject, Reason::Order(value));
        }
        let (ty, axes) = match scope.infer(&node.op, node.ty, node.axes) {
            Ok(typed) => typed,
            Err(_) if is_field_of_wrong_tuple(&scope, &node.op) => return,
            Err(error) => return self.report(subject, error),
        };
        if ty != node.ty {
            self.report(subject, Reason::NodeType { expected: ty, found: node.ty });
        }
        if axes != node.axes {
            let (expected, found) = (self.axis_names(axes), self.axis_names(node.axes));
            self.report(subject, Reason::NodeAxes { expected, found });
        }
    }

    fn axis_names(&self, axes: AxisSet) -> String {
        let name = |axis: Axis| self.program.axes.get(axis.0 as usize).cloned().unwrap_or(format!("#{}", axis.0));
        axes.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    fn check_outputs(&mut self) {
        let outputs = &self.program.outputs;
        self.check_names(outputs.iter().map(|o| o.name.as_str()), Subject::Output);
        for (k, output) in outputs.iter().enumerate() {
            self.check_output(Subject::Output(k as u32), output);
        }
    }

    fn check_output(&mut self, subject: Subject, output: &Output) {
        let axes = self.check_tensor_axes(subject, &output.axes);
        let Some(node) = self.program.nodes.get(output.value.0 as usize) else {
            return self.report(subject, TypeError::Unknown { kind: "value", index: output.value.0 });
        };
        let expected = output.elem.value();
        if node.ty != expected {
            self.report(subject, Reason::ValueType { expected, found: node.ty });
        }
        let lost = node.axes.minus(axes);
        if !lost.is_empty() {
            self.report(subject, Reason::AxisLost(self.axis_names(lost)));
        }
    }
}

/// Whether a field is taken of a scan or a reduction that has an error of its own.
fn is_field_of_wrong_tuple(scope: &Scope<'_>, op: &Op) -> bool {
    let Op::Field(tuple, _) = op else { return false };
    !matches!(scope.fields_of(&scope.nodes[tuple.0 as usize].op), Ok(_) | Err(TypeError::NotATuple))
}

/// A part of a program as messages name it.
struct Named<'a> {
    subject: Subject,
    program: &'a Program,
}

impl Display for Named<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = self.program;
        let op_name = |node: Option<&Node>| node.map_or("", |node: &Node| Op::name(&node.op));
        match self.subject {
            Subject::Program => write!(f, "program `{}`", p.name),
            Subject::Axis(axis) => write!(f, "axis `{}`", p.axis_name(axis)),
            Subject::Param(k) => write!(f, "parameter `{}`", p.params[k as usize].name),
            Subject::Operator(id) => write!(f, "operator `{}`", p.operator(id).name),
            Subject::Field(id, k) => {
                write!(f, "operator `{}`, field `{}`", p.operator(id).name, p.operator(id).fields[k as usize].name)
            }
            Subject::Body(id, value) => {
                let node = p.operator(id).body.get(value.0 as usize);
                write!(f, "operator `{}`, node {value} (`{}`)", p.operator(id).name, op_name(node))
            }
            Subject::Domain(id, value) => {
                let node = p.operator(id).domain.body.get(value.0 as usize);
                write!(f, "operator `{}`, node {value} (`{}`) of its domain", p.operator(id).name, op_name(node))
            }
            Subject::Node(value) => write!(f, "node {value} (`{}`)", op_name(p.nodes.get(value.0 as usize))),
            Subject::Output(k) => write!(f, "output `{}`", p.outputs[k as usize].name),
        }
    }
}
