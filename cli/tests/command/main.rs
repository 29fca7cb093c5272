//! The command `oplus`, as a user runs it.

mod tile;
mod tune;

use oplus_codegen::plan::{Call, PlanError, Planner};
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::shard::shard;
use oplus_dsl::specialize::for_call;
use oplus_dsl::step::step;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output, Stdio};

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

/// Bakes without `ptxas`, which would take most of the time. The tests that call this compare keys, which it does not change.
#[track_caller]
fn bake_unchecked(arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oplus"));
    let output = command.args(arguments).env("PATH", "").env_remove("OPLUS_PTXAS").output().expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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

/// A crate's source with a state that goes in and out.
const STATEFUL: &str = "
oplus::scan! {
    pub fn readout(x: [B, T], a: [B, N, T], c: [B, N, T], h0: state[B, N] = 0) -> (y: [B, T], h_last: state[B, N]) {
        let h = scan(T, Affine(exp(a), x), init = h0).b;
        y = sum(N, c * h);
        h_last = last(T, h);
    }
}
";

/// The keys of the kernels in a baked folder.
fn keys(folder: &Path) -> BTreeSet<String> {
    let manifest: toml::Table = std::fs::read_to_string(folder.join("manifest.toml")).unwrap().parse().unwrap();
    let kernels = manifest["kernel"].as_array().unwrap();
    kernels.iter().map(|entry| entry["key"].as_str().unwrap().to_owned()).collect()
}

/// The keys of a call's kernels, with contiguous tensors.
fn keys_of_call(program: &Program, size: i64, planner: PlannerOf) -> Vec<String> {
    let sizes: Vec<i64> = (size..).take(program.axes.len()).collect();
    let call = Call::contiguous(program, &sizes);
    let planner = planner(program, &Target { isa: Isa::Sm80, ..Target::H200 }).unwrap();
    planner.plan(&call).unwrap().steps.iter().map(|launch| launch.key.to_string()).collect()
}

type PlannerOf = fn(&Program, &Target) -> Result<Planner, PlanError>;

/// Calls, single steps and their gradients, with all that may be left out and without.
#[test]
fn baking_in_order_covers_calls_and_steps() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("lib.rs"), folder.path().join("kernels"));
    std::fs::write(&source, STATEFUL).unwrap();
    let bake = ["bake", "--source", text(&source), "--out", text(&out), "--elem", "f32", "--isa", "sm_80"];
    bake_unchecked(&bake);
    let plain = keys(&out);
    bake_unchecked(&[&bake[..], &["--ordered"]].concat());
    let baked = keys(&out);
    assert!(plain.is_subset(&baked));
    let whole = oplus_front::scan_source_file(STATEFUL).unwrap().remove(0);
    let one = step(&whole).unwrap().program;
    let mut needed = BTreeSet::new();
    for program in [&whole, &adjoint(&whole).unwrap(), &one, &adjoint(&one).unwrap()] {
        let wanted: Vec<&str> = program.outputs.iter().map(|o| o.name.as_str()).collect();
        let full = for_call(program, Elem::F32, &wanted, &[]);
        needed.extend([1, 3, 300].into_iter().flat_map(|size| keys_of_call(&full, size, Planner::ordered)));
        let wanted: Vec<&str> = wanted.into_iter().filter(|name| *name != "h0.bar").collect();
        let lean = for_call(program, Elem::F32, &wanted, &["h0"]);
        needed.extend(keys_of_call(&lean, 5, Planner::ordered));
    }
    let missing: Vec<&String> = needed.difference(&baked).collect();
    assert!(missing.is_empty() && !needed.is_subset(&plain), "{missing:?} of {needed:?}");
}

/// The programs of shards and of folds, forward and backward.
#[test]
fn baking_along_an_axis_covers_the_calls_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("lib.rs"), folder.path().join("kernels"));
    std::fs::write(&source, STATEFUL).unwrap();
    let bake = ["bake", "--source", text(&source), "--out", text(&out), "--elem", "f32", "--isa", "sm_80", "--sharded"];
    bake_unchecked(&[&bake[..], &["T"]].concat());
    let whole = oplus_front::scan_source_file(STATEFUL).unwrap().remove(0);
    let mut needed = BTreeSet::new();
    for program in [&whole, &adjoint(&whole).unwrap()] {
        for phase in shard(program, "T").unwrap().phases {
            for own in phase.folds.iter().map(|fold| &fold.program).chain(&phase.program) {
                let wanted: Vec<&str> = own.outputs.iter().map(|o| o.name.as_str()).collect();
                let full = for_call(own, Elem::F32, &wanted, &[]);
                needed.extend([2, 300].into_iter().flat_map(|size| keys_of_call(&full, size, Planner::new)));
            }
        }
    }
    let baked = keys(&out);
    let missing: Vec<&String> = needed.difference(&baked).collect();
    assert!(missing.is_empty() && needed.len() > 6, "{missing:?} of {needed:?}");
    let unknown = fail(&[&bake[..], &["L"]].concat());
    assert!(unknown.contains("no kernel has the axis L"), "{unknown}");
}

#[test]
fn explaining_shows_equations_plan_and_ptx() {
    let text = succeed(&["explain", "cumsum", "--shape", "B=4,T=1000", "--isa", "sm_80"]);
    for what in ["y[t] = y[t−1] + x[t]", "x̄[t] =", "  ✓ ", "rows(warps=", "PTX instructions:", " µs "] {
        assert!(text.contains(what), "no `{what}` in\n{text}");
    }
}

/// Blocks have fewer rows where they may have less shared memory than on an A100.
#[test]
fn explain_plans_for_the_shared_memory_of_a_device() {
    let call = ["explain", "mamba", "--shape", "B=2,D=256,G=1,N=64,T=8192", "--isa", "sm_80"];
    let warps = |memory: &[&str]| {
        let text = succeed(&[&call, memory].concat());
        let taken = text.lines().find(|line| line.contains('✓') && line.contains("state_space_backward("));
        let (_, after) = taken.and_then(|line| line.split_once(" warps=")).unwrap_or_else(|| panic!("{text}"));
        after.split(',').next().map(str::to_owned)
    };
    assert_eq!(warps(&[]).as_deref(), Some("4"));
    assert_eq!(warps(&["--shared-memory", "101376"]).as_deref(), Some("2"));
    let error = fail(&[&call[..], &["--shared-memory", "much"]].concat());
    assert!(error.contains("much"), "{error}");
}

/// As in `oplus explain … | head -1`.
#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oplus"));
    command.args(["explain", "affine", "--shape", "B=4,T=1000"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The plan of this machine's CPU stands behind the launches of both programs.
#[test]
fn explain_tells_what_the_cpu_does() {
    let text = succeed(&["explain", "affine", "--shape", "B=4,T=1000"]);
    let (forward, gradient) = text.split_once("gradient: ").expect("a gradient");
    assert!(forward.contains("on the CPU\n\nwalk 1: a, b, h0 → h, h_last\n"), "{forward}");
    assert!(forward.contains("states along T from the first index to the last"), "{forward}");
    assert!(
        gradient.contains("on the CPU\n\nwalk 1: ") && gradient.contains("from the last index to the first"),
        "{gradient}"
    );
}

#[test]
fn a_page_holds_both_passes_and_the_ptx_and_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    succeed(&["explain", "affine", "--shape", "B=4,T=1000", "--isa", "sm_80", "--html", text(&path)]);
    let html = std::fs::read_to_string(&path).unwrap();
    for what in [
        "<h2>affine, B=4",
        "<h2>Gradient of affine, B=4",
        "class=\"taken\"",
        ".visible .entry",
        "<span class=\"holds of0\">tile 0: T 0 to",
        "<summary>On the CPU</summary><pre>walk 1: a, b, h0 → h, h_last",
    ] {
        assert!(html.contains(what), "no `{what}`");
    }
    assert!(!html.contains("<script") && !html.contains("src=") && !html.contains("href="));
    let nowhere = folder.path().join("no-folder/page.html");
    let error = fail(&["explain", "affine", "--shape", "B=4,T=1000", "--html", text(&nowhere)]);
    assert!(error.contains("cannot write") && error.contains("page.html"), "{error}");
}

#[test]
fn calls_of_nothing_are_explained() {
    let text = succeed(&["explain", "cumsum", "--shape", "B=4,T=0", "--isa", "sm_80"]);
    assert!(text.contains("cumsum.bar"), "{text}");
}

#[test]
fn mistakes_say_what_to_do() {
    let missing = fail(&["explain", "cumsun", "--shape", "B=4,T=1000"]);
    assert!(missing.contains("no kernel `cumsun`; there are") && missing.contains("cumsum"), "{missing}");
    let axis = fail(&["explain", "cumsum", "--shape", "B=4"]);
    assert!(axis.contains("--shape lacks axis T"), "{axis}");
    let axis = fail(&["explain", "cumsum", "--shape", "B=4,T=1000,Q=2"]);
    assert!(axis.contains("--shape names axis Q, which no kernel here has; their axes are B, T"), "{axis}");
    let file = fail(&["explain", "src/no-such-file.rs", "--shape", "B=4"]);
    assert!(file.contains("src/no-such-file.rs: ") && !file.contains("no kernel"), "{file}");
    let folder = tempfile::tempdir().unwrap();
    let bare = fail(&["explain", &format!("{}/", text(folder.path())), "--shape", "B=4"]);
    assert!(bare.contains("there is no kernel in any `scan!` block of"), "{bare}");
    let size = fail(&["explain", "cumsum", "--shape", "B"]);
    assert!(size.contains("such as L=4096"), "{size}");
    let nothing = fail(&["bake", "--out", "unused"]);
    assert!(nothing.contains("--source, --manifest-path or --kernel"), "{nothing}");
    let empty = fail(&["bake", "--source", text(folder.path()), "--out", "unused"]);
    assert!(empty.contains("no kernel in any `scan!` block"), "{empty}");
    let receipts = fail(&["receipts", "no-such-file", "--out", text(folder.path())]);
    assert!(receipts.contains("no-such-file"), "{receipts}");
}
