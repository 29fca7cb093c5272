//! Shards: the committed kernels in files of neighbours that are compressed together.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Manifest;

/// The most bytes of a shard before it is compressed, unless a single kernel has more. A program unpacks a whole shard for the
/// first kernel that it takes from it.
const MOST_BYTES: usize = 512 << 10;

/// The level of compression: high, as kernels are packed once.
const LEVEL: i32 = 19;

/// A crate of committed kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Package {
    /// The PTX texts.
    Ptx,
    /// Machine code for Hopper.
    MachineCode,
}

impl Package {
    /// All crates of committed kernels.
    pub(super) const ALL: [Package; 2] = [Package::Ptx, Package::MachineCode];

    /// The crate's folder, relative to the manifest.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Package::Ptx => "",
            Package::MachineCode => "sm90/",
        }
    }

    /// How the files of its shards end.
    fn ending(self) -> &'static str {
        match self {
            Package::Ptx => "ptx.zst",
            Package::MachineCode => "cubin.zst",
        }
    }

    /// The type of the rows of its table.
    fn row(self) -> &'static str {
        match self {
            Package::Ptx => "crate::Row",
            Package::MachineCode => "oplus_kernels::Row",
        }
    }
}

/// Kernels of one family, one behind the other.
#[derive(Debug)]
pub(super) struct Shard {
    /// The file, in the folder of its crate.
    pub(super) file: String,
    /// The key of each kernel and where its bytes are.
    pub(super) kernels: Vec<(String, Range<usize>)>,
    /// The bytes of all kernels.
    pub(super) contents: Vec<u8>,
}

/// Divides the kernels of a manifest into shards. Those of a family follow the order of the manifest, so that a kernel that
/// is new or different changes shards of its own family alone. `code` gives the bytes of a kernel, by key, if there are any.
pub(super) fn divide<'a>(package: Package, manifest: &Manifest, code: impl Fn(&str) -> Option<&'a [u8]>) -> Vec<Shard> {
    let mut families: BTreeMap<&str, Vec<Shard>> = BTreeMap::new();
    for entry in &manifest.kernel {
        let Some(bytes) = code(&entry.key) else { continue };
        let name = family(&entry.program);
        let shards = families.entry(name).or_default();
        if shards.last().is_none_or(|shard| shard.contents.len() + bytes.len() > MOST_BYTES) {
            let file = format!("shards/{name}.{}.{}", shards.len(), package.ending());
            shards.push(Shard { file, kernels: vec![], contents: vec![] });
        }
        if let Some(shard) = shards.last_mut() {
            let start = shard.contents.len();
            shard.contents.extend_from_slice(bytes);
            shard.kernels.push((entry.key.clone(), start..shard.contents.len()));
        }
    }
    families.into_values().flatten().collect()
}

/// The name that a program shares with its gradient and with the other stages of both: `affine` of `affine.bar_2` and of
/// `affine_2`.
fn family(program: &str) -> &str {
    let name = program.split('.').next().unwrap_or(program);
    match name.rsplit_once('_') {
        Some((name, stage)) if stage.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => name,
    }
}

/// The table of a crate of shards, in its folder of sources: the shards, and for every kernel, ascending by key, the index of
/// its shard, where it begins there and how long it is.
pub(super) fn table(package: Package, shards: &[Shard]) -> String {
    let mut rows: Vec<(&str, usize, &Range<usize>)> = vec![];
    for (number, shard) in shards.iter().enumerate() {
        rows.extend(shard.kernels.iter().map(|(key, range)| (key.as_str(), number, range)));
    }
    rows.sort_unstable_by_key(|row| row.0);
    let include = |shard: &Shard| format!("    include_bytes!(\"../{}\"),\n", shard.file);
    let row = |(key, number, range): (&str, usize, &Range<usize>)| {
        format!("    (\"{key}\", {number}, {}, {}),\n", range.start, range.len())
    };
    format!(
        "// Written by `oplus`, not by hand: the shards, and for every kernel its key, its shard, its first byte and its \
         bytes.\n\nuse {};\n\npub(crate) static SHARDS: &[&[u8]] = &[\n{}];\n\npub(crate) static KERNELS: &[Row] = &[\n\
         {}];\n",
        package.row(),
        shards.iter().map(include).collect::<String>(),
        rows.into_iter().map(row).collect::<String>(),
    )
}

/// The file of a shard with these contents.
pub(super) fn pack(contents: &[u8]) -> std::io::Result<Vec<u8>> {
    zstd::encode_all(contents, LEVEL)
}

/// The contents of a shard's file.
pub(super) fn unpack(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    zstd::decode_all(packed)
}

#[cfg(test)]
mod tests {
    use super::super::manifest::tests::entry;
    use super::*;

    /// A manifest of kernels of these programs whose keys are `a`, `b`, ….
    fn manifest(programs: &[&str]) -> Manifest {
        let kernel = |(i, program): (usize, &&str)| {
            let mut entry = entry(&char::from(b'a' + i as u8).to_string(), "");
            entry.program = (*program).into();
            entry
        };
        Manifest::new(programs.iter().enumerate().map(kernel).collect())
    }

    #[test]
    fn a_family_shares_shards_up_to_their_size() {
        let bytes = vec![7; MOST_BYTES / 2];
        let manifest = manifest(&["affine", "cumsum", "affine.bar_2", "affine_1"]);
        let shards = divide(Package::Ptx, &manifest, |_| Some(&bytes));
        let found: Vec<_> = shards.iter().map(|s| (s.file.as_str(), s.kernels.len(), s.contents.len())).collect();
        let [one, two] = [MOST_BYTES / 2, MOST_BYTES];
        assert_eq!(
            found,
            [
                ("shards/affine.0.ptx.zst", 2, two),
                ("shards/affine.1.ptx.zst", 1, one),
                ("shards/cumsum.0.ptx.zst", 1, one)
            ]
        );
        assert_eq!(shards[0].kernels[1], ("c".into(), one..two));
    }

    #[test]
    fn kernels_without_code_are_in_no_shard_and_large_ones_alone() {
        let large = vec![1; MOST_BYTES + 1];
        let code = |key: &str| (key != "b").then_some(&large[..]);
        let shards = divide(Package::MachineCode, &manifest(&["affine", "affine", "affine"]), code);
        let keys: Vec<_> = shards.iter().map(|s| s.kernels[0].0.as_str()).collect();
        assert_eq!((keys, shards[1].file.as_str()), (vec!["a", "c"], "shards/affine.1.cubin.zst"));
    }

    #[test]
    fn a_table_has_rows_in_the_order_of_keys() {
        let manifest = manifest(&["cumsum", "affine"]);
        let shards = divide(Package::Ptx, &manifest, |key| Some(if key == "a" { b"three" } else { b"12" }));
        let table = table(Package::Ptx, &shards);
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("    ")).collect();
        assert_eq!(
            rows,
            [
                "    include_bytes!(\"../shards/affine.0.ptx.zst\"),",
                "    include_bytes!(\"../shards/cumsum.0.ptx.zst\"),",
                "    (\"a\", 1, 0, 5),",
                "    (\"b\", 0, 0, 2),"
            ]
        );
    }

    #[test]
    fn packed_contents_are_unpacked() {
        let contents = b"contents".repeat(100);
        let packed = pack(&contents).unwrap();
        assert!(packed.len() < 50);
        assert_eq!(unpack(&packed).unwrap(), contents);
        assert!(unpack(b"contents").is_err());
    }
}
