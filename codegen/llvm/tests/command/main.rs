//! The command `oplus`, as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

/// A crate's source with an operator of its own.
const SOURCE: &str = "
use oplus::scan;

scan! {
    /// Running product of 1 + r.
    pub op Compound(g) {
        identity (1);
        combine(l, r) (l.g * r.g);
    }

    pub fn growth(r: [B, T]) -> (g: [B, T]) {
        g = scan(T, Compound(1 + r)).g;
    }
}
";

fn oplus(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_oplus")).args(arguments).output().expect("the command runs")
}

/// The output of a command that succeeds.
#[track_caller]
fn succeed(arguments: &[&str]) -> String {
    let output = oplus(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a command that fails.
#[track_caller]
fn fail(arguments: &[&str]) -> String {
    let output = oplus(arguments);
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn baking_writes_a_folder_that_stays_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("src"), folder.path().join("kernels"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("lib.rs"), SOURCE).unwrap();
    let bake = ["bake", "--source", text(&source), "--out", text(&out), "--elem", "f32", "--isa", "sm_80"];
    let said = succeed(&bake);
    let manifest = std::fs::read_to_string(out.join("manifest.toml")).unwrap();
    let kernels = manifest.matches("[[kernel]]").count();
    assert!(kernels > 2 && said.starts_with(&format!("{kernels} kernels, ")), "{said}");
    assert!(manifest.contains("program = \"growth\"") && manifest.contains("program = \"growth.bar\""), "{manifest}");
    assert_eq!(std::fs::read_dir(out.join("ptx")).unwrap().count(), kernels);
    let table = std::fs::read_to_string(out.join("table.rs")).unwrap();
    assert_eq!(table.matches("include_str!(\"ptx/growth").count(), kernels);
    assert!(succeed(&bake).contains(", 0 files changed"));
}

#[test]
fn explaining_shows_equations_plan_and_ptx() {
    let text = succeed(&["explain", "cumsum", "--shape", "B=4,T=1000", "--isa", "sm_80"]);
    for what in ["cumsum", "cumsum.bar", "launch 1: rows(", "PTX instructions:", " µs "] {
        assert!(text.contains(what), "no `{what}` in\n{text}");
    }
}

#[test]
fn mistakes_say_what_to_do() {
    let missing = fail(&["explain", "cumsun", "--shape", "B=4,T=1000"]);
    assert!(missing.contains("no kernel `cumsun`; there are") && missing.contains("cumsum"), "{missing}");
    let axis = fail(&["explain", "cumsum", "--shape", "B=4"]);
    assert!(axis.contains("--shape lacks axis T"), "{axis}");
    let size = fail(&["explain", "cumsum", "--shape", "B"]);
    assert!(size.contains("such as L=4096"), "{size}");
    let nothing = fail(&["bake", "--out", "unused"]);
    assert!(nothing.contains("--source, --manifest-path or --kernel"), "{nothing}");
    let folder = tempfile::tempdir().unwrap();
    let empty = fail(&["bake", "--source", text(folder.path()), "--out", "unused"]);
    assert!(empty.contains("no kernel in any `scan!` block"), "{empty}");
    let receipts = fail(&["receipts", "no-such-file", "--out", text(folder.path())]);
    assert!(receipts.contains("no-such-file"), "{receipts}");
}
