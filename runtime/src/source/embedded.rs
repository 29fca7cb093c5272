//! Kernels inside the program.

use std::sync::Arc;

use super::{Code, Isa, KernelSource, Launch, add, tile_hash};
use crate::Error;

/// A kernel of a table: its key, its seal and its PTX text. The seal is a hash of the text and of the tile IR that it was
/// compiled from; key and seal are in hexadecimal.
type Row = (&'static str, &'static str, &'static str);

/// Kernels that were compiled before the program was.
///
/// `oplus bake` writes a table of them; a program that embeds it needs no files where it runs:
///
/// ```ignore
/// include!("../kernels/table.rs");
///
/// oplus::source::Embedded::new(KERNELS).register();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Embedded(Find);

#[derive(Clone, Copy, Debug)]
enum Find {
    Table(&'static [Row]),
    Standard,
}

impl Embedded {
    /// The kernels of a table that `oplus bake` has written, in ascending order of keys. A text that has been changed, or that
    /// this version of oplus would not have made, is refused when it is needed.
    pub const fn new(table: &'static [Row]) -> Embedded {
        Embedded(Find::Table(table))
    }

    /// The kernels of the standard library that come with this crate, by its features `kernels` and `kernels-sm90`. Without
    /// them there are none.
    pub const fn standard() -> Embedded {
        Embedded(Find::Standard)
    }

    /// Adds the kernels for all calls of the process. They are looked for after those registered before, and before those of
    /// the standard library.
    pub fn register(self) {
        add(Arc::new(self));
    }
}

/// The text of a row, if it was compiled from that tile IR and has not been changed.
fn unsealed((key, seal, text): Row, tile: &str) -> Result<Code, Error> {
    if oplus_codegen::key::seal(tile, text) == seal {
        return Ok(Code::new(text));
    }
    let reason = "its text has changed, or is of another version of oplus; bake it again".into();
    Err(Error::Source { path: format!("inside the program, for {key}"), reason })
}

impl KernelSource for Embedded {
    fn find(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        let key = launch.key.to_string();
        match self.0 {
            Find::Table(table) => match row(table, &key) {
                Some(row) => unsealed(row, &tile_hash(launch, isa)?).map(Some),
                None => Ok(None),
            },
            Find::Standard => Ok(standard::find(key)),
        }
    }

    fn has(&self, launch: &Launch, _: Isa) -> bool {
        let key = launch.key.to_string();
        match self.0 {
            Find::Table(table) => row(table, &key).is_some(),
            Find::Standard => standard::contains(&key),
        }
    }
}

fn row(table: &[Row], key: &str) -> Option<Row> {
    table.binary_search_by_key(&key, |entry| entry.0).ok().map(|at| table[at])
}

/// Makes the kernels of the standard library among those launches ready, all at the same time.
pub(super) fn unpack_standard(launches: &[&Launch], isa: Isa) {
    let keys: Vec<String> = launches.iter().map(|launch| launch.key.to_string()).collect();
    standard::unpack(&keys.iter().map(String::as_str).collect::<Vec<_>>(), isa);
}

/// The kernels of the standard library, as far as the features of this crate bring them.
mod standard {
    use super::{Code, Isa};

    #[cfg(feature = "kernels")]
    pub(super) fn find(key: String) -> Option<Code> {
        Code::committed(key)
    }

    #[cfg(feature = "kernels")]
    pub(super) fn contains(key: &str) -> bool {
        oplus_kernels::contains(key)
    }

    #[cfg(feature = "kernels")]
    pub(super) fn unpack(keys: &[&str], isa: Isa) {
        Code::unpack_committed(keys, isa);
    }

    #[cfg(not(feature = "kernels"))]
    pub(super) fn unpack(_: &[&str], _: Isa) {}

    #[cfg(not(feature = "kernels"))]
    pub(super) fn find(_: String) -> Option<Code> {
        None
    }

    #[cfg(not(feature = "kernels"))]
    pub(super) fn contains(_: &str) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::launch;
    use super::*;

    #[test]
    fn a_table_finds_its_keys_and_no_others() {
        let table = [("0a", "", "first"), ("1b", "", "second"), ("ff", "", "third")];
        assert_eq!(row(&table, "1b").map(|row| row.2), Some("second"));
        assert_eq!((row(&table, "0b"), row(&table, "")), (None, None));
    }

    #[test]
    fn texts_that_were_changed_or_made_from_other_tile_ir_are_refused() {
        let launch = launch("embedded");
        let key: &'static str = launch.key.to_string().leak();
        let tile = tile_hash(&launch, Isa::Sm90a).unwrap();
        let find = |seal: String, text: &'static str| {
            let table: &'static [Row] = vec![(key, &*seal.leak(), text)].leak();
            Embedded::new(table).find(&launch, Isa::Sm90a)
        };
        let seal = || oplus_codegen::key::seal(&tile, ".version 7.8");
        assert_eq!(find(seal(), ".version 7.8").unwrap(), Some(Code::from(".version 7.8".to_owned())));
        let older = oplus_codegen::key::seal("older", ".version 7.8");
        for refused in [find(seal(), ".version 8.0"), find(older, ".version 7.8")] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(key) && error.contains("bake it again"), "{error}");
        }
    }
}
