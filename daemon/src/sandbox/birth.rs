//! Forks a worker and waits until it has become the interpreter.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::namespaces;
use super::step::Step;
use super::sys::{self, Forked};
use super::worker::{self, Making};

/// How long a worker may take to become the interpreter.
const SET_UP: Duration = Duration::from_secs(10);

/// Forks, and waits until the child is the interpreter or has failed.
pub(super) fn start(making: &Making<'_>) -> Result<(i32, OwnedFd), (Step, String)> {
    let fork = |error: io::Error| (Step::Fork, error.to_string());
    let (reading, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| fork(error.into()))?;
    let forked = match making.inside {
        Some(_) => namespaces::fork_worker(making.without),
        None => sys::fork(),
    };
    let pid = match forked.map_err(fork)? {
        Forked::Child => worker::run(making, &writing),
        Forked::Parent(pid) => pid,
    };
    drop(writing);
    let pidfd = Pid::from_raw(pid)
        .ok_or(rustix::io::Errno::SRCH)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let failure = read_report(reading);
    match (pidfd, failure) {
        (Ok(pidfd), Ok(text)) if text.is_empty() => Ok((pid, pidfd)),
        (pidfd, failure) => {
            sys::kill_group(pid);
            if let Ok(pidfd) = &pidfd {
                let _ = pidfd_send_signal(pidfd, Signal::KILL);
            }
            sys::reap_soon(pid);
            Err(match (pidfd, failure) {
                (_, Ok(text)) if !text.is_empty() => worker::read_failure(&text)
                    .unwrap_or_else(|| (Step::Fork, "the report is not readable".to_owned())),
                (_, Err(error)) => fork(error),
                (Err(error), _) => fork(error.into()),
                (Ok(_), Ok(_)) => fork(io::Error::from_raw_os_error(libc::ECANCELED)),
            })
        }
    }
}

/// Reads until the other end closes, which the start of the interpreter does.
fn read_report(reading: OwnedFd) -> io::Result<String> {
    let mut file = File::from(reading);
    let mut text = Vec::new();
    loop {
        let mut event = [PollFd::new(&file, PollFlags::IN)];
        match poll(
            &mut event,
            Some(&Timespec::try_from(SET_UP).map_err(io::Error::other)?),
        ) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut part = [0_u8; 1024];
        let length = file.read(&mut part)?;
        match part.get(..length) {
            Some([]) | None => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Some(more) => text.extend_from_slice(more),
        }
    }
}
