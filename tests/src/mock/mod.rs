//! A scripted MCP server over stdio, with a switch for each way to misbehave.
//!
//! It is written on bare JSON lines, so that a fault of an MCP library cannot
//! hide the same fault in the programs under test.

mod modern;
mod options;
mod script;
mod tools;

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use options::Options;
use script::Script;

/// The revisions this server agrees to; it answers others with the newest.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Serves until stdin ends.
pub fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            complain(&format!("mock-mcp: {error}"));
            return ExitCode::from(2);
        }
    };
    if let Some(code) = options.exit_at_start {
        complain("mock-mcp: cannot find my licence file");
        return ExitCode::from(code);
    }
    if options.stderr_flood {
        // A reader that waits for a newline would stop reading here, and the server with it.
        for _ in 0..256 {
            let _ = std::io::stderr().write_all(&[b'.'; 16 * 1024]);
        }
    }
    let script = match options.script.as_deref().map(Script::read).transpose() {
        Ok(script) => script,
        Err(error) => {
            complain(&format!("mock-mcp: its script cannot be used: {error:#}"));
            return ExitCode::from(2);
        }
    };
    let server = Arc::new(Server {
        options,
        script,
        state: Mutex::default(),
    });
    if server.options.banner {
        server.write_line("mock-mcp 1.0 starting");
        server.write_line("{\"level\": \"info\", \"text\": \"ready\"}");
    }
    server.serve();
    if server.options.stubborn {
        loop {
            std::thread::park();
        }
    }
    ExitCode::SUCCESS
}

#[derive(Debug, Default)]
struct State {
    counts: BTreeMap<String, u64>,
    cancelled: HashSet<String>,
    held_back: Vec<String>,
    /// Whether `initialize` has spoilt a server of the newer revision.
    spoilt: bool,
    /// Ids of open subscriptions.
    listening: Vec<Value>,
}

#[derive(Debug)]
struct Server {
    options: Options,
    script: Option<Script>,
    state: Mutex<State>,
}

impl Server {
    fn serve(self: &Arc<Self>) {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            match input.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if self.options.verbatim && self.answer_verbatim(&line) {
                continue;
            }
            if let Ok(message) = serde_json::from_slice::<Value>(&line) {
                self.take(&message);
            }
        }
    }

    fn take(self: &Arc<Self>, message: &Value) {
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            return;
        };
        *self.state().counts.entry(method.to_owned()).or_default() += 1;
        let params = message.get("params").cloned().unwrap_or_default();
        let Some(id) = message.get("id").cloned() else {
            self.take_notification(method, &params);
            return;
        };
        if let Some(how) = self.options.modern
            && self.take_modern(how, method, &id, &params)
        {
            return;
        }
        match method {
            "initialize" => self.initialize(&id, &params),
            "ping" => self.answer(&id, &json!({})),
            "tools/list" => self.list(&id, &params),
            "tools/call" => {
                let server = Arc::clone(self);
                std::thread::spawn(move || server.call(&id, &params));
            }
            _ => self.send(&json!({
                "jsonrpc": "2.0", "id": id,
                "error": {"code": -32601, "message": format!("no method {method}")},
            })),
        }
    }

    fn take_notification(self: &Arc<Self>, method: &str, params: &Value) {
        if method == "notifications/cancelled" {
            let id = params.get("requestId").cloned().unwrap_or_default();
            self.state().cancelled.insert(id.to_string());
        }
        if method == "notifications/initialized" {
            for _ in 0..self.options.list_changed_storm {
                self.send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
            }
        }
    }

    fn initialize(&self, id: &Value, params: &Value) {
        if self.options.no_init {
            return;
        }
        if let Some(pause) = self.options.slow_init {
            std::thread::sleep(pause);
        }
        let asked = params.get("protocolVersion").and_then(Value::as_str);
        let revision = asked
            .filter(|revision| REVISIONS.contains(revision))
            .unwrap_or("2025-11-25");
        self.answer(
            id,
            &json!({
                "protocolVersion": revision,
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "mock-mcp", "version": "1.0"},
            }),
        );
    }

    fn list(&self, id: &Value, params: &Value) {
        let tools = match &self.script {
            Some(script) => script.tools.clone(),
            None => tools::definitions(),
        };
        let Some(page) = self.options.paged else {
            self.answer(id, &json!({"tools": tools}));
            return;
        };
        let from: usize = params
            .get("cursor")
            .and_then(Value::as_str)
            .and_then(|cursor| cursor.parse().ok())
            .unwrap_or(0);
        let part: Vec<&Value> = tools.iter().skip(from).take(page).collect();
        let mut result = json!({"tools": part});
        if from + page < tools.len() {
            result["nextCursor"] = json!((from + page).to_string());
        }
        self.answer(id, &result);
    }

    fn call(&self, id: &Value, params: &Value) {
        let name = params.get("name").and_then(Value::as_str).unwrap_or("");
        let empty = Map::new();
        let arguments = params
            .get("arguments")
            .and_then(Value::as_object)
            .unwrap_or(&empty);
        if let Some(script) = &self.script
            && !["stats", "rows", "big"].contains(&name)
        {
            return self.write_line(&script.answer(id, name, arguments));
        }
        if name == "echo" && self.misbehave(id, arguments) {
            return;
        }
        let result = match name {
            "sleep" => match self.sleep(id, arguments) {
                Some(result) => result,
                None => return,
            },
            "add" if self.options.bad_sum => tools::structured(&json!({"sum": "many"})),
            "stats" => tools::structured(&json!(self.state().counts)),
            _ => tools::call(name, arguments, self.options.figures.as_deref()),
        };
        self.answer_call(id, &result);
    }

    /// Waits as told; `None` once the call was cancelled, since no answer is due then.
    fn sleep(&self, id: &Value, arguments: &Map<String, Value>) -> Option<Value> {
        let ms = arguments.get("ms").and_then(Value::as_u64).unwrap_or(0);
        let end = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < end {
            if self.state().cancelled.contains(&id.to_string()) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(tools::text("slept"))
    }

    /// Does what the switches say with a call of `echo`; true when the call is dealt with.
    fn misbehave(&self, id: &Value, arguments: &Map<String, Value>) -> bool {
        let options = &self.options;
        let armed = options.die_mid_call
            || options.hang
            || options.lie
            || options.id_zero
            || options.oversize.is_some();
        if !armed || !options.misbehaves_now() {
            return false;
        }
        if options.die_mid_call {
            complain("mock-mcp: giving up in the middle");
            std::process::exit(9);
        }
        let result = tools::call("echo", arguments, None);
        if options.lie {
            self.send(&json!({
                "jsonrpc": "2.0", "id": id, "result": result,
                "error": {"code": -32000, "message": "and an error"},
            }));
        } else if options.id_zero {
            self.answer(&json!(0), &result);
        } else if let Some(bytes) = options.oversize {
            self.answer(id, &tools::text(&"x".repeat(bytes)));
        }
        true
    }

    /// Answers a call whose answer must not pass through a reader of JSON; false where it is another line.
    fn answer_verbatim(&self, line: &[u8]) -> bool {
        #[derive(serde::Deserialize)]
        struct Message<'a> {
            #[serde(borrow)]
            id: &'a RawValue,
            #[serde(borrow)]
            params: Params<'a>,
        }
        #[derive(serde::Deserialize)]
        struct Params<'a> {
            name: String,
            #[serde(borrow)]
            arguments: &'a RawValue,
        }
        #[derive(serde::Deserialize)]
        struct Text {
            json: String,
        }
        let Ok(Message { id, params }) = serde_json::from_slice::<Message<'_>>(line) else {
            return false;
        };
        let given = params.arguments.get();
        let result = match (params.name.as_str(), serde_json::from_str::<Text>(given)) {
            // A line end in it can only be white space.
            ("raw_result", Ok(text)) => text.json.replace('\n', " "),
            ("echo", _) => tools::text(&format!("arguments: {given}")).to_string(),
            _ => return false,
        };
        self.write_line(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}"
        ));
        true
    }

    fn answer_call(&self, id: &Value, result: &Value) {
        let Some(count) = self.options.reorder else {
            self.answer(id, result);
            return;
        };
        let line = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        let mut state = self.state();
        state.held_back.push(line);
        if state.held_back.len() >= count {
            let lines = std::mem::take(&mut state.held_back);
            drop(state);
            for line in lines.iter().rev() {
                self.write_line(line);
            }
        }
    }

    fn answer(&self, id: &Value, result: &Value) {
        let mut result = result.clone();
        if self.options.modern.is_some() {
            result["resultType"] = json!("complete");
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn send(&self, message: &Value) {
        self.write_line(&message.to_string());
    }

    fn write_line(&self, line: &str) {
        // One write a line, under the state's lock, so that lines of two threads never mix.
        let _state = self.state();
        let mut bytes = line.as_bytes().to_vec();
        bytes.push(b'\n');
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&bytes).and_then(|()| out.flush());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
