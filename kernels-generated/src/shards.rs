//! Kernels packed in zstd files.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::OnceLock;
use std::thread;

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
        Some(&self.contents(shard)[start as usize..][..len as usize])
    }

    /// Unpacks the shards of several kernels at the same time, each on a thread of its own. A key that is not here has none.
    pub fn unpack(&self, keys: &[&str]) {
        let shards: BTreeSet<u16> = keys.iter().filter_map(|key| Some(self.row(key)?.1)).collect();
        let mut packed = shards.into_iter().filter(|shard| self.unpacked[*shard as usize].get().is_none());
        let Some(own) = packed.next() else { return };
        thread::scope(|scope| {
            for shard in packed {
                // A shard that gets no thread is unpacked when its kernel is asked for.
                let _ = thread::Builder::new().spawn_scoped(scope, move || self.contents(shard));
            }
            self.contents(own);
        });
    }

    fn contents(&self, shard: u16) -> &'static [u8] {
        self.unpacked[shard as usize].get_or_init(|| unpack(self.packed[shard as usize]))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of zstd that hold `one` and `four`, as they are.
    const PACKED: &[&[u8]] = &[
        &[0x28, 0xb5, 0x2f, 0xfd, 0x20, 3, 0x19, 0, 0, b'o', b'n', b'e'],
        &[0x28, 0xb5, 0x2f, 0xfd, 0x20, 4, 0x21, 0, 0, b'f', b'o', b'u', b'r'],
    ];
    const KERNELS: &[Row] = &[("aa", 1, 1, 3), ("bb", 0, 0, 3), ("cc", 1, 0, 1)];

    #[test]
    fn shards_are_unpacked_at_once_or_when_a_kernel_is_asked_for() {
        static UNPACKED: [OnceLock<Box<[u8]>>; 2] = [const { OnceLock::new() }; 2];
        let shards = Shards::new(PACKED, KERNELS, &UNPACKED);
        let unpacked = || UNPACKED.each_ref().map(|shard| shard.get().is_some());
        shards.unpack(&[]);
        shards.unpack(&["dd"]);
        assert_eq!(unpacked(), [false, false]);
        assert_eq!(shards.find("cc"), Some(&b"f"[..]));
        assert_eq!(unpacked(), [false, true]);
        shards.unpack(&["aa", "bb", "cc"]);
        assert_eq!(unpacked(), [true, true]);
        assert_eq!([shards.find("aa"), shards.find("bb"), shards.find("dd")], [Some(&b"our"[..]), Some(b"one"), None]);
    }

    #[test]
    fn all_shards_of_a_call_are_unpacked_by_several_threads_at_once() {
        static UNPACKED: [OnceLock<Box<[u8]>>; 2] = [const { OnceLock::new() }; 2];
        let shards = Shards::new(PACKED, KERNELS, &UNPACKED);
        thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(|| shards.unpack(&["bb", "aa"])))));
        assert_eq!(
            UNPACKED.each_ref().map(|shard| shard.get().map(|bytes| &**bytes)),
            [Some(&b"one"[..]), Some(b"four")]
        );
    }
}
