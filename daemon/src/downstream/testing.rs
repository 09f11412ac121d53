//! A scripted server and its surroundings, for the tests of this room and its users.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{Address, Entry, Options, Target};
use crate::config::{Era, Scope, ServerConfig, Transport};

/// A server in a few lines: `MODE` overrides what it does.
const SERVER: &str = r#"
import json, os, signal, subprocess, sys, time
out = os.fdopen(os.dup(1), "wb", buffering=0)
counts, asked = {}, {}
def put(data):
    view = memoryview(data)
    while view:
        view = view[out.write(view):]
def send(message):
    put(json.dumps(message, ensure_ascii=False).encode() + b"\n")
def reply(m, result):
    send({"jsonrpc": "2.0", "id": m["id"], "result": result})
def raw(m, text):
    put(b'{"jsonrpc":"2.0","id":' + json.dumps(m["id"]).encode() + b',"result":' + text + b"}\n")
def text(value):
    return {"content": [{"type": "text", "text": value}]}
TOOLS = [{"name": "t", "inputSchema": {"type": "object"}}, {"name": "stats"}]
def initialize(m):
    reply(m, {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}},
              "serverInfo": {"name": "x", "version": "1"}})
def listing(m):
    reply(m, {"tools": TOOLS})
def call(m):
    reply(m, text("hello"))
def ask(method):
    send({"jsonrpc": "2.0", "id": "own-1", "method": method, "params": {}})
    return json.loads(sys.stdin.buffer.readline())
def eof():
    pass
exec(os.environ.get("MODE", ""))
while True:
    line = sys.stdin.buffer.readline()
    if not line:
        break
    m = json.loads(line)
    method = m.get("method", "answer")
    counts[method] = counts.get(method, 0) + 1
    if method == "initialize":
        initialize(m)
    elif method == "tools/list":
        listing(m)
    elif method == "tools/call" and m["params"]["name"] == "stats":
        reply(m, {"structuredContent": {"counts": counts, "pid": os.getpid(), "last": m}})
    elif method == "tools/call":
        call(m)
eof()
"#;

pub(crate) fn server(name: &str, mode: &str, base: &Path) -> ServerConfig {
    ServerConfig {
        name: name.to_owned(),
        transport: Transport::Stdio {
            command: python().to_owned(),
            args: vec![
                "-I".to_owned(),
                "-S".to_owned(),
                "-c".to_owned(),
                SERVER.to_owned(),
            ],
            env: BTreeMap::from([("MODE".to_owned(), mode.to_owned())]),
            cwd: None,
            base: base.to_owned(),
        },
        scope: Scope::Shared,
        start_timeout: Duration::from_secs(30),
        enabled: true,
        purpose: String::new(),
        trust_annotations: false,
        protocol: Era::Auto,
        max_concurrent_calls: 16,
    }
}

/// The real interpreter: a version manager's shim would add variables and time.
fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let script = "import sys; print(sys._base_executable)";
        let output = std::process::Command::new("python3")
            .args(["-c", script])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    })
}

pub(crate) fn options(folder: &Path) -> Options {
    Options {
        max_result_bytes: 1024 * 1024,
        expand: Arc::new(expand),
        recorded: Arc::new(|name| match name {
            "SOME_SECRET" => Some("hunter22".to_owned()),
            _ => std::env::var(name).ok(),
        }),
        log_dir: folder.to_owned(),
        lists_dir: folder.to_owned(),
        idle: Duration::from_mins(30),
        mask: Arc::new(|text| text.replace("hunter22", "<KEY>")),
        settled: Arc::new(str::len),
        own_program: None,
        umask: rustix::fs::Mode::from_raw_mode(0o022),
    }
}

fn expand(config: &ServerConfig, project: Option<&Path>) -> Result<Target, String> {
    let (command, args, env, cwd, base) = match &config.transport {
        Transport::Stdio {
            command,
            args,
            env,
            cwd,
            base,
        } => (command, args, env, cwd, base),
        Transport::Http { url, headers } | Transport::Sse { url, headers } => {
            return Ok(Target::Endpoint(Address {
                url: url.clone(),
                headers: headers.clone(),
            }));
        }
    };
    let project = project.map_or_else(String::new, |project| project.display().to_string());
    if env.contains_key("MISSING") {
        return Err("environment variable MISSING is not set".to_owned());
    }
    Ok(Target::Process(Entry {
        command: command.into(),
        args: args.clone(),
        env: env.clone(),
        cwd: cwd.as_ref().map_or_else(
            || base.clone(),
            |cwd| base.join(cwd.replace("${project}", &project)),
        ),
    }))
}

pub(crate) async fn eventually(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "it did not happen in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
