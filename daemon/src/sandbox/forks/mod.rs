//! The warden's side of the fork server: starts it, has it fork workers, replaces it in time, sees it end.

mod setup;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use serde_json::{Value, json};

use super::birth;
use super::namespaces;
use super::step::Step;
use super::sys;
use super::wire::{receive, send};
use super::without::Without;
use super::worker::{Making, read_failure};

pub(super) use setup::{Setup, task};

/// The program of the server.
pub(super) const TEXT: &str = include_str!("server.py");
/// How long a server may take to be warm.
const WARM: Duration = Duration::from_secs(20);
/// How long one fork may take: milliseconds, but for a machine that is very busy. Then a fresh interpreter is the better
/// choice, for the warden does nothing else meanwhile.
const FORK: Duration = Duration::from_secs(3);
/// What is said of a server that cannot fork any more.
const LOST: &str = "the fork server ended, or did not answer in time";
/// Most that is read of what a server said before it ended.
const LAST_WORDS: u64 = 4096;

/// When a server is replaced, so that not too many programs share its hash seed and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Renewal {
    /// After so many forks.
    pub(super) forks: u32,
    /// After this time.
    pub(super) age: Duration,
}

impl Default for Renewal {
    fn default() -> Self {
        Self {
            forks: 1000,
            age: Duration::from_mins(10),
        }
    }
}

impl Renewal {
    fn is_due(self, forks: u32, age: Duration) -> bool {
        forks >= self.forks || age >= self.age
    }
}

/// One fork server.
#[derive(Debug)]
struct Server {
    pid: i32,
    pidfd: OwnedFd,
    control: OwnedFd,
    /// What it writes to its standard error.
    errors: OwnedFd,
    born: Instant,
    forks: u32,
}

/// The servers of one warden: one that forks, and perhaps one that is to follow it.
#[derive(Debug, Default)]
pub(super) struct Forks {
    current: Option<Server>,
    next: Option<Server>,
    /// Killed, and not reaped yet.
    ending: Vec<Server>,
}

/// What has changed with the servers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Workers can be forked.
    Serving,
    /// They cannot.
    Lost {
        /// Why.
        detail: String,
    },
}

/// What one worker is forked with.
#[derive(Debug)]
pub(super) struct Order<'a> {
    /// What the child is told.
    pub(super) task: Value,
    /// Channel, stdout, stderr.
    pub(super) ends: &'a [OwnedFd],
    /// The machine's /proc, where the worker gets namespaces of its own.
    pub(super) inside: Option<BorrowedFd<'a>>,
    /// What it lacks; nothing but in tests.
    pub(super) without: &'a Without,
}

impl Forks {
    /// Starts a server that will serve once it is warm; `making` is what it is made from, but for its descriptors.
    pub(super) fn start(&mut self, making: Making<'_>) -> Result<(), (Step, String)> {
        if self.next.is_some() {
            return Ok(());
        }
        let failed = |error: io::Error| (Step::Descriptors, error.to_string());
        let (control, far) = packets().map_err(failed)?;
        let (errors, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| failed(error.into()))?;
        let again = writing.try_clone().map_err(failed)?;
        let ends = [far, again, writing];
        let (pid, pidfd) = birth::start(&Making {
            ends: &ends,
            ..making
        })?;
        self.next = Some(Server {
            pid,
            pidfd,
            control,
            errors,
            born: Instant::now(),
            forks: 0,
        });
        Ok(())
    }

    /// Whether the server that forks has done so long or often enough, and none is to follow it yet.
    pub(super) fn is_due(&self, renewal: Renewal) -> bool {
        let old = |server: &Server| renewal.is_due(server.forks, server.born.elapsed());
        self.next.is_none() && self.current.as_ref().is_some_and(old)
    }

    /// Ends all servers; workers go on.
    pub(super) fn end(&mut self) {
        for server in self.current.take().into_iter().chain(self.next.take()) {
            self.let_go(server);
        }
    }

    /// What is to be watched: whatever is readable there is a reason for [`look`](Self::look).
    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let all = self.current.iter().chain(&self.next).chain(&self.ending);
        let pidfds = all.map(|server| server.pidfd.as_fd());
        pidfds.chain(self.next.iter().map(|server| server.control.as_fd()))
    }

    /// How long nobody may look at the servers.
    pub(super) fn patience(&self) -> Option<Duration> {
        let next = self.next.as_ref()?;
        Some(WARM.saturating_sub(next.born.elapsed()))
    }

    /// Sees what the servers did, without waiting.
    pub(super) fn look(&mut self) -> Option<Change> {
        self.ending.retain(|server| !server.is_reaped());
        let mut change = None;
        if let Some(next) = self.next.take() {
            if next.has_ended() || next.born.elapsed() >= WARM {
                // The one before it has served its time; a younger one there is not.
                let detail = next.last_words();
                self.let_go(next);
                change = Some(self.lose(detail));
            } else if is_readable(&next.control) {
                if matches!(answer_of(&next.control), Ok(Some(word)) if word == "ready") {
                    if let Some(before) = self.current.replace(next) {
                        self.let_go(before);
                    }
                    change = Some(Change::Serving);
                } else {
                    let detail = next.last_words();
                    self.let_go(next);
                    change = Some(self.lose(detail));
                }
            } else {
                self.next = Some(next);
            }
        }
        if self.current.as_ref().is_some_and(Server::has_ended) {
            let detail = self.current.as_ref().map(Server::last_words);
            change = Some(self.lose(detail.unwrap_or_default()));
        }
        change
    }

    /// Has the server fork a worker, which is this process's child, and waits until it is one or has failed.
    pub(super) fn fork(&mut self, order: &Order<'_>) -> Result<(i32, OwnedFd), (Step, String)> {
        let failed = |error: io::Error| (Step::Fork, error.to_string());
        let Some(server) = &mut self.current else {
            return Err((Step::Fork, LOST.to_owned()));
        };
        let (line, far) = packets().map_err(failed)?;
        let asked = send(&server.control, &json!("fork"), &[far.as_fd()]);
        drop(far);
        server.forks += 1;
        let answer = asked
            .and_then(|()| wait_readable(&server.control))
            .and_then(|()| answer_of(&server.control));
        match answer.as_ref().map(Option::as_deref) {
            Ok(Some("forked")) => {}
            Ok(Some("failed")) => {
                let text = birth::read_report(line).map_err(failed)?;
                return Err(read_failure(&text).unwrap_or_else(unreadable));
            }
            _ => {
                // It has ended, or nothing it says makes sense: the next look at it tells.
                let _ = pidfd_send_signal(&server.pidfd, Signal::KILL);
                return Err((Step::Fork, LOST.to_owned()));
            }
        }
        let pid = told_pid(&line)?;
        let child = own_child(pid).map_err(failed)?;
        let finish = || -> Result<(), (Step, String)> {
            if let Some(proc) = order.inside {
                namespaces::settle_other(proc, &child, order.without)
                    .map_err(|error| (Step::Namespaces, error.to_string()))?;
            }
            let ends: Vec<BorrowedFd<'_>> = order.ends.iter().map(AsFd::as_fd).collect();
            send(&line, &order.task, &ends)
                .map_err(|error| (Step::Descriptors, error.to_string()))?;
            let text = birth::read_report(line).map_err(failed)?;
            if text.is_empty() {
                Ok(())
            } else {
                Err(read_failure(&text).unwrap_or_else(unreadable))
            }
        };
        match finish() {
            Ok(()) => Ok((pid, child)),
            Err(failure) => {
                let _ = pidfd_send_signal(&child, Signal::KILL);
                sys::reap_soon(pid);
                Err(failure)
            }
        }
    }

    /// No worker can be forked any more.
    fn lose(&mut self, detail: String) -> Change {
        if let Some(current) = self.current.take() {
            self.let_go(current);
        }
        Change::Lost { detail }
    }

    fn let_go(&mut self, server: Server) {
        let _ = pidfd_send_signal(&server.pidfd, Signal::KILL);
        // What it has forked and is no worker yet.
        sys::kill_group(server.pid);
        self.ending.push(server);
    }
}

impl Server {
    fn has_ended(&self) -> bool {
        is_readable(&self.pidfd)
    }

    /// Reaps it, and what it had forked that is no worker and was left to this process.
    fn is_reaped(&self) -> bool {
        if matches!(sys::reap(self.pid), Ok(None)) {
            return false;
        }
        let group = Pid::from_raw(self.pid);
        while let Ok(Some(_)) = waitid(
            WaitId::Pgid(group),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        ) {}
        true
    }

    /// Why it ended, as far as it said.
    fn last_words(&self) -> String {
        let mut text = Vec::new();
        if is_readable(&self.errors)
            && let Ok(errors) = self.errors.try_clone()
        {
            let mut part = vec![0; usize::try_from(LAST_WORDS).unwrap_or_default()];
            let length = File::from(errors).read(&mut part).unwrap_or_default();
            part.truncate(length);
            text = part;
        }
        let text = String::from_utf8_lossy(&text);
        let last = text.trim().lines().next_back().unwrap_or_default();
        if last.is_empty() {
            "it ended or was silent for too long".to_owned()
        } else {
            last.to_owned()
        }
    }
}

fn packets() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    Ok(socketpair(
        AddressFamily::UNIX,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

fn is_readable(descriptor: &OwnedFd) -> bool {
    let mut event = [PollFd::new(descriptor, PollFlags::IN)];
    matches!(poll(&mut event, Some(&Timespec::default())), Ok(1..))
}

/// Waits for something to read, as long as a fork may take.
fn wait_readable(descriptor: &OwnedFd) -> io::Result<()> {
    let until = Instant::now() + FORK;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut event = [PollFd::new(descriptor, PollFlags::IN)];
        match poll(&mut event, Some(&left)) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The word that lies there; `None` when the other end has gone.
fn answer_of(control: &OwnedFd) -> io::Result<Option<String>> {
    let Some((text, _)) = receive(control)? else {
        return Ok(None);
    };
    Ok(Some(
        serde_json::from_slice(&text).map_err(io::Error::other)?,
    ))
}

/// The number that the first child left before it ended.
fn told_pid(line: &OwnedFd) -> Result<i32, (Step, String)> {
    let told = || -> Option<i32> {
        if !is_readable(line) {
            return None;
        }
        let (text, _) = receive(line).ok()??;
        std::str::from_utf8(&text).ok()?.parse().ok()
    };
    told().ok_or_else(unreadable)
}

/// A handle of the child `pid`, which has not been reaped. Anything else is refused.
fn own_child(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // Of a process that is no child this is an error.
    waitid(WaitId::Pid(pid), options)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

fn unreadable() -> (Step, String) {
    (Step::Fork, "the report is not readable".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_replaced_after_a_thousand_forks_or_ten_minutes() {
        let renewal = Renewal::default();
        let almost = Duration::from_mins(10) - Duration::from_millis(1);
        let due = [
            (0, Duration::ZERO),
            (999, almost),
            (1000, Duration::ZERO),
            (0, Duration::from_mins(10)),
        ]
        .map(|(forks, age)| renewal.is_due(forks, age));
        assert_eq!(due, [false, false, true, true]);
    }
}
