//! One finished run as the texts of its resources.

use std::fmt::Write as _;

use ptc_protocol::detail::CallEntry;
use ptc_protocol::facts::RunKind;
use ptc_protocol::provenance::Provenance;
use serde::Serialize;
use serde_json::{Value, json};

use super::render::json_head;
use crate::engine::output::{head, visible};
use crate::journal::StoredRun;

/// Longest text of one resource, in bytes of JSON.
const MAX_TEXT: usize = 12 * 1024 * 1024;
/// Most calls of one run that are listed.
const MAX_CALLS: usize = 2000;
/// Most characters of one call's arguments.
const MAX_ARGUMENTS: usize = 2000;

/// Output or deliverable, then what the host has to say of it; `None` where nothing was kept.
pub(super) fn response(stored: &StoredRun, provenance: &Provenance) -> Option<String> {
    let parts = &stored.parts;
    let result = parts.result.as_deref();
    let mut text = if stored.record.facts.submission.is_some() {
        // A deliverable is a text, kept as JSON.
        let deliverable = result.and_then(|text| serde_json::from_str::<String>(text).ok());
        visible(&deliverable?)
    } else {
        let mut text = visible(parts.output.as_deref()?);
        if let Some(result) = result {
            line(&mut text, &format!("--- result ---\n{result}"));
        }
        if let Some(error) = &stored.record.error {
            line(&mut text, &format!("--- error ---\n{error}"));
        }
        text
    };
    let kept = json_head(&text, MAX_TEXT);
    if kept < text.len() {
        let whole = text.len();
        text = head(&text, kept).to_owned();
        line(
            &mut text,
            &format!("[note: cut at {kept} of {whole} bytes]"),
        );
    }
    let level = provenance.level.as_str();
    let said = provenance.reason.as_ref().or(provenance.caveat.as_ref());
    line(
        &mut text,
        &format!("[{level}: {}]", said.map_or("", String::as_str)),
    );
    if let Some(witness) = &provenance.witness {
        let reproduced = if witness.reproduced {
            "a program of the submission printed it"
        } else {
            "no program of the submission printed it"
        };
        line(
            &mut text,
            &format!(
                "[witness, {}: {}; {reproduced}]",
                witness.form, witness.value
            ),
        );
    }
    Some(text)
}

/// What each program printed; its streams apart where they were kept so, else both in one order.
pub(super) fn program_output(programs: &[StoredRun]) -> String {
    let shown = programs.iter().map(|stored| {
        let stream = |text: &Option<String>| text.as_deref().map(visible).unwrap_or_default();
        json!({
            "run": stored.record.run,
            "ending": stored.record.ending.as_str(),
            "exit_code": exit_code(stored),
            "apart": stored.record.facts.kind != RunKind::Program,
            "stdout": stream(&stored.parts.stdout),
            "stderr": stream(&stored.parts.stderr),
        })
    });
    json(&json!({"runs": shown.collect::<Vec<_>>()}))
}

/// 0 for a program that came to its end, 1 for any other.
fn exit_code(stored: &StoredRun) -> u8 {
    u8::from(stored.record.ending != ptc_protocol::run::Ending::Finished)
}

/// The calls in the order of their ends, without results.
pub(super) fn calls(stored: &StoredRun) -> String {
    let all = &stored.parts.calls;
    let listed: Vec<Value> = all.iter().take(MAX_CALLS).map(call).collect();
    let mut shown = json!({"run": stored.record.run, "calls": listed});
    let omitted = all.len().saturating_sub(MAX_CALLS);
    if let Some(shown) = shown.as_object_mut().filter(|_| omitted > 0) {
        shown.insert("omitted".to_owned(), json!(omitted));
    }
    json(&shown)
}

fn call(entry: &CallEntry) -> Value {
    serde_json::to_value(bare(entry)).unwrap_or_default()
}

/// A call without its result, its arguments bounded.
pub(super) fn bare(entry: &CallEntry) -> CallEntry {
    let arguments = entry.arguments.as_deref();
    CallEntry {
        arguments: arguments.map(|text| text.chars().take(MAX_ARGUMENTS).collect()),
        result: None,
        data: None,
        seal: None,
        ..entry.clone()
    }
}

/// A value as indented JSON.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn line(text: &mut String, part: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(part);
}

/// Milliseconds since the Unix epoch as a date and a time of UTC, to the second.
pub(super) fn utc(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from 1 March of the year 0, so that leap days come last.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 {
        (year + era * 400, month + 3)
    } else {
        (year + era * 400 + 1, month - 9)
    };
    let mut text = String::new();
    let _ = write!(
        text,
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        of_day / 3600,
        of_day % 3600 / 60,
        of_day % 60
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_dates() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_210_096_000, "2024-02-29T12:34:56Z"),
            (1_735_689_600_000, "2025-01-01T00:00:00Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }
}
