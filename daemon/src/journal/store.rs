//! Finished runs: the newest records in memory, each run whole in two files of its own.
//!
//! `RUN.parts` is written while the run runs; `RUN.json`, its head, is moved into place after the
//! last part, and only that makes the run a finished one.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ptc_protocol::detail::CallEntry;
use ptc_protocol::run::RunRecord;

use super::head::{self, Head, Usage, Written};
use super::retention::{Kind, Retention};
use super::run_file::{self, Context, Part, QueryEntry, RunFile};
use super::{JournalError, files, now_ms};
use crate::config::mask::Masker;

/// Name of the folder of runs.
const FOLDER: &str = "runs";
/// Ending of the names of the files of parts.
pub(super) const PARTS: &str = "parts";
/// Most records in memory.
const MAX_RECENT: usize = 10_000;
/// Most output kept of one run, in bytes.
pub(super) const MAX_OUTPUT: usize = 8 * 1024 * 1024;
/// Bytes of a file that is made to see whether one can be.
const TRIED: usize = 4096;
/// Numbers those files, so that two tries at once are of two files.
static TRIES: AtomicU64 = AtomicU64::new(0);

/// One finished run, whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// The program's text, masked; absent where `journal.record` is `off`.
    pub program: Option<String>,
    /// What it printed, masked, at most 8 MiB; absent where `journal.record` is `off`.
    pub output: Option<String>,
    /// The first 64 KiB of standard output, masked.
    pub stdout: Option<String>,
    /// The first 64 KiB of standard error, masked.
    pub stderr: Option<String>,
    /// The emitted value, JSON text, masked.
    pub result: Option<String>,
    /// The calls in the order of their ends.
    pub calls: Vec<CallEntry>,
    /// What its helpers were asked, in the order of the answers; only where `journal.record` is `full`.
    pub queries: Vec<QueryEntry>,
    /// What the program found when it began.
    pub context: Option<Context>,
}

/// One finished run, as its files keep it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRun {
    /// What is known about it.
    pub record: RunRecord,
    /// What it was given and gave.
    pub parts: Parts,
    /// Whether its files are the ones that were written.
    pub intact: bool,
}

/// The finished runs of one journal.
#[derive(Debug)]
pub(super) struct RunStore {
    folder: PathBuf,
    most: usize,
    keep: Duration,
    retention: Arc<Retention>,
    masker: Masker,
    /// Held while a head that is there is changed, so that no change is lost to another.
    changing: Mutex<()>,
    /// Oldest first.
    recent: Mutex<VecDeque<RunRecord>>,
}

impl RunStore {
    /// Opens the folder of runs; `recent` are the records of an earlier daemon, oldest first.
    pub(super) fn open(
        folder: &Path,
        (keep_runs, keep): (u64, Duration),
        retention: Arc<Retention>,
        masker: Masker,
        recent: Vec<RunRecord>,
    ) -> Self {
        let store = Self {
            folder: folder.join(FOLDER),
            most: usize::try_from(keep_runs).map_or(MAX_RECENT, |keep| keep.min(MAX_RECENT)),
            keep,
            retention,
            masker,
            changing: Mutex::default(),
            recent: Mutex::default(),
        };
        for record in recent {
            store.remember(record);
        }
        store
    }

    /// The run's record in memory.
    pub(super) fn remember(&self, record: RunRecord) {
        let mut recent = self.lock();
        recent.push_back(record);
        while recent.len() > self.most {
            recent.pop_front();
        }
    }

    /// Puts a fuller record in the place of the one in memory, whose error stays.
    pub(super) fn replace(&self, record: &RunRecord) {
        let mut recent = self.lock();
        if let Some(old) = recent.iter_mut().rev().find(|old| old.run == record.run) {
            old.facts = record.facts.clone();
        }
    }

    /// Makes a run whose parts are written a finished one.
    pub(super) fn save(
        &self,
        record: &RunRecord,
        file: &mut RunFile,
    ) -> Result<Written, JournalError> {
        let sealed = file.seal()?;
        let path = self.path(&record.run)?;
        let parts = sealed.bytes;
        let head = Head {
            record: record.clone(),
            sealed: Some(sealed),
            program: None,
            output: None,
        };
        let written = head::write(&path, &head, &self.masker)?;
        file.keep();
        self.retention
            .add(path, written.bytes.saturating_add(parts), Kind::Run);
        Ok(written)
    }

    /// Adds what the kernel counted to a run whose head was written so: in memory, and in its file if that is kept.
    pub(super) fn add_usage(
        &self,
        run: &str,
        written: &Written,
        usage: Usage,
    ) -> Result<(), JournalError> {
        let path = self.path(run)?;
        let added = {
            let _changing = self.changing();
            head::add(&path, written, usage, &self.masker)?
        };
        let Some(bytes) = added else {
            // It was changed since it was written, or is not kept any more.
            self.amend(run, |head| usage.note(&mut head.record))?;
            return Ok(());
        };
        self.retention.grown(&path, bytes);
        if let Some(record) = self.lock().iter_mut().rev().find(|old| old.run == run) {
            usage.note(record);
        }
        Ok(())
    }

    /// Changes what is known of a run, in memory and in its file if that is still there as it was written; whether it
    /// was.
    pub(super) fn amend(
        &self,
        run: &str,
        change: impl FnOnce(&mut Head),
    ) -> Result<bool, JournalError> {
        let path = self.path(run)?;
        let _changing = self.changing();
        // A head that somebody else changed must not get a seal of ours.
        let Some((mut head, true)) = head::read(&path, &self.masker)? else {
            return Ok(false);
        };
        change(&mut head);
        if let Some(record) = self.lock().iter_mut().rev().find(|old| old.run == run) {
            record.cpu_ms = head.record.cpu_ms;
            record.peak_memory_bytes = head.record.peak_memory_bytes;
            record.facts = head.record.facts.clone();
        }
        let written = head::write(&path, &head, &self.masker)?;
        let parts = head.sealed.as_ref().map_or(0, |sealed| sealed.bytes);
        self.retention
            .resized(&path, written.bytes.saturating_add(parts));
        Ok(true)
    }

    /// Reads a run's files; `None` where there is none.
    pub(super) fn load(&self, run: &str) -> Result<Option<StoredRun>, JournalError> {
        let Some((head, own)) = head::read(&self.path(run)?, &self.masker)? else {
            return Ok(None);
        };
        let Some(sealed) = &head.sealed else {
            return Ok(Some(StoredRun {
                record: head.record,
                parts: Parts {
                    program: head.program,
                    output: head.output,
                    ..Parts::default()
                },
                intact: true,
            }));
        };
        let (lines, intact) = run_file::read(&self.parts(run)?, sealed)?;
        let mut parts = Parts::default();
        let mut places = HashMap::new();
        for line in lines {
            match line {
                Part::Program(text) => parts.program = Some(text),
                Part::Context(context) => parts.context = Some(context),
                Part::Call(call) => parts.calls.push(*call),
                Part::Query(query) => parts.queries.push(query),
                Part::Answered(order) => {
                    let order = order.into_iter().enumerate();
                    places = order.map(|(place, call)| (call, place)).collect();
                }
                Part::Output(printed) => {
                    parts.output = Some(printed.output);
                    parts.stdout = Some(printed.stdout);
                    parts.stderr = Some(printed.stderr);
                }
                Part::Result(text) => parts.result = Some(text),
            }
        }
        // Those that the program never heard of come last.
        let place = |call: &CallEntry| places.get(&call.call).copied().unwrap_or(usize::MAX);
        parts.calls.sort_by_key(place);
        Ok(Some(StoredRun {
            intact: own && intact && head.record.run == run,
            record: head.record,
            parts,
        }))
    }

    /// The records in memory, newest first; none that is older than is kept.
    pub(super) fn recent(&self) -> Vec<RunRecord> {
        let keep = u64::try_from(self.keep.as_millis()).unwrap_or(u64::MAX);
        let oldest = now_ms().saturating_sub(keep);
        let recent = self.lock();
        let kept = recent.iter().rev();
        kept.filter(|record| record.ended_ms() >= oldest)
            .cloned()
            .collect()
    }

    /// Whether a run's files are kept.
    pub(super) fn has(&self, run: &str) -> bool {
        self.path(run).is_ok_and(|path| self.retention.has(&path))
    }

    /// Makes a file as large as a small run's, and removes it: whether one could be made now.
    pub(super) fn try_file(&self) -> Result<(), JournalError> {
        use std::io::Write as _;

        // What a daemon that is killed here leaves behind, the next one removes by this ending.
        let number = TRIES.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("try-{number}.new"));
        let written = files::create(&path)?.write_all(&[b'\n'; TRIED]);
        let _ = std::fs::remove_file(&path);
        written.map_err(|source| JournalError::Write { path, source })
    }

    /// The file of a run's parts.
    pub(super) fn parts(&self, run: &str) -> Result<PathBuf, JournalError> {
        Ok(self.path(run)?.with_extension(PARTS))
    }

    /// The file of a run. Ids are names of files, so only harmless ones are taken.
    fn path(&self, run: &str) -> Result<PathBuf, JournalError> {
        check_id(run)?;
        Ok(self.folder.join(format!("{run}.json")))
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RunRecord>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an earlier daemon left: the files of finished runs with their sizes, and the records they hold, oldest first.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) files: Vec<(PathBuf, u64)>,
    pub(super) records: Vec<RunRecord>,
}

/// Makes the folder of runs, removes what an ended daemon left half written, and reads the heads of finished runs.
pub(super) fn prepare(folder: &Path, masker: &Masker) -> Result<Left, JournalError> {
    let folder = folder.join(FOLDER);
    files::private_folder(&folder)?;
    let entries = std::fs::read_dir(&folder).map_err(|source| JournalError::Open {
        path: folder.clone(),
        source,
    })?;
    let (mut left, mut parts) = (Left::default(), Vec::new());
    for path in entries.flatten().map(|entry| entry.path()) {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => take(path, masker, &mut left),
            Some("new") => {
                let _ = std::fs::remove_file(path);
            }
            Some(PARTS) => parts.push(path),
            _ => {}
        }
    }
    // Parts without a head are of a run that never came to its end.
    for path in parts {
        if !path.with_extension("json").exists() {
            let _ = std::fs::remove_file(path);
        }
    }
    left.records.sort_by_key(RunRecord::ended_ms);
    Ok(left)
}

/// Counts one head, and takes its record where it can be read.
fn take(path: PathBuf, masker: &Masker, left: &mut Left) {
    let own = |path: &Path| path.symlink_metadata().map_or(0, |about| about.len());
    let bytes = own(&path).saturating_add(own(&path.with_extension(PARTS)));
    match head::read(&path, masker) {
        Ok(Some((head, _))) if path.file_stem() == Some(head.record.run.as_ref()) => {
            left.records.push(head.record);
        }
        Ok(_) => {
            let path = path.display();
            tracing::warn!(%path, "a record of another run's name is left out");
        }
        Err(error) => tracing::warn!(%error, "a record of a run is left out"),
    }
    left.files.push((path, bytes));
}

/// Refuses an id that is no file name of 1 to 64 letters, digits, `-` and `_`.
pub(super) fn check_id(run: &str) -> Result<(), JournalError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=64).contains(&run.len()) && run.bytes().all(fine) {
        return Ok(());
    }
    Err(JournalError::RunId)
}
