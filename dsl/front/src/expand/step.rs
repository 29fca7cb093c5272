//! The one-step form of a kernel: a kernel named `step`, whose items are in the module of the whole one.

use oplus_dsl::step::Step;
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};

use super::{Framework, docs, kernel};
use crate::syntax::{Head, KernelItem, Name, TensorItem};

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
    KernelItem {
        head: Head { attributes, visibility: quote!(pub) },
        name,
        params: item.params.iter().map(without_axis).collect(),
        outputs: item.outputs.iter().map(without_axis).collect(),
        body: item.body.clone(),
    }
}
