//! `table.rs` of a folder of PTX texts: the kernels as a constant of a Rust program.

use super::Manifest;

/// The table, in that folder: pairs of key and text, ascending.
pub(super) fn table(manifest: &Manifest) -> String {
    let mut kernels: Vec<_> = manifest.kernel.iter().map(|e| (&e.key, &e.file)).collect();
    kernels.sort_unstable();
    let row = |(key, file): (&String, &String)| format!("    (\"{key}\", include_str!(\"{file}\")),\n");
    let rows: String = kernels.into_iter().map(row).collect();
    format!(
        "// Written by `oplus`, not by hand: key and PTX of every kernel, ascending.\n\n#[rustfmt::skip]\n\
         pub(crate) static KERNELS: &[(&str, &str)] = &[\n{rows}];\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::manifest::tests::entry;
    use super::*;

    #[test]
    fn keys_ascend() {
        let mut first = entry("b", "");
        first.program = "affine".into();
        let table = table(&Manifest::new(vec![first, entry("a", "")]));
        let rows: Vec<&str> = table.lines().filter(|l| l.contains("include_str")).collect();
        assert_eq!(rows, ["a", "b"].map(|key| format!("    (\"{key}\", include_str!(\"ptx/{key}.sm_80.ptx\")),")));
    }
}
