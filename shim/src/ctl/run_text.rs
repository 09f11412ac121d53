//! Takes the answer of one run apart: what the program gave, and what is said about it.

use serde_json::{Map, Value};

use super::visible;

/// The first lines of an answer's text.
const WORKED: &str = "[Script executed successfully]";
const FAILED: &str = "[Script execution failed]";
/// What stands before the parts of an answer's text that follow the output, or the error.
const OUTPUT: &str = "\n--- output before the error ---\n";
const RESULT: &str = "\n--- result ---\n";
const NOTE: &str = "\n[note: ";
const CALLS: &str = "\n[tool calls: ";
/// What the text says where nothing was printed.
const SILENT: &str = "(no output)";

/// One run's answer in parts, each empty where there is none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// What the program printed, and a line with what it emitted.
    pub(super) output: String,
    /// One line.
    pub(super) status: String,
    /// Why it failed.
    pub(super) error: String,
    /// Notes, and the trace of its calls.
    pub(super) remarks: String,
}

impl Parts {
    /// Of an answer with its text; its structure is used as far as it has any. Nothing in it steers a terminal.
    pub(super) fn of(text: &str, structured: Option<&Map<String, Value>>) -> Self {
        let parts = Self::as_sent(text, structured);
        Self {
            output: visible::text(&parts.output),
            status: visible::text(&parts.status),
            error: visible::text(&parts.error),
            remarks: visible::text(&parts.remarks),
        }
    }

    fn as_sent(text: &str, structured: Option<&Map<String, Value>>) -> Self {
        let Some(structured) = structured else {
            return Self::of_text(text);
        };
        let get = |name: &str| structured.get(name);
        let printed = get("output").and_then(Value::as_str).unwrap_or_default();
        let behind = text.strip_prefix(WORKED).and_then(|rest| {
            let rest = rest.strip_prefix('\n')?;
            rest.strip_prefix(printed.trim_end())
        });
        let mut parts = match behind {
            Some(rest) if !printed.trim().is_empty() => Self::of_text(&format!("{WORKED}{rest}")),
            _ => Self::of_text(text),
        };
        // The text cuts long errors, and cannot tell output from what looks like its own parts.
        if let Some(output) = get("output").and_then(Value::as_str) {
            output.clone_into(&mut parts.output);
            if get("emitted") == Some(&Value::Bool(true)) {
                let result = get("result").unwrap_or(&Value::Null);
                line(&mut parts.output, &visible::json(&result.to_string()));
            }
        }
        if let Some(error) = get("error").and_then(Value::as_str) {
            error.clone_into(&mut parts.error);
        }
        parts
    }

    fn of_text(text: &str) -> Self {
        let mut parts = Self::default();
        let Some(rest) = text.strip_prefix(WORKED) else {
            // An answer that is no run's, such as a refusal, is an error as a whole.
            let rest = text.strip_prefix(FAILED).unwrap_or(text);
            FAILED.clone_into(&mut parts.status);
            let (rest, remarks) = split_last(rest, CALLS);
            let (rest, notes) = split_first_of_tail(rest, NOTE);
            format!("{notes}{remarks}")
                .trim()
                .clone_into(&mut parts.remarks);
            let (error, output) = rest.split_once(OUTPUT).unwrap_or((rest, ""));
            error.trim().clone_into(&mut parts.error);
            output.clone_into(&mut parts.output);
            return parts;
        };
        WORKED.clone_into(&mut parts.status);
        let (rest, remarks) = split_last(rest, CALLS);
        let (rest, notes) = split_first_of_tail(rest, NOTE);
        format!("{notes}{remarks}")
            .trim()
            .clone_into(&mut parts.remarks);
        let (output, result) = split_last(rest, RESULT);
        let output = output.strip_prefix('\n').unwrap_or(output);
        if output.trim() != SILENT {
            output.clone_into(&mut parts.output);
        }
        if let Some(result) = result.strip_prefix(RESULT) {
            line(&mut parts.output, result);
        }
        parts
    }

    /// What stderr is told: everything, or only why it failed.
    pub(super) fn about(&self, error_only: bool) -> String {
        let all = if error_only {
            [&self.error, "", ""]
        } else {
            [self.status.as_str(), &self.error, &self.remarks]
        };
        let parts: Vec<&str> = all.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("\n")
    }
}

/// Puts a text on a line of its own.
fn line(text: &mut String, more: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(more);
}

/// What stands before the last `mark`, and the mark with what follows it.
fn split_last<'t>(text: &'t str, mark: &str) -> (&'t str, &'t str) {
    text.rfind(mark).map_or((text, ""), |at| text.split_at(at))
}

/// The same at the first of the marks that all lines from it on begin with.
fn split_first_of_tail<'t>(text: &'t str, mark: &str) -> (&'t str, &'t str) {
    let mut at = text.len();
    while let Some(before) = text.get(..at).and_then(|head| head.rfind('\n')) {
        if !text
            .get(before..at)
            .is_some_and(|line| line.starts_with(mark))
        {
            break;
        }
        at = before;
    }
    text.split_at(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parts(output: &str, status: &str, error: &str, remarks: &str) -> Parts {
        Parts {
            output: output.to_owned(),
            status: status.to_owned(),
            error: error.to_owned(),
            remarks: remarks.to_owned(),
        }
    }

    #[test]
    fn the_text_of_a_success_is_taken_apart() {
        let text = "[Script executed successfully]\na\nb\n--- result ---\n{\"n\":7}\n[note: x]\n[note: y]\n[tool calls: 2, 1 failed; 0.1s]\n  failed: mcp__a__b: no";
        let remarks =
            "[note: x]\n[note: y]\n[tool calls: 2, 1 failed; 0.1s]\n  failed: mcp__a__b: no";
        let want = parts("a\nb\n{\"n\":7}", WORKED, "", remarks);
        assert_eq!(Parts::of(text, None), want);
        assert_eq!(want.about(false), format!("{WORKED}\n{remarks}"));
        assert_eq!(want.about(true), "");
        let silent = "[Script executed successfully]\n(no output)";
        assert_eq!(Parts::of(silent, None), parts("", WORKED, "", ""));
    }

    #[test]
    fn the_text_of_a_failure_is_taken_apart() {
        let text = "[Script execution failed]\nValueError: x\n  line 2\n\n--- output before the error ---\nbefore\n[tool calls: 1; 0.1s]";
        let remarks = "[tool calls: 1; 0.1s]";
        let want = parts("before", FAILED, "ValueError: x\n  line 2", remarks);
        assert_eq!(Parts::of(text, None), want);
        let about = format!("{FAILED}\nValueError: x\n  line 2\n{remarks}");
        assert_eq!(want.about(false), about);
        assert_eq!(want.about(true), "ValueError: x\n  line 2");
        assert_eq!(
            Parts::of("no such tool", None),
            parts("", FAILED, "no such tool", "")
        );
    }

    #[test]
    fn nothing_in_the_parts_steers_a_terminal_and_json_stays_json() {
        let structured = json!({
            "output": "a\u{9b}2J\n", "emitted": true, "result": {"k": "\u{9b}\u{202e}"}, "error": "E\u{200f}",
        });
        let text = "[Script execution failed]\nE\n[note: \u{1b}c]";
        let parts = Parts::of(text, structured.as_object());
        let want = self::parts(
            "a\\x9b2J\n{\"k\":\"\\u009b\\u202e\"}",
            FAILED,
            "E\\u200f",
            "[note: \\x1bc]",
        );
        assert_eq!(parts, want);
    }

    #[test]
    fn the_structure_counts_where_output_looks_like_another_part() {
        let text = "[Script executed successfully]\n\n[tool calls: 9\n--- result ---\nnull";
        let structured = json!({
            "output": "\n[tool calls: 9\n", "emitted": true, "result": null, "error": null,
        });
        let parts = Parts::of(text, structured.as_object());
        let want = self::parts("\n[tool calls: 9\nnull", WORKED, "", "");
        assert_eq!(parts, want);
        let lean = json!({ "emitted": false, "result": null, "error": "E: whole" });
        let failed = Parts::of("[Script execution failed]\nE: cut", lean.as_object());
        assert_eq!(
            (failed.error.as_str(), failed.output.as_str()),
            ("E: whole", "")
        );
    }
}
