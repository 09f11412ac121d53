//! What a record tells of a run beside its ending: origin, limits, hashes, checks.

use serde::{Deserialize, Serialize};

/// What a run was for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// A program of `execute_program`.
    #[default]
    Program,
    /// A program of `run_python`: for inspection, no evidence.
    Inspection,
    /// A submission, or one of its programs.
    Submission,
}

impl RunKind {
    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Inspection => "inspection",
            Self::Submission => "submission",
        }
    }
}

/// What was kept of a run's values (`journal.record`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Arguments and results.
    Full,
    /// Arguments, and each result's keyed hash and size.
    Hashes,
    /// Neither, nor program and output.
    Off,
}

impl Kept {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Hashes => "hashes",
            Self::Off => "off",
        }
    }
}

/// Facts of one run; every one may be absent in a record of an older version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// What it was for.
    #[serde(default)]
    pub kind: RunKind,
    /// Folder of the project its client works in, as the client says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The model, as far as the client tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Version of ptcd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptcd: Option<String>,
    /// What ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Version of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// The limits in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// What was kept of its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// SHA-256 of the program as it is kept, which is after masking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_sha256: Option<String>,
    /// SHA-256 of the output as it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_sha256: Option<String>,
    /// SHA-256 of the emitted value's JSON text, or of the deliverable, as it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_sha256: Option<String>,
    /// Steps counted, where `execution.step_budget` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
    /// What a submission came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submission: Option<Submission>,
    /// The submission whose program this is, by its run's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// What policies said of its start, where any is about starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartEntry>,
    /// The last time it was repeated from its record and gave the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
}

/// What policies said of a program's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartEntry {
    /// `allow` or `deny`.
    pub verdict: String,
    /// Ids of the policies that decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Why it was denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What could not be evaluated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Which set of policies: the first digits of its hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
}

/// The limits a run was under; sizes in bytes, times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall clock.
    pub timeout_ms: u64,
    /// Output given back.
    pub max_output_bytes: u64,
    /// Calls.
    pub max_tool_calls: u64,
    /// Calls in flight.
    pub max_concurrent_calls: u64,
    /// One call.
    pub tool_call_timeout_ms: u64,
    /// One result.
    pub max_tool_result_bytes: u64,
    /// Private memory.
    pub memory_bytes: u64,
    /// Files.
    pub scratch_bytes: u64,
    /// Threads.
    pub max_threads: u64,
}

/// Steps of a program, counted inside its own interpreter, where it could stop the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// Steps taken.
    pub used: u64,
    /// The budget.
    pub budget: u64,
    /// Whether the budget ended it.
    pub stopped: bool,
    /// Always true: the count is no boundary.
    pub advisory: bool,
}

/// What the structural checks of a submission gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// Whether all of them passed.
    pub passed: bool,
    /// The checks made, by name.
    pub checks: Vec<String>,
    /// The witness it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<Witness>,
    /// Ids of the runs of its programs.
    #[serde(default)]
    pub runs: Vec<String>,
}

/// What a submission brings for its claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Witness {
    /// computed, certificate, argued or negative.
    pub form: String,
    /// Its value.
    pub value: serde_json::Value,
    /// Whether a program of the submission printed this value after `WITNESS`.
    pub reproduced: bool,
}

/// A run that was repeated from its record and gave the same output, result and calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// When, milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// SHA-256 of the output it gave.
    pub output_sha256: String,
}
