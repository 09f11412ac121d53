//! The rules of the house that a reader of the sources can check, each with a proof that it bites.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod arrows;
mod documents;
mod rooms;
mod shape;
mod source;

use std::fmt;

/// One place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Fails with every finding, one a line.
#[track_caller]
fn none_of(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}\n", lines.join("\n"));
}
