//! Reads the envelope of one JSON-RPC line: whose message it is, and why a line is none.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// JSON-RPC: the line is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// JSON-RPC: the line is JSON and no request.
pub const INVALID_REQUEST: i32 = -32600;
/// More requests are open, or bytes of them, than one side takes from a client.
pub const BUSY: i32 = -31002;

/// A request's id as canonical JSON text: the string `"1"` and the number `1` differ, and big numbers stay exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id(Box<str>);

impl Id {
    /// Reads JSON text that is a string or a number; anything else is no id.
    pub fn from_json(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.starts_with('"') {
            let value: String = serde_json::from_str(text).ok()?;
            return Some(Self(Value::from(value).to_string().into()));
        }
        let value: &RawValue = serde_json::from_str(text).ok()?;
        text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            .then(|| Self(value.get().into()))
    }

    /// The id as a JSON value.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// A string that cannot be read as characters, kept to be given back as it was written.
    fn as_written(text: &str) -> Option<Self> {
        text.starts_with('"').then(|| Self(text.into()))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What one line says.
#[derive(Debug)]
pub enum Message<'a> {
    /// Someone wants an answer.
    Request {
        /// Its id.
        id: Id,
        /// Where the id's text stands in the line.
        id_at: Range<usize>,
        /// Its method.
        method: Cow<'a, str>,
        /// Its parameters as written.
        params: Option<&'a RawValue>,
    },
    /// Someone tells something.
    Notification {
        /// Its method.
        method: Cow<'a, str>,
        /// Its parameters as written.
        params: Option<&'a RawValue>,
    },
    /// An answer.
    Response {
        /// The request's id; `None` where there is none to be read.
        id: Option<Id>,
        /// Whether it is an error.
        is_error: bool,
    },
}

/// Why a line is no message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not UTF-8.
    #[error("the line is not valid UTF-8")]
    NotUtf8,
    /// Not JSON.
    #[error("the line is not valid JSON: {reason}")]
    NotJson {
        /// The parser's words.
        reason: String,
    },
    /// A JSON array.
    #[error("batches are not supported: send one message a line")]
    Batch,
    /// JSON of another shape.
    #[error("not a JSON-RPC message: {reason}")]
    Shape {
        /// The id to answer with, where there is one.
        id: Option<Id>,
        /// What is wrong.
        reason: String,
    },
}

impl Fault {
    /// A fault of a message's shape.
    pub fn shape(id: Option<Id>, reason: impl Into<String>) -> Self {
        Self::Shape {
            id,
            reason: reason.into(),
        }
    }

    /// The line that tells the sender.
    pub fn answer(&self) -> Vec<u8> {
        let (id, code) = match self {
            Self::NotUtf8 | Self::NotJson { .. } => (None, PARSE_ERROR),
            Self::Batch => (None, INVALID_REQUEST),
            Self::Shape { id, .. } => (id.as_ref(), INVALID_REQUEST),
        };
        error(id, code, &self.to_string(), None)
    }
}

/// A JSON-RPC error as a line, without its newline; the id is null where none is known.
pub fn error(id: Option<&Id>, code: i32, message: &str, data: Option<&Value>) -> Vec<u8> {
    let id = id.map_or("null", |id| &*id.0);
    let message = Value::from(message);
    let data = data.map_or_else(String::new, |data| format!(r#","data":{data}"#));
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#)
        .into_bytes()
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Tells `null` from absence, which `Option` alone would not.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// A line without the blanks around it, and without the mark that some editors write before all text.
pub fn trim(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// Reads a line, without its newline.
///
/// # Errors
/// Why it is no message. What was read of the id goes with it, so that the sender can be told.
pub fn read(line: &[u8]) -> Result<Message<'_>, Fault> {
    let text = std::str::from_utf8(line).map_err(|_| Fault::NotUtf8)?;
    let envelope: Envelope = match serde_json::from_str(text) {
        Ok(envelope) => envelope,
        Err(source) => return Err(fault_of(text, &source)),
    };
    // serde reads a struct from an array too, field by field.
    if text.trim_start().starts_with('[') {
        return Err(Fault::Batch);
    }
    let id = envelope.id.map(|raw| (raw, Id::from_json(raw.get())));
    let known = id.as_ref().and_then(|(_, id)| id.clone());
    if envelope.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
        return Err(Fault::shape(known, "`jsonrpc` must be \"2.0\""));
    }
    let Some(method) = envelope.method else {
        return if envelope.result.is_none() && envelope.error.is_none() {
            Err(Fault::shape(known, "there is no `method`"))
        } else {
            Ok(Message::Response {
                id: known,
                is_error: envelope.error.is_some(),
            })
        };
    };
    let Ok(method) = serde_json::from_str::<Text>(method.get()) else {
        return Err(Fault::shape(known, "`method` must be a string"));
    };
    let (method, params) = (method.0, envelope.params);
    match id {
        None => Ok(Message::Notification { method, params }),
        Some((raw, None)) => {
            let reason = "`id` must be a string of whole characters or a number";
            Err(Fault::shape(Id::as_written(raw.get()), reason))
        }
        Some((raw, Some(id))) => Ok(Message::Request {
            id,
            id_at: place(text, raw.get()),
            method,
            params,
        }),
    }
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Where `part`, a slice of `text`, stands in it.
fn place(text: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    start..start + part.len()
}

fn fault_of(text: &str, source: &serde_json::Error) -> Fault {
    match serde_json::from_str::<&RawValue>(text) {
        Err(syntax) => Fault::NotJson {
            reason: syntax.to_string(),
        },
        Ok(_) if text.trim_start().starts_with('[') => Fault::Batch,
        Ok(_) if !text.trim_start().starts_with('{') => {
            Fault::shape(None, "a message is a JSON object")
        }
        Ok(_) => Fault::shape(None, source.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(line: &str) -> String {
        let answer = read(line.as_bytes()).unwrap_err().answer();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        format!(
            "{} {} {}",
            answer["id"], answer["error"]["code"], answer["error"]["message"]
        )
    }

    #[test]
    fn ids_keep_their_type_and_every_digit() {
        let id = |text| Id::from_json(text).map(|id| id.to_string());
        assert_eq!(id("1").as_deref(), Some("1"));
        assert_eq!(id("\"1\"").as_deref(), Some("\"1\""));
        assert_eq!(id("\"\\u0061\"").as_deref(), Some("\"a\""));
        let big = "12345678901234567890123";
        assert_eq!(id(big).as_deref(), Some(big));
        for text in ["null", "true", "[1]", "{}", "\"\\ud800\"", ""] {
            assert_eq!(id(text), None, "{text}");
        }
    }

    #[test]
    fn an_id_of_half_a_character_is_given_back_as_it_was_written() {
        let line = r#"{"jsonrpc":"2.0","id":"\ud800","method":"ping"}"#;
        let answer = read(line.as_bytes()).unwrap_err().answer();
        let text = String::from_utf8(answer).unwrap();
        assert!(
            text.starts_with(r#"{"jsonrpc":"2.0","id":"\ud800","error""#),
            "{text}"
        );
    }

    #[test]
    fn a_request_tells_where_its_id_stands() {
        let line = br#"{"id" : "a-1", "params":{"id":7},"method":"tools\/list","jsonrpc":"2.0"}"#;
        let Message::Request {
            id, id_at, method, ..
        } = read(line).unwrap()
        else {
            panic!("a request");
        };
        assert_eq!(
            (id.to_string().as_str(), &*method),
            ("\"a-1\"", "tools/list")
        );
        assert_eq!(&line[id_at], br#""a-1""#);
    }

    #[test]
    fn answers_and_notifications_are_told_apart() {
        let kind = |line: &str| match read(line.as_bytes()).unwrap() {
            Message::Request { .. } => "request".to_owned(),
            Message::Notification { method, .. } => method.into_owned(),
            Message::Response { id, is_error } => {
                format!(
                    "{} {is_error}",
                    id.map_or("null".into(), |id| id.to_string())
                )
            }
        };
        assert_eq!(kind(r#"{"jsonrpc":"2.0","method":"a"}"#), "a");
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":1,"result":null}"#), "1 false");
        assert_eq!(
            kind(r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#),
            "null true"
        );
    }

    #[test]
    fn what_is_no_message_is_answered_with_the_reason() {
        assert!(fault("{").starts_with("null -32700 \"the line is not valid JSON: EOF"));
        assert!(fault("nonsense").starts_with("null -32700"));
        assert_eq!(
            read(b"{\"a\":\"\xff\"}").unwrap_err(),
            Fault::NotUtf8,
            "one bad byte"
        );
        for batch in ["[]", " [1,2]", r#"["2.0",1,"ping"]"#] {
            assert_eq!(
                fault(batch),
                "null -32600 \"batches are not supported: send one message a line\""
            );
        }
        for (line, want) in [
            (
                "7",
                "null -32600 \"not a JSON-RPC message: a message is a JSON object\"",
            ),
            (
                r#"{"jsonrpc":"1.0","id":3,"method":"a"}"#,
                "3 -32600 \"not a JSON-RPC message: `jsonrpc` must be \\\"2.0\\\"\"",
            ),
            (
                r#"{"jsonrpc":"2.0","id":3}"#,
                "3 -32600 \"not a JSON-RPC message: there is no `method`\"",
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#,
                "null -32600 \"not a JSON-RPC message: `id` must be a string of whole characters or a number\"",
            ),
            (
                r#"{"jsonrpc":"2.0","id":3,"method":5}"#,
                "3 -32600 \"not a JSON-RPC message: `method` must be a string\"",
            ),
        ] {
            assert_eq!(fault(line), want);
        }
        let twice = fault(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#);
        assert!(twice.contains("duplicate field `id`"), "{twice}");
    }

    #[test]
    fn blanks_and_a_mark_before_the_text_are_no_part_of_it() {
        assert_eq!(trim(b" \t\xef\xbb\xbf{}\r"), b"{}");
        assert_eq!(trim(b"\r"), b"");
    }
}
