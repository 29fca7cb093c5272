//! The names of the Rust items that a kernel generates.

use quote::format_ident;

use crate::syntax::Name;

/// The items of one kernel: for `selective_scan`, `SelectiveScan`, `SelectiveScanOutput` and so on.
pub(crate) struct Generated {
    /// The struct of the inputs.
    pub(crate) inputs: proc_macro2::Ident,
    /// The struct of the outputs.
    pub(crate) output: proc_macro2::Ident,
    /// The struct of the outputs' cotangents.
    pub(crate) cotangents: proc_macro2::Ident,
    /// The struct of the inputs' gradients.
    pub(crate) gradients: proc_macro2::Ident,
    /// The struct of these gradients' cotangents.
    pub(crate) gradients_cotangents: proc_macro2::Ident,
}

impl Generated {
    /// The items of a kernel; they stand where its name stands.
    pub(crate) fn of(kernel: &Name) -> Generated {
        let (base, span) = (camel_case(&kernel.text), kernel.ident.span());
        Generated {
            inputs: format_ident!("{base}", span = span),
            output: format_ident!("{base}Output", span = span),
            cotangents: format_ident!("{base}Cotangents", span = span),
            gradients: format_ident!("{base}Gradients", span = span),
            gradients_cotangents: format_ident!("{base}GradientsCotangents", span = span),
        }
    }

    /// All names that the kernel takes in Rust's namespace of types: its structs and its module.
    pub(crate) fn types(kernel: &Name) -> Vec<String> {
        let items = Generated::of(kernel);
        let structs = [items.inputs, items.output, items.cotangents, items.gradients, items.gradients_cotangents];
        structs.iter().map(ToString::to_string).chain([kernel.text.clone()]).collect()
    }
}

/// `SelectiveScan` for `selective_scan`. A name without letters gets one in front.
fn camel_case(name: &str) -> String {
    let words = name.split('_').filter(|word| !word.is_empty());
    let camel: String = words
        .flat_map(|word| {
            let mut chars = word.chars();
            let first = chars.next().into_iter().flat_map(char::to_uppercase);
            first.chain(chars).collect::<Vec<char>>()
        })
        .collect();
    if camel.starts_with(|c: char| c.is_alphabetic()) { camel } else { format!("K{camel}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types_are_in_camel_case() {
        assert_eq!(camel_case("selective_scan"), "SelectiveScan");
        assert_eq!(camel_case("ema"), "Ema");
        assert_eq!(camel_case("_x2_y"), "X2Y");
        assert_eq!(camel_case("_2"), "K2");
        assert_eq!(camel_case("__"), "K");
    }
}
