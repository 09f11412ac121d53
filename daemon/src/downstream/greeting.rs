//! Reads a server's answers to `initialize` and `server/discover`.

use rmcp::model::{DiscoverResult, ErrorCode, ErrorData, InitializeResult, ServerResult};
use serde_json::{Map, Value, json};

use super::handler::{self, MODERN_VERSION};
use super::link::Link;
use super::reply::{Reply, Turned};

/// JSON-RPC: the revision is not spoken.
pub(super) const UNSUPPORTED_VERSION: i64 = -32022;

/// Why a handshake came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No revision is spoken by both sides; the text names those of both.
    Version {
        text: String,
        /// Whether it speaks a revision of the other era.
        other_era: bool,
        /// Whether it lists the very revision that it refused.
        again: bool,
    },
    /// A JSON-RPC error.
    Error { code: i64, message: String },
    /// An answer that cannot be taken.
    Fault(String),
    /// An HTTP status in place of an answer.
    Turned { how: String, turned: Turned },
}

impl Refusal {
    /// What the session is told. It asks once more after a refusal of a
    /// revision that is in the server's own list; all else ends its handshake.
    pub(super) fn for_session(&self) -> ErrorData {
        match self {
            Self::Version { again: true, .. } => ErrorData::new(
                ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
                "refused",
                Some(json!({"supported": [MODERN_VERSION]})),
            ),
            _ => ErrorData::new(ErrorCode::INVALID_REQUEST, "refused", None),
        }
    }
}

/// What of an `initialize` answer is needed; odd or missing parts beside it do no harm.
pub(super) fn initialize(reply: Reply, link: &Link) -> Result<ServerResult, Refusal> {
    let value = result(reply)?;
    let Some(version) = value.get("protocolVersion").and_then(Value::as_str) else {
        return Err(Refusal::Fault("it names no protocol version".to_owned()));
    };
    handler::accepted_version(version).map_err(|text| Refusal::Version {
        text,
        other_era: version == MODERN_VERSION,
        again: false,
    })?;
    let info = value.get("serverInfo");
    let plain = json!({
        "protocolVersion": version,
        "capabilities": capabilities(&value),
        "serverInfo": {
            "name": text(info.and_then(|info| info.get("name"))),
            "version": text(info.and_then(|info| info.get("version"))),
        },
    });
    let result: InitializeResult =
        serde_json::from_value(plain).map_err(|error| Refusal::Fault(error.to_string()))?;
    link.agreed(version, announces_changes(&value));
    Ok(ServerResult::InitializeResult(result))
}

/// What of a `server/discover` answer is needed.
pub(super) fn discover(reply: Reply, link: &Link) -> Result<ServerResult, Refusal> {
    let value = match reply {
        Reply::Error {
            code: UNSUPPORTED_VERSION,
            data,
            ..
        } => {
            return Err(no_common(
                data.as_ref().and_then(|data| data.get("supported")),
            ));
        }
        reply => result(reply)?,
    };
    let supported = value.get("supportedVersions");
    let Some(Value::Array(versions)) = supported else {
        return Err(Refusal::Fault("it lists no supported versions".to_owned()));
    };
    if !versions.iter().any(|version| version == MODERN_VERSION) {
        return Err(no_common(supported));
    }
    let plain = json!({
        "resultType": "complete",
        "supportedVersions": [MODERN_VERSION],
        "capabilities": capabilities(&value),
        "ttlMs": 0,
        "cacheScope": "private",
    });
    let result: DiscoverResult =
        serde_json::from_value(plain).map_err(|error| Refusal::Fault(error.to_string()))?;
    link.agreed(MODERN_VERSION, announces_changes(&value));
    Ok(ServerResult::DiscoverResult(result))
}

fn result(reply: Reply) -> Result<Value, Refusal> {
    Err(match reply {
        Reply::Result { value, .. } => return Ok(value),
        Reply::Error { code, message, .. } => Refusal::Error { code, message },
        Reply::Fault(fault) => Refusal::Fault(fault),
        Reply::TooLong => Refusal::Fault("it is too long".to_owned()),
        Reply::Lost { how } => Refusal::Fault(how),
        Reply::Turned { how, turned } => Refusal::Turned { how, turned },
    })
}

fn no_common(supported: Option<&Value>) -> Refusal {
    let versions: Vec<&str> = supported
        .and_then(Value::as_array)
        .map(|versions| versions.iter().filter_map(Value::as_str).take(16).collect())
        .unwrap_or_default();
    Refusal::Version {
        text: format!(
            "it speaks MCP revisions {versions:?}; this version of ptcd speaks {}, and with a handshake {}",
            MODERN_VERSION,
            handler::ACCEPTED_VERSIONS.join(", ")
        ),
        other_era: versions
            .iter()
            .any(|version| handler::accepted_version(version).is_ok()),
        again: versions.contains(&MODERN_VERSION),
    }
}

fn capabilities(value: &Value) -> Map<String, Value> {
    let mut capabilities = Map::new();
    if value.pointer("/capabilities/tools").is_some() {
        capabilities.insert("tools".to_owned(), json!({}));
    }
    capabilities
}

fn announces_changes(value: &Value) -> bool {
    value.pointer("/capabilities/tools/listChanged") == Some(&Value::Bool(true))
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or("").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downstream::link::Agreed;

    fn of(value: Value) -> Reply {
        Reply::Result { value, bytes: 0 }
    }

    #[test]
    fn a_bare_answer_is_enough_and_what_is_odd_beside_it_does_no_harm() {
        let link = Link::default();
        let answer = json!({
            "protocolVersion": "2024-11-05", "serverInfo": "x",
            "capabilities": {"tools": {"listChanged": true}, "logging": 7}, "extra": [],
        });
        assert!(initialize(of(answer), &link).is_ok());
        let agreed = Agreed {
            version: "2024-11-05".into(),
            announces_changes: true,
        };
        assert_eq!(link.agreement(), Some(&agreed));
        let link = Link::default();
        let answer = json!({"supportedVersions": ["1", 2, "2026-07-28"], "capabilities": null});
        assert!(discover(of(answer), &link).is_ok());
        let agreed = Agreed {
            version: "2026-07-28".into(),
            announces_changes: false,
        };
        assert_eq!(link.agreement(), Some(&agreed));
    }

    #[test]
    fn revisions_that_do_not_meet_say_whether_the_other_era_may() {
        let version = |result: Result<ServerResult, Refusal>| match result {
            Err(Refusal::Version {
                text, other_era, ..
            }) => (text, other_era),
            other => panic!("{other:?}"),
        };
        let link = Link::default();
        let (text, other) = version(initialize(
            of(json!({"protocolVersion": "2026-07-28"})),
            &link,
        ));
        assert!(other && text.contains("2025-11-25"), "{text}");
        let (_, other) = version(initialize(of(json!({"protocolVersion": "1999"})), &link));
        assert!(!other);
        for (listed, expected) in [
            (json!(["2025-06-18", "x"]), true),
            (json!(["2031-01-01"]), false),
        ] {
            let (text, other) = version(discover(of(json!({"supportedVersions": listed})), &link));
            assert_eq!(other, expected);
            assert!(text.contains("2026-07-28"), "{text}");
            let refused = Reply::Error {
                code: UNSUPPORTED_VERSION,
                message: "no".into(),
                data: Some(json!({"supported": listed})),
            };
            assert_eq!(version(discover(refused, &link)).1, expected);
        }
        assert_eq!(link.agreement(), None);
    }

    #[test]
    fn an_answer_without_a_revision_is_none() {
        let link = Link::default();
        for odd in [json!({}), json!(7), json!({"protocolVersion": 7})] {
            assert!(matches!(
                initialize(of(odd.clone()), &link),
                Err(Refusal::Fault(_))
            ));
            assert!(matches!(discover(of(odd), &link), Err(Refusal::Fault(_))));
        }
    }
}
