//! The lines the shim itself says to the client.

use ptc_protocol::BUILD;
use ptc_protocol::run::{RequestCalls, SentCall};
use ptc_protocol::said::{DEFAULT_TOOLS, Said};
use serde_json::{Value, json};

use crate::message::{self, Id};

/// The handshake versions the daemon answers with themselves.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// The one it answers with otherwise.
const NEWEST: &str = "2025-11-25";
/// How long a client may take the fixed core for fresh: the daemon knows better soon.
const FRESH_MS: u64 = 1000;

/// What ends the handshake.
pub(crate) const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// What a call says whose daemon went away, and at its end.
const RESTARTED: &str = "daemon restarted during this run";
const UNREPEATED: &str = "nothing was repeated";

/// What the daemon offers, whatever its configuration.
fn capabilities() -> Value {
    json!({
        "resources": { "subscribe": false, "listChanged": false },
        "tools": { "listChanged": false },
    })
}

/// The answer to `initialize` without the daemon, with the text it last had.
pub(crate) fn core_initialize(id: &Id, asked: Option<&str>, said: Option<&Said>) -> Vec<u8> {
    let known = VERSIONS.iter().find(|known| Some(**known) == asked);
    let mut answer = json!({
        "protocolVersion": known.unwrap_or(&NEWEST),
        "capabilities": capabilities(),
        "serverInfo": server_info(),
    });
    add_instructions(&mut answer, said);
    message::result(id, &answer)
}

/// The answer to `server/discover` without the daemon, with the text it last had.
pub(crate) fn core_discover(id: &Id, said: Option<&Said>) -> Vec<u8> {
    let mut answer = json!({
        "resultType": "complete",
        "supportedVersions": [message::MODERN],
        "capabilities": capabilities(),
        "ttlMs": fresh_ms(said),
        "cacheScope": "private",
        "_meta": { "io.modelcontextprotocol/serverInfo": server_info() },
    });
    add_instructions(&mut answer, said);
    message::result(id, &answer)
}

/// The answer to a `server/discover` that does not say in full which served revision it is of.
pub(crate) fn no_discover(id: &Id, named: Option<&str>) -> Vec<u8> {
    if let Some(named) = named.filter(|named| *named != message::MODERN) {
        return message::unsupported_revision(id, named);
    }
    let text = "params._meta: found no usable io.modelcontextprotocol/protocolVersion and \
                /clientCapabilities; begin with initialize, or send them with each request";
    message::error(Some(id), message::INVALID_PARAMS, text)
}

/// The answer to `tools/list` without the daemon: what it last said, or what it says where
/// a configuration sets nothing.
pub(crate) fn tools(id: &Id, modern: bool, said: Option<&Said>) -> Vec<u8> {
    let tools = match said {
        Some(said) => said.tools.clone(),
        None => serde_json::from_str(DEFAULT_TOOLS).unwrap_or_else(|_| json!([])),
    };
    let answer = if modern {
        json!({
            "resultType": "complete",
            "_meta": { "io.modelcontextprotocol/serverInfo": server_info() },
            "ttlMs": fresh_ms(said),
            "cacheScope": "private",
            "tools": tools,
        })
    } else {
        json!({ "tools": tools })
    };
    message::result(id, &answer)
}

fn fresh_ms(said: Option<&Said>) -> u64 {
    said.map_or(FRESH_MS, |said| said.ttl_ms)
}

fn server_info() -> Value {
    json!({ "name": "ptcd", "version": BUILD })
}

fn add_instructions(answer: &mut Value, said: Option<&Said>) {
    if let Some(said) = said {
        answer["instructions"] = said.instructions.as_str().into();
    }
}

/// The answer to `ping`.
pub(crate) fn pong(id: &Id) -> Vec<u8> {
    message::result(id, &json!({}))
}

/// The answer to a tool call in flight when the daemon went away, with what the next one knows of it.
pub(crate) fn lost_call(id: &Id, calls: Option<&RequestCalls>, modern: bool) -> Vec<u8> {
    let text = calls.map_or_else(|| format!("{RESTARTED}; {UNREPEATED}"), calls_made);
    message::tool_failure(id, &text, modern)
}

fn calls_made(told: &RequestCalls) -> String {
    let begun = match told.ending {
        // The run was through, and only its answer is lost.
        Some(ending) => format!("{RESTARTED}, which had ended ({})", ending.as_str()),
        None => RESTARTED.to_owned(),
    };
    let earlier = (told.earlier > 0).then(|| format!("{} earlier ones", told.earlier));
    let alike = told.calls.chunk_by(|one, next| one == next);
    let groups: Vec<String> = earlier.into_iter().chain(alike.filter_map(group)).collect();
    let made = if groups.is_empty() {
        "no tool call was made".to_owned()
    } else {
        format!("tool calls already made: {}", groups.join(", "))
    };
    format!("{begun}; {made}; {UNREPEATED}")
}

/// Calls of one tool in a row that ended alike.
fn group(calls: &[SentCall]) -> Option<String> {
    let call = calls.first()?;
    let times = match calls.len() {
        1 => String::new(),
        count => format!("{count} times, "),
    };
    let outcome = match call.ok {
        Some(true) => "ok",
        Some(false) => "failed",
        None => "unknown whether it took effect",
    };
    Some(format!("{} ({times}{outcome})", call.tool))
}

/// The answer to another request in flight when the daemon went away.
pub(crate) fn lost_request(id: &Id) -> Vec<u8> {
    let text = "daemon restarted during this request; nothing was repeated";
    message::error(Some(id), message::UNAVAILABLE, text)
}

/// Why a request waited in vain.
pub(crate) fn unreachable(reason: &str) -> String {
    let reason = reason.trim_end_matches('.');
    format!("ptcd cannot be reached: {reason}. Nothing ran. `ptcctl start` says what is wrong.")
}

/// Why a request is not kept waiting: the cause, with what ptcd says of its remedy.
pub(crate) fn blocked(reason: &str) -> String {
    let reason = reason.trim_end_matches('.');
    format!("{reason}. Nothing ran. Mend that and call again: ptcd is then started anew.")
}

/// Why a request is refused together with the whole session.
pub(crate) fn refused(reason: &str) -> String {
    format!("ptcd refused this client: {reason}")
}

/// The answer to a request open when the input's end was waited out.
pub(crate) fn cancelled(id: &Id) -> Vec<u8> {
    message::error(Some(id), message::CANCELLED, "cancelled: stdin ended")
}

/// Tells the client that a question of a daemon that went away needs no answer.
pub(crate) fn moot(id: &Id) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"daemon restarted"}}}}"#
    )
    .into_bytes()
}

/// Why a line is not passed on.
pub(crate) fn too_long(length: u64, limit: usize) -> String {
    format!("a message of {length} bytes is over the limit of {limit} bytes and was skipped")
}
