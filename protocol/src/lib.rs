//! What the daemon and its clients promise each other on the socket: routes, handshake lines, limits.

pub mod approval;
pub mod detail;
pub mod doctor;
pub mod envelope;
pub mod environment;
pub mod facts;
pub mod paths;
pub mod policy;
pub mod provenance;
pub mod run;
pub mod said;
pub mod skew;
pub mod status;
pub mod text;
mod unsendable;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use self::unsendable::Unsendable;

/// The handshake revision this build speaks; a peer may be one behind.
pub const PROTOCOL: u32 = 1;
/// The oldest handshake revision this build accepts.
pub const PROTOCOL_MIN: u32 = 1;
/// The token of the `Upgrade` header on [`route::MCP`].
pub const UPGRADE_TOKEN: &str = "ptcd-mcp";
/// Longest MCP message line in either direction, in bytes, without its newline.
pub const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Longest handshake line (hello, welcome, vars), in bytes.
pub const MAX_HANDSHAKE_BYTES: usize = 256 * 1024;
/// How long either side waits for the other's next handshake line.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the checks of a ptcd may take: each tier of the machine is tried, one after the other.
pub const DOCTOR_TIMEOUT: Duration = Duration::from_secs(150);
/// Most variable names a daemon may ask a shim for.
pub const MAX_WANTED_VARIABLES: usize = 64;
/// Longest value of one variable, in bytes.
pub const MAX_VARIABLE_BYTES: usize = 32 * 1024;
/// The notification, never for a client, by which the daemon has a shim connect anew once it waits for nothing: the
/// daemon wants to ask for variables that it has not asked this session for.
pub const RENEW_NOTICE: &str = "notifications/ptc/renew";
/// The version string of this build, as both handshakes and `status` show it.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");

/// The HTTP paths on the daemon's socket.
pub mod route {
    /// `GET`: one [`crate::status::Health`].
    pub const HEALTH: &str = "/v1/health";
    /// `GET`: one [`crate::status::Status`].
    pub const STATUS: &str = "/v1/status";
    /// `GET`: counts and figures as Prometheus text, for scrapers that reach the socket.
    pub const METRICS: &str = "/metrics";
    /// `GET`: the callable tools, as [`crate::status::ToolList`].
    pub const TOOLS: &str = "/v1/tools";
    /// `POST`: show, set or remove the pins of the tools whose callable names match the query `name`, all where there is
    /// none; the query `verb` is `show`, `pin`, `anew` or `unpin`; answers [`crate::status::Done`].
    pub const TOOLS_PIN: &str = "/v1/tools/pin";
    /// `GET`: the newest finished runs, at most 1000, as a list of [`crate::run::RunRecord`]; the query may hold
    /// `client`, `failed`, `since_ms`, `limit`.
    pub const RUNS: &str = "/v1/runs";
    /// `GET`: the finished run of the query `id`, as [`crate::detail::RunDetail`]; at most 1 MiB of its output, or with
    /// `whole=true` 12 MiB of JSON.
    pub const RUN: &str = "/v1/run";
    /// `POST`: repeat the run of the query `id` from its record, with the code of the body where there is one;
    /// answers [`crate::detail::Replay`].
    pub const REPLAY: &str = "/v1/replay";
    /// `GET`: what one request of one session did, as [`crate::run::RequestCalls`]; [`calls`] adds the query.
    pub const CALLS: &str = "/v1/calls";
    /// `POST`: read the configuration again; answers [`crate::status::Done`].
    pub const RELOAD: &str = "/v1/reload";
    /// [`RELOAD`] with the query that also has the daemon forget the variables that clients sent.
    pub const RELOAD_ENV: &str = "/v1/reload?env=true";
    /// `GET`: what is known of the tool whose callable name the query `name` holds; [`with`] adds it.
    pub const TOOL: &str = "/v1/tool";
    /// `GET`: the configuration in force with every default, secrets masked, as [`crate::status::ConfigShown`].
    pub const CONFIG: &str = "/v1/config";
    /// `POST`: read the file of the query `path`, else the daemon's own, and take nothing over; answers
    /// [`crate::status::Done`] with its faults.
    pub const CONFIG_CHECK: &str = "/v1/config/check";
    /// `POST`: read the policies of the configuration file anew and take nothing over; judges the call of the body,
    /// a [`crate::policy::TrialCall`], where there is one; answers [`crate::policy::PolicyChecked`].
    pub const POLICY_CHECK: &str = "/v1/policy/check";
    /// `GET`: the calls that wait in the daemon for a person, as [`crate::approval::WaitingList`].
    pub const APPROVALS: &str = "/v1/approvals";
    /// `POST`: answer the call of the query `id` with the query `answer`: `once`, `tool` (every further call of the tool
    /// by the same program, too) or `deny`; answers [`crate::status::Done`].
    pub const APPROVALS_ANSWER: &str = "/v1/approvals/answer";
    /// `POST`: end the connection of the server of the query `name` and make a new one; answers
    /// [`crate::status::Done`].
    pub const SERVER_RESTART: &str = "/v1/servers/restart";
    /// `POST`: connect the server of the query `name` again; answers [`crate::status::Done`].
    pub const SERVER_ENABLE: &str = "/v1/servers/enable";
    /// `POST`: end the server of the query `name` and leave it so until it is enabled or the daemon ends; answers
    /// [`crate::status::Done`].
    pub const SERVER_DISABLE: &str = "/v1/servers/disable";
    /// `POST`: forget which callable names were given to which tools; answers [`crate::status::Done`].
    pub const NAMES_RESET: &str = "/v1/names/reset";
    /// `GET`: what only the daemon can check, that of the server of the query `server` alone where there is one, as
    /// [`crate::doctor::Checks`]. Takes as long as [`crate::DOCTOR_TIMEOUT`].
    pub const DOCTOR: &str = "/v1/doctor";
    /// `POST`: drain and end; answers [`crate::status::Done`] before it does.
    pub const STOP: &str = "/v1/stop";
    /// `POST`: [`STOP`], unless a program runs or waits; answers [`crate::status::Done`], not `ok` where one does.
    /// A path of its own, so that a daemon which does not know it says so and goes on.
    pub const STOP_IDLE: &str = "/v1/stop/idle";
    /// `GET` with `Upgrade: ptcd-mcp`: hello, welcome, vars, then MCP messages, one a line.
    pub const MCP: &str = "/v1/mcp";

    /// [`CALLS`] with its query; `request` is the JSON text of the JSON-RPC id, so that `1` and `"1"` differ.
    pub fn calls(session: crate::SessionId, request: &str) -> String {
        with(
            CALLS,
            &[("session", &session.label()), ("request", request)],
        )
    }

    /// A route with a query of these names and values.
    pub fn with(route: &str, query: &[(&str, &str)]) -> String {
        use std::fmt::Write as _;
        let mut path = route.to_owned();
        for (at, (name, value)) in query.iter().enumerate() {
            path.push(if at == 0 { '?' } else { '&' });
            path.push_str(name);
            path.push('=');
            for byte in value.bytes() {
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    path.push(char::from(byte));
                } else {
                    let _ = write!(path, "%{byte:02X}");
                }
            }
        }
        path
    }
}

/// One shim process's identity towards the daemon: 128 random bits.
///
/// It keys budgets and grants, so it is never shown or logged whole: `Debug`
/// and [`SessionId::label`] give a digest that cannot be turned back.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// Wraps 16 bytes that came from the system's random source.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// 12 hex digits of a digest of the id: the form for logs, records and `status`.
    pub fn label(&self) -> String {
        hex(&Sha256::digest(self.0)[..6])
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({})", self.label())
    }
}

impl Serialize for SessionId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = unhex(&text).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
        bytes
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("a session id is 32 hex digits"))
    }
}

/// The first handshake line, from the shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Oldest and newest handshake revision the shim speaks.
    pub protocol: [u32; 2],
    /// The shim's build, see [`BUILD`].
    pub build: String,
    /// The shim process's session.
    pub session: SessionId,
    /// `--client NAME`: a self-declared label for attribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The shim's working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `CLAUDE_PROJECT_DIR`, where the client set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_dir: Option<String>,
    /// `CLAUDE_CODE_SESSION_ID`, where the client set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_session: Option<String>,
    /// The shim's process id.
    pub pid: u32,
    /// Real path of the configuration file the shim was told to use; `None` is the default file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Whether the shim knows [`RENEW_NOTICE`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renews: bool,
}

/// The second handshake line, from the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Welcome {
    /// The session may go on; the shim answers with [`Vars`].
    Welcome {
        /// The handshake revision both will speak.
        protocol: u32,
        /// The daemon's build.
        build: String,
        /// Names of the variables the daemon's configuration uses and its environment lacks.
        wants: Vec<String>,
    },
    /// The daemon will not serve this shim; the stream ends after this line.
    Refused {
        /// One sentence for the person who reads the shim's messages.
        message: String,
    },
}

/// The third handshake line, from the shim: the wanted variables it has; of one that it has and cannot send, why
/// ([`Unsendable`]).
pub type Vars = BTreeMap<String, String>;

/// Whether a name has the form of an environment variable's identifier.
pub fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Lower-case hex digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or_default();
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_is_never_shown_whole() {
        let id = SessionId::from_random([7; 16]);
        let whole = "07".repeat(16);
        assert!(!format!("{id:?}").contains(&whole));
        assert!(!id.label().contains("0707"));
        assert_eq!(serde_json::to_string(&id).unwrap(), format!("\"{whole}\""));
        let back: SessionId = serde_json::from_str(&format!("\"{whole}\"")).unwrap();
        assert_eq!(back, id);
    }

    #[test]
    fn a_session_id_of_another_form_is_refused() {
        for text in [
            "\"\"",
            "\"07\"",
            "\"zz\"",
            "\"ö7070707070707070707070707070707\"",
            "5",
        ] {
            assert!(serde_json::from_str::<SessionId>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_question_about_calls_names_the_digest_and_keeps_the_ids_type() {
        let id = SessionId::from_random([7; 16]);
        let ask = |request: &str| {
            let path = route::calls(id, request);
            let start = format!("/v1/calls?session={}&request=", id.label());
            path.strip_prefix(&start).unwrap().to_owned()
        };
        assert_eq!(ask("-1"), "-1");
        assert_eq!(ask("\"1\""), "%221%22");
        assert_eq!(ask("\"ä &+#\""), "%22%C3%A4%20%26%2B%23%22");
    }

    #[test]
    fn variable_names_have_the_form_of_an_identifier() {
        assert!(is_variable_name("GITHUB_TOKEN"));
        for bad in ["", "1A", "A B", "A=B", "Ä"] {
            assert!(!is_variable_name(bad), "{bad}");
        }
    }
}
