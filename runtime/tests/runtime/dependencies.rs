//! A default build needs no LLVM and no CUDA toolkit.

use std::process::Command;

/// The packages or features that a build of this crate depends on, as `cargo tree` lists them.
fn tree(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "oplus", "--edges", "normal,build", "--prefix", "none"])
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn has(tree: &str, package: &str) -> bool {
    tree.lines().any(|line| line.split_whitespace().next() == Some(package))
}

#[test]
fn a_default_build_has_no_llvm() {
    let default = tree(&[]);
    assert!(has(&default, "cudarc"), "{default}");
    for package in ["inkwell", "llvm-sys", "oplus-llvm"] {
        assert!(!has(&default, package), "a default build depends on {package}");
    }
    assert!(has(&tree(&["--features", "jit"]), "llvm-sys"));
}

#[test]
fn the_cuda_driver_is_loaded_at_run_time_unless_another_crate_links_it_and_nothing_else_of_cuda_is_used() {
    let features = tree(&["--format", "{p} {f}"]);
    let cudarc = features.lines().find(|line| line.starts_with("cudarc ")).unwrap();
    let features: Vec<&str> = cudarc.split([' ', ',']).collect();
    // Another crate of the same program may ask for another way of linking and for bindings of another version.
    for wanted in ["driver", "fallback-dynamic-loading", "cuda-version-from-build-system", "fallback-latest"] {
        assert!(features.contains(&wanted), "cudarc lacks the feature {wanted}: {cudarc}");
    }
    let settles = |feature: &&str| feature.strip_prefix("cuda-").is_some_and(|v| v.starts_with(char::is_numeric));
    assert_eq!(features.iter().find(|feature| settles(feature)), None, "{cudarc}");
    for toolkit in ["dynamic-loading", "dynamic-linking", "static-linking", "nvrtc", "runtime", "cublas"] {
        assert!(!features.contains(&toolkit), "cudarc has the feature {toolkit}");
    }
}
