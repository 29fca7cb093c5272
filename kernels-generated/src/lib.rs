//! Committed PTX of the standard kernels: a table from keys to texts, written by `oplus bake`, never by hand.

mod table;

/// The PTX of the kernel with that key (64 hexadecimal digits), if it is in the committed set.
pub fn find(key: &str) -> Option<&'static str> {
    table::KERNELS.binary_search_by_key(&key, |entry| entry.0).ok().map(|at| table::KERNELS[at].1)
}
