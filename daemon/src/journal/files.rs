//! Folders and files that are the user's alone.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::JournalError;

/// How long an older daemon that is ending may still hold the folder.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Makes a folder (0700), or sees that the one that is there is ours alone.
pub(super) fn private_folder(path: &Path) -> Result<(), JournalError> {
    let failed = |source| JournalError::Open {
        path: path.to_owned(),
        source,
    };
    let untrusted = |fault| JournalError::Untrusted {
        path: path.to_owned(),
        fault,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed)?;
    let metadata = path.metadata().map_err(failed)?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(untrusted("it belongs to another user"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(untrusted("other users can enter it (chmod 700 it)"));
    }
    Ok(())
}

/// Opens a file for lines at its end, making it (0600) where it is missing; no links, no pipes.
pub(super) fn open_log(path: &Path) -> Result<File, JournalError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = || {
        OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
    };
    let failed = |source| JournalError::Open {
        path: path.to_owned(),
        source,
    };
    let file = open().map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let fault = if !metadata.is_file() {
        "it is no ordinary file"
    } else if metadata.uid() != rustix::process::geteuid().as_raw() {
        "it belongs to another user"
    } else if metadata.mode() & 0o077 != 0 {
        "other users can read or write it (chmod 600 it)"
    } else {
        return Ok(file);
    };
    Err(JournalError::Untrusted {
        path: path.to_owned(),
        fault,
    })
}

/// Makes a file (0600) that was not there.
pub(super) fn create(path: &Path) -> Result<File, JournalError> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|source| JournalError::Write {
            path: path.to_owned(),
            source,
        })
}

/// Reads a whole ordinary file of at most so many bytes; `None` where there is none.
pub(super) fn read_bounded(path: &Path, most: u64) -> Result<Option<Vec<u8>>, JournalError> {
    use std::io::Read as _;

    let Some(file) = open_existing(path)? else {
        return Ok(None);
    };
    let failed = |source| JournalError::Read {
        path: path.to_owned(),
        source,
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(std::io::Error::other("it is no ordinary file")));
    }
    if metadata.len() > most {
        let text = format!("it has {} bytes, more than {most}", metadata.len());
        return Err(failed(std::io::Error::other(text)));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(bytes))
}

/// Opens a file for reading; `None` where there is none. No links, no pipes.
pub(super) fn open_existing(path: &Path) -> Result<Option<File>, JournalError> {
    open_if_there(path, OpenOptions::new().read(true)).map_err(|source| JournalError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Opens an existing file for reading, and for writing at its end; `None` where there is none. No links, no pipes.
pub(super) fn open_to_add(path: &Path) -> Result<Option<File>, JournalError> {
    let opened = open_if_there(path, OpenOptions::new().read(true).append(true));
    opened.map_err(|source| JournalError::Write {
        path: path.to_owned(),
        source,
    })
}

fn open_if_there(path: &Path, options: &mut OpenOptions) -> std::io::Result<Option<File>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match options.custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a whole file (0600) beside its place and moves it there.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    use std::io::Write as _;

    let beside = path.with_extension("new");
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|source| {
        // What is half written must not be taken for a record, nor fill the disk.
        let _ = std::fs::remove_file(&beside);
        JournalError::Write {
            path: path.to_owned(),
            source,
        }
    })
}

/// Takes the folder for this process; the lock goes with the file.
pub(super) fn lock(folder: &Path) -> Result<File, JournalError> {
    let path = folder.join("lock");
    let file = open_log(&path)?;
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(JournalError::InUse {
                    path: folder.to_owned(),
                });
            }
            Err(std::fs::TryLockError::Error(source)) => {
                return Err(JournalError::Open { path, source });
            }
        }
    }
}
