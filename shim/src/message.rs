//! Reads the envelope of one JSON-RPC line, so that it can be forwarded as it is.

use std::borrow::Cow;

use ptc_protocol::envelope;
pub use ptc_protocol::envelope::{BUSY, Fault, INVALID_REQUEST, Id, Message, read};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Deepest nesting a line from the client may have; the daemon's parser gives up at 128.
const MAX_DEPTH: usize = 120;

/// The revision that needs no handshake.
pub const MODERN: &str = "2026-07-28";

/// JSON-RPC: the parameters do not fit.
pub const INVALID_PARAMS: i32 = -32602;
/// MCP: the revision a request names is not served.
pub const UNSUPPORTED_VERSION: i32 = -32022;
/// The request was given up because the client's input ended.
pub const CANCELLED: i32 = -31000;
/// The daemon is not there, or went away during the request.
pub const UNAVAILABLE: i32 = -31001;

/// Refuses a line that is nested so deeply that the daemon's parser would drop it without an answer.
pub fn check_depth(line: &[u8]) -> Result<(), Fault> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in line {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            let id = match read(line) {
                Ok(Message::Request { id, .. }) => Some(id),
                Ok(_) | Err(_) => None,
            };
            let reason = format!("it is nested more than {MAX_DEPTH} levels deep");
            return Err(Fault::shape(id, reason));
        }
    }
    Ok(())
}

/// The `requestId` of a `notifications/cancelled`.
pub fn cancelled_id(params: Option<&RawValue>) -> Option<Id> {
    member(params, &["requestId"])
}

/// The id of the `subscriptions/listen` that a notification belongs to.
pub fn subscription_id(params: Option<&RawValue>) -> Option<Id> {
    member(params, &["_meta", "io.modelcontextprotocol/subscriptionId"])
}

/// The `protocolVersion` an `initialize` asks for.
pub fn asked_version(params: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(at(params?, &["protocolVersion"])?).ok()
}

/// Whether a request says in full that it is of the revision without a handshake.
pub fn is_modern(params: Option<&RawValue>) -> bool {
    let key = "io.modelcontextprotocol/clientCapabilities";
    let capabilities = params.and_then(|params| at(params, &["_meta", key]));
    capabilities.is_some_and(|text| text.starts_with('{'))
        && named_revision(params).as_deref() == Some(MODERN)
}

/// The revision a request says it is of.
pub fn named_revision(params: Option<&RawValue>) -> Option<String> {
    let key = "io.modelcontextprotocol/protocolVersion";
    serde_json::from_str(at(params?, &["_meta", key])?).ok()
}

fn member(params: Option<&RawValue>, path: &[&str]) -> Option<Id> {
    Id::from_json(at(params?, path)?)
}

/// The JSON text at `path`, read level by level so that siblings are not built.
fn at<'a>(value: &'a RawValue, path: &[&str]) -> Option<&'a str> {
    let mut text = value.get();
    for key in path {
        let members: std::collections::BTreeMap<Cow<'a, str>, &'a RawValue> =
            serde_json::from_str(text).ok()?;
        text = members.get(*key)?.get();
    }
    Some(text)
}

/// A JSON-RPC error as a line.
pub fn error(id: Option<&Id>, code: i32, message: &str) -> Vec<u8> {
    envelope::error(id, code, message, None)
}

/// The JSON-RPC error for a revision that is not served, as a line.
pub fn unsupported_revision(id: &Id, named: &str) -> Vec<u8> {
    let message = format!("unsupported protocol version: ptcd speaks {MODERN}");
    let data = json!({ "supported": [MODERN], "requested": named });
    envelope::error(Some(id), UNSUPPORTED_VERSION, &message, Some(&data))
}

/// A JSON-RPC result as a line.
pub fn result(id: &Id, result: &Value) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
}

/// The result of a tool call that failed, as a line; `modern` says in which form.
pub fn tool_failure(id: &Id, text: &str, modern: bool) -> Vec<u8> {
    let content = json!([{ "type": "text", "text": text }]);
    let mut answer = json!({ "content": content, "isError": true });
    if modern {
        answer["resultType"] = "complete".into();
    }
    result(id, &answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modern_request_says_so_in_full() {
        let modern =
            |params: &str| is_modern(Some(&RawValue::from_string(params.to_owned()).unwrap()));
        let whole = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#;
        assert!(modern(whole));
        for params in [
            "{}".to_owned(),
            "[]".to_owned(),
            whole.replace("2026-07-28", "2031-01-01"),
            whole.replace("{}", "[]"),
            whole.replace("/clientCapabilities", "/clientInfo"),
        ] {
            assert!(!modern(&params), "{params}");
        }
        assert!(!is_modern(None));
    }

    #[test]
    fn nesting_counts_outside_strings_only() {
        let deep = |n: usize| {
            format!(
                r#"{{"jsonrpc":"2.0","id":4,"method":"a","params":{}{}}}"#,
                "[".repeat(n),
                "]".repeat(n)
            )
        };
        assert_eq!(check_depth(deep(119).as_bytes()), Ok(()));
        assert!(matches!(
            check_depth(deep(120).as_bytes()),
            Err(Fault::Shape { id: Some(_), .. })
        ));
        let text = format!(r#"{{"a":"\"{}"}}"#, "[".repeat(500));
        assert_eq!(check_depth(text.as_bytes()), Ok(()));
    }
}
