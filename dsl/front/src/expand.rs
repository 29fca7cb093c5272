//! The expansion of a block: plain Rust items that name the program and call the runtime.
//!
//! The expansion is thin: the program's text, the signature as structs, and one call into `::oplus` for each of forward
//! and backward. Everything else is library code. When anything is wrong the same items are generated without a program
//! beside the errors, so that uses of them do not become errors of their own.

pub(crate) mod docs;
mod framework;
mod kernel;
mod operator;
pub(crate) mod step;

use std::collections::HashSet;

use proc_macro2::TokenStream;

use crate::diagnostics::Diagnostics;
use crate::generated::Generated;
use crate::lower::Lowered;
use crate::parse::is_keyword;
use crate::syntax::{Block, Head, Name, TensorItem};

pub(crate) use framework::Framework;

/// The items of a correct block.
pub(crate) fn items(block: &Block, lowered: &Lowered, framework: &Framework) -> TokenStream {
    let operators = block.operators.iter().zip(&lowered.operators);
    let operators = operators.map(|(item, operator)| operator::items(item, operator.as_ref()));
    let kernels = block.kernels.iter().zip(&lowered.kernels);
    let kernels = kernels.map(|(item, program)| kernel::items(item, program.as_ref(), framework));
    operators.chain(kernels).collect()
}

/// The errors of a wrong block, and items of the same names.
pub(crate) fn fallback(mut block: Block, mistakes: &Diagnostics, framework: &Framework) -> TokenStream {
    keep_valid(&mut block);
    let operators = block.operators.iter().map(|item| operator::items(item, None));
    let kernels = block.kernels.iter().map(|item| kernel::items(item, None, framework));
    [mistakes.to_tokens()].into_iter().chain(operators).chain(kernels).collect()
}

/// Drops what rustc would report once more: names that are keywords, and the second of two alike.
fn keep_valid(block: &mut Block) {
    let mut taken = HashSet::new();
    let mut free = |names: Vec<String>| {
        let is_free = names.iter().all(|name| !is_keyword(name) && !taken.contains(name));
        taken.extend(names);
        is_free
    };
    block.operators.retain(|item| free(vec![item.name.text.clone()]));
    block.kernels.retain(|item| free(Generated::types(&item.name)));
    for item in &mut block.kernels {
        keep_valid_tensors(&mut item.params);
        keep_valid_tensors(&mut item.outputs);
    }
}

fn keep_valid_tensors(tensors: &mut Vec<TensorItem>) {
    let mut taken = HashSet::new();
    tensors.retain(|tensor| !is_keyword(&tensor.name.text) && taken.insert(tensor.name.text.clone()));
}

/// The doc comments of an item and the attributes that all its generated items share: `cfg`.
fn attributes(head: &Head) -> (TokenStream, TokenStream) {
    let tokens: Vec<_> = head.attributes.clone().into_iter().collect();
    let (mut own, mut shared) = (TokenStream::new(), TokenStream::new());
    for pair in tokens.chunks(2) {
        let is_cfg =
            pair.get(1).is_some_and(|group| group.to_string().trim_start_matches(['[', ' ']).starts_with("cfg"));
        if is_cfg { shared.extend(pair.to_vec()) } else { own.extend(pair.to_vec()) }
    }
    (own, shared)
}

/// A field name that no tensor has.
fn unused(wanted: &str, taken: &[TensorItem]) -> proc_macro2::Ident {
    let mut name = wanted.to_owned();
    while taken.iter().any(|tensor| tensor.name.text == name) {
        name.push('_');
    }
    quote::format_ident!("{name}")
}

/// The identifiers of tensors.
fn idents(tensors: &[&TensorItem]) -> Vec<proc_macro2::Ident> {
    tensors.iter().map(|tensor| ident(&tensor.name)).collect()
}

fn ident(name: &Name) -> proc_macro2::Ident {
    name.ident.clone()
}
