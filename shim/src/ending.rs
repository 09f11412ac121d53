//! Watches a daemon to its end, by the lock that it holds as long as it lives.

use std::fs::{OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Whether a daemon holds this lock. One that cannot be looked at counts as free.
pub(crate) fn is_held(lock: &Path) -> bool {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(lock);
    // A lock that is had is let go with the file, at the end of this function.
    file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// The end of one daemon.
#[derive(Debug)]
pub(crate) struct Ending {
    lock: PathBuf,
    process: process::Watch,
}

impl Ending {
    /// Of the daemon that holds `lock`, and is the process `pid` where that is known for sure.
    pub(crate) fn of(lock: PathBuf, pid: Option<u32>) -> Self {
        let process = process::Watch::of(pid);
        Self { lock, process }
    }

    /// Whether it has ended: the lock is free, and the process is no more.
    pub(crate) fn is_over(&self) -> bool {
        !is_held(&self.lock) && self.process.has_ended()
    }
}

#[cfg(target_os = "linux")]
mod process {
    use std::os::fd::OwnedFd;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    /// One process, told from a later one that gets its number.
    #[derive(Debug)]
    pub(super) struct Watch(Option<OwnedFd>);

    impl Watch {
        pub(super) fn of(pid: Option<u32>) -> Self {
            let pid = pid.and_then(|pid| i32::try_from(pid).ok());
            let pid = pid.and_then(Pid::from_raw);
            Self(pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()))
        }

        pub(super) fn has_ended(&self) -> bool {
            let Some(process) = &self.0 else {
                return true;
            };
            let mut fds = [PollFd::new(process, PollFlags::IN)];
            let at_once = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // One that cannot be asked about is not waited for.
            !matches!(poll(&mut fds, Some(&at_once)), Ok(0))
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod process {
    /// Nothing: here the lock alone says whether a daemon lives.
    #[derive(Debug)]
    pub(super) struct Watch;

    impl Watch {
        pub(super) fn of(_pid: Option<u32>) -> Self {
            Self
        }

        pub(super) fn has_ended(&self) -> bool {
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_while_someone_has_it_and_looking_does_not_take_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert!(!is_held(&path));
        let file = std::fs::File::create(&path).unwrap();
        assert!(!is_held(&path));
        file.try_lock().unwrap();
        assert!(is_held(&path));
        drop(file);
        assert!(!is_held(&path));
        std::fs::File::open(&path).unwrap().try_lock().unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_daemon_has_ended_once_its_process_is_no_more() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let ending = Ending::of("/nowhere/lock".into(), Some(child.id()));
        assert!(!ending.is_over());
        child.kill().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !ending.is_over() {
            assert!(std::time::Instant::now() < until);
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(Ending::of("/nowhere/lock".into(), None).is_over());
    }
}
