//! The items of a kernel: structs of its tensors, the function, its gradient, and a module beside it.

mod gradient;

use oplus_dsl::Elem;
use oplus_dsl::ir::Program;
use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::docs::{self, Doc};
use super::{Framework, ident, step, unused};
use crate::generated::Generated;
use crate::syntax::{KernelItem, TensorItem};

/// All items of a kernel and of its one-step form; without a program they have the same names and types.
pub(super) fn items(item: &KernelItem, program: Option<&Program>, framework: &Framework) -> TokenStream {
    let step = program.map(oplus_dsl::step::step);
    let items = match &step {
        None => step::items(item, None, framework),
        Some(Ok(step)) => step::items(item, Some(step), framework),
        Some(Err(_)) => TokenStream::new(),
    };
    let about_step = step.map(|step| docs::one_step(item, &step)).unwrap_or_default();
    of_one(item, program, Inside { about_step: &about_step, items, is_step: false }, framework)
}

/// The parts of a kernel's expansion that belong to its one-step form.
pub(super) struct Inside<'a> {
    /// A section of its documentation.
    pub(super) about_step: &'a str,
    /// Items in its module.
    pub(super) items: TokenStream,
    /// Whether the kernel is itself such a form, which is not divided over ranks.
    pub(super) is_step: bool,
}

/// The items of one kernel.
pub(super) fn of_one(
    item: &KernelItem,
    program: Option<&Program>,
    inside: Inside<'_>,
    framework: &Framework,
) -> TokenStream {
    let docs = docs::kernel(item, program, inside.about_step);
    let call = unused("call", &item.outputs);
    let is_divisible = matches!(framework, Framework::Oplus) && !inside.is_step;
    let names = Generated::of(&item.name);
    let kernel = Kernel { item, names, call, docs: &docs, inner: inside.items, framework, is_divisible };
    let parts = [kernel.inputs(), kernel.output(), kernel.function(), kernel.module(program)];
    let gradient = kernel.has_gradient().then(|| kernel.gradient());
    let sharded = is_divisible.then(|| kernel.sharded());
    parts.into_iter().chain(gradient).chain(sharded).collect()
}

struct Kernel<'a> {
    item: &'a KernelItem,
    names: Generated,
    /// The private field that remembers the call.
    call: Ident,
    docs: &'a docs::Kernel,
    /// Items of its one-step form.
    inner: TokenStream,
    framework: &'a Framework,
    /// Whether it can be called on several ranks.
    is_divisible: bool,
}

impl Kernel<'_> {
    /// The floating-point ones of some tensors.
    fn floats(tensors: &[TensorItem]) -> Vec<&TensorItem> {
        tensors.iter().filter(|tensor| tensor.elem.is_float()).collect()
    }

    /// The type of a tensor.
    fn tensor(&self, tensor: &TensorItem, may_be_absent: bool) -> TokenStream {
        let ty = self.framework.tensor(tensor);
        if may_be_absent { quote!(::core::option::Option<#ty>) } else { ty }
    }

    fn shared(&self) -> TokenStream {
        super::attributes(&self.item.head).1
    }

    /// A struct with these fields.
    fn structure(&self, name: &Ident, doc: &Doc, derive: &TokenStream, fields: &[TokenStream]) -> TokenStream {
        let (visibility, shared) = (&self.item.head.visibility, self.shared());
        quote! {
            #shared
            #doc
            #[allow(dead_code)]
            #[derive(#derive)]
            #visibility struct #name { #(#fields,)* }
        }
    }

    /// The struct of the inputs.
    fn inputs(&self) -> TokenStream {
        let field = |param: &TensorItem| {
            let (name, doc, ty) = (ident(&param.name), docs::param(param), self.tensor(param, param.default.is_some()));
            quote! { #doc pub #name: #ty }
        };
        let fields: Vec<_> = self.item.params.iter().map(field).collect();
        self.structure(&self.names.inputs, &docs::about("inputs of", self.item), &derives(false), &fields)
    }

    /// The struct of the outputs.
    fn output(&self) -> TokenStream {
        let field = |output: &TensorItem| {
            let (name, doc, ty) = (ident(&output.name), docs::tensor(output), self.tensor(output, false));
            quote! { #doc pub #name: #ty }
        };
        let call = &self.call;
        let call = matches!(self.framework, Framework::Oplus).then(|| quote!(#call: ::oplus::Call));
        let fields: Vec<_> = self.item.outputs.iter().map(field).chain(call).collect();
        self.structure(&self.names.output, &docs::output(self.item, self.docs), &derives(false), &fields)
    }

    /// The function.
    fn function(&self) -> TokenStream {
        let (attributes, shared) = super::attributes(&self.item.head);
        let (visibility, name) = (&self.item.head.visibility, &self.item.name.ident);
        let (inputs, output, error) = (&self.names.inputs, &self.names.output, self.framework.error());
        let (given, kernel, doc) = (self.all_given(), &self.item.name.ident, &self.docs.function);
        let body = match self.framework {
            _ if self.is_divisible => {
                quote!(::oplus::dist::Inputs::call_by(inputs, &|inputs| #kernel::kernel().call(inputs)))
            }
            Framework::Oplus => self.body(&quote!(let (outputs, call) = #kernel::kernel().call(#given)?;)),
            Framework::Adapter(path) => {
                self.body(&quote!(let outputs = #path::expand::call(#kernel::kernel(), #given)?;))
            }
        };
        quote! {
            #shared
            #attributes
            #doc
            #[allow(dead_code)]
            #visibility fn #name(inputs: #inputs) -> ::core::result::Result<#output, #error> { #body }
        }
    }

    /// The body of a function that makes one call with the inputs: it gives the outputs by their names.
    fn body(&self, make: &TokenStream) -> TokenStream {
        let (output, call) = (&self.names.output, &self.call);
        let (count, tensors) = (self.item.outputs.len(), numbered(self.item.outputs.len()));
        let ty = self.framework.called();
        let field = |(item, tensor): (&TensorItem, &Ident)| {
            let name = ident(&item.name);
            match self.framework {
                Framework::Oplus => quote!(#name: #tensor),
                Framework::Adapter(path) => quote!(#name: #path::expand::output(#tensor)),
            }
        };
        let call = matches!(self.framework, Framework::Oplus).then(|| quote!(#call: call));
        let fields = self.item.outputs.iter().zip(&tensors).map(field).chain(call);
        quote! {
            #make
            let ::core::result::Result::Ok([#(#tensors),*]) =
                <[#ty; #count] as ::core::convert::TryFrom<_>>::try_from(outputs)
            else {
                ::core::unreachable!("a kernel gives one tensor per output")
            };
            ::core::result::Result::Ok(#output { #(#fields,)* })
        }
    }

    /// All parameters as they are given to the call.
    fn all_given(&self) -> TokenStream {
        let given = self.item.params.iter().map(|param| self.given(param));
        quote!(&[#(#given),*])
    }

    /// Calls with the inputs, on this device or as a rank among several.
    fn sharded(&self) -> TokenStream {
        let (name, shared) = (&self.item.name.ident, self.shared());
        let (inputs, output, given) = (&self.names.inputs, &self.names.output, self.all_given());
        let body = self.body(&quote!(let (outputs, call) = call(#given)?;));
        quote! {
            #shared
            impl ::oplus::dist::Inputs for #inputs {
                type Kernel = #name::Sharded;
                type Output = #output;
                fn call_by(self, call: ::oplus::dist::By<'_>) -> ::core::result::Result<#output, ::oplus::Error> {
                    let inputs = self;
                    #body
                }
            }
        }
    }

    /// In the module of the kernel's name, the way to its calls among several ranks.
    fn sharded_in_module(&self) -> Option<TokenStream> {
        self.is_divisible.then(|| quote! {
            /// The kernel, as the type of its inputs names it.
            pub enum Sharded {}

            /// The call of this rank, with its part of the inputs: tensors that have the axis are divided along it over the
            /// ranks of the group.
            ///
            /// # Errors
            /// The errors of a plain call; a kernel that cannot be divided along the axis, ranks that disagree, and a rank that is lost.
            pub fn sharded<'g, Inputs: ::oplus::dist::Inputs<Kernel = Sharded>>(
                group: &'g ::oplus::dist::Group,
                axis: &'g ::core::primitive::str,
            ) -> impl ::core::ops::Fn(Inputs) -> ::core::result::Result<Inputs::Output, ::oplus::Error> + use<'g, Inputs> {
                move |inputs| inputs.call_by(&|inputs| KERNEL.call_sharded(group, axis, inputs))
            }
        })
    }

    /// A parameter as it is given to the call.
    fn given(&self, param: &TensorItem) -> TokenStream {
        let name = ident(&param.name);
        match (self.framework, param.default.is_some()) {
            (Framework::Oplus, true) => quote!(inputs.#name.as_ref()),
            (Framework::Oplus, false) => quote!(::core::option::Option::Some(&inputs.#name)),
            (Framework::Adapter(path), true) => quote!(inputs.#name.as_ref().map(#path::expand::input)),
            (Framework::Adapter(path), false) => {
                quote!(::core::option::Option::Some(#path::expand::input(&inputs.#name)))
            }
        }
    }

    /// The module of the kernel's name.
    fn module(&self, program: Option<&Program>) -> TokenStream {
        let (visibility, name, shared) = (&self.item.head.visibility, &self.item.name.ident, self.shared());
        let text = program.map(ToString::to_string).unwrap_or_default();
        let kernel = program.map_or(&self.item.name.text, |program| &program.name);
        let (doc, inner) = (docs::about("program and the plans of", self.item), &self.inner);
        let oplus = self.framework.oplus();
        let (sharded, gradient) = (self.sharded_in_module(), self.gradient_in_module());
        quote! {
            #shared
            #doc
            #[allow(dead_code)]
            #visibility mod #name {
                static KERNEL: #oplus::Kernel = #oplus::Kernel::new(#kernel, TEXT);

                /// The program in its text form.
                pub const TEXT: &str = #text;

                /// The kernel, to be called with tensors in the order of its parameters.
                pub fn kernel() -> &'static #oplus::Kernel {
                    &KERNEL
                }

                /// Explains a call of these shapes: equations, gradient, and the plan with its reasons.
                ///
                /// # Errors
                /// When the shapes are incomplete or no plan fits them.
                pub fn explain(shapes: &#oplus::Shapes) -> ::core::result::Result<#oplus::Explanation, #oplus::Error> {
                    KERNEL.explain(shapes)
                }

                #sharded

                #gradient

                #inner
            }
        }
    }
}

/// Names for tensors in patterns: those of the block might mean constants or unit structs of the user's there.
fn numbered(count: usize) -> Vec<Ident> {
    (0..count).map(|k| quote::format_ident!("tensor_{k}")).collect()
}

/// The traits that a struct of tensors derives.
fn derives(default: bool) -> TokenStream {
    let default = default.then(|| quote!(, ::core::default::Default));
    quote!(::core::clone::Clone, ::core::fmt::Debug #default)
}

/// Whether a kernel without a program would have a gradient.
pub(super) fn may_have_gradient(item: &KernelItem) -> bool {
    let any = |tensors: &[TensorItem]| tensors.iter().any(|tensor: &TensorItem| Elem::is_float(tensor.elem));
    any(&item.params) && any(&item.outputs)
}
