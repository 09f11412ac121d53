//! Ends all that a server has started, by a mark that its descendants inherit.
//!
//! A process leaves its group by `setsid` and its parent by outliving it, so neither tells whose
//! it is once it has done both. It inherits its resource limits all the same. The mark is the
//! limit on file locks, which no kernel enforces and nothing else reads; only a process with
//! `CAP_SYS_RESOURCE` can raise it again.

use std::collections::HashSet;
use std::time::Duration;

/// Looks at the list of processes: those that are started while others are killed are met in the next one.
const LOOKS: usize = 40;
/// Pause between two of them, for the kernel to end what was killed.
const PAUSE: Duration = Duration::from_millis(5);
/// The lowest limit that leaves room for marks nobody else has.
#[cfg(target_os = "linux")]
const LEAST_ROOM: u64 = 1 << 42;
/// Marks that one daemon may give before they could be another's.
#[cfg(target_os = "linux")]
const SERVERS: u64 = 1 << 20;

/// What tells the processes of one server from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark(u64);

impl Mark {
    /// The mark with this number.
    pub(super) fn from_number(number: u64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }

    /// Marks this process, for between fork and exec: it makes one system call.
    #[cfg(target_os = "linux")]
    pub(super) fn put_on(self) -> rustix::io::Result<()> {
        let limit = rustix::process::Rlimit {
            current: Some(self.0),
            maximum: Some(self.0),
        };
        rustix::process::setrlimit(rustix::process::Resource::Locks, limit)
    }

    /// Kills every process that carries the mark.
    pub(super) async fn kill_all(self) {
        let marks = HashSet::from([self]);
        // A failed join means that the runtime is ending; who watches the daemon's end has the mark, too.
        let _ = tokio::task::spawn_blocking(move || kill_all(&marks)).await;
    }
}

/// Gives each server a mark of its own.
#[derive(Debug)]
pub(super) struct Marks {
    next: u64,
    end: u64,
}

impl Marks {
    /// Marks below this process's own limit, at random, so that two daemons have none in common;
    /// `None` where there is no room for that, or no such limit.
    #[cfg(target_os = "linux")]
    pub(super) fn new() -> Option<Self> {
        let own = rustix::process::getrlimit(rustix::process::Resource::Locks);
        let top = own.maximum.unwrap_or(u64::MAX).min(1 << 62);
        if top < LEAST_ROOM {
            return None;
        }
        let half = top / 2;
        let chance = getrandom::u64().ok()?;
        let next = half + chance % (half - SERVERS);
        Some(Self {
            next,
            end: next + SERVERS,
        })
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn new() -> Option<Self> {
        None
    }

    /// The next server's; `None` once all are given.
    pub(super) fn next(&mut self) -> Option<Mark> {
        let mark = (self.next < self.end).then_some(Mark(self.next));
        self.next = self.next.saturating_add(1);
        mark
    }
}

/// Kills every process that carries one of these marks, and those that are started meanwhile. Blocks
/// while it looks, a fifth of a second and the looks themselves at most.
pub(super) fn kill_all(marks: &HashSet<Mark>) {
    if marks.is_empty() {
        return;
    }
    for _ in 0..LOOKS {
        let living = list::living(marks);
        if living.is_empty() {
            return;
        }
        for pid in living {
            list::kill(pid, marks);
        }
        std::thread::sleep(PAUSE);
    }
    tracing::warn!("not all that a server has started could be ended");
}

#[cfg(target_os = "linux")]
mod list {
    use std::collections::HashSet;

    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

    use super::Mark;

    /// The processes that carry one of these marks and have not ended.
    pub(super) fn living(marks: &HashSet<Mark>) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|&pid| carries(pid, marks) && !has_ended(pid))
            .collect()
    }

    /// Kills a process, if it still carries a mark.
    pub(super) fn kill(pid: u32, marks: &HashSet<Mark>) {
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return;
        };
        // The descriptor holds on to the process; what has its number by then is looked at before the signal.
        let held = pidfd_open(number, PidfdFlags::empty());
        if !carries(pid, marks) {
            return;
        }
        // It may end before the signal, which is as good; one of another user is not ours to end.
        let _ = match held {
            Ok(held) => pidfd_send_signal(held, Signal::KILL),
            Err(Errno::NOSYS) => kill_process(number, Signal::KILL),
            Err(error) => Err(error),
        };
    }

    fn carries(pid: u32, marks: &HashSet<Mark>) -> bool {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"));
        let mark = limits.ok().as_deref().and_then(mark_in);
        mark.is_some_and(|mark| marks.contains(&mark))
    }

    /// The mark in a `/proc/PID/limits`.
    pub(super) fn mark_in(limits: &str) -> Option<Mark> {
        let values = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max file locks"))?;
        let mut values = values.split_ascii_whitespace();
        let (soft, hard) = (values.next()?, values.next()?);
        // A process may have lowered the first of the two.
        let _ = soft;
        Mark::from_number(hard.parse().ok()?)
    }

    /// Whether it only waits for its parent to notice its end.
    fn has_ended(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        matches!(state, None | Some('Z' | 'X'))
    }
}

#[cfg(not(target_os = "linux"))]
mod list {
    use std::collections::HashSet;

    use super::Mark;

    pub(super) fn living(_marks: &HashSet<Mark>) -> Vec<u32> {
        Vec::new()
    }

    pub(super) fn kill(_pid: u32, _marks: &HashSet<Mark>) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn marks_are_apart_and_below_the_own_limit() {
        let (mut ours, mut theirs) = (Marks::new().unwrap(), Marks::new().unwrap());
        let (one, two) = (ours.next().unwrap(), ours.next().unwrap());
        assert_ne!(one, two);
        assert!(one.number() >= LEAST_ROOM / 2 && one.number() < 1 << 62);
        assert_ne!(theirs.next().unwrap(), one, "by chance in 2^40 tries");
        ours.next = ours.end;
        assert_eq!(ours.next(), None);
    }

    #[test]
    fn the_mark_is_read_from_the_second_limit() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             1024                 2048                 processes \n\
                    Max file locks            unlimited            4611686018427387904  locks     \n";
        assert_eq!(list::mark_in(text), Mark::from_number(1 << 62));
        assert_eq!(
            list::mark_in(&text.replace("4611686018427387904", "unlimited")),
            None
        );
        assert_eq!(list::mark_in(""), None);
    }

    #[test]
    fn nobody_is_ended_who_carries_another_mark() {
        let mut marks = Marks::new().unwrap();
        let marks = HashSet::from([marks.next().unwrap()]);
        assert_eq!(list::living(&marks), [0; 0]);
        list::kill(std::process::id(), &marks);
        kill_all(&HashSet::new());
    }
}
