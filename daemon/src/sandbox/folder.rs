//! Folders by descriptor: opened without following links, listed entry by entry, told apart by device and inode.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, RawDir, Stat, fstat, openat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Room for the entries that one call of the kernel lists.
const LISTED: usize = 32 * 1024;

/// What a folder is, whatever its name: device and inode.
pub(super) type Identity = (u64, u64);

/// Opens the folder `name` of `at` for reading; a link in its place is an error.
pub(super) fn open(at: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    open_with(at, name, OFlags::empty())
}

/// The same without leaving a trace in the folder's access time, by which its user could learn when it was looked at.
pub(super) fn open_quietly(at: impl AsFd, name: impl Arg + Copy) -> Result<OwnedFd, Errno> {
    match open_with(&at, name, OFlags::NOATIME) {
        // The folder is another user's.
        Err(Errno::PERM) => open(at, name),
        other => other,
    }
}

fn open_with(at: impl AsFd, name: impl Arg, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags | more, Mode::empty())
}

/// The identity of an open folder.
pub(super) fn identity(folder: impl AsFd) -> Result<Identity, Errno> {
    let found = fstat(folder)?;
    Ok((found.st_dev, found.st_ino))
}

/// Whether `found` is a folder.
pub(super) fn is_folder(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Directory
}

/// Lists folders, one at a time, through a buffer that is made once.
#[derive(Debug)]
pub(super) struct Lister {
    buffer: Vec<u8>,
}

impl Lister {
    pub(super) fn new() -> Self {
        Self {
            buffer: Vec::with_capacity(LISTED),
        }
    }

    /// Shows `visit` the name of each entry of a freshly opened `folder` and whether the entry may be a folder, until
    /// it answers an error. A folder that has been removed has no entries.
    pub(super) fn each<E: From<Errno>>(
        &mut self,
        folder: impl AsFd,
        mut visit: impl FnMut(&CStr, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut entries = RawDir::new(folder, self.buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(Errno::NOENT) => break,
                Err(error) => return Err(error.into()),
            };
            let name = entry.file_name();
            if name != c"." && name != c".." {
                let kind = entry.file_type();
                visit(
                    name,
                    matches!(kind, FileType::Directory | FileType::Unknown),
                )?;
            }
        }
        Ok(())
    }
}
