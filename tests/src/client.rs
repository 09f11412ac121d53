//! An MCP client at the pipes of a real ptc-mcp, on bare JSON lines.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::Process;
use crate::wait::{PATIENCE, eventually};

/// One answer of `execute_program`.
#[derive(Debug)]
pub struct Run {
    /// The whole result member.
    pub result: Value,
    /// Its first text block.
    pub text: String,
    /// Its structured content; null where there is none.
    pub structured: Value,
    /// Whether it counts as a failure.
    pub is_error: bool,
}

impl Run {
    /// Takes a `tools/call` result apart.
    #[track_caller]
    pub fn of(result: Value) -> Self {
        let text = result["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no text in {result}"))
            .to_owned();
        Self {
            text,
            structured: result["structuredContent"].clone(),
            is_error: result["isError"] == json!(true),
            result,
        }
    }

    /// The text without the trace, whose seconds differ from run to run.
    pub fn without_trace(&self) -> &str {
        self.text
            .find("\n[tool calls: ")
            .and_then(|at| self.text.get(..at))
            .unwrap_or(&self.text)
            .trim_end()
    }

    /// What it printed, on a success.
    #[track_caller]
    pub fn printed(&self) -> &str {
        self.without_trace()
            .strip_prefix("[Script executed successfully]\n")
            .unwrap_or_else(|| panic!("no success: {}", self.text))
    }
}

/// A client; dropped, its shim is killed.
#[derive(Debug)]
pub struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    answers: HashMap<String, Value>,
    /// Messages without an id of ours, in order.
    pub notices: Vec<Value>,
    next: u64,
}

impl Client {
    /// Starts the shim.
    #[track_caller]
    pub(crate) fn start(mut command: Command, stderr: &Path) -> Self {
        let stderr = File::options()
            .create(true)
            .append(true)
            .open(stderr)
            .expect("a file for the shim's stderr");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("ptc-mcp to start");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("its stdout");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            stdin,
            lines,
            answers: HashMap::new(),
            notices: Vec::new(),
            next: 1,
        }
    }

    /// The shim's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes bytes as they are.
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("an open stdin");
        stdin.write_all(bytes).expect("the shim to read");
        stdin.flush().expect("the shim to read");
    }

    /// Writes one message.
    #[track_caller]
    pub fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    /// Sends a request under an id of the test's choice.
    #[track_caller]
    pub fn send_request(&mut self, id: &Value, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    /// Sends a request and gives its id.
    #[track_caller]
    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = json!(self.next);
        self.next += 1;
        self.send_request(&id, method, params);
        id
    }

    /// The next line, whatever it is.
    #[track_caller]
    pub fn line(&mut self, limit: Duration) -> Option<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => panic!("no line from ptc-mcp within {limit:?}"),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Waits for the answer to an id; other messages are kept.
    #[track_caller]
    pub fn answer(&mut self, id: &Value) -> Value {
        self.answer_within(id, PATIENCE * 2)
    }

    /// Waits so long for the answer to an id.
    #[track_caller]
    pub fn answer_within(&mut self, id: &Value, limit: Duration) -> Value {
        let end = Instant::now() + limit;
        let key = id.to_string();
        loop {
            if let Some(answer) = self.answers.remove(&key) {
                return answer;
            }
            let left = end.saturating_duration_since(Instant::now());
            let Some(line) = self.lines.recv_timeout(left).ok() else {
                panic!(
                    "no answer to {key} within {limit:?}; meanwhile came {:?}",
                    self.notices
                );
            };
            self.sort(&line);
        }
    }

    /// Takes in what has come until now without waiting.
    pub fn take_in(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            self.sort(&line);
        }
    }

    /// Whether an answer to this id has come.
    pub fn has_answer(&mut self, id: &Value) -> bool {
        self.take_in();
        self.answers.contains_key(&id.to_string())
    }

    #[track_caller]
    fn sort(&mut self, line: &str) {
        let message: Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{error} in a line of ptc-mcp: {line:.300}"));
        let is_answer = message.get("result").is_some() || message.get("error").is_some();
        match message.get("id") {
            Some(id) if is_answer && !id.is_null() => {
                let before = self.answers.insert(id.to_string(), message.clone());
                assert!(before.is_none(), "two answers to {id}: {before:?}");
            }
            _ => self.notices.push(message),
        }
    }

    /// Sends a request and waits for its result.
    #[track_caller]
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        let mut answer = self.answer(&id);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Shakes hands; gives the result of `initialize`.
    #[track_caller]
    pub fn initialize(&mut self, revision: &str) -> Value {
        let result = self.ask(
            "initialize",
            &json!({
                "protocolVersion": revision,
                "capabilities": {},
                "clientInfo": {"name": "ptc-tests", "version": "1"},
            }),
        );
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        result
    }

    /// Calls one of the daemon's tools.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Run {
        Run::of(self.ask("tools/call", &json!({"name": tool, "arguments": arguments})))
    }

    /// Runs a program to its end.
    #[track_caller]
    pub fn run(&mut self, code: &str) -> Run {
        self.call("execute_program", &json!({"code": code}))
    }

    /// Starts a program, and gives the id of the request.
    #[track_caller]
    pub fn start_run(&mut self, code: &str) -> Value {
        let params = json!({"name": "execute_program", "arguments": {"code": code}});
        self.request("tools/call", &params)
    }

    /// Waits for the end of a program started before.
    #[track_caller]
    pub fn finish_run(&mut self, id: &Value) -> Run {
        let mut answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        Run::of(answer["result"].take())
    }

    /// Cancels a request.
    #[track_caller]
    pub fn cancel(&mut self, id: &Value) {
        self.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id},
        }));
    }

    /// Closes the shim's stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Kills the shim and waits until the system has it no more.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends the shim a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(process) = Process::of(self.pid()) {
            process.signal(signal);
        }
    }

    /// Waits for the shim's end.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        eventually("ptc-mcp ends", limit, || {
            self.child.try_wait().expect("its state")
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
