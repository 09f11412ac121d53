//! Runs programs: admits, checks out a worker, follows the run, closes its record.

mod absent;
mod admission;
mod approval;
mod budget;
mod call;
mod checkout;
pub mod checks;
mod guards;
mod judging;
mod outcome;
pub mod output;
mod record;
mod recording;
pub mod replay;
mod run;
mod second;
mod start;
pub mod streams;
mod tally;
mod terms;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::Local;
use ptc_protocol::facts::RunKind;
use ptc_protocol::run::{Confinement, Ending, RunRecord, ToolErrorKind};
use ptc_protocol::status::Totals;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use self::admission::{Admission, NotAdmitted, Place};
use self::guards::{AbortWith, LiveGuard};
use self::record::Opened;
use self::run::{Gathered, RunLoop};
use self::tally::Tally;
use crate::config::{ApprovalConfig, EngineName, ExecutionConfig};
use crate::journal::{Journal, JournalError};
use crate::metrics::Metrics;
use crate::policy::Gate;
use crate::pool::frame::Helper;
use crate::pool::{Busy, CheckedOut, Exit, Pool, PoolError, Worker};
use crate::registry::{ToolError, View};

pub use self::approval::{Answer, Approvals, Question};
pub use self::call::{Asker, Boxed, CallTarget};
pub use self::judging::judge_alone;
pub use self::outcome::Outcome;
pub use self::second::Second;
pub use self::start::judge_start;

/// Workers that may be lost, one after the other, before their program began.
const MAX_WORKERS_LOST: u32 = 4;
/// Outputs up to this many bytes are made ready where they arrive.
const MAX_INLINE: u64 = 256 * 1024;
/// Longest program, in bytes.
pub const MAX_PROGRAM_BYTES: usize = 1024 * 1024;

/// Why a run could not be had; nothing of the program ran.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Programs cannot be confined here, or a worker does not start.
    #[error("SandboxError: {0}")]
    Sandbox(#[from] PoolError),
    /// No place was free.
    #[error("programs cannot start now: {0}")]
    Busy(#[from] NotAdmitted),
    /// The run cannot be recorded.
    #[error("the program was not run: its record cannot be written ({0})")]
    Journal(#[from] JournalError),
    /// The program is too long.
    #[error("the program has {size} bytes; at most {MAX_PROGRAM_BYTES} are taken")]
    TooLong {
        /// Its size.
        size: usize,
    },
    /// The configuration is not usable.
    #[error("{0}")]
    Config(String),
    /// The engine that was named, or is the default, cannot be had.
    #[error("the engine monty is unavailable: {0}")]
    Engine(String),
    /// A policy denies this program, as it says.
    #[error("the program was denied before it started: {0}")]
    Denied(String),
    /// The daemon is ending.
    #[error("the daemon is ending and starts no more programs; call again in a moment")]
    Draining,
    /// The client no longer wants it.
    #[error("cancelled before it started")]
    Cancelled,
    /// A part of the daemon failed; its log has the reason.
    #[error("the daemon failed while it ran this program; its log has the reason")]
    Inside,
}

/// Who started a program.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Digest of the session.
    pub session: String,
    /// The client's label.
    pub client: Option<String>,
    /// The client's version, as it says itself; may be empty.
    pub version: String,
    /// The client's JSON-RPC request id.
    pub request: Value,
    /// What of the servers its client sees.
    pub view: View,
    /// Folder of the project the client works in, as it says.
    pub project: Option<String>,
    /// The model, as far as the client tells.
    pub model: Option<String>,
}

/// What a program is run for; anything but [`RunKind::Program`] sees no tools.
#[derive(Clone, Debug, Default)]
pub struct Purpose {
    /// Which kind of run it is.
    pub kind: RunKind,
    /// The submission it belongs to.
    pub part_of: Option<String>,
    /// The engine it names.
    pub engine: Option<EngineName>,
}

impl Purpose {
    /// A program of a client, in the engine it names.
    pub fn program(engine: Option<EngineName>) -> Self {
        Self {
            engine,
            ..Self::default()
        }
    }
}

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Calls started.
    pub started: u64,
    /// Calls finished.
    pub finished: u64,
    /// The tool called last.
    pub tool: String,
}

/// What answers the helpers inside a program.
pub trait Answers: Debug + Send + Sync {
    /// The same answers as one client gets them; `None` where that makes no difference.
    fn seen_by(&self, view: &View) -> Option<Arc<dyn Answers>>;
    /// The value of one helper.
    fn answer(&self, helper: Helper, arguments: &Map<String, Value>) -> Result<Value, ToolError>;
    /// Callable names, each with its parameters.
    fn signatures(&self) -> BTreeMap<String, Vec<String>>;
    /// What to say about a name that does not exist.
    fn hint(&self, name: &str) -> Option<String>;
}

/// What the engine is made of; replaced as one when the configuration changes.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Limits of a run.
    pub limits: ExecutionConfig,
    /// Where workers come from.
    pub pool: Pool,
    /// What these workers run programs with.
    pub engine: EngineName,
    /// Where the workers of the other engine come from.
    pub second: Second,
    /// Where calls go.
    pub target: Arc<dyn CallTarget>,
    /// What answers the helpers.
    pub answers: Arc<dyn Answers>,
    /// What judges calls; the one gate of the daemon, whose rules change under running programs.
    pub gate: Gate,
    /// How calls come to a person.
    pub approval: ApprovalConfig,
    /// Where programs without tools run, where not with the others.
    pub checks: Option<checks::Checks>,
    /// The fault of the configuration, when it has one: every program is answered with it.
    pub fault: Option<String>,
}

/// Runs programs.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    parts: Mutex<Arc<Parts>>,
    journal: Journal,
    admission: Admission,
    approvals: Approvals,
    budgets: checks::Budgets,
    live: watch::Sender<Live>,
    tally: Mutex<Tally>,
    metrics: Metrics,
    draining: CancellationToken,
    abort: CancellationToken,
}

/// Runs under way, counted by the digest of their session.
pub type Live = BTreeMap<String, usize>;

/// One program and what goes with it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Source text as the client sent it.
    pub code: String,
    /// Who started it.
    pub caller: Caller,
    /// What it is for.
    pub purpose: Purpose,
    /// How questions reach that client.
    pub asker: Arc<dyn Asker>,
    /// Where progress goes.
    pub progress: watch::Sender<Progress>,
    /// Ends the run.
    pub cancel: CancellationToken,
}

impl Engine {
    /// An engine that keeps its records in `journal`.
    pub fn new(parts: Parts, journal: Journal, metrics: Metrics) -> Self {
        let admission = Admission::new(parts.limits.max_runs);
        let tally = Tally::with(&journal.runs(), Local::now());
        Self {
            inner: Arc::new(Inner {
                parts: Mutex::new(Arc::new(parts)),
                journal,
                admission,
                approvals: Approvals::default(),
                budgets: checks::Budgets::default(),
                live: watch::Sender::default(),
                tally: Mutex::new(tally),
                metrics,
                draining: CancellationToken::new(),
                abort: CancellationToken::new(),
            }),
        }
    }

    /// The parts in force.
    pub fn parts(&self) -> Arc<Parts> {
        Arc::clone(&lock(&self.inner.parts))
    }

    /// Puts other parts in force; runs under way keep theirs.
    pub fn replace(&self, parts: Parts) {
        self.inner.admission.resize(parts.limits.max_runs);
        *lock(&self.inner.parts) = Arc::new(parts);
    }

    /// Lets no more programs start, unless one runs or waits; whether none will start.
    pub fn close_if_idle(&self) -> bool {
        self.inner.admission.close_if_idle()
    }

    /// Programs running and waiting.
    pub fn counts(&self) -> (usize, usize) {
        self.inner.admission.counts()
    }

    /// Calls that wait in the daemon for a person.
    pub fn approvals(&self) -> Approvals {
        self.inner.approvals.clone()
    }

    /// Counts since the start.
    pub fn totals(&self) -> Totals {
        lock(&self.inner.tally).since_start()
    }

    /// Counts since midnight, those of earlier daemons among them.
    pub fn today(&self) -> Totals {
        lock(&self.inner.tally).today(Local::now())
    }

    /// Runs under way.
    pub fn live(&self) -> Live {
        self.inner.live.borrow().clone()
    }

    /// Lets no more programs start, waits for those that run, and cancels what is left after `grace`.
    pub async fn drain(&self, grace: Duration) {
        self.inner.draining.cancel();
        let mut live = self.inner.live.subscribe();
        if tokio::time::timeout(grace, live.wait_for(BTreeMap::is_empty))
            .await
            .is_err()
        {
            self.inner.abort.cancel();
            let _ = tokio::time::timeout(Duration::from_secs(5), live.wait_for(BTreeMap::is_empty))
                .await;
        }
    }

    /// Runs one program to its end.
    pub async fn run(&self, request: Request) -> Result<Outcome, RunError> {
        let outcome = self.admit(request).await;
        match &outcome {
            Ok(_) => {}
            Err(RunError::Cancelled) => self.inner.metrics.run_ended(Ending::Cancelled, None),
            Err(_) => self.inner.metrics.run_ended(Ending::Refused, None),
        }
        outcome
    }

    async fn admit(&self, request: Request) -> Result<Outcome, RunError> {
        if let Some(fault) = &self.parts().fault {
            return Err(RunError::Config(fault.clone()));
        }
        if self.inner.draining.is_cancelled() {
            return Err(RunError::Draining);
        }
        let size = request.code.len();
        if size > MAX_PROGRAM_BYTES {
            return Err(RunError::TooLong { size });
        }
        self.may_wait(&request).await?;
        let cancel = request.cancel.clone();
        // Who waits for a place is turned away when the daemon ends; who has one runs to the end.
        let place = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(RunError::Cancelled),
            () = self.inner.draining.cancelled() => return Err(RunError::Draining),
            place = self.inner.admission.admit(&request.caller.session) => place?,
        };
        let _live = LiveGuard::new(&self.inner.live, &request.caller.session);
        let (parts, worker, busy) = self.check_out(&cancel, &request.purpose).await?;
        let outcome = Box::pin(self.follow(&parts, request, (worker, busy), &place)).await;
        drop(place);
        outcome
    }

    async fn follow(
        &self,
        parts: &Parts,
        request: Request,
        (worker, busy): (Worker, Busy),
        place: &Place,
    ) -> Result<Outcome, RunError> {
        let start = self.may_start(parts, &request).await?;
        let lender = place.lender();
        let opened = Opened::begin(&self.inner.journal, &request, parts, (lender, start))?;
        let span = tracing::error_span!("run", run = opened.run);
        self.follow_opened(parts, request, opened, worker, busy)
            .instrument(span)
            .await
    }

    async fn follow_opened(
        &self,
        parts: &Parts,
        request: Request,
        opened: Opened,
        mut worker: Worker,
        mut busy: Busy,
    ) -> Result<Outcome, RunError> {
        let caller = request.caller.clone();
        let started = Instant::now();
        let mut tries = 0;
        let (gathered, exit) = loop {
            let (gathered, exit) = self
                .attempt(parts, request.clone(), &opened, &mut worker)
                .await;
            tries += 1;
            if tries == MAX_WORKERS_LOST || !never_began(&gathered, exit.as_ref()) {
                break (gathered, exit);
            }
            // Something killed the worker while it waited; the program did nothing yet.
            tracing::warn!("a worker was killed before its program began");
            match parts.pool.check_out().await.map(CheckedOut::into_parts) {
                Ok(Some((fresh, fresh_busy))) => (worker, busy) = (fresh, fresh_busy),
                _ => break (gathered, exit),
            }
        };
        let duration = started.elapsed();
        worker.kill();
        let judged = outcome::judge(
            &gathered,
            exit.as_ref(),
            parts,
            self.inner.abort.is_cancelled(),
        );
        let confinement = worker.confinement;
        let record = opened.record(caller, &gathered, &judged, duration, confinement);
        let named = self
            .inner
            .journal
            .keeps_output()
            .then(|| opened.run.clone());
        let max = parts.limits.max_output_bytes;
        let gathered = away(gathered, move |gathered| {
            gathered.shown = gathered.output.shown(max, named.as_deref());
        });
        let mut gathered = gathered.await?;
        self.count(&record, gathered.shown.len() as u64);
        let output = std::mem::take(&mut gathered.shown);
        let given = record::Given::of(&gathered);
        let finished = record::write(opened.recorder, record, given).await;
        tracing::debug!(
            ending = judged.ending.as_str(),
            ms = duration.as_millis(),
            "a program has ended"
        );
        tokio::spawn(record::close(worker, busy, exit, finished).in_current_span());
        let outcome = Outcome::new(opened.run, judged, gathered, output, duration, confinement);
        Ok(outcome)
    }

    /// One program in one worker. A worker that died is reaped at once, since its end is the answer.
    async fn attempt(
        &self,
        parts: &Parts,
        request: Request,
        opened: &Opened,
        worker: &mut Worker,
    ) -> (Gathered, Option<Exit>) {
        let metrics = self.inner.metrics.clone();
        let approvals = self.approvals();
        let (desk, terms) = terms::prepare(parts, request, opened, (metrics, approvals));
        let _abort = AbortWith::new(&self.inner.abort, &desk.cancel);
        let gathered = Box::pin(RunLoop::run(worker, desk, terms)).await;
        let exit = match gathered.end {
            run::End::Died => worker.exited().await,
            _ => None,
        };
        (gathered, exit)
    }

    fn count(&self, record: &RunRecord, returned: u64) {
        let took = Duration::from_millis(record.duration_ms);
        self.inner.metrics.run_ended(record.ending, Some(took));
        lock(&self.inner.tally).count(record, returned, Local::now());
    }
}

/// Whether a worker was killed from outside before anything came from its program.
fn never_began(gathered: &Gathered, exit: Option<&Exit>) -> bool {
    let killed = exit.is_some_and(|exit| exit.signal == Some(9) && !exit.scratch_exceeded);
    killed && gathered.silent
}

/// Does what may take long, where a run printed megabytes, off the threads that serve others.
async fn away<F>(mut gathered: Gathered, work: F) -> Result<Gathered, RunError>
where
    F: FnOnce(&mut Gathered) + Send + 'static,
{
    if gathered.output.total() < MAX_INLINE {
        work(&mut gathered);
        return Ok(gathered);
    }
    let worked = tokio::task::spawn_blocking(move || {
        work(&mut gathered);
        gathered
    });
    worked.await.map_err(|_| RunError::Inside)
}

/// The error of a call that was under way when its run ended.
fn ended(tool: &str) -> ToolError {
    ToolError {
        kind: ToolErrorKind::Cancelled,
        message: format!(
            "'{}' was cancelled: the program is over",
            output::head(tool, 200)
        ),
        tool: Some(output::head(tool, 200).to_owned()),
        server: None,
        retryable: true,
        data: None,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The outcome of a run that could not be had.
pub fn refused(error: &RunError, confinement: Option<Confinement>) -> Outcome {
    Outcome::refused(error.to_string(), Ending::Refused, confinement)
}
