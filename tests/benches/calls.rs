//! Times what ptcd adds to a call: calls of a program against those of a client that has nothing but pipes and lines.
//!
//! The programs beside it have to be built: `cargo build --release --workspace --bins`.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends at the first thing that is not as it should be"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use ptc_protocol::status::ServerState;
use ptc_tests::programs::program;
use ptc_tests::{Home, Plan};
use serde_json::{Value, json};

/// Calls in one round.
const CALLS: u32 = 100;
/// Rounds, each of the program and then of the client.
const ROUNDS: usize = 15;

/// A client that does as little as a client can.
struct Raw {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: String,
}

impl Raw {
    fn start() -> Self {
        let mut child = Command::new(program("mock-mcp"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut this = Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            line: String::new(),
        };
        this.write(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"},
        }}));
        this.read();
        this.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        this
    }

    fn write(&mut self, message: &Value) {
        self.stdin
            .write_all(format!("{message}\n").as_bytes())
            .unwrap();
    }

    /// Reads up to the next answer.
    fn read(&mut self) {
        loop {
            self.line.clear();
            assert_ne!(self.stdout.read_line(&mut self.line).unwrap(), 0);
            let message: Value = serde_json::from_str(&self.line).unwrap();
            if message.get("result").is_some() {
                return;
            }
        }
    }

    fn ask(&mut self, id: u32) {
        self.write(
            &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
                "name": "echo", "arguments": {"word": "m"},
            }}),
        );
    }

    fn in_a_row(&mut self) -> f64 {
        let start = Instant::now();
        for id in 1..=CALLS {
            self.ask(id);
            self.read();
        }
        each(start)
    }

    /// At most eight are under way, as in a program.
    fn at_once(&mut self) -> f64 {
        let start = Instant::now();
        for id in 1..=CALLS + 8 {
            if id > 8 {
                self.read();
            }
            if id <= CALLS {
                self.ask(id);
            }
        }
        each(start)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Milliseconds a call.
fn each(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3 / f64::from(CALLS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let plan = Plan::new()
        .server("m", &[])
        .set("execution.max_tool_calls", 2 * CALLS);
    let home = Home::new(&plan);
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let mut raw = Raw::start();
    let begin = "import asyncio, time\nawait mcp__m__echo(word='warm')\nt = time.perf_counter()\n";
    let end = format!("\nprint((time.perf_counter() - t) * 1e3 / {CALLS})");
    let row = format!("for _ in range({CALLS}): await mcp__m__echo(word='m')");
    let once = format!("await asyncio.gather(*(mcp__m__echo(word='m') for _ in range({CALLS})))");
    println!("milliseconds a call      program      raw    added");
    for (name, calls) in [("one after another", row), ("at once", once)] {
        let (mut inside, mut outside, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let run = client.run(&format!("{begin}{calls}{end}"));
            let took: f64 = run.printed().trim().parse().unwrap();
            let direct = if name == "at once" {
                raw.at_once()
            } else {
                raw.in_a_row()
            };
            inside.push(took);
            outside.push(direct);
            added.push(took - direct);
        }
        println!(
            "{name:20} {:11.3} {:8.3} {:8.3}",
            median(inside),
            median(outside),
            median(added)
        );
    }
    drop(client);
    daemon.stop();
}
