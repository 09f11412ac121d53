//! A scripted MCP server over HTTP, in the test's own process.
//!
//! It is written on bare sockets, so that a fault of an HTTP library cannot
//! hide the same fault in the programs under test.

mod connection;
mod server;
mod tls;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

pub use tls::Authority;

/// What an exchange is answered with.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers beside those of the framing.
    pub headers: Vec<(String, String)>,
    /// What follows.
    pub body: Body,
}

/// The body of an answer.
#[derive(Clone, Debug)]
pub enum Body {
    /// All of it, with its length.
    Whole(Vec<u8>),
    /// These pieces in chunks; then the end, or a cut.
    Pieces {
        /// The pieces.
        pieces: Vec<Vec<u8>>,
        /// Whether the connection is cut in place of an end.
        cut: bool,
    },
    /// A stream that stays open for what the test pushes.
    Open {
        /// What is written first.
        first: Vec<u8>,
    },
    /// Nothing at all, and the connection stays open.
    Silence,
    /// The connection is cut before any answer.
    Cut,
}

impl Answer {
    /// An answer without a body.
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Body::Whole(Vec::new()),
        }
    }

    /// An answer of this media type.
    pub fn text(status: u16, media_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: Body::Whole(body.into()),
            ..Self::status(status)
        }
        .header("Content-Type", media_type)
    }

    /// An answer in JSON.
    pub fn json(status: u16, value: &Value) -> Self {
        Self::text(status, "application/json", value.to_string())
    }

    /// An event stream of these bytes, which then ends or is cut.
    pub fn stream(pieces: Vec<Vec<u8>>, cut: bool) -> Self {
        Self {
            body: Body::Pieces { pieces, cut },
            ..Self::status(200)
        }
        .header("Content-Type", "text/event-stream")
    }

    /// An event stream that stays open.
    pub fn open(first: impl Into<Vec<u8>>) -> Self {
        Self {
            body: Body::Open {
                first: first.into(),
            },
            ..Self::status(200)
        }
        .header("Content-Type", "text/event-stream")
    }

    /// No answer: the connection hangs or is cut.
    pub fn nothing(cut: bool) -> Self {
        let body = if cut { Body::Cut } else { Body::Silence };
        Self {
            body,
            ..Self::status(200)
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// One event with this message.
pub fn event(message: &Value) -> Vec<u8> {
    format!("event: message\ndata: {message}\n\n").into_bytes()
}

/// A JSON-RPC result for a request.
pub fn result(request: &Request, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request.message["id"], "result": result})
}

/// A JSON-RPC error for a request.
pub fn error(request: &Request, code: i64, message: &str) -> Value {
    json!({
        "jsonrpc": "2.0", "id": request.message["id"],
        "error": {"code": code, "message": message},
    })
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// `POST`, `GET`, `DELETE`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers, their names in small letters.
    pub headers: BTreeMap<String, String>,
    /// The body as JSON; null where it is none.
    pub message: Value,
}

impl Request {
    /// The JSON-RPC method, or the HTTP method where there is no body.
    pub fn name(&self) -> &str {
        self.message["method"].as_str().unwrap_or(&self.method)
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Whether it is a call of this tool.
    pub fn calls(&self, tool: &str) -> bool {
        self.name() == "tools/call" && self.message["params"]["name"] == json!(tool)
    }
}

/// Which kind of server it plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plays {
    /// Streamable HTTP with a handshake and a session.
    Legacy,
    /// Streamable HTTP of the revision without a handshake.
    Modern,
    /// The older transport: an event stream at `/sse`.
    Sse,
}

type Script = dyn Fn(&Request, &Mock) -> Option<Answer> + Send + Sync;

/// A running server. All clones are one; its port is closed with the process of the test.
#[derive(Clone)]
pub struct Mock {
    inner: Arc<Inner>,
}

struct Inner {
    plays: Plays,
    address: SocketAddr,
    secure: bool,
    script: Box<Script>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    requests: Vec<Request>,
    sessions: Vec<String>,
    made: usize,
    streams: Vec<Sender<Vec<u8>>>,
    closed: bool,
}

impl std::fmt::Debug for Mock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mock")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

impl Mock {
    /// A server that behaves well.
    pub fn good(plays: Plays) -> Self {
        Self::start(plays, |_, _| None)
    }

    /// A server whose script answers first; where it gives nothing, the server behaves well.
    pub fn start(
        plays: Plays,
        script: impl Fn(&Request, &Mock) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        Self::launch(plays, None, Box::new(script))
    }

    /// The same behind TLS, with a certificate of this authority for this name.
    pub fn secure(plays: Plays, authority: &Authority, name: &str) -> Self {
        let config = authority.server(name);
        Self::launch(plays, Some(config), Box::new(|_, _| None))
    }

    fn launch(plays: Plays, tls: Option<Arc<rustls::ServerConfig>>, script: Box<Script>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let mock = Self {
            inner: Arc::new(Inner {
                plays,
                address: listener.local_addr().expect("its address"),
                secure: tls.is_some(),
                script,
                state: Mutex::default(),
            }),
        };
        let accepting = mock.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                if accepting.state().closed {
                    return;
                }
                let (mock, tls) = (accepting.clone(), tls.clone());
                std::thread::spawn(move || mock.accept(stream, tls));
            }
        });
        mock
    }

    fn accept(&self, stream: TcpStream, tls: Option<Arc<rustls::ServerConfig>>) {
        match tls {
            None => connection::serve(self, stream),
            Some(config) => {
                if let Ok(session) = rustls::ServerConnection::new(config) {
                    connection::serve(self, rustls::StreamOwned::new(session, stream));
                }
            }
        }
    }

    /// Its origin, with the host as an address.
    pub fn origin(&self) -> String {
        let scheme = if self.inner.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.inner.address)
    }

    /// Where it serves.
    pub fn url(&self) -> String {
        let path = if self.inner.plays == Plays::Sse {
            "/sse"
        } else {
            "/mcp"
        };
        format!("{}{path}", self.origin())
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.inner.address.port()
    }

    /// An entry for the configuration, to be changed by the test.
    pub fn entry(&self, name: &str) -> Value {
        let transport = if self.inner.plays == Plays::Sse {
            "sse"
        } else {
            "http"
        };
        json!({"name": name, "transport": transport, "url": self.url()})
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    /// The requests of one JSON-RPC or HTTP method.
    pub fn of(&self, name: &str) -> Vec<Request> {
        let mut requests = self.requests();
        requests.retain(|request| request.name() == name);
        requests
    }

    /// How many requests of one JSON-RPC or HTTP method came.
    pub fn count(&self, name: &str) -> usize {
        self.of(name).len()
    }

    /// How many calls of one tool came.
    pub fn calls(&self, tool: &str) -> usize {
        let requests = self.requests();
        requests
            .iter()
            .filter(|request| request.calls(tool))
            .count()
    }

    /// Forgets every session, as a restart does.
    pub fn forget(&self) {
        self.state().sessions.clear();
    }

    /// Writes an event on every open stream.
    pub fn push(&self, message: &Value) {
        let bytes = event(message);
        self.state()
            .streams
            .retain(|stream| stream.send(bytes.clone()).is_ok());
    }

    /// How many streams are open, as far as is known.
    pub fn streams(&self) -> usize {
        self.state().streams.len()
    }

    /// Ends every open stream.
    pub fn end_streams(&self) {
        self.state().streams.clear();
    }

    /// Takes no more connections.
    pub fn close(&self) {
        self.state().closed = true;
        self.end_streams();
        // Wakes the one that waits for the next.
        let _ = TcpStream::connect(self.inner.address);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
