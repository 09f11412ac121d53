//! Records one run while it runs: each call before and after, the ending, the whole of it in the store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ptc_protocol::detail::{CallEntry, DecisionEntry};
use ptc_protocol::facts::Kept;
use ptc_protocol::run::RunRecord;
use serde_json::Value;

use super::call_log::{Event, Line};
use super::condition::Place;
use super::finished::FinishedRun;
use super::kept::{self, Changed, MAX_ERROR, MAX_NAME, settled, sha256, words};
use super::run_file::{Context, Part, Printed, QueryEntry, RunFile};
use super::store;
use super::{
    CallEnd, CallFailure, CallStart, Ended, JournalError, RunStart, Shared, masked_id, millis,
    now_ms,
};
use crate::config::Record;

/// Most of the arguments that a line keeps where `journal.record` is `hashes`, in bytes.
pub(super) const MAX_ARGUMENTS: usize = 64 * 1024;
/// Most bytes of results that one run's file keeps; later ones are in the call log only.
const MAX_RESULTS: usize = 256 * 1024 * 1024;
/// Most bytes of one helper's answer that are kept.
const MAX_ANSWER: usize = 1024 * 1024;
/// Most bytes of each output stream that are kept apart from the other.
const MAX_STREAM: usize = 64 * 1024;

/// Records one run. Its calls may be recorded from any thread.
#[derive(Clone, Debug)]
pub struct RunRecorder {
    pub(super) journal: Arc<Shared>,
    about: Arc<About>,
    book: Arc<Mutex<Book>>,
}

#[derive(Debug)]
struct About {
    run: String,
    session: String,
    request: Value,
    begun: Instant,
    program_sha256: Option<String>,
    /// The words of the program that may be names of tools.
    words: BTreeSet<String>,
    /// Whether nothing is written: the run is a replay, which calls nobody.
    mute: bool,
}

/// What is known of the run's calls so far.
#[derive(Debug, Default)]
struct Book {
    file: Option<RunFile>,
    pending: HashMap<u64, CallEntry>,
    results: usize,
    called: BTreeSet<String>,
    /// The calls in the order in which their answers went to the program.
    answered: Vec<u64>,
    context: Option<Context>,
}

impl RunRecorder {
    /// Begins a record on disk, the store first. An error means that the run must not begin.
    pub(super) fn begin(journal: &Arc<Shared>, start: &RunStart<'_>) -> Result<Self, JournalError> {
        store::check_id(start.run)?;
        let masker = &journal.masker;
        let off = journal.record == Record::Off;
        let program = (!off).then(|| masker.mask(start.program).into_owned());
        let made = journal.store.parts(start.run).and_then(RunFile::create);
        let made = made.and_then(|mut file| {
            if let Some(program) = &program {
                file.add(&Part::Program(program.clone()));
            }
            file.write().map(|()| file)
        });
        journal.log.condition.note(Place::Runs, &made);
        let file = made?;
        let recorder = Self {
            journal: Arc::clone(journal),
            about: Arc::new(About {
                run: start.run.to_owned(),
                session: start.session.to_owned(),
                request: masked_id(masker, start.request),
                begun: Instant::now(),
                program_sha256: program.as_deref().map(sha256),
                words: words(program.as_deref().unwrap_or_default()),
                mute: false,
            }),
            book: Arc::new(Mutex::new(Book {
                file: Some(file),
                ..Book::default()
            })),
        };
        journal.log.write(&Line {
            client: start.client.map(|text| masker.mask(text).into_owned()),
            program_bytes: (!off).then_some(start.program.len()),
            program_hash: (!off).then(|| masker.keyed_hash("program", start.program.as_bytes())),
            ..recorder.line(Event::Run)
        })?;
        Ok(recorder)
    }

    /// A recorder that writes nothing, for a run that calls nobody.
    pub(super) fn mute(journal: &Arc<Shared>, run: &str) -> Self {
        Self {
            journal: Arc::clone(journal),
            about: Arc::new(About {
                run: run.to_owned(),
                session: String::new(),
                request: Value::Null,
                begun: Instant::now(),
                program_sha256: None,
                words: BTreeSet::new(),
                mute: true,
            }),
            book: Arc::default(),
        }
    }

    /// The run's id.
    pub fn run(&self) -> &str {
        &self.about.run
    }

    /// What a value looks like in the record: secrets out of it.
    pub fn mask(&self, text: &str) -> String {
        self.journal.masker.mask(text).into_owned()
    }

    /// As [`super::Journal::settled`].
    pub fn settled<'a>(&self, text: &'a str) -> &'a str {
        settled(&self.journal.masker, text)
    }

    /// What of a call is not as this journal recorded it; `None` where nothing is.
    pub fn changed(&self, entry: &CallEntry) -> Option<Changed> {
        kept::changed(&self.journal.masker, entry)
    }

    /// Whether answers of helpers are kept.
    pub fn keeps_answers(&self) -> bool {
        self.journal.record == Record::Full && !self.about.mute
    }

    /// Notes what the program found when it began.
    pub fn context(&self, context: Context) {
        if self.journal.record != Record::Off && !self.about.mute {
            self.lock().context = Some(context);
        }
    }

    /// Notes what a helper answered.
    pub fn query(&self, helper: &str, arguments: &str, answer: Result<&str, &str>) {
        if !self.keeps_answers() {
            return;
        }
        let kept = |text: &str| (text.len() <= MAX_ANSWER).then(|| self.masked(text, usize::MAX));
        let entry = QueryEntry {
            helper: helper.to_owned(),
            arguments: self.masked(arguments, MAX_ARGUMENTS),
            answer: answer.ok().and_then(kept),
            error: answer.err().map(|text| self.masked(text, MAX_ERROR)),
        };
        if let Some(file) = &mut self.lock().file {
            file.add(&Part::Query(entry));
        }
    }

    /// Records a call that is about to be sent. An error means that it must not be.
    pub fn before(&self, call: &CallStart<'_>) -> Result<(), JournalError> {
        if self.about.mute {
            return Ok(());
        }
        let arguments = self.arguments(call.arguments);
        let arguments_bytes = arguments.as_ref().map(|_| call.arguments.len());
        let decision = call.decision.map(|decision| self.decision(decision));
        self.journal.log.write(&Line {
            call: Some(call.call),
            tool: Some(call.tool.to_owned()),
            server: Some(call.server.to_owned()),
            arguments_bytes,
            arguments: arguments.clone(),
            decision: decision.clone(),
            ..self.line(Event::Call)
        })?;
        let now = self.clock();
        let entry = CallEntry {
            call: call.call,
            tool: call.tool.to_owned(),
            server: Some(call.server.to_owned()),
            arguments,
            arguments_bytes,
            decision,
            asked_ms: now.saturating_sub(millis(call.waited)),
            sent_ms: Some(now),
            ..CallEntry::default()
        };
        let mut book = self.lock();
        book.called.insert(entry.tool.clone());
        book.pending.insert(call.call, entry);
        Ok(())
    }

    /// Records a call that was refused and so is not sent.
    pub fn refused(
        &self,
        call: u64,
        tool: &str,
        arguments: &str,
        failure: CallFailure<'_>,
        decision: Option<&DecisionEntry>,
    ) -> Result<(), JournalError> {
        if self.about.mute {
            return Ok(());
        }
        let decision = decision.map(|decision| self.decision(decision));
        let kept = self.journal.record != Record::Off;
        let tool = self.masked(tool, MAX_NAME);
        let error = kept.then(|| self.masked(failure.message, MAX_ERROR));
        let now = self.clock();
        let arguments_bytes = kept.then_some(arguments.len());
        let entry = CallEntry {
            call,
            tool: tool.clone(),
            server: failure.server.map(|name| self.masked(name, MAX_NAME)),
            arguments: self.arguments(arguments),
            arguments_bytes,
            decision: decision.clone(),
            asked_ms: now,
            ended_ms: now,
            ..self.failed(failure)
        };
        {
            let mut book = self.lock();
            book.called.insert(tool.clone());
            if let Some(file) = &mut book.file {
                file.add(&kept::call(&self.journal.masker, entry));
            }
        }
        self.journal.log.write(&Line {
            call: Some(call),
            tool: Some(tool),
            ok: Some(false),
            kind: Some(failure.kind),
            error,
            decision,
            ..self.line(Event::Refused)
        })
    }

    /// Records how a call ended. May be large where the value is: it is hashed whole, and with
    /// `journal.record: full` masked and written whole.
    pub fn after(&self, end: &CallEnd<'_>) -> Result<(), JournalError> {
        if self.about.mute {
            return Ok(());
        }
        let mut line = Line {
            call: Some(end.call),
            duration_ms: Some(millis(end.duration)),
            ok: Some(end.result.is_ok()),
            ..self.line(Event::Result)
        };
        let record = self.journal.record;
        let mut entry = CallEntry {
            ok: end.result.is_ok(),
            ..CallEntry::default()
        };
        match end.result {
            Ok(value) => {
                if record != Record::Off {
                    let masker = &self.journal.masker;
                    line.result_bytes = Some(value.len());
                    line.result_hash = Some(kept::result_hash(masker, value));
                    entry.result_bytes = line.result_bytes;
                    entry.result_hash.clone_from(&line.result_hash);
                }
                if record == Record::Full {
                    let text = self.masked(value, usize::MAX);
                    entry.kept_hash = kept::other_hash(&self.journal.masker, &text, value);
                    line.result = Some(text);
                }
            }
            Err(failure) => {
                line.kind = Some(failure.kind);
                entry = self.failed(failure);
                line.error.clone_from(&entry.error);
            }
        }
        let written = self.journal.log.write(&line);
        entry.result = line.result;
        self.end(end.call, entry);
        written
    }

    /// Notes that the answer to a call is the next one on its way to the program.
    pub fn answered(&self, call: u64) {
        if !self.about.mute {
            self.lock().answered.push(call);
        }
    }

    /// Joins what is known of a call from before it with what came of it.
    fn end(&self, call: u64, ended: CallEntry) {
        let now = self.clock();
        let mut book = self.lock();
        let Some(begun) = book.pending.remove(&call) else {
            return;
        };
        let mut entry = CallEntry {
            call,
            tool: begun.tool,
            server: begun.server,
            arguments: begun.arguments,
            arguments_bytes: begun.arguments_bytes,
            decision: begun.decision,
            asked_ms: begun.asked_ms,
            sent_ms: begun.sent_ms,
            ended_ms: now,
            ..ended
        };
        let size = entry.result.as_ref().map_or(0, String::len);
        book.results = book.results.saturating_add(size);
        if book.results > MAX_RESULTS {
            entry.result = None;
        }
        if let Some(file) = &mut book.file {
            file.add(&kept::call(&self.journal.masker, entry));
        }
    }

    fn failed(&self, failure: CallFailure<'_>) -> CallEntry {
        let kept = self.journal.record != Record::Off;
        let data = failure.data.filter(|_| self.journal.record == Record::Full);
        CallEntry {
            kind: Some(failure.kind),
            error: kept.then(|| self.masked(failure.message, MAX_ERROR)),
            retryable: failure.retryable,
            data: data.map(|data| self.masked(&data.to_string(), usize::MAX)),
            ..CallEntry::default()
        }
    }

    fn decision(&self, decision: &DecisionEntry) -> Box<DecisionEntry> {
        let quotes = self.journal.record != Record::Off;
        Box::new(kept::decision(decision, quotes, |text| {
            self.masked(text, MAX_ERROR)
        }))
    }

    fn arguments(&self, text: &str) -> Option<String> {
        match self.journal.record {
            Record::Off => None,
            Record::Hashes => Some(self.masked(text, MAX_ARGUMENTS)),
            Record::Full => Some(self.masked(text, usize::MAX)),
        }
    }

    /// Records how the run ended, with up to 8 MiB of its output. May be large.
    ///
    /// The record is in memory whatever happens; an error says that it is not all on disk.
    pub fn finish(
        self,
        record: &RunRecord,
        ended: &Ended<'_>,
    ) -> Result<FinishedRun, JournalError> {
        let shared = Arc::clone(&self.journal);
        let mut record = record.clone();
        let mask = |text: String| shared.masker.mask(&text).into_owned();
        record.error = record.error.map(|text| self.masked(&text, MAX_ERROR));
        record.client = record.client.map(mask);
        record.facts.project = record.facts.project.map(mask);
        record.facts.model = record.facts.model.map(mask);
        record.facts.kept = Some(match shared.record {
            Record::Full => Kept::Full,
            Record::Hashes => Kept::Hashes,
            Record::Off => Kept::Off,
        });
        shared.store.remember(record.clone());
        let mut file = self.lock().file.take();
        if shared.record == Record::Off {
            record.error = None;
            record.facts.submission = None;
            self.close(file.as_mut(), None);
        } else {
            let printed = Printed {
                output: self.masked(ended.output, store::MAX_OUTPUT),
                stdout: self.masked(ended.stdout, MAX_STREAM),
                stderr: self.masked(ended.stderr, MAX_STREAM),
            };
            let result = ended.result.map(|text| self.masked(text, usize::MAX));
            record
                .facts
                .program_sha256
                .clone_from(&self.about.program_sha256);
            record.facts.output_sha256 = Some(sha256(&printed.output));
            record.facts.result_sha256 = result.as_deref().map(sha256);
            self.close(file.as_mut(), Some((printed, result)));
        }
        shared.store.replace(&record);
        let saved = match file.as_mut() {
            Some(file) => shared.store.save(&record, file).map(Some),
            None => Ok(None),
        };
        shared.log.condition.note(Place::Runs, &saved);
        let logged = shared.log.write(&Line {
            record: Some(record),
            ..self.line(Event::End)
        });
        let head = saved?;
        logged?;
        Ok(FinishedRun::new(self, head))
    }

    /// The last lines of the run's file: calls without an end, what the program found, what it gave.
    fn close(&self, file: Option<&mut RunFile>, given: Option<(Printed, Option<String>)>) {
        let now = self.clock();
        let Some(file) = file else { return };
        let mut book = std::mem::take(&mut *self.lock());
        let mut left: Vec<CallEntry> = book.pending.drain().map(|(_, entry)| entry).collect();
        let (context, called) = (book.context, book.called);
        left.sort_by_key(|entry| entry.call);
        for entry in left {
            file.add(&kept::unended(&self.journal.masker, entry, now));
        }
        if !book.answered.is_empty() {
            file.add(&Part::Answered(book.answered));
        }
        if let Some(context) = context {
            let of_run = |name: &String| self.about.words.contains(name) || called.contains(name);
            let tools: BTreeMap<_, _> = context
                .tools
                .into_iter()
                .filter(|(name, _)| of_run(name))
                .collect();
            file.add(&Part::Context(Context { tools, ..context }));
        }
        if let Some((printed, result)) = given {
            file.add(&Part::Output(printed));
            if let Some(result) = result {
                file.add(&Part::Result(result));
            }
        }
    }

    pub(super) fn line(&self, event: Event) -> Line {
        Line {
            event,
            time_ms: now_ms(),
            run: self.about.run.clone(),
            session: self.about.session.clone(),
            request: self.about.request.clone(),
            ..Line::default()
        }
    }

    /// Milliseconds since the run began.
    fn clock(&self) -> u64 {
        millis(self.about.begun.elapsed())
    }

    /// The text masked, then cut: a cut before could leave the half of a secret.
    fn masked(&self, text: &str, most: usize) -> String {
        let mut masked = self.journal.masker.mask(text).into_owned();
        let mut end = most.min(masked.len());
        while !masked.is_char_boundary(end) {
            end -= 1;
        }
        masked.truncate(end);
        masked
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
