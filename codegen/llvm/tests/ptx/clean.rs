//! Kernels that are known to be assembled without spills.
//!
//! To compile and assemble all kernels of these tests takes long, and gives the same every time: PTX is a function of a kernel's tile IR and
//! of the compiler, and what `ptxas` says is a function of the PTX and of its version. `clean.txt` has hashes of what has passed. A kernel is
//! not compiled again while its tile IR and the compiler are those of the table, and not assembled while its PTX and the version of `ptxas`
//! are. One kernel in sixteen is, whatever the table says, so that a wrong one does not stay unseen.
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

/// What this process has met.
static MET: LazyLock<Mutex<Met>> = LazyLock::new(|| Mutex::new(Met { keys: BTreeSet::new(), table: Table::empty() }));

/// Kernels that passed, and what they passed through.
struct Table {
    assembler: String,
    compiler: String,
    /// For the hash of a kernel's tile IR that of its PTX.
    kernels: BTreeMap<Hash, Hash>,
}

struct Met {
    /// Kernels that a test has begun with, for the devices that they are assembled for.
    keys: BTreeSet<(Key, Isa)>,
    /// Those that passed.
    table: Table,
}

impl Table {
    /// Without kernels, for what is installed.
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

    fn write(&self, path: &Path) {
        let kernels: String = self.kernels.iter().map(|(tile, ptx)| format!("{tile} {ptx}\n")).collect();
        let text = format!("{}\n{}\n{kernels}", self.assembler, self.compiler);
        std::fs::write(path, text).expect("the table can be written");
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

    /// Enters a kernel that passed, and writes the table where that is asked for.
    fn enter(&mut self, tile: Hash, ptx: Hash) {
        self.table.kernels.insert(tile, ptx);
        if std::env::var("OPLUS_CLEAN").is_ok_and(|word| word == "update") {
            self.table.write(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ptx/clean.txt"));
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
    // Of sixteen.
    let is_sample = tile.starts_with('0');
    if let Some(ptx) = COMMITTED.compiled(&tile)
        && !is_sample
        && met(|met| met.is_clean(ptx))
    {
        return met(|met| met.enter(tile, ptx.clone()));
    }
    let text = oplus_llvm::compile(&kernel, own).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
    let ptx = hash(&text, device.name());
    if is_sample || !met(|met| met.is_clean(&ptx)) {
        assembled_from(&text, &kernel.name, device);
    }
    met(|met| met.enter(tile, ptx));
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
