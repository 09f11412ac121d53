//! Resource limits of one worker.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Deserialize;
use serde_json::{Value, json};

/// Address space, the wall behind the memory limit: reserved but unused memory counts here.
const ADDRESS_SPACE: u64 = 4 << 30;
const MAIN_STACK: u64 = 8 << 20;
const DESCRIPTORS: u64 = 128;
/// One byte: with none at all a dump piped to a crash reporter would still be made.
const CORE: u64 = 1;
/// No single file may fill more than this.
const LARGEST_FILE: u64 = 64 << 20;

/// Files and folders of one worker; more count as over the scratch limit.
pub const MAX_SCRATCH_ENTRIES: usize = 4096;
/// Folders within folders of one worker; deeper ones count as over the scratch limit.
pub const MAX_SCRATCH_DEPTH: usize = 64;

/// What one worker may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Limits {
    /// Private memory, in bytes.
    pub memory_bytes: u64,
    /// Files in its scratch folder, named or not, in bytes.
    pub scratch_bytes: u64,
    /// Threads.
    pub max_threads: u64,
    /// Processor time, in seconds.
    pub cpu_seconds: u64,
}

impl Limits {
    /// The form in which they travel to the warden.
    pub(super) fn to_json(self) -> Value {
        json!({
            "memory_bytes": self.memory_bytes,
            "scratch_bytes": self.scratch_bytes,
            "max_threads": self.max_threads,
            "cpu_seconds": self.cpu_seconds,
        })
    }

    /// Bytes the largest file may have.
    pub(super) fn file_bytes(self) -> u64 {
        self.scratch_bytes.min(LARGEST_FILE)
    }

    /// Each limit as /proc names it, and what it may be at most.
    pub(super) fn as_told(self) -> [(&'static str, u64); 7] {
        [
            ("Max data size", self.memory_bytes),
            ("Max address space", self.address_space()),
            ("Max stack size", MAIN_STACK),
            ("Max cpu time", self.cpu_seconds),
            ("Max file size", self.file_bytes()),
            ("Max open files", DESCRIPTORS),
            ("Max core file size", CORE),
        ]
    }

    fn address_space(self) -> u64 {
        ADDRESS_SPACE.max(self.memory_bytes.saturating_mul(2))
    }

    /// Sets them on this process. `tasks` is how many tasks its user has already: the kernel counts threads over
    /// the whole user.
    pub(super) fn apply(self, tasks: u64) -> io::Result<()> {
        for (resource, wanted) in [
            (Resource::Data, self.memory_bytes),
            (Resource::As, self.address_space()),
            (Resource::Stack, MAIN_STACK),
            (Resource::Cpu, self.cpu_seconds),
            (Resource::Fsize, self.file_bytes()),
            (Resource::Nofile, DESCRIPTORS),
            (Resource::Core, CORE),
            (Resource::Nproc, tasks.saturating_add(self.max_threads)),
        ] {
            // What is stricter already stays, for an ordinary user could not raise it.
            let limit = getrlimit(resource)
                .maximum
                .map_or(wanted, |hard| hard.min(wanted));
            setrlimit(
                resource,
                Rlimit {
                    current: Some(limit),
                    maximum: Some(limit),
                },
            )?;
        }
        Ok(())
    }
}

/// How many tasks (threads of all processes) the real user `uid` has now.
pub(super) fn tasks_of(uid: u32) -> io::Result<u64> {
    let mut tasks = 0;
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        if !entry
            .file_name()
            .as_encoded_bytes()
            .iter()
            .all(u8::is_ascii_digit)
        {
            continue;
        }
        // A process that has ended since has no tasks.
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else {
            continue;
        };
        let number = |key: &str| -> Option<u64> {
            let line = status.lines().find(|line| line.starts_with(key))?;
            line.split_ascii_whitespace().nth(1)?.parse().ok()
        };
        if number("Uid:") == Some(u64::from(uid)) {
            tasks += number("Threads:").unwrap_or(1);
        }
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_survive_the_way_to_the_warden() {
        let limits = Limits {
            memory_bytes: 1,
            scratch_bytes: 2,
            max_threads: 3,
            cpu_seconds: 4,
        };
        let text = limits.to_json().to_string();
        assert_eq!(serde_json::from_str::<Limits>(&text).unwrap(), limits);
    }

    #[test]
    fn a_user_has_at_least_the_tasks_of_this_process() {
        let mine = tasks_of(rustix::process::getuid().as_raw()).unwrap();
        assert!(mine >= 1, "{mine}");
        assert_eq!(tasks_of(u32::MAX - 7).unwrap(), 0);
    }
}
