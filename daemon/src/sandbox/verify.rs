//! Looks from outside, in /proc, whether a worker is what it should be.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use super::process::WorkerProcess;
use super::{Limits, SandboxError};

/// What must stand in the status of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    /// seccomp filters it installed; `None` without confinement.
    pub(super) filters: Option<usize>,
    /// The user it must be, when ptcd is root.
    pub(super) user: Option<u32>,
    /// Whether it is in namespaces of its own.
    pub(super) inside: bool,
}

/// The namespaces of a process, as /proc names them, and whether a worker has one that its warden has not.
const NAMESPACES: [(&str, bool); 6] = [
    ("user", true),
    ("pid", true),
    ("mnt", true),
    ("ipc", true),
    ("net", false),
    ("uts", false),
];

// Of this process, which installs no filter and enters no namespace as long as it lives.
static OWN_STATUS: OnceLock<String> = OnceLock::new();
static OWN_SPACES: OnceLock<[PathBuf; NAMESPACES.len()]> = OnceLock::new();

/// Refuses a worker that lacks one of its layers.
pub(super) fn verify(worker: &WorkerProcess, expected: Expected) -> Result<(), SandboxError> {
    let fault = |detail: String| SandboxError::Unconfined { detail };
    let status = status_of(&worker.pid().to_string()).map_err(fault)?;
    let own = kept(&OWN_STATUS, || status_of("self")).map_err(fault)?;
    if expected.inside {
        let spaces = kept(&OWN_SPACES, own_spaces).map_err(fault)?;
        let parent = fields(&status).get("PPid").map(ToString::to_string);
        let parent = parent.ok_or_else(|| fault("its parent is not told".to_owned()))?;
        for ((space, own), ptcd) in NAMESPACES.into_iter().zip(spaces) {
            let of = |whose: &str| space_of(whose, space).map_err(fault);
            let (worker, warden) = (of(&worker.pid().to_string())?, of(&parent)?);
            if worker == *ptcd || warden == *ptcd {
                return Err(fault(format!("its {space} namespace is that of ptcd")));
            }
            if own && worker == warden {
                return Err(fault(format!(
                    "its {space} namespace is that of its warden"
                )));
            }
        }
    }
    let limits = fs::read_to_string(format!("/proc/{}/limits", worker.pid()))
        .map_err(|error| fault(format!("its limits cannot be read: {error}")))?;
    let wanted = worker
        .limits()
        .ok_or_else(|| fault("its limits are not known".to_owned()))?;
    within(&limits, wanted).map_err(fault)?;
    // Until it is reaped its number belongs to no one else, and a worker that lives now has not been.
    if !worker.lives() {
        return Err(fault("it has ended already".to_owned()));
    }
    check(&status, own, expected).map_err(fault)
}

/// What `lock` keeps, which is read the first time.
fn kept<T>(lock: &OnceLock<T>, read: impl FnOnce() -> Result<T, String>) -> Result<&T, String> {
    match lock.get() {
        Some(kept) => Ok(kept),
        None => read().map(|found| lock.get_or_init(|| found)),
    }
}

fn own_spaces() -> Result<[PathBuf; NAMESPACES.len()], String> {
    let mut spaces = [const { PathBuf::new() }; NAMESPACES.len()];
    for (own, (space, _)) in spaces.iter_mut().zip(NAMESPACES) {
        *own = space_of("self", space)?;
    }
    Ok(spaces)
}

fn status_of(whose: &str) -> Result<String, String> {
    fs::read_to_string(format!("/proc/{whose}/status"))
        .map_err(|error| format!("its status cannot be read: {error}"))
}

fn space_of(whose: &str, space: &str) -> Result<PathBuf, String> {
    fs::read_link(format!("/proc/{whose}/ns/{space}"))
        .map_err(|error| format!("its {space} namespace cannot be seen: {error}"))
}

/// Compares a worker's status with what is expected; `own` is that of ptcd, whose filters a worker inherits.
fn check(status: &str, own: &str, expected: Expected) -> Result<(), String> {
    let status = fields(status);
    let get = |key: &str| status.get(key).copied().unwrap_or("missing");
    let mut wanted = vec![("NoNewPrivs", "1".to_owned())];
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        wanted.push((set, "0000000000000000".to_owned()));
    }
    if let Some(filters) = expected.filters {
        let inherited = fields(own)
            .get("Seccomp_filters")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        wanted.push(("Seccomp", "2".to_owned()));
        wanted.push(("Seccomp_filters", (filters + inherited).to_string()));
    }
    if expected.user.is_some() || expected.inside {
        // Without namespaces an ordinary user may not narrow this set, and cannot gain anything from it either.
        wanted.push(("CapBnd", "0000000000000000".to_owned()));
    }
    if let Some(user) = expected.user {
        wanted.push(("Uid", [user; 4].map(|id| id.to_string()).join("\t")));
        wanted.push(("Gid", [user; 4].map(|id| id.to_string()).join("\t")));
        wanted.push(("Groups", String::new()));
    }
    for (key, value) in wanted {
        if get(key) != value {
            return Err(format!("{key} is {} and not {value}", get(key)));
        }
    }
    Ok(())
}

/// Compares a worker's limits, soft and hard, with those it was started with. One that it came with may be stricter.
fn within(told: &str, limits: Limits) -> Result<(), String> {
    for (name, most) in limits.as_told() {
        let line = told.lines().find_map(|line| line.strip_prefix(name));
        let line = line.ok_or_else(|| format!("{name} is not told"))?;
        for value in line.split_ascii_whitespace().take(2) {
            // What is no number is unlimited.
            if value.parse().is_ok_and(|value: u64| value <= most) {
                continue;
            }
            return Err(format!("{name} is {value} and not {most}"));
        }
    }
    Ok(())
}

fn fields(status: &str) -> HashMap<&str, &str> {
    status
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key, value.trim()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Name:\tpython\nUid:\t65534\t65534\t65534\t65534\nGid:\t65534\t65534\t65534\t65534\nGroups:\t \n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
        CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t9\n";
    const OWN: &str = "Seccomp_filters:\t1\n";
    const EXPECTED: Expected = Expected {
        filters: Some(8),
        user: Some(65534),
        inside: true,
    };

    #[test]
    fn a_confined_worker_is_accepted() {
        assert_eq!(check(GOOD, OWN, EXPECTED), Ok(()));
    }

    #[test]
    fn limits_may_be_stricter_and_not_looser() {
        let limits = Limits {
            memory_bytes: 1 << 28,
            scratch_bytes: 1 << 20,
            max_threads: 8,
            cpu_seconds: 9,
        };
        let told: String = limits
            .as_told()
            .map(|(name, most)| format!("{name}  {most}  {most}  units\n"))
            .concat();
        assert_eq!(within(&told, limits), Ok(()));
        assert_eq!(within(&told.replace("  9  9", "  8  9"), limits), Ok(()));
        for (from, to, fault) in [
            ("  9  9", "  9  10", "Max cpu time is 10 and not 9"),
            (
                "  9  9",
                "  unlimited  9",
                "Max cpu time is unlimited and not 9",
            ),
            ("Max cpu time", "Max time", "Max cpu time is not told"),
        ] {
            assert_eq!(
                within(&told.replace(from, to), limits),
                Err(fault.to_owned())
            );
        }
    }

    #[test]
    fn each_missing_layer_is_named() {
        for (from, to, fault) in [
            (
                "NoNewPrivs:\t1",
                "NoNewPrivs:\t0",
                "NoNewPrivs is 0 and not 1",
            ),
            ("Seccomp:\t2", "Seccomp:\t0", "Seccomp is 0 and not 2"),
            (
                "filters:\t9",
                "filters:\t8",
                "Seccomp_filters is 8 and not 9",
            ),
            ("Groups:\t ", "Groups:\t4 27", "Groups is 4 27 and not "),
            (
                "CapBnd:\t0000000000000000",
                "CapBnd:\t000001ffffffffff",
                "CapBnd is 000001ffffffffff and not 0000000000000000",
            ),
            (
                "Uid:\t65534\t65534\t65534\t65534",
                "Uid:\t65534\t65534\t0\t65534",
                "Uid is 65534\t65534\t0\t65534 and not 65534\t65534\t65534\t65534",
            ),
            ("NoNewPrivs:\t1\n", "", "NoNewPrivs is missing and not 1"),
        ] {
            assert_eq!(
                check(&GOOD.replace(from, to), OWN, EXPECTED),
                Err(fault.to_owned())
            );
        }
    }
}
