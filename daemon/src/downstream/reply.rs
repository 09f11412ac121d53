//! Carries a server's exact answer through the MCP session.

use serde_json::{Map, Value};

/// What came for a `tools/call` or `tools/list`.
///
/// The session's own types would round numbers, drop what they do not know and
/// fail as a whole over one odd part. So the transport hands the session one
/// opaque result in any case, and this is what is in it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    /// A result of any shape.
    Result {
        /// The result.
        value: Value,
        /// Size of the message it came in.
        bytes: usize,
    },
    /// A JSON-RPC error.
    Error {
        /// Its code.
        code: i64,
        /// Its message.
        message: String,
        /// What else it says.
        data: Option<Value>,
    },
    /// An answer that cannot be taken, and why.
    Fault(String),
    /// An answer over the cap.
    TooLong,
    /// The way of the answer broke after the request was sent, and how. The connection goes on.
    Lost {
        /// What happened to it.
        how: String,
    },
    /// The request was not taken, so surely nothing was done.
    Turned {
        /// By whom, and why.
        how: String,
        /// What may come of another try.
        turned: Turned,
    },
}

/// What may come of sending a request again that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// A new connection may take it.
    Reconnect,
    /// It may be taken later.
    Later,
    /// This request is not wanted; another may be.
    Unwanted,
    /// Nothing is taken until someone acts.
    Barred,
}

const RESULT: &str = "result";
const BYTES: &str = "bytes";
const CODE: &str = "code";
const MESSAGE: &str = "message";
const DATA: &str = "data";
const FAULT: &str = "fault";
const LOST: &str = "lost";
const RECONNECT: &str = "reconnect";
const LATER: &str = "later";
const UNWANTED: &str = "unwanted";
const BARRED: &str = "barred";

impl Reply {
    pub(super) fn wrap(self) -> Value {
        let mut map = Map::new();
        match self {
            Self::Result { value, bytes } => {
                map.insert(RESULT.to_owned(), value);
                map.insert(BYTES.to_owned(), Value::from(bytes));
            }
            Self::Error {
                code,
                message,
                data,
            } => {
                map.insert(CODE.to_owned(), Value::from(code));
                map.insert(MESSAGE.to_owned(), Value::from(message));
                map.extend(data.map(|data| (DATA.to_owned(), data)));
            }
            Self::Fault(fault) => {
                map.insert(FAULT.to_owned(), Value::from(fault));
            }
            Self::TooLong => {}
            Self::Lost { how } => {
                map.insert(LOST.to_owned(), Value::from(how));
            }
            Self::Turned { how, turned } => {
                map.insert(turned.key().to_owned(), Value::from(how));
            }
        }
        Value::Object(map)
    }

    pub(super) fn unwrap(wrapped: Value) -> Self {
        let Value::Object(mut map) = wrapped else {
            return Self::Fault("it is no answer to this request".to_owned());
        };
        if let Some(value) = map.remove(RESULT) {
            let bytes = map.get(BYTES).and_then(Value::as_u64).unwrap_or_default();
            return Self::Result {
                value,
                bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            };
        }
        if let Some(Value::String(fault)) = map.remove(FAULT) {
            return Self::Fault(fault);
        }
        if let Some(Value::String(how)) = map.remove(LOST) {
            return Self::Lost { how };
        }
        for turned in [
            Turned::Reconnect,
            Turned::Later,
            Turned::Unwanted,
            Turned::Barred,
        ] {
            if let Some(Value::String(how)) = map.remove(turned.key()) {
                return Self::Turned { how, turned };
            }
        }
        match (map.get(CODE).and_then(Value::as_i64), map.remove(MESSAGE)) {
            (Some(code), Some(Value::String(message))) => Self::Error {
                code,
                message,
                data: map.remove(DATA),
            },
            _ => Self::TooLong,
        }
    }
}

impl Turned {
    fn key(self) -> &'static str {
        match self {
            Self::Reconnect => RECONNECT,
            Self::Later => LATER,
            Self::Unwanted => UNWANTED,
            Self::Barred => BARRED,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        for reply in [
            Reply::Result {
                value: json!({"fault": "own", "code": 1}),
                bytes: 12,
            },
            Reply::Result {
                value: Value::Null,
                bytes: 0,
            },
            Reply::Error {
                code: -32000,
                message: "no".into(),
                data: Some(json!({"lost": "own"})),
            },
            Reply::Fault("x".into()),
            Reply::TooLong,
            Reply::Lost { how: "x".into() },
            Reply::Turned {
                how: "x".into(),
                turned: Turned::Barred,
            },
        ] {
            assert_eq!(Reply::unwrap(reply.clone().wrap()), reply);
        }
    }
}
