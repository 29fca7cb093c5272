//! A default build needs no LLVM and no CUDA toolkit.
//!
//! The tests ask cargo without a network, and only for what a default build has downloaded: they run in a fresh clone,
//! where the packages of the feature `jit` are not there.

use std::process::Command;

/// The output of cargo for a command about this crate.
fn cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(args)
        .args(["--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The packages that a default build of this crate depends on, in a format of `cargo tree`.
fn tree(format: &str) -> String {
    cargo(&["tree", "--package", "oplus", "--edges", "normal,build", "--prefix", "none", "--format", format])
}

fn has(tree: &str, package: &str) -> bool {
    tree.lines().any(|line| line.split_whitespace().next() == Some(package))
}

#[test]
fn a_default_build_has_no_llvm() {
    let default = tree("{p}");
    assert!(has(&default, "cudarc"), "{default}");
    for package in ["inkwell", "llvm-sys", "oplus-llvm"] {
        assert!(!has(&default, package), "a default build depends on {package}");
    }
}

#[test]
fn the_feature_jit_brings_the_compiler() {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let (oplus, compiler) = (package(&metadata, "oplus"), package(&metadata, "oplus-llvm"));
    assert_eq!(oplus["features"]["jit"], serde_json::json!(["gpu", "dep:oplus-llvm"]));
    assert_eq!(dependency(oplus, "oplus-llvm")["optional"], true);
    assert_eq!(dependency(compiler, "inkwell")["optional"], false);
}

/// Items for GPUs alone say so: kernels without the feature `gpu` would be a program's and of no use to it.
#[test]
fn kernels_bring_the_feature_gpu_and_the_adapters_leave_the_choice_to_their_users() {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let features = &package(&metadata, "oplus")["features"];
    assert_eq!(features["default"], serde_json::json!(["kernels-sm90"]));
    assert_eq!(features["kernels-sm90"], serde_json::json!(["kernels", "dep:oplus-kernels-sm90"]));
    assert_eq!(features["kernels"], serde_json::json!(["gpu", "dep:oplus-kernels"]));
    for adapter in ["oplus-candle", "oplus-burn"] {
        let oplus = dependency(package(&metadata, adapter), "oplus");
        assert_eq!((&oplus["uses_default_features"], &oplus["features"]), (&false.into(), &serde_json::json!([])));
    }
}

/// A package of the workspace, as `cargo metadata` describes it.
fn package<'a>(metadata: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().find(|package| package["name"] == name).unwrap_or_else(|| panic!("no package {name}"))
}

/// A dependency of a package that is not for its tests.
fn dependency<'a>(package: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let dependencies = package["dependencies"].as_array().unwrap();
    let found = dependencies.iter().find(|d| d["name"] == name && d["kind"].is_null());
    found.unwrap_or_else(|| panic!("no dependency {name}"))
}

#[test]
fn the_cuda_driver_is_loaded_at_run_time_unless_another_crate_links_it_and_nothing_else_of_cuda_is_used() {
    let features = tree("{p} {f}");
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
