//! Says what one line of a server's stdout, or another message of it, is.

use serde_json::{Map, Value};

use super::id_scan::{IdScan, parse_id};
use super::json::{self, Duplicates};
use super::result::{kind_of, middle_cut};

/// How much of an unreadable line goes into a message, in characters.
const MAX_SHOWN_CHARS: usize = 120;
/// How much of an error's data goes into a message, in characters.
const MAX_DATA_CHARS: usize = 1000;

/// What is said of an answer that is nested too deeply.
pub(super) const TOO_DEEP: &str = "it is nested deeper than 127 levels";

/// One line, understood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Incoming {
    /// Nothing.
    Blank,
    /// An answer to a request of ours.
    Answer {
        /// The id it carries.
        id: i64,
        /// What it says.
        outcome: Outcome,
    },
    /// A question to us; the id goes back as it came.
    Request {
        /// Its id: a string or a number.
        id: Value,
        /// Its method.
        method: String,
    },
    /// News.
    Notification {
        /// Its method.
        method: String,
        /// What it says.
        params: Option<Value>,
    },
    /// No JSON-RPC.
    Junk {
        /// Its beginning.
        shown: String,
    },
}

/// What an answer says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// A result of any shape, exact; its structured content is still text
    /// (see [`json::read_message`]).
    Result(Value),
    /// A JSON-RPC error.
    Error {
        /// Its code.
        code: i64,
        /// Its message.
        message: String,
        /// What else it says.
        data: Option<Value>,
    },
    /// A result with null in place of what is nested too deeply to be read.
    TooDeep {
        /// The rest of it.
        shallow: Value,
    },
    /// It cannot be taken, and why.
    Fault(String),
}

/// Reads one line.
pub(crate) fn read(line: &[u8]) -> Incoming {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let line = line.trim_ascii();
    if line.is_empty() {
        return Incoming::Blank;
    }
    let text = match std::str::from_utf8(line) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            let byte = line.get(at).copied().unwrap_or_default();
            return unreadable(
                line,
                format!("it is not valid UTF-8: byte {at} is 0x{byte:02X}"),
            );
        }
    };
    match json::read_message(text) {
        Ok(Value::Object(message)) => message_of(message, line),
        Ok(Value::Array(batch)) => batch_of(&batch, line),
        Ok(_) => junk(line),
        Err(error) if error.to_string().starts_with("recursion limit") => too_deep(text, line),
        Err(error) => unreadable(line, format!("it is not valid JSON: {error}")),
    }
}

/// The JSON-RPC error in a text, whatever id it carries.
pub(super) fn error_in(text: &[u8]) -> Option<Outcome> {
    let text = std::str::from_utf8(text).ok()?;
    let Ok(Value::Object(mut message)) = json::read(text, Duplicates::LastWins) else {
        return None;
    };
    match outcome(&mut message) {
        error @ Outcome::Error { .. } => Some(error),
        _ => None,
    }
}

/// A message that is nested too deeply to be read as it is.
fn too_deep(text: &str, line: &[u8]) -> Incoming {
    let fault = || unreadable(line, TOO_DEEP.to_owned());
    let Ok(Value::Object(message)) = json::read_message(&json::shallow(text)) else {
        return fault();
    };
    match message_of(message, line) {
        Incoming::Answer {
            id,
            outcome: Outcome::Result(shallow),
        } => Incoming::Answer {
            id,
            outcome: Outcome::TooDeep { shallow },
        },
        _ => fault(),
    }
}

/// Batches belong to one old revision, which is never agreed on with a server. The first call in one fails, so that it
/// does not wait for ever.
fn batch_of(batch: &[Value], line: &[u8]) -> Incoming {
    let answers = batch.iter().filter_map(|message| {
        let answer = message.get("result").is_some() || message.get("error").is_some();
        answer.then(|| message.get("id").and_then(own_id)).flatten()
    });
    match answers.into_iter().next() {
        Some(id) => Incoming::Answer {
            id,
            outcome: Outcome::Fault("it came in a batch of answers".to_owned()),
        },
        None => junk(line),
    }
}

fn message_of(mut message: Map<String, Value>, line: &[u8]) -> Incoming {
    let id = message.remove("id").filter(|id| !id.is_null());
    let answers = message.contains_key("result") || message.contains_key("error");
    match (message.remove("method"), id) {
        (Some(_), Some(id)) if answers => match own_id(&id) {
            Some(id) => Incoming::Answer {
                id,
                outcome: Outcome::Fault("it is a request and an answer both".to_owned()),
            },
            None => junk(line),
        },
        (Some(Value::String(method)), None) => Incoming::Notification {
            method,
            params: message.remove("params"),
        },
        (Some(Value::String(method)), Some(id)) if id.is_string() || id.is_number() => {
            Incoming::Request { id, method }
        }
        (None, Some(id)) => match own_id(&id) {
            Some(id) => Incoming::Answer {
                id,
                outcome: outcome(&mut message),
            },
            None => junk(line),
        },
        _ => junk(line),
    }
}

fn own_id(id: &Value) -> Option<i64> {
    match id {
        Value::Number(number) => parse_id(number.as_str()),
        Value::String(text) => parse_id(text),
        _ => None,
    }
}

fn outcome(message: &mut Map<String, Value>) -> Outcome {
    // JSON-RPC 1.0 wrote the member that does not apply as null.
    let error = message.remove("error").filter(|error| !error.is_null());
    let Some(result) = message.remove("result") else {
        return match error {
            Some(error) => error_outcome(error),
            None => Outcome::Fault("it has neither a result nor an error".to_owned()),
        };
    };
    match error {
        None => Outcome::Result(result),
        Some(error) if result.is_null() => error_outcome(error),
        Some(_) => Outcome::Fault("it has a result and an error both".to_owned()),
    }
}

fn error_outcome(error: Value) -> Outcome {
    let Value::Object(mut error) = error else {
        return Outcome::Fault(format!("its error is {}, not an object", kind_of(&error)));
    };
    let code = match error.remove("code") {
        Some(Value::Number(code)) => parse_id(code.as_str()),
        _ => None,
    };
    let data = error.remove("data").filter(|data| !data.is_null());
    match (code, error.remove("message")) {
        (Some(code), Some(Value::String(message))) => Outcome::Error {
            code,
            message: match &data {
                None => message,
                // Where a server says which argument it does not like, it often says so here.
                Some(data) => {
                    let data = middle_cut(&data.to_string(), MAX_DATA_CHARS);
                    format!("{message} (its data: {data})")
                }
            },
            data,
        },
        (None, message) => Outcome::Fault(format!(
            "its error has no numeric code; its message is {}",
            message.map_or_else(
                || "missing".to_owned(),
                |message| shown(message.to_string().as_bytes())
            )
        )),
        (Some(code), _) => Outcome::Fault(format!("its error {code} has no message text")),
    }
}

fn unreadable(line: &[u8], fault: String) -> Incoming {
    let mut scan = IdScan::default();
    scan.feed(line);
    match scan.answer_id() {
        Some(id) => Incoming::Answer {
            id,
            outcome: Outcome::Fault(fault),
        },
        None => junk(line),
    }
}

fn junk(line: &[u8]) -> Incoming {
    Incoming::Junk { shown: shown(line) }
}

/// The beginning of some bytes as one line of harmless text.
pub(super) fn shown(bytes: &[u8]) -> String {
    let head = bytes.get(..MAX_SHOWN_CHARS * 4).unwrap_or(bytes);
    let text: String = String::from_utf8_lossy(head)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_SHOWN_CHARS)
        .collect();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn outcome_of(line: &str) -> Outcome {
        match read(line.as_bytes()) {
            Incoming::Answer { id: 5, outcome } => outcome,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_single_answer_fails_its_call() {
        for (line, part) in [
            (r#"[{"id":5,"result":{}},{"id":6,"result":{}}]"#, "batch"),
            (r#"[1,{"id":5,"error":{"code":1,"message":"m"}}]"#, "batch"),
            (
                r#"{"id":5,"method":"ping","result":{}}"#,
                "a request and an answer both",
            ),
            (
                r#"{"id":5,"method":1,"error":{}}"#,
                "a request and an answer both",
            ),
        ] {
            match outcome_of(line) {
                Outcome::Fault(fault) => assert!(fault.contains(part), "{fault}"),
                other => panic!("{other:?}"),
            }
        }
        for line in [r#"[{"id":5,"method":"ping"}]"#, "[]", r#"[{"result":{}}]"#] {
            assert!(
                matches!(read(line.as_bytes()), Incoming::Junk { .. }),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_nested_too_deeply_is_told_from_what_is_no_json() {
        let line = format!(
            r#"{{"id":5,"result":{{"a":1,"b":{}{}}}}}"#,
            "[".repeat(200),
            "]".repeat(200)
        );
        let Outcome::TooDeep { shallow } = outcome_of(&line) else {
            panic!("taken");
        };
        assert_eq!(shallow["a"], 1);
        let line = format!(r#"{{"id":5,"result":{{"b":{}}}}}"#, "[".repeat(200));
        assert!(matches!(outcome_of(&line), Outcome::Fault(_)));
    }

    #[test]
    fn answers_requests_and_notifications_are_told_apart() {
        assert_eq!(
            outcome_of(r#"{"jsonrpc":"2.0","id":5,"result":{"n":1}}"#),
            Outcome::Result(json!({"n": 1}))
        );
        assert_eq!(
            outcome_of(r#"{"id":"5","error":{"code":-32000,"message":"no"},"result":null}"#),
            Outcome::Error {
                code: -32000,
                message: "no".into(),
                data: None,
            }
        );
        assert_eq!(
            outcome_of(r#"{"id":5,"error":{"code":-32602,"message":"no","data":{"field":"q"}}}"#),
            Outcome::Error {
                code: -32602,
                message: r#"no (its data: {"field":"q"})"#.into(),
                data: Some(serde_json::json!({"field": "q"})),
            }
        );
        assert_eq!(
            read(br#"{"id":"q","method":"ping"}"#),
            Incoming::Request {
                id: json!("q"),
                method: "ping".into()
            }
        );
        assert_eq!(
            read(br#"{"method":"notifications/progress","params":7}"#),
            Incoming::Notification {
                method: "notifications/progress".into(),
                params: Some(json!(7)),
            }
        );
    }

    #[test]
    fn a_byte_order_mark_and_blanks_are_passed_over() {
        assert_eq!(read(b"\xef\xbb\xbf \r"), Incoming::Blank);
        assert_eq!(
            read(b"\xef\xbb\xbf{\"id\":5,\"result\":null}\r"),
            Incoming::Answer {
                id: 5,
                outcome: Outcome::Result(Value::Null)
            }
        );
    }

    #[test]
    fn both_members_or_neither_or_an_odd_error_is_no_answer() {
        for (line, part) in [
            (r#"{"id":5}"#, "neither"),
            (
                r#"{"id":5,"result":{},"error":{"code":1,"message":"x"}}"#,
                "both",
            ),
            (
                r#"{"id":5,"error":{"code":"E_STR","message":null}}"#,
                "no numeric code",
            ),
            (
                r#"{"id":5,"error":{"code":3,"message":null}}"#,
                "error 3 has no message",
            ),
            (r#"{"id":5,"error":"no"}"#, "a string, not an object"),
        ] {
            match outcome_of(line) {
                Outcome::Fault(fault) => assert!(fault.contains(part), "{fault}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_unreadable_answer_keeps_its_id_and_names_the_fault() {
        for (line, part) in [
            (&br#"{"id":5,"result":{"x":NaN}}"#[..], "not valid JSON"),
            (
                b"{\"id\":5,\"result\":\"caf\xe9\"}",
                "not valid UTF-8: byte 21 is 0xE9",
            ),
            (br#"{"id":5,"result":"\ud800"},"#, "not valid JSON"),
            (br#"{"result":[1,2"#, ""),
        ] {
            match read(line) {
                Incoming::Answer {
                    id: 5,
                    outcome: Outcome::Fault(fault),
                } => assert!(fault.contains(part), "{fault}"),
                Incoming::Junk { .. } => assert_eq!(part, ""),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn half_a_surrogate_pair_costs_one_character_and_not_the_answer() {
        for (escapes, text) in [
            (r"a\ud83dz", "a\u{fffd}z"),
            (r"\udfff", "\u{fffd}"),
            (r"\ud83d\ud83d\ude00\ude00", "\u{fffd}\u{1f600}\u{fffd}"),
            (r"\\ud800 \\\ud800\n", "\\ud800 \\\u{fffd}\n"),
            (r"\uD83D\\", "\u{fffd}\\"),
            (r"\ud83d\u0041é", "\u{fffd}Aé"),
        ] {
            let line = format!(r#"{{"id":5,"result":{{"{escapes}":["{escapes}"]}}}}"#);
            assert_eq!(
                outcome_of(&line),
                Outcome::Result(json!({text: [text]})),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_no_message_is_junk_that_can_be_shown() {
        for line in [
            &b"Server v0.1 \x1b[31mrunning\x07"[..],
            b"[]",
            b"42",
            b"{}",
            br#"{"id":{},"result":1}"#,
            br#"{"id":[1],"method":"x"}"#,
            b"\xff\xfe caf\xe9",
        ] {
            match read(line) {
                Incoming::Junk { shown } => assert!(!shown.chars().any(char::is_control)),
                other => panic!("{other:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn halves_are_replaced_and_nothing_else(parts in prop::collection::vec(prop::sample::select(vec![
            "a", "€", "\\\\", "\\\"", "\\n", "\\u0041", "\\ud83d\\ude00", "\\uD83D", "\\ude00", "ud800", "😀",
        ]), 0..12)) {
            let text = format!("\"{}\"", parts.concat());
            let units: Vec<u16> = parts.iter().flat_map(|part| match *part {
                "\\\\" => vec![0x5c],
                "\\\"" => vec![0x22],
                "\\n" => vec![0xa],
                "\\u0041" => vec![0x41],
                "\\ud83d\\ude00" => vec![0xd83d, 0xde00],
                "\\uD83D" => vec![0xd83d],
                "\\ude00" => vec![0xde00],
                plain => plain.encode_utf16().collect(),
            }).collect();
            let line = format!(r#"{{"id":5,"result":{text}}}"#);
            prop_assert_eq!(outcome_of(&line), Outcome::Result(json!(String::from_utf16_lossy(&units))));
        }

        #[test]
        fn no_line_is_too_strange(line in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(&line);
        }
    }
}
