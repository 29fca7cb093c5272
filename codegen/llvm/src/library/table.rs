//! `table.rs`: the kernels as a constant of a Rust program.

use super::Manifest;

/// The table of a folder of PTX texts, in that folder.
pub(super) fn of_texts(manifest: &Manifest) -> String {
    table(manifest, "&str", |file| format!("include_str!(\"{file}\")"))
}

/// The table of the crate of compressed PTX, in its folder of sources.
pub(super) fn of_packed(manifest: &Manifest) -> String {
    table(manifest, "&[u8]", |file| format!("include_bytes!(\"../{file}\")"))
}

/// The kernels of a manifest, ascending by key.
fn table(manifest: &Manifest, ty: &str, include: impl Fn(&str) -> String) -> String {
    let mut kernels: Vec<(&str, &str)> = manifest.kernel.iter().map(|e| (e.key.as_str(), e.file.as_str())).collect();
    kernels.sort_unstable();
    let mut text = String::from("// Written by `oplus`, not by hand: key and PTX of every kernel, ascending.\n\n");
    text.push_str(&format!("#[rustfmt::skip]\npub(crate) static KERNELS: &[(&str, {ty})] = &[\n"));
    for (key, file) in kernels {
        text.push_str(&format!("    (\"{key}\", {}),\n", include(file)));
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
        let row = |key| format!("    (\"{key}\", include_bytes!(\"../ptx/{key}.sm_80.ptx\")),");
        assert_eq!(rows, [row("a"), row("b")]);
    }
}
