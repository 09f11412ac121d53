//! Keeps the log file that a client started the daemon with within bounds.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Above this size, in bytes, the log is put aside, over the one that was put aside before.
pub(super) const MAX_LOG_BYTES: u64 = 32 * 1024 * 1024;

/// Puts the log at `path` aside where it has grown past `limit` bytes and is what this process writes
/// its stderr to; whether it did. Another file, a terminal or a service manager's pipe is not ours to turn.
pub(super) fn turn(path: &Path, limit: u64) -> io::Result<bool> {
    let Ok(named) = path.symlink_metadata() else {
        return Ok(false);
    };
    let written = rustix::fs::fstat(rustix::stdio::stderr())?;
    let same = (named.dev(), named.ino()) == (written.st_dev, written.st_ino);
    if !(named.is_file() && same && named.len() > limit) {
        return Ok(false);
    }
    std::fs::rename(path, path.with_extension("log.1"))?;
    let fresh = OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    rustix::stdio::dup2_stderr(&fresh)?;
    Ok(true)
}
