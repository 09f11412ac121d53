//! How much the journal keeps: the oldest finished files go first.

use std::collections::{HashSet, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::store;

/// What a kept file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A call log that is full.
    Log,
    /// One finished run.
    Run,
}

#[derive(Debug)]
struct Kept {
    path: PathBuf,
    bytes: u64,
    kind: Kind,
    /// When it was finished.
    time: SystemTime,
}

/// The bounds of what a journal keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes: u64,
    pub(super) runs: u64,
    pub(super) age: Duration,
}

/// A file of an earlier daemon: its bytes are those of the run's other file, too.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) kind: Kind,
}

/// The finished files of a journal, and the bounds they are kept within.
#[derive(Debug)]
pub(super) struct Retention {
    keep: Bounds,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    /// Oldest first.
    kept: VecDeque<Kept>,
    /// Bytes of `kept`.
    bytes: u64,
    /// The heads of runs among `kept`.
    runs: HashSet<PathBuf>,
    /// Bytes of the call log that is being written, which is counted and never removed.
    current: u64,
}

impl Retention {
    /// Counts what is in the folders of an earlier daemon, and removes what is over the bounds.
    pub(super) fn new(keep: Bounds, found: Vec<Found>) -> Self {
        let mut aged: Vec<_> = found
            .into_iter()
            .filter_map(|file| {
                let metadata = file.path.symlink_metadata().ok()?;
                let time = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                Some((time, file))
            })
            .collect();
        aged.sort_by(|a, b| (a.0, &a.1.path).cmp(&(b.0, &b.1.path)));
        let mut files = Files::default();
        for (time, file) in aged {
            files.push(Kept {
                path: file.path,
                bytes: file.bytes,
                kind: file.kind,
                time,
            });
        }
        let retention = Self {
            keep,
            files: Mutex::new(files),
        };
        retention.tidy();
        retention
    }

    /// Counts a file that was finished, and removes what is over the bounds.
    pub(super) fn add(&self, path: PathBuf, bytes: u64, kind: Kind) {
        let mut files = self.lock();
        files.push(Kept {
            path,
            bytes,
            kind,
            time: SystemTime::now(),
        });
        self.trim(&mut files);
    }

    /// Removes what is over the bounds, by age too.
    pub(super) fn tidy(&self) {
        self.trim(&mut self.lock());
    }

    /// Whether the run with this head is kept.
    pub(super) fn has(&self, head: &Path) -> bool {
        self.lock().runs.contains(head)
    }

    /// Notes a file's new size.
    pub(super) fn resized(&self, path: &Path, bytes: u64) {
        let mut files = self.lock();
        let Some(kept) = files.kept.iter_mut().rev().find(|kept| kept.path == path) else {
            return;
        };
        let before = std::mem::replace(&mut kept.bytes, bytes);
        files.bytes = files.bytes.saturating_sub(before).saturating_add(bytes);
        self.trim(&mut files);
    }

    /// Notes that a file got longer by so much.
    pub(super) fn grown(&self, path: &Path, bytes: u64) {
        let mut files = self.lock();
        let Some(kept) = files.kept.iter_mut().rev().find(|kept| kept.path == path) else {
            return;
        };
        kept.bytes = kept.bytes.saturating_add(bytes);
        files.bytes = files.bytes.saturating_add(bytes);
        self.trim(&mut files);
    }

    /// Notes the size of the call log that is being written.
    pub(super) fn current_log(&self, bytes: u64) {
        let mut files = self.lock();
        files.current = bytes;
        self.trim(&mut files);
    }

    /// Bytes of everything that is counted.
    pub(super) fn bytes(&self) -> u64 {
        let files = self.lock();
        files.bytes.saturating_add(files.current)
    }

    fn trim(&self, files: &mut Files) {
        let oldest = SystemTime::now().checked_sub(self.keep.age);
        let aged = |kept: &Kept| oldest.is_some_and(|oldest| kept.time < oldest);
        while files.kept.front().is_some_and(aged) && files.drop_at(0) {}
        while files.bytes.saturating_add(files.current) > self.keep.bytes && files.drop_at(0) {}
        while files.runs.len() as u64 > self.keep.runs {
            let oldest = files.kept.iter().position(|kept| kept.kind == Kind::Run);
            if !oldest.is_some_and(|at| files.drop_at(at)) {
                break;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn push(&mut self, kept: Kept) {
        self.bytes = self.bytes.saturating_add(kept.bytes);
        if kept.kind == Kind::Run {
            self.runs.insert(kept.path.clone());
        }
        self.kept.push_back(kept);
    }

    /// Removes one file, a run's head before its parts; false where there is none at that place.
    fn drop_at(&mut self, at: usize) -> bool {
        let Some(kept) = self.kept.remove(at) else {
            return false;
        };
        self.bytes = self.bytes.saturating_sub(kept.bytes);
        remove(&kept.path);
        if kept.kind == Kind::Run {
            self.runs.remove(&kept.path);
            remove(&kept.path.with_extension(store::PARTS));
        }
        true
    }
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            let path = path.display();
            tracing::warn!(%path, %error, "cannot remove an old file of the journal");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, bytes: usize) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, vec![b'x'; bytes]).unwrap();
        path
    }

    fn bounds(bytes: u64, runs: u64) -> Bounds {
        Bounds {
            bytes,
            runs,
            age: Duration::from_hours(1),
        }
    }

    fn found(path: PathBuf, kind: Kind) -> Found {
        Found {
            path,
            bytes: 1,
            kind,
        }
    }

    fn left(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_go_when_the_bytes_are_used_up() {
        let folder = tempfile::tempdir().unwrap();
        let retention = Retention::new(bounds(100, 10), Vec::new());
        for name in ["a", "b", "c"] {
            retention.add(write(folder.path(), name, 30), 30, Kind::Run);
        }
        assert_eq!(left(folder.path()), ["a", "b", "c"]);
        retention.current_log(20);
        assert_eq!(left(folder.path()), ["b", "c"]);
        retention.resized(&folder.path().join("c"), 70);
        assert_eq!(left(folder.path()), ["c"]);
        retention.grown(&folder.path().join("c"), 10);
        assert_eq!(
            (left(folder.path()), retention.bytes()),
            (vec!["c".to_owned()], 100)
        );
        retention.add(write(folder.path(), "d", 500), 500, Kind::Log);
        assert_eq!(left(folder.path()), [""; 0]);
    }

    #[test]
    fn the_oldest_runs_go_when_there_are_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let log = write(folder.path(), "log", 1);
        let old = write(folder.path(), "old", 1);
        let retention = Retention::new(
            bounds(100, 2),
            vec![found(log, Kind::Log), found(old, Kind::Run)],
        );
        retention.add(write(folder.path(), "a", 1), 1, Kind::Run);
        retention.add(write(folder.path(), "b", 1), 1, Kind::Run);
        assert_eq!(left(folder.path()), ["a", "b", "log"]);
    }

    #[test]
    fn what_is_too_old_goes_and_a_runs_parts_go_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let hours = |hours| SystemTime::now() - Duration::from_hours(hours);
        let aged = |name: &str, time| {
            let path = write(folder.path(), name, 1);
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(time).unwrap();
            path
        };
        let old = aged("old.json", hours(2));
        aged("old.parts", hours(2));
        let log = aged("log", hours(3));
        let young = aged("young.json", hours(0));
        let all = vec![
            found(young.clone(), Kind::Run),
            found(old.clone(), Kind::Run),
            found(log, Kind::Log),
        ];
        let retention = Retention::new(bounds(100, 10), all);
        assert_eq!(left(folder.path()), ["young.json"]);
        assert!(retention.has(&young) && !retention.has(&old));
    }
}
