//! The tokens of a `scan!` block: whatever they are, the expansion is Rust items.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proc_macro2::TokenStream;

fuzz_target!(|text: &str| {
    let Ok(tokens) = text.parse::<TokenStream>() else { return };
    let expansion = oplus_front::expand(tokens);
    assert!(syn::parse2::<syn::File>(expansion).is_ok(), "the expansion is not Rust");
});
