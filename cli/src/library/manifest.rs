//! `manifest.toml`.

use super::LibraryError;
use oplus_codegen::target::Isa;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;

/// The contents of a folder of kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Version of the format.
    pub(crate) version: u32,
    /// The compiler's version, part of every key.
    pub(crate) compiler: u32,
    /// The version of LLVM, in folders for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) llvm: Option<String>,
    /// The kernels, by program, schedule and key.
    #[serde(default)]
    pub(crate) kernel: Vec<Entry>,
}

/// One kernel of a manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The key that it is found by: a hash of everything its code depends on.
    pub(crate) key: String,
    /// The file of its PTX, relative to the manifest.
    pub(crate) file: String,
    /// Where the PTX is in a file of several kernels: its first byte, and how many it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<[usize; 2]>,
    /// Its entry point.
    pub(crate) symbol: String,
    /// The instruction set.
    pub(crate) isa: String,
    /// The program whose stage it computes.
    pub(crate) program: String,
    /// The element types of the stage's tensors, `name: elem` in order.
    pub(crate) elements: Vec<String>,
    /// The schedule's text.
    pub(crate) schedule: String,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Shared memory of a block, bytes.
    pub(crate) shared_bytes: u32,
    /// Registers of a thread, where `ptxas` was at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) registers: Option<u32>,
    /// The hash of the PTX text.
    pub blake3: String,
    /// The hash of the tile IR that it was compiled from, in folders for programs: a program whose version of oplus makes other
    /// tile IR does not use the text. Of committed kernels `oplus generate --check` compares the texts themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tile: Option<String>,
    /// Machine code of this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cubin: Option<Cubin>,
    /// The receipt of a GPU for this very text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<Receipt>,
}

/// Machine code of a kernel for [`MACHINE`], which spares its driver the compilation of the PTX.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cubin {
    /// Its file, relative to the manifest.
    pub(crate) file: String,
    /// Where it is in a file of several kernels: its first byte, and how many it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<[usize; 2]>,
    /// The version of the `ptxas` that made it.
    pub(crate) ptxas: String,
    /// The hash of the machine code.
    pub blake3: String,
}

/// The devices that kernels have machine code for: compute capability 9.0 (H100, H200).
pub(crate) const MACHINE: Isa = Isa::Sm90a;

/// The result of a kernel's check on a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    /// The device's name.
    pub(crate) device: String,
    /// The day, `YYYY-MM-DD`.
    pub(crate) date: String,
    /// The largest error found, in units of the bound that holds for it: at most 1.
    pub(crate) worst_error: f64,
    /// The hash of the PTX that was checked.
    pub blake3: String,
}

/// Version of the format.
const VERSION: u32 = 1;

/// First lines of every manifest.
const HEADER: &str = "# Written by `oplus`, not by hand.\n\n";

impl Manifest {
    /// The manifest of some kernels, in the order of the file.
    pub(crate) fn new(mut kernel: Vec<Entry>) -> Manifest {
        let order = |e: &Entry| (e.program.clone(), e.isa.clone(), e.schedule.clone(), e.key.clone());
        kernel.sort_by_key(order);
        kernel.dedup_by(|a, b| a.key == b.key);
        Manifest { version: VERSION, compiler: oplus_codegen::key::COMPILER_VERSION, llvm: None, kernel }
    }

    /// Reads the manifest of a folder; `None` when it has none.
    ///
    /// # Errors
    ///
    /// [`LibraryError`] when there is one that cannot be read.
    pub(crate) fn read(folder: &Path) -> Result<Option<Manifest>, LibraryError> {
        let path = folder.join("manifest.toml");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LibraryError::File { path, error }),
        };
        match toml::from_str(&text) {
            Ok(manifest) => Ok(Some(manifest)),
            Err(error) => Err(LibraryError::Damaged { path, reason: error.to_string() }),
        }
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> String {
        // Every field has a representation in TOML, so the serialiser has nothing to refuse.
        HEADER.to_owned() + &toml::to_string(self).unwrap_or_default()
    }

    /// The entry of the same kernel and PTX.
    pub(super) fn same_text(&self, entry: &Entry) -> Option<&Entry> {
        self.kernel.iter().find(|e| e.key == entry.key && e.blake3 == entry.blake3)
    }

    /// The symbols of kernels whose text is another one than an older manifest has under the same key.
    pub(super) fn changed_under_equal_keys(&self, older: &Manifest) -> Vec<String> {
        let known: HashMap<&str, &str> = older.kernel.iter().map(|e| (e.key.as_str(), e.blake3.as_str())).collect();
        let changed = |e: &&Entry| known.get(e.key.as_str()).is_some_and(|blake3| **blake3 != e.blake3);
        self.kernel.iter().filter(changed).map(|e| e.symbol.clone()).collect()
    }

    /// Takes over what an older manifest knows of the same PTX: receipts, and registers where this one has none.
    pub(crate) fn inherit(&mut self, older: &Manifest) {
        for entry in &mut self.kernel {
            if let Some(known) = older.same_text(entry) {
                let checked = known.receipt.clone().filter(|_| known.has_same_code(entry));
                entry.receipt = entry.receipt.take().or(checked);
                entry.registers = entry.registers.or(known.registers);
            }
        }
    }
}

impl Entry {
    /// Whether the machine code is the same as another entry's, or one of them has none.
    fn has_same_code(&self, other: &Entry) -> bool {
        self.cubin.iter().zip(&other.cubin).all(|(own, other)| own.blake3 == other.blake3)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An entry of that key whose PTX is `text`.
    pub(in crate::library) fn entry(key: &str, text: &str) -> Entry {
        Entry {
            key: key.into(),
            file: format!("ptx/{key}.sm_80.ptx"),
            range: None,
            symbol: key.into(),
            isa: "sm_80".into(),
            program: "cumsum".into(),
            elements: vec!["x: f32".into()],
            schedule: "rows(warps=4)".into(),
            threads: 128,
            shared_bytes: 0,
            registers: Some(32),
            blake3: blake3::hash(text.as_bytes()).to_hex().to_string(),
            tile: None,
            cubin: None,
            receipt: None,
        }
    }

    /// The manifest's entry of that machine code.
    pub(in crate::library) fn cubin(code: &[u8]) -> Cubin {
        let blake3 = blake3::hash(code).to_hex().to_string();
        Cubin { file: String::new(), range: None, ptxas: "13.0.88".into(), blake3 }
    }

    /// A receipt for that PTX.
    pub(in crate::library) fn receipt(text: &str) -> Receipt {
        let blake3 = blake3::hash(text.as_bytes()).to_hex().to_string();
        Receipt { device: "NVIDIA H200".into(), date: "2026-11-21".into(), worst_error: 0.25, blake3 }
    }

    #[test]
    fn a_manifest_reads_back() {
        let mut manifest = Manifest::new(vec![entry("b", "2"), entry("a", "1"), entry("b", "2")]);
        manifest.kernel[0].receipt = Some(receipt("1"));
        assert_eq!(manifest.kernel.iter().map(|e| e.key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::read(folder.path()).unwrap(), None);
        std::fs::write(folder.path().join("manifest.toml"), manifest.text()).unwrap();
        assert_eq!(Manifest::read(folder.path()).unwrap(), Some(manifest));
    }

    #[test]
    fn receipts_stay_with_their_text() {
        let mut older = Manifest::new(vec![entry("a", "1"), entry("b", "2")]);
        older.kernel.iter_mut().for_each(|e| e.receipt = Some(receipt("1")));
        let mut newer = Manifest::new(vec![entry("a", "1"), entry("b", "changed")]);
        newer.kernel[0].registers = None;
        newer.inherit(&older);
        assert_eq!(newer.kernel[0].receipt, Some(receipt("1")));
        assert_eq!((newer.kernel[0].registers, newer.kernel[1].receipt.clone()), (Some(32), None));
    }

    #[test]
    fn receipts_stay_with_their_machine_code() {
        let with_code = |code: &[u8]| {
            let mut manifest = Manifest::new(vec![entry("a", "1")]);
            manifest.kernel[0].cubin = Some(cubin(code));
            manifest
        };
        let mut older = with_code(b"code");
        older.kernel[0].receipt = Some(receipt("1"));
        let (mut same, mut other) = (with_code(b"code"), with_code(b"other code"));
        same.inherit(&older);
        other.inherit(&older);
        assert_eq!((same.kernel[0].receipt.clone(), other.kernel[0].receipt.clone()), (Some(receipt("1")), None));
    }
}
