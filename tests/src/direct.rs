//! A client at the daemon's own socket, with no shim between.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use ptc_protocol::{BUILD, Hello, PROTOCOL, PROTOCOL_MIN, SessionId, UPGRADE_TOKEN, route};
use serde_json::{Value, json};

use crate::home::Home;
use crate::wait::PATIENCE;

/// A stream after the handshake; MCP lines go both ways.
#[derive(Debug)]
pub struct Direct {
    stream: BufReader<UnixStream>,
}

/// What a shim of this build says of itself, with this number for its session.
pub fn hello(home: &Home, session: u8) -> Hello {
    let config = home.config().canonicalize().expect("the real path");
    Hello {
        protocol: [PROTOCOL_MIN, PROTOCOL],
        build: BUILD.to_owned(),
        session: SessionId::from_random([session; 16]),
        client: None,
        cwd: None,
        project_dir: None,
        client_session: None,
        pid: std::process::id(),
        config: config.to_str().map(str::to_owned),
        renews: false,
    }
}

impl Direct {
    /// Connects, and says nothing.
    #[track_caller]
    pub fn connect(home: &Home) -> Self {
        let stream = UnixStream::connect(home.socket()).expect("the socket");
        stream
            .set_read_timeout(Some(PATIENCE * 3))
            .expect("a limit");
        stream.set_write_timeout(Some(PATIENCE)).expect("a limit");
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// Connects and asks for the stream; the hello is still to be said.
    #[track_caller]
    pub fn upgrade(home: &Home) -> Self {
        let mut direct = Self::connect(home);
        let path = route::MCP;
        direct.write(
            format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: {UPGRADE_TOKEN}\r\n\r\n"
            )
            .as_bytes(),
        );
        let status = direct.text().expect("a status line");
        assert!(status.contains(" 101 "), "{status}");
        while direct.text().is_some_and(|line| !line.trim().is_empty()) {}
        direct
    }

    /// Shakes hands as a shim with this number for its session.
    #[track_caller]
    pub fn open(home: &Home, session: u8) -> Self {
        Self::open_as(home, &hello(home, session))
    }

    /// Shakes hands with this hello and without variables.
    #[track_caller]
    pub fn open_as(home: &Home, hello: &Hello) -> Self {
        let mut direct = Self::upgrade(home);
        direct.send(&json!(hello));
        let welcome = direct.line().expect("a welcome");
        assert!(welcome.get("welcome").is_some(), "{welcome}");
        direct.send(&json!({}));
        direct
    }

    /// Opens a legacy MCP session.
    #[track_caller]
    pub fn initialize(&mut self) {
        let info = json!({"name": "direct", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        let answer = self.ask(&json!("open"), "initialize", &params);
        assert!(answer.get("error").is_none(), "{answer}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Waits until the other side has closed; gives what it still said.
    #[track_caller]
    pub fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => {}
            // It had not read everything when it closed.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("still open: {error}"),
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes bytes as they are.
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("a reader");
    }

    /// Writes bytes to one who may have closed already.
    pub fn offer(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// Writes one message.
    #[track_caller]
    pub fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// The next line as text; `None` at the end of the stream.
    #[track_caller]
    pub fn text(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.stream.read_line(&mut line).expect("a line in time");
        (count > 0).then_some(line)
    }

    /// The next message; `None` at the end of the stream.
    #[track_caller]
    pub fn line(&mut self) -> Option<Value> {
        self.text().map(|line| {
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
        })
    }

    /// Sends a request and waits for its answer, which must be the next message.
    #[track_caller]
    pub fn ask(&mut self, id: &Value, method: &str, params: &Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let answer = self.line().expect("an answer");
        assert_eq!(&answer["id"], id, "{answer}");
        answer
    }
}
