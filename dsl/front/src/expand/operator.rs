//! The item of an operator: a unit type that documents it.

use proc_macro2::TokenStream;
use quote::quote;

use super::docs;
use crate::lower::Declared;
use crate::syntax::OperatorItem;

/// `pub struct Affine;` with the operator's text.
pub(super) fn items(item: &OperatorItem, declared: Option<&Declared>) -> TokenStream {
    let (attributes, shared) = super::attributes(&item.head);
    let (visibility, name) = (&item.head.visibility, &item.name.ident);
    let doc = docs::operator(item, declared);
    const OPERATOR: &str = " The operator in the program IR; fields without a type are `f64` here.";
    const RECURRENCE: &str = " The program of the operator's recurrence, for `f64`.";
    let (about, text) = match declared {
        Some(Declared::Associative(operator, _)) => (OPERATOR, operator.to_string()),
        Some(Declared::Transition(program)) => (RECURRENCE, program.to_string()),
        None => (OPERATOR, String::new()),
    };
    quote! {
        #shared
        #attributes
        #doc
        #[allow(dead_code)]
        #[derive(
            ::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug, ::core::default::Default,
            ::core::cmp::PartialEq, ::core::cmp::Eq
        )]
        #visibility struct #name;

        #shared
        impl #name {
            #[doc = #about]
            #[allow(dead_code)]
            pub const TEXT: &'static str = #text;
        }
    }
}
