//! Which text of a kernel ran.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use oplus::Error;
use oplus::source::{Code, Embedded, Folder, Isa, KernelSource, Launch};

/// The sources of committed kernels, with the hash of every text that they have given.
pub struct Recorder {
    sources: Vec<Box<dyn KernelSource>>,
    hashes: Mutex<HashMap<String, String>>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder { sources: vec![Box::new(Embedded::standard())], hashes: Mutex::default() }
    }
}

impl Recorder {
    /// The embedded kernels, after those of a folder.
    ///
    /// # Errors
    /// [`Error::Source`] when the folder is not one of kernels.
    pub fn new(folder: Option<&Path>) -> Result<Recorder, Error> {
        let mut recorder = Recorder::default();
        if let Some(path) = folder {
            recorder.sources.insert(0, Box::new(Folder::open(path)?));
        }
        Ok(recorder)
    }

    /// Remembers the text of a key.
    pub fn note(&self, key: &str, text: &str) {
        self.note_hash(key, blake3::hash(text.as_bytes()).to_hex().to_string());
    }

    /// Remembers the hash of the text of a key.
    pub fn note_hash(&self, key: &str, hash: String) {
        self.hashes.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), hash);
    }

    /// The hash of the text that was given for a key.
    pub fn hash(&self, key: &str) -> Option<String> {
        self.hashes.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

impl KernelSource for Recorder {
    fn find(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        for source in &self.sources {
            if let Some(code) = source.find(launch, isa)? {
                self.note(&launch.key.to_string(), code.ptx());
                return Ok(Some(code));
            }
        }
        Ok(None)
    }
}
