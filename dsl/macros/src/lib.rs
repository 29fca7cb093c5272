//! The macro `scan!` of oplus. All of its work is done by the crate `oplus-front`; use it through `oplus`.

use proc_macro::TokenStream;

/// Recurrences as equations over named axes.
///
/// A block declares associative operators (`op`), helper functions (`fn` without types) and kernels (`fn` with types). The
/// language is described in the crate `oplus-front`; its standard operators, kernels and models in the modules `operators`,
/// `kernels` and `models` of `oplus`.
///
/// For a kernel `ema` the block expands to a function `ema`, the structs `Ema` of its inputs and `EmaOutput` of its
/// outputs, `EmaCotangents` and `EmaGradients` for the method `EmaOutput::backward` where there is a gradient, and a module
/// `ema` with `kernel()` and `explain()`, and there `gradient()`, the gradient as a kernel, with `EmaGradientsCotangents` for its own. Where the state goes in by a parameter and out by an output, the module also has
/// the kernel's one-step form for decoding: `ema::step`, `ema::Step`, `ema::StepOutput` and so on. An operator expands to a unit type that documents it.
#[proc_macro]
pub fn scan(tokens: TokenStream) -> TokenStream {
    oplus_front::expand(tokens.into()).into()
}

/// The modules of the standard operators, kernels and models, for the crate `oplus` itself.
#[doc(hidden)]
#[proc_macro]
pub fn standard(_: TokenStream) -> TokenStream {
    oplus_front::expand_standard().into()
}

/// `scan!` for the tensors of a framework: the macro of an adapter crate, which puts its path in brackets before the block.
#[doc(hidden)]
#[proc_macro]
pub fn scan_for(tokens: TokenStream) -> TokenStream {
    oplus_front::expand_for(tokens.into()).into()
}

/// The modules of the standard kernels and models for the tensors of a framework, for its adapter crate.
#[doc(hidden)]
#[proc_macro]
pub fn standard_for(tokens: TokenStream) -> TokenStream {
    oplus_front::expand_standard_for(tokens.into()).into()
}
