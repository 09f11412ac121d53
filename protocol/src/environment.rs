//! The environment that is recorded for a daemon, so that no editor's own decides what servers get.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Longest file of a recorded environment, in bytes.
pub const MAX_ENVIRONMENT_BYTES: u64 = 256 * 1024;

/// Who recorded an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedBy {
    /// `ptcctl env capture`: it stays until it is captured again.
    Capture,
    /// Whoever started the daemon while nothing had been captured: made anew at each start.
    Start,
}

/// `environment.json` in the state folder, of mode 0600.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedEnvironment {
    /// See [`crate::status::SCHEMA`].
    pub schema: u32,
    /// Who recorded it.
    pub by: RecordedBy,
    /// When, milliseconds since the Unix epoch.
    pub recorded_ms: u64,
    /// The login shell that answered; `None` where none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_shell: Option<String>,
    /// The names that were asked for beside `PATH` and what the user database gives.
    #[serde(default)]
    pub names: Vec<String>,
    /// The variables.
    pub variables: BTreeMap<String, String>,
}

/// Whether a variable may be recorded: it has the form of a name, and does not change what code
/// a loader or an interpreter runs.
pub fn may_be_recorded(name: &str) -> bool {
    let never = ["LD_", "DYLD_", "PYTHON"];
    crate::is_variable_name(name)
        && name != "NODE_OPTIONS"
        && !never.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_a_loader_or_an_interpreter_run_other_code_is_never_recorded() {
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "DYLD_INSERT_LIBRARIES",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "NODE_OPTIONS",
            "A=B",
            "",
        ] {
            assert!(!may_be_recorded(name), "{name}");
        }
        for name in ["PATH", "GITHUB_TOKEN", "NODE_EXTRA_CA_CERTS", "OLD_PWD"] {
            assert!(may_be_recorded(name), "{name}");
        }
    }
}
