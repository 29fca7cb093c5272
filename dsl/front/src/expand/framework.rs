//! Whose tensors the items of a kernel take: those of oplus, or those of a framework that an adapter crate serves.

use oplus_dsl::Elem;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::quote;

use crate::syntax::TensorItem;

/// The library whose tensors are called with.
#[derive(Clone, Debug)]
pub(crate) enum Framework {
    /// oplus itself.
    Oplus,
    /// The framework of the adapter crate at this path. The crate has the types `Float`, `Int` and `Bool` with the number of axes
    /// as their parameter, `FloatScalar` and its kin without axes, `Error`, the crate `oplus`, and in `expand` the functions
    /// `call`, `input` and `output` and the type `Output` that `call` gives many of. Gradients are the framework's own business.
    Adapter(TokenStream),
}

impl Framework {
    /// The framework of a block that begins with the path of its adapter crate in brackets, and the rest of the block.
    pub(crate) fn split(tokens: TokenStream) -> (Framework, TokenStream) {
        let mut rest = tokens.clone().into_iter();
        match rest.next() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
                (Framework::Adapter(group.stream()), rest.collect())
            }
            _ => (Framework::Oplus, tokens),
        }
    }

    /// The path of the crate `oplus`.
    pub(super) fn oplus(&self) -> TokenStream {
        match self {
            Framework::Oplus => quote!(::oplus),
            Framework::Adapter(path) => quote!(#path::oplus),
        }
    }

    /// The type of errors.
    pub(super) fn error(&self) -> TokenStream {
        match self {
            Framework::Oplus => quote!(::oplus::Error),
            Framework::Adapter(path) => quote!(#path::Error),
        }
    }

    /// The type of a tensor that a call gives.
    pub(super) fn called(&self) -> TokenStream {
        match self {
            Framework::Oplus => quote!(::oplus::Tensor),
            Framework::Adapter(path) => quote!(#path::expand::Output),
        }
    }

    /// The type of a tensor.
    pub(super) fn tensor(&self, tensor: &TensorItem) -> TokenStream {
        let Framework::Adapter(path) = self else { return quote!(::oplus::Tensor) };
        let (rank, elem) = (tensor.axes.len(), tensor.elem);
        match rank {
            0 if elem.is_float() => quote!(#path::FloatScalar),
            0 if elem == Elem::Bool => quote!(#path::BoolScalar),
            0 => quote!(#path::IntScalar),
            _ if elem.is_float() => quote!(#path::Float<#rank>),
            _ if elem == Elem::Bool => quote!(#path::Bool<#rank>),
            _ => quote!(#path::Int<#rank>),
        }
    }
}
