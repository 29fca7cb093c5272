//! Kernels inside the program.

use super::{Code, Isa, KernelSource, Launch};
use crate::Error;

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

    fn code(&self, key: &str) -> Option<Code> {
        match self.0 {
            Find::Table(table) => {
                let at = table.binary_search_by_key(&key, |entry| entry.0).ok()?;
                Some(table[at].1.to_owned().into())
            }
            Find::Standard => oplus_kernels::find(key).map(|kernel| Code { ptx: kernel.ptx(), cubin: kernel.cubin() }),
        }
    }
}

impl KernelSource for Embedded {
    fn find(&self, launch: &Launch, _: Isa) -> Result<Option<Code>, Error> {
        Ok(self.code(&launch.key.to_string()))
    }

    fn has(&self, launch: &Launch, _: Isa) -> bool {
        let key = launch.key.to_string();
        match self.0 {
            Find::Table(table) => table.binary_search_by_key(&key.as_str(), |entry| entry.0).is_ok(),
            Find::Standard => oplus_kernels::find(&key).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_finds_its_keys_and_no_others() {
        let table = Embedded::new(&[("0a", "first"), ("1b", "second"), ("ff", "third")]);
        assert_eq!(table.code("1b"), Some("second".to_owned().into()));
        assert_eq!((table.code("0b"), table.code("")), (None, None));
    }
}
