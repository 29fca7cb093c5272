//! `table.rs` of a folder of PTX texts: the kernels as a constant of a Rust program.

use super::Manifest;
use std::collections::BTreeMap;

/// The table, in that folder: key, seal and text of every kernel, ascending. `seals` are found by key.
pub(super) fn table(manifest: &Manifest, seals: &BTreeMap<String, String>) -> String {
    let mut kernels: Vec<_> = manifest.kernel.iter().map(|e| (&e.key, &e.file)).collect();
    kernels.sort_unstable();
    let row = |(key, file): (&String, &String)| {
        let seal = seals.get(key).map(String::as_str).unwrap_or_default();
        format!("    (\"{key}\", \"{seal}\", include_str!(\"{file}\")),\n")
    };
    let rows: String = kernels.into_iter().map(row).collect();
    format!(
        "// Written by `oplus`, not by hand: key, seal and PTX of every kernel, ascending.\n\n#[rustfmt::skip]\n\
         pub(crate) static KERNELS: &[(&str, &str, &str)] = &[\n{rows}];\n"
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
        let table = table(
            &Manifest::new(vec![first, entry("a", "")]),
            &[("a", "1"), ("b", "2")].map(|(k, s)| (k.into(), s.into())).into(),
        );
        let rows: Vec<&str> = table.lines().filter(|l| l.contains("include_str")).collect();
        assert_eq!(
            rows,
            [("a", "1"), ("b", "2")]
                .map(|(key, seal)| format!("    (\"{key}\", \"{seal}\", include_str!(\"ptx/{key}.sm_80.ptx\")),"))
        );
    }
}
