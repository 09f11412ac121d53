//! What texts and decisions look like in a record.

use std::collections::BTreeSet;

use ptc_protocol::detail::{DecisionEntry, RiskEntry};
use sha2::{Digest as _, Sha256};

use crate::config::mask::Masker;

/// Longest name of a tool that does not exist, in bytes.
pub(super) const MAX_NAME: usize = 200;
/// Most of an error's text that a line keeps, in bytes.
pub(super) const MAX_ERROR: usize = 8 * 1024;

/// A decision; its words may quote arguments, so they are masked, or left out where none are kept.
pub(super) fn decision(
    decision: &DecisionEntry,
    quotes: bool,
    masked: impl Fn(&str) -> String,
) -> DecisionEntry {
    let texts: &[String] = if quotes { &decision.errors } else { &[] };
    DecisionEntry {
        reason: decision.reason.as_deref().filter(|_| quotes).map(&masked),
        risk: decision
            .risk
            .iter()
            .map(|risk| RiskEntry {
                why: risk.why.as_deref().filter(|_| quotes).map(&masked),
                ..risk.clone()
            })
            .collect(),
        errors: texts.iter().map(|text| masked(text)).collect(),
        ..decision.clone()
    }
}

/// A text that was cut, without what may be the beginning of a secret at its end.
pub(super) fn settled<'a>(masker: &Masker, text: &'a str) -> &'a str {
    text.get(..masker.settled(text)).unwrap_or_default()
}

/// SHA-256 of a text, in hex digits.
pub(super) fn sha256(text: &str) -> String {
    ptc_protocol::hex(&Sha256::digest(text.as_bytes()))
}

/// The words of a program that begin as names of tools do.
pub(super) fn words(program: &str) -> BTreeSet<String> {
    program
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("mcp__"))
        .map(str::to_owned)
        .collect()
}
