//! Plays the daemon to one worker.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// How long a worker may be silent. What a test waits for takes milliseconds; a busy machine may take its time.
const PATIENCE: Duration = Duration::from_secs(90);

/// What a worker is started with.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) memory: u64,
    pub(crate) cpu_seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 512 << 20,
            cpu_seconds: 60,
        }
    }
}

/// A kind and a body.
pub(crate) type Frame = (char, Value);

/// One worker and its daemon's end.
pub(crate) struct Party {
    child: Child,
    socket: UnixStream,
    output: Option<std::thread::JoinHandle<Vec<u8>>>,
    pub(crate) tools: BTreeMap<&'static str, Vec<&'static str>>,
    pub(crate) absent: BTreeMap<&'static str, &'static str>,
}

/// How a worker ended.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) output: String,
}

impl Party {
    /// Starts a worker with descriptor 3 as its channel and one pipe for both outputs, and hears its hello.
    pub(crate) fn start(limits: Limits) -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let (mut reading, writing) = std::io::pipe().unwrap();
        let script = format!(
            "ulimit -t {}; ulimit -d {}; exec 3<&0 0</dev/null; exec \"$0\"",
            limits.cpu_seconds,
            limits.memory / 1024
        );
        let child = Command::new("/bin/sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_ptcd-monty-worker")])
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(writing.try_clone().unwrap())
            .stderr(writing)
            .spawn()
            .unwrap();
        let output = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reading.read_to_end(&mut bytes).unwrap();
            bytes
        });
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut party = Self {
            child,
            socket,
            output: Some(output),
            tools: BTreeMap::from([("mcp__m__echo", vec!["text"]), ("mcp__m__fail", vec![])]),
            absent: BTreeMap::from([("mcp__m__ecko", "did you mean mcp__m__echo?")]),
        };
        let (kind, hello) = party.read().unwrap();
        assert_eq!((kind, &hello["protocol"]), ('H', &json!(1)));
        party
    }

    /// Gives it its program.
    pub(crate) fn run(&mut self, program: &str) {
        self.run_with(program, &json!({}));
    }

    /// The same, with more members of the run frame.
    pub(crate) fn run_with(&mut self, program: &str, more: &Value) {
        let mut body = json!({
            "program": program,
            "tools": self.tools,
            "absent": self.absent,
            "limits": {"max_emit_bytes": 65536, "max_call_bytes": 4_194_304},
        });
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        self.send('R', &body);
    }

    /// Sends a frame; a worker that has ended takes none.
    pub(crate) fn send(&mut self, kind: char, body: &Value) {
        let body = body.to_string();
        let mut frame = u32::try_from(body.len() + 1)
            .unwrap()
            .to_le_bytes()
            .to_vec();
        frame.push(u8::try_from(kind).unwrap());
        frame.extend_from_slice(body.as_bytes());
        let _ = self.socket.write_all(&frame);
    }

    pub(crate) fn answer(&mut self, id: &Value, value: &Value) {
        self.send('r', &json!({"id": id, "ok": true, "value": value}));
    }

    /// The next frame, or `None` where the worker has gone.
    pub(crate) fn read(&mut self) -> Option<Frame> {
        let mut head = [0_u8; 5];
        self.read_exact(&mut head)?;
        let [a, b, c, d, kind] = head;
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap();
        let mut body = vec![0_u8; length - 1];
        self.read_exact(&mut body)?;
        Some((char::from(kind), serde_json::from_slice(&body).unwrap()))
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.socket.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let _ = self.child.kill();
                panic!("the worker was silent for {PATIENCE:?}");
            }
            Err(_) => None,
        }
    }

    /// Plays two tools, `echo` and `fail`, and the helpers, until the last frame.
    pub(crate) fn follow(&mut self) -> (Vec<Frame>, Option<Frame>) {
        let mut heard = Vec::new();
        loop {
            let Some((kind, body)) = self.read() else {
                return (heard, None);
            };
            match kind {
                'C' if body["tool"] == "mcp__m__fail" => {
                    let error = json!({
                        "kind": "tool_failed", "message": "valve closed", "tool": "mcp__m__fail", "server": "m",
                        "retryable": false, "data": {"a": 1},
                    });
                    self.send('r', &json!({"id": body["id"], "ok": false, "error": error}));
                }
                'C' => {
                    let value = body["arguments"]
                        .get("text")
                        .unwrap_or(&body["arguments"])
                        .clone();
                    self.answer(&body["id"], &value);
                }
                'Q' => {
                    let value = json!([body["helper"], body["arguments"]]);
                    self.answer(&body["id"], &value);
                }
                'D' | 'W' => return (heard, Some((kind, body))),
                _ => {}
            }
            heard.push((kind, body));
        }
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Exit {
        let status = self.child.wait().unwrap();
        let output = self.output.take().unwrap().join().unwrap();
        Exit {
            code: status.code(),
            signal: status.signal(),
            output: String::from_utf8_lossy(&output).into_owned(),
        }
    }

    /// Closes the daemon's end.
    pub(crate) fn hang_up(&self) {
        self.socket.shutdown(std::net::Shutdown::Both).unwrap();
    }

    /// Writes bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("/bin/kill")
                .args([name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
