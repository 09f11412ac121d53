//! A child of the warden that removes what the dead left, so that the warden never waits for it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::scratch::{Base, remove_remains};
use super::sys;
use super::worker::follow_parent;

/// How long one sweeper works. Where processes that nobody confines go on writing, it would never be done.
const LONGEST: Duration = Duration::from_mins(1);

/// What is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// The folders that were set aside.
    Dead,
    /// What wardens left that are dead.
    Remains,
    /// Whatever is in the base.
    Everything,
}

/// A running sweeper. It ends by itself, and with the warden.
#[derive(Debug)]
pub(super) struct Sweeper {
    pid: i32,
    pidfd: OwnedFd,
}

impl Sweeper {
    /// Takes charge of the child `pid`, which is about to [`run`].
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let pidfd = Pid::from_raw(pid)
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        match pidfd {
            Ok(pidfd) => Ok(Self { pid, pidfd }),
            Err(error) => {
                sys::kill(pid);
                sys::reap_soon(pid);
                Err(error.into())
            }
        }
    }

    /// Becomes readable when it has ended.
    pub(super) fn pidfd(&self) -> &OwnedFd {
        &self.pidfd
    }

    /// Reaps it if it has ended; false while it works.
    pub(super) fn reap(&self) -> bool {
        !matches!(sys::reap(self.pid), Ok(None))
    }

    /// Waits until it has ended, `limit` at most, and ends it then.
    pub(super) fn finish(self, limit: Timespec) {
        let mut event = [PollFd::new(&self.pidfd, PollFlags::IN)];
        // An interrupted wait only makes it shorter.
        let _ = poll(&mut event, Some(&limit));
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        sys::reap_soon(self.pid);
    }
}

/// What a fresh child of `warden` does; it never returns.
pub(super) fn run(base: &Base, task: Task, warden: Pid) -> ! {
    let until = Instant::now() + LONGEST;
    let done = follow_parent(warden)
        // The folder as the warden opened it is locked for as long as anybody has it so.
        .and_then(|()| base.again())
        .and_then(|base| {
            keep_only(base.folder())?;
            sweep(&base, task, until)
        });
    sys::leave(if done.is_ok() { 0 } else { 75 })
}

/// Closes what the warden has open, but for the standard descriptors and `folder`.
fn keep_only(folder: &OwnedFd) -> io::Result<()> {
    let number = folder.as_raw_fd().unsigned_abs();
    if number > 3 {
        sys::close_between(3, number - 1)?;
    }
    sys::close_from(number + 1)
}

fn sweep(base: &Base, task: Task, until: Instant) -> io::Result<()> {
    match task {
        Task::Dead => loop {
            // More may be set aside meanwhile.
            let names = base.dead()?;
            if names.is_empty() {
                return Ok(());
            }
            base.remove(names, until)?;
        },
        Task::Remains => {
            remove_remains(until);
            Ok(())
        }
        Task::Everything => base.clear(until),
    }
}
