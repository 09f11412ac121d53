//! Kills what servers leave running when the daemon itself is killed.
//!
//! The kernel ends a server's own process with the daemon, on Linux; what that
//! process has started is not ended by anyone. So a second small process is
//! told of each server's process group and mark, and kills what is left of both
//! when the daemon's end of the pipe closes, however that comes about.

use std::collections::HashSet;
use std::io::{BufRead as _, Write as _};
use std::process::ChildStdin;
use std::sync::{Arc, Mutex, PoisonError};

use super::marked::{self, Mark};
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

    /// A server runs with this group, and its descendants carry this mark.
    pub(super) fn born(&self, group: u32, mark: Option<Mark>) {
        self.tell('+', u64::from(group));
        if let Some(mark) = mark {
            self.tell('m', mark.number());
        }
    }

    /// The group is gone, and its number may be another's.
    pub(super) fn gone(&self, group: u32) {
        self.tell('-', u64::from(group));
    }

    /// Nobody carries the mark any more.
    pub(super) fn unmarked(&self, mark: Mark) {
        self.tell('u', mark.number());
    }

    fn tell(&self, what: char, number: u64) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        // A line this short is written whole or not at all.
        let line = format!("{what}{number}\n");
        if let Some(open) = &mut *pipe
            && let Err(error) = open.write_all(line.as_bytes())
        {
            tracing::warn!(%error, "nobody would end what servers leave behind if this daemon were killed");
            *pipe = None;
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
