//! Answers what a server asks of us.

use std::path::Path;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, ProtocolVersion, RootsCapabilities,
};
use serde_json::{Value, json};
use url::Url;

/// The revision that is offered; see [`accepted_version`] for those that are taken.
pub(super) const OFFERED_VERSION: ProtocolVersion = ProtocolVersion::V_2025_11_25;
/// The revisions with a handshake, all of which this client speaks.
pub(super) const ACCEPTED_VERSIONS: [&str; 4] =
    ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The revision without a handshake that this client speaks.
pub(super) const MODERN_VERSION: &str = "2026-07-28";

/// Introduces the daemon to a server. No capability but that for the roots of a project is declared, so
/// most servers may ask for nothing but `ping`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handler {
    /// Whether the server may ask for the roots of its project. They never change under a connection.
    pub(super) roots: bool,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("ptcd", ptc_protocol::BUILD);
        let mut capabilities = ClientCapabilities::default();
        if self.roots {
            capabilities.roots = Some(RootsCapabilities::default());
        }
        ClientConfig::new(capabilities, own).with_protocol_version(OFFERED_VERSION)
    }
}

/// The answer to a request of a server: a result, or a JSON-RPC error's code and message.
///
/// It is given by the transport itself, at once and before the handshake too,
/// so that a flood of requests or of odd ids never reaches the session.
/// Questions to a client will be handed on from here.
pub(super) fn answer(method: &str, project: Option<&Path>) -> Result<Value, (i64, &'static str)> {
    match (method, project) {
        ("roots/list", Some(project)) => Ok(roots(project)),
        ("ping", _) => Ok(json!({})),
        ("elicitation/create", _) => Ok(json!({"action": "decline"})),
        _ => Err((-32601, "this client does not offer that method")),
    }
}

/// The one root of a project, or none where its path cannot be written as a URI.
fn roots(project: &Path) -> Value {
    let name = project
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let root = Url::from_file_path(project)
        .ok()
        .map(|uri| json!({"uri": uri.as_str(), "name": name}));
    json!({"roots": root.into_iter().collect::<Vec<_>>()})
}

/// Whether a server that answers `initialize` with this revision can be used.
///
/// # Errors
/// The message for the operator, both sides' revisions named.
pub(super) fn accepted_version(version: &str) -> Result<(), String> {
    if ACCEPTED_VERSIONS.contains(&version) {
        return Ok(());
    }
    Err(format!(
        "it speaks MCP revision {version:?}; this version of ptcd speaks {} to {}",
        ACCEPTED_VERSIONS.first().unwrap_or(&""),
        ACCEPTED_VERSIONS.last().unwrap_or(&""),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_answered_elicitations_declined_and_the_rest_is_not_offered() {
        assert_eq!(answer("ping", None), Ok(json!({})));
        assert_eq!(
            answer("elicitation/create", None),
            Ok(json!({"action": "decline"}))
        );
        for method in ["sampling/createMessage", "roots/list", "x"] {
            assert_eq!(answer(method, None).unwrap_err().0, -32601);
        }
    }

    #[test]
    fn the_root_of_a_project_is_a_file_uri_with_its_name() {
        let project = Path::new("/home/x/my caf\u{e9} #1");
        let root =
            json!({"uri": "file:///home/x/my%20caf%C3%A9%20%231", "name": "my caf\u{e9} #1"});
        assert_eq!(
            answer("roots/list", Some(project)),
            Ok(json!({"roots": [root]}))
        );
        assert!(answer("sampling/createMessage", Some(project)).is_err());
    }

    #[test]
    fn every_revision_with_a_handshake_is_taken_and_others_name_both_sides() {
        assert_eq!(accepted_version("2024-11-05"), Ok(()));
        assert_eq!(accepted_version(OFFERED_VERSION.as_str()), Ok(()));
        for version in ["1999-01-01", "2026-07-28", ""] {
            let text = accepted_version(version).unwrap_err();
            assert!(
                text.contains(version) && text.contains("2025-11-25"),
                "{text}"
            );
        }
    }
}
