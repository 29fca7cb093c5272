//! Kernels: parameters, statements, outputs.

use oplus_dsl::alternative::common;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, ENDS, Literal, Program, Value};
use oplus_dsl::simplify::simplify;
use oplus_dsl::{Elem, Ty};

use super::{Lower, Term, explain, number};
use crate::diagnostics::Diagnostics;
use crate::extent::Extent;
use crate::library::Library;
use crate::mistake::Mistake;
use crate::suggest::did_you_mean;
use crate::syntax::{Expr, KernelItem, Name, Pattern, Statement, TensorItem};

/// The program of a kernel; `None` if anything is wrong so far.
pub(super) fn kernel(item: &KernelItem, library: &Library, mistakes: &mut Diagnostics) -> Option<Program> {
    let mut lower = Lower::new(Builder::new(&item.name.text), &item.name.text, lone(item), library, mistakes);
    for param in &item.params {
        lower.param(param, item);
    }
    lower.check_signature(item);
    let count = item.outputs.len();
    let mut outputs = Outputs { items: &item.outputs, values: vec![None; count], is_whole: item.body.is_whole };
    for statement in &item.body.statements {
        lower.statement(statement, &mut outputs);
    }
    if let Some(value) = item.body.value.as_ref().filter(|_| item.body.is_whole) {
        lower.term(value);
        lower.report(value.extent, Mistake::KernelValue { kernel: item.name.text.clone() });
    }
    lower.store(&outputs, item);
    let program = lower.builder.finish();
    verified(program, item, mistakes)
}

/// The type of a literal that meets no typed operand: the call's if any tensor has it, else the widest float, else i64.
fn lone(item: &KernelItem) -> Ty {
    let types = || item.params.iter().chain(&item.outputs).map(|tensor| tensor.elem.value());
    let has = |ty: Ty| types().any(|t| t == ty);
    match () {
        () if has(Ty::Call) => Ty::Call,
        () if has(Ty::Wide) => Ty::Wide,
        () if has(Ty::F64) => Ty::F64,
        () if types().any(Ty::is_float) => Ty::F32,
        () => Ty::I64,
    }
}

/// The last word is the verifier's: it finds nothing unless the front end has a fault.
fn verified(program: Program, item: &KernelItem, mistakes: &mut Diagnostics) -> Option<Program> {
    if !mistakes.is_empty() {
        return None;
    }
    if let Err(errors) = oplus_dsl::verify::verify(&program) {
        for error in errors {
            mistakes.report(item.name.extent(), Mistake::Invalid { message: error.to_string() });
        }
        return None;
    }
    Some(simplify(&program))
}

/// A kernel's outputs and what is assigned to them.
struct Outputs<'e> {
    items: &'e [TensorItem],
    values: Vec<Option<(Term, Extent)>>,
    /// Whether every assignment was understood, so that those missing are really missing.
    is_whole: bool,
}

impl Lower<'_> {
    fn param(&mut self, item: &TensorItem, kernel: &KernelItem) {
        let axes: Option<Vec<Axis>> = item.axes.iter().map(|axis| self.declare_axis(axis, kernel)).collect();
        let default = item.default.as_ref().map(|expr| (self.default(expr, item.elem), expr.extent));
        let literal = default.and_then(|(literal, _)| literal);
        let built = self.builder.param(&item.name.text, &axes.unwrap_or_default(), item.elem, literal);
        let value = self.built(built, item.name.extent());
        let value = value.and_then(|value| self.either(item, value)).filter(|_| item.is_typed);
        self.scope.push(&item.name.text, value.into());
    }

    /// The value of a parameter that may store something else instead, in a type that loses nothing of either.
    fn either(&mut self, item: &TensorItem, value: Value) -> Option<Value> {
        let Some((or, extent)) = item.or else { return Some(value) };
        let Some(elem) = common(item.elem, or).and_then(Ty::elem) else {
            let what = format!("tensors of `{}` that may store `{or}` instead are", item.elem);
            let instead = "write `i32 | i64`, `u32 | u64` or `call | wide`".into();
            self.report(extent, Mistake::Unsupported { what, instead });
            return None;
        };
        self.builder.or(or);
        let built = self.builder.convert(elem, value);
        self.built(built, item.name.extent())
    }

    /// A call must tell the size of every axis and its own element type.
    fn check_signature(&mut self, item: &KernelItem) {
        let mut seen: Vec<&str> = vec![];
        let required = item.params.iter().filter(|param| param.default.is_none());
        seen.extend(required.flat_map(|param| &param.axes).map(|axis| axis.text.as_str()));
        let counted: Vec<&str> = seen.iter().filter_map(|axis| axis.strip_suffix(ENDS)).collect();
        seen.extend(counted);
        for axis in item.params.iter().flat_map(|param| &param.axes) {
            if !seen.contains(&axis.text.as_str()) {
                seen.push(&axis.text);
                self.report(axis.extent(), Mistake::OptionalAxis { axis: axis.text.clone() });
            }
        }
        let tensors = item.params.iter().chain(&item.outputs);
        let of_call = |tensor: &&TensorItem| matches!(tensor.elem.value(), Ty::Call | Ty::Wide) && tensor.is_typed;
        let mut of_call = tensors.filter(of_call);
        let is_known = item.params.iter().any(|param| param.elem == Elem::Call && param.or.is_none());
        if let Some(tensor) = of_call.next().filter(|_| !is_known) {
            self.report(tensor.name.extent(), Mistake::CallType { tensor: tensor.name.text.clone() });
        }
    }

    /// The axis of a parameter; with the axis `S + 1` comes `S`.
    fn declare_axis(&mut self, name: &Name, kernel: &KernelItem) -> Option<Axis> {
        let of = name.text.strip_suffix(ENDS).map_or(Ok(Axis(0)), |axis| self.builder.axis(axis));
        let axis = of.and_then(|_| self.builder.axis(&name.text));
        axis.map_err(|_| self.report(name.extent(), Mistake::TooManyAxes { kernel: kernel.name.text.clone() })).ok()
    }

    fn default(&mut self, expr: &Expr, elem: Elem) -> Option<Literal> {
        match self.term(expr) {
            Term::Literal(literal) => {
                let fitted = number::fit(literal, elem.value());
                if fitted.is_none() {
                    let (literal, ty) = (number::text(literal), explain::in_words(elem.value()));
                    self.report(expr.extent, Mistake::LiteralType { literal, ty });
                }
                fitted
            }
            Term::Wrong => None,
            _ => {
                self.report(expr.extent, Mistake::NotALiteral { what: "a default".into() });
                None
            }
        }
    }

    fn statement(&mut self, statement: &Statement, outputs: &mut Outputs) {
        match statement {
            Statement::Let(pattern, value) => {
                let term = self.term(value);
                self.bind(pattern, term);
            }
            Statement::Assign(pattern, value) => {
                let term = self.term(value);
                self.assign(pattern, term, value.extent, outputs);
            }
        }
    }

    fn assign(&mut self, pattern: &Pattern, term: Term, extent: Extent, outputs: &mut Outputs) {
        match pattern {
            Pattern::Ignore => {}
            Pattern::Name(name) => self.assign_one(name, term, extent, outputs),
            Pattern::Tuple(patterns, at) => {
                for (pattern, part) in patterns.iter().zip(self.parts(patterns.len(), term, *at)) {
                    self.assign(pattern, part, extent, outputs);
                }
            }
        }
    }

    fn assign_one(&mut self, name: &Name, term: Term, extent: Extent, outputs: &mut Outputs) {
        let Some(k) = outputs.items.iter().position(|output| output.name.text == name.text) else {
            let hint = did_you_mean(&name.text, outputs.items.iter().map(|output| output.name.text.as_str()));
            outputs.is_whole = false;
            return self.report(name.extent(), Mistake::NotAnOutput { name: name.text.clone(), hint });
        };
        if outputs.values[k].is_some() {
            return self.report(name.extent(), Mistake::OutputTwice { output: name.text.clone() });
        }
        self.scope.push(&name.text, term.clone());
        outputs.values[k] = Some((term, extent));
    }

    /// Declares the outputs in the order of the signature.
    fn store(&mut self, outputs: &Outputs, kernel: &KernelItem) {
        for (item, assigned) in outputs.items.iter().zip(&outputs.values) {
            if let Some(default) = &item.default {
                let (what, instead) = ("defaults of outputs are".into(), "assign the output in the body".into());
                self.report(default.extent, Mistake::Unsupported { what, instead });
            }
            if let Some((_, extent)) = item.or {
                let (what, instead) = ("outputs of more than one element type are".into(), "name one".into());
                self.report(extent, Mistake::Unsupported { what, instead });
            }
            let axes = self.output_axes(item);
            match assigned {
                None if outputs.is_whole => {
                    self.report(item.name.extent(), Mistake::OutputMissing { output: item.name.text.clone() });
                }
                None => {}
                Some((term, extent)) => {
                    let value = self.typed(term.clone(), item.elem.value(), *extent);
                    if let (Some(value), Some(axes), true) = (value, axes, item.is_typed) {
                        self.store_one(item, &axes, value, *extent, kernel);
                    }
                }
            }
        }
    }

    fn output_axes(&mut self, item: &TensorItem) -> Option<Vec<Axis>> {
        let declared = self.builder.program().axes.clone();
        let known = |axis: &Name| {
            let found = declared.iter().position(|name| *name == axis.text).map(|k| Axis(k as u32));
            if found.is_none() {
                let hint = did_you_mean(&axis.text, declared.iter().map(String::as_str));
                self.report(axis.extent(), Mistake::UnknownAxis { axis: axis.text.clone(), hint });
            }
            found
        };
        let axes: Vec<Option<Axis>> = item.axes.iter().map(known).collect();
        axes.into_iter().collect()
    }

    fn store_one(&mut self, item: &TensorItem, axes: &[Axis], value: Value, extent: Extent, kernel: &KernelItem) {
        let (found, stored) = (self.ty(value), item.elem.value());
        let output = item.name.text.clone();
        if found != stored && !(found.is_float() && stored.is_float()) {
            let (elem, found) = (explain::in_words(stored), explain::in_words(found));
            let cast = explain::cast(stored).into();
            return self.report(extent, Mistake::OutputType { output, elem, found, cast });
        }
        if let Some(axis) = self.axes(value).iter().find(|axis| !axes.contains(axis)) {
            let axis = self.builder.program().axis_name(axis).to_owned();
            return self.report(extent, Mistake::OutputAxis { output, axis });
        }
        if let Err(error) = self.builder.output(&item.name.text, axes, item.elem, value) {
            self.report(kernel.name.extent(), explain::mistake(&error));
        }
    }
}
