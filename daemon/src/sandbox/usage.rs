//! Measures what a worker's files fill, at a cost that no program can raise.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Stat, fstat, statat};
use rustix::io::Errno;

use super::folder::{self, Lister};
use super::limits::{MAX_SCRATCH_DEPTH, MAX_SCRATCH_ENTRIES};

/// Entries looked at in one measuring. More than there may be, because entries can be moved while they are counted.
const MOST_STEPS: usize = 4 * MAX_SCRATCH_ENTRIES;
/// Bytes of the list of mappings; a longer one counts as over the limit. Programs within their memory limit stay far
/// below it unless they make mappings for the sake of their number.
const MOST_MAPPINGS: usize = 1 << 20;
/// How long measuring goes on at a time; a program can keep the kernel's locks busy that it takes, and the processors.
const SLICE: Duration = Duration::from_millis(50);

/// What a worker's files fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// So many bytes, within the limit.
    Bytes(u64),
    /// More bytes or entries than the limits, deeper folders, or something that cannot be looked into.
    Over,
}

/// The files of a worker that have been counted so far.
#[derive(Debug)]
pub(super) struct Measuring {
    pid: i32,
    /// The name of its folder, which nothing outside it has in its path.
    name: CString,
    /// What a file counts as that is only mapped, because it cannot be measured.
    largest: u64,
    count: Count,
    lister: Lister,
    stage: Stage,
}

/// What is being counted.
#[derive(Debug)]
enum Stage {
    /// What has a name, folder by folder.
    Named(Vec<Level>),
    /// Files without a name that are open.
    Open,
    /// Files without a name that are only mapped; the list of mappings and what was read of it.
    Mapped(File, Vec<u8>),
}

/// A folder on the way from the worker's own to the one that was listed last.
#[derive(Debug)]
struct Level {
    folder: OwnedFd,
    /// Folders in it that are still to be listed.
    inner: Vec<CString>,
}

/// There is more than there may be.
#[derive(Clone, Copy, Debug)]
struct Over;

impl From<Errno> for Over {
    /// What cannot be looked into may hold anything.
    fn from(_: Errno) -> Self {
        Self
    }
}

impl Measuring {
    /// Begins to measure the worker `pid`, whose folder is `top` and is called `name` and which may fill `limit` bytes.
    pub(super) fn begin(
        top: &OwnedFd,
        name: &CStr,
        pid: i32,
        (limit, largest): (u64, u64),
    ) -> Self {
        let mut measuring = Self {
            pid,
            name: name.to_owned(),
            largest,
            count: Count {
                limit,
                bytes: 0,
                seen: HashSet::new(),
                steps: 0,
            },
            lister: Lister::new(),
            stage: Stage::Named(Vec::new()),
        };
        // Where even this fails the first step finds it over.
        if let Ok(folder) = folder::open_quietly(top, c".") {
            measuring.stage = Stage::Named(vec![Level {
                folder,
                inner: vec![c".".to_owned()],
            }]);
        } else {
            measuring.count.steps = MOST_STEPS;
        }
        measuring
    }

    /// Goes on for a moment; gives the result when there is one. Each call gets on by a folder at least, and how many
    /// folders are looked at is limited, so it ends whatever the worker does meanwhile.
    pub(super) fn go_on(&mut self) -> Option<Usage> {
        let start = Instant::now();
        loop {
            match self.step() {
                Ok(true) if start.elapsed() > SLICE => return None,
                Ok(true) => {}
                Ok(false) => return Some(Usage::Bytes(self.count.bytes)),
                Err(Over) => return Some(Usage::Over),
            }
        }
    }

    /// Looks at one folder, or one part of what else there is; false when that was all.
    fn step(&mut self) -> Result<bool, Over> {
        self.count.step()?;
        match &mut self.stage {
            Stage::Named(levels) => {
                if !self.count.next_folder(levels, &mut self.lister)? {
                    self.stage = Stage::Open;
                }
                Ok(true)
            }
            Stage::Open => {
                self.count.open(self.pid)?;
                // A worker that has just ended has no mappings.
                let Ok(file) = File::open(format!("/proc/{}/maps", self.pid)) else {
                    return Ok(false);
                };
                self.stage = Stage::Mapped(file, Vec::new());
                Ok(true)
            }
            Stage::Mapped(file, text) => {
                let mut part = [0; 4096];
                let length = file.read(&mut part).unwrap_or_default();
                if let Some(more @ [_, ..]) = part.get(..length) {
                    text.extend_from_slice(more);
                    return if text.len() > MOST_MAPPINGS {
                        Err(Over)
                    } else {
                        Ok(true)
                    };
                }
                self.count.mapped(text, &self.name, self.largest)?;
                Ok(false)
            }
        }
    }
}

#[derive(Debug)]
struct Count {
    limit: u64,
    bytes: u64,
    /// Inodes counted already; all lie on one file system.
    seen: HashSet<u64>,
    steps: usize,
}

impl Count {
    /// Counts what is in the next folder, which is opened from the one above it, so that no length of a path hides
    /// anything; false when there is none.
    fn next_folder(&mut self, levels: &mut Vec<Level>, lister: &mut Lister) -> Result<bool, Over> {
        let Some(level) = levels.last_mut() else {
            return Ok(false);
        };
        let Some(name) = level.inner.pop() else {
            levels.pop();
            return Ok(true);
        };
        let folder = match folder::open_quietly(&level.folder, name.as_c_str()) {
            Ok(folder) => folder,
            // Moved since; where it is now is seen now or the next time.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(true),
            Err(Errno::ACCESS) if holds_nothing(&level.folder, &name) => return Ok(true),
            Err(_) => return Err(Over),
        };
        self.add_found(&fstat(&folder)?)?;
        let inner = self.list(&folder, lister)?;
        levels.push(Level { folder, inner });
        // The first is there twice, as itself and as the way to it.
        if levels.len() > MAX_SCRATCH_DEPTH + 1 {
            return Err(Over);
        }
        Ok(true)
    }

    /// Counts the entries of one folder; gives the folders among them.
    fn list(&mut self, folder: &OwnedFd, lister: &mut Lister) -> Result<Vec<CString>, Over> {
        let mut inner = Vec::new();
        lister.each(folder, |name, _| {
            self.step()?;
            match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => {
                    self.add_found(&found)?;
                    if folder::is_folder(&found) {
                        inner.push(name.to_owned());
                    }
                    Ok(())
                }
                Err(Errno::NOENT) => Ok(()),
                Err(_) => Err(Over),
            }
        })?;
        Ok(inner)
    }

    /// Files without a name that `pid` has open. Its descriptors are limited.
    fn open(&mut self, pid: i32) -> Result<(), Over> {
        // A worker that has just ended has none.
        let entries = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        for entry in entries.flatten() {
            self.step()?;
            if let Ok(found) = fs::metadata(entry.path())
                && found.is_file()
                && found.nlink() == 0
            {
                self.add(found.ino(), found.blocks().saturating_mul(512))?;
            }
        }
        Ok(())
    }

    /// Files without a name in the list `text` of mappings that were in the folder `name`.
    fn mapped(&mut self, text: &[u8], name: &CStr, largest: u64) -> Result<(), Over> {
        let name = name.to_string_lossy();
        for line in text.split(|byte| *byte == b'\n') {
            if !line.ends_with(b" (deleted)") {
                continue;
            }
            let line = String::from_utf8_lossy(line);
            let inode = line
                .split_ascii_whitespace()
                .nth(4)
                .and_then(|text| text.parse().ok());
            // What is deleted elsewhere, such as a library that was updated, is not the worker's.
            if let Some(inode) = inode
                && line.contains(name.as_ref())
            {
                self.add(inode, largest)?;
            }
        }
        Ok(())
    }

    fn add_found(&mut self, found: &Stat) -> Result<(), Over> {
        let mut bytes = found.st_blocks.unsigned_abs().saturating_mul(512);
        // Some file systems keep the text of a link where blocks do not show it.
        if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
            bytes = bytes.max(found.st_size.unsigned_abs());
        }
        self.add(found.st_ino, bytes)
    }

    fn add(&mut self, inode: u64, bytes: u64) -> Result<(), Over> {
        if self.seen.insert(inode) {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        if self.bytes > self.limit || self.seen.len() > MAX_SCRATCH_ENTRIES {
            return Err(Over);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Over> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(Over);
        }
        Ok(())
    }
}

/// Whether a folder that may not be listed may not be filled either. A confined program gives a folder its mode when
/// it makes it and cannot change it later.
fn holds_nothing(at: &OwnedFd, name: &CStr) -> bool {
    const FILL: u32 = 0o300;
    statat(at, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| found.st_mode & FILL != FILL)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const PLENTY: u64 = 1 << 30;

    fn measure(path: &Path, limit: u64) -> Usage {
        let folder = folder::open(rustix::fs::CWD, path).unwrap();
        let name = CString::new(path.file_name().unwrap().to_str().unwrap()).unwrap();
        let pid = std::process::id().cast_signed();
        let mut measuring = Measuring::begin(&folder, &name, pid, (limit, 7 << 20));
        loop {
            if let Some(usage) = measuring.go_on() {
                return usage;
            }
        }
    }

    fn bytes(path: &Path) -> u64 {
        match measure(path, PLENTY) {
            Usage::Bytes(bytes) => bytes,
            Usage::Over => panic!("over"),
        }
    }

    #[test]
    fn files_without_a_name_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let before = bytes(folder.path());
        fs::write(folder.path().join("named"), vec![1; 100_000]).unwrap();
        let named = bytes(folder.path()) - before;
        assert!((100_000..200_000).contains(&named), "{named}");
        let open = File::open(folder.path().join("named")).unwrap();
        fs::remove_file(folder.path().join("named")).unwrap();
        let nameless = bytes(folder.path()) - before;
        assert!(nameless >= 100_000, "{nameless}");
        drop(open);
    }

    #[test]
    fn the_limit_in_bytes_is_the_last_that_is_not_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), vec![1; 100_000]).unwrap();
        let used = bytes(folder.path());
        assert_eq!(measure(folder.path(), used), Usage::Bytes(used));
        assert_eq!(measure(folder.path(), used - 1), Usage::Over);
    }

    #[test]
    fn a_file_with_two_names_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("one"), vec![1; 100_000]).unwrap();
        let before = bytes(folder.path());
        fs::hard_link(folder.path().join("one"), folder.path().join("two")).unwrap();
        assert_eq!(bytes(folder.path()), before);
    }

    #[test]
    fn a_path_longer_than_any_the_kernel_takes_hides_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let before = bytes(folder.path());
        let long = "d".repeat(200);
        let mut at = folder::open(rustix::fs::CWD, folder.path()).unwrap();
        for _ in 0..30 {
            rustix::fs::mkdirat(&at, long.as_str(), 0o700.into()).unwrap();
            at = folder::open(&at, long.as_str()).unwrap();
        }
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        let file = rustix::fs::openat(&at, "file", flags, 0o600.into()).unwrap();
        std::io::Write::write_all(&mut File::from(file), &vec![1; 1_000_000]).unwrap();
        let used = bytes(folder.path()) - before;
        assert!(used >= 1_000_000, "{used}");
        assert_eq!(measure(folder.path(), 1_000_000), Usage::Over);
    }

    #[test]
    fn the_deepest_folder_that_is_not_over_is_the_sixty_third_below_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let deep = vec!["d"; MAX_SCRATCH_DEPTH - 1].join("/");
        fs::create_dir_all(folder.path().join(&deep)).unwrap();
        assert!(matches!(measure(folder.path(), PLENTY), Usage::Bytes(_)));
        fs::create_dir(folder.path().join(&deep).join("d")).unwrap();
        assert_eq!(measure(folder.path(), PLENTY), Usage::Over);
    }

    #[test]
    fn folders_count_as_entries() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MAX_SCRATCH_ENTRIES {
            fs::create_dir(folder.path().join(number.to_string())).unwrap();
        }
        assert_eq!(measure(folder.path(), PLENTY), Usage::Over);
        fs::remove_dir(folder.path().join("0")).unwrap();
        assert!(matches!(measure(folder.path(), PLENTY), Usage::Bytes(_)));
    }
}
