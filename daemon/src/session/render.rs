//! One run's outcome as a client gets it: text for the model, structure for programs.

use std::collections::HashMap;
use std::fmt::Write as _;

use ptc_protocol::run::CallRecord;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use super::Face;
use crate::config::StructuredContent;
use crate::engine::Outcome;
use crate::engine::output::{head, middle_cut, visible_json};

/// Longest text of a failure, in characters.
const MAX_FAILURE: usize = 7900;
/// Longest encoded answer, in bytes: clients read lines of at most 16 MiB.
const MAX_ANSWER: usize = 15 * 1024 * 1024;
/// Output that is kept however large the emitted value is, in bytes of JSON.
const MIN_OUTPUT: usize = 1024 * 1024;
/// Outputs over this many bytes are rendered off the threads that serve others.
const LARGE: usize = 64 * 1024;
const CUT_NOTE: &str = "\n... (output cut further: the answer would pass 15 MiB)";
const LEFT_OUT: &str = "(the emitted value is left out: the answer would pass 15 MiB)";
/// Failures named in the trace.
const TRACED_FAILURES: usize = 5;
/// In place of the error that stands at the head of the answer.
const ABOVE: &str = "the error above";

/// The answer to `execute_program`. May take long where the outcome is large.
pub(super) fn render(mut outcome: Outcome, face: &Face) -> CallToolResult {
    let printed = json_length(&outcome.output) * 2;
    let emitted = outcome.emitted.as_ref().map_or(0, |value| {
        let text = value.to_string();
        text.len() + json_length(&visible_json(&text))
    });
    // Everything else is bounded far below the room left here.
    let room = MAX_ANSWER - 2 * 1024 * 1024;
    if printed + emitted > room {
        let kept = room.saturating_sub(emitted).max(MIN_OUTPUT);
        if printed > kept {
            let at = json_head(&outcome.output, kept / 2);
            outcome.output = format!("{}{CUT_NOTE}", head(&outcome.output, at));
        }
        if emitted > room - MIN_OUTPUT {
            outcome.emitted = Some(Value::from(LEFT_OUT));
        }
    }
    whole(&outcome, face)
}

/// The longest an answer can get for this configuration, in bytes.
pub(super) fn largest(face: &Face) -> usize {
    // Output and emitted value, each as text and as structure; a byte takes six at worst.
    let bulk = face.max_output_bytes.saturating_mul(2 * 2 * 6);
    bulk.saturating_add(512 * 1024).min(MAX_ANSWER)
}

/// Whether making the answer is more than a moment's work.
pub(super) fn is_large(outcome: &Outcome) -> bool {
    outcome.output.len() > LARGE || outcome.emitted.is_some()
}

/// Bytes of a text as JSON, its quotes left out.
fn json_length(text: &str) -> usize {
    text.bytes().map(json_bytes).sum()
}

/// How many bytes of a text take at most `max` bytes of JSON.
pub fn json_head(text: &str, max: usize) -> usize {
    let mut left = max;
    text.bytes()
        .take_while(|byte| match left.checked_sub(json_bytes(*byte)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .count()
}

fn json_bytes(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..=0x1f => 6,
        _ => 1,
    }
}

fn whole(outcome: &Outcome, face: &Face) -> CallToolResult {
    let text = ContentBlock::text(text(outcome, face.trace));
    let mut result = if outcome.ok() {
        CallToolResult::success(vec![text])
    } else {
        CallToolResult::error(vec![text])
    };
    result.structured_content = structured(outcome, face.structured);
    result
}

fn text(outcome: &Outcome, trace: bool) -> String {
    let trace = if trace {
        trace_part(outcome)
    } else {
        String::new()
    };
    let notes = notes_part(outcome);
    let Some(error) = &outcome.error else {
        let mut text = String::from("[Script executed successfully]\n");
        if outcome.output.trim().is_empty() {
            text.push_str("(no output)");
        } else {
            text.push_str(&outcome.output);
        }
        if let Some(value) = &outcome.emitted {
            let value = visible_json(&value.to_string());
            append(&mut text, &format!("--- result ---\n{value}"));
        }
        append(&mut text, &notes);
        append(&mut text, &trace);
        return text;
    };
    let fixed = 200 + trace.chars().count() + notes.chars().count();
    let room = MAX_FAILURE.saturating_sub(fixed);
    let printed = !outcome.output.trim().is_empty();
    let emitted = outcome.emitted.as_ref();
    let emitted = emitted.map(|value| visible_json(&value.to_string()));
    let more = printed || emitted.is_some();
    let error = middle_cut(error, if more { room * 2 / 3 } else { room });
    let mut room = room.saturating_sub(error.chars().count());
    let emitted = emitted.map(|value| middle_cut(&value, if printed { room / 2 } else { room }));
    room = room.saturating_sub(emitted.as_ref().map_or(0, |value| value.chars().count()));
    let mut text = format!("[Script execution failed]\n{error}");
    if printed {
        let output = middle_cut(outcome.output.trim_end(), room);
        append(
            &mut text,
            &format!("\n--- output before the error ---\n{output}"),
        );
    }
    if let Some(value) = emitted {
        append(
            &mut text,
            &format!("\n--- result emitted before the error ---\n{value}"),
        );
    }
    append(&mut text, &notes);
    append(&mut text, &trace);
    text
}

/// Puts a part on a line of its own.
fn append(text: &mut String, part: &str) {
    if !part.is_empty() {
        text.truncate(text.trim_end().len());
        text.push('\n');
        text.push_str(part);
    }
}

fn notes_part(outcome: &Outcome) -> String {
    outcome
        .notes
        .iter()
        .map(|note| format!("[note: {note}]"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn trace_part(outcome: &Outcome) -> String {
    if outcome.total_calls == 0 {
        return String::new();
    }
    let seconds = outcome.duration.as_secs_f64();
    let mut text = format!("[tool calls: {}", outcome.total_calls);
    if outcome.failed_calls > 0 {
        let _ = write!(text, ", {} failed", outcome.failed_calls);
    }
    let _ = write!(text, "; {seconds:.1}s]");
    let failures = failures(outcome);
    let mut told = 0;
    for (line, count) in failures.iter().take(TRACED_FAILURES) {
        told += count;
        let _ = write!(text, "\n  failed: {line}");
        if *count > 1 {
            let _ = write!(text, " (x{count})");
        }
    }
    let more = outcome.failed_calls.saturating_sub(told);
    if more > 0 {
        let _ = write!(text, "\n  ... {more} more failures");
    }
    text
}

/// The failures of a run, equal ones together, in the order of the first of each.
fn failures(outcome: &Outcome) -> Vec<(String, u64)> {
    let mut failures: Vec<(String, u64)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for call in outcome.calls.iter().filter(|call| !call.ok) {
        let line = failure_line(call, outcome.error.as_deref().unwrap_or_default());
        let known = places.get(&line).and_then(|at| failures.get_mut(*at));
        if let Some((_, count)) = known {
            *count += 1;
        } else {
            places.insert(line.clone(), failures.len());
            failures.push((line, 1));
        }
    }
    failures
}

/// One failure in a line; what the program ended with is not said again.
fn failure_line(call: &CallRecord, ended_with: &str) -> String {
    let error = call.error.as_deref().unwrap_or_default();
    let raised = ended_with.strip_prefix("ToolError: ");
    if raised.is_some_and(|raised| !error.is_empty() && raised.starts_with(error)) {
        return format!("{}: {ABOVE}", call.tool);
    }
    // The line names the tool already.
    let error = error
        .strip_prefix(call.tool.as_str())
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(error);
    let line = error.split_whitespace().collect::<Vec<_>>().join(" ");
    format!(
        "{}: {}",
        call.tool,
        middle_cut(&line, 300).replace('\n', " ")
    )
}

fn structured(outcome: &Outcome, form: StructuredContent) -> Option<Value> {
    if form == StructuredContent::Off {
        return None;
    }
    let calls: Vec<Value> = outcome
        .calls
        .iter()
        .map(|call| {
            let mut entry =
                json!({"tool": call.tool, "args": call.args, "ok": call.ok, "ms": call.ms});
            if let (Some(error), Some(entry)) = (&call.error, entry.as_object_mut()) {
                entry.insert("error".to_owned(), json!(error));
            }
            if let (Some(note), Some(entry)) = (&call.note, entry.as_object_mut()) {
                entry.insert("note".to_owned(), json!(note));
            }
            entry
        })
        .collect();
    let mut content = Map::new();
    let mut put = |name: &str, value: Value| content.insert(name.to_owned(), value);
    put("ok", json!(outcome.ok()));
    if form == StructuredContent::Full {
        put("output", json!(outcome.output));
    }
    put("result", outcome.emitted.clone().unwrap_or(Value::Null));
    put("emitted", json!(outcome.emitted.is_some()));
    put("error", json!(outcome.error));
    put("tool_calls", Value::Array(calls));
    if outcome.omitted_calls > 0 {
        put("tool_calls_omitted", json!(outcome.omitted_calls));
    }
    put("run", json!(outcome.run));
    put("ending", json!(outcome.ending.as_str()));
    put(
        "duration_ms",
        json!(u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX)),
    );
    put("limit", json!(outcome.limit));
    put(
        "confinement",
        json!(
            outcome
                .confinement
                .map(ptc_protocol::run::Confinement::as_str)
        ),
    );
    if !outcome.notes.is_empty() {
        put("notes", json!(outcome.notes));
    }
    Some(Value::Object(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptc_protocol::run::{Confinement, Ending, ToolErrorKind};
    use std::time::Duration;

    fn outcome() -> Outcome {
        Outcome {
            run: Some("r1".to_owned()),
            ending: Ending::Finished,
            limit: None,
            output: "hello\n".to_owned(),
            emitted: None,
            error: None,
            calls: Vec::new(),
            omitted_calls: 0,
            total_calls: 0,
            failed_calls: 0,
            duration: Duration::from_millis(2340),
            confinement: Some(Confinement::Landlock),
            notes: Vec::new(),
            streams: crate::engine::streams::Streams::default(),
            steps: None,
        }
    }

    fn failed_call(n: usize) -> CallRecord {
        CallRecord {
            tool: format!("mcp__a__t{n}"),
            args: "{}".to_owned(),
            ok: false,
            ms: 1,
            kind: Some(ToolErrorKind::ToolFailed),
            error: Some("no\nluck".to_owned()),
            note: None,
        }
    }

    #[test]
    fn a_success_is_told_in_the_agreed_form() {
        assert_eq!(
            text(&outcome(), true),
            "[Script executed successfully]\nhello\n"
        );
        let blank = Outcome {
            output: " \n".to_owned(),
            ..outcome()
        };
        assert_eq!(
            text(&blank, true),
            "[Script executed successfully]\n(no output)"
        );
        let emitted = Outcome {
            emitted: Some(json!({"a": 1})),
            total_calls: 12,
            failed_calls: 1,
            calls: vec![failed_call(1)],
            ..outcome()
        };
        assert_eq!(
            text(&emitted, true),
            "[Script executed successfully]\nhello\n--- result ---\n{\"a\":1}\n[tool calls: 12, 1 failed; 2.3s]\n  failed: mcp__a__t1: no luck"
        );
        assert_eq!(
            text(&emitted, false),
            "[Script executed successfully]\nhello\n--- result ---\n{\"a\":1}"
        );
    }

    #[test]
    fn a_failure_is_told_in_the_agreed_form() {
        let failed = Outcome {
            error: Some("ValueError: x".to_owned()),
            ending: Ending::ScriptError,
            ..outcome()
        };
        assert_eq!(
            text(&failed, true),
            "[Script execution failed]\nValueError: x\n\n--- output before the error ---\nhello"
        );
        let calls: Vec<_> = (0..7).map(failed_call).collect();
        let many = Outcome {
            calls,
            total_calls: 7,
            failed_calls: 7,
            output: String::new(),
            ..failed
        };
        let text = text(&many, true);
        assert!(
            text.contains("  failed: mcp__a__t4: no luck\n  ... 2 more failures"),
            "{text}"
        );
        assert!(!text.contains("t5"), "{text}");
    }

    #[test]
    fn equal_failures_stand_in_one_line_and_the_error_at_the_head_is_not_repeated() {
        let same = |n| CallRecord {
            error: Some("mcp__a__t1: out of paper".to_owned()),
            ..failed_call(n)
        };
        let mut calls: Vec<_> = (0..100).map(|_| same(1)).collect();
        calls.extend([failed_call(2), failed_call(2)]);
        let many = Outcome {
            calls,
            total_calls: 104,
            failed_calls: 104,
            ..outcome()
        };
        assert_eq!(
            trace_part(&many),
            "[tool calls: 104, 104 failed; 2.3s]\n  failed: mcp__a__t1: out of paper (x100)\n  \
             failed: mcp__a__t2: no luck (x2)\n  ... 2 more failures"
        );
        let ended = Outcome {
            error: Some("ToolError: mcp__a__t1: out of paper\nTraceback".to_owned()),
            calls: vec![failed_call(2), same(1)],
            total_calls: 2,
            failed_calls: 2,
            ..outcome()
        };
        assert_eq!(
            trace_part(&ended),
            "[tool calls: 2, 2 failed; 2.3s]\n  failed: mcp__a__t2: no luck\n  failed: mcp__a__t1: the error above"
        );
    }

    #[test]
    fn a_value_emitted_before_the_error_is_in_the_text() {
        let failed = Outcome {
            error: Some("ValueError: x".to_owned()),
            ending: Ending::ScriptError,
            emitted: Some(json!({"rows": [1]})),
            ..outcome()
        };
        let emitted = "\n\n--- result emitted before the error ---\n{\"rows\":[1]}";
        assert_eq!(
            text(&failed, true),
            format!(
                "[Script execution failed]\nValueError: x\n\n--- output before the error ---\nhello{emitted}"
            )
        );
        let silent = Outcome {
            output: String::new(),
            ..failed
        };
        assert_eq!(
            text(&silent, true),
            format!("[Script execution failed]\nValueError: x{emitted}")
        );
        let large = Outcome {
            error: Some("e".repeat(50_000)),
            output: "y".repeat(50_000),
            emitted: Some(json!("z".repeat(50_000))),
            ..silent
        };
        let text = text(&large, true);
        assert!(text.chars().count() < 8000, "{}", text.chars().count());
        for part in ["eee", "yyy", "zzz"] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn the_text_of_a_failure_stays_under_8000_characters_and_keeps_its_ends() {
        let failed = Outcome {
            error: Some(format!("first{}last", "x".repeat(50_000))),
            output: format!("begin{}end", "y".repeat(50_000)),
            ..outcome()
        };
        let text = text(&failed, true);
        assert!(text.chars().count() < 8000, "{}", text.chars().count());
        for part in ["first", "last", "begin", "end"] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn an_emitted_value_steers_no_terminal_and_stays_as_it_is_in_the_structure() {
        let value = json!({"a": "\u{9b}2J\u{202e}\u{7f}"});
        let good = Outcome {
            emitted: Some(value.clone()),
            ..outcome()
        };
        let bad = Outcome {
            error: Some("ValueError: x".to_owned()),
            ..Outcome {
                emitted: Some(value.clone()),
                ..outcome()
            }
        };
        for outcome in [good, bad] {
            let text = text(&outcome, true);
            assert!(
                text.ends_with(r#"{"a":"\u009b2J\u202e\u007f"}"#),
                "{}",
                text.escape_debug()
            );
            let content = structured(&outcome, StructuredContent::Full).unwrap();
            assert_eq!(content["result"], value);
        }
    }

    #[test]
    fn an_emitted_null_differs_from_none() {
        let none = structured(&outcome(), StructuredContent::Full).unwrap();
        let null = Outcome {
            emitted: Some(Value::Null),
            ..outcome()
        };
        let null = structured(&null, StructuredContent::Full).unwrap();
        assert_eq!(
            (&none["result"], &none["emitted"]),
            (&Value::Null, &json!(false))
        );
        assert_eq!(
            (&null["result"], &null["emitted"]),
            (&Value::Null, &json!(true))
        );
    }

    #[test]
    fn the_structured_form_has_every_field_and_lean_leaves_the_output_out() {
        let full = structured(&outcome(), StructuredContent::Full).unwrap();
        assert_eq!(
            full,
            json!({"ok": true, "output": "hello\n", "result": null, "emitted": false, "error": null,
                   "tool_calls": [], "run": "r1", "ending": "finished", "duration_ms": 2340,
                   "limit": null, "confinement": "landlock"})
        );
        let lean = structured(&outcome(), StructuredContent::Lean).unwrap();
        assert!(lean.get("output").is_none() && lean.get("ok").is_some());
        assert!(structured(&outcome(), StructuredContent::Off).is_none());
    }

    #[test]
    fn an_output_is_cut_only_as_far_as_it_must_be() {
        let big = Outcome {
            output: "\"".repeat(3_500_000),
            ..outcome()
        };
        let result = render(big, &Face::default());
        let encoded = serde_json::to_vec(&result).unwrap().len();
        assert!((12_000_000..=MAX_ANSWER).contains(&encoded), "{encoded}");
        assert_eq!(json_head("a\"b", 3), 2);
        assert_eq!(json_head("a\"b", 2), 1);
    }

    #[test]
    fn an_answer_stays_under_15_mib() {
        let big = Outcome {
            output: "\\x00".repeat(1_000_000),
            emitted: Some(json!("\u{1}".repeat(4_000_000))),
            ..outcome()
        };
        let result = render(big, &Face::default());
        let encoded = serde_json::to_vec(&result).unwrap();
        assert!(encoded.len() <= MAX_ANSWER, "{}", encoded.len());
    }
}
