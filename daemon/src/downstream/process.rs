//! Watches a server's process until it has ended, with all that it started.

use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::sync::watch;

use super::survivors::Survivors;

use super::descendants::Descendants;

/// How long a server gets to end by itself once its stdin is closed, and again after TERM.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How long the kernel gets to end what was killed.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// A running server. Dropping it kills the whole group.
#[derive(Debug)]
pub(super) struct Process {
    pid: u32,
    exit: watch::Receiver<Option<ExitStatus>>,
}

impl Process {
    /// Takes charge of a child that leads its own group.
    pub(super) fn watch(mut child: Child, survivors: Survivors) -> Self {
        let (told, exit) = watch::channel(None);
        let pid = child.id().unwrap_or_default();
        tokio::spawn(async move {
            let status = child.wait().await.ok();
            // Whatever the leader left behind would keep its pipes open.
            kill_group(pid);
            survivors.gone(pid);
            // A failed wait means that nobody can know more; the process is gone.
            let _ = told.send(Some(status.unwrap_or_default()));
        });
        Self { pid, exit }
    }

    pub(super) fn id(&self) -> u32 {
        self.pid
    }

    /// Changes once, when the leader has ended.
    pub(super) fn exit(&self) -> watch::Receiver<Option<ExitStatus>> {
        self.exit.clone()
    }

    /// Waits for the end, at most `limit`.
    pub(super) async fn ended_within(&self, limit: Duration) -> Option<ExitStatus> {
        ended_within(&mut self.exit(), limit).await
    }

    /// Ends the process and everything it started. Its stdin must be closed
    /// already; `patience` is how long each gentler step is given.
    pub(super) async fn end(&self, patience: Duration) {
        let mut family = Descendants::of(self.pid).await;
        if self.ended_within(patience).await.is_none() {
            family.add(self.pid).await;
            signal_group(self.pid, Signal::TERM);
            if self.ended_within(patience).await.is_none() {
                family.add(self.pid).await;
                signal_group(self.pid, Signal::KILL);
                if self.ended_within(AFTER_KILL).await.is_none() {
                    tracing::warn!(pid = self.pid, "a server does not end even when killed");
                }
            }
        }
        family.kill().await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit.borrow().is_none() {
            kill_group(self.pid);
        }
    }
}

/// Waits for a process's end, at most `limit`.
pub(super) async fn ended_within(
    exit: &mut watch::Receiver<Option<ExitStatus>>,
    limit: Duration,
) -> Option<ExitStatus> {
    let ended = tokio::time::timeout(limit, exit.wait_for(Option::is_some)).await;
    match ended {
        Ok(Ok(status)) => *status,
        // The watcher ends only after it has told, or with the whole runtime.
        Ok(Err(_)) => Some(ExitStatus::default()),
        Err(_) => None,
    }
}

/// Kills what is left of a group.
pub(super) fn kill_group(pid: u32) {
    signal_group(pid, Signal::KILL);
}

fn signal_group(pid: u32, signal: Signal) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    // An empty group is what is wanted.
    let _ = kill_process_group(pid, signal);
}

/// How a process ended, in words.
pub(super) fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    fn shell(script: &str) -> Process {
        let child = tokio::process::Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Process::watch(child, Survivors::default())
    }

    #[tokio::test]
    async fn the_leaders_end_is_told_in_words() {
        let status = shell("exit 7").ended_within(PATIENCE).await.unwrap();
        assert_eq!(describe(status), "it ended with exit code 7");
        let status = shell("kill -9 $$").ended_within(PATIENCE).await.unwrap();
        assert_eq!(describe(status), "it was killed by signal 9");
    }

    #[tokio::test]
    async fn a_process_that_ignores_everything_is_killed_with_its_group() {
        let process = shell("trap '' TERM; sleep 60 & sleep 60; sleep 60");
        let pid = process.id();
        process.end(Duration::from_millis(50)).await;
        let status = process.ended_within(Duration::ZERO).await.unwrap();
        assert_eq!(describe(status), "it was killed by signal 9");
        let group = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let gone = async {
            while rustix::process::test_kill_process_group(group).is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.unwrap();
    }
}
