//! The folder of a cache: who may write into it, its entries, and how large it may become.

use std::fs::{DirBuilder, DirEntry, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::files::{Links, foreign, open, read};
use crate::Error;

/// Bytes of the largest entry that is read.
const MOST_OF_ENTRY: u64 = 64 << 20;
/// The ends of the names of entries, and of files that are to become entries.
const ENTRY: &str = ".ptx";
const UNFINISHED: &str = ".unfinished";
/// A file that has not become an entry for so long never will.
const GIVEN_UP: Duration = Duration::from_secs(3600);

/// A folder of entries that the user alone may write.
#[derive(Clone, Debug)]
pub(super) struct CacheFolder {
    pub(super) path: PathBuf,
    /// Bytes of all entries; those that were not used for the longest time go.
    pub(super) most_bytes: u64,
}

impl CacheFolder {
    /// Why the folder is not used, if it is there and is not.
    pub(super) fn refusal(&self) -> Option<Error> {
        let metadata = std::fs::metadata(&self.path).ok()?;
        let reason = if metadata.is_dir() { foreign(&metadata)? } else { "it is no folder".to_owned() };
        let reason = format!("compiled kernels are not kept here: {reason}");
        Some(Error::Source { path: self.path.display().to_string(), reason })
    }

    /// The text of an entry that only the user can have written.
    pub(super) fn read(&self, name: &str) -> Option<String> {
        if self.refusal().is_some() {
            return None;
        }
        let file = open(&self.path.join(name), Links::Refuse).ok()?;
        if foreign(&file.metadata().ok()?).is_some() {
            return None;
        }
        used_now(&file);
        read(file, MOST_OF_ENTRY).ok()
    }

    /// Replaces an entry in one step, then makes room.
    pub(super) fn write(&self, name: &str, contents: &str) -> std::io::Result<()> {
        if self.most_bytes == 0 || self.refusal().is_some() {
            return Ok(());
        }
        make(&self.path)?;
        let mut file = tempfile::Builder::new().suffix(UNFINISHED).tempfile_in(&self.path)?;
        file.write_all(contents.as_bytes())?;
        file.persist(self.path.join(name))?;
        self.make_room()
    }

    /// Removes the entries that have not been used for the longest time, until the others are small enough.
    fn make_room(&self) -> std::io::Result<()> {
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = vec![];
        for file in std::fs::read_dir(&self.path)?.flatten() {
            let Some((used, bytes)) = facts(&file) else { continue };
            let name = file.file_name();
            let ends = |end| name.to_str().is_some_and(|name| name.ends_with(end));
            if ends(ENTRY) {
                entries.push((used, bytes, file.path()));
            } else if ends(UNFINISHED) && used.elapsed().is_ok_and(|age| age > GIVEN_UP) {
                let _ = std::fs::remove_file(file.path());
            }
        }
        entries.sort();
        let mut bytes = entries.iter().fold(0, |sum: u64, (_, own, _)| sum.saturating_add(*own));
        for (_, own, path) in entries {
            if bytes <= self.most_bytes {
                break;
            }
            // Another process may have been faster.
            let _ = std::fs::remove_file(path);
            bytes -= own;
        }
        Ok(())
    }
}

/// When a regular file was used last, and its bytes.
fn facts(file: &DirEntry) -> Option<(SystemTime, u64)> {
    let metadata = file.metadata().ok()?;
    if metadata.is_file() { Some((metadata.modified().ok()?, metadata.len())) } else { None }
}

/// Notes that an entry is used: the time of its last use is that of its modification, as many systems keep no other.
fn used_now(file: &File) {
    let _ = file.set_modified(SystemTime::now());
}

/// Makes the folder, and those that it is in, for the user alone.
fn make(path: &PathBuf) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn cache(most_bytes: u64) -> (tempfile::TempDir, CacheFolder) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/later");
        (folder, CacheFolder { path, most_bytes })
    }

    fn chmod(path: &std::path::Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_folder_is_made_for_the_user_alone() {
        let (_folder, cache) = cache(100);
        cache.write("a.ptx", "text").unwrap();
        assert_eq!(cache.read("a.ptx").as_deref(), Some("text"));
        for (path, mode) in [(cache.path.clone(), 0o700), (cache.path.join("a.ptx"), 0o600)] {
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[test]
    fn a_folder_that_others_may_write_into_is_not_used() {
        let (_folder, cache) = cache(100);
        cache.write("a.ptx", "text").unwrap();
        for mode in [0o777, 0o770, 0o720, 0o1777] {
            chmod(&cache.path, mode);
            assert_eq!(cache.read("a.ptx"), None, "{mode:o}");
            cache.write("b.ptx", "text").unwrap();
            let said = cache.refusal().unwrap().to_string();
            assert!(said.contains("made/later") && said.contains("others may write into it"), "{said}");
        }
        chmod(&cache.path, 0o755);
        assert_eq!((cache.read("a.ptx").as_deref(), cache.read("b.ptx")), (Some("text"), None));
        let file = CacheFolder { path: cache.path.join("a.ptx"), ..cache };
        assert!(file.refusal().unwrap().to_string().contains("it is no folder"));
    }

    #[test]
    fn an_entry_that_others_may_write_into_is_not_used() {
        let (_folder, cache) = cache(100);
        cache.write("a.ptx", "text").unwrap();
        chmod(&cache.path.join("a.ptx"), 0o666);
        assert_eq!(cache.read("a.ptx"), None);
    }

    /// None of these is followed, and none makes the reader wait.
    #[test]
    fn links_pipes_devices_and_folders_are_no_entries() {
        let (folder, cache) = cache(100);
        cache.write("a.ptx", "text").unwrap();
        let elsewhere = folder.path().join("elsewhere");
        std::fs::write(&elsewhere, "text").unwrap();
        symlink(&elsewhere, cache.path.join("link.ptx")).unwrap();
        symlink("/dev/zero", cache.path.join("device.ptx")).unwrap();
        std::fs::create_dir(cache.path.join("folder.ptx")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(cache.path.join("pipe.ptx")).status().unwrap();
        assert!(made.success());
        for name in ["link.ptx", "device.ptx", "folder.ptx", "pipe.ptx", "missing.ptx"] {
            assert_eq!(cache.read(name), None, "{name}");
        }
        assert!(open(&cache.path.join("pipe.ptx"), Links::Follow).is_err());
        assert!(open(std::path::Path::new("/dev/zero"), Links::Follow).is_err());
        cache.write("pipe.ptx", "text").unwrap();
        assert_eq!(cache.read("pipe.ptx").as_deref(), Some("text"));
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_goes_first() {
        let (_folder, cache) = cache(30);
        let age = |name: &str, seconds: u64| {
            let file = File::options().write(true).open(cache.path.join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        for (name, seconds) in [("a.ptx", 300), ("b.ptx", 200), ("c.ptx", 100)] {
            cache.write(name, "ten bytes.").unwrap();
            age(name, seconds);
        }
        cache.read("a.ptx").unwrap();
        std::fs::write(cache.path.join("x.unfinished"), "crashed").unwrap();
        std::fs::write(cache.path.join("y.unfinished"), "in progress").unwrap();
        std::fs::write(cache.path.join("notes"), "of somebody's own").unwrap();
        age("x.unfinished", 7200);
        cache.write("d.ptx", "ten bytes.").unwrap();
        let mut left: Vec<_> = std::fs::read_dir(&cache.path).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.ptx", "c.ptx", "d.ptx", "notes", "y.unfinished"]);
        CacheFolder { most_bytes: 0, ..cache.clone() }.write("e.ptx", "text").unwrap();
        assert_eq!(cache.read("e.ptx"), None);
    }
}
