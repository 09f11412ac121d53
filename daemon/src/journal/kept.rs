//! What texts and decisions look like in a record.

use std::collections::BTreeSet;

use ptc_protocol::detail::{CallEntry, DecisionEntry, RiskEntry};
use ptc_protocol::run::ToolErrorKind;
use sha2::{Digest as _, Sha256};

use super::run_file::Part;
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

/// What of a recorded call is not as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The result that is kept.
    Result,
    /// Anything else that a replay goes by.
    Call,
}

/// The line of a call that is over, with its seal.
pub(super) fn call(masker: &Masker, mut entry: CallEntry) -> Part {
    entry.seal = Some(seal(masker, &entry));
    Part::Call(Box::new(entry))
}

/// The line of a call whose end the program did not live to see.
pub(super) fn unended(masker: &Masker, entry: CallEntry, now_ms: u64) -> Part {
    let cancelled = CallEntry {
        ended_ms: now_ms,
        kind: Some(ToolErrorKind::Cancelled),
        ..entry
    };
    call(masker, cancelled)
}

/// What of a call is not as it was recorded; `None` where nothing is.
pub(super) fn changed(masker: &Masker, entry: &CallEntry) -> Option<Changed> {
    let hash = entry.kept_hash.as_ref().or(entry.result_hash.as_ref());
    let result = entry.result.as_deref();
    if result.is_some_and(|text| hash != Some(&result_hash(masker, text))) {
        return Some(Changed::Result);
    }
    (entry.seal.as_ref() != Some(&seal(masker, entry))).then_some(Changed::Call)
}

/// The keyed hash of a result.
pub(super) fn result_hash(masker: &Masker, result: &str) -> String {
    masker.keyed_hash("result", result.as_bytes())
}

/// The keyed hash of a result as it is kept, where that is not as it came.
pub(super) fn other_hash(masker: &Masker, kept: &str, came: &str) -> Option<String> {
    (kept != came).then(|| result_hash(masker, kept))
}

/// The keyed hash of what a replay goes by in a call. It has each value by its place, so that records keep theirs when
/// calls get other members.
fn seal(masker: &Masker, entry: &CallEntry) -> String {
    let values = (
        entry.call,
        &entry.tool,
        &entry.server,
        &entry.arguments,
        entry.was_sent(),
        entry.ok,
        entry.kind.map(ToolErrorKind::as_str),
        &entry.error,
        entry.retryable,
        &entry.data,
        &entry.result_hash,
        &entry.kept_hash,
    );
    let text = serde_json::to_vec(&values).unwrap_or_default();
    masker.keyed_hash("call", &text)
}
