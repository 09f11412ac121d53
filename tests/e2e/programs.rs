//! Programs as data: a folder a case, each run as a client would send it.
//!
//! A case is `tests/programs/NAME/program.py` and its `expected.json`. The
//! server is called `m` and is the scripted one.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::programs::data;
use ptc_tests::suite::trial;
use ptc_tests::{Client, Daemon, Home, Plan, Run, TestResult};
use serde::Deserialize;
use serde_json::Value;

/// What a case must give.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// Whether it says something only of programs that are confined.
    #[serde(default)]
    confined: bool,
    ok: bool,
    /// The whole output.
    output: Option<String>,
    #[serde(default)]
    output_contains: Vec<String>,
    #[serde(default)]
    error_contains: Vec<String>,
    /// Counts from 1 in the program as sent.
    error_line: Option<u64>,
    result: Option<Value>,
    ending: Option<String>,
    /// Tools called, in the order of their records.
    calls: Option<Vec<String>>,
}

/// The daemon all cases share; it ends with the last of them.
struct Party {
    client: Mutex<Client>,
    _daemon: Daemon,
    _home: Home,
}

impl Party {
    fn new() -> Self {
        let home = Home::new(
            &Plan::new()
                .server("m", &[])
                .set("execution.timeout_seconds", 5),
        );
        let daemon = home.daemon();
        daemon.wait_for("m", ServerState::Ready);
        Self {
            client: Mutex::new(home.client()),
            _daemon: daemon,
            _home: home,
        }
    }
}

pub(super) fn tests() -> Vec<Trial> {
    let party: Arc<OnceLock<Party>> = Arc::default();
    let mut names: Vec<String> = std::fs::read_dir(data("programs"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|name| {
            let party = Arc::clone(&party);
            let folder = data("programs").join(&name);
            trial("programs", &name, move || check(&folder, &party))
        })
        .collect()
}

fn check(folder: &Path, party: &OnceLock<Party>) -> TestResult {
    let code = std::fs::read_to_string(folder.join("program.py"))?;
    let expected: Expected =
        serde_json::from_str(&std::fs::read_to_string(folder.join("expected.json"))?)?;
    if expected.confined {
        ptc_tests::machine::needs_tier()?;
    }
    let party = party.get_or_init(Party::new);
    let run = {
        let mut client = party.client.lock().unwrap_or_else(PoisonError::into_inner);
        let id = client.start_run(&code);
        client.finish_run(&id)
    };
    compare(&run, &expected);
    Ok(())
}

fn compare(run: &Run, expected: &Expected) {
    let form = &run.structured;
    assert_eq!(form["ok"], expected.ok, "{}", run.text);
    assert_eq!(run.is_error, !expected.ok);
    let output = form["output"].as_str().unwrap_or_default();
    if let Some(whole) = &expected.output {
        assert_eq!(output, whole, "{}", run.text);
    }
    for part in &expected.output_contains {
        assert!(
            output.contains(part),
            "{part:?} is not in the output {output:?}"
        );
    }
    let error = form["error"].as_str().unwrap_or_default();
    for part in &expected.error_contains {
        assert!(
            error.contains(part),
            "{part:?} is not in the error:\n{error}"
        );
    }
    if let Some(line) = expected.error_line {
        assert!(
            error.contains(&format!("line {line}")),
            "not at line {line}:\n{error}"
        );
    }
    if let Some(result) = &expected.result {
        assert_eq!(&form["result"], result);
    }
    if let Some(ending) = &expected.ending {
        assert_eq!(&form["ending"], ending);
    }
    if let Some(calls) = &expected.calls {
        let made: Vec<&str> = form["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|call| call["tool"].as_str())
            .collect();
        assert_eq!(&made, calls);
    }
}
