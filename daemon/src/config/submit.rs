//! The keys of what is run for inspection and for submissions: how often, under which limits.

use std::time::Duration;

use serde_json::{Value, json};

use super::ExecutionConfig;
use super::check::{COUNT, MEMORY};
use super::fault::Fault;
use super::fields::{Section, Words};

pub(super) const SUBMIT_KEYS: [&str; 4] =
    ["witness_required", "profile", "work_calls", "submissions"];
pub(super) const PROFILES_KEYS: [&str; 2] = ["minimal", "heavy_compute"];
pub(super) const PROFILE_KEYS: [&str; 2] = ["timeout_seconds", "memory_bytes"];

const PROFILE: &Words<Profile> = &[
    (&["minimal"], Profile::Minimal),
    (&["standard"], Profile::Standard),
    (&["heavy_compute"], Profile::HeavyCompute),
];

/// The limits by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Little time and memory.
    Minimal,
    /// Those of every program.
    Standard,
    /// Much of both, in workers of its own.
    HeavyCompute,
}

impl Profile {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Standard => "standard",
            Self::HeavyCompute => "heavy_compute",
        }
    }
}

/// What is run for inspection and for submissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitConfig {
    /// Whether a program of a submission must print a WITNESS line.
    pub witness_required: bool,
    /// The limits such programs are under.
    pub profile: Profile,
    /// Calls of `run_python` in one session.
    pub work_calls: u64,
    /// Submissions in one session.
    pub submissions: u64,
}

impl Default for SubmitConfig {
    fn default() -> Self {
        Self {
            witness_required: false,
            profile: Profile::Standard,
            work_calls: 6,
            submissions: 3,
        }
    }
}

/// What a profile sets; everything else is as for other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileLimits {
    /// Wall clock.
    pub timeout: Duration,
    /// Private memory, in bytes.
    pub memory_bytes: u64,
}

/// The profiles beside `standard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profiles {
    /// Little of both.
    pub minimal: ProfileLimits,
    /// Much of both.
    pub heavy_compute: ProfileLimits,
}

impl Default for Profiles {
    fn default() -> Self {
        Self {
            minimal: ProfileLimits {
                timeout: Duration::from_secs(10),
                memory_bytes: 128 * 1024 * 1024,
            },
            heavy_compute: ProfileLimits {
                timeout: Duration::from_mins(10),
                memory_bytes: 2 * 1024 * 1024 * 1024,
            },
        }
    }
}

impl Profiles {
    /// The limits of programs under a profile; `None` for the usual ones.
    pub fn limits(self, profile: Profile, usual: &ExecutionConfig) -> Option<ExecutionConfig> {
        let limits = match profile {
            Profile::Standard => return None,
            Profile::Minimal => self.minimal,
            Profile::HeavyCompute => self.heavy_compute,
        };
        Some(ExecutionConfig {
            timeout: limits.timeout,
            memory_bytes: limits.memory_bytes,
            ..usual.clone()
        })
    }
}

/// The section `submit`.
pub(super) fn submit(
    section: &Section<'_>,
    default: &SubmitConfig,
    faults: &mut Vec<Fault>,
) -> SubmitConfig {
    SubmitConfig {
        witness_required: section.switch("witness_required", default.witness_required, faults),
        profile: section.word("profile", default.profile, PROFILE, faults),
        work_calls: section.whole("work_calls", default.work_calls, COUNT, faults),
        submissions: section.whole("submissions", default.submissions, COUNT, faults),
    }
}

/// The section `profiles`.
pub(super) fn profiles(
    section: &Section<'_>,
    default: Profiles,
    faults: &mut Vec<Fault>,
) -> Profiles {
    let mut one = |key: &'static str, default: ProfileLimits| {
        let opened = section.get(key).and_then(|entry| {
            let name = section.path(key);
            Section::open(&entry.node, name, "profiles.NAME", &PROFILE_KEYS, faults)
        });
        let Some(section) = opened else {
            return default;
        };
        ProfileLimits {
            timeout: section.seconds("timeout_seconds", default.timeout, faults),
            memory_bytes: section.whole("memory_bytes", default.memory_bytes, MEMORY, faults),
        }
    };
    Profiles {
        minimal: one("minimal", default.minimal),
        heavy_compute: one("heavy_compute", default.heavy_compute),
    }
}

/// `submit` as it is shown.
pub(super) fn show_submit(submit: &SubmitConfig) -> Value {
    json!({
        "witness_required": submit.witness_required,
        "profile": submit.profile.as_str(),
        "work_calls": submit.work_calls,
        "submissions": submit.submissions,
    })
}

/// `profiles` as it is shown; `seconds` writes a time.
pub(super) fn show_profiles(profiles: Profiles, seconds: impl Fn(Duration) -> Value) -> Value {
    let one = |limits: ProfileLimits| json!({"timeout_seconds": seconds(limits.timeout), "memory_bytes": limits.memory_bytes});
    json!({"minimal": one(profiles.minimal), "heavy_compute": one(profiles.heavy_compute)})
}
