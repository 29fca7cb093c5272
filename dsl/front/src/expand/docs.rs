//! Documentation of the generated items.

use oplus_dsl::Elem;
use oplus_dsl::adjoint::{AdjointError, adjoint};
use oplus_dsl::ir::{Operator, Program};
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};

use super::kernel::may_have_gradient;
use crate::syntax::{Expr, ExprKind, KernelItem, OperatorItem, TensorItem};

/// Lines of a doc comment.
pub(super) struct Doc(String);

impl ToTokens for Doc {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        for line in self.0.lines() {
            let line = if line.is_empty() { String::new() } else { format!(" {line}") };
            tokens.extend(quote!(#[doc = #line]));
        }
    }
}

/// What is said of a kernel.
pub(super) struct Kernel {
    /// The function's documentation, after the user's.
    pub(super) function: Doc,
    /// Whether it has a gradient, or why not.
    pub(super) gradient: Result<(), String>,
}

/// Documents a kernel: its equations and those of its gradient.
pub(super) fn kernel(item: &KernelItem, program: Option<&Program>) -> Kernel {
    let Some(program) = program else {
        let gradient = if may_have_gradient(item) { Ok(()) } else { Err(String::new()) };
        return Kernel { function: Doc(String::new()), gradient };
    };
    let gradient = adjoint(program).map(drop).map_err(|error| match error {
        AdjointError::NothingToDifferentiate { reason, .. } => reason.into(),
        error => error.to_string(),
    });
    let errors =
        "When a tensor's shape, element type or device does not fit, when memory runs out, and faults of the device.";
    let function = Doc(format!("\n# Equations\n{}\n# Errors\n{errors}", fenced(&program.to_string())));
    Kernel { function, gradient }
}

fn fenced(text: &str) -> String {
    format!("```text\n{}\n```\n", text.trim_end())
}

/// Documents an operator by its text.
pub(super) fn operator(item: &OperatorItem, operator: Option<&Operator>) -> Doc {
    let Some(operator) = operator else { return Doc(String::new()) };
    let free = item.fields.iter().any(|field| field.elem.is_none());
    let types =
        if free { "Fields without a type take the type of their element; here they are `f64`.\n\n" } else { "" };
    Doc(format!("\n# Operator\n\n{types}{}", fenced(&operator.to_string())))
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

fn link(item: &KernelItem) -> String {
    let name = &item.name.text;
    format!("[`{name}`](fn@{name})")
}

/// `[B, L]`, of the call's type.
pub(super) fn tensor(tensor: &TensorItem) -> Doc {
    Doc(describe(tensor))
}

/// A parameter, with its default.
pub(super) fn param(param: &TensorItem) -> Doc {
    let default = param.default.as_ref().map(|default| format!(" Left out, it is {} everywhere.", literal(default)));
    Doc(describe(param) + &default.unwrap_or_default())
}

/// A gradient of a parameter.
pub(super) fn gradient(param: &TensorItem) -> Doc {
    let absent = if param.default.is_some() { " `None` if the input was left out." } else { "" };
    Doc(describe(param) + absent)
}

fn describe(tensor: &TensorItem) -> String {
    let axes: Vec<&str> = tensor.axes.iter().map(|axis| axis.text.as_str()).collect();
    let elem = match tensor.elem {
        Elem::Call => "the call's element type".into(),
        elem => format!("`{elem}`"),
    };
    match axes[..] {
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
