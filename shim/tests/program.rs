//! Runs the built `ptc-mcp` and `ptcctl` against a daemon played by the test.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

#[path = "program/client.rs"]
mod client;
#[path = "program/command_line.rs"]
mod command_line;
#[path = "program/dependencies.rs"]
mod dependencies;
#[path = "program/fake_daemon.rs"]
mod fake_daemon;
#[path = "program/launching.rs"]
mod launching;
#[path = "program/shim.rs"]
mod shim;
#[path = "program/skew.rs"]
mod skew;

use std::time::{Duration, Instant};

/// How long anything may take here before the test fails.
const LIMIT: Duration = Duration::from_secs(30);

/// Asks again and again until there is an answer.
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < until, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
