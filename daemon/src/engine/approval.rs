//! Puts calls that need a person to one, and lets their programs wait.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ptc_protocol::approval::Waiting;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::admission::Lender;
use super::{Asker, lock};
use crate::config::{ApprovalConfig, Channel};

/// Programs that may wait for a person, over all sessions.
const MAX_WAITING: usize = 16;

/// What a person is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The run that asks.
    pub run: String,
    /// Name of the client that started it, as it says itself.
    pub client: String,
    /// Callable name.
    pub tool: String,
    /// Name of the server.
    pub server: String,
    /// What the tool does.
    pub effect: &'static str,
    /// Why a person is asked; may be empty.
    pub reason: String,
    /// The arguments as they will be sent, JSON text, secrets masked.
    pub arguments: String,
    /// Whether a yes counts for this call alone, and no earlier yes counts for it.
    pub once_only: bool,
}

/// What a person says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This call may be made.
    Once,
    /// This and every further call of the tool by this program that only needs a person.
    Tool,
    /// It may not, and why.
    No(String),
}

impl Answer {
    /// The word in the journal.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Tool => "tool",
            Self::No(_) => "no",
        }
    }
}

/// Questions that wait in the daemon. All clones are one.
#[derive(Clone, Debug)]
pub struct Approvals(Arc<Inner>);

/// A question, since when it waits, and where its answer goes.
type Entry = (Question, Instant, oneshot::Sender<Answer>);

#[derive(Debug)]
struct Inner {
    waiting: Mutex<BTreeMap<String, Entry>>,
    seats: Arc<Semaphore>,
}

impl Default for Approvals {
    fn default() -> Self {
        Self(Arc::new(Inner {
            waiting: Mutex::default(),
            seats: Arc::new(Semaphore::new(MAX_WAITING)),
        }))
    }
}

impl Approvals {
    /// What waits for an answer in the daemon, oldest first.
    pub fn list(&self) -> Vec<Waiting> {
        let waiting = lock(&self.0.waiting);
        let mut list: Vec<(Instant, Waiting)> = waiting
            .iter()
            .map(|(id, (question, since, _))| (*since, told(id, question, *since)))
            .collect();
        list.sort_by_key(|(since, _)| *since);
        list.into_iter().map(|(_, waiting)| waiting).collect()
    }

    /// Answers one; whether it waited.
    pub fn answer(&self, id: &str, answer: Answer) -> bool {
        let taken = lock(&self.0.waiting).remove(id);
        taken.is_some_and(|(_, _, sender)| sender.send(answer).is_ok())
    }

    /// Keeps a question until it is answered, or nobody waits for that any more.
    async fn keep(&self, question: Question) -> Answer {
        let id = ptc_protocol::hex(&random());
        let (sender, answer) = oneshot::channel();
        let entry = (question, Instant::now(), sender);
        lock(&self.0.waiting).insert(id.clone(), entry);
        let _kept = Kept(self, id);
        answer
            .await
            .unwrap_or_else(|_| Answer::No("nobody can answer any more".to_owned()))
    }
}

/// Forgets a question when nobody waits for its answer.
struct Kept<'a>(&'a Approvals, String);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        lock(&self.0.0.waiting).remove(&self.1);
    }
}

fn told(id: &str, question: &Question, since: Instant) -> Waiting {
    Waiting {
        id: id.to_owned(),
        run: question.run.clone(),
        client: question.client.clone(),
        tool: question.tool.clone(),
        server: question.server.clone(),
        effect: question.effect.to_owned(),
        reason: question.reason.clone(),
        arguments: question.arguments.clone(),
        waits_seconds: since.elapsed().as_secs(),
    }
}

/// Four bytes; ids need only be told apart by a person who types them.
fn random() -> [u8; 4] {
    let mut bytes = [0; 4];
    if getrandom::fill(&mut bytes).is_err() {
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
            .subsec_nanos();
        bytes = nanos.to_le_bytes();
    }
    bytes
}

/// How the calls of one run come to a person.
#[derive(Debug)]
pub(super) struct Approver {
    config: ApprovalConfig,
    approvals: Approvals,
    asker: Arc<dyn Asker>,
    /// Tools of this run that a person allowed for all its calls, by server and the server's own name.
    granted: Mutex<HashSet<(String, String)>>,
    waits: Waits,
}

impl Approver {
    pub(super) fn new(
        config: ApprovalConfig,
        approvals: Approvals,
        asker: Arc<dyn Asker>,
        lender: Option<Lender>,
    ) -> Self {
        let waits = Waits {
            seats: Arc::clone(&approvals.0.seats),
            state: Mutex::default(),
            calls: watch::Sender::default(),
            lender,
        };
        Self {
            config,
            approvals,
            asker,
            granted: Mutex::default(),
            waits,
        }
    }

    /// Calls of this run that wait for a person or a judgement; its clock stands while there are any.
    pub(super) fn waiting(&self) -> watch::Receiver<usize> {
        self.waits.calls.subscribe()
    }

    /// Lets the program's clock stand while a call is judged; its place among the programs stays its own.
    pub(super) fn hold(&self) -> impl Drop + '_ {
        self.waits.hold()
    }

    /// Asks, unless the tool was allowed for this program; `tool` is its server and its own name. The program's clock
    /// stands meanwhile.
    pub(super) async fn ask(&self, tool: &(String, String), question: Question) -> Answer {
        let once_only = question.once_only;
        if !once_only && lock(&self.granted).contains(tool) {
            return Answer::Tool;
        }
        if self.config.channel == Channel::Deny {
            let text = "it needs a person's yes, and a program cannot ask for that here (policy.approval: deny)";
            return Answer::No(text.to_owned());
        }
        let Some(_waits) = self.waits.enter() else {
            return Answer::No(format!(
                "it needs a person's yes, and {MAX_WAITING} programs wait for one already"
            ));
        };
        let asked = async {
            match self.config.channel {
                Channel::Local => self.approvals.keep(question).await,
                Channel::Client | Channel::Deny => self.asker.ask(question).await,
            }
        };
        let Ok(answer) = tokio::time::timeout(self.config.limit, asked).await else {
            let seconds = self.config.limit.as_secs_f64();
            return Answer::No(format!(
                "it needs a person's yes, and nobody answered within {seconds} s (policy.approval_seconds)"
            ));
        };
        if answer == Answer::Tool {
            if once_only {
                return Answer::Once;
            }
            lock(&self.granted).insert(tool.clone());
        }
        answer
    }
}

/// Counts the calls of one run that wait for a person, and what its waiting frees.
#[derive(Debug)]
struct Waits {
    seats: Arc<Semaphore>,
    state: Mutex<State>,
    calls: watch::Sender<usize>,
    /// Its place among the programs; nothing where it holds none.
    lender: Option<Lender>,
}

#[derive(Debug, Default)]
struct State {
    calls: usize,
    /// Calls that are being judged.
    held: usize,
    seat: Option<OwnedSemaphorePermit>,
}

impl Waits {
    /// One more call waits; `None` where too many programs do.
    fn enter(&self) -> Option<Wait<'_>> {
        let mut state = lock(&self.state);
        if state.calls == 0 {
            state.seat = Some(Arc::clone(&self.seats).try_acquire_owned().ok()?);
            if let Some(lender) = &self.lender {
                lender.lend();
            }
        }
        state.calls += 1;
        self.tell(&state);
        Some(Wait(self))
    }

    fn hold(&self) -> Held<'_> {
        let mut state = lock(&self.state);
        state.held += 1;
        self.tell(&state);
        Held(self)
    }

    fn tell(&self, state: &State) {
        self.calls.send_replace(state.calls + state.held);
    }
}

/// One call that is judged.
struct Held<'a>(&'a Waits);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.held -= 1;
        self.0.tell(&state);
    }
}

/// One call that waits.
struct Wait<'a>(&'a Waits);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.calls -= 1;
        self.0.tell(&state);
        if state.calls == 0 {
            state.seat = None;
            if let Some(lender) = &self.0.lender {
                lender.take_back();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::Boxed;

    #[derive(Debug)]
    struct Says(Option<Answer>);

    impl Asker for Says {
        fn ask(&self, _: Question) -> Boxed<'static, Answer> {
            match self.0.clone() {
                Some(answer) => Box::pin(std::future::ready(answer)),
                None => Box::pin(std::future::pending()),
            }
        }
    }

    fn question() -> Question {
        Question {
            run: "r".to_owned(),
            client: "c".to_owned(),
            tool: "mcp__a__b".to_owned(),
            server: "a".to_owned(),
            effect: "write",
            reason: String::new(),
            arguments: "{}".to_owned(),
            once_only: false,
        }
    }

    fn approver(channel: Channel, approvals: &Approvals, answer: Option<Answer>) -> Approver {
        let config = ApprovalConfig {
            channel,
            limit: Duration::from_mins(5),
        };
        Approver::new(config, approvals.clone(), Arc::new(Says(answer)), None)
    }

    fn tool() -> (String, String) {
        ("a".to_owned(), "b".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_who_answers_is_a_no_after_the_limit() {
        let approvals = Approvals::default();
        for channel in [Channel::Client, Channel::Local] {
            let asks = approver(channel, &approvals, None);
            let Answer::No(why) = asks.ask(&tool(), question()).await else {
                panic!("allowed");
            };
            assert!(why.contains("nobody answered within 300 s"), "{why}");
            assert_eq!(*asks.waiting().borrow(), 0);
            assert_eq!(approvals.list(), []);
        }
    }

    #[tokio::test]
    async fn a_tool_allowed_for_the_program_is_not_asked_about_again() {
        let approvals = Approvals::default();
        let asks = approver(Channel::Local, &approvals, None);
        let tool = tool();
        let (first, ()) = tokio::join!(asks.ask(&tool, question()), async {
            while approvals.list().is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(*asks.waiting().borrow(), 1);
            let waiting = approvals.list();
            assert!(approvals.answer(&waiting[0].id, Answer::Tool));
            assert!(!approvals.answer(&waiting[0].id, Answer::Once));
        });
        assert_eq!(first, Answer::Tool);
        assert_eq!(asks.ask(&tool, question()).await, Answer::Tool);
        // Another run knows nothing of it.
        let other = approver(Channel::Deny, &approvals, None);
        assert!(matches!(other.ask(&tool, question()).await, Answer::No(_)));
    }

    #[tokio::test]
    async fn sixteen_programs_wait_and_the_next_is_denied() {
        let approvals = Approvals::default();
        let all: Vec<Approver> = (0..=MAX_WAITING)
            .map(|_| approver(Channel::Client, &approvals, None))
            .collect();
        let mut held = Vec::new();
        for asks in &all {
            held.push(asks.waits.enter());
        }
        assert!(held.pop().unwrap().is_none());
        let Answer::No(why) = all[MAX_WAITING].ask(&tool(), question()).await else {
            panic!("allowed");
        };
        assert!(why.contains("16 programs wait"), "{why}");
        // A second call of a program that waits takes no further seat.
        assert!(all[0].waits.enter().is_some());
        held.clear();
        assert!(all[MAX_WAITING].waits.enter().is_some());
    }
}
