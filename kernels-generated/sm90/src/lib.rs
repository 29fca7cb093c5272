//! Machine code of the standard kernels of `oplus` for GPUs of compute capability 9.0, found by key.
//!
//! `oplus generate` writes shards and table; [`oplus_kernels`] says what a shard is.

#[rustfmt::skip]
mod table;

use std::sync::OnceLock;

use oplus_kernels::Shards;

static KERNELS: Shards = Shards::new(table::SHARDS, table::KERNELS, &UNPACKED);
static UNPACKED: [OnceLock<Box<[u8]>>; table::SHARDS.len()] = [const { OnceLock::new() }; table::SHARDS.len()];

/// The machine code of the kernel with that key (64 hexadecimal digits), if it is in the committed set.
pub fn find(key: &str) -> Option<&'static [u8]> {
    KERNELS.find(key)
}

/// Makes the kernels of a call ready to be found: unpacks their shards, all at the same time.
pub fn unpack(keys: &[&str]) {
    KERNELS.unpack(keys);
}

/// The keys of all kernels that have machine code, ascending.
pub fn keys() -> impl Iterator<Item = &'static str> {
    KERNELS.keys()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of an ELF file.
    const ELF: &[u8] = b"\x7fELF";

    #[test]
    fn every_kernel_is_found_and_has_a_text() {
        assert!(keys().is_sorted_by(|a, b| a < b) && keys().count() > 0);
        for key in keys() {
            assert!(find(key).unwrap().starts_with(ELF), "{key}");
            assert!(oplus_kernels::contains(key), "{key}");
        }
        assert_eq!(find(""), None);
    }
}
