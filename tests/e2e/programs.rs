//! Programs as data: a folder a case, each run as a client would send it.
//!
//! A case is `tests/programs/NAME/program.py` and its `expected.json`. The
//! server is called `m` and is the scripted one.
#![expect(clippy::panic, reason = "a test fails by panicking")]

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
pub(crate) struct Expected {
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

#[track_caller]
fn compare(run: &Run, expected: &Expected) {
    if let Some(difference) = differs(run, expected) {
        panic!("{difference}");
    }
}

/// How a run is not what was expected.
pub(crate) fn differs(run: &Run, expected: &Expected) -> Option<String> {
    let form = &run.structured;
    if form["ok"] != expected.ok || run.is_error == expected.ok {
        return Some(run.text.clone());
    }
    let output = form["output"].as_str().unwrap_or_default();
    if let Some(whole) = &expected.output
        && output != whole
    {
        return Some(format!(
            "the output is {output:?} and not {whole:?}\n{}",
            run.text
        ));
    }
    if let Some(part) = expected
        .output_contains
        .iter()
        .find(|part| !output.contains(*part))
    {
        return Some(format!("{part:?} is not in the output {output:?}"));
    }
    let error = form["error"].as_str().unwrap_or_default();
    if let Some(part) = expected
        .error_contains
        .iter()
        .find(|part| !error.contains(*part))
    {
        return Some(format!("{part:?} is not in the error:\n{error}"));
    }
    if let Some(line) = expected.error_line
        && !error.contains(&format!("line {line}"))
    {
        return Some(format!("not at line {line}:\n{error}"));
    }
    if let Some(result) = &expected.result
        && &form["result"] != result
    {
        return Some(format!("the result is {} and not {result}", form["result"]));
    }
    if let Some(ending) = &expected.ending
        && &form["ending"] != ending
    {
        return Some(format!("the ending is {} and not {ending}", form["ending"]));
    }
    let made = form["tool_calls"].as_array().into_iter().flatten();
    let made: Vec<&str> = made.filter_map(|call| call["tool"].as_str()).collect();
    match &expected.calls {
        Some(calls) if &made != calls => Some(format!("the calls are {made:?} and not {calls:?}")),
        _ => None,
    }
}
