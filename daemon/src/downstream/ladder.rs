//! Decides which protocol era is tried with a server, and in what order.

use std::time::Duration;

use super::connection::HandshakeError;
use crate::config::{Era, Transport};

/// Longest time for the first of two tries over HTTP, where a server may be
/// deaf to what it does not know.
const FIRST_TRY: Duration = Duration::from_secs(10);

/// Which kind of handshake, and so which rules, a connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    /// `initialize`, and a session.
    Legacy,
    /// `server/discover`, and everything in each request.
    Modern,
}

impl Spoken {
    /// The request that opens such a connection.
    pub(super) fn opener(self) -> &'static str {
        match self {
            Self::Legacy => "initialize",
            Self::Modern => "server/discover",
        }
    }
}

/// The tries that are left for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ladder {
    pub(super) now: Spoken,
    next: Option<Spoken>,
    /// Whether the first try is one that worked before.
    proven: bool,
    http: bool,
}

impl Ladder {
    /// `known` is what this server has spoken before.
    ///
    /// A process is asked with `initialize` first: of the servers that exist,
    /// some end at anything else and some offer more in that era. An HTTP
    /// endpoint is asked for the newer era first, which costs one request.
    pub(super) fn new(configured: Era, transport: &Transport, known: Option<Spoken>) -> Self {
        let http = matches!(transport, Transport::Http { .. });
        let (now, next) = match (configured, transport) {
            (Era::Legacy, _) | (_, Transport::Sse { .. }) => (Spoken::Legacy, None),
            (Era::Modern, _) => (Spoken::Modern, None),
            (Era::Auto, _) => {
                let first = known.unwrap_or(if http { Spoken::Modern } else { Spoken::Legacy });
                (first, Some(other(first)))
            }
        };
        Self {
            now,
            next,
            proven: known.is_some(),
            http,
        }
    }

    /// How long this try may take.
    pub(super) fn limit(self, whole: Duration) -> Duration {
        if self.http && self.next.is_some() && !self.proven {
            whole.min(FIRST_TRY)
        } else {
            whole
        }
    }

    /// What is left after a try that failed, if another may do better.
    pub(super) fn after(self, error: &HandshakeError) -> Option<Self> {
        let next = self.next?;
        let better = match error {
            HandshakeError::Version { other_era, .. }
            | HandshakeError::Turned { other_era, .. } => *other_era,
            HandshakeError::Refused { code, .. } => {
                !(is_modern(*code) && self.now == Spoken::Modern)
            }
            // What worked before and only ends or errs now is ill, not of another era.
            HandshakeError::Ended { .. } => !self.proven && !self.http,
            HandshakeError::Timeout { .. } | HandshakeError::Fault { .. } => {
                !self.proven && self.http && self.now == Spoken::Modern
            }
        };
        better.then_some(Self {
            now: next,
            next: None,
            ..self
        })
    }
}

/// The remedy where the configuration pins an era that the server says it does not speak.
pub(super) fn pinned_wrongly(configured: Era, error: &HandshakeError) -> Option<&'static str> {
    let lacking = match error {
        HandshakeError::Version { other_era, .. } => *other_era,
        HandshakeError::Refused { code, .. } => is_about_the_request(*code),
        HandshakeError::Turned { .. }
        | HandshakeError::Ended { .. }
        | HandshakeError::Timeout { .. }
        | HandshakeError::Fault { .. } => false,
    };
    match configured {
        Era::Modern if lacking => {
            Some("`protocol: modern` asks it for MCP 2026-07-28 only; write `protocol: auto`")
        }
        Era::Legacy if lacking => Some(
            "`protocol: legacy` asks it for MCP 2025-11-25 and older only; write `protocol: auto`",
        ),
        Era::Auto | Era::Legacy | Era::Modern => None,
    }
}

/// Whether an error says that such a request is never taken. What is wrong
/// inside the server (-32603) may pass; -32000 to -32019 mean many things, and
/// as the answer to an opener that the request came without a session.
fn is_about_the_request(code: i64) -> bool {
    code == -32022 || (-32602..=-32600).contains(&code) || (-32019..=-32000).contains(&code)
}

fn other(spoken: Spoken) -> Spoken {
    match spoken {
        Spoken::Legacy => Spoken::Modern,
        Spoken::Modern => Spoken::Legacy,
    }
}

/// Whether only a server of the newer era gives this error.
fn is_modern(code: i64) -> bool {
    (-32022..=-32020).contains(&code)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn http() -> Transport {
        Transport::Http {
            url: String::new(),
            headers: BTreeMap::new(),
        }
    }

    fn stdio() -> Transport {
        Transport::Stdio {
            command: String::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            base: "/".into(),
        }
    }

    fn refused(code: i64) -> HandshakeError {
        HandshakeError::Refused {
            opener: "x",
            code,
            message: String::new(),
        }
    }

    fn ended() -> HandshakeError {
        HandshakeError::Ended {
            opener: "x",
            how: String::new(),
        }
    }

    fn next(ladder: Ladder, error: &HandshakeError) -> Option<Spoken> {
        ladder.after(error).map(|left| left.now)
    }

    #[test]
    fn a_process_is_greeted_first_and_an_endpoint_is_asked_first() {
        let process = Ladder::new(Era::Auto, &stdio(), None);
        assert_eq!(process.now, Spoken::Legacy);
        for error in [refused(-32022), refused(-32601), ended()] {
            assert_eq!(next(process, &error), Some(Spoken::Modern));
        }
        let endpoint = Ladder::new(Era::Auto, &http(), None);
        assert_eq!(endpoint.now, Spoken::Modern);
        assert_eq!(next(endpoint, &refused(-32601)), Some(Spoken::Legacy));
        for code in [-32020, -32021, -32022] {
            assert_eq!(next(endpoint, &refused(code)), None, "{code}");
        }
        let left = endpoint.after(&refused(-32601)).unwrap();
        assert_eq!(next(left, &refused(-32601)), None, "there are two eras");
    }

    #[test]
    fn what_is_configured_is_not_departed_from() {
        let modern = Ladder::new(Era::Modern, &stdio(), Some(Spoken::Legacy));
        assert_eq!((modern.now, next(modern, &ended())), (Spoken::Modern, None));
        let legacy = Ladder::new(Era::Legacy, &http(), None);
        assert_eq!(
            (legacy.now, next(legacy, &refused(-32022))),
            (Spoken::Legacy, None)
        );
    }

    #[test]
    fn a_pinned_era_that_is_not_spoken_is_named_with_its_remedy() {
        for code in [-32601, -32602, -32600, -32022, -32000] {
            let modern = pinned_wrongly(Era::Modern, &refused(code)).unwrap();
            assert!(modern.starts_with("`protocol: modern`"), "{modern}");
            let legacy = pinned_wrongly(Era::Legacy, &refused(code)).unwrap();
            assert!(legacy.starts_with("`protocol: legacy`"), "{legacy}");
            assert_eq!(pinned_wrongly(Era::Auto, &refused(code)), None);
        }
        assert_eq!(pinned_wrongly(Era::Modern, &refused(-32603)), None);
        assert_eq!(pinned_wrongly(Era::Modern, &refused(-32021)), None);
        assert_eq!(pinned_wrongly(Era::Legacy, &ended()), None);
        let speaks = |other_era| HandshakeError::Version {
            why: String::new(),
            other_era,
        };
        assert!(pinned_wrongly(Era::Modern, &speaks(true)).is_some());
        assert_eq!(pinned_wrongly(Era::Modern, &speaks(false)), None);
    }

    #[test]
    fn what_worked_before_comes_first_and_only_a_refusal_changes_it() {
        let known = Ladder::new(Era::Auto, &stdio(), Some(Spoken::Modern));
        assert_eq!(known.now, Spoken::Modern);
        assert_eq!(next(known, &ended()), None);
        assert_eq!(next(known, &refused(-32601)), Some(Spoken::Legacy));
        let whole = Duration::from_secs(30);
        let fresh = Ladder::new(Era::Auto, &http(), None);
        assert_eq!(fresh.limit(whole), FIRST_TRY);
        assert_eq!(
            Ladder::new(Era::Auto, &http(), Some(Spoken::Legacy)).limit(whole),
            whole
        );
    }
}
