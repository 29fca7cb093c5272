//! The one-step form of a kernel: a kernel named `step`, whose items are in the module of the whole one.

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Literal, Program};
use oplus_dsl::step::Step;
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};

use super::{Framework, docs, kernel};
use crate::extent::Extent;
use crate::syntax::{Expr, ExprKind, Head, KernelItem, Name, TensorItem};

/// The items of a kernel's one-step form; without a program they have the same names and types.
pub(super) fn items(item: &KernelItem, step: Option<&Step>, framework: &Framework) -> TokenStream {
    let inside = kernel::Inside { about_step: "", items: TokenStream::new(), is_step: true };
    kernel::of_one(&one(item, step), step.map(|step| &step.program), inside, framework)
}

/// The one-step form as if it had been written.
pub(crate) fn one(item: &KernelItem, step: Option<&Step>) -> KernelItem {
    let without_axis = |tensor: &TensorItem| {
        let mut tensor = tensor.clone();
        tensor.axes.retain(|axis| step.is_none_or(|step| step.axis != axis.text));
        tensor
    };
    let name = Name { ident: Ident::new("step", item.name.ident.span()), text: "step".into() };
    let attributes = docs::of_step(item, step).into_token_stream();
    let (params, outputs) = step.map(|step| added(item, &step.program)).unwrap_or_default();
    KernelItem {
        head: Head { attributes, visibility: quote!(pub) },
        name,
        params: item.params.iter().map(without_axis).chain(params).collect(),
        outputs: item.outputs.iter().map(without_axis).chain(outputs).collect(),
        body: item.body.clone(),
    }
}

/// The parameters and outputs that a one-step form has beside those of the kernel: the elements that shifts keep.
fn added(item: &KernelItem, program: &Program) -> (Vec<TensorItem>, Vec<TensorItem>) {
    let tensor = |name: &str, axes: &[Axis], elem: Elem, default: Option<Literal>| {
        let named = |text: &str| {
            let ident = text.split_once('.').map_or(text, |(axis, _)| axis); // an axis of offsets has a dot
            Name { ident: Ident::new(ident, item.name.ident.span()), text: text.to_owned() }
        };
        let axes = axes.iter().map(|axis| named(program.axis_name(*axis))).collect();
        let default = default.map(|literal| Expr::new(ExprKind::Literal(literal), Extent::whole()));
        TensorItem { name: named(name), elem, or: None, axes, default, is_typed: true }
    };
    let params = program.params.iter().skip(item.params.len());
    let outputs = program.outputs.iter().skip(item.outputs.len());
    (
        params.map(|p| tensor(&p.name, &p.axes, p.elem, p.default)).collect(),
        outputs.map(|o| tensor(&o.name, &o.axes, o.elem, None)).collect(),
    )
}
