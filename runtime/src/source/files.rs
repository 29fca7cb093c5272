//! Files that others may have put there: only regular ones are read, and nothing waits for a pipe.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Whether a name that is a symbolic link is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Follow,
    Refuse,
}

/// Opens a regular file for reading.
pub(super) fn open(path: &Path, links: Links) -> Result<File> {
    let of_name = match links {
        Links::Follow => std::fs::metadata(path)?,
        Links::Refuse => std::fs::symlink_metadata(path)?,
    };
    if !of_name.is_file() {
        return Err(irregular());
    }
    let file = open_at_once(path, links)?;
    // The name may have another file now.
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}

/// The text of a regular file of at most so many bytes.
pub(super) fn read(file: File, most: u64) -> Result<String> {
    let mut text = String::new();
    file.take(most.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() as u64 <= most { Ok(text) } else { Err(Error::new(ErrorKind::FileTooLarge, "the file is too large")) }
}

fn irregular() -> Error {
    Error::new(ErrorKind::InvalidInput, "it is not a regular file")
}

/// Opens a file without waiting for whoever writes into it, should it be a pipe.
#[cfg(unix)]
fn open_at_once(path: &Path, links: Links) -> Result<File> {
    use rustix::fs::{Mode, OFlags};

    let follow = if links == Links::Refuse { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | follow;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

#[cfg(not(unix))]
fn open_at_once(path: &Path, _: Links) -> Result<File> {
    File::open(path)
}

/// The fault in who owns a file or may write into it; `None` when that is the user or the administrator alone.
#[cfg(unix)]
pub(super) fn foreign(metadata: &std::fs::Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt;

    let (own, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if own != user && own != 0 {
        return Some(format!("it belongs to user {own}, the process runs as user {user}"));
    }
    let mode = metadata.mode() & 0o777;
    (mode & 0o022 != 0).then(|| format!("others may write into it (mode {mode:o}); `chmod go-w` mends that"))
}

#[cfg(not(unix))]
pub(super) fn foreign(_: &std::fs::Metadata) -> Option<String> {
    None
}
