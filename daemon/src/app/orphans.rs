//! Reaps what nobody waits for, where the daemon is the first process of a container.

use std::collections::HashMap;

use rustix::process::{Pid, WaitOptions, waitpid};

/// How many looks in a row must find a child ended before it counts as nobody's: whoever has started one waits for it,
/// and has its exit code within moments.
const LOOKS: u32 = 5;

/// Number and start time of a process that has ended, and that nobody has waited for.
type Ended = (i32, u64);

/// How often each such child was seen.
#[derive(Debug, Default)]
pub(super) struct Orphans(HashMap<Ended, u32>);

impl Orphans {
    /// Looks for them once, where the kernel hands orphans to this process; what has been seen long enough is reaped.
    pub(super) fn look(&mut self) {
        if std::process::id() != 1 {
            return;
        }
        for (pid, _) in self.due(&ended_children()) {
            // An error says that somebody has waited for it after all.
            let _ = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
        }
    }

    /// Counts one look; gives those whose time has come.
    fn due(&mut self, ended: &[Ended]) -> Vec<Ended> {
        let looks = |child: &Ended| self.0.get(child).map_or(1, |looks| looks.saturating_add(1));
        self.0 = ended.iter().map(|child| (*child, looks(child))).collect();
        let due = self.0.iter().filter(|(_, looks)| **looks >= LOOKS);
        due.map(|(child, _)| *child).collect()
    }
}

/// The children of this process that have ended; none where there is no such table of processes.
fn ended_children() -> Vec<Ended> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((
            pid,
            std::fs::read_to_string(entry.path().join("stat")).ok()?,
        ))
    });
    let own = std::process::id();
    stats
        .filter_map(|(pid, stat)| Some((pid, ended_child_of(own, &stat)?)))
        .collect()
}

/// When the process of a `/proc/PID/stat` line started, if it is an ended child of `parent`. The name in the line may
/// hold anything, so fields count from its last bracket.
fn ended_child_of(parent: u32, stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let ended = fields.next()? == "Z" && fields.next()?.parse() == Ok(parent);
    let started = fields.nth(17)?.parse().ok()?;
    ended.then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ended_child_is_taken_from_a_line() {
        let line = |state: &str, parent: u32| {
            format!("9 (a) Z 1 b) {state} {parent} {}777 0", "0 ".repeat(17))
        };
        assert_eq!(ended_child_of(1, &line("Z", 1)), Some(777));
        assert_eq!(ended_child_of(1, &line("S", 1)), None);
        assert_eq!(ended_child_of(1, &line("Z", 4)), None);
        assert_eq!(ended_child_of(1, "nothing"), None);
    }

    #[test]
    fn a_child_is_nobodys_once_it_was_seen_ended_for_long() {
        let mut orphans = Orphans::default();
        let (one, other) = ((7, 70), (8, 80));
        for _ in 1..LOOKS {
            assert!(orphans.due(&[one]).is_empty());
        }
        assert_eq!(orphans.due(&[one, other]), [one]);
        // One that was waited for, and another with its number, begin anew.
        assert!(orphans.due(&[other]).is_empty());
        assert!(orphans.due(&[(7, 71), other]).is_empty());
    }
}
