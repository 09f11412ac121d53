//! Kills a process while it writes, again and again, and looks at what it left.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ptc_protocol::facts::Facts;
use ptc_protocol::run::{Confinement, Ending, RunRecord};
use serde_json::Value;

use super::{CallEnd, CallStart, Ended, Journal, RunStart, now_ms};
use crate::config::mask::Masker;
use crate::config::{Config, JournalConfig, Record};

/// Where the writing process finds its folder; without it there is nothing to write.
const FOLDER: &str = "PTC_TEST_JOURNAL_FOLDER";
const ROUNDS: u64 = 12;
const CALLS: u64 = 3;

fn open(folder: &Path) -> Journal {
    let config = JournalConfig {
        record: Record::Full,
        ..Config::default().journal
    };
    let masker = Masker::with_key([3; 32], &BTreeMap::new());
    Journal::open(&config, folder, masker).unwrap()
}

/// What the run of a number prints: of very different lengths, so that some records take many writes.
fn output(number: u64) -> String {
    let lines = if number.is_multiple_of(5) { 60_000 } else { 20 };
    format!("line of {number}\n").repeat(lines)
}

fn one_run(journal: &Journal, number: u64) {
    let run = format!("r{number}");
    let start = RunStart {
        run: &run,
        session: "s",
        client: None,
        request: &Value::Null,
        program: "print(1)",
    };
    let recorder = journal.begin(&start).unwrap();
    for call in 1..=CALLS {
        let start = CallStart {
            call,
            tool: "mcp__a__b",
            server: "a",
            arguments: "{}",
            waited: Duration::ZERO,
        };
        recorder.before(&start).unwrap();
        let end = CallEnd {
            call,
            duration: Duration::ZERO,
            result: Ok("[1,2,3]"),
        };
        recorder.after(&end).unwrap();
    }
    let record = RunRecord {
        run: run.clone(),
        session: "s".to_owned(),
        client: None,
        started_ms: now_ms(),
        duration_ms: 1,
        ending: Ending::Finished,
        limit: None,
        confinement: Confinement::Full,
        calls: CALLS,
        failed_calls: 0,
        output_bytes: 1,
        result_bytes: 1,
        cpu_ms: None,
        peak_memory_bytes: None,
        error: None,
        facts: Facts::default(),
    };
    let output = output(number);
    let ended = Ended {
        output: &output,
        ..Ended::default()
    };
    let finished = recorder.finish(&record, &ended).unwrap();
    finished.add_usage(Duration::from_millis(2), 3).unwrap();
}

/// The process that is killed: this test by itself, with a folder to write to.
#[test]
fn writer() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        // Among the others it only shows that a run can be written at all.
        let folder = tempfile::tempdir().unwrap();
        one_run(&open(folder.path()), 5);
        return;
    };
    let journal = open(Path::new(&folder));
    let first = journal.runs().len() as u64;
    for number in first * 1000.. {
        one_run(&journal, number);
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "finished {number}").unwrap();
        stdout.flush().unwrap();
    }
}

#[test]
fn a_killed_writer_loses_no_finished_run_and_claims_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut finished: Vec<u64> = Vec::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "journal::killed::writer", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let numbers = lines.map_while(Result::ok).filter_map(|line| {
            let (_, number) = line.rsplit_once("finished ")?;
            number.parse::<u64>().ok()
        });
        // The moment within a run is the machine's to choose.
        let wanted = usize::try_from(1 + round * 7 % 11).unwrap();
        finished.extend(numbers.take(wanted));
        child.kill().unwrap();
        child.wait().unwrap();
        let journal = open(folder.path());
        for number in &finished {
            let run = format!("r{number}");
            let stored = journal.run(&run).unwrap().unwrap();
            assert!(stored.intact, "{run}");
            assert_eq!(stored.parts.output, Some(output(*number)), "{run}");
            assert_eq!(stored.parts.calls.len() as u64, CALLS, "{run}");
        }
        // Whatever else is listed had ended as well, and is whole.
        for record in journal.closed() {
            let stored = journal.run(&record.run).unwrap().unwrap();
            assert!(
                stored.intact && stored.parts.output.is_some(),
                "{}",
                record.run
            );
        }
        let names = std::fs::read_dir(folder.path().join("journal/runs")).unwrap();
        for path in names.map(|entry| entry.unwrap().path()) {
            let whole =
                path.with_extension("json").exists() && path.with_extension("parts").exists();
            assert!(whole, "{} was left half written", path.display());
        }
    }
}
