//! Committed kernels of the standard library: a table from keys to PTX and machine code, written by `oplus generate`,
//! never by hand.
//!
//! They are kept as gzip files: `zcat` shows a PTX text, and with `git config diff.gzip.textconv zcat` so does `git diff`.

#[rustfmt::skip]
mod table;

use flate2::read::GzDecoder;
use std::io::Read;

/// A committed kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    ptx: &'static [u8],
    cubin: &'static [u8],
}

/// The kernel with that key (64 hexadecimal digits), if it is in the committed set.
pub fn find(key: &str) -> Option<Kernel> {
    let at = table::KERNELS.binary_search_by_key(&key, |entry| entry.0).ok()?;
    let (_, ptx, cubin) = table::KERNELS[at];
    Some(Kernel { ptx, cubin })
}

/// The keys of all kernels of the committed set, ascending.
pub fn keys() -> impl Iterator<Item = &'static str> {
    table::KERNELS.iter().map(|entry| entry.0)
}

impl Kernel {
    /// Its PTX.
    pub fn ptx(&self) -> String {
        String::from_utf8(unpack(self.ptx)).expect("a test unpacks every kernel of the table")
    }

    /// Its machine code for devices of compute capability 9.0, if there is any.
    pub fn cubin(&self) -> Option<Vec<u8>> {
        (!self.cubin.is_empty()).then(|| unpack(self.cubin))
    }
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut bytes = vec![];
    GzDecoder::new(packed).read_to_end(&mut bytes).expect("a test unpacks every kernel of the table");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend() {
        assert!(keys().is_sorted_by(|a, b| a < b) && keys().count() > 0);
    }

    #[test]
    fn every_kernel_is_found_and_has_one_entry_point() {
        for (key, ..) in table::KERNELS {
            let kernel = find(key).expect("its key is in the table");
            assert_eq!(kernel.ptx().matches(".visible .entry ").count(), 1, "{key}");
            assert!(kernel.cubin().is_none_or(|code| code.starts_with(b"\x7fELF")), "{key}");
        }
        assert!(find("no such key").is_none());
    }
}
