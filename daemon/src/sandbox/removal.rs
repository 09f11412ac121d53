//! Removes trees of any depth and shape in linear time, without following a link and without leaving the folder.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, chmod, fchmod, fstat, openat, unlinkat};
use rustix::io::Errno;

use super::folder::{self, Identity, Lister};

/// What the owner of a folder needs to empty it.
const OWN: u32 = 0o700;

/// How long one entry is worked at before the next has its turn: more than all but the largest trees take.
const TURN: Duration = Duration::from_secs(1);
/// How many entries may wait for another turn with a folder of theirs open.
const WAITING: usize = 2;

/// Removes the entries `names` of `base`, whatever they are, until the time is `until`. What cannot be removed, or takes
/// long, does not keep the rest, and is an error in the end.
pub(super) fn remove_all(base: &OwnedFd, names: Vec<CString>, until: Instant) -> io::Result<()> {
    remove_in_turns(base, names, until, TURN)
}

fn remove_in_turns(
    base: &OwnedFd,
    names: Vec<CString>,
    until: Instant,
    turn: Duration,
) -> io::Result<()> {
    let mut failed = None;
    let mut names = names.into_iter();
    let mut waiting: VecDeque<Removal> = VecDeque::new();
    // They begin anew once fewer wait.
    let mut later = Vec::new();
    loop {
        // Each has had one turn before any has another.
        let fresh = names.next();
        let fresh = fresh.or_else(|| later.pop_if(|_| waiting.len() < WAITING));
        let begun = match fresh {
            Some(name) => Removal::of(base, name),
            None => match waiting.pop_front() {
                Some(removal) => Ok(removal),
                None => break,
            },
        };
        let worked = begun.and_then(|mut removal| {
            let done = removal.work(until.min(Instant::now() + turn))?;
            Ok((removal, done))
        });
        match worked {
            Ok((removal, true)) => failed = failed.or(removal.failed),
            Ok((removal, false)) if waiting.len() < WAITING => waiting.push_back(removal),
            Ok((removal, false)) => later.push(removal.name),
            Err(error) => failed = failed.or(Some(error)),
        }
        let done = names.len() == 0 && waiting.is_empty() && later.is_empty();
        if Instant::now() > until && !done {
            return Err(Errno::TIMEDOUT.into());
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// A folder on the way from the base to the one that is being emptied.
#[derive(Debug)]
struct Level {
    /// Its name in the folder above.
    name: CString,
    identity: Identity,
    /// Entries that are still to be removed.
    inner: Vec<CString>,
    /// Whether anything in it could be removed.
    removed: bool,
}

/// Where the removal stands. Of all folders only the current one is open, so depth costs no descriptors.
#[derive(Debug)]
struct Removal {
    /// The entry it is to remove.
    name: CString,
    current: OwnedFd,
    levels: Vec<Level>,
    lister: Lister,
    failed: Option<Errno>,
}

impl Removal {
    /// That of the entry `name` of `base`.
    fn of(base: &OwnedFd, name: CString) -> Result<Self, Errno> {
        Ok(Self {
            current: folder::open(base, c".")?,
            levels: vec![Level {
                name: CString::default(),
                identity: folder::identity(base)?,
                inner: vec![name.clone()],
                removed: false,
            }],
            lister: Lister::new(),
            failed: None,
            name,
        })
    }

    /// Goes on until the time is `end`; true when all is done.
    fn work(&mut self, end: Instant) -> Result<bool, Errno> {
        while self.step(end)? {
            if Instant::now() >= end {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes one entry, enters it, which removes what is in it as long as the time is not `end`, or leaves the current
    /// folder; false when all is done.
    fn step(&mut self, end: Instant) -> Result<bool, Errno> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(false);
        };
        let Some(name) = level.inner.pop() else {
            return self.ascend();
        };
        match unlink(&self.current, &name, true) {
            Ok(()) => level.removed = true,
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS | Errno::PERM) => {
                if let Err(error) = self.descend(name, end) {
                    self.failed.get_or_insert(error);
                }
            }
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
        Ok(true)
    }

    /// Enters `name` and removes what is not a filled folder in it; what there was no time for is listed again.
    fn descend(&mut self, name: CString, end: Instant) -> Result<(), Errno> {
        let inner = enter(&self.current, &name)?;
        let identity = folder::identity(&inner)?;
        // Another file system was put there by somebody else.
        if self
            .levels
            .first()
            .is_some_and(|base| base.identity.0 != identity.0)
        {
            return Err(Errno::XDEV);
        }
        let mut level = Level {
            name,
            identity,
            inner: Vec::new(),
            removed: false,
        };
        let failed = &mut self.failed;
        let listed = self.lister.each(&inner, |name, folder| {
            match unlink(&inner, name, folder) {
                Ok(()) => level.removed = true,
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS | Errno::PERM) if folder => {
                    level.inner.push(name.to_owned());
                }
                Err(error) => {
                    failed.get_or_insert(error);
                    return Ok(());
                }
            }
            if Instant::now() < end {
                Ok(())
            } else {
                Err(Errno::TIMEDOUT)
            }
        });
        match listed {
            Ok(()) | Err(Errno::TIMEDOUT) => {}
            Err(error) => return Err(error),
        }
        self.levels.push(level);
        self.current = inner;
        Ok(())
    }

    /// Goes up and removes the folder it came from; false at the base.
    fn ascend(&mut self) -> Result<bool, Errno> {
        let Some(left) = self.levels.pop() else {
            return Ok(false);
        };
        let Some(level) = self.levels.last_mut() else {
            return Ok(false);
        };
        let above = folder::open(&self.current, c"..")?;
        if folder::identity(&above)? != level.identity {
            // The folder was moved meanwhile; above it is nothing of ours.
            return Err(Errno::STALE);
        }
        self.current = above;
        match unlinkat(&self.current, &left.name, AtFlags::REMOVEDIR) {
            Ok(()) => level.removed = true,
            // Something came in after it was listed; it is listed again as long as that gets on.
            Err(Errno::NOTEMPTY | Errno::EXIST) if left.removed => level.inner.push(left.name),
            Err(Errno::NOENT) => {}
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
        Ok(true)
    }
}

/// Removes `name` from `at` unless it is a folder with something in it. That it is gone already is fine.
fn unlink(at: &OwnedFd, name: &CStr, folder: bool) -> Result<(), Errno> {
    let done = if folder {
        match unlinkat(at, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTDIR) => unlinkat(at, name, AtFlags::empty()),
            other => other,
        }
    } else {
        unlinkat(at, name, AtFlags::empty())
    };
    match done {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Opens a folder and gives it the mode that emptying it takes.
fn enter(at: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let folder = match folder::open(at, name) {
        Err(Errno::ACCESS) => {
            open_up(at, name)?;
            folder::open(at, name)?
        }
        other => other?,
    };
    if fstat(&folder)?.st_mode & OWN != OWN {
        fchmod(&folder, Mode::from_raw_mode(OWN))?;
    }
    Ok(folder)
}

/// Gives a folder that cannot be opened that mode, without following a link put in its place.
fn open_up(at: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = openat(at, name, flags, Mode::empty())?;
    if !folder::is_folder(&fstat(&inner)?) {
        return Err(Errno::NOTDIR);
    }
    // A descriptor that only names a file takes no fchmod; its entry in /proc leads to the very same file.
    let path = format!("/proc/self/fd/{}", inner.as_raw_fd());
    chmod(path, Mode::from_raw_mode(OWN))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use std::time::Duration;

    use rustix::fs::{CWD, mkdirat};

    use super::*;

    fn remove(parent: &Path, name: &str) -> io::Result<()> {
        let base = folder::open(CWD, parent).unwrap();
        let until = Instant::now() + Duration::from_mins(1);
        remove_all(&base, vec![CString::new(name).unwrap()], until)
    }

    #[test]
    fn whatever_is_in_a_folder_is_removed_and_nothing_outside() {
        let parent = tempfile::tempdir().unwrap();
        let outside = parent.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        let inside = parent.path().join("inside");
        fs::create_dir_all(inside.join("closed/inner")).unwrap();
        symlink(&outside, inside.join("link")).unwrap();
        fs::write(inside.join("closed/inner/file"), "x").unwrap();
        symlink(&outside, inside.join("closed/inner/link")).unwrap();
        symlink("nowhere", inside.join("broken")).unwrap();
        fs::create_dir(inside.join("odd \n name")).unwrap();
        fs::write(inside.join("odd \n name/-rf"), "x").unwrap();
        std::os::unix::net::UnixListener::bind(inside.join("socket")).unwrap();
        for (folder, mode) in [("closed/inner", 0o000), ("closed", 0o300), ("", 0o500)] {
            fs::set_permissions(inside.join(folder), fs::Permissions::from_mode(mode)).unwrap();
        }
        remove(parent.path(), "inside").unwrap();
        assert!(!inside.exists());
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "x");
    }

    #[test]
    fn what_is_no_folder_is_removed_and_what_is_not_there_is_fine() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("file"), "x").unwrap();
        symlink("/etc", parent.path().join("link")).unwrap();
        for name in ["file", "link", "nothing"] {
            remove(parent.path(), name).unwrap();
        }
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn many_entries_and_many_folders_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let inside = parent.path().join("inside");
        fs::create_dir(&inside).unwrap();
        for number in 0..4000 {
            fs::write(inside.join(format!("file {number}")), "").unwrap();
        }
        for number in 0..1000 {
            fs::create_dir_all(inside.join(format!("{number}/a/b"))).unwrap();
            fs::write(inside.join(format!("{number}/c")), "").unwrap();
        }
        remove(parent.path(), "inside").unwrap();
        assert!(!inside.exists());
    }

    /// Makes `depth` folders below `top`, one in the other.
    fn deep(top: &Path, depth: usize) {
        fs::create_dir(top).unwrap();
        let mut at = folder::open(CWD, top).unwrap();
        for _ in 0..depth {
            mkdirat(&at, c"deeper", Mode::from_raw_mode(0o700)).unwrap();
            at = folder::open(&at, c"deeper").unwrap();
        }
    }

    /// A removal of `name` below `parent` that has not begun.
    fn removal(parent: &Path, name: &CStr) -> Removal {
        let base = folder::open(CWD, parent).unwrap();
        Removal::of(&base, name.to_owned()).unwrap()
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    #[test]
    fn a_large_tree_keeps_no_other_from_its_turn() {
        let parent = tempfile::tempdir().unwrap();
        let large = parent.path().join("large");
        for number in 0..50 {
            fs::create_dir_all(large.join(format!("{number}/a"))).unwrap();
            fs::write(large.join(format!("{number}/a/file")), "").unwrap();
        }
        for name in ["x", "y", "z"] {
            fs::create_dir(parent.path().join(name)).unwrap();
            fs::write(parent.path().join(name).join("file"), "").unwrap();
        }
        let base = folder::open(CWD, parent.path()).unwrap();
        let names = || ["large", "x", "y", "z"].map(|name| CString::new(name).unwrap());
        // With turns of no time each takes one step in a turn; a full one is entered, emptied and left in three.
        let mut all: VecDeque<Removal> = names()
            .into_iter()
            .map(|name| Removal::of(&base, name).unwrap())
            .collect();
        for _ in 0..3 {
            for removal in &mut all {
                removal.work(Instant::now()).unwrap();
            }
        }
        let left: Vec<_> = fs::read_dir(parent.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(large.join("49/a/file").exists() || large.join("0/a/file").exists());
        // However short the turns are, all of it is removed in the end.
        let names = names().to_vec();
        remove_in_turns(&base, names, later(), Duration::ZERO).unwrap();
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_of_many_files_is_left_when_its_turn_is_over() {
        let parent = tempfile::tempdir().unwrap();
        let inside = parent.path().join("inside");
        fs::create_dir(&inside).unwrap();
        for number in 0..100 {
            fs::write(inside.join(number.to_string()), "").unwrap();
        }
        let mut removal = removal(parent.path(), c"inside");
        assert!(!removal.work(Instant::now()).unwrap());
        assert_eq!(fs::read_dir(&inside).unwrap().count(), 99);
        assert!(removal.work(later()).unwrap());
        assert!(removal.failed.is_none() && !inside.exists());
    }

    #[test]
    fn a_deep_tree_takes_two_steps_for_each_of_its_folders() {
        let parent = tempfile::tempdir().unwrap();
        for depth in [300, 3000] {
            deep(&parent.path().join("deep"), depth);
            let mut removal = removal(parent.path(), c"deep");
            let mut steps = 0;
            while removal.step(later()).unwrap() {
                steps += 1;
            }
            assert!(removal.failed.is_none(), "{removal:?}");
            assert!(!parent.path().join("deep").exists());
            // One into each and one out of it again, but the innermost, which the listing of the one above removes.
            assert_eq!(steps, 2 * depth, "{depth}");
        }
    }

    #[test]
    fn a_folder_that_is_moved_away_meanwhile_is_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let inside = parent.path().join("inside");
        fs::create_dir_all(inside.join("a/b/c")).unwrap();
        fs::create_dir(parent.path().join("elsewhere")).unwrap();
        fs::write(parent.path().join("elsewhere/a"), "kept").unwrap();
        let mut removal = removal(parent.path(), c"inside");
        while removal.levels.len() < 4 {
            assert!(removal.step(later()).unwrap());
        }
        fs::rename(inside.join("a/b"), parent.path().join("elsewhere/b")).unwrap();
        let error = loop {
            if let Err(error) = removal.step(later()) {
                break error;
            }
        };
        assert_eq!(error, Errno::STALE);
        let kept = fs::read_to_string(parent.path().join("elsewhere/a")).unwrap();
        assert_eq!(kept, "kept");
    }

    #[test]
    fn the_time_is_kept() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir_all(parent.path().join("a/b/c")).unwrap();
        let base = folder::open(CWD, parent.path()).unwrap();
        let error = remove_all(&base, vec![c"a".to_owned()], Instant::now()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
        assert!(parent.path().join("a").exists());
    }
}
