//! Kernels packed in zstd files.

use std::io::Read;
use std::sync::OnceLock;

use ruzstd::decoding::StreamingDecoder;

/// Where a kernel is: its key, the index of its shard, and where its bytes begin in the unpacked shard and how many they
/// are.
pub type Row = (&'static str, u16, u32, u32);

/// A table of kernels and the shards that hold them.
#[derive(Debug)]
pub struct Shards {
    packed: &'static [&'static [u8]],
    kernels: &'static [Row],
    unpacked: &'static [OnceLock<Box<[u8]>>],
}

impl Shards {
    /// The kernels of a table in ascending order of keys. `unpacked` has a place for every shard.
    ///
    /// # Panics
    /// When there are more or fewer places than shards.
    pub const fn new(
        packed: &'static [&'static [u8]],
        kernels: &'static [Row],
        unpacked: &'static [OnceLock<Box<[u8]>>],
    ) -> Shards {
        assert!(packed.len() == unpacked.len(), "every shard has a place");
        Shards { packed, kernels, unpacked }
    }

    /// The bytes of the kernel with that key. The first call for a kernel of a shard unpacks the shard.
    ///
    /// # Panics
    /// When the shard is damaged, which a test of the crate that holds it excludes.
    pub fn find(&self, key: &str) -> Option<&'static [u8]> {
        let (_, shard, start, len) = self.row(key)?;
        let contents = self.unpacked[shard as usize].get_or_init(|| unpack(self.packed[shard as usize]));
        Some(&contents[start as usize..][..len as usize])
    }

    /// Whether the kernel with that key is here. Unpacks nothing.
    pub fn contains(&self, key: &str) -> bool {
        self.row(key).is_some()
    }

    /// All keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.kernels.iter().map(|row| row.0)
    }

    fn row(&self, key: &str) -> Option<Row> {
        let at = self.kernels.binary_search_by_key(&key, |row| row.0).ok()?;
        Some(self.kernels[at])
    }
}

fn unpack(packed: &[u8]) -> Box<[u8]> {
    let mut contents = vec![];
    let decoder = StreamingDecoder::new(packed).map_err(std::io::Error::other);
    let read = decoder.and_then(|mut decoder| decoder.read_to_end(&mut contents));
    read.expect("a test unpacks every shard");
    contents.into_boxed_slice()
}
