//! Streamable HTTP on loopback before a source of MCP lines, since the suite speaks nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::io::ReaderStream;

use super::lines::Lines;
pub use super::lines::Source;

const MODERN: &str = "2026-07-28";
/// The revisions with a session. Streams of the last can be closed and taken up again.
const LEGACY: &[&str] = &["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const RESUMABLE: &str = "2025-11-25";
/// How long a silent stream is held open; then its client comes back for the rest.
const HELD: Duration = Duration::from_millis(700);
/// How often a stream that cannot be taken up again is tried for a reader.
const BEAT: Duration = Duration::from_secs(1);
/// What a client may wait before it comes back, in milliseconds.
const RETRY: u32 = 300;

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const HEADER_MISMATCH: i64 = -32020;
const INVALID_REQUEST: i64 = -32600;

#[derive(Debug)]
struct Front {
    source: Source,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
}

#[derive(Debug)]
struct Session {
    lines: Lines,
    version: String,
    /// The rest of streams that were closed.
    parked: Mutex<HashMap<String, mpsc::Receiver<Value>>>,
}

/// Serves until the process ends.
///
/// # Errors
/// The listener fails.
pub async fn serve(listener: TcpListener, source: Source) -> std::io::Result<()> {
    let front = Front {
        source,
        sessions: Mutex::default(),
    };
    let router = Router::new().fallback(handle).with_state(Arc::new(front));
    axum::serve(listener, router).await
}

async fn handle(
    State(front): State<Arc<Front>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !is_local(&headers) {
        return refuse(
            StatusCode::FORBIDDEN,
            &Value::Null,
            INVALID_REQUEST,
            "not from this machine",
        );
    }
    match method.as_str() {
        "POST" => post(&front, &headers, &body).await,
        "GET" => get(&front, &headers),
        "DELETE" => match front.take(&headers) {
            Some(_) => StatusCode::NO_CONTENT.into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// A page of another site must not reach a server on this machine through its reader's browser.
fn is_local(headers: &HeaderMap) -> bool {
    let local = |authority: &str| {
        let host = authority
            .rsplit_once(':')
            .map_or(authority, |(host, port)| {
                if port.bytes().all(|byte| byte.is_ascii_digit()) {
                    host
                } else {
                    authority
                }
            });
        ["localhost", "127.0.0.1", "[::1]"].contains(&host)
    };
    let host = value(headers, header::HOST.as_str()).is_some_and(local);
    let origin = value(headers, header::ORIGIN.as_str());
    host && origin.is_none_or(|origin| {
        origin
            .split_once("://")
            .is_some_and(|(_, authority)| local(authority))
    })
}

impl Front {
    fn find(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        let id = value(headers, SESSION)?;
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(id).cloned()
    }

    fn take(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        let id = value(headers, SESSION)?;
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.remove(id)
    }

    fn keep(&self, session: Session) -> String {
        let id = format!("{:032x}", fastrand::u128(..));
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(id.clone(), Arc::new(session));
        id
    }
}

async fn post(front: &Front, headers: &HeaderMap, body: &Bytes) -> Response {
    let Ok(message) = serde_json::from_slice::<Value>(body) else {
        return refuse(
            StatusCode::BAD_REQUEST,
            &Value::Null,
            -32700,
            "the body is no JSON",
        );
    };
    let version = value(headers, VERSION);
    let said = message
        .pointer("/params/_meta/io.modelcontextprotocol~1protocolVersion")
        .and_then(Value::as_str);
    let session = value(headers, SESSION).is_some();
    let is_legacy = version.is_some_and(|version| LEGACY.contains(&version));
    let opens = message["method"] == "initialize";
    if session || is_legacy || (said.is_none() && version.is_none()) {
        legacy(front, headers, &message, opens).await
    } else {
        modern(front, headers, &message, said).await
    }
}

/// A message of a session.
async fn legacy(front: &Front, headers: &HeaderMap, message: &Value, opens: bool) -> Response {
    let id = &message["id"];
    if value(headers, SESSION).is_none() && opens {
        return open(front, message).await;
    }
    if value(headers, SESSION).is_none() {
        return refuse(
            StatusCode::BAD_REQUEST,
            id,
            INVALID_REQUEST,
            "there is no Mcp-Session-Id",
        );
    }
    let Some(session) = front.find(headers) else {
        return refuse(
            StatusCode::NOT_FOUND,
            id,
            INVALID_REQUEST,
            "there is no such session",
        );
    };
    if value(headers, VERSION).is_some_and(|version| !LEGACY.contains(&version)) {
        return refuse(
            StatusCode::BAD_REQUEST,
            id,
            INVALID_REQUEST,
            "the revision is not served",
        );
    }
    if id.is_null() || message.get("method").is_none() {
        return match session.lines.tell(message).await {
            Ok(()) => StatusCode::ACCEPTED.into_response(),
            Err(fault) => broken(id, &fault),
        };
    }
    match session.lines.ask(message).await {
        Ok(messages) => session_stream(session, messages, None),
        Err(fault) => broken(id, &fault),
    }
}

async fn open(front: &Front, message: &Value) -> Response {
    let id = &message["id"];
    let opened = async {
        let lines = front.source.open().await?;
        let mut messages = lines.ask(message).await?;
        let answer = messages.recv().await;
        answer
            .map(|answer| (lines, answer))
            .ok_or_else(|| std::io::Error::other("no answer"))
    };
    let (lines, answer) = match opened.await {
        Ok(opened) => opened,
        Err(fault) => return broken(id, &fault),
    };
    let Some(version) = answer
        .pointer("/result/protocolVersion")
        .and_then(Value::as_str)
    else {
        return plain(StatusCode::OK, &answer);
    };
    let session = Session {
        lines,
        version: version.to_owned(),
        parked: Mutex::default(),
    };
    let mut response = plain(StatusCode::OK, &answer);
    if let Ok(id) = front.keep(session).parse() {
        response.headers_mut().insert(SESSION, id);
    }
    response
}

fn get(front: &Front, headers: &HeaderMap) -> Response {
    if value(headers, SESSION).is_none() {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let Some(session) = front.find(headers) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if let Some(last) = value(headers, "last-event-id") {
        let stream = last.split('-').next().unwrap_or_default().to_owned();
        let parked = session
            .parked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&stream);
        return match parked {
            Some(messages) => session_stream(session, messages, Some(last)),
            None => StatusCode::NOT_FOUND.into_response(),
        };
    }
    let (writer, response) = stream();
    tokio::spawn(async move {
        // A second reader would take messages from the first.
        if let Ok(mut alone) = session.lines.alone.try_lock() {
            pump(writer, &mut alone).await;
        }
    });
    response
}

/// The answer to a request of a session, as a stream.
fn session_stream(
    session: Arc<Session>,
    mut messages: mpsc::Receiver<Value>,
    last: Option<&str>,
) -> Response {
    let (mut writer, response) = stream();
    let resumable = session.version == RESUMABLE;
    let (stream, mut number) = match last.and_then(|last| last.split_once('-')) {
        Some((stream, number)) => (stream.to_owned(), number.parse().unwrap_or(0_u32)),
        None => (format!("{:016x}", fastrand::u64(..)), 0),
    };
    tokio::spawn(async move {
        if resumable && number == 0 {
            let first = format!("id: {stream}-0\nretry: {RETRY}\ndata: \n\n");
            let _ = writer.write_all(first.as_bytes()).await;
        }
        loop {
            let message = match tokio::time::timeout(HELD, messages.recv()).await {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(_) if resumable => break,
                Err(_) => continue,
            };
            number += 1;
            let event = format!("id: {stream}-{number}\nevent: message\ndata: {message}\n\n");
            if writer.write_all(event.as_bytes()).await.is_err() {
                break;
            }
        }
        let mut parked = session
            .parked
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        parked.insert(stream, messages);
    });
    response
}

/// A request that says everything of itself: it has a connection of its own.
async fn modern(
    front: &Front,
    headers: &HeaderMap,
    message: &Value,
    said: Option<&str>,
) -> Response {
    let id = &message["id"];
    if let Err(fault) = agree(headers, message, said) {
        return refuse(StatusCode::BAD_REQUEST, id, HEADER_MISMATCH, &fault);
    }
    if id.is_null() {
        return StatusCode::ACCEPTED.into_response();
    }
    let opened = async {
        let lines = front.source.open().await?;
        if message["method"] == "initialize" {
            make_modern(&lines).await?;
        }
        let messages = lines.ask(message).await?;
        Ok::<_, std::io::Error>((lines, messages))
    };
    let (lines, mut messages) = match opened.await {
        Ok(opened) => opened,
        Err(fault) => return broken(id, &fault),
    };
    let Some(first) = messages.recv().await else {
        return broken(id, &std::io::Error::other("no answer"));
    };
    if first.get("method").is_none() {
        return plain(status(&first), &first);
    }
    let (mut writer, response) = stream();
    tokio::spawn(async move {
        let event = format!("event: message\ndata: {first}\n\n");
        if writer.write_all(event.as_bytes()).await.is_ok() {
            pump(writer, &mut messages).await;
        }
        drop(lines);
    });
    response
}

/// On a connection that nothing has opened yet, `initialize` would begin a session.
async fn make_modern(lines: &Lines) -> std::io::Result<()> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let opener = json!({"jsonrpc": "2.0", "id": "opener", "method": "tools/list", "params": {"_meta": meta}});
    lines.ask(&opener).await?.recv().await;
    Ok(())
}

/// Whether the headers say what the body says.
fn agree(headers: &HeaderMap, message: &Value, said: Option<&str>) -> Result<(), String> {
    let compare = |header: &str, body: Option<&str>| match (value(headers, header), body) {
        (_, None) => Ok(()),
        (Some(found), Some(body)) if found == body => Ok(()),
        (found, Some(body)) => Err(format!("{header}: found {found:?}, the body has {body:?}")),
    };
    let method = message["method"].as_str();
    compare(VERSION, said)?;
    compare("mcp-method", method)?;
    let name = match method {
        Some("tools/call" | "prompts/get") => message.pointer("/params/name"),
        Some("resources/read") => message.pointer("/params/uri"),
        _ => None,
    };
    compare("mcp-name", name.and_then(Value::as_str))
}

fn status(answer: &Value) -> StatusCode {
    match answer.pointer("/error/code").and_then(Value::as_i64) {
        Some(-32601) => StatusCode::NOT_FOUND,
        Some(-32700 | -32600 | -32602 | -32022..=-32020) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// A stream to write events to, and the response that carries them.
fn stream() -> (DuplexStream, Response) {
    let (writer, reader) = tokio::io::duplex(64 * 1024);
    let body = Body::from_stream(ReaderStream::new(reader));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (writer, (headers, body).into_response())
}

/// Sends on what comes, until it ends or nobody reads any more.
async fn pump(mut writer: DuplexStream, messages: &mut mpsc::Receiver<Value>) {
    loop {
        let event = match tokio::time::timeout(BEAT, messages.recv()).await {
            Ok(Some(message)) => format!("event: message\ndata: {message}\n\n"),
            Ok(None) => return,
            Err(_) => ": \n\n".to_owned(),
        };
        if writer.write_all(event.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn plain(status: StatusCode, message: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (status, headers, message.to_string()).into_response()
}

fn refuse(status: StatusCode, id: &Value, code: i64, text: &str) -> Response {
    let error = json!({"code": code, "message": text});
    plain(status, &json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

fn broken(id: &Value, fault: &std::io::Error) -> Response {
    let text = format!("the lines broke: {fault}");
    refuse(StatusCode::BAD_GATEWAY, id, -32603, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name = axum::http::HeaderName::from_static(name);
            (name, value.parse().expect("a value"))
        });
        pairs.collect()
    }

    #[test]
    fn only_this_machine_is_served() {
        for (host, origin, served) in [
            ("localhost:80", None, true),
            ("127.0.0.1", Some("http://localhost:3000"), true),
            ("[::1]:80", None, true),
            ("evil.example", None, false),
            ("localhost.evil.example:80", None, false),
            ("localhost", Some("http://evil.example"), false),
            ("localhost", Some("null"), false),
        ] {
            let mut pairs = vec![("host", host)];
            pairs.extend(origin.map(|origin| ("origin", origin)));
            assert_eq!(is_local(&headers(&pairs)), served, "{pairs:?}");
        }
        assert!(!is_local(&HeaderMap::new()));
    }

    #[test]
    fn headers_must_say_what_the_body_says() {
        let call = json!({"method": "tools/call", "params": {"name": "t"}});
        let good = [
            (VERSION, MODERN),
            ("mcp-method", "tools/call"),
            ("mcp-name", "t"),
        ];
        assert_eq!(agree(&headers(&good), &call, Some(MODERN)), Ok(()));
        for left_out in 0..good.len() {
            let mut less = good.to_vec();
            let (name, _) = less.remove(left_out);
            let fault = agree(&headers(&less), &call, Some(MODERN)).unwrap_err();
            assert!(fault.starts_with(name), "{fault}");
        }
        let wrong = [
            (VERSION, MODERN),
            ("mcp-method", "TOOLS/CALL"),
            ("mcp-name", "t"),
        ];
        assert!(agree(&headers(&wrong), &call, Some(MODERN)).is_err());
    }
}
