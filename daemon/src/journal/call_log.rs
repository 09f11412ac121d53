//! The call log: JSON lines, the first of a call before it is sent and the second after.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ptc_protocol::run::{RunRecord, ToolErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::retention::{Kind, Retention};
use super::{JournalError, files, now_ms};

/// Name of the log that is being written.
const NAME: &str = "calls.jsonl";
/// Size at which a log is full, in bytes.
const FULL: u64 = 64 * 1024 * 1024;
/// How much of the newest log is read for the runs of an earlier daemon, in bytes.
const TAIL: u64 = 8 * 1024 * 1024;

/// What a line tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Event {
    /// A run begins.
    #[default]
    Run,
    /// A call is about to be sent.
    Call,
    /// A call has ended.
    Result,
    /// A call was refused and so not sent.
    Refused,
    /// A run has ended.
    End,
    /// What the kernel counted for a run.
    Usage,
}

/// One line; what its event does not have is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Line {
    pub(super) event: Event,
    /// Milliseconds since the Unix epoch.
    pub(super) time_ms: u64,
    pub(super) run: String,
    /// Digest of the session.
    pub(super) session: String,
    /// JSON-RPC id of the client's request.
    pub(super) request: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) program_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) program_hash: Option<String>,
    /// Number of the call in its run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    /// JSON text, masked; cut where it is shorter than `arguments_bytes` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<ToolErrorKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// JSON text, masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) record: Option<RunRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peak_memory_bytes: Option<u64>,
}

/// The log that is being written, and the full ones beside it.
#[derive(Debug)]
pub(super) struct CallLog {
    folder: PathBuf,
    path: PathBuf,
    /// Size at which the log is put aside.
    full: u64,
    retention: Arc<Retention>,
    current: Mutex<Current>,
    /// What could not be written.
    failures: AtomicU64,
}

#[derive(Debug)]
struct Current {
    lines: Lines<File>,
    bytes: u64,
}

impl CallLog {
    /// Opens the log at its end. `keep_bytes` bounds its size too: it is full at half of it.
    pub(super) fn open(
        folder: &Path,
        keep_bytes: u64,
        retention: Arc<Retention>,
    ) -> Result<Self, JournalError> {
        let path = folder.join(NAME);
        let current = Current::open(&path)?;
        retention.current_log(current.bytes);
        Ok(Self {
            folder: folder.to_owned(),
            path,
            full: FULL.min(keep_bytes / 2).max(1),
            retention,
            current: Mutex::new(current),
            failures: AtomicU64::new(0),
        })
    }

    /// Writes one line; an error means that it is not in the log.
    pub(super) fn write(&self, line: &Line) -> Result<(), JournalError> {
        let failed = |source| JournalError::Write {
            path: self.path.clone(),
            source,
        };
        let mut text = serde_json::to_vec(line).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        let bytes = text.len() as u64;
        let mut current = self.lock();
        if current.bytes > 0 && current.bytes.saturating_add(bytes) > self.full {
            self.rotate(&mut current);
        }
        let written = current.lines.append(&text);
        current.bytes = current.bytes.saturating_add(bytes);
        let size = current.bytes;
        drop(current);
        self.retention.current_log(size);
        written
            .map_err(failed)
            .inspect_err(|_| self.count_failure())
    }

    /// Counts what could not be written, here or beside the log.
    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// What could not be written.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Puts the full log aside. Where that fails, the log goes on where it is:
    /// a log that is too long is better than calls that are refused.
    fn rotate(&self, current: &mut Current) {
        let mut time = now_ms();
        let mut aside = self.folder.join(aside_name(time));
        while aside.exists() {
            time += 1;
            aside = self.folder.join(aside_name(time));
        }
        if let Err(error) = std::fs::rename(&self.path, &aside) {
            tracing::warn!(%error, "cannot put the full call log aside");
            return;
        }
        match Current::open(&self.path) {
            Ok(new) => {
                let full = std::mem::replace(current, new);
                self.retention.current_log(0);
                self.retention.add(aside, full.bytes, Kind::Log);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot begin a new call log");
                // The open file is the one put aside; its old name keeps it the current one.
                let _ = std::fs::rename(&aside, &self.path);
            }
        }
    }

    /// The lines of the newest log's end whose event is in `events`, in order.
    pub(super) fn tail(&self, events: &[Event]) -> Result<Vec<Line>, JournalError> {
        let mut found = Vec::new();
        read_lines(&self.path, Some(TAIL), |line| {
            if events.contains(&line.event) {
                found.push(line);
            }
        })?;
        Ok(found)
    }

    /// All lines of one request of one session: in the newest log, and in the one put aside before it.
    pub(super) fn of_request(
        &self,
        session: &str,
        request: &Value,
    ) -> Result<Vec<Line>, JournalError> {
        let mut found = Vec::new();
        let older = full_logs(&self.folder).into_iter().next_back();
        for path in older.iter().chain([&self.path]) {
            read_lines(path, None, |line| {
                if line.session == session && line.request == *request {
                    found.push(line);
                }
            })?;
        }
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands every whole line of a log to `take`; one that was cut short is passed over.
fn read_lines(
    path: &Path,
    tail: Option<u64>,
    mut take: impl FnMut(Line),
) -> Result<(), JournalError> {
    let failed = |source| JournalError::Read {
        path: path.to_owned(),
        source,
    };
    let Some(mut file) = files::open_existing(path)? else {
        return Ok(());
    };
    if let Some(tail) = tail {
        let size = file.metadata().map_err(failed)?.len();
        let start = SeekFrom::Start(size.saturating_sub(tail));
        file.seek(start).map_err(failed)?;
    }
    for text in BufReader::new(file).split(b'\n') {
        if let Ok(line) = serde_json::from_slice(&text.map_err(failed)?) {
            take(line);
        }
    }
    Ok(())
}

/// The full logs of a folder, oldest first.
pub(super) fn full_logs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut logs: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| is_aside(name.as_encoded_bytes()))
        })
        .collect();
    logs.sort();
    logs
}

/// A full log's name; the digits keep the order of names that of time.
fn aside_name(time_ms: u64) -> String {
    format!("calls-{time_ms:015}.jsonl")
}

fn is_aside(name: &[u8]) -> bool {
    let digits = name
        .strip_prefix(b"calls-")
        .and_then(|rest| rest.strip_suffix(b".jsonl"));
    digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
}

impl Current {
    fn open(path: &Path) -> Result<Self, JournalError> {
        let failed = |source| JournalError::Open {
            path: path.to_owned(),
            source,
        };
        let mut file = files::open_log(path)?;
        let bytes = file.metadata().map_err(failed)?.len();
        let mut last = [b'\n'];
        if bytes > 0 {
            file.seek(SeekFrom::Start(bytes - 1)).map_err(failed)?;
            file.read_exact(&mut last).map_err(failed)?;
        }
        Ok(Self {
            lines: Lines {
                to: file,
                torn: last != *b"\n",
            },
            bytes,
        })
    }
}

/// Appends whole lines, and begins on a fresh one after a line that was cut short.
#[derive(Debug)]
struct Lines<W> {
    to: W,
    /// Whether the last line may lack its end.
    torn: bool,
}

impl<W: Write> Lines<W> {
    /// Appends one line that ends with a newline.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.to.write_all(b"\n")?;
            self.torn = false;
        }
        let written = self.to.write_all(line);
        self.torn = written.is_err();
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes, then says that the disk is full.
    struct Full {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line(run: &str, session: &str, request: Value) -> Line {
        Line {
            run: run.to_owned(),
            session: session.to_owned(),
            request,
            ..Line::default()
        }
    }

    fn open(folder: &Path, keep_bytes: u64) -> CallLog {
        let bounds = super::super::retention::Bounds {
            bytes: keep_bytes,
            runs: 10,
            age: std::time::Duration::from_hours(1),
        };
        let retention = Arc::new(Retention::new(bounds, Vec::new()));
        CallLog::open(folder, keep_bytes, retention).unwrap()
    }

    #[test]
    fn a_line_cut_short_is_an_error_and_the_next_one_begins_afresh() {
        let mut lines = Lines {
            to: Full {
                taken: Vec::new(),
                room: 5,
            },
            torn: false,
        };
        assert!(lines.append(b"{1}\n").is_ok());
        assert!(lines.append(b"{2}\n").is_err());
        assert!(lines.append(b"{3}\n").is_err());
        lines.to.room = 100;
        assert!(lines.append(b"{4}\n").is_ok());
        assert_eq!(lines.to.taken, b"{1}\n{\n{4}\n");
    }

    #[test]
    fn a_log_left_without_its_last_newline_is_gone_on_with_on_a_fresh_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        drop(files::open_log(&path).unwrap());
        std::fs::write(&path, "{\"event\":\"ca").unwrap();
        let log = open(folder.path(), 1 << 20);
        log.write(&line("r", "s", 1.into())).unwrap();
        let found = log.of_request("s", &1.into()).unwrap();
        assert_eq!(found, [line("r", "s", 1.into())]);
    }

    #[test]
    fn full_logs_are_put_aside_and_still_read() {
        let folder = tempfile::tempdir().unwrap();
        let log = open(folder.path(), 1000);
        for number in 0..40u64 {
            log.write(&line(&format!("r{number}"), "s", number.into()))
                .unwrap();
        }
        let sizes: u64 = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum();
        assert!(sizes <= 1000, "{sizes}");
        assert!(!full_logs(folder.path()).is_empty());
        let last = log.of_request("s", &39.into()).unwrap();
        assert_eq!(last, [line("r39", "s", 39.into())]);
        let before = log.of_request("s", &35.into()).unwrap();
        assert_eq!(before.len(), 1);
    }

    #[test]
    fn requests_are_told_apart_by_session_and_by_the_type_of_their_id() {
        let folder = tempfile::tempdir().unwrap();
        let log = open(folder.path(), 1 << 20);
        for (session, request) in [("a", 1.into()), ("b", 1.into()), ("a", "1".into())] {
            log.write(&line("r", session, request)).unwrap();
        }
        assert_eq!(log.of_request("a", &1.into()).unwrap().len(), 1);
        assert_eq!(log.of_request("c", &1.into()).unwrap(), []);
        assert_eq!(log.tail(&[Event::Run]).unwrap().len(), 3);
        assert_eq!(log.tail(&[Event::End]).unwrap(), []);
    }

    #[test]
    fn many_threads_write_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = open(folder.path(), 1 << 20);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..50u64 {
                        log.write(&line(&format!("{thread}-{number}"), "s", 1.into()))
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(log.of_request("s", &1.into()).unwrap().len(), 200);
    }
}
