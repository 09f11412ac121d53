//! What `ptcctl doctor` finds, one check after the other.

use serde::{Deserialize, Serialize};

/// How one check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is as it should be.
    Ok,
    /// It works, and somebody should know this.
    Note,
    /// It does not work, or is not safe.
    Failed,
}

impl Verdict {
    /// The name used in JSON and shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Failed => "failed",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at, such as `python` or `server github`.
    pub name: String,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found.
    pub fact: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Check {
    /// Something that is as it should be.
    pub fn ok(name: impl Into<String>, fact: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, fact, None)
    }

    /// Something that works and is worth knowing.
    pub fn note(name: impl Into<String>, fact: impl Into<String>, fix: Option<String>) -> Self {
        Self::new(name, Verdict::Note, fact, fix)
    }

    /// Something that does not work, and what to do.
    pub fn failed(
        name: impl Into<String>,
        fact: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(name, Verdict::Failed, fact, Some(fix.into()))
    }

    fn new(
        name: impl Into<String>,
        verdict: Verdict,
        fact: impl Into<String>,
        fix: Option<String>,
    ) -> Self {
        Self {
            name: name.into(),
            verdict,
            fact: fact.into(),
            fix,
        }
    }
}

/// What [`crate::route::DOCTOR`] answers and `ptcd doctor` prints: the checks that only ptcd can make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// See [`crate::status::SCHEMA`].
    pub schema: u32,
    /// The build of the ptcd that made them.
    pub build: String,
    /// The handshake revision it speaks.
    pub protocol: u32,
    /// In the order in which they are to be read.
    pub checks: Vec<Check>,
}
