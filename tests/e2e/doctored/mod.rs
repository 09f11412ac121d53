//! Records that somebody changed by hand: a replay says so, and names the call at which.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod kinds;

use std::path::PathBuf;
use std::time::Duration;

use super::replay::{recording, replay};
use kinds::{CALLS, HEADS, PARTS};
use libtest_mimic::Trial;
use ptc_tests::wait::until;
use ptc_tests::{Client, Home, TestResult};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        each_kind_of_doctoring_is_caught_at_the_right_call,
        a_file_that_was_cut_within_a_line_is_refused,
        a_claim_written_into_a_record_is_not_believed,
    ]
}

/// Two calls at once, three in a row, one that fails, lots, a helper, output, a value.
const PROGRAM: &str = "\
import asyncio, random
log = []
async def one(ms):
    await mcp__m__sleep(ms=ms)
    log.append(ms)
await asyncio.gather(one(30), one(1))
print(log)
t = 0
for i in range(3):
    r = await mcp__m__add(a=t, b=i + 1)
    t = r['sum']
try:
    await mcp__m__fail(message='no')
except ToolError as e:
    print(e.kind, e.retryable, e)
print(t, random.random(), (await inspect_tool(tool_name='mcp__m__add'))['name'])
emit({'t': t})
";

/// How long a worker may take to be gone.
const LIMIT: Duration = Duration::from_secs(30);

/// What a replay says of every record that is not the one that was written.
const CHANGED: &str = "the record on disk is not the one that was written";

/// The two files of one run, as they were written and as they are changed.
struct Record {
    files: [PathBuf; 2],
    written: [String; 2],
    head: Value,
    /// The line behind the head.
    usage: Value,
    parts: Vec<Value>,
}

impl Record {
    fn of(home: &Home, run: &str) -> Self {
        let runs = home.state().join("journal/runs");
        let files = ["json", "parts"].map(|ending| runs.join(format!("{run}.{ending}")));
        let read = || {
            files
                .each_ref()
                .map(|file| std::fs::read_to_string(file).expect("a file of the record"))
        };
        // What the kernel counted comes after the answer.
        until("its usage is in the record", LIMIT, || {
            read()[0].contains("\n{")
        });
        let written = read();
        let [head, parts] = &written;
        let line = |line: &str| serde_json::from_str(line).expect("a line");
        let (head, usage) = head.split_once('\n').expect("two lines");
        Self {
            head: line(head),
            usage: line(usage),
            parts: parts.lines().map(line).collect(),
            files,
            written,
        }
    }

    /// The only part of a kind.
    fn part(&mut self, kind: &str) -> &mut Value {
        let mut parts = self.parts.iter_mut();
        let found = parts.find_map(|part| part.get_mut(kind));
        found.unwrap_or_else(|| panic!("there is no {kind}"))
    }

    fn call(&mut self, number: u64) -> &mut Value {
        let calls = self
            .parts
            .iter_mut()
            .filter_map(|part| part.get_mut("call"));
        let mut calls = calls.filter(|call| call["call"] == number);
        calls
            .next()
            .unwrap_or_else(|| panic!("there is no call {number}"))
    }

    /// The text of the file of parts.
    fn lines(&self) -> String {
        let lines: Vec<String> = self.parts.iter().map(Value::to_string).collect();
        lines.join("\n") + "\n"
    }

    fn facts(&mut self) -> &mut Value {
        &mut self.head["record"]["facts"]
    }

    /// Writes the changed record; a head that was not changed stays as it is, to the byte.
    fn save(&self) {
        let (head, usage) = self.written[0].split_once('\n').expect("two lines");
        let line = |written: &str, value: &Value| {
            let untouched = *value == serde_json::from_str::<Value>(written).expect("it");
            if untouched {
                written.to_owned()
            } else {
                value.to_string()
            }
        };
        let head = [line(head, &self.head), line(usage, &self.usage)].join("\n");
        self.write([&head, &self.lines()]);
    }

    fn write(&self, texts: [&str; 2]) {
        for (file, text) in self.files.iter().zip(texts) {
            std::fs::write(file, text).expect("the record to be written");
        }
    }

    /// Puts the files back.
    fn restore(&self) {
        self.write([&self.written[0], &self.written[1]]);
    }
}

/// A home whose only run is that of [`PROGRAM`], its client, and the run's id.
fn recorded() -> (Home, ptc_tests::Daemon, Client, String) {
    let (home, daemon, mut client) = recording();
    let run = client.run(PROGRAM);
    assert!(!run.is_error, "{}", run.text);
    let id = run.structured["run"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (home, daemon, client, id)
}

/// The level that `ptcctl runs RUN` tells.
fn level(home: &Home, run: &str) -> Value {
    provenance(home, run)["level"].clone()
}

/// What `ptcctl runs RUN` tells of where the output comes from.
fn provenance(home: &Home, run: &str) -> Value {
    let (_, out, err) = home.ctl(&["--json", "runs", run]);
    let shown: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {err}"));
    shown["provenance"].clone()
}

fn each_kind_of_doctoring_is_caught_at_the_right_call() -> TestResult {
    let (home, _daemon, _client, run) = recorded();
    let mut missed = Vec::new();
    for (what, doctor, says) in CALLS.iter().chain(&PARTS).chain(&HEADS) {
        let mut record = Record::of(&home, &run);
        doctor(&mut record);
        record.save();
        let (exit, said) = replay(&home, &run);
        let differences = said["differences"].as_array().cloned().unwrap_or_default();
        let told = |words: &str| {
            let mut texts = differences.iter().filter_map(Value::as_str);
            texts.any(|text| text.contains(words))
        };
        let seen = exit == 1 && said["verdict"] == "different" && told(CHANGED);
        if !seen || !says.iter().all(|words| told(words)) || level(&home, &run) != "unverified" {
            missed.push(format!("{what}, of which {says:?} is to be said: {said:#}"));
        }
        record.restore();
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    // It was the doctoring that was seen, and none of it is left.
    let (exit, said) = replay(&home, &run);
    assert_eq!((exit, &said["verdict"]), (0, &json!("same")), "{said:#}");
    assert_eq!(level(&home, &run), "replayed");
    Ok(())
}

fn a_file_that_was_cut_within_a_line_is_refused() -> TestResult {
    let (home, _daemon, _client, run) = recorded();
    let record = Record::of(&home, &run);
    let [head, parts] = &record.written;
    let cut = |text: &str| text.get(..text.len() - 20).unwrap_or_default().to_owned();
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    for texts in [
        [head, &cut(parts)],
        [&cut(&first(head)), parts],
        [&String::new(), parts],
    ] {
        record.write(texts.map(String::as_str));
        let (exit, out, err) = home.ctl(&["replay", &run]);
        assert_eq!((exit, out.as_str()), (1, ""), "{err}");
        assert!(err.contains("cannot read the journal at "), "{err}");
    }
    // Nor is anything read that is no file of its own, the very text behind a link included.
    record.restore();
    let aside = home.path("aside");
    for file in &record.files {
        std::fs::rename(file, &aside)?;
        let refused = || {
            for verb in ["runs", "replay"] {
                let (exit, out, err) = home.ctl(&[verb, &run]);
                assert_eq!((exit, out.as_str()), (1, ""), "{err}");
                assert!(err.contains("cannot read the journal at "), "{err}");
            }
        };
        std::os::unix::fs::symlink(&aside, file)?;
        refused();
        std::fs::remove_file(file)?;
        std::fs::create_dir(file)?;
        refused();
        let (_, _, err) = home.ctl(&["runs", &run]);
        assert!(err.contains("it is no ordinary file"), "{err}");
        std::fs::remove_dir(file)?;
        // A pipe that nobody writes to is not waited for.
        assert!(
            std::process::Command::new("mkfifo")
                .arg(file)
                .status()?
                .success()
        );
        refused();
        std::fs::rename(&aside, file)?;
    }
    let (exit, said) = replay(&home, &run);
    assert_eq!((exit, &said["verdict"]), (0, &json!("same")), "{said:#}");
    std::fs::remove_file(&record.files[1])?;
    let (exit, _, err) = home.ctl(&["replay", &run]);
    assert_eq!(exit, 1);
    assert!(err.contains("cannot read the journal at "), "{err}");
    Ok(())
}

fn a_claim_written_into_a_record_is_not_believed() -> TestResult {
    let (home, daemon, mut client, run) = recorded();
    let mut record = Record::of(&home, &run);
    let hash = record.facts()["output_sha256"].clone();
    record.facts()["replayed"] = json!({"time_ms": 1, "output_sha256": hash});
    record.facts()["kind"] = json!("submission");
    record.facts()["submission"] = json!({"passed": true, "checks": ["shape"], "runs": []});
    record.save();
    let read = |client: &mut Client| {
        let uri = format!("ptc://runs/{run}/provenance");
        let read = client.ask("resources/read", &json!({ "uri": uri }));
        let text = read["contents"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let origin = read(&mut client);
    assert_eq!(origin["level"], "unverified", "{origin}");
    assert!(
        origin["reason"]
            .as_str()
            .is_some_and(|text| text.contains(CHANGED)),
        "{origin}"
    );
    // Nor by a daemon that finds it so at its start.
    drop(client);
    daemon.stop();
    let _daemon = home.daemon();
    let mut client = home.client();
    let list = client.ask("resources/list", &json!({}));
    let about = list["resources"][0]["description"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(about.starts_with("finished, unverified: "), "{about}");
    assert_eq!(read(&mut client)["level"], "unverified");
    let shown = provenance(&home, &run);
    assert_eq!(shown["level"], "unverified");
    assert!(
        shown["reason"]
            .as_str()
            .is_some_and(|text| text.contains(CHANGED)),
        "{shown}"
    );
    Ok(())
}
