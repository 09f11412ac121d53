//! One tool call of a run: counted, judged, logged before and after, sent.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ptc_protocol::detail::DecisionEntry;
use ptc_protocol::run::{CallRecord, ToolErrorKind};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::Progress;
use super::approval::{Answer, Approver, Question};
use super::budget::Exhausted;
use super::judging::{Judge, Judged};
use super::output::{head, middle_cut, visible};
use crate::config::offered::Barred;
use crate::journal::{CallEnd, CallFailure, CallStart, RunRecorder};
use crate::metrics::Metrics;
use crate::policy::Verdict;
use crate::pool::frame::{AnswerError, Call};
use crate::registry::{PreparedCall, Registry, ToolError, ToolReply, View};

/// Results up to this many bytes are logged where they arrive.
const MAX_INLINE: usize = 256 * 1024;

/// A future that any implementor can name.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How long a call waits for a server that is starting.
const STARTING: Duration = Duration::from_secs(10);
/// Most characters of one call's arguments in the answer.
const MAX_SHOWN_ARGS: usize = 200;
/// Most characters of one call's error in the answer.
const MAX_SHOWN_ERROR: usize = 500;

/// Where calls go: the registry, or a recording when a run is replayed.
pub trait CallTarget: Debug + Send + Sync {
    /// The same target as one client sees it; `None` where that makes no difference.
    fn seen_by(&self, view: &View) -> Option<Arc<dyn CallTarget>>;

    /// Waits while it is not yet known whether there is such a tool, at most `limit`.
    fn expect<'a>(&'a self, tool: &'a str, limit: Duration) -> Boxed<'a, ()>;

    /// Finds the tool and checks the arguments, which are JSON text. `id` is the call's in its run.
    fn prepare(&self, id: u64, tool: &str, arguments: &str) -> Result<PreparedCall, ToolError>;

    /// Takes secrets out of a text that is shown or written down.
    fn mask(&self, text: &str) -> String;

    /// Sends a prepared call. The limit starts when it is sent.
    fn call<'a>(
        &'a self,
        id: u64,
        call: &'a PreparedCall,
        limit: Duration,
        cancel: CancellationToken,
    ) -> Boxed<'a, Result<ToolReply, ToolError>>;

    /// Hears that the answer to a call is on its way to the program.
    fn answered(&self, _id: u64) {}
}

impl CallTarget for Registry {
    fn seen_by(&self, view: &View) -> Option<Arc<dyn CallTarget>> {
        Some(Arc::new(Self::seen_by(self, view.clone())))
    }

    fn expect<'a>(&'a self, tool: &'a str, limit: Duration) -> Boxed<'a, ()> {
        Box::pin(Self::expect(self, tool, limit))
    }

    fn prepare(&self, _: u64, tool: &str, arguments: &str) -> Result<PreparedCall, ToolError> {
        Self::prepare(self, tool, arguments)
    }

    fn mask(&self, text: &str) -> String {
        Self::mask(self, text)
    }

    fn call<'a>(
        &'a self,
        _: u64,
        call: &'a PreparedCall,
        limit: Duration,
        cancel: CancellationToken,
    ) -> Boxed<'a, Result<ToolReply, ToolError>> {
        Box::pin(Self::call(self, call, limit, cancel))
    }
}

/// A way to put a question to the client that started the program.
pub trait Asker: Debug + Send + Sync {
    /// What a person says, or why none can be asked.
    fn ask(&self, question: Question) -> Boxed<'static, Answer>;
}

/// What every call of one run shares.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) target: Arc<dyn CallTarget>,
    pub(super) judge: Judge,
    pub(super) approver: Approver,
    pub(super) recorder: RunRecorder,
    pub(super) metrics: Metrics,
    pub(super) places: Semaphore,
    pub(super) limit: Duration,
    pub(super) barred: Barred,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) cancel: CancellationToken,
}

/// A call that is not sent.
#[derive(Debug)]
struct Refusal {
    error: ToolError,
    /// What the gate said, where it was asked.
    decision: Option<Box<DecisionEntry>>,
}

impl From<ToolError> for Refusal {
    fn from(error: ToolError) -> Self {
        Self {
            error,
            decision: None,
        }
    }
}

/// A call that is over.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) id: u64,
    pub(super) record: CallRecord,
    /// Bytes of the value the program got.
    pub(super) bytes: usize,
    /// What the awaiting program gets.
    pub(super) outcome: Result<Box<str>, AnswerError>,
}

impl Desk {
    /// Makes one call from its frame to its end. `admitted` is the budget's word.
    pub(super) async fn call(&self, call: Call, admitted: Result<(), Exhausted>) -> Finished {
        let started = Instant::now();
        let Call {
            id,
            tool,
            arguments,
        } = call;
        // A program may call anything by any name; what is cut below must be masked by then.
        let name = self.target.mask(&tool);
        let mut note = None;
        let mut server = None;
        let outcome = match admitted {
            Err(exhausted) => Err(exhausted_error(&name, exhausted)),
            Ok(()) => match self.prepare(id, &tool, arguments.get()).await {
                Ok((prepared, decision)) => {
                    let outcome = self.send(id, &prepared, &decision, started).await;
                    server = Some(prepared.server);
                    // A failure says it in its message.
                    note = prepared.note.filter(|_| outcome.is_ok());
                    outcome
                }
                Err(refusal) => {
                    self.log_refusal(id, &tool, arguments.get(), &refusal);
                    Err(refusal.error)
                }
            },
        };
        let took = started.elapsed();
        let ms = millis(took);
        let failure = outcome.as_ref().err();
        let server = server.or_else(|| failure?.server.clone());
        self.metrics.call_ended(
            server.as_deref().unwrap_or_default(),
            failure.map(|error| error.kind),
            took,
        );
        let shown = self.target.mask(arguments.get());
        let mut record = record(&name, &shown, ms, outcome.as_ref().err());
        record.note = note.map(|note| visible(&self.target.mask(&note)));
        let bytes = outcome.as_ref().map_or(0, |reply| reply.bytes);
        let outcome = outcome.map(|reply| reply.encoded).map_err(answer_error);
        Finished {
            id,
            record,
            bytes,
            outcome,
        }
    }

    async fn prepare(
        &self,
        id: u64,
        tool: &str,
        arguments: &str,
    ) -> Result<(PreparedCall, DecisionEntry), Refusal> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => {}
            () = self.target.expect(tool, self.limit.min(STARTING)) => {}
        }
        let prepared = self.target.prepare(id, tool, arguments)?;
        tracing::Span::current().record("server", &prepared.server);
        self.progress.send_modify(|progress| {
            progress.started += 1;
            progress.tool = format!("{}.{}", prepared.server, prepared.tool);
        });
        let judged = self.weigh(&prepared, self.judge.decide(&prepared)).await?;
        let mut entry = judged.entry.clone();
        let denied = match &judged.decision.verdict {
            Verdict::Allow => None,
            Verdict::Deny { reason } => Some(reason.clone()),
            Verdict::Ask { reason } => {
                let answer = tokio::select! {
                    biased;
                    () = self.cancel.cancelled() => return Err(Refusal {
                        error: cancelled(&prepared),
                        decision: Some(Box::new(entry)),
                    }),
                    answer = self.ask(&prepared, &judged, reason) => answer,
                };
                entry.answer = Some(answer.as_str().to_owned());
                match answer {
                    Answer::No(reason) => Some(reason),
                    Answer::Once | Answer::Tool => {
                        self.judge.denied_since(&prepared, judged.counts)
                    }
                }
            }
        };
        if let Some(reason) = denied {
            let text = format!("'{tool}' was denied: {reason}");
            return Err(Refusal {
                error: error(&prepared, ToolErrorKind::Denied, text, false),
                decision: Some(Box::new(entry)),
            });
        }
        if let Some(why) = self.barred.why(&prepared.server) {
            return Err(Refusal {
                error: barred(&prepared, &why),
                decision: Some(Box::new(entry)),
            });
        }
        Ok((prepared, entry))
    }

    /// Has a call judged by rubrics, where some apply; the program's clock stands meanwhile.
    async fn weigh(&self, call: &PreparedCall, judged: Judged) -> Result<Judged, Refusal> {
        if judged.decision.rubrics.is_empty() {
            return Ok(judged);
        }
        let _hold = self.approver.hold();
        let entry = judged.entry.clone();
        let shown = self.target.mask(&call.encoded);
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Refusal {
                error: cancelled(call),
                decision: Some(Box::new(entry)),
            }),
            judged = self.judge.weigh(judged, call, &shown) => Ok(judged),
        }
    }

    /// Puts a call to a person; the program's clock stands meanwhile.
    async fn ask(&self, call: &PreparedCall, judged: &Judged, reason: &str) -> Answer {
        let question = Question {
            run: self.recorder.run().to_owned(),
            client: self.judge.client().to_owned(),
            tool: call.name.clone(),
            server: call.server.clone(),
            effect: judged.decision.effect.as_str(),
            reason: reason.to_owned(),
            arguments: self.target.mask(&call.encoded),
            once_only: judged.decision.once_only,
        };
        let tool = (call.server.clone(), call.tool.clone());
        self.approver.ask(&tool, question).await
    }

    async fn send(
        &self,
        id: u64,
        call: &PreparedCall,
        decision: &DecisionEntry,
        asked: Instant,
    ) -> Result<ToolReply, ToolError> {
        let _place = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(cancelled(call)),
            place = self.places.acquire() => place,
        };
        let started = Instant::now();
        self.recorder
            .before(&CallStart {
                call: id,
                tool: &call.name,
                server: &call.server,
                arguments: &call.encoded,
                decision: Some(decision),
                waited: asked.elapsed(),
            })
            .map_err(|fault| {
                let text = format!(
                    "'{}' was not called: the call log cannot be written ({fault})",
                    call.name
                );
                error(call, ToolErrorKind::Unavailable, text, true)
            })?;
        // While it waits for its server, that may start anew with the value of another client.
        let outcome = tokio::select! {
            biased;
            why = self.barred.until(&call.server) => Err(barred(call, &why)),
            outcome = self.target.call(id, call, self.limit, self.cancel.clone()) => outcome,
            () = past(&self.cancel) => Err(cancelled(call)),
        };
        self.log_end(id, started.elapsed(), outcome).await
    }

    /// A value of megabytes is hashed away from the tasks that serve others.
    async fn log_end(
        &self,
        id: u64,
        duration: Duration,
        outcome: Result<ToolReply, ToolError>,
    ) -> Result<ToolReply, ToolError> {
        let recorder = self.recorder.clone();
        let log = move |outcome: &Result<ToolReply, ToolError>| {
            let result = match outcome {
                Ok(reply) => Ok(&*reply.encoded),
                Err(error) => Err(failure(error)),
            };
            if let Err(error) = recorder.after(&CallEnd {
                call: id,
                duration,
                result,
            }) {
                tracing::error!(%error, "the end of a call could not be logged");
            }
        };
        if outcome.as_ref().map_or(0, |reply| reply.bytes) < MAX_INLINE {
            log(&outcome);
            return outcome;
        }
        let logged = tokio::task::spawn_blocking(move || {
            log(&outcome);
            outcome
        });
        logged.await.unwrap_or_else(|_| Err(lost_in_log()))
    }

    fn log_refusal(&self, id: u64, tool: &str, arguments: &str, refusal: &Refusal) {
        let refused = self.recorder.refused(
            id,
            tool,
            arguments,
            failure(&refusal.error),
            refusal.decision.as_deref(),
        );
        if let Err(error) = refused {
            tracing::error!(%error, "a refused call could not be logged");
        }
    }
}

/// Some time after the run's end: a target that does not heed the token is left behind.
async fn past(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// A failure as the journal takes it.
fn failure(error: &ToolError) -> CallFailure<'_> {
    CallFailure {
        kind: error.kind,
        message: &error.message,
        server: error.server.as_deref(),
        retryable: error.retryable,
        data: error.data.as_deref(),
    }
}

/// `tool` is masked.
fn exhausted_error(tool: &str, exhausted: Exhausted) -> ToolError {
    ToolError {
        kind: ToolErrorKind::BudgetExhausted,
        message: format!(
            "{exhausted}: '{}' was not called; a new program has a new budget",
            head(tool, 200)
        ),
        tool: Some(head(tool, 200).to_owned()),
        server: None,
        retryable: false,
        data: None,
    }
}

fn lost_in_log() -> ToolError {
    ToolError {
        kind: ToolErrorKind::Protocol,
        message: "the result was lost inside the daemon; its log has the reason".to_owned(),
        tool: None,
        server: None,
        retryable: false,
        data: None,
    }
}

fn barred(call: &PreparedCall, why: &str) -> ToolError {
    let text = format!(
        "'{}' is not for this client: server '{}' {why}",
        call.name, call.server
    );
    error(call, ToolErrorKind::Unavailable, text, false)
}

fn cancelled(call: &PreparedCall) -> ToolError {
    let text = format!("'{}' was cancelled: the program is over", call.name);
    error(call, ToolErrorKind::Cancelled, text, true)
}

fn error(call: &PreparedCall, kind: ToolErrorKind, message: String, retryable: bool) -> ToolError {
    ToolError {
        kind,
        message,
        tool: Some(call.name.clone()),
        server: Some(call.server.clone()),
        retryable,
        data: None,
    }
}

/// The record of one call, its texts bounded and safe to show; tool and arguments come masked.
pub(super) fn record(
    tool: &str,
    arguments: &str,
    ms: u64,
    error: Option<&ToolError>,
) -> CallRecord {
    CallRecord {
        // A name the program made up may hold anything; it stands on one line all the same.
        tool: visible(head(tool, 200)).replace('\n', "\\n"),
        args: shortened(arguments, MAX_SHOWN_ARGS),
        ok: error.is_none(),
        ms,
        kind: error.map(|error| error.kind),
        error: error.map(|error| middle_cut(&visible(&error.message), MAX_SHOWN_ERROR)),
        note: None,
    }
}

fn shortened(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((at, _)) => format!("{}...", head(text, at)),
        None => text.to_owned(),
    }
}

/// What a worker is told of a failure.
pub(super) fn answer_error(error: ToolError) -> AnswerError {
    AnswerError {
        kind: error.kind.as_str(),
        message: error.message,
        tool: error.tool,
        server: error.server,
        retryable: error.retryable,
        data: error
            .data
            .map(|data| *data)
            .filter(|data| *data != Value::Null),
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::mask::Masker;
    use crate::config::offered::Judge as JudgeOfServers;
    use crate::config::{Config, ToolFilter};
    use crate::downstream::Downstream;
    use crate::downstream::testing::{options, server};
    use crate::engine::approval::Approvals;
    use crate::engine::judging::About;
    use crate::journal::{Journal, RunStart};
    use crate::policy::{Gate, Pins, Policy};

    #[derive(Debug)]
    struct Nobody;

    impl Asker for Nobody {
        fn ask(&self, _: Question) -> Boxed<'static, Answer> {
            Box::pin(async { Answer::No("nobody is there".to_owned()) })
        }
    }

    #[derive(Debug)]
    struct Bars(Vec<String>, watch::Sender<u64>);

    impl JudgeOfServers for Bars {
        fn why_barred(&self, server: &str) -> Option<String> {
            let barred = self.0.iter().any(|name| name == server);
            barred.then(|| "runs with another value".to_owned())
        }

        fn changed(&self) -> watch::Receiver<u64> {
            self.1.subscribe()
        }
    }

    /// A desk whose policy and barred servers are given, before the tools of a scripted server `s`.
    async fn desk(folder: &std::path::Path, filter: &ToolFilter, barred: &[&str]) -> Desk {
        let config = server("s", "", folder);
        let downstream = Downstream::start(vec![config], options(folder)).unwrap();
        let all = Policy::new(&ToolFilter::All).unwrap();
        let registry = Registry::new(downstream, all, folder.join("names"), true);
        registry.settled(Duration::from_secs(30)).await;
        let masker = Masker::with_key([7; 32], &BTreeMap::new());
        let journal = Journal::open(&Config::default().journal, folder, masker).unwrap();
        let run = RunStart {
            run: "r1",
            session: "abc123",
            client: None,
            request: &Value::Null,
            program: "",
        };
        Desk {
            target: Arc::new(registry),
            judge: Judge::new(
                Gate::new(Policy::new(filter).unwrap(), Pins::none()),
                About::default(),
            ),
            approver: Approver::new(
                Config::default().policy.approval,
                Approvals::default(),
                Arc::new(Nobody),
                None,
            ),
            recorder: journal.begin(&run).unwrap(),
            metrics: Metrics::new().unwrap(),
            places: Semaphore::new(1),
            limit: Duration::from_secs(20),
            barred: Barred::by(Arc::new(Bars(
                barred.iter().map(|&name| name.to_owned()).collect(),
                watch::Sender::default(),
            ))),
            progress: watch::Sender::new(Progress::default()),
            cancel: CancellationToken::new(),
        }
    }

    async fn outcome(desk: &Desk) -> Result<Box<str>, AnswerError> {
        let arguments = serde_json::value::to_raw_value(&BTreeMap::from([("a", 1)])).unwrap();
        let call = Call {
            id: 1,
            tool: "mcp__s__t".to_owned(),
            arguments,
        };
        desk.call(call, Ok(())).await.outcome
    }

    #[tokio::test]
    async fn what_stands_between_a_program_and_a_server_has_a_kind_of_its_own() {
        let block = ToolFilter::Block(vec!["mcp__s__*".to_owned()]);
        for (filter, barred, kind, words) in [
            (
                &block,
                &[][..],
                "denied",
                "'mcp__s__t' was denied: mcp__s__t is blocked by tools.block",
            ),
            (
                &ToolFilter::All,
                &["s"],
                "unavailable",
                "'mcp__s__t' is not for this client: server 's' runs with another value",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let desk = desk(folder.path(), filter, barred).await;
            let error = outcome(&desk).await.unwrap_err();
            assert_eq!(error.kind, kind);
            assert!(error.message.starts_with(words), "{}", error.message);
            assert_eq!(error.tool.as_deref(), Some("mcp__s__t"));
            assert_eq!(error.server.as_deref(), Some("s"));
            assert_eq!((error.retryable, error.data), (false, None));
        }
    }

    #[tokio::test]
    async fn a_call_after_the_end_of_its_run_is_cancelled_and_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let desk = desk(folder.path(), &ToolFilter::All, &[]).await;
        assert_eq!(&*outcome(&desk).await.unwrap(), "\"hello\"");
        desk.cancel.cancel();
        let error = outcome(&desk).await.unwrap_err();
        assert_eq!((error.kind, error.retryable), ("cancelled", true));
        assert_eq!(error.tool.as_deref(), Some("mcp__s__t"));
        assert_eq!(error.server.as_deref(), Some("s"));
        assert!(error.message.contains("the program is over"));
    }

    #[tokio::test]
    async fn a_name_is_masked_before_it_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let desk = desk(folder.path(), &ToolFilter::All, &[]).await;
        // Its cut falls within the secret.
        let call = Call {
            id: 1,
            tool: format!("{}hunter22", "x".repeat(196)),
            arguments: serde_json::value::to_raw_value("").unwrap(),
        };
        let finished = desk.call(call, Err(Exhausted { max: 3 })).await;
        let error = finished.outcome.unwrap_err();
        let expected = format!("{}<KEY", "x".repeat(196));
        assert_eq!(error.kind, "budget_exhausted");
        assert_eq!(error.tool.as_deref(), Some(expected.as_str()));
        assert_eq!(finished.record.tool, expected);
        let words = format!("{} {:?}", error.message, finished.record);
        assert!(
            words.contains(&expected) && !words.contains("hunt"),
            "{words}"
        );
    }

    #[test]
    fn a_record_is_bounded_and_safe_to_show() {
        let error = exhausted_error("mcp__a__b", Exhausted { max: 3 });
        let record = record(
            &format!("t\u{1b}{}", "n".repeat(1000)),
            &"ä".repeat(300),
            7,
            Some(&error),
        );
        assert!(record.tool.starts_with("t\\x1bn") && record.tool.len() < 250);
        assert_eq!(record.args, format!("{}...", "ä".repeat(200)));
        assert_eq!(
            (record.ok, record.ms, record.kind),
            (false, 7, Some(ToolErrorKind::BudgetExhausted))
        );
        let long = ToolError {
            message: "x".repeat(5000),
            ..error
        };
        let record = super::record("t", "{}", 1, Some(&long));
        assert!(record.error.unwrap().chars().count() <= MAX_SHOWN_ERROR);
    }
}
