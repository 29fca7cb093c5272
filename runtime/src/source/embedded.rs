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

    /// The kernels of the standard library that come with this crate, by its features `kernels` and `kernels-sm90`. Without
    /// them there are none.
    pub const fn standard() -> Embedded {
        Embedded(Find::Standard)
    }

    fn code(&self, key: &str) -> Option<Code> {
        match self.0 {
            Find::Table(table) => {
                let at = table.binary_search_by_key(&key, |entry| entry.0).ok()?;
                Some(table[at].1.to_owned().into())
            }
            Find::Standard => standard::find(key),
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
            Find::Standard => standard::contains(&key),
        }
    }
}

/// The kernels of the standard library, as far as the features of this crate bring them.
mod standard {
    use super::Code;

    #[cfg(feature = "kernels")]
    pub(super) fn find(key: &str) -> Option<Code> {
        let ptx = oplus_kernels::find(key)?.to_owned();
        #[cfg(feature = "kernels-sm90")]
        let cubin = oplus_kernels_sm90::find(key).map(<[u8]>::to_vec);
        #[cfg(not(feature = "kernels-sm90"))]
        let cubin = None;
        Some(Code { ptx, cubin })
    }

    #[cfg(feature = "kernels")]
    pub(super) fn contains(key: &str) -> bool {
        oplus_kernels::contains(key)
    }

    #[cfg(not(feature = "kernels"))]
    pub(super) fn find(_: &str) -> Option<Code> {
        None
    }

    #[cfg(not(feature = "kernels"))]
    pub(super) fn contains(_: &str) -> bool {
        false
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
