//! `table.rs`: the kernels as a constant of a Rust program.

use super::{Entry, Manifest};
use std::collections::BTreeMap;

/// The table of a folder of PTX texts, in that folder.
pub(super) fn of_texts(manifest: &Manifest, seals: &BTreeMap<String, String>) -> String {
    let seal = |e: &Entry| seals.get(&e.key).map(String::as_str).unwrap_or_default();
    table(manifest, "seal and PTX", "&str, &str", |e| format!("\"{}\", include_str!(\"{}\")", seal(e), e.file))
}

/// The table of the crate of compressed PTX and machine code, in its folder of sources.
pub(super) fn of_packed(manifest: &Manifest) -> String {
    let bytes = |file: &str| format!("include_bytes!(\"../{file}\")");
    let cubin = |e: &Entry| e.cubin.as_ref().map_or("&[]".to_owned(), |cubin| bytes(&cubin.file));
    table(manifest, "PTX and machine code", "&[u8], &[u8]", |e| format!("{}, {}", bytes(&e.file), cubin(e)))
}

/// The kernels of a manifest, ascending by key.
fn table(manifest: &Manifest, what: &str, types: &str, include: impl Fn(&Entry) -> String) -> String {
    let mut kernels: Vec<&Entry> = manifest.kernel.iter().collect();
    kernels.sort_unstable_by_key(|e| &e.key);
    let mut text = format!("// Written by `oplus`, not by hand: key, {what} of every kernel, ascending.\n\n");
    text.push_str(&format!("#[rustfmt::skip]\npub(crate) static KERNELS: &[(&str, {types})] = &[\n"));
    for entry in kernels {
        text.push_str(&format!("    (\"{}\", {}),\n", entry.key, include(entry)));
    }
    text.push_str("];\n");
    text
}

#[cfg(test)]
mod tests {
    use super::super::manifest::tests::entry;
    use super::*;

    #[test]
    fn keys_ascend() {
        let mut first = entry("b", "");
        first.program = "affine".into();
        let table = of_packed(&Manifest::new(vec![first, entry("a", "")]));
        let rows: Vec<&str> = table.lines().filter(|l| l.contains("include_bytes")).collect();
        let row = |key| format!("    (\"{key}\", include_bytes!(\"../ptx/{key}.sm_80.ptx\"), &[]),");
        assert_eq!(rows, [row("a"), row("b")]);
    }
}
