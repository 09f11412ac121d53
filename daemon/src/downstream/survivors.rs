//! Kills what servers leave running when the daemon itself is killed.
//!
//! The kernel ends a server's own process with the daemon, on Linux; what that
//! process has started is not ended by anyone. So a second small process is
//! told of each server's process group, and kills those that are left when the
//! daemon's end of the pipe closes, however that comes about.

use std::collections::HashSet;
use std::io::{BufRead as _, Write as _};
use std::process::ChildStdin;
use std::sync::{Arc, Mutex, PoisonError};

use super::process::kill_group;

/// The daemon's end of the pipe.
#[derive(Clone, Debug, Default)]
pub(super) struct Survivors {
    pipe: Arc<Mutex<Option<ChildStdin>>>,
}

impl Survivors {
    /// Tells the process behind this pipe, which must not block.
    pub(super) fn told_through(pipe: ChildStdin) -> Self {
        Self {
            pipe: Arc::new(Mutex::new(Some(pipe))),
        }
    }

    /// A server runs with this group.
    pub(super) fn born(&self, group: u32) {
        self.tell('+', group);
    }

    /// The group is gone.
    pub(super) fn gone(&self, group: u32) {
        self.tell('-', group);
    }

    fn tell(&self, what: char, group: u32) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        // A line this short is written whole or not at all.
        let line = format!("{what}{group}\n");
        if let Some(open) = &mut *pipe
            && let Err(error) = open.write_all(line.as_bytes())
        {
            tracing::warn!(%error, "nobody would end what servers leave behind if this daemon were killed");
            *pipe = None;
        }
    }
}

/// Reads groups from stdin until it ends, then kills those that are left.
pub fn main() {
    let mut groups = HashSet::new();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Some((what, group)) = line.split_at_checked(1) else {
            continue;
        };
        match (what, group.parse::<u32>()) {
            ("+", Ok(group)) if group > 1 => {
                groups.insert(group);
            }
            ("-", Ok(group)) => {
                groups.remove(&group);
            }
            _ => {}
        }
    }
    for group in groups {
        kill_group(group);
    }
}
