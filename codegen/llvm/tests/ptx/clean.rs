//! A table of kernels that `ptxas` has assembled without spills, which need not be assembled again.
//!
//! To compile and assemble all kernels of these tests takes long, and gives the same every time: PTX is a function of a kernel's tile IR and
//! of the compiler, and what `ptxas` says is a function of the PTX and of its version. `clean.txt` has hashes of what has passed. A kernel is
//! not compiled again while its tile IR and the compiler are those of the table, and not assembled while its PTX and the version of `ptxas`
//! are. The compiler's identity is that of `oplus-llvm`, which also calls a few functions of `oplus-codegen`. One kernel in sixteen is
//! therefore compiled and assembled in every run, whatever the table says.
//!
//! After a change of kernels, of the compiler or of `ptxas`, `OPLUS_CLEAN=update cargo test -p oplus-llvm --test ptx`, without a filter,
//! writes the table again. Without that the tests take longer, and nothing else.

use crate::check::assembled_from;
use oplus_codegen::key::Key;
use oplus_codegen::target::Isa;
use oplus_codegen::tile::Kernel;
use oplus_llvm::ptxas::Ptxas;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{LazyLock, Mutex};

/// The hash of a kernel's text and of what the text is for.
type Hash = String;

/// The table as it is committed.
static COMMITTED: LazyLock<Table> = LazyLock::new(|| Table::read(include_str!("clean.txt")));

/// The kernels that the tests of this process have asked for.
static MET: LazyLock<Mutex<Met>> = LazyLock::new(|| Mutex::new(Met { keys: BTreeSet::new(), table: Table::empty() }));

/// Kernels that were assembled without spills, with the versions of the assembler and of the compiler.
struct Table {
    assembler: String,
    compiler: String,
    /// From the hash of a kernel's tile IR to the hash of its PTX.
    kernels: BTreeMap<Hash, Hash>,
}

struct Met {
    /// All of them, each with the device that it is assembled for.
    keys: BTreeSet<(Key, Isa)>,
    /// Those that were assembled without spills, in this process or before.
    table: Table,
}

impl Table {
    /// A table without kernels, for the assembler and the compiler that are installed.
    fn empty() -> Table {
        let assembler = Ptxas::find().expect("an assembler");
        let assembler = format!("ptxas {}", assembler.version().expect("a version"));
        Table { assembler, compiler: oplus_llvm::identity(), kernels: BTreeMap::new() }
    }

    /// A line for the assembler, one for the compiler, then one for each kernel.
    fn read(text: &str) -> Table {
        let mut lines = text.lines();
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (assembler, compiler) = (next(), next());
        let pair = |line: &str| line.split_once(' ').map(|(tile, ptx)| (tile.to_owned(), ptx.to_owned()));
        Table { assembler, compiler, kernels: lines.filter_map(pair).collect() }
    }

    /// The text that [`Table::read`] reads.
    fn text(&self) -> String {
        let kernels: String = self.kernels.iter().map(|(tile, ptx)| format!("{tile} {ptx}\n")).collect();
        format!("{}\n{}\n{kernels}", self.assembler, self.compiler)
    }

    /// The hash of the PTX of a kernel, if the compiler that is installed has made it before.
    fn compiled(&self, tile: &Hash) -> Option<&Hash> {
        (self.compiler == oplus_llvm::identity()).then(|| self.kernels.get(tile)).flatten()
    }
}

impl Met {
    /// Whether the assembler that is installed has passed a PTX, in this process or when the table was written.
    fn is_clean(&self, ptx: &Hash) -> bool {
        static CLEAN: LazyLock<BTreeSet<&Hash>> = LazyLock::new(|| COMMITTED.kernels.values().collect());
        let same_assembler = COMMITTED.assembler == self.table.assembler;
        same_assembler && CLEAN.contains(ptx) || self.table.kernels.values().any(|met| met == ptx)
    }

    /// Adds a kernel that was assembled without spills, and writes the table to its file if `OPLUS_CLEAN` says so.
    fn add(&mut self, tile: Hash, ptx: Hash) {
        self.table.kernels.insert(tile, ptx);
        if std::env::var("OPLUS_CLEAN").is_ok_and(|word| word == "update") {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ptx/clean.txt");
            std::fs::write(path, self.table.text()).expect("the table can be written");
        }
    }
}

/// Compiles the kernel of a key for its instruction set and assembles it for a device, unless it is known to be clean or another test of
/// this process does, which fails in its place. Kernels of several programs have the same text but for their names.
pub(crate) fn assemble_once(key: Key, own: Isa, device: Isa, kernel: impl FnOnce() -> Kernel) {
    if !met(|met| met.keys.insert((key, device))) {
        return;
    }
    let kernel = kernel();
    let hash = |text: &str, of: &str| hash(&text.replace(&kernel.name, "kernel"), of);
    let tile = hash(&kernel.to_string(), &format!("{} for {}", own.name(), device.name()));
    // One hash in sixteen begins with a zero.
    let is_sample = tile.starts_with('0');
    if let Some(ptx) = COMMITTED.compiled(&tile)
        && !is_sample
        && met(|met| met.is_clean(ptx))
    {
        return met(|met| met.add(tile, ptx.clone()));
    }
    let text = oplus_llvm::compile(&kernel, own).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
    let ptx = hash(&text, device.name());
    if is_sample || !met(|met| met.is_clean(&ptx)) {
        assembled_from(&text, &kernel.name, device);
    }
    met(|met| met.add(tile, ptx));
}

/// Asks or changes what this process has met.
fn met<T>(change: impl FnOnce(&mut Met) -> T) -> T {
    change(&mut MET.lock().expect("no panic"))
}

/// The hash of a text and of what it is for.
fn hash(text: &str, of: &str) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(of.as_bytes()).update(&[0]).update(text.as_bytes());
    hasher.finalize().to_hex()[..16].to_owned()
}

#[test]
fn a_table_is_read_as_it_was_written_and_holds_for_one_compiler() {
    let (tile, ptx) = (hash("tile", "sm_80"), hash("ptx", "sm_80"));
    let mut table = Table::empty();
    table.kernels.insert(tile.clone(), ptx.clone());
    let read = Table::read(&table.text());
    assert_eq!((&read.assembler, read.compiled(&tile)), (&table.assembler, Some(&ptx)));
    assert_eq!(read.compiled(&ptx), None);
    assert_eq!(Table { compiler: "another".into(), ..read }.compiled(&tile), None);
}

#[test]
fn hashes_depend_on_the_text_and_on_the_device() {
    assert_ne!(hash("a", "sm_80"), hash("b", "sm_80"));
    assert_ne!(hash("a", "sm_80"), hash("a", "sm_90a"));
}
