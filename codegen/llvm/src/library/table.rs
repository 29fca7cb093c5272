//! `table.rs`: the kernels as a constant of a Rust program.

use super::Manifest;

/// The table of a manifest, ascending by key. `prefix` leads from the table's folder to the manifest's.
pub(super) fn text(manifest: &Manifest, prefix: &str) -> String {
    let mut kernels: Vec<(&str, &str)> = manifest.kernel.iter().map(|e| (e.key.as_str(), e.file.as_str())).collect();
    kernels.sort_unstable();
    let mut text = String::from("// Written by `oplus`, not by hand: key and PTX of every kernel, ascending.\n\n");
    text.push_str("pub(crate) static KERNELS: &[(&str, &str)] = &[\n");
    for (key, file) in kernels {
        text.push_str(&format!("    (\"{key}\", include_str!(\"{prefix}{file}\")),\n"));
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
        let table = text(&Manifest::new(vec![first, entry("a", "")]), "../");
        let rows: Vec<&str> = table.lines().filter(|l| l.contains("include_str")).collect();
        let row = |key| format!("    (\"{key}\", include_str!(\"../ptx/{key}.sm_80.ptx\")),");
        assert_eq!(rows, [row("a"), row("b")]);
    }
}
