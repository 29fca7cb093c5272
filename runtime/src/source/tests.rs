use std::path::Path;

use super::*;
use oplus_codegen::plan::{Call, Layout, Planner};

/// The launch of a program of one axis, for n elements.
pub(super) fn launch(name: &str) -> Launch {
    let text = format!(
        "program {name} {{ axes N; param x: f32[N]; %0: f32[N] = param x; %1: f32[N] = %0 + %0; output y: f32[N] = %1; }}"
    );
    let layout = || Layout { strides: vec![1], align: 256 };
    let call = Call { sizes: vec![1000], params: vec![Some(layout())], outputs: vec![layout()] };
    let planner = Planner::new(&oplus_dsl::parse::parse(&text).unwrap(), &crate::Target::H200).unwrap();
    planner.plan(&call).unwrap().steps.remove(0)
}

/// A source that gives the same code for a program of one name.
struct Given(&'static str, Code);

impl KernelSource for Given {
    fn find(&self, launch: &Launch, _: Isa) -> Result<Option<Code>, Error> {
        Ok((launch.stage.program.name == self.0).then(|| self.1.clone()))
    }
}

/// A driver is told no lengths: what it would read beyond its end is refused before it gets there.
#[test]
#[allow(unsafe_code)]
fn empty_machine_code_and_texts_are_errors() {
    let codes = [
        ("empty_machine", Code::new(".version 7.8").with_machine_code(vec![]), "its machine code is empty"),
        ("short_machine", Code::new(".version 7.8").with_machine_code(vec![0x7f]), "no ELF file"),
        ("empty_text", Code::from(String::new()), "its PTX is empty"),
    ];
    for (name, code, reason) in codes {
        let launch = launch(name);
        // SAFETY: no driver is given these kernels.
        unsafe { register(Given(name, code)) };
        let soon = find_soon(name, &launch, Isa::Sm90a).err().map(|e| e.to_string());
        for error in [find(name, &launch, Isa::Sm90a).unwrap_err().to_string(), soon.unwrap()] {
            assert!(error.contains(&launch.key.to_string()) && error.contains(reason), "{error}");
        }
    }
}

/// The launch of a committed kernel: cumulative sums of rows.
#[cfg(feature = "kernels")]
fn committed() -> Launch {
    let signature =
        crate::execute::Signature { elem: oplus_dsl::Elem::F32, given: vec![true], wanted: vec![true], ordered: false };
    let variant = crate::kernels::cumsum::kernel().forward().unwrap().variant(&signature).unwrap();
    let layout = || Layout { strides: vec![1024, 1], align: 16 };
    let call = Call { sizes: vec![8, 1024], params: vec![Some(layout())], outputs: vec![layout()] };
    variant.plan(&call, &crate::Target::H200, 0).unwrap().steps.remove(0)
}

/// Unpacking the other kernels of the call would take milliseconds.
#[cfg(feature = "kernels")]
#[test]
fn a_call_without_one_of_its_kernels_is_refused_before_the_others_are_unpacked() {
    let (there, nowhere) = (committed(), launch("nowhere"));
    let refused = |launches: &[&Launch], is_known| refuse_missing("sums", launches, Isa::Sm90a, is_known);
    for launches in [[&there, &nowhere], [&nowhere, &there]] {
        let error = refused(&launches, true).unwrap_err();
        let Error::NoKernel { key, .. } = &error else { panic!("{error:?}") };
        assert!(key.starts_with(&nowhere.key.to_string()), "{key}");
    }
    assert_eq!(refused(&[&there], true), Ok(()));
    assert_eq!(refused(&[&nowhere], false), Ok(()), "a source that compiles may have it");
}

/// The Rust sources of a folder.
fn sources_in(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            sources_in(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

/// The table in `mod.rs` has the variables that users set; CONTRIBUTING.md has those that only tests read.
#[test]
fn every_variable_of_the_environment_is_documented() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = vec![];
    for folder in ["runtime/src", "codegen", "dsl", "tests/src"] {
        sources_in(&workspace.join(folder), &mut sources);
    }
    let table = include_str!("mod.rs");
    let contributing = std::fs::read_to_string(workspace.join("CONTRIBUTING.md")).unwrap();
    let mut read = 0;
    for source in &sources {
        for call in ["env::var(\"", "env::var_os(\""] {
            for rest in source.split(call).skip(1) {
                let name = rest.split('"').next().unwrap();
                let documented = name == "PATH"
                    || table.contains(&format!("//! | `{name}` | "))
                    || contributing.contains(&format!("`{name}="));
                assert!(documented, "{name} is neither in the table nor in CONTRIBUTING.md");
                read += 1;
            }
        }
    }
    assert!(read >= 4, "{read}");
}
