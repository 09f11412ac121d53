//! Finds the processes a server started, those that left its group included.

use std::collections::{HashMap, HashSet};

#[cfg(target_os = "linux")]
use rustix::process::{Pid, Signal, kill_process};

/// A process and the moment it started, which tells it from a later one with its number.
type Identity = (u32, u64);

/// Processes that must not outlive their server.
#[derive(Debug, Default)]
pub(super) struct Descendants {
    found: HashSet<Identity>,
}

impl Descendants {
    /// All that descend from a process now.
    pub(super) async fn of(pid: u32) -> Self {
        let mut family = Self::default();
        family.add(pid).await;
        family
    }

    /// Adds those that have come since.
    pub(super) async fn add(&mut self, pid: u32) {
        let found = tokio::task::spawn_blocking(move || descendants(&processes(), pid)).await;
        self.found.extend(found.unwrap_or_default());
    }

    /// Kills the ones that are still there.
    pub(super) async fn kill(self) {
        if self.found.is_empty() {
            return;
        }
        let found = self.found;
        // A failed join means that the runtime is ending, and the processes with the daemon.
        let _ = tokio::task::spawn_blocking(move || kill(&found)).await;
    }
}

/// A process as the kernel lists it.
struct Listed {
    parent: u32,
    started: u64,
}

fn descendants(processes: &HashMap<u32, Listed>, root: u32) -> HashSet<Identity> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (&pid, listed) in processes {
        children.entry(listed.parent).or_default().push(pid);
    }
    let mut found = HashSet::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for &child in children.get(&parent).into_iter().flatten() {
            let started = processes.get(&child).map_or(0, |listed| listed.started);
            if found.insert((child, started)) {
                open.push(child);
            }
        }
    }
    found
}

#[cfg(target_os = "linux")]
fn processes() -> HashMap<u32, Listed> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return HashMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, parse_stat(&stat)?))
        })
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn processes() -> HashMap<u32, Listed> {
    // The process group is all that is known there.
    HashMap::new()
}

#[cfg(target_os = "linux")]
fn kill(found: &HashSet<Identity>) {
    let now = processes();
    for (pid, started) in found {
        if now.get(pid).is_none_or(|listed| listed.started != *started) {
            continue;
        }
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            // It may end between the look and the signal, which is as good.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn kill(_found: &HashSet<Identity>) {}

/// Parent and start time in a `/proc/PID/stat` line. The name in it may hold anything, so fields count from its last bracket.
#[cfg(target_os = "linux")]
fn parse_stat(stat: &str) -> Option<Listed> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Listed { parent, started })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_any_name() {
        let mut line = "9 (a) b) S 4 ".to_owned();
        line.push_str(&"0 ".repeat(17));
        line.push_str("777 0");
        let listed = parse_stat(&line).unwrap();
        assert_eq!((listed.parent, listed.started), (4, 777));
        assert!(parse_stat("nothing").is_none());
    }

    #[tokio::test]
    async fn a_grandchild_in_its_own_session_is_found_and_killed() {
        let mut server = Command::new("setsid")
            .args(["sh", "-c", "setsid sleep 300 & echo up; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let family = loop {
            let family = Descendants::of(server.id()).await;
            if !family.found.is_empty() {
                break family;
            }
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        family.kill().await;
        // The shell waits for its child only, so it ends once that is gone.
        loop {
            if server.try_wait().unwrap().is_some() {
                break;
            }
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
