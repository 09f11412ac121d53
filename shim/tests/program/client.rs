//! A client that has started a program on pipes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use serde_json::Value;

use super::{LIMIT, eventually};

pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"setup-check","version":"0"}}}"#;
pub(crate) const CALL: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_program","arguments":{"code":"print(6 * 7)"}}}"#;

/// A running program.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<thread::JoinHandle<String>>,
}

/// A command with nothing of this process's environment but `PATH`.
pub(crate) fn command(program: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home);
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

impl Client {
    /// Starts the built shim towards a socket.
    pub(crate) fn shim(home: &Path, arguments: &[&str]) -> Self {
        let mut command = command(env!("CARGO_BIN_EXE_ptc-mcp"), home);
        command.env("PTC_SOCKET", home.join("ptcd.sock"));
        command.args(arguments);
        Self::start(command)
    }

    pub(crate) fn start(command: Command) -> Self {
        Self::start_to(command, Stdio::piped())
    }

    /// Starts it with its stderr in a file, which can be read while it runs.
    pub(crate) fn start_with_stderr(command: Command, file: &Path) -> Self {
        Self::start_to(command, std::fs::File::create(file).unwrap().into())
    }

    fn start_to(mut command: Command, stderr: Stdio) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let stderr = child.stderr.take();
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut stderr) = stderr {
                let _ = stderr.read_to_string(&mut text);
            }
            text
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
            stderr: Some(stderr),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.flush().unwrap();
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.raw(format!("{line}\n").as_bytes());
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The next line of stdout.
    pub(crate) fn text(&mut self) -> String {
        self.lines.recv_timeout(LIMIT).expect("a line on stdout")
    }

    pub(crate) fn line(&mut self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text}"))
    }

    /// Id, error code and message of the next line.
    pub(crate) fn error(&mut self) -> (Value, i64, String) {
        let line = self.line();
        let error = &line["error"];
        let code = error["code"].as_i64().unwrap_or_else(|| panic!("{line}"));
        (
            line["id"].clone(),
            code,
            error["message"].as_str().unwrap().to_owned(),
        )
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits for the program's end, after which stdout must have nothing more.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let status = eventually("the program's end", || self.child.try_wait().unwrap());
        match self.lines.recv_timeout(LIMIT) {
            Err(RecvTimeoutError::Disconnected) => status,
            other => panic!("stdout goes on: {other:?}"),
        }
    }

    /// What it wrote to stderr, once it has ended.
    pub(crate) fn stderr(&mut self) -> String {
        self.end();
        self.stderr.take().unwrap().join().unwrap()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
