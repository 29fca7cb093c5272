use std::sync::atomic::{AtomicUsize, Ordering};

use oplus_codegen::plan::{Call, Layout, Planner};
use oplus_codegen::target::Target;

use super::*;

struct Nothing;

impl Compile for Nothing {
    fn compile(&self, launch: &Launch, _: Isa) -> Result<Code, Error> {
        Err(Error::Compile { key: launch.key.to_string(), reason: "no compiler".into() })
    }

    fn identity(&self) -> String {
        "nothing 1.0".into()
    }
}

const PTX: &str = ".version 7.8\n.target sm_80\n.visible .entry k() { ret; }\n";

fn cache() -> (tempfile::TempDir, DiskCache<Nothing>) {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::new(Some(folder.path().join("made/later")), Nothing);
    (folder, cache)
}

fn folder_of(cache: &DiskCache<Nothing>) -> PathBuf {
    cache.folder.as_ref().unwrap().path.clone()
}

/// Looks an entry up; counts compilations.
fn look_up(cache: &DiskCache<Nothing>, entry: &Entry, compiled: &AtomicUsize) -> String {
    let compile = || {
        compiled.fetch_add(1, Ordering::Relaxed);
        Ok(PTX.to_owned().into())
    };
    cache.get(entry, compile).unwrap().ptx().to_owned()
}

#[test]
fn a_kernel_is_compiled_once() {
    let ((_folder, cache), compiled) = (cache(), AtomicUsize::new(0));
    let entry = Entry::new("ab", "program p {\n}\n");
    assert_eq!(look_up(&cache, &entry, &compiled), PTX);
    assert_eq!(look_up(&cache, &entry, &compiled), PTX);
    assert_eq!(compiled.load(Ordering::Relaxed), 1);
}

#[test]
fn what_stands_in_is_not_kept_and_not_asked_for_where_the_kernel_is() {
    let ((_folder, cache), compiled) = (cache(), AtomicUsize::new(0));
    let entry = Entry::new("ab", "program p {\n}\n");
    let fast_tier = || cache.unless_kept(&entry, || Ok(Some(Code::from("short".to_owned())))).unwrap();
    assert_eq!(fast_tier().as_ref().map(Code::ptx), Some("short"));
    assert_eq!(look_up(&cache, &entry, &compiled), PTX);
    assert_eq!(compiled.load(Ordering::Relaxed), 1);
    assert_eq!(fast_tier(), None);
}

#[test]
fn damaged_entries_are_compiled_again_and_replaced() {
    let (_folder, cache) = cache();
    let entry = Entry::new("ab", "program p {\n}\n");
    let path = folder_of(&cache).join("ab.ptx");
    let sound = entry.seal(PTX);
    let mut damages: Vec<Vec<u8>> = (0..sound.len()).map(|n| sound.as_bytes()[..n].to_vec()).collect();
    damages.extend((0..sound.len()).map(|n| {
        let mut flipped = sound.clone().into_bytes();
        flipped[n] ^= 1;
        flipped
    }));
    damages.push([sound.as_bytes(), b"\n"].concat());
    damages.push(vec![0xff; 100]);
    damages.push(Entry::new("ab", "program q {\n}\n").seal(PTX).into_bytes());
    for damage in damages {
        let compiled = AtomicUsize::new(0);
        look_up(&cache, &entry, &AtomicUsize::new(0));
        std::fs::write(&path, &damage).unwrap();
        assert_eq!(look_up(&cache, &entry, &compiled), PTX);
        assert_eq!(compiled.load(Ordering::Relaxed), 1, "{:?} was trusted", String::from_utf8_lossy(&damage));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), sound);
    }
}

#[test]
fn many_writers_and_readers_see_whole_entries() {
    let ((_folder, cache), compiled) = (cache(), AtomicUsize::new(0));
    let path = folder_of(&cache).join("ab.ptx");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let entry = Entry::new("ab", "program p {\n}\n");
                    assert_eq!(look_up(&cache, &entry, &compiled), PTX);
                    let _ = std::fs::remove_file(&path);
                }
            });
        }
    });
    let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name == "ab.ptx"), "{left:?}");
}

#[test]
fn a_cache_that_cannot_be_written_still_compiles() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let compiled = AtomicUsize::new(0);
    for folder in [Some(file.path().join("not/a/folder")), None] {
        let cache = DiskCache::new(folder, Nothing);
        assert_eq!(look_up(&cache, &Entry::new("ab", ""), &compiled), PTX);
    }
    assert_eq!(compiled.load(Ordering::Relaxed), 2);
}

#[test]
fn errors_of_the_compiler_are_passed_on() {
    let (_folder, cache) = cache();
    let failing = || Err(Error::Compile { key: "ab".into(), reason: "broken".into() });
    assert!(matches!(cache.get(&Entry::new("ab", ""), failing), Err(Error::Compile { .. })));
    assert!(!folder_of(&cache).exists());
}

/// The launch of a sum of rows.
fn launch() -> Launch {
    let program = oplus_dsl::parse::parse(
        "program doubled { axes N; param x: f32[N]; %0: f32[N] = param x; %1: f32[N] = %0 + %0; output y: f32[N] = %1; }",
    );
    let layout = || Layout { strides: vec![1], align: 256 };
    let call = Call { sizes: vec![1000], params: vec![Some(layout())], outputs: vec![layout()] };
    let planner = Planner::new(&program.unwrap(), &Target::H200).unwrap();
    planner.plan(&call).unwrap().steps.remove(0)
}

/// Another version of LLVM, or of what makes tile IR, gives other code under the same key.
#[test]
fn code_of_another_compiler_or_tile_ir_is_compiled_again() {
    let ((_folder, cache), launch) = (cache(), launch());
    let tile = tile_hash(&launch, Isa::Sm90a).unwrap();
    assert_eq!(tile.len(), 64);
    let entry = |tile, identity| Entry::of(&launch, Isa::Sm90a, tile, identity);
    let sound = entry(&tile, "LLVM 22.1.0");
    for (other, recompiled) in [(&sound, 1), (&entry(&tile, "LLVM 22.1.1"), 1), (&entry("0", "LLVM 22.1.0"), 1)] {
        let compiled = AtomicUsize::new(0);
        look_up(&cache, other, &compiled);
        look_up(&cache, other, &compiled);
        assert_eq!((&other.file, compiled.into_inner()), (&sound.file, recompiled));
    }
    assert!(
        cache
            .entry(&launch, Isa::Sm90a)
            .unwrap()
            .header
            .contains(&format!("// compiler {COMPILER_VERSION}, nothing 1.0\n"))
    );
}

#[test]
fn sizes_are_bytes_with_or_without_a_unit() {
    for (text, bytes) in [("0", 0), ("1024", 1024), ("2K", 2000), (" 500M ", 500_000_000), ("3 G", 3_000_000_000)] {
        assert_eq!(parse_size(text).unwrap(), bytes);
    }
    for text in ["", "many", "-1", "1.5G", "1T", "G", "99999999999G"] {
        let error = parse_size(text).unwrap_err().to_string();
        assert!(error.contains("OPLUS_CACHE_SIZE") && error.contains("500M"), "{error}");
    }
}
