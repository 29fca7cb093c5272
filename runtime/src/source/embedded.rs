//! Kernels inside the program.

use super::{Isa, KernelSource, Launch, Ptx};
use crate::Error;
use std::borrow::Cow;

/// Kernels that were compiled before the program was: pairs of a key, in hexadecimal, and a PTX text.
#[derive(Clone, Copy, Debug)]
pub struct Embedded(Find);

#[derive(Clone, Copy, Debug)]
enum Find {
    Table(&'static [(&'static str, &'static str)]),
    Standard,
}

impl Embedded {
    /// The kernels of a table in ascending order of keys.
    pub const fn new(table: &'static [(&'static str, &'static str)]) -> Embedded {
        Embedded(Find::Table(table))
    }

    /// The kernels of the standard library.
    pub const fn standard() -> Embedded {
        Embedded(Find::Standard)
    }

    fn text(&self, key: &str) -> Option<Cow<'static, str>> {
        match self.0 {
            Find::Table(table) => table.binary_search_by_key(&key, |entry| entry.0).ok().map(|at| table[at].1.into()),
            Find::Standard => oplus_kernels::find(key).map(Cow::from),
        }
    }
}

impl KernelSource for Embedded {
    fn find(&self, launch: &Launch, _: Isa) -> Result<Option<Ptx>, Error> {
        Ok(self.text(&launch.key.to_string()).map(|text| Ptx { text: text.into_owned() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_finds_its_keys_and_no_others() {
        let table = Embedded::new(&[("0a", "first"), ("1b", "second"), ("ff", "third")]);
        assert_eq!(table.text("1b").as_deref(), Some("second"));
        assert_eq!((table.text("0b"), table.text("")), (None, None));
    }
}
