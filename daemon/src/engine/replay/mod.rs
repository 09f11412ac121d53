//! Repeats a recorded run in a fresh worker, with the recorded results in place of the servers.

mod compare;
mod depends;
mod target;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ptc_protocol::detail::{CallEntry, Replay, Verdict};
use ptc_protocol::facts::{Kept, RunKind};
use ptc_protocol::status::SCHEMA;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use self::compare::{Repeated, compare};
use self::target::Recording;
use super::approval::Approver;
use super::call::Desk;
use super::guards::{AbortWith, LiveGuard};
use super::judging::{About, Judge};
use super::run::{Gathered, RunLoop, Terms};
use super::second::chosen;
use super::terms::run_frame;
use super::{
    Answer, Asker, Boxed, Engine, MAX_PROGRAM_BYTES, Parts, Progress, Purpose, Question, RunError,
    absent, outcome, record, run,
};
use crate::config::offered::Barred;
use crate::config::{EngineName, ExecutionConfig, ToolFilter};
use crate::journal::{Context, JournalError, StoredRun};
use crate::policy::{Gate, Pins, Policy, PolicyError};
use crate::pool::Exit;
use crate::pool::frame::Run;
use crate::registry::exact_value;

/// The session of a replay, for the queue of programs.
const SESSION: &str = "replay";

/// Why a run cannot be repeated; nothing ran.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// There is no such run.
    #[error("there is no record of a run {0}: `ptcctl runs` lists those that are kept")]
    Unknown(String),
    /// Its recording is not complete.
    #[error("run {run} cannot be repeated: {reason}")]
    Missing {
        /// The run.
        run: String,
        /// What is missing, and what to do.
        reason: String,
    },
    /// A program cannot be run now.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The record cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The gate that lets every recorded call through cannot be made.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// Nobody is asked while a run is repeated: what was asked then has its answer in the record.
#[derive(Debug)]
struct Nobody;

impl Asker for Nobody {
    fn ask(&self, _: Question) -> Boxed<'static, Answer> {
        let text = "nobody is asked in a replay".to_owned();
        Box::pin(std::future::ready(Answer::No(text)))
    }
}

/// Why a run's recording is not complete enough to be repeated; `None` where it is.
pub fn not_replayable(stored: &StoredRun) -> Option<String> {
    let parts = &stored.parts;
    let facts = &stored.record.facts;
    if facts.ptcd.is_none() {
        return Some("it was recorded by an older version of ptcd".to_owned());
    }
    if parts.program.is_none() || facts.kept == Some(Kept::Off) {
        return Some(
            "its program was not kept: set journal.record to full before the next run".to_owned(),
        );
    }
    if parts.context.is_none() {
        return Some("its record lacks what the program found when it began".to_owned());
    }
    let lacks = |entry: &&CallEntry| entry.ok && entry.result.is_none();
    let lacking = parts.calls.iter().filter(lacks).count();
    if lacking > 0 && facts.kept != Some(Kept::Full) {
        return Some(format!(
            "the results of its {lacking} calls were not kept (journal.record was hashes): set journal.record to \
             full before the next run"
        ));
    }
    if let Some(entry) = parts.calls.iter().find(lacks) {
        return Some(format!(
            "the result of its call of {} is not in the record",
            entry.tool
        ));
    }
    let broken = |entry: &&CallEntry| {
        entry
            .result
            .as_deref()
            .is_some_and(|text| exact_value(text).is_none())
    };
    parts.calls.iter().find(broken).map(|entry| {
        format!(
            "the recorded result of its call of {} cannot be read; a secret that is a bare number in a result is \
             masked in a way that no program reads",
            entry.tool
        )
    })
}

impl Engine {
    /// Repeats a run, or runs other code against its recorded results. No server is touched.
    ///
    /// Where everything is the same the journal notes it, which raises the run's level to `replayed`.
    pub async fn replay(&self, run: &str, code: Option<String>) -> Result<Replay, ReplayError> {
        let journal = self.inner.journal.clone();
        let id = run.to_owned();
        let loaded = tokio::task::spawn_blocking(move || journal.run(&id)).await;
        let unknown = || ReplayError::Unknown(super::output::visible(super::output::head(run, 80)));
        let stored = match loaded.map_err(|_| RunError::Inside)? {
            Ok(stored) => stored.ok_or_else(unknown)?,
            Err(JournalError::RunId) => return Err(unknown()),
            Err(error) => return Err(error.into()),
        };
        if let Some(reason) = not_replayable(&stored) {
            let run = run.to_owned();
            return Err(ReplayError::Missing { run, reason });
        }
        let edited = code.is_some();
        let program = code
            .or_else(|| stored.parts.program.clone())
            .unwrap_or_default();
        if program.len() > MAX_PROGRAM_BYTES {
            let size = program.len();
            return Err(RunError::TooLong { size }.into());
        }
        let repeated = Box::pin(self.repeat(&stored, &program, edited)).await?;
        let report = report(&stored, &repeated, &program, edited);
        if report.verdict == Verdict::Same
            && let Some(hash) = stored.record.facts.output_sha256.clone()
        {
            let (journal, id) = (self.inner.journal.clone(), run.to_owned());
            let noted = tokio::task::spawn_blocking(move || journal.replayed(&id, &hash)).await;
            if let Ok(Err(error)) = noted {
                tracing::warn!(%error, "a replay could not be noted");
            }
        }
        Ok(report)
    }

    async fn repeat(
        &self,
        stored: &StoredRun,
        program: &str,
        edited: bool,
    ) -> Result<Repeated, ReplayError> {
        let parts = limited(&*chosen(&self.parts(), &purpose(stored))?, stored);
        let recorder = self.inner.journal.unrecorded(&stored.record.run);
        let context = stored.parts.context.clone().unwrap_or_default();
        let recording = Arc::new(Recording::new(
            stored.parts.calls.clone(),
            stored.parts.queries.clone(),
            context.clone(),
            edited,
            recorder.clone(),
        ));
        let _place = tokio::select! {
            biased;
            () = self.inner.draining.cancelled() => return Err(RunError::Draining.into()),
            place = self.inner.admission.admit(SESSION) => place.map_err(RunError::from)?,
        };
        let _live = LiveGuard::new(&self.inner.live, SESSION);
        // Forks of one server have one hash seed: what depends on it would come out the same, and only there.
        let checked_out = parts.pool.check_out_unforked().await;
        let checked_out = checked_out.map_err(RunError::from)?;
        let Some((mut worker, busy)) = checked_out.into_parts() else {
            return Err(RunError::Inside.into());
        };
        let desk = Arc::new(Desk {
            target: Arc::clone(&recording) as _,
            // What was denied then has its refusal in the record.
            judge: Judge::new(
                Gate::new(Policy::new(&ToolFilter::All)?, Pins::none()),
                About::default(),
            ),
            approver: Approver::new(parts.approval, self.approvals(), Arc::new(Nobody), None),
            recorder: recorder.clone(),
            metrics: self.inner.metrics.clone(),
            places: Semaphore::new(parts.limits.max_concurrent_calls),
            limit: parts.limits.tool_call_timeout,
            barred: Barred::default(),
            progress: watch::Sender::new(Progress::default()),
            cancel: CancellationToken::new(),
        });
        let _abort = AbortWith::new(&self.inner.abort, &desk.cancel);
        let terms = terms(program, &context, edited, &recording, &parts);
        let terms = Terms {
            run: Run {
                apart: stored.record.facts.kind != RunKind::Program,
                ..terms.run
            },
            ..terms
        };
        let gathered = Box::pin(RunLoop::run(&mut worker, desk, terms)).await;
        let exit = match gathered.end {
            run::End::Died => worker.exited().await,
            _ => None,
        };
        worker.kill();
        let repeated = repeated(gathered, exit.as_ref(), &parts, &recording, &recorder);
        tokio::spawn(record::close(worker, busy, exit, None));
        Ok(repeated)
    }
}

/// What a recorded run is repeated for: any of them as a program, in the engine that it ran in.
fn purpose(stored: &StoredRun) -> Purpose {
    let engine = stored.record.facts.engine.as_deref();
    Purpose {
        engine: Some(engine.and_then(EngineName::of).unwrap_or_default()),
        ..Purpose::default()
    }
}

/// The parts in force, under the limits of the record.
fn limited(parts: &Parts, stored: &StoredRun) -> Parts {
    let mut parts = parts.clone();
    if let Some(limits) = &stored.record.facts.limits {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        parts.limits = ExecutionConfig {
            timeout: Duration::from_millis(limits.timeout_ms).min(parts.limits.timeout),
            max_output_bytes: size(limits.max_output_bytes).min(parts.limits.max_output_bytes),
            max_tool_calls: limits.max_tool_calls,
            max_concurrent_calls: size(limits.max_concurrent_calls),
            tool_call_timeout: Duration::from_millis(limits.timeout_ms),
            ..parts.limits
        };
    }
    parts
}

fn terms(
    program: &str,
    context: &Context,
    edited: bool,
    recording: &Arc<Recording>,
    parts: &Parts,
) -> Terms {
    let tools = context.tools.clone();
    let absent = if edited {
        absent::absent(program, &tools, recording.as_ref())
    } else {
        context.absent.clone()
    };
    Terms {
        run: run_frame(
            program.to_owned(),
            tools,
            absent,
            context.seed,
            &parts.limits,
        ),
        deadline: Instant::now() + parts.limits.timeout,
        max_calls: parts.limits.max_tool_calls,
        answers: Arc::clone(recording) as _,
    }
}

fn repeated(
    gathered: Gathered,
    exit: Option<&Exit>,
    parts: &Parts,
    recording: &Recording,
    recorder: &crate::journal::RunRecorder,
) -> Repeated {
    let judged = outcome::judge(&gathered, exit, parts, false);
    let (differences, answered) = recording.result();
    Repeated {
        ending: judged.ending,
        error: judged.recorded(recorder),
        output: recorder.mask(gathered.output.settled(recorder)),
        result: gathered
            .emitted
            .map(|value| recorder.mask(&value.to_string())),
        made: gathered.total,
        answered,
        differences,
        changed: Vec::new(),
        python: parts.pool.python(),
    }
    .checked(recording.changed())
}

fn report(stored: &StoredRun, repeated: &Repeated, program: &str, edited: bool) -> Replay {
    let differences = compare(stored, repeated, edited);
    let mut depends_on = depends::depends(program);
    if stored.record.ending == ptc_protocol::run::Ending::Cancelled {
        depends_on.insert(0, "the moment at which its client cancelled it".to_owned());
    }
    let changed = !stored.intact || !repeated.changed.is_empty();
    let verdict = if edited {
        Verdict::Edited
    } else if differences.is_empty() {
        Verdict::Same
    } else if depends_on.is_empty() || changed {
        Verdict::Different
    } else {
        Verdict::NotReproducible
    };
    let mut notes = Vec::new();
    let recorded = &stored.record.facts.python;
    if *recorded != repeated.python {
        let word =
            |version: &Option<String>| version.clone().unwrap_or_else(|| "unknown".to_owned());
        notes.push(format!(
            "recorded with Python {}, repeated with {}",
            word(recorded),
            word(&repeated.python)
        ));
    }
    Replay {
        schema: SCHEMA,
        run: stored.record.run.clone(),
        edited,
        verdict,
        differences,
        depends_on,
        notes,
        ending: repeated.ending,
        error: repeated.error.clone(),
        output: super::output::visible(&repeated.output),
        result: repeated.result.as_deref().and_then(exact_value),
        calls: (repeated.made, repeated.answered),
    }
}
