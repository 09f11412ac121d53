//! Compares the journal that a course left with what its clients were told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ptc_tests::Home;
use serde_json::Value;

use super::ledger::Ledger;

/// No finished run may be lost, and none may be called finished that was not.
pub(super) fn check(home: &Home, ledger: &Ledger) {
    let folder = home.state().join("journal");
    let mut ended: BTreeMap<String, String> = BTreeMap::new();
    let mut cut = 0;
    for log in files(&folder, "jsonl") {
        let text = std::fs::read(&log).unwrap_or_default();
        for line in text
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let Ok(line) = serde_json::from_slice::<Value>(line) else {
                cut += 1;
                continue;
            };
            if line["event"] == "end" {
                let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let run = word(&line["run"]);
                let before = ended.insert(run.clone(), word(&line["record"]["ending"]));
                if before.is_some() {
                    ledger.finding(format!("run {run} ended twice in the log"));
                }
            }
        }
    }
    for _ in 0..cut {
        ledger.count("lines of the call log cut short");
    }
    if ended.is_empty() {
        ledger.finding(format!("no run is in {}", folder.display()));
    }
    for (run, nonce) in ledger.all_finished() {
        match ended.get(&run).map(String::as_str) {
            Some("finished") => ledger.count("finished runs found in the log"),
            other => ledger.finding(format!("run {run} of {nonce} is {other:?} in the log")),
        }
    }
    for file in files(&folder.join("runs"), "json") {
        let text = std::fs::read(&file).unwrap_or_default();
        // Behind the head stands what the kernel counted, unless the daemon ended before.
        let mut lines = text.split(|byte| *byte == b'\n');
        let head = lines.next().unwrap_or_default();
        let whole = lines.next().map(serde_json::from_slice::<Value>);
        if !matches!(whole, Some(Ok(_))) {
            ledger.count("files of runs without what the kernel counted");
        }
        let Ok(kept) = serde_json::from_slice::<Value>(head) else {
            // The daemon may have ended while it wrote; the log has the run's end all the same.
            ledger.count("files of runs cut short");
            continue;
        };
        if kept["record"]["ending"] == "finished" {
            let parts = std::fs::read(file.with_extension("parts")).unwrap_or_default();
            judge(&kept, &printed(&parts), ledger);
        }
    }
}

/// What a run printed, from the file of its parts, which has one a line.
fn printed(parts: &[u8]) -> String {
    let lines = parts.split(|byte| *byte == b'\n');
    let mut read = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let output = read.find_map(|part| Some(part["output"]["output"].as_str()?.to_owned()));
    output.unwrap_or_default()
}

/// A program that finished has printed its last line.
fn judge(kept: &Value, output: &str, ledger: &Ledger) {
    let nonce = output
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("begin "))
        .unwrap_or_default();
    if nonce.is_empty() || output.lines().last() != Some(&*format!("end {nonce}")) {
        ledger.finding(format!(
            "a run is called finished that was not: {kept:.600}"
        ));
    }
    ledger.count("files of finished runs that did finish");
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    found
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == extension))
        .collect()
}

/// The comparison must tell right from wrong.
pub(crate) fn a_wrong_record_is_caught() {
    let judged = |output: &str| {
        let ledger = Ledger::default();
        let kept = serde_json::json!({"record": {"ending": "finished"}});
        let part = serde_json::json!({"output": {"output": output, "stdout": "", "stderr": ""}});
        let parts = format!("{{\"program\":\"output\"}}\n{part}\n");
        judge(&kept, &printed(parts.as_bytes()), &ledger);
        ledger.is_bad()
    };
    assert!(!judged("begin n-1\nsame\nend n-1\n"));
    for wrong in ["", "begin n-1\nsame\n", "begin n-1\nend n-2\n"] {
        assert!(judged(wrong), "{wrong:?}");
    }
}
