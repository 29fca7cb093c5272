//! PTX of the standard kernels of `oplus`, found by key.
//!
//! Kernels are packed in *shards*: zstd files of at most 512 KiB before compression, each of neighbouring kernels of one
//! family, since those are used together. The first kernel of a shard that a program asks for unpacks the whole shard,
//! which stays in memory. `oplus generate` writes shards and table.

mod shards;
#[rustfmt::skip]
mod table;

use std::sync::OnceLock;

pub use shards::{Row, Shards};

static KERNELS: Shards = Shards::new(table::SHARDS, table::KERNELS, &UNPACKED);
static UNPACKED: [OnceLock<Box<[u8]>>; table::SHARDS.len()] = [const { OnceLock::new() }; table::SHARDS.len()];

/// The PTX of the kernel with that key (64 hexadecimal digits), if it is in the committed set.
pub fn find(key: &str) -> Option<&'static str> {
    KERNELS.find(key).map(|text| std::str::from_utf8(text).expect("a test unpacks every kernel of the table"))
}

/// Whether the kernel with that key is in the committed set. Unpacks nothing.
pub fn contains(key: &str) -> bool {
    KERNELS.contains(key)
}

/// Makes the kernels of a call ready to be found: unpacks their shards, all at the same time.
pub fn unpack(keys: &[&str]) {
    KERNELS.unpack(keys);
}

/// The keys of all kernels of the committed set, ascending.
pub fn keys() -> impl Iterator<Item = &'static str> {
    KERNELS.keys()
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
        for key in keys() {
            let ptx = find(key).unwrap();
            assert!(contains(key));
            assert_eq!(ptx.matches(".entry ").count(), 1, "{key}");
            assert!(ptx.lines().any(|line| line.contains(".entry ") && line.contains(&key[..12])), "{key}");
        }
        assert_eq!(find(""), None);
        assert!(!contains("ff"));
    }
}
