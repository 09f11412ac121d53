//! A daemon that says what the test tells it to.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use ptc_protocol::Hello;
use serde_json::{Value, json};

use super::{LIMIT, eventually};

/// Listens on a socket in a folder of its own, which is the clients' home too.
pub(crate) struct FakeDaemon {
    pub(crate) home: tempfile::TempDir,
    pub(crate) socket: PathBuf,
    listener: UnixListener,
}

impl FakeDaemon {
    /// Listens on the socket the clients are told.
    pub(crate) fn start() -> Self {
        Self::listening_on("ptcd.sock")
    }

    /// Listens under another name in the same folder.
    pub(crate) fn listening_on(name: &str) -> Self {
        let home = home();
        let listener = UnixListener::bind(home.path().join(name)).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self {
            socket: home.path().join("ptcd.sock"),
            listener,
            home,
        }
    }

    /// The next connection and the head of its request.
    pub(crate) fn accept(&self) -> (Connection, String) {
        let stream = eventually("a connection", || self.listener.accept().ok()).0;
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        let mut connection = Connection {
            reader: BufReader::new(stream.try_clone().unwrap()),
            stream,
        };
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(connection.reader.read_line(&mut head).unwrap(), 0, "{head}");
        }
        (connection, head)
    }

    /// The next connection, upgraded, and its hello.
    pub(crate) fn greeted(&self) -> (Connection, Hello) {
        let (mut connection, head) = self.accept();
        let lower = head.to_ascii_lowercase();
        assert!(head.starts_with("GET /v1/mcp HTTP/1.1\r\n"), "{head}");
        assert!(lower.contains("\r\nupgrade: ptcd-mcp\r\n"), "{head}");
        connection.raw(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: ptcd-mcp\r\n\r\n",
        );
        let hello = serde_json::from_value(connection.line()).unwrap();
        (connection, hello)
    }

    /// The next connection, with the handshake done; what the client said is the hello and the variables.
    pub(crate) fn welcomed(&self, wants: &[&str]) -> (Connection, Hello, Value) {
        self.welcomed_by(ptc_protocol::BUILD, wants)
    }

    /// The same, as a daemon of another build.
    pub(crate) fn welcomed_by(&self, build: &str, wants: &[&str]) -> (Connection, Hello, Value) {
        let (mut connection, hello) = self.greeted();
        connection.send(&json!({ "welcome": { "protocol": 1, "build": build, "wants": wants } }));
        let vars = connection.line();
        (connection, hello, vars)
    }

    /// Answers one plain request with a JSON body.
    pub(crate) fn answer(&self, start: &str, status: &str, body: &str) {
        let (mut connection, head) = self.accept();
        assert!(head.starts_with(start), "{head}");
        let length = body.len();
        connection.raw(&format!(
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}"
        ));
    }
}

/// A fresh folder with mode 0700.
pub(crate) fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    private(home.path());
    home
}

fn private(path: &Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)).unwrap();
}

/// One client's connection.
pub(crate) struct Connection {
    reader: BufReader<UnixStream>,
    stream: UnixStream,
}

impl Connection {
    /// The next line, or `None` when the client is gone.
    pub(crate) fn try_line(&mut self) -> Option<Value> {
        let mut line = String::new();
        let count = self.reader.read_line(&mut line).unwrap();
        (count > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    pub(crate) fn line(&mut self) -> Value {
        self.try_line().expect("the client has gone away")
    }

    /// The next line's id and method.
    pub(crate) fn request(&mut self) -> (Value, String) {
        let line = self.line();
        let method = line["method"].as_str().unwrap_or_default().to_owned();
        (line["id"].clone(), method)
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.raw(&format!("{message}\n"));
    }

    /// Answers a request.
    pub(crate) fn result(&mut self, id: &Value, result: &Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    pub(crate) fn raw(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }
}
