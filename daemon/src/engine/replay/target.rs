//! Answers the calls and helpers of a repeated run from its recording, in the recorded order of completion.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ptc_protocol::detail::CallEntry;
use ptc_protocol::run::ToolErrorKind;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::output::{head, middle_cut, visible};
use super::super::recording::helper_name;
use super::super::{Answers, Boxed, CallTarget};
use crate::journal::{Changed, Context, QueryEntry, RunRecorder};
use crate::pool::frame::Helper;
use crate::registry::{PreparedCall, ToolError, ToolReply, View, exact_value, recorded, same_data};

/// How long a call waits for one that ended before it to be made, while nothing else happens.
const STRICT_GRACE: Duration = Duration::from_secs(15);
/// The same where the code was changed, so that the other may never come.
const EDITED_GRACE: Duration = Duration::from_millis(300);
/// Most differences that are named.
const MAX_DIFFERENCES: usize = 8;
/// Most characters of a value in a difference.
const MAX_SHOWN: usize = 300;

/// A recording in the place of the servers.
#[derive(Debug)]
pub(super) struct Recording {
    /// In the order of their ends.
    entries: Vec<CallEntry>,
    /// The place of each call's entry, by its number.
    by_number: BTreeMap<u64, usize>,
    context: Context,
    queries: Mutex<Vec<Option<QueryEntry>>>,
    edited: bool,
    recorder: RunRecorder,
    state: Mutex<State>,
    /// Counts what happened, for those that wait for it.
    turns: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// The entry that each call of the repeated run got.
    matched: HashMap<u64, usize>,
    taken: Vec<bool>,
    answered: Vec<bool>,
    made: u64,
    differences: Vec<String>,
}

impl Recording {
    pub(super) fn new(
        entries: Vec<CallEntry>,
        queries: Vec<QueryEntry>,
        context: Context,
        edited: bool,
        recorder: RunRecorder,
    ) -> Self {
        let count = entries.len();
        let by_number = entries.iter().enumerate();
        Self {
            by_number: by_number.map(|(at, entry)| (entry.call, at)).collect(),
            entries,
            context,
            queries: Mutex::new(queries.into_iter().map(Some).collect()),
            edited,
            recorder,
            state: Mutex::new(State {
                taken: vec![false; count],
                answered: vec![false; count],
                ..State::default()
            }),
            turns: watch::Sender::new(0),
        }
    }

    /// Where the calls part from the recorded ones, and how many were answered from it.
    pub(super) fn result(&self) -> (Vec<String>, u64) {
        let state = lock(&self.state);
        let mut differences = state.differences.clone();
        let missing = self.by_number.iter().enumerate();
        for (rank, (_, at)) in missing {
            let entry = self.entries.get(*at);
            if let Some(entry) = entry
                && !state.taken.get(*at).copied().unwrap_or(true)
                && differences.len() < MAX_DIFFERENCES
            {
                differences.push(format!(
                    "call {} of the record, {}, was not made",
                    rank + 1,
                    shown(&entry.tool, entry.arguments.as_deref().unwrap_or("..."))
                ));
            }
        }
        (differences, state.matched.len() as u64)
    }

    /// The recorded calls and results that are not the ones that were made and came, by their keyed hashes.
    pub(super) fn changed(&self) -> Vec<String> {
        let changed = self.by_number.values().enumerate().filter_map(|(rank, at)| {
            let entry = self.entries.get(*at)?;
            let call = shown(&entry.tool, entry.arguments.as_deref().unwrap_or("..."));
            let rank = rank + 1;
            Some(match self.recorder.changed(entry)? {
                Changed::Result => format!(
                    "the recorded result of call {rank}, {call}, is not the one that came (its keyed hash differs)"
                ),
                Changed::Call => format!(
                    "call {rank} of the record, {call}, is not the one that was recorded (its keyed hash differs)"
                ),
            })
        });
        changed.take(MAX_DIFFERENCES).collect()
    }

    /// The number of a call among the calls, from 1.
    fn rank(&self, number: u64) -> usize {
        self.by_number.range(..number).count() + 1
    }

    /// Finds the entry of a call, or says where the run parts from its record.
    fn find(&self, number: u64, tool: &str, arguments: &str) -> Result<usize, ToolError> {
        let arguments = self.recorder.mask(arguments);
        let fits = |entry: &CallEntry| {
            entry.tool == tool
                && entry
                    .arguments
                    .as_deref()
                    .is_none_or(|recorded| same_data(recorded, &arguments))
        };
        let mut state = lock(&self.state);
        state.made += 1;
        let own = self.by_number.get(&number).copied();
        let own = own.filter(|at| self.entries.get(*at).is_some_and(fits));
        let free = |at: &usize| !state.taken.get(*at).copied().unwrap_or(true);
        let found = own.filter(|at| free(at)).or_else(|| {
            // Changed code may make its calls in another order.
            let mut any = self.by_number.values().copied().filter(|_| self.edited);
            any.find(|at| free(at) && self.entries.get(*at).is_some_and(fits))
        });
        if let Some(at) = found {
            if let Some(taken) = state.taken.get_mut(at) {
                *taken = true;
            }
            state.matched.insert(number, at);
            drop(state);
            self.turns.send_modify(|turns| *turns += 1);
            return Ok(at);
        }
        let difference = self.difference(number, tool, &arguments);
        if state.differences.len() < MAX_DIFFERENCES {
            state.differences.push(difference.clone());
        }
        let at = self
            .by_number
            .get(&number)
            .copied()
            .filter(|_| !self.edited);
        if let Some(taken) = at.and_then(|at| state.taken.get_mut(at)) {
            *taken = true;
        }
        Err(ToolError {
            kind: ToolErrorKind::Unavailable,
            message: format!("{difference}: nothing was called"),
            tool: Some(tool.to_owned()),
            server: None,
            retryable: false,
            data: None,
        })
    }

    fn difference(&self, number: u64, tool: &str, arguments: &str) -> String {
        let rank = self.rank(number);
        let now = shown(tool, arguments);
        let recorded = self
            .by_number
            .get(&number)
            .and_then(|at| self.entries.get(*at));
        match recorded.filter(|_| !self.edited) {
            Some(entry) => format!(
                "call {rank} is {now} and was {}",
                shown(&entry.tool, entry.arguments.as_deref().unwrap_or("..."))
            ),
            None if self.edited => format!("the record has no unused result of {now}"),
            None => format!(
                "call {rank} is {now}; the record has {} calls",
                self.entries.len()
            ),
        }
    }

    /// Waits until every call that ended before this one was answered, or will not be made.
    async fn turn(&self, at: usize) {
        let mut turns = self.turns.subscribe();
        let grace = if self.edited {
            EDITED_GRACE
        } else {
            STRICT_GRACE
        };
        loop {
            turns.mark_unchanged();
            if self.is_next(at) {
                return;
            }
            if tokio::time::timeout(grace, turns.changed()).await.is_err() {
                return;
            }
        }
    }

    fn is_next(&self, at: usize) -> bool {
        let state = lock(&self.state);
        let before = self.entries.iter().zip(&state.answered).take(at);
        let mut before = before.filter(|(entry, _)| entry.was_sent() && !never_answered(entry));
        before.all(|(_, answered)| *answered)
    }

    fn reply(&self, at: usize, call: &PreparedCall) -> Result<ToolReply, ToolError> {
        let entry = self.entries.get(at).cloned().unwrap_or_default();
        match &entry.result {
            Some(text) if entry.ok => Ok(ToolReply {
                encoded: text.as_str().into(),
                bytes: text.len(),
            }),
            _ => Err(failure(&entry, &call.name)),
        }
    }
}

/// Whether the program ended before this call did.
fn never_answered(entry: &CallEntry) -> bool {
    entry.kind == Some(ToolErrorKind::Cancelled)
}

/// The failure as the program got it.
fn failure(entry: &CallEntry, tool: &str) -> ToolError {
    let data = entry.data.as_deref().and_then(exact_value);
    ToolError {
        kind: entry.kind.unwrap_or(ToolErrorKind::Protocol),
        message: entry.error.clone().unwrap_or_default(),
        tool: Some(tool.to_owned()),
        server: entry.server.clone(),
        retryable: entry.retryable,
        data: data.map(Box::new),
    }
}

fn shown(tool: &str, arguments: &str) -> String {
    let arguments = middle_cut(&visible(arguments), MAX_SHOWN);
    format!(
        "{}({})",
        visible(head(tool, 200)),
        arguments.replace('\n', " ")
    )
}

impl CallTarget for Recording {
    fn seen_by(&self, _: &View) -> Option<Arc<dyn CallTarget>> {
        None
    }

    fn expect<'a>(&'a self, _: &'a str, _: Duration) -> Boxed<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn prepare(&self, id: u64, tool: &str, arguments: &str) -> Result<PreparedCall, ToolError> {
        let at = self.find(id, tool, arguments)?;
        let entry = self.entries.get(at).cloned().unwrap_or_default();
        if !entry.was_sent() {
            return Err(failure(&entry, tool));
        }
        recorded(tool, entry.server.as_deref().unwrap_or_default(), arguments)
    }

    fn mask(&self, text: &str) -> String {
        self.recorder.mask(text)
    }

    fn call<'a>(
        &'a self,
        id: u64,
        call: &'a PreparedCall,
        _: Duration,
        cancel: CancellationToken,
    ) -> Boxed<'a, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            let at = lock(&self.state)
                .matched
                .get(&id)
                .copied()
                .unwrap_or_default();
            if self.entries.get(at).is_some_and(never_answered) {
                cancel.cancelled().await;
            } else {
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => {}
                    () = self.turn(at) => {}
                }
            }
            self.reply(at, call)
        })
    }

    fn answered(&self, id: u64) {
        let mut state = lock(&self.state);
        let at = state.matched.get(&id).copied();
        if let Some(answered) = at.and_then(|at| state.answered.get_mut(at)) {
            *answered = true;
        }
        drop(state);
        self.turns.send_modify(|turns| *turns += 1);
    }
}

impl Answers for Recording {
    fn seen_by(&self, _: &View) -> Option<Arc<dyn Answers>> {
        None
    }

    fn answer(&self, helper: Helper, arguments: &Map<String, Value>) -> Result<Value, ToolError> {
        let asked = self
            .recorder
            .mask(&Value::Object(arguments.clone()).to_string());
        let name = helper_name(helper);
        let mut queries = lock(&self.queries);
        let found = queries.iter_mut().find(|entry| {
            entry
                .as_ref()
                .is_some_and(|entry| entry.helper == name && same_data(&entry.arguments, &asked))
        });
        let entry = found.and_then(Option::take);
        drop(queries);
        let answer = entry.as_ref().and_then(|entry| entry.answer.as_deref());
        if let Some(value) = answer.and_then(exact_value) {
            return Ok(value);
        }
        let message = entry.and_then(|entry| entry.error).unwrap_or_else(|| {
            let text = format!("the record has no answer of {name}({asked})");
            let mut state = lock(&self.state);
            if state.differences.len() < MAX_DIFFERENCES {
                state.differences.push(text.clone());
            }
            text
        });
        Err(ToolError {
            kind: ToolErrorKind::UnknownTool,
            message,
            tool: None,
            server: None,
            retryable: false,
            data: None,
        })
    }

    fn signatures(&self) -> BTreeMap<String, Vec<String>> {
        self.context.tools.clone()
    }

    fn hint(&self, _: &str) -> Option<String> {
        Some(
            "the record knows no such tool: only those that the recorded program named or called"
                .to_owned(),
        )
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
