//! The demo: the daemon's real path, from an MCP client session to a confined worker, in one command.

pub mod server;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ptc_protocol::paths::{ConfigChoice, Places, variable};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

use crate::app::{self, App};

/// The program shown when none is named.
const PROGRAM: &str = include_str!("program.py");
/// How long any answer may take.
const PATIENCE: Duration = Duration::from_secs(150);

/// Runs a program against the demo server and prints what came of it.
pub async fn run(
    program: Option<&Path>,
    figures: Option<&Path>,
    umask: rustix::fs::Mode,
) -> anyhow::Result<()> {
    let code = match program {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?,
        None => PROGRAM.to_owned(),
    };
    let folder = Folder::make()?;
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, configuration(figures)?)?;
    let places = Places {
        socket: folder.path().join("s"),
        socket_named: true,
        state_root: folder.path().join("state"),
        state_dir: folder.path().join("state/demo"),
        config: ConfigChoice::Named(config),
        units: None,
    };
    let mut environment = app::environment::own();
    // What the demo shows is its output; what goes wrong is still said.
    environment
        .entry(variable::LOG.to_owned())
        .or_insert_with(|| "error".to_owned());
    let app = App::start(places, environment, umask).await?;
    let outcome = converse(&app, &code).await;
    let kept = app.totals();
    app.stop().await;
    let result = outcome?;
    show(&code, &result, kept.result_bytes)
}

/// A folder of mode 0700 that goes when dropped.
struct Folder(std::path::PathBuf);

impl Folder {
    fn make() -> anyhow::Result<Self> {
        let mut random = [0_u8; 6];
        getrandom::fill(&mut random).context("no random numbers")?;
        let path = std::env::temp_dir().join(format!("ptcd-demo-{}", ptc_protocol::hex(&random)));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn configuration(figures: Option<&Path>) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut args = vec![json!("demo-server")];
    if let Some(path) = figures {
        args.push(json!("--figures"));
        args.push(json!(std::path::absolute(path)?));
    }
    // JSON is YAML, and needs no thought about quotes.
    let server = json!({"name": "financial-data", "command": program, "args": args});
    Ok(json!({"servers": [server]}).to_string())
}

/// What an editor would do: initialize, list, call.
async fn converse(app: &App, code: &str) -> anyhow::Result<Value> {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let session = tokio::spawn(app.session(theirs, "demo"));
    let mut client = Client {
        stream: BufReader::new(ours),
        next: 0,
    };
    client
        .request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "demo", "version": "0"}}))
        .await?;
    client.notify("notifications/initialized").await?;
    let result = client.call("execute_program", json!({"code": code})).await;
    drop(client);
    let _ = tokio::time::timeout(Duration::from_secs(5), session).await;
    result
}

struct Client {
    stream: BufReader<DuplexStream>,
    next: u64,
}

impl Client {
    async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }

    async fn request(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        let answer = tokio::time::timeout(PATIENCE, async {
            let mut line = String::new();
            loop {
                line.clear();
                if self.stream.read_line(&mut line).await? == 0 {
                    bail!("the session ended");
                }
                let message: Value = serde_json::from_str(&line)?;
                if message["id"] == json!(id) {
                    return Ok(message);
                }
            }
        })
        .await
        .with_context(|| format!("no answer to {method}"))??;
        match answer.get("error") {
            Some(error) => bail!("{method}: {error}"),
            None => Ok(answer["result"].clone()),
        }
    }

    async fn notify(&mut self, method: &str) -> anyhow::Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "method": method}))
            .await
    }

    async fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        self.stream
            .write_all(format!("{message}\n").as_bytes())
            .await?;
        Ok(())
    }
}

fn show(code: &str, result: &Value, result_bytes: u64) -> anyhow::Result<()> {
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    let tier = result["structuredContent"]["confinement"]
        .as_str()
        .unwrap_or("nothing");
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "The program, as a model would send it to execute_program:\n"
    )?;
    for line in code.lines() {
        writeln!(out, "    {line}")?;
    }
    writeln!(out, "\nWhat comes back (confined by: {tier}):\n")?;
    for line in text.lines() {
        writeln!(out, "    {line}")?;
    }
    if result["isError"] == json!(true) {
        bail!("the demo's program did not run to its end; the reason is above");
    }
    writeln!(
        out,
        "\n{result_bytes} bytes of tool results stayed out of the context; {} bytes came back.\n",
        text.len()
    )?;
    next_step(&mut out)?;
    Ok(())
}

/// The shim is another package: it is there only once it was built.
fn next_step(out: &mut impl std::io::Write) -> anyhow::Result<()> {
    let shim = std::env::current_exe()?.with_file_name("ptc-mcp");
    if shim.is_file() {
        writeln!(
            out,
            "Next: claude mcp add --scope user ptc -- {}",
            shim.display()
        )?;
    } else {
        writeln!(
            out,
            "Next: build the shim beside it with `cargo build --release`, then add it to your editor (README)."
        )?;
    }
    Ok(())
}
