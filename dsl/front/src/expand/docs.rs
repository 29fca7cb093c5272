//! Documentation of the generated items.

use oplus_dsl::Elem;
use oplus_dsl::adjoint::{AdjointError, adjoint, equations};
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{ENDS, Field, Operator, Program, Value};
use oplus_dsl::laws::condition;
use oplus_dsl::step::{Step, StepError};
use oplus_dsl::typing::TypeError;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};

use super::kernel::may_have_gradient;
use crate::lower::Declared;
use crate::syntax::{Expr, ExprKind, KernelItem, OperatorItem, TensorItem};

/// Lines of a doc comment.
pub(crate) struct Doc(String);

impl Doc {
    /// The lines, without blank ones around them.
    pub(crate) fn text(&self) -> String {
        self.0.trim().to_owned()
    }
}

impl ToTokens for Doc {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        for line in self.0.lines() {
            let line = if line.is_empty() { String::new() } else { format!(" {line}") };
            tokens.extend(quote!(#[doc = #line]));
        }
    }
}

/// The documentation of a kernel.
pub(crate) struct Kernel {
    /// The function's documentation, after the user's.
    pub(crate) function: Doc,
    /// Whether it has a gradient, or why not.
    pub(crate) gradient: Result<(), String>,
}

/// Documents a kernel: its equations and those of its gradient, and what is said about its one-step form.
pub(crate) fn kernel(item: &KernelItem, program: Option<&Program>, about_step: &str) -> Kernel {
    let Some(program) = program else {
        let gradient = if may_have_gradient(item) { Ok(()) } else { Err(String::new()) };
        return Kernel { function: Doc(String::new()), gradient };
    };
    let adjoint = adjoint(program).map_err(|error| match error {
        AdjointError::NothingToDifferentiate { reason, .. } => reason.to_owned(),
        error => error.to_string(),
    });
    let gradient = match &adjoint {
        Ok(adjoint) => fenced(&equations(adjoint)),
        Err(reason) => format!("None: {reason}.\n"),
    };
    let errors =
        "When a tensor's shape, element type or device does not fit, when memory runs out, and faults of the device.";
    let function = format!(
        "\n# Equations\n{}{}\n# Gradient\n{gradient}{about_step}\n# Errors\n{errors}",
        fenced(&equations(program)),
        promises(program)
    );
    Kernel { function: Doc(function), gradient: adjoint.map(drop) }
}

/// The section about a kernel's one-step form.
pub(crate) fn one_step(item: &KernelItem, step: &Result<Step, StepError>) -> String {
    let name = &item.name.text;
    let text = match step {
        Ok(step) => format!("`{name}::step` is the same for one index of {}. {}", step.axis, handed_over(step)),
        Err(reason) => format!("None: {reason}."),
    };
    format!("\n# One step\n{text}\n")
}

/// Documents the function of a one-step form.
pub(super) fn of_step(item: &KernelItem, step: Option<&Step>) -> Doc {
    let name = &item.name.text;
    let text = step.map(|step| format!("for one index of {}.\n\n{}", step.axis, handed_over(step)));
    Doc(format!("One step of `{name}`: the same {}", text.unwrap_or_default()))
}

/// Which output of a step is which input of the next one.
fn handed_over(step: &Step) -> String {
    let states = step.states.iter().map(|state| format!("`{}` is the `{}`", state.output, state.param));
    match states.collect::<Vec<_>>().join(", its ") {
        states if states.is_empty() => "It has no state.".into(),
        states => format!("Its {states} of the next step."),
    }
}

fn fenced(text: &str) -> String {
    format!("```text\n{}\n```\n", text.trim_end())
}

/// Documents an operator: its identity and, field by field, its combination; its domain; how it keeps its laws.
pub(crate) fn operator(item: &OperatorItem, declared: Option<&Declared>) -> Doc {
    let (operator, evidence) = match declared {
        Some(Declared::Associative(operator, evidence)) => (operator, evidence),
        Some(Declared::Transition(program)) => return of_transition(program),
        None => return Doc(String::new()),
    };
    let combination = combination(operator).map(|program| equations(&program)).unwrap_or_default();
    let identity: Vec<String> = operator
        .fields
        .iter()
        .zip(&operator.identity)
        .map(|(field, literal)| format!("{} = {literal}", field.name))
        .collect();
    let uses = match item.fields.iter().any(|field| field.elem.is_none()) {
        true => " This is for floats; with integers the laws are checked at each use.",
        false => "",
    };
    Doc(format!(
        "\n# Operator\nThe combination of a left and a right state; the identity is {}.\n{}{}\n# Laws\n{evidence}{uses}\n",
        identity.join(", "),
        fenced(&combination),
        of_domain(operator)
    ))
}

/// Documents an operator with a state of its own: its recurrence.
fn of_transition(program: &Program) -> Doc {
    Doc(format!(
        "\n# Recurrence\n{}\n# Laws\nThe step is affine in the state, as its formula shows, so steps combine in any grouping; none of them is \
         the identity. Elements are floats.\n",
        fenced(&equations(program))
    ))
}

/// The section about the states that an operator is for; nothing if it is for all.
fn of_domain(operator: &Operator) -> String {
    match in_words(operator) {
        words if words.is_empty() => String::new(),
        words => format!(
            "\n# Domain\nThe operator is for states with {words}. The laws were checked for these. That elements and initial \
             states are among them is promised by whoever calls a kernel: nothing checks it, and what other states give \
             is not specified.\n"
        ),
    }
}

/// The conditions of an operator's domain, listed.
fn in_words(operator: &Operator) -> String {
    let conditions = (0..operator.domain.conditions.len()).map(|k| format!("`{}`", condition(operator, k)));
    let overflow =
        operator.domain.no_overflow.then(|| "integers that never exceed their type when combined".to_owned());
    conditions.chain(overflow).collect::<Vec<_>>().join(", ")
}

/// The section about what a kernel's inputs must keep, for the operators that have a domain.
fn promises(program: &Program) -> String {
    let with_domain = program.operators.iter().filter(|operator| !operator.domain.is_everything());
    let promises: Vec<String> = with_domain
        .map(|operator| format!("Elements and initial states of `{}` must have {}.", operator.name, in_words(operator)))
        .collect();
    match promises[..] {
        [] => String::new(),
        _ => format!("\n# Promises\n{} Nothing checks this.\n", promises.join(" ")),
    }
}

/// The combination as a program of scalars: parameters `l.a`, `r.a` and so on, outputs named as the fields.
fn combination(operator: &Operator) -> Result<Program, TypeError> {
    let mut builder = Builder::new(&operator.name);
    let mut operand = |side: &str| -> Result<Vec<Value>, TypeError> {
        let param = |field: &Field| {
            let elem = field.ty.elem().unwrap_or(Elem::Call);
            builder.param(&format!("{side}.{}", field.name), &[], elem, None)
        };
        operator.fields.iter().map(param).collect()
    };
    let (left, right) = (operand("l")?, operand("r")?);
    let combined = builder.inline(operator, &left, &right)?;
    for (field, value) in operator.fields.iter().zip(combined) {
        builder.output(&field.name, &[], field.ty.elem().unwrap_or(Elem::Call), value)?;
    }
    Ok(builder.finish())
}

/// `The inputs of …`.
pub(super) fn about(what: &str, item: &KernelItem) -> Doc {
    Doc(format!("The {what} {}.", link(item)))
}

/// Documents the outputs' struct.
pub(super) fn output(item: &KernelItem, docs: &Kernel) -> Doc {
    let gradient = match &docs.gradient {
        Ok(()) => String::new(),
        Err(reason) => format!("\n\nThere is no gradient: {reason}."),
    };
    Doc(format!("The outputs of {}.{gradient}", link(item)))
}

/// Documents the cotangents' struct.
pub(super) fn cotangents(item: &KernelItem) -> Doc {
    Doc(format!("The cotangents of the floating-point outputs of {}; those left out are zero.", link(item)))
}

/// Documents the struct of the gradients' cotangents.
pub(super) fn gradients_cotangents(item: &KernelItem) -> Doc {
    Doc(format!("The cotangents of the gradients of {}, for a second derivative; those left out are zero.", link(item)))
}

fn link(item: &KernelItem) -> String {
    let name = &item.name.text;
    format!("[`{name}`](fn@{name})")
}

/// `[B, L]`, of the call's type.
pub(crate) fn tensor(tensor: &TensorItem) -> Doc {
    Doc(describe(tensor))
}

/// A parameter, with its default.
pub(crate) fn param(param: &TensorItem) -> Doc {
    let default = param.default.as_ref().map(|default| format!(" Left out, it is {} everywhere.", literal(default)));
    Doc(describe(param) + &default.unwrap_or_default())
}

/// A gradient of a parameter.
pub(super) fn gradient(param: &TensorItem) -> Doc {
    let absent = if param.default.is_some() { " `None` if the input was left out." } else { "" };
    Doc(describe(param) + absent)
}

fn describe(tensor: &TensorItem) -> String {
    let axes: Vec<String> = tensor.axes.iter().map(|axis| axis.text.replace(ENDS, " + 1")).collect();
    let elem = match (tensor.elem, tensor.or) {
        (Elem::Call, Some(_)) => "the call's element type, or of `f32` beside half precision".into(),
        (Elem::Call, None) => "the call's element type".into(),
        (Elem::State | Elem::Wide, _) => "the call's element type, at least `f32`".into(),
        (elem, Some((or, _))) => format!("`{elem}` or `{or}`"),
        (elem, None) => format!("`{elem}`"),
    };
    match &axes[..] {
        [] => format!("A scalar of {elem}."),
        _ => format!("`[{}]` of {elem}.", axes.join(", ")),
    }
}

fn literal(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Literal(literal) => literal.to_string(),
        ExprKind::Name(name) => name.text.clone(),
        ExprKind::Neg(inner) => format!("−{}", literal(inner)),
        _ => "a constant".into(),
    }
}
