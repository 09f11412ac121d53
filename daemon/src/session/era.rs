//! Decides by a connection's opener which revisions of the protocol hold on it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The revision without a handshake that is served.
pub(super) const MODERN: &str = "2026-07-28";

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

pub(super) const INVALID_PARAMS: i32 = -32602;
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
pub(super) const UNSUPPORTED_VERSION: i32 = -32022;

/// Methods that the revision without a handshake has no more.
const REMOVED: &[&str] = &[
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
];

/// What a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Era {
    /// Nothing has decided it yet.
    #[default]
    Open,
    /// The revisions with `initialize`, up to 2025-11-25.
    Legacy,
    /// Requests that carry their revision.
    Modern,
}

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: i32,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl Refusal {
    pub(super) fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }
}

impl Era {
    /// The era after a request was taken, or why it is not taken.
    ///
    /// `initialize` and the first served request that names a revision decide;
    /// `ping` and `server/discover` decide nothing, since clients of both kinds probe with them.
    pub(super) fn admit(
        self,
        method: &str,
        params: &BTreeMap<Cow<'_, str>, &RawValue>,
    ) -> Result<Self, Refusal> {
        let meta = Meta::of(params);
        match (self, method) {
            (Self::Open | Self::Legacy, "server/discover") => meta.check().map(|()| self),
            (Self::Open, "initialize") | (Self::Legacy, _) => Ok(Self::Legacy),
            (Self::Open, "ping") if meta.version.is_none() => Ok(Self::Open),
            // A request of this revision: it knows no such method.
            (Self::Modern, "initialize") if meta.version.as_deref() == Some(MODERN) => {
                Err(removed(method))
            }
            (Self::Modern, "initialize") => {
                let asked = text(params.get("protocolVersion"));
                Err(unsupported(asked.as_deref()))
            }
            (Self::Modern, _) if REMOVED.contains(&method) => Err(removed(method)),
            (Self::Open | Self::Modern, _) => {
                meta.check()?;
                if REMOVED.contains(&method) {
                    return Err(removed(method));
                }
                Ok(Self::Modern)
            }
        }
    }
}

/// What a request says of itself.
#[derive(Debug)]
struct Meta {
    version: Option<String>,
    capabilities: bool,
}

impl Meta {
    fn of(params: &BTreeMap<Cow<'_, str>, &RawValue>) -> Self {
        let members: BTreeMap<Cow<'_, str>, &RawValue> = params
            .get("_meta")
            .and_then(|meta| serde_json::from_str(meta.get()).ok())
            .unwrap_or_default();
        Self {
            version: text(members.get(VERSION_KEY)),
            capabilities: members
                .get(CAPABILITIES_KEY)
                .is_some_and(|value| value.get().starts_with('{')),
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        let mut missing = Vec::new();
        if self.version.is_none() {
            missing.push(VERSION_KEY);
        }
        let version = self.version.as_deref();
        if version.is_some_and(|version| version != MODERN) {
            return Err(unsupported(version));
        }
        if !self.capabilities {
            missing.push(CAPABILITIES_KEY);
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(
            INVALID_PARAMS,
            format!(
                "params._meta: found no usable {}; begin with initialize, or send it with each request",
                missing.join(" and no ")
            ),
        ))
    }
}

fn text(value: Option<&&RawValue>) -> Option<String> {
    serde_json::from_str(value?.get()).ok()
}

fn unsupported(requested: Option<&str>) -> Refusal {
    Refusal {
        code: UNSUPPORTED_VERSION,
        message: format!("unsupported protocol version: this connection speaks {MODERN}"),
        data: Some(json!({"supported": [MODERN], "requested": requested})),
    }
}

fn removed(method: &str) -> Refusal {
    Refusal::new(
        METHOD_NOT_FOUND,
        format!("method not found: {method} (revision {MODERN} has it no more)"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#;

    fn admit(era: Era, method: &str, params: &str) -> Result<Era, (i32, Option<Value>)> {
        let params = serde_json::from_str(params).unwrap();
        era.admit(method, &params)
            .map_err(|refusal| (refusal.code, refusal.data))
    }

    #[test]
    fn the_opener_decides_and_probes_do_not() {
        for (era, method, params, after) in [
            (Era::Open, "ping", "{}", Era::Open),
            (Era::Open, "server/discover", META, Era::Open),
            (Era::Open, "initialize", "{}", Era::Legacy),
            (Era::Open, "initialize", META, Era::Legacy),
            (Era::Open, "tools/list", META, Era::Modern),
            (Era::Open, "no/such", META, Era::Modern),
            (Era::Legacy, "tools/list", "{}", Era::Legacy),
            (Era::Legacy, "tools/list", META, Era::Legacy),
            (Era::Legacy, "ping", "{}", Era::Legacy),
            (Era::Legacy, "initialize", "{}", Era::Legacy),
            (Era::Legacy, "server/discover", META, Era::Legacy),
            (Era::Modern, "server/discover", META, Era::Modern),
            (Era::Modern, "tools/call", META, Era::Modern),
        ] {
            assert_eq!(
                admit(era, method, params),
                Ok(after),
                "{era:?} {method} {params}"
            );
        }
    }

    #[test]
    fn a_request_that_does_not_say_enough_is_refused() {
        let version = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        let odd = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":20260728,"io.modelcontextprotocol/clientCapabilities":[]}}"#;
        for era in [Era::Open, Era::Modern] {
            for params in ["{}", version, odd, r#"{"_meta":7}"#] {
                for method in ["tools/list", "server/discover"] {
                    let refused = admit(era, method, params).unwrap_err();
                    assert_eq!(refused, (INVALID_PARAMS, None), "{era:?} {method} {params}");
                }
            }
        }
    }

    #[test]
    fn other_revisions_are_refused_with_the_one_that_is_served() {
        for version in ["2025-11-25", "2031-01-01", ""] {
            let params = META.replace(MODERN, version);
            for era in [Era::Open, Era::Modern] {
                let (code, data) = admit(era, "tools/list", &params).unwrap_err();
                assert_eq!(code, UNSUPPORTED_VERSION);
                assert_eq!(
                    data,
                    Some(json!({"supported": ["2026-07-28"], "requested": version}))
                );
            }
        }
        let (code, data) = admit(
            Era::Modern,
            "initialize",
            r#"{"protocolVersion":"2025-06-18"}"#,
        )
        .unwrap_err();
        assert_eq!(code, UNSUPPORTED_VERSION);
        assert_eq!(data.unwrap()["requested"], "2025-06-18");
    }

    #[test]
    fn what_the_revision_has_no_more_is_not_found() {
        let (code, _) = admit(Era::Modern, "initialize", META).unwrap_err();
        assert_eq!(code, METHOD_NOT_FOUND);
        for method in REMOVED {
            assert_eq!(
                admit(Era::Modern, method, "{}").unwrap_err().0,
                METHOD_NOT_FOUND
            );
            assert_eq!(
                admit(Era::Open, method, META).unwrap_err().0,
                METHOD_NOT_FOUND
            );
        }
    }
}
