//! What the system knows about processes, read from /proc.

use std::collections::HashSet;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::suite::skip;

/// One process, told from a later one with the same number by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    start: u64,
}

impl Process {
    /// The process that has this number now.
    pub fn of(pid: u32) -> Option<Self> {
        stat(pid).map(|stat| Self {
            pid,
            start: stat.start,
        })
    }

    /// Whether it still runs; a zombie does not.
    pub fn runs(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.start == self.start && !stat.dead)
    }

    /// Its command line, empty when it cannot be read.
    pub fn command_line(self) -> Vec<String> {
        command_line(self.pid)
    }

    /// Sends SIGKILL to it.
    pub fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Sends a signal to it, unless it is gone.
    pub fn signal(self, signal: Signal) {
        if self.runs()
            && let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Ends the test as ignored where there is no /proc to read.
pub fn needs_proc() -> anyhow::Result<()> {
    if Path::new("/proc/self/stat").exists() {
        return Ok(());
    }
    skip("this system has no /proc to look for left-over processes in")
}

/// Every process below `root`, without itself.
pub fn descendants(root: u32) -> Vec<Process> {
    let all: Vec<(u32, Stat)> = pids()
        .filter_map(|pid| stat(pid).map(|stat| (pid, stat)))
        .collect();
    let mut known = HashSet::from([root]);
    let mut found = Vec::new();
    loop {
        let before = known.len();
        for (pid, stat) in &all {
            if known.contains(&stat.parent) && known.insert(*pid) && !stat.dead {
                found.push(Process {
                    pid: *pid,
                    start: stat.start,
                });
            }
        }
        if known.len() == before {
            return found;
        }
    }
}

/// Every running process whose command line holds `text`.
pub fn mentioning(text: &str) -> Vec<Process> {
    let own = std::process::id();
    pids()
        .filter(|pid| *pid != own)
        .filter(|pid| command_line(*pid).iter().any(|word| word.contains(text)))
        .filter_map(Process::of)
        .filter(|process| process.runs())
        .collect()
}

struct Stat {
    parent: u32,
    start: u64,
    dead: bool,
}

/// Reads /proc/PID/stat; the second field may hold anything, so counting starts after its last bracket.
fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        dead: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

fn command_line(pid: u32) -> Vec<String> {
    std::fs::read(format!("/proc/{pid}/cmdline"))
        .unwrap_or_default()
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

fn pids() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_seen_while_it_runs_and_not_after() {
        if needs_proc().is_err() {
            return;
        }
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(process.runs());
        assert!(descendants(std::process::id()).contains(&process));
        process.kill();
        child.wait().unwrap();
        assert!(!process.runs());
    }
}
