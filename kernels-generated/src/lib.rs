//! Committed PTX of the standard kernels: a table from keys to texts, written by `oplus generate`, never by hand.
//!
//! The texts are kept as gzip files: `zcat` shows one, and with `git config diff.gzip.textconv zcat` so does `git diff`.

#[rustfmt::skip]
mod table;

use flate2::read::GzDecoder;
use std::io::Read;

/// The PTX of the kernel with that key (64 hexadecimal digits), if it is in the committed set.
pub fn find(key: &str) -> Option<String> {
    let at = table::KERNELS.binary_search_by_key(&key, |entry| entry.0).ok()?;
    Some(unpack(table::KERNELS[at].1))
}

fn unpack(packed: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).expect("a test unpacks every kernel of the table");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ascend() {
        assert!(table::KERNELS.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn every_kernel_is_found_and_has_one_entry_point() {
        for (key, _) in table::KERNELS {
            let text = find(key).expect("its key is in the table");
            assert_eq!(text.matches(".visible .entry ").count(), 1, "{key}");
        }
        assert_eq!(find("no such key"), None);
    }
}
