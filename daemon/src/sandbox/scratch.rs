//! Scratch folders: made fresh for each worker, set aside after it, their remains found again by the next warden.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Gid, Mode, StatVfsMountFlags, Uid, chmod, chownat, flock, fstat,
    mkdirat, renameat, statat, statvfs, unlinkat,
};
use rustix::io::Errno;

use super::folder::{self, Lister};
use super::removal::remove_all;
use super::sys;
use super::usage::Measuring;

const PREFIX: &str = "ptcd-scratch-";
/// How the names of folders start whose worker has ended.
const DEAD: &[u8] = b"dead-";
/// How often a folder that somebody else removes is looked at again.
const PATIENCE: Duration = Duration::from_millis(200);
/// After which pauses bases that are held are looked at again: on a busy machine what a killed warden has forked may
/// take its time to end, and what is held then lies until the next warden.
const AGAIN: [Duration; 4] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(20),
];
/// How long a base of a dead warden is worked at before the next has its turn; twice as long in each further one, for it
/// begins anew.
const TURN: Duration = Duration::from_secs(2);
/// A folder that is empty and not larger than this is removed at once. One that once held much more takes the kernel
/// a while even when it is empty.
const SMALL: i64 = 64 * 1024;

/// The folder of one warden, in which each of its workers has a folder.
#[derive(Debug)]
pub(super) struct Base {
    path: PathBuf,
    /// Holds the locks by which another warden sees that this one lives.
    folder: OwnedFd,
}

impl Base {
    /// Makes a fresh folder under /run or /tmp.
    pub(super) fn create() -> io::Result<Self> {
        let mut last = io::Error::from_raw_os_error(libc::ENOENT);
        for parent in parents() {
            // Another warden, looking for remains, may take a folder in the moment before it is locked; then it is
            // made anew.
            for _ in 0..8 {
                match Self::create_in(&parent) {
                    Ok(base) => return Ok(base),
                    Err(error) => last = error,
                }
            }
        }
        Err(last)
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        let path = parent.join(format!("{PREFIX}{}", random_name()?));
        // Workers of another uid pass through; nobody but the owner lists.
        let mode = if rustix::process::geteuid().is_root() {
            0o711
        } else {
            0o700
        };
        mkdirat(CWD, &path, Mode::from_raw_mode(mode))?;
        chmod(&path, Mode::from_raw_mode(mode))?;
        let folder = folder::open(CWD, &path)?;
        flock(&folder, FlockOperation::NonBlockingLockShared)?;
        sys::lock_for_reading(&folder)?;
        let named = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)?;
        if fstat(&folder)?.st_ino != named.st_ino {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        Ok(Self { path, folder })
    }

    /// Where the folders of its workers are.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes an empty folder for one worker of user `owner` (the warden's own when `None`).
    pub(super) fn add(&self, owner: Option<u32>) -> io::Result<Scratch> {
        let text = random_name()?;
        let name = CString::new(text.as_str()).map_err(io::Error::other)?;
        mkdirat(&self.folder, &name, Mode::from_raw_mode(0o700))?;
        let folder = folder::open(&self.folder, &name)?;
        if let Some(id) = owner {
            chownat(
                &self.folder,
                &name,
                Some(Uid::from_raw(id)),
                Some(Gid::from_raw(id)),
                AtFlags::SYMLINK_NOFOLLOW,
            )?;
        }
        Ok(Scratch {
            path: self.path.join(text),
            name,
            folder,
        })
    }

    /// Takes a worker's folder out of use, in a time that does not depend on what is in it. True when something was
    /// set aside for [`dead`](Self::dead) to find.
    pub(super) fn discard(&self, scratch: Scratch) -> bool {
        let small = fstat(&scratch.folder).is_ok_and(|found| found.st_size <= SMALL);
        let name = scratch.name;
        drop(scratch.folder);
        if small && unlinkat(&self.folder, &name, AtFlags::REMOVEDIR).is_ok() {
            return false;
        }
        // One that stays as it is goes with the base.
        CString::new([DEAD, name.as_bytes()].concat())
            .is_ok_and(|dead| renameat(&self.folder, &name, &self.folder, &dead).is_ok())
    }

    /// Names of the folders that were set aside.
    pub(super) fn dead(&self) -> io::Result<Vec<CString>> {
        let mut found = entries(&self.folder)?;
        found.retain(|name| name.as_bytes().starts_with(DEAD));
        Ok(found)
    }

    /// Removes the entries `names` of the base until the time is `until`.
    pub(super) fn remove(&self, names: Vec<CString>, until: Instant) -> io::Result<()> {
        remove_all(&self.folder, names, until)
    }

    /// Removes everything in it until the time is `until`.
    pub(super) fn clear(&self, until: Instant) -> io::Result<()> {
        self.remove(entries(&self.folder)?, until)
    }

    /// Removes the folder of this warden if it is empty.
    pub(super) fn finish(&self) -> io::Result<()> {
        Ok(rustix::fs::rmdir(&self.path)?)
    }

    /// The same base as another process sees it, whose life does not keep it locked.
    pub(super) fn again(&self) -> io::Result<Self> {
        Ok(Self {
            path: self.path.clone(),
            folder: folder::open(&self.folder, c".")?,
        })
    }

    /// The folder itself.
    pub(super) fn folder(&self) -> &OwnedFd {
        &self.folder
    }
}

/// The folder of one worker.
#[derive(Debug)]
pub(super) struct Scratch {
    name: CString,
    pub(super) path: PathBuf,
    folder: OwnedFd,
}

impl Scratch {
    /// Begins to measure what is in the folder and in files of the worker `pid` that have no name any more, against
    /// `limit` bytes. A file that is only mapped cannot be measured and counts as `largest`.
    pub(super) fn measure(&self, pid: i32, limit: u64, largest: u64) -> Measuring {
        Measuring::begin(&self.folder, &self.name, pid, (limit, largest))
    }
}

/// Where a base may lie, the best first: where no file can be mapped as code, if there is such a place.
fn parents() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid();
    let mut found = vec![PathBuf::from("/tmp")];
    let run = if uid.is_root() {
        PathBuf::from("/run")
    } else {
        PathBuf::from(format!("/run/user/{}", uid.as_raw()))
    };
    if fs::symlink_metadata(&run).is_ok_and(|found| found.is_dir() && found.uid() == uid.as_raw()) {
        found.insert(0, run);
    }
    found.sort_by_key(|path| {
        let closed =
            statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOEXEC));
        !closed
    });
    found
}

/// Removes bases of the same user whose warden is dead, until the time is `until`. What another warden removes at the
/// same time is waited for, since that one may end before it is done. A large one keeps no other. What is held is looked at again a little later:
/// a child of a killed warden holds its base until it has ended itself. What cannot be removed is tried again by the
/// next.
pub(super) fn remove_remains(until: Instant) {
    remove_remains_in(&parents(), until, &AGAIN);
}

fn remove_remains_in(parents: &[PathBuf], until: Instant, again: &[Duration]) {
    let mut again = again.iter();
    let mut turn = TURN;
    loop {
        let (mut taken, mut held, mut unfinished) = (false, false, false);
        for parent in parents {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                if entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
                    let end = until.min(Instant::now() + turn);
                    match remove_remain(&entry.path(), end) {
                        (Holder::Nobody, done) => unfinished |= !done,
                        (Holder::Remover, _) => taken = true,
                        (Holder::Warden, _) => held = true,
                    }
                }
            }
        }
        turn *= 2;
        let pause = if unfinished {
            Some(&Duration::ZERO)
        } else if taken {
            Some(&PATIENCE)
        } else {
            again.next().filter(|_| held)
        };
        match pause {
            Some(pause) if Instant::now() + *pause <= until => sleep(*pause),
            _ => return,
        }
    }
}

/// Removes one base, unless somebody holds it: gives who does, and whether the time was enough.
fn remove_remain(path: &Path, until: Instant) -> (Holder, bool) {
    let Ok(folder) = folder::open(CWD, path) else {
        return (Holder::Nobody, true);
    };
    let owner = rustix::process::geteuid().as_raw();
    if !fstat(&folder).is_ok_and(|found| found.st_uid == owner) {
        return (Holder::Nobody, true);
    }
    let holder = take(&folder);
    let mut done = true;
    if holder == Holder::Nobody
        && let Ok(names) = entries(&folder)
    {
        match remove_all(&folder, names, until) {
            Ok(()) => {
                let _ = rustix::fs::rmdir(path);
            }
            Err(error) => done = error.kind() != io::ErrorKind::TimedOut,
        }
    }
    (holder, done)
}

/// Who has the lock of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// Whoever asked: its warden is dead.
    Nobody,
    /// Its warden, which lives.
    Warden,
    /// Somebody who removes it.
    Remover,
}

/// Locks a base alone if nobody holds it. Its warden has it locked twice: shared, so that nobody removes it, and for
/// reading, which is asked for without locking anything: those who only look never take each other for a warden.
fn take(folder: &OwnedFd) -> Holder {
    if sys::is_locked_for_reading(folder).unwrap_or(true) {
        return Holder::Warden;
    }
    match flock(folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Holder::Nobody,
        Err(_) => Holder::Remover,
    }
}

fn entries(of: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut found = Vec::new();
    let fresh = folder::open(of, c".")?;
    Lister::new().each(&fresh, |name: &CStr, _| {
        found.push(name.to_owned());
        Ok::<_, Errno>(())
    })?;
    Ok(found)
}

/// 128 random bits as a name.
fn random_name() -> io::Result<String> {
    let mut bits = [0_u8; 16];
    getrandom::fill(&mut bits).map_err(io::Error::other)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bits)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn base() -> (tempfile::TempDir, Base) {
        let parent = tempfile::tempdir().unwrap();
        let base = Base::create_in(parent.path()).unwrap();
        (parent, base)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    #[test]
    fn an_empty_folder_is_gone_at_once() {
        let (_parent, base) = base();
        let scratch = base.add(None).unwrap();
        assert!(!base.discard(scratch));
        assert_eq!(entries(&base.folder).unwrap(), Vec::<CString>::new());
    }

    #[test]
    fn a_filled_folder_is_set_aside_and_the_living_stay() {
        let (_parent, base) = base();
        let living = base.add(None).unwrap();
        let scratch = base.add(None).unwrap();
        let path = scratch.path.clone();
        fs::write(path.join("file"), "x").unwrap();
        assert!(base.discard(scratch));
        assert!(!path.exists());
        let dead = base.dead().unwrap();
        assert_eq!(dead.len(), 1);
        base.remove(dead, later()).unwrap();
        assert_eq!(entries(&base.folder).unwrap(), vec![living.name.clone()]);
        base.clear(later()).unwrap();
        base.finish().unwrap();
        assert!(!base.path.exists());
    }

    #[test]
    fn a_living_warden_keeps_its_folder_and_a_dead_one_does_not() {
        let (parent, base) = base();
        let scratch = base.add(None).unwrap();
        fs::write(scratch.path.join("file"), "x").unwrap();
        let parents = [parent.path().to_owned()];
        remove_remains_in(&parents, later(), &[]);
        assert!(scratch.path.exists());
        drop(base);
        remove_remains_in(&parents, later(), &[]);
        assert!(!scratch.path.exists());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_child_of_a_warden_that_is_dying_is_waited_for_and_one_that_removes_holds_nothing() {
        let (parent, base) = base();
        let scratch = base.add(None).unwrap();
        fs::write(scratch.path.join("file"), "x").unwrap();
        let path = base.path.clone();
        let sweeper = base.again().unwrap();
        // As a child that was just forked has it.
        let child = base.folder.try_clone().unwrap();
        drop(base);
        let parents = [parent.path().to_owned()];
        remove_remains_in(&parents, later(), &[]);
        assert!(path.exists());
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(move || remove_remains_in(&parents, later(), &[PATIENCE; 50]));
            sleep(2 * PATIENCE);
            assert!(path.exists());
            drop(child);
            waiting.join().unwrap();
        });
        assert!(!path.exists());
        drop(sweeper);
    }

    #[test]
    fn what_a_remover_leaves_that_ends_too_soon_is_removed_by_who_waits() {
        let (parent, base) = base();
        let scratch = base.add(None).unwrap();
        fs::write(scratch.path.join("file"), "x").unwrap();
        let path = base.path.clone();
        drop(base);
        let remover = folder::open(CWD, &path).unwrap();
        assert_eq!(take(&remover), Holder::Nobody);
        let parents = [parent.path().to_owned()];
        // Without time to wait it is left to the other.
        remove_remains_in(&parents, Instant::now(), &[]);
        assert!(path.exists());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| remove_remains_in(&parents, later(), &[]));
            sleep(2 * PATIENCE);
            assert!(path.exists() && !waiting.is_finished());
            drop(remover);
            waiting.join().unwrap();
        });
        assert!(!path.exists());
    }

    #[test]
    fn a_living_warden_is_told_from_those_who_look() {
        let (_parent, base) = base();
        let looks = || take(&folder::open(CWD, &base.path).unwrap());
        std::thread::scope(|scope| {
            let several: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..500).map(|_| looks()).collect::<Vec<_>>()))
                .collect();
            for one in several {
                let seen = one.join().unwrap();
                assert!(seen.iter().all(|one| *one == Holder::Warden), "{seen:?}");
            }
        });
    }

    #[test]
    fn those_who_look_at_a_dead_wardens_folder_see_no_warden() {
        let (_parent, base) = base();
        let path = base.path.clone();
        drop(base);
        let looks = || take(&folder::open(CWD, &path).unwrap());
        std::thread::scope(|scope| {
            let several: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..500).map(|_| looks()).collect::<Vec<_>>()))
                .collect();
            for one in several {
                let seen = one.join().unwrap();
                assert!(!seen.contains(&Holder::Warden), "{seen:?}");
            }
        });
        assert_eq!(looks(), Holder::Nobody);
    }
}
