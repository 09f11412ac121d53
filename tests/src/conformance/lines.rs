//! One stream of MCP lines, and which of its messages belongs to which request.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ptc_protocol::{BUILD, Hello, PROTOCOL, PROTOCOL_MIN, SessionId, UPGRADE_TOKEN, route};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, ReadHalf, WriteHalf,
};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::fixture::{self, Fixture};

/// Messages of one request that may wait to be sent on.
const QUEUE: usize = 64;

/// Who serves the lines.
#[derive(Clone, Debug)]
pub enum Source {
    /// The suite's fixtures on the daemon's session layer, in this process.
    Fixture(Fixture),
    /// A running daemon.
    Daemon {
        /// Its socket.
        socket: PathBuf,
        /// Its configuration file, as it has it.
        config: PathBuf,
    },
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Source {
    pub(super) async fn open(&self) -> io::Result<Lines> {
        let stream: Box<dyn Stream> = match self {
            Self::Fixture(fixture) => {
                let (ours, theirs) = tokio::io::duplex(64 * 1024);
                let handler = fixture.clone();
                let end = CancellationToken::new();
                tokio::spawn(ptcd::session::carry(theirs, fixture::OFFER, end, |_| {
                    handler
                }));
                Box::new(ours)
            }
            Self::Daemon { socket, config } => Box::new(shake_hands(socket, config).await?),
        };
        Ok(Lines::new(stream))
    }
}

/// What a shim does before its first line.
async fn shake_hands(
    socket: &std::path::Path,
    config: &std::path::Path,
) -> io::Result<BufReader<UnixStream>> {
    let mut stream = BufReader::new(UnixStream::connect(socket).await?);
    let path = route::MCP;
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: {UPGRADE_TOKEN}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 && line != "\r\n" {
        line.clear();
    }
    let hello = Hello {
        protocol: [PROTOCOL_MIN, PROTOCOL],
        build: BUILD.to_owned(),
        session: SessionId::from_random(fastrand::u128(..).to_be_bytes()),
        client: None,
        cwd: None,
        project_dir: None,
        client_session: None,
        pid: std::process::id(),
        config: config.to_str().map(str::to_owned),
        renews: false,
    };
    stream
        .write_all(format!("{}\n", json!(hello)).as_bytes())
        .await?;
    line.clear();
    stream.read_line(&mut line).await?;
    if !line.contains("\"welcome\"") {
        return Err(io::Error::other(format!("the daemon refused: {line}")));
    }
    stream.write_all(b"{}\n").await?;
    Ok(stream)
}

/// A stream; dropped, it is closed, and what its requests wait for ends.
#[derive(Debug)]
pub(super) struct Lines {
    writer: tokio::sync::Mutex<Writer>,
    routes: Arc<Mutex<Routes>>,
    reader: JoinHandle<()>,
    /// What belongs to no request.
    pub(super) alone: tokio::sync::Mutex<mpsc::Receiver<Value>>,
}

struct Writer(WriteHalf<Box<dyn Stream>>);

impl std::fmt::Debug for Writer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Writer")
    }
}

#[derive(Debug)]
struct Routes {
    /// In the order they came.
    waiting: Vec<Waiting>,
    alone: Option<mpsc::Sender<Value>>,
}

#[derive(Debug)]
struct Waiting {
    id: Value,
    token: Option<Value>,
    messages: mpsc::Sender<Value>,
}

impl Lines {
    fn new(stream: Box<dyn Stream>) -> Self {
        let (read, write) = tokio::io::split(stream);
        let (sender, alone) = mpsc::channel(QUEUE);
        let routes = Arc::new(Mutex::new(Routes {
            waiting: Vec::new(),
            alone: Some(sender),
        }));
        let reader = tokio::spawn(read_lines(read, Arc::clone(&routes)));
        Self {
            writer: tokio::sync::Mutex::new(Writer(write)),
            routes,
            reader,
            alone: tokio::sync::Mutex::new(alone),
        }
    }

    /// Writes a message that has no answer.
    pub(super) async fn tell(&self, message: &Value) -> io::Result<()> {
        let mut writer = self.writer.lock().await;
        writer
            .0
            .write_all(format!("{message}\n").as_bytes())
            .await?;
        writer.0.flush().await
    }

    /// Writes a request; its messages follow, the answer last.
    pub(super) async fn ask(&self, request: &Value) -> io::Result<mpsc::Receiver<Value>> {
        let (messages, receiver) = mpsc::channel(QUEUE);
        lock(&self.routes).waiting.push(Waiting {
            id: request["id"].clone(),
            token: request.pointer("/params/_meta/progressToken").cloned(),
            messages,
        });
        self.tell(request).await?;
        Ok(receiver)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.reader.abort();
        let mut routes = lock(&self.routes);
        routes.waiting.clear();
        routes.alone = None;
    }
}

fn lock(routes: &Mutex<Routes>) -> MutexGuard<'_, Routes> {
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read_lines(read: ReadHalf<Box<dyn Stream>>, routes: Arc<Mutex<Routes>>) {
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            complain(&line);
            continue;
        };
        let place = lock(&routes).place(&message);
        if let Some(place) = place {
            // Whoever waited may be gone.
            let _ = place.send(message).await;
        }
    }
    let mut routes = lock(&routes);
    routes.waiting.clear();
    routes.alone = None;
}

#[expect(
    clippy::print_stderr,
    reason = "a test program says what it met on stderr"
)]
fn complain(line: &str) {
    eprintln!("no JSON among the lines: {line}");
}

impl Routes {
    /// Where a message goes.
    ///
    /// Of a log line or a question of the server nothing says which request it belongs to, so it
    /// is the last one that is open.
    fn place(&mut self, message: &Value) -> Option<mpsc::Sender<Value>> {
        if message.get("method").is_none() {
            let at = self
                .waiting
                .iter()
                .position(|one| one.id == message["id"])?;
            return Some(self.waiting.remove(at).messages);
        }
        let token = message.pointer("/params/progressToken");
        let owner = self
            .waiting
            .iter()
            .rfind(|one| token.is_none() || one.token.as_ref() == token);
        owner
            .map(|one| one.messages.clone())
            .or_else(|| self.alone.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(id: u8, token: Option<&str>) -> (Waiting, mpsc::Receiver<Value>) {
        let (messages, receiver) = mpsc::channel(1);
        let one = Waiting {
            id: json!(id),
            token: token.map(|token| json!(token)),
            messages,
        };
        (one, receiver)
    }

    #[test]
    fn each_message_goes_to_its_request() {
        let (first, of_first) = waiting(1, Some("a"));
        let (second, of_second) = waiting(2, None);
        let (sender, alone) = mpsc::channel(1);
        let mut routes = Routes {
            waiting: vec![first, second],
            alone: Some(sender),
        };
        let mut placed = |message: Value, wanted: &mpsc::Receiver<Value>| {
            let place = routes.place(&message).expect("a place");
            let before = wanted.len();
            place.try_send(message.clone()).expect("room");
            assert_eq!(wanted.len(), before + 1, "{message}");
        };
        placed(
            json!({"method": "notifications/progress", "params": {"progressToken": "a"}}),
            &of_first,
        );
        placed(json!({"method": "notifications/message"}), &of_second);
        drop(of_second);
        assert!(routes.place(&json!({"id": 2, "result": {}})).is_some());
        assert!(routes.place(&json!({"id": 2, "result": {}})).is_none());
        assert!(routes.place(&json!({"id": 1, "error": {}})).is_some());
        let place = routes.place(&json!({"method": "notifications/message"}));
        place.expect("a place").try_send(Value::Null).expect("room");
        assert_eq!(alone.len(), 1);
    }
}
