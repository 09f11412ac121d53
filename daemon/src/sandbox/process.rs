//! One worker as the daemon holds it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
#[cfg(target_os = "linux")]
use rustix::process::pidfd_send_signal;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Exit, Limits};

/// A confined interpreter. It is killed when this is dropped.
#[derive(Debug)]
pub struct WorkerProcess {
    /// Number of the worker, never used twice by one [`Sandbox`](super::Sandbox).
    pub id: u64,
    /// The daemon's end of the worker's descriptor 3, in blocking mode.
    pub channel: UnixStream,
    /// What the worker writes to descriptor 1.
    pub stdout: OwnedFd,
    /// What the worker writes to descriptor 2.
    pub stderr: OwnedFd,
    hold: Hold,
    /// Whether it was forked off a fork server.
    forked: bool,
    /// Unknown for one that a task tends.
    limits: Option<Limits>,
    exits: oneshot::Receiver<Exit>,
    exit: Option<Exit>,
}

/// By what a worker is held.
#[derive(Debug)]
enum Hold {
    /// By the kernel's own handle.
    #[cfg(target_os = "linux")]
    Process { pid: i32, pidfd: OwnedFd },
    /// By a task that knows how to reach it.
    Reins(Reins),
}

/// What a worker that cannot be reached directly is steered by: its holder pulls, the task that tends it follows.
#[derive(Clone, Debug)]
pub(super) struct Reins {
    /// It is to end.
    pub(super) kill: CancellationToken,
    /// It is to print where it is.
    pub(super) interrupt: Arc<Notify>,
    /// It has ended.
    pub(super) ended: CancellationToken,
}

impl Reins {
    /// Those of a worker that ends with `all` at the latest.
    pub(super) fn under(all: &CancellationToken) -> Self {
        Self {
            kill: all.child_token(),
            interrupt: Arc::default(),
            ended: CancellationToken::new(),
        }
    }
}

impl WorkerProcess {
    #[cfg(target_os = "linux")]
    pub(super) fn new(
        id: u64,
        channel: UnixStream,
        (stdout, stderr): (OwnedFd, OwnedFd),
        (pid, pidfd): (i32, OwnedFd),
        (limits, forked): (Limits, bool),
        exits: oneshot::Receiver<Exit>,
    ) -> Self {
        Self {
            id,
            channel,
            stdout,
            stderr,
            hold: Hold::Process { pid, pidfd },
            forked,
            limits: Some(limits),
            exits,
            exit: None,
        }
    }

    /// One that a task tends.
    pub(super) fn tended(
        id: u64,
        channel: UnixStream,
        (stdout, stderr): (OwnedFd, OwnedFd),
        reins: Reins,
        exits: oneshot::Receiver<Exit>,
    ) -> Self {
        Self {
            id,
            channel,
            stdout,
            stderr,
            hold: Hold::Reins(reins),
            forked: false,
            limits: None,
            exits,
            exit: None,
        }
    }

    /// Process id, 0 where this machine does not count it; good for looking, not for signals, which go by
    /// [`kill`](Self::kill).
    pub fn pid(&self) -> i32 {
        match &self.hold {
            #[cfg(target_os = "linux")]
            Hold::Process { pid, .. } => *pid,
            Hold::Reins(_) => 0,
        }
    }

    /// Ends the worker at once. One that has ended already stays so.
    pub fn kill(&self) {
        match &self.hold {
            #[cfg(target_os = "linux")]
            Hold::Process { pidfd, .. } => {
                let _ = pidfd_send_signal(pidfd, Signal::KILL);
            }
            Hold::Reins(reins) => reins.kill.cancel(),
        }
    }

    /// Asks the interpreter to print where it is on descriptor 2.
    pub fn interrupt(&self) {
        match &self.hold {
            #[cfg(target_os = "linux")]
            Hold::Process { pidfd, .. } => {
                let _ = pidfd_send_signal(pidfd, Signal::USR1);
            }
            Hold::Reins(reins) => reins.interrupt.notify_one(),
        }
    }

    /// Waits until the worker has ended. Its scratch folder then has its name no more; what is in it may be removed
    /// later, which this does not wait for. The caller sets the deadline. A worker whose warden is lost counts as
    /// killed.
    pub async fn exited(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let exit = (&mut self.exits).await.unwrap_or(Exit {
            code: None,
            signal: Some(Signal::KILL.as_raw()),
            cpu: Duration::ZERO,
            peak_memory_bytes: 0,
            scratch_exceeded: false,
        });
        self.exit = Some(exit);
        exit
    }

    /// Whether it was forked off a fork server, and has the hash seed and the addresses of others.
    pub fn is_forked(&self) -> bool {
        self.forked
    }

    /// What it was started with.
    pub(super) fn limits(&self) -> Option<Limits> {
        self.limits
    }

    /// Whether the process still lives.
    pub fn lives(&self) -> bool {
        match &self.hold {
            #[cfg(target_os = "linux")]
            Hold::Process { pidfd, .. } => {
                let mut event = [rustix::event::PollFd::new(
                    pidfd,
                    rustix::event::PollFlags::IN,
                )];
                let now = rustix::event::Timespec::default();
                matches!(rustix::event::poll(&mut event, Some(&now)), Ok(0))
            }
            Hold::Reins(reins) => !reins.ended.is_cancelled(),
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.kill();
        }
    }
}
