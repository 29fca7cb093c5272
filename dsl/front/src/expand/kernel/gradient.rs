//! The items of a kernel's gradient: its structs, the method `backward`, and the gradient as a kernel.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::{Framework, Kernel, derives, docs};
use crate::expand::{ident, idents};
use crate::generated::Generated;
use crate::syntax::TensorItem;

impl Kernel<'_> {
    /// Whether it has these items: gradients of a framework's kernels are the framework's own business.
    pub(super) fn has_gradient(&self) -> bool {
        self.docs.gradient.is_ok() && matches!(self.framework, Framework::Oplus)
    }

    /// The cotangents, the gradients, and the method that makes one of the other.
    pub(super) fn gradient(&self) -> TokenStream {
        let output = |output: &TensorItem| {
            let (name, doc, ty) = (ident(&output.name), docs::tensor(output), self.tensor(output, true));
            quote! { #doc pub #name: #ty }
        };
        let param = |param: &TensorItem| {
            let (name, doc, ty) =
                (ident(&param.name), docs::gradient(param), self.tensor(param, param.default.is_some()));
            quote! { #doc pub #name: #ty }
        };
        let outputs: Vec<_> = Self::floats(&self.item.outputs).into_iter().map(output).collect();
        let params: Vec<_> = Self::floats(&self.item.params).into_iter().map(param).collect();
        let doc = docs::cotangents(self.item);
        let cotangents = self.structure(&self.names.cotangents, &doc, &derives(true), &outputs);
        let doc = docs::about("gradients of the inputs of", self.item);
        let gradients = self.structure(&self.names.gradients, &doc, &derives(false), &params);
        let (backward, typed) = (self.backward(), self.typed());
        quote! { #cotangents #gradients #backward #typed }
    }

    fn backward(&self) -> TokenStream {
        let (name, shared, call) = (&self.item.name.ident, self.shared(), &self.call);
        let Generated { output, cotangents, gradients, .. } = &self.names;
        let given = idents(&Self::floats(&self.item.outputs));
        quote! {
            #shared
            impl #output {
                /// The gradient of the call that gave these outputs: for every input p, p̄ = Σ over outputs y of
                /// (∂y/∂p)ᵀ·ȳ.
                ///
                /// # Errors
                /// When a cotangent does not fit its output, when memory runs out, and faults of the device.
                #[allow(dead_code)]
                pub fn backward(&self, cotangents: #cotangents) -> ::core::result::Result<#gradients, ::oplus::Error> {
                    let gradients = #name::kernel().backward(&self.#call, &[#(cotangents.#given.as_ref()),*])?;
                    ::core::result::Result::Ok(::oplus::typed::Gradients::take_from(&mut gradients.into_iter()))
                }
            }
        }
    }

    /// The code that makes the gradient a kernel with named tensors: the cotangents of gradients, and the order of all fields.
    fn typed(&self) -> TokenStream {
        let Generated { inputs, cotangents, gradients, gradients_cotangents, .. } = &self.names;
        let (name, shared) = (&self.item.name.ident, self.shared());
        let all: Vec<&TensorItem> = self.item.params.iter().collect();
        let (params, outputs) = (Self::floats(&self.item.params), Self::floats(&self.item.outputs));
        let fields = [(inputs, None), (cotangents, Some(cotangents)), (gradients, Some(gradients_cotangents))];
        let fields = fields.into_iter().chain([(gradients_cotangents, Some(gradients_cotangents))]);
        let tensors = [(&all, false), (&outputs, true), (&params, false), (&params, true)];
        let fields = fields.zip(tensors).map(|(names, (tensors, absent))| self.fields(names, tensors, absent));
        let items = [self.structure_of_cotangents(&params)].into_iter().chain(fields);
        quote! {
            #(#items)*
            #shared
            impl ::oplus::typed::Differentiable for #name::Differentiable {
                type Inputs = #inputs;
                type Cotangents = #cotangents;
                type Gradients = #gradients;
            }
        }
    }

    /// The struct of the gradients' cotangents.
    fn structure_of_cotangents(&self, params: &[&TensorItem]) -> TokenStream {
        let field = |param: &&TensorItem| {
            let (name, doc, ty) = (ident(&param.name), docs::tensor(param), self.tensor(param, true));
            quote! { #doc pub #name: #ty }
        };
        let fields: Vec<_> = params.iter().map(field).collect();
        self.structure(
            &self.names.gradients_cotangents,
            &docs::gradients_cotangents(self.item),
            &derives(true),
            &fields,
        )
    }

    /// The order of a struct's fields, and of gradients the struct of their cotangents.
    fn fields(
        &self,
        (structure, cotangents): (&Ident, Option<&Ident>),
        tensors: &[&TensorItem],
        may_be_absent: bool,
    ) -> TokenStream {
        let (shared, names) = (self.shared(), idents(tensors));
        let kinds = tensors
            .iter()
            .map(|tensor| if may_be_absent || tensor.default.is_some() { quote!(optional) } else { quote!(required) });
        let cotangents = cotangents.map(|cotangents| quote!(: #cotangents));
        quote! {
            #shared
            ::oplus::tensors! { #structure #cotangents { #(#kinds #names),* } }
        }
    }

    /// In the module of the kernel's name, its gradient as a kernel.
    pub(super) fn gradient_in_module(&self) -> Option<TokenStream> {
        let visibility = visibility_inside(&self.item.head.visibility);
        self.has_gradient().then(|| {
            quote! {
                /// The kernel, as the type of its gradient names it.
                #visibility enum Differentiable {}

                /// The gradient as a kernel: it takes the inputs and the cotangents of the outputs, gives the gradients of the inputs,
                /// and has a gradient in turn.
                pub const fn gradient() -> ::oplus::typed::GradientOf<Differentiable> {
                    ::oplus::typed::Gradient::of(&KERNEL)
                }
            }
        })
    }
}

/// The visibility of an item in a module beside which an item of this visibility stands.
fn visibility_inside(outside: &TokenStream) -> TokenStream {
    let text = outside.to_string().replace(' ', "");
    let path = text.strip_prefix("pub(").and_then(|rest| rest.strip_suffix(')'));
    match path.map(|path| path.strip_prefix("in").filter(|rest| !rest.is_empty()).unwrap_or(path)) {
        None if text.is_empty() => quote!(pub(super)),
        None => quote!(pub),
        Some("self") => quote!(pub(super)),
        Some(path) if path.starts_with("super") => {
            let path: TokenStream = path.parse().unwrap_or_default();
            quote!(pub(in super::#path))
        }
        Some(_) => outside.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_sees_as_far_as_what_stands_beside_it() {
        let cases = [
            ("", "pub(super)"),
            ("pub", "pub"),
            ("pub(self)", "pub(super)"),
            ("pub(crate)", "pub(crate)"),
            ("pub(super)", "pub(in super::super)"),
            ("pub(in super::super)", "pub(in super::super::super)"),
            ("pub(in crate::a)", "pub(in crate::a)"),
        ];
        for (outside, inside) in cases {
            let tokens = |text: &str| text.parse::<TokenStream>().expect("tokens");
            assert_eq!(visibility_inside(&tokens(outside)).to_string(), tokens(inside).to_string(), "{outside}");
        }
    }
}
