//! The record of what ran: every run and every call, on disk before it happens.
//!
//! All functions block for as long as a small write to a local file takes, and may be
//! called from async code. Those that say "may be large" read or write megabytes:
//! call them on a blocking thread. No lock of the journal is held while a caller waits.

mod call_log;
mod condition;
mod files;
mod finished;
mod head;
mod kept;
#[cfg(test)]
#[path = "tests/killed.rs"]
mod killed;
mod recorder;
mod retention;
mod run_file;
mod store;

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ptc_protocol::detail::DecisionEntry;
use ptc_protocol::facts::Replayed;
use ptc_protocol::run::{Ending, RunRecord, ToolErrorKind};
use serde_json::Value;

use self::call_log::{CallLog, Event, Line};
use self::condition::Place;
pub use self::finished::FinishedRun;
pub use self::kept::Changed;
pub use self::recorder::RunRecorder;
use self::retention::{Bounds, Found, Kind, Retention};
pub use self::run_file::{Context, QueryEntry};
use self::store::RunStore;
pub use self::store::{Parts, StoredRun};
use crate::config::mask::Masker;
use crate::config::{JournalConfig, Record, Share};

/// How often what is too old is removed while nothing happens.
const UPKEEP: Duration = Duration::from_mins(30);
const DAY: Duration = Duration::from_hours(24);

/// Why something is not in the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file or folder cannot be opened or made: the daemon must not start.
    #[error("cannot open the journal at {path}: {source}")]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file or folder is not the user's alone: the daemon must not start.
    #[error("the journal at {path} is not to be trusted: {fault}")]
    Untrusted {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// Another daemon writes to the same folder: this one must not start.
    #[error(
        "the journal at {path} belongs to another running ptcd: give each its own journal.path"
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// A line or file could not be written: what it would have recorded must not happen.
    #[error("cannot write to the journal at {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A log or a run could not be read.
    #[error("cannot read the journal at {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A run's id is no file name.
    #[error("a run id has 1 to 64 letters, digits, - and _")]
    RunId,
}

/// The journal of one daemon. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    record: Record,
    share: Share,
    masker: Masker,
    log: CallLog,
    store: RunStore,
    retention: Arc<Retention>,
    /// Held until the last clone is gone, so that two daemons never share a folder.
    _lock: File,
}

/// What is known when a run begins.
#[derive(Clone, Copy, Debug)]
pub struct RunStart<'a> {
    /// The run's id: 1 to 64 letters, digits, `-` and `_`.
    pub run: &'a str,
    /// Digest of the session ([`ptc_protocol::SessionId::label`]).
    pub session: &'a str,
    /// The client's self-declared label.
    pub client: Option<&'a str>,
    /// JSON-RPC id of the client's request.
    pub request: &'a Value,
    /// The program's text.
    pub program: &'a str,
}

/// One call that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct CallStart<'a> {
    /// Number of the call in its run.
    pub call: u64,
    /// Callable name.
    pub tool: &'a str,
    /// Name of the server.
    pub server: &'a str,
    /// The arguments as they are sent, JSON text.
    pub arguments: &'a str,
    /// What the gate said.
    pub decision: Option<&'a DecisionEntry>,
    /// How long it waited since the program asked for it.
    pub waited: Duration,
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub struct CallEnd<'a> {
    /// Number of the call in its run.
    pub call: u64,
    /// From the call's start to its end.
    pub duration: Duration,
    /// The value's JSON text, or the failure.
    pub result: Result<&'a str, CallFailure<'a>>,
}

/// How a call failed.
#[derive(Clone, Copy, Debug)]
pub struct CallFailure<'a> {
    /// Its kind.
    pub kind: ToolErrorKind,
    /// What the program was told.
    pub message: &'a str,
    /// Name of the server, where it is known.
    pub server: Option<&'a str>,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// What came along with the failure.
    pub data: Option<&'a Value>,
}

/// What a run gave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended<'a> {
    /// What it printed, in one order.
    pub output: &'a str,
    /// The beginning of what it printed on standard output.
    pub stdout: &'a str,
    /// The beginning of what it printed on standard error.
    pub stderr: &'a str,
    /// The emitted value, JSON text.
    pub result: Option<&'a str>,
}

/// What the log says about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRun {
    /// The run's id.
    pub run: String,
    /// How it ended; `None` where the daemon ended first.
    pub ending: Option<Ending>,
    /// The calls sent, in order.
    pub calls: Vec<LoggedCall>,
}

/// One call of a [`LoggedRun`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedCall {
    /// Number of the call in its run.
    pub call: u64,
    /// Callable name.
    pub tool: String,
    /// Name of the server.
    pub server: String,
    /// Whether a value came back; `None` where nobody knows whether the call took effect.
    pub ok: Option<bool>,
}

impl Journal {
    /// Opens the journal in `journal.path`, else in `journal` of the daemon's state folder.
    /// Any error must stop the daemon's start: no log line, no call.
    pub fn open(
        config: &JournalConfig,
        state_dir: &Path,
        masker: Masker,
    ) -> Result<Self, JournalError> {
        let folder = match &config.path {
            Some(path) => path.clone(),
            None => state_dir.join("journal"),
        };
        files::private_folder(&folder)?;
        let lock = files::lock(&folder)?;
        let left = store::prepare(&folder, &masker)?;
        let keep = DAY.saturating_mul(u32::try_from(config.keep_days).unwrap_or(u32::MAX));
        let logs = call_log::full_logs(&folder).into_iter().map(|path| {
            let bytes = path.symlink_metadata().map_or(0, |about| about.len());
            Found {
                path,
                bytes,
                kind: Kind::Log,
            }
        });
        let runs = left.files.into_iter().map(|(path, bytes)| Found {
            path,
            bytes,
            kind: Kind::Run,
        });
        let bounds = Bounds {
            bytes: config.keep_bytes,
            runs: config.keep_runs,
            age: keep,
        };
        let retention = Arc::new(Retention::new(bounds, logs.chain(runs).collect()));
        let log = CallLog::open(&folder, config.keep_bytes, Arc::clone(&retention))?;
        let recent = joined(left.records, log.tail(&[Event::End, Event::Usage])?);
        let keep = (config.keep_runs, keep);
        let store = RunStore::open(
            &folder,
            keep,
            Arc::clone(&retention),
            masker.clone(),
            recent,
        );
        keep_tidy(&retention);
        Ok(Self(Arc::new(Shared {
            record: config.record,
            share: config.share,
            masker,
            log,
            store,
            retention,
            _lock: lock,
        })))
    }

    /// Records that a run begins. An error means that it must not.
    pub fn begin(&self, start: &RunStart<'_>) -> Result<RunRecorder, JournalError> {
        RunRecorder::begin(&self.0, start)
    }

    /// A recorder that writes nothing: for the replay of a run, which calls nobody.
    pub fn unrecorded(&self, run: &str) -> RunRecorder {
        RunRecorder::mute(&self.0, run)
    }

    /// Notes that a run was repeated from its record with the same output. Whether it is still kept.
    pub fn replayed(&self, run: &str, output_sha256: &str) -> Result<bool, JournalError> {
        self.0.store.amend(run, |head| {
            head.record.facts.replayed = Some(Replayed {
                time_ms: now_ms(),
                output_sha256: output_sha256.to_owned(),
            });
        })
    }

    /// Bytes on disk that are counted in `journal.keep_bytes`, and what could not be written since the start.
    pub fn figures(&self) -> (u64, u64) {
        (self.0.retention.bytes(), self.0.log.condition.failures())
    }

    /// Why nothing may run for want of a journal: what failed last and still does. It is tried anew,
    /// so that a journal which can be written again is found so before a program asks for it.
    pub fn fault(&self) -> Option<String> {
        let condition = &self.0.log.condition;
        if condition.is_faulty(Place::Log) {
            self.0.log.mend();
        }
        if condition.is_faulty(Place::Runs) {
            condition.tried(Place::Runs, self.0.store.try_file());
        }
        condition.fault()
    }

    /// Whether a run's whole output is kept, so that an answer may name its record.
    pub fn keeps_output(&self) -> bool {
        self.0.record != Record::Off
    }

    /// The records of the newest finished runs, newest first: those in memory, at most 10,000.
    pub fn runs(&self) -> Vec<RunRecord> {
        self.0.store.recent()
    }

    /// Whose runs a client may see.
    pub fn share(&self) -> Share {
        self.0.share
    }

    /// A text as the journal keeps it: secrets out of it.
    pub fn mask(&self, text: &str) -> String {
        self.0.masker.mask(text).into_owned()
    }

    /// A text that was cut, as far as it can be masked: without what may be the beginning of a secret at its end.
    /// May be large.
    pub fn settled<'a>(&self, text: &'a str) -> &'a str {
        kept::settled(&self.0.masker, text)
    }

    /// Those of [`Journal::runs`] whose files are kept.
    pub fn closed(&self) -> Vec<RunRecord> {
        let mut runs = self.runs();
        runs.retain(|record| self.0.store.has(&record.run));
        runs
    }

    /// One finished run with its output; `None` where it is not kept. May be large.
    pub fn run(&self, run: &str) -> Result<Option<StoredRun>, JournalError> {
        self.0.store.load(run)
    }

    /// What the log says about the newest run that a session's request started; also after
    /// the daemon that ran it is gone. May be large.
    pub fn calls_of(
        &self,
        session: &str,
        request: &Value,
    ) -> Result<Option<LoggedRun>, JournalError> {
        let request = masked_id(&self.0.masker, request);
        let lines = self.0.log.of_request(session, &request)?;
        Ok(logged_run(lines))
    }
}

/// Removes what is too old from time to time, as long as the journal is open.
fn keep_tidy(retention: &Arc<Retention>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    let retention = Arc::downgrade(retention);
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            let Some(retention) = retention.upgrade() else {
                return;
            };
            let _ = tokio::task::spawn_blocking(move || retention.tidy()).await;
        }
    });
}

/// The records of finished runs and those that only the log has, oldest first.
fn joined(mut records: Vec<RunRecord>, lines: Vec<Line>) -> Vec<RunRecord> {
    let kept: HashSet<String> = records.iter().map(|record| record.run.clone()).collect();
    let logged = recent(lines);
    records.extend(
        logged
            .into_iter()
            .filter(|record| !kept.contains(&record.run)),
    );
    records.sort_by_key(RunRecord::ended_ms);
    records
}

/// The records of the runs that ended in these lines, oldest first.
fn recent(lines: Vec<Line>) -> Vec<RunRecord> {
    let mut records: Vec<RunRecord> = Vec::new();
    for line in lines {
        if let Some(mut record) = line.record {
            // A line of the log has no seal.
            head::unclaimed(&mut record);
            records.push(record);
        } else if let Some(record) = records.iter_mut().rev().find(|old| old.run == line.run) {
            record.cpu_ms = line.cpu_ms;
            record.peak_memory_bytes = line.peak_memory_bytes;
        }
    }
    records
}

/// The newest run of these lines.
fn logged_run(lines: Vec<Line>) -> Option<LoggedRun> {
    let mut found: Option<LoggedRun> = None;
    for line in lines {
        let run = match found.take() {
            Some(run) if run.run == line.run => run,
            _ => LoggedRun {
                run: line.run,
                ending: None,
                calls: Vec::new(),
            },
        };
        let run = found.insert(run);
        match (line.event, line.call) {
            (Event::Call, Some(call)) => run.calls.push(LoggedCall {
                call,
                tool: line.tool.unwrap_or_default(),
                server: line.server.unwrap_or_default(),
                ok: None,
            }),
            (Event::Result, Some(call)) => {
                if let Some(logged) = run.calls.iter_mut().find(|logged| logged.call == call) {
                    logged.ok = line.ok;
                }
            }
            (Event::End, _) => run.ending = line.record.map(|record| record.ending),
            // A refused call was never sent, so it took no effect.
            _ => {}
        }
    }
    found
}

/// A client's request id, which is a text of its choice.
fn masked_id(masker: &Masker, request: &Value) -> Value {
    match request {
        Value::String(text) => masker.mask(text).into_owned().into(),
        other => other.clone(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since the Unix epoch.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, millis)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use ptc_protocol::facts::Facts;
    use ptc_protocol::run::Confinement;

    use super::recorder::MAX_ARGUMENTS;
    use super::*;
    use crate::config::Config;

    const SECRET: &str = "s3cr3t-\"token\"";

    fn settings(record: Record) -> JournalConfig {
        JournalConfig {
            record,
            ..Config::default().journal
        }
    }

    fn masker() -> Masker {
        let masker = Masker::with_key([3; 32], &BTreeMap::new());
        masker.register("TOKEN", SECRET);
        masker
    }

    fn open(state: &Path, record: Record) -> Journal {
        Journal::open(&settings(record), state, masker()).unwrap()
    }

    fn start<'a>(run: &'a str, request: &'a Value) -> RunStart<'a> {
        RunStart {
            run,
            session: "abc123",
            client: Some("editor"),
            request,
            program: "print('s3cr3t-\"token\"')",
        }
    }

    fn record(run: &str) -> RunRecord {
        RunRecord {
            run: run.to_owned(),
            session: "abc123".to_owned(),
            client: Some("editor".to_owned()),
            started_ms: now_ms(),
            duration_ms: 6,
            ending: Ending::ScriptError,
            limit: None,
            confinement: Confinement::Full,
            calls: 2,
            failed_calls: 1,
            output_bytes: 20,
            result_bytes: 30,
            cpu_ms: None,
            peak_memory_bytes: None,
            error: Some(format!("ValueError: {SECRET}")),
            facts: Facts::default(),
        }
    }

    fn printed(output: &str) -> Ended<'_> {
        Ended {
            output,
            stdout: output,
            ..Ended::default()
        }
    }

    /// One run with a good call and a failed one, all of them holding the secret.
    fn one_run(journal: &Journal, run: &str, request: &Value) {
        let recorder = journal.begin(&start(run, request)).unwrap();
        let arguments = serde_json::json!({ "token": SECRET }).to_string();
        for call in 1..=2 {
            recorder
                .before(&CallStart {
                    call,
                    tool: "mcp__a__b",
                    server: "a",
                    arguments: &arguments,
                    decision: None,
                    waited: Duration::ZERO,
                })
                .unwrap();
        }
        let end = |call, result| CallEnd {
            call,
            duration: Duration::from_millis(7),
            result,
        };
        recorder.after(&end(1, Ok(&arguments))).unwrap();
        let failure = CallFailure {
            kind: ToolErrorKind::ToolFailed,
            message: SECRET,
            server: Some("a"),
            retryable: false,
            data: None,
        };
        recorder.after(&end(2, Err(failure))).unwrap();
        let finished = recorder.finish(&record(run), &printed(SECRET)).unwrap();
        finished.add_usage(Duration::from_millis(40), 99).unwrap();
    }

    fn all_text(folder: &Path) -> String {
        let mut text = String::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            if entry.file_type().unwrap().is_dir() {
                assert_eq!(mode, 0o700);
                text.push_str(&all_text(&entry.path()));
            } else {
                assert_eq!(mode, 0o600, "{:?}", entry.path());
                text.push_str(&std::fs::read_to_string(entry.path()).unwrap());
            }
        }
        text
    }

    #[test]
    fn what_is_kept_of_values_follows_the_setting_and_secrets_never_are() {
        for (keep, arguments, result, hash, output) in [
            (Record::Full, true, true, true, true),
            (Record::Hashes, true, false, true, true),
            (Record::Off, false, false, false, false),
        ] {
            let state = tempfile::tempdir().unwrap();
            let journal = open(state.path(), keep);
            one_run(&journal, "r1", &1.into());
            let text = all_text(&state.path().join("journal"));
            assert!(!text.contains("s3cr3t-"), "{text}");
            for (word, kept) in [
                ("\"arguments\"", arguments),
                ("\"result\":\"", result),
                ("\"result_hash\"", hash),
                ("\"result_bytes\":", true),
                ("\"output\"", output),
                ("ValueError", output),
                ("mcp__a__b", true),
                ("\"tool_failed\"", true),
                ("\"script_error\"", true),
            ] {
                assert_eq!(text.contains(word), kept, "{keep:?} {word} {text}");
            }
            assert_eq!(journal.keeps_output(), output);
        }
    }

    #[test]
    fn every_line_is_json_and_names_run_session_and_request() {
        let state = tempfile::tempdir().unwrap();
        one_run(&open(state.path(), Record::Full), "r1", &"id-1".into());
        let text = std::fs::read_to_string(state.path().join("journal/calls.jsonl")).unwrap();
        let mut events = Vec::new();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["run"], "r1");
            assert_eq!(line["session"], "abc123");
            assert_eq!(line["request"], "id-1");
            assert!(line["time_ms"].as_u64().unwrap() > 0);
            events.push(line["event"].as_str().unwrap().to_owned());
        }
        let expected = ["run", "call", "call", "result", "result", "end", "usage"];
        assert_eq!(events, expected);
    }

    #[test]
    fn runs_outlive_the_daemon() {
        let state = tempfile::tempdir().unwrap();
        let journal = open(state.path(), Record::Hashes);
        one_run(&journal, "r1", &1.into());
        // Runs that begin in one millisecond have no order.
        let now = now_ms();
        while now_ms() == now {
            std::hint::spin_loop();
        }
        one_run(&journal, "r2", &2.into());
        let before = (journal.runs(), journal.run("r1").unwrap());
        drop(journal);
        let journal = open(state.path(), Record::Hashes);
        assert_eq!((journal.runs(), journal.run("r1").unwrap()), before);
        let names: Vec<_> = before.0.iter().map(|record| record.run.as_str()).collect();
        assert_eq!(names, ["r2", "r1"]);
        let stored = before.1.unwrap();
        assert_eq!(stored.record.cpu_ms, Some(40));
        assert_eq!(stored.record.peak_memory_bytes, Some(99));
        assert!(stored.parts.output.unwrap().starts_with("<TOKEN:"));
        assert!(stored.parts.program.unwrap().starts_with("print('<TOKEN:"));
        assert_eq!(journal.run("gone").unwrap(), None);
    }

    #[test]
    fn a_later_daemon_tells_what_was_in_flight() {
        let state = tempfile::tempdir().unwrap();
        let journal = open(state.path(), Record::Off);
        one_run(&journal, "r1", &7.into());
        let recorder = journal.begin(&start("r2", &7.into())).unwrap();
        let call = |call| CallStart {
            call,
            tool: "mcp__a__b",
            server: "a",
            arguments: "{}",
            decision: None,
            waited: Duration::ZERO,
        };
        recorder.before(&call(1)).unwrap();
        recorder.before(&call(2)).unwrap();
        let end = CallEnd {
            call: 2,
            duration: Duration::ZERO,
            result: Ok("1"),
        };
        recorder.after(&end).unwrap();
        drop((recorder, journal));
        let journal = open(state.path(), Record::Off);
        let logged = |call, ok| LoggedCall {
            call,
            tool: "mcp__a__b".to_owned(),
            server: "a".to_owned(),
            ok,
        };
        assert_eq!(
            journal.calls_of("abc123", &7.into()).unwrap(),
            Some(LoggedRun {
                run: "r2".to_owned(),
                ending: None,
                calls: vec![logged(1, None), logged(2, Some(true))],
            })
        );
        assert_eq!(journal.calls_of("other", &7.into()).unwrap(), None);
        assert_eq!(journal.calls_of("abc123", &"7".into()).unwrap(), None);
    }

    #[test]
    fn a_second_daemon_cannot_share_the_folder() {
        let state = tempfile::tempdir().unwrap();
        let journal = open(state.path(), Record::Off);
        let second = Journal::open(&settings(Record::Off), state.path(), masker());
        assert!(matches!(second, Err(JournalError::InUse { .. })));
        drop(journal);
        open(state.path(), Record::Off);
    }

    #[test]
    fn folders_and_files_of_doubtful_make_stop_the_start() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("journal");
        let open = || Journal::open(&settings(Record::Off), state.path(), masker());
        drop(open().unwrap());
        let log = folder.join("calls.jsonl");

        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&folder, 0o755);
        assert!(matches!(open(), Err(JournalError::Untrusted { .. })));
        mode(&folder, 0o700);
        mode(&log, 0o644);
        assert!(matches!(open(), Err(JournalError::Untrusted { .. })));
        mode(&log, 0o600);
        drop(open().unwrap());

        std::fs::remove_file(&log).unwrap();
        symlink("/dev/null", &log).unwrap();
        assert!(matches!(open(), Err(JournalError::Open { .. })));
        std::fs::remove_file(&log).unwrap();
        std::fs::create_dir(&log).unwrap();
        assert!(matches!(open(), Err(JournalError::Open { .. })));
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::write(&folder, "").unwrap();
        assert!(matches!(open(), Err(JournalError::Open { .. })));
    }

    #[test]
    fn ids_that_are_no_file_names_are_refused() {
        let state = tempfile::tempdir().unwrap();
        let journal = open(state.path(), Record::Off);
        for run in ["", "../x", "a/b", "a.json", &"x".repeat(65)] {
            let begun = journal.begin(&start(run, &Value::Null));
            assert!(matches!(begun, Err(JournalError::RunId)), "{run}");
            assert!(matches!(journal.run(run), Err(JournalError::RunId)));
        }
    }

    #[test]
    fn long_arguments_and_outputs_are_cut_after_masking() {
        let state = tempfile::tempdir().unwrap();
        let journal = open(state.path(), Record::Hashes);
        let recorder = journal.begin(&start("r1", &1.into())).unwrap();
        let padding = "é".repeat(MAX_ARGUMENTS / 2 - 4);
        let arguments = format!("{padding}{SECRET}");
        recorder
            .before(&CallStart {
                call: 1,
                tool: "t",
                server: "s",
                arguments: &arguments,
                decision: None,
                waited: Duration::ZERO,
            })
            .unwrap();
        let output = format!("{}{SECRET}", "x".repeat(store::MAX_OUTPUT - 4));
        recorder.finish(&record("r1"), &printed(&output)).unwrap();
        let kept = journal.run("r1").unwrap().unwrap().parts.output.unwrap();
        assert_eq!(kept.len(), store::MAX_OUTPUT);
        assert!(kept.ends_with("x<TOK"));
        let text = std::fs::read_to_string(state.path().join("journal/calls.jsonl")).unwrap();
        let line: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        let logged = line["arguments"].as_str().unwrap();
        assert!(
            logged.len() <= MAX_ARGUMENTS && logged.ends_with(|c: char| c.is_ascii_hexdigit()),
            "{line}"
        );
        assert!(logged.contains("é<TOKEN:"));
        assert_eq!(line["arguments_bytes"], arguments.len());
    }

    #[test]
    fn old_runs_go_when_there_are_more_than_are_kept() {
        let state = tempfile::tempdir().unwrap();
        let settings = JournalConfig {
            keep_runs: 2,
            ..settings(Record::Hashes)
        };
        let journal = Journal::open(&settings, state.path(), masker()).unwrap();
        for run in ["r1", "r2", "r3"] {
            one_run(&journal, run, &1.into());
        }
        assert_eq!(journal.runs().len(), 2);
        assert_eq!(journal.run("r1").unwrap(), None);
        assert!(journal.run("r2").unwrap().is_some());
        drop(journal);
        let journal = Journal::open(&settings, state.path(), masker()).unwrap();
        assert_eq!(journal.runs().len(), 2);
    }

    #[test]
    fn a_write_that_fails_is_returned() {
        let state = tempfile::tempdir().unwrap();
        let journal = open(state.path(), Record::Hashes);
        let recorder = journal.begin(&start("r1", &1.into())).unwrap();
        let runs = state.path().join("journal/runs");
        std::fs::remove_dir_all(&runs).unwrap();
        let finished = recorder.finish(&record("r1"), &printed(""));
        assert!(matches!(finished, Err(JournalError::Write { .. })));
        assert_eq!(journal.runs().len(), 1);
    }
}
