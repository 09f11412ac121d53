//! Kills what servers leave running when the daemon itself is killed.
//!
//! The kernel ends a server's own process with the daemon, on Linux; what that
//! process has started is not ended by anyone. So a second small process is
//! told of each server's process group and mark, and kills what is left of both
//! when the daemon's end of the pipe closes, however that comes about.

use std::collections::HashSet;
use std::io::{self, BufRead as _, Write as _};
use std::process::{Child, ChildStdin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::marked::{self, Mark};
use super::process::kill_group;

/// At most so often another is started, in case that they cannot live.
const PAUSE: Duration = Duration::from_secs(1);
/// What it means that there is none.
const NOBODY: &str = "nobody would end what servers leave behind if this daemon were killed";

/// The daemon's end of the pipe.
#[derive(Clone, Debug, Default)]
pub(super) struct Survivors {
    told: Arc<Mutex<Told>>,
}

/// What the second process is told of, so that another can be told the same.
#[derive(Debug, Default)]
struct Told {
    /// Its number, which is its own until it is reaped, and the pipe to it.
    watcher: Option<(Pid, ChildStdin)>,
    groups: HashSet<u32>,
    marks: HashSet<u64>,
}

impl Survivors {
    /// Has a process watch that `start` starts, and another as soon as that one has ended; their pipes must not block.
    pub(super) fn watched_by(
        start: impl Fn() -> io::Result<(Child, ChildStdin)> + Send + 'static,
    ) -> Self {
        let survivors = Self::default();
        let told_of = Arc::downgrade(&survivors.told);
        let begin = move |told: &Mutex<Told>| match start() {
            Ok((child, pipe)) => {
                lock(told).take(&child, pipe);
                Some(child)
            }
            Err(error) => {
                tracing::warn!(%error, "{NOBODY}");
                None
            }
        };
        let mut watcher = begin(&survivors.told);
        let mut born = Instant::now();
        let thread = std::thread::Builder::new().name("survivors".to_owned());
        let started = thread.spawn(move || {
            loop {
                if let Some(mut child) = watcher.take() {
                    wait(&child);
                    if let Some(told) = told_of.upgrade() {
                        lock(&told).watcher = None;
                        tracing::warn!(
                            "{NOBODY}: the process for it has ended; another is started"
                        );
                    }
                    // It has ended, so this reaps it.
                    let _ = child.wait();
                }
                std::thread::sleep(PAUSE.saturating_sub(born.elapsed()));
                let Some(told) = told_of.upgrade() else {
                    return;
                };
                born = Instant::now();
                watcher = begin(&told);
                if watcher.is_some() {
                    tracing::info!("what servers leave behind is watched again");
                }
            }
        });
        if let Err(error) = started {
            tracing::warn!(%error, "{NOBODY} and the process for it before");
        }
        survivors
    }

    /// A server runs with this group, and its descendants carry this mark.
    pub(super) fn born(&self, group: u32, mark: Option<Mark>) {
        let mut told = lock(&self.told);
        told.groups.insert(group);
        told.tell('+', u64::from(group));
        if let Some(mark) = mark {
            told.marks.insert(mark.number());
            told.tell('m', mark.number());
        }
    }

    /// The group is gone, and its number may be another's.
    pub(super) fn gone(&self, group: u32) {
        let mut told = lock(&self.told);
        told.groups.remove(&group);
        told.tell('-', u64::from(group));
    }

    /// Nobody carries the mark any more.
    pub(super) fn unmarked(&self, mark: Mark) {
        let mut told = lock(&self.told);
        told.marks.remove(&mark.number());
        told.tell('u', mark.number());
    }
}

/// Waits until the process has ended, and leaves it its number.
fn wait(child: &Child) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let interrupted = || {
        matches!(
            waitid(WaitId::Pid(Pid::from_child(child)), options),
            Err(Errno::INTR)
        )
    };
    while interrupted() {}
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Told {
    /// Tells this process everything, and from now on it alone.
    fn take(&mut self, child: &Child, pipe: ChildStdin) {
        self.watcher = Some((Pid::from_child(child), pipe));
        for group in self.groups.clone() {
            self.tell('+', u64::from(group));
        }
        for mark in self.marks.clone() {
            self.tell('m', mark);
        }
    }

    fn tell(&mut self, what: char, number: u64) {
        // A line this short is written whole or not at all.
        let line = format!("{what}{number}\n");
        if let Some((watcher, pipe)) = &mut self.watcher
            && let Err(error) = pipe.write_all(line.as_bytes())
        {
            // One that does not read would take the pipe's end for the daemon's, and end the servers.
            tracing::warn!(%error, "{NOBODY}");
            let _ = kill_process(*watcher, Signal::KILL);
            self.watcher = None;
        }
    }
}

/// Reads groups and marks from stdin until it ends, then kills those that are left.
pub fn main() {
    let (mut groups, mut marks) = (HashSet::new(), HashSet::new());
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Some((what, number)) = line.split_at_checked(1) else {
            continue;
        };
        let (group, mark) = (number.parse::<u32>().ok(), number.parse::<u64>().ok());
        match (
            what,
            group.filter(|&group| group > 1),
            mark.and_then(Mark::from_number),
        ) {
            ("+", Some(group), _) => {
                groups.insert(group);
            }
            ("-", Some(group), _) => {
                groups.remove(&group);
            }
            ("m", _, Some(mark)) => {
                marks.insert(mark);
            }
            ("u", _, Some(mark)) => {
                marks.remove(&mark);
            }
            _ => {}
        }
    }
    for group in groups {
        kill_group(group);
    }
    marked::kill_all(&marks);
}
