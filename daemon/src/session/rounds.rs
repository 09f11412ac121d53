//! Keeps programs whose questions are with a client that has no handshake, until it comes back with the answers.
//!
//! Such a client cannot be sent requests. The answer to `execute_program` says what is asked, and the same request, sent
//! again with the answers and the state it was given, goes on with the same run. The state is 128 random bits that this
//! session keeps to itself, good for one use: nothing else leads to a run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{InputRequest, InputRequests, InputRequiredResult, InputResponses};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::apart::CancelWith;
use super::asking::{AT_ONCE, Asked, form};
use crate::engine::{Outcome, Progress, RunError};

/// How long further questions are waited for once there is one, so that they go together.
const TOGETHER: Duration = Duration::from_millis(100);
/// Programs of one session that wait for their client, finished ones among them; past it the oldest is ended.
const MAX_PARKED: usize = 32;
/// How long a program that went on without its client, and what it gave, is kept for it.
pub(super) const KEPT: Duration = Duration::from_mins(10);

/// A program under way, and what goes with it from one request to the next.
#[derive(Debug)]
pub(super) struct Running {
    /// Hash of its code.
    pub(super) code: [u8; 32],
    pub(super) cancel: CancellationToken,
    pub(super) run: JoinHandle<Result<Outcome, RunError>>,
    /// Where its questions come from; nothing where they go another way.
    pub(super) questions: Option<mpsc::Receiver<Asked>>,
    /// Questions that its client came back without an answer to.
    pub(super) left: Vec<Asked>,
    pub(super) progress: watch::Receiver<Progress>,
    /// Ends it with its client.
    pub(super) _stop: CancelWith,
}

impl Running {
    /// What comes next: its end, or questions, all that come together. Some may be none: nobody waits for them any more.
    pub(super) async fn next(&mut self) -> Next {
        let Self {
            run,
            questions,
            left,
            ..
        } = self;
        let asked = gather(questions.as_mut(), left);
        tokio::select! {
            biased;
            ran = run => Next::Ended(Box::new(ran)),
            asked = asked => Next::Asked(asked),
        }
    }
}

/// How a run came out; an error where it failed inside the daemon.
pub(super) type Ran = Result<Result<Outcome, RunError>, JoinError>;

/// What comes next of a program.
#[derive(Debug)]
pub(super) enum Next {
    /// It is over.
    Ended(Box<Ran>),
    /// It has questions.
    Asked(Vec<Asked>),
}

/// Questions that come together; never returns where none come.
async fn gather(from: Option<&mut mpsc::Receiver<Asked>>, left: &mut Vec<Asked>) -> Vec<Asked> {
    let mut asked = std::mem::take(left);
    asked.retain(Asked::is_open);
    let Some(from) = from else {
        return std::future::pending().await;
    };
    if asked.is_empty() {
        match from.recv().await {
            Some(first) => asked.push(first),
            None => return std::future::pending().await,
        }
    }
    let until = Instant::now() + TOGETHER;
    while asked.len() < AT_ONCE {
        match tokio::time::timeout_at(until, from.recv()).await {
            Ok(Some(more)) => asked.push(more),
            Ok(None) | Err(_) => break,
        }
    }
    asked.retain(Asked::is_open);
    asked
}

/// What a client sends again.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) state: Option<String>,
    pub(super) responses: Option<InputResponses>,
}

impl Retry {
    /// Whether the request begins a program and goes on with none.
    pub(super) fn is_new(&self) -> bool {
        self.state.is_none() && self.responses.is_none()
    }
}

/// The programs of one session that wait for their client. All clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds(Arc<Mutex<VecDeque<Parked>>>);

#[derive(Debug)]
struct Parked {
    state: String,
    running: Running,
    asked: BTreeMap<String, Asked>,
}

impl Rounds {
    /// Parks a program with its questions and says what its client is to answer.
    ///
    /// # Errors
    /// The program, where no state can be had for it.
    pub(super) fn park(
        &self,
        running: Running,
        questions: Vec<Asked>,
    ) -> Result<(String, InputRequiredResult), Box<Running>> {
        let mut random = [0; 16];
        if getrandom::fill(&mut random).is_err() {
            return Err(Box::new(running));
        }
        let state = ptc_protocol::hex(&random);
        let mut asked = BTreeMap::new();
        let mut requests = InputRequests::new();
        for (number, question) in questions.into_iter().enumerate() {
            match form(&question.question) {
                Some(form) => {
                    let id = format!("approval-{}", number + 1);
                    requests.insert(id.clone(), InputRequest::Elicitation(form));
                    asked.insert(id, question);
                }
                None => question.take(&Value::Null),
            }
        }
        let mut parked = self.lock();
        parked.push_back(Parked {
            state: state.clone(),
            running,
            asked,
        });
        let oldest = (parked.len() > MAX_PARKED).then(|| parked.pop_front());
        drop(parked);
        if let Some(oldest) = oldest.flatten() {
            oldest.running.cancel.cancel();
        }
        let answer = InputRequiredResult::new(Some(requests), Some(state.clone()));
        Ok((state, answer))
    }

    /// Takes a program up again, its answers given to it.
    ///
    /// # Errors
    /// Why there is none to go on with; nothing was run then.
    pub(super) fn take_up(&self, retry: &Retry, code: &str) -> Result<Running, String> {
        let mut parked = self.lock();
        let state = retry.state.as_deref().unwrap_or_default();
        let Some(at) = parked.iter().position(|parked| parked.state == state) else {
            return Err(
                "no program of this session waits under that requestState: it was answered already, or was kept no \
                 longer. Nothing was run. To run the program anew, call execute_program without inputResponses and \
                 requestState"
                    .to_owned(),
            );
        };
        if parked
            .get(at)
            .is_some_and(|parked| parked.running.code != hash(code))
        {
            return Err(
                "the program that waits under that requestState is another one. Nothing was run, and it still waits: \
                 send the same code with the answers"
                    .to_owned(),
            );
        }
        let Some(found) = parked.remove(at) else {
            return Err("the program is gone; nothing was run".to_owned());
        };
        drop(parked);
        let mut running = found.running;
        for (id, asked) in found.asked {
            match retry.responses.as_ref().and_then(|all| all.get(&id)) {
                Some(result) => asked.take(result),
                None => running.left.push(asked),
            }
        }
        Ok(running)
    }

    /// Ends a program whose client did not come back.
    pub(super) fn forget(&self, state: &str) {
        let mut parked = self.lock();
        let at = parked.iter().position(|parked| parked.state == state);
        let found = at.and_then(|at| parked.remove(at));
        drop(parked);
        if let Some(found) = found {
            found.running.cancel.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Parked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hash by which a program is known again.
pub(super) fn hash(code: &str) -> [u8; 32] {
    Sha256::digest(code.as_bytes()).into()
}
