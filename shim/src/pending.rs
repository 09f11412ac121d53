//! The client's requests that have no answer yet.

use std::time::Instant;

use ptc_protocol::said::Said;
use serde_json::value::RawValue;

use crate::answers;
use crate::message::{self, Id};

/// What a request asks for, as far as it matters when the daemon is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `initialize`, with the version it asks for.
    Initialize(Option<String>),
    /// `server/discover`, with the revision it names.
    Discover(Option<String>),
    /// `ping`.
    Ping,
    /// `tools/list`: reading it twice changes nothing.
    List,
    /// `subscriptions/listen`: answered only when it ends.
    Listen,
    /// `tools/call`.
    Call,
    /// Anything else.
    Other,
}

impl Kind {
    pub(crate) fn of(method: &str, params: Option<&RawValue>) -> Self {
        match method {
            "initialize" => Self::Initialize(message::asked_version(params)),
            "server/discover" => Self::Discover(message::named_revision(params)),
            "ping" => Self::Ping,
            // What the daemon would refuse is for the daemon to answer.
            "tools/list"
                if message::is_modern(params) || message::named_revision(params).is_none() =>
            {
                Self::List
            }
            "subscriptions/listen" => Self::Listen,
            "tools/call" => Self::Call,
            _ => Self::Other,
        }
    }

    pub(crate) fn is_initialize(&self) -> bool {
        matches!(self, Self::Initialize(_))
    }

    /// Whether the shim can answer it without the daemon, so that it is kept waiting for a short time only.
    pub(crate) fn is_opener(&self) -> bool {
        matches!(self, Self::Initialize(_) | Self::Discover(_) | Self::List)
    }

    /// Whether the daemon takes notifications after it.
    pub(crate) fn opens(&self) -> bool {
        !matches!(self, Self::Discover(_) | Self::Ping)
    }

    /// Whether it may be sent to a second daemon.
    fn repeats(&self) -> bool {
        matches!(
            self,
            Self::Initialize(_) | Self::Discover(_) | Self::List | Self::Listen
        )
    }
}

/// Whether the daemon has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Held,
    Sent,
    /// A lost daemon had it, and the next one knows which calls it made.
    Owed,
    /// The daemon is being asked for those calls.
    Asked,
}

/// A request without an answer.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) id: Id,
    pub(crate) kind: Kind,
    pub(crate) stage: Stage,
    /// Since when it waits for a daemon, or for the list of its calls.
    pub(crate) since: Instant,
    line: Option<Vec<u8>>,
    /// Of the revision without a handshake.
    pub(crate) modern: bool,
    /// A subscription the client has had the acknowledgement of.
    acknowledged: bool,
    /// A subscription a lost daemon had.
    resumed: bool,
}

impl Open {
    pub(crate) fn new(id: Id, kind: Kind, modern: bool, line: &[u8], now: Instant) -> Self {
        Self {
            id,
            kind,
            modern,
            stage: Stage::Held,
            since: now,
            line: Some(line.to_vec()),
            acknowledged: false,
            resumed: false,
        }
    }

    /// The line to send, if it is held; from then on the daemon has it.
    pub(crate) fn take_line(&mut self) -> Option<Vec<u8>> {
        if self.stage != Stage::Held {
            return None;
        }
        self.stage = Stage::Sent;
        if self.kind.repeats() {
            self.line.clone()
        } else {
            self.line.take()
        }
    }

    /// Whether it waits for a daemon and someone wants it soon.
    pub(crate) fn needs_daemon(&self) -> bool {
        match self.stage {
            Stage::Held => !self.resumed,
            Stage::Owed => true,
            Stage::Sent | Stage::Asked => false,
        }
    }

    /// Whether it is answered without a daemon after a while.
    pub(crate) fn is_bounded(&self) -> bool {
        self.needs_daemon() || self.stage == Stage::Asked
    }

    /// Whether a lost daemon had it and it is not to be repeated.
    fn is_owed(&self) -> bool {
        matches!(self.stage, Stage::Owed | Stage::Asked)
    }

    /// The daemon is gone: the answer if it had this, or `None` when the next one is needed for it.
    pub(crate) fn when_lost(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.is_owed() {
            return None;
        }
        if self.stage == Stage::Held || self.kind.repeats() {
            self.stage = Stage::Held;
            self.since = now;
            self.resumed = self.kind == Kind::Listen;
            return None;
        }
        match self.kind {
            Kind::Call => {
                self.stage = Stage::Owed;
                self.since = now;
                None
            }
            Kind::Ping => Some(answers::pong(&self.id)),
            _ => Some(answers::lost_request(&self.id)),
        }
    }

    /// The daemon will not serve this client: the answer.
    pub(crate) fn when_refused(&self, reason: &str) -> Vec<u8> {
        if self.is_owed() {
            return answers::lost_call(&self.id, None, self.modern);
        }
        let text = answers::refused(reason);
        message::error(Some(&self.id), message::UNAVAILABLE, &text)
    }

    /// The input's end was waited out: the answer.
    pub(crate) fn when_cancelled(&self) -> Vec<u8> {
        if self.is_owed() {
            return answers::lost_call(&self.id, None, self.modern);
        }
        answers::cancelled(&self.id)
    }

    /// It is not kept waiting any longer: the answer, with this text where there is nothing better.
    pub(crate) fn when_late(&self, text: &str, said: Option<&Said>) -> Vec<u8> {
        match &self.kind {
            Kind::Initialize(asked) => answers::core_initialize(&self.id, asked.as_deref(), said),
            Kind::Discover(_) if self.modern => answers::core_discover(&self.id, said),
            Kind::Discover(named) => answers::no_discover(&self.id, named.as_deref()),
            Kind::List => answers::tools(&self.id, self.modern, said),
            Kind::Call if self.is_owed() => answers::lost_call(&self.id, None, self.modern),
            Kind::Call => message::tool_failure(&self.id, text, self.modern),
            Kind::Ping | Kind::Listen | Kind::Other => {
                message::error(Some(&self.id), message::UNAVAILABLE, text)
            }
        }
    }
}

/// All requests without an answer, in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Pending(Vec<Open>);

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Open> {
        self.0.iter()
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Open> {
        self.0.get_mut(at)
    }

    pub(crate) fn push(&mut self, open: Open) {
        self.0.push(open);
    }

    /// Takes all of them out.
    pub(crate) fn take(&mut self) -> Vec<Open> {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn position(&self, id: &Id) -> Option<usize> {
        self.0.iter().position(|open| open.id == *id)
    }

    /// Where an unanswered `initialize` is.
    pub(crate) fn initialize(&self) -> Option<usize> {
        self.0.iter().position(|open| open.kind.is_initialize())
    }

    /// Takes an answered request out, one that this daemon has.
    pub(crate) fn settle(&mut self, id: &Id) -> Option<Open> {
        let at = self.position(id)?;
        let sent = self.0.get(at)?.stage == Stage::Sent;
        sent.then(|| self.0.remove(at))
    }

    /// Keeps a subscription that its daemon ended in going away, for the next one; false when
    /// this is none.
    pub(crate) fn suspend(&mut self, id: &Id, now: Instant) -> bool {
        let open = self.0.iter_mut().find(|open| open.id == *id);
        open.is_some_and(|open| {
            let lasting = open.kind == Kind::Listen && open.acknowledged;
            if lasting {
                let _ = open.when_lost(now);
            }
            lasting
        })
    }

    /// The next owed call to ask about. One at a time, since the daemon reads its whole log for each.
    pub(crate) fn next_to_ask(&mut self, now: Instant) -> Option<Id> {
        if self.0.iter().any(|open| open.stage == Stage::Asked) {
            return None;
        }
        let next = self.0.iter_mut().find(|open| open.stage == Stage::Owed)?;
        next.stage = Stage::Asked;
        next.since = now;
        Some(next.id.clone())
    }

    /// Takes out a call that was asked about; `None` when its answer is not waited for any more.
    pub(crate) fn take_asked(&mut self, id: &Id) -> Option<Open> {
        let at = self.position(id)?;
        let asked = self.0.get(at)?.stage == Stage::Asked;
        asked.then(|| self.0.remove(at))
    }

    /// Forgets a request; true when the daemon has it and must be told. `initialize` cannot be cancelled.
    pub(crate) fn cancel(&mut self, id: &Id) -> bool {
        let same = |open: &Open| open.id == *id && !open.kind.is_initialize();
        let at = self.0.iter().position(same);
        at.is_some_and(|at| self.0.remove(at).stage == Stage::Sent)
    }

    /// Takes an acknowledgement; true when the client has had one for this subscription before.
    pub(crate) fn acknowledge(&mut self, id: Option<&Id>) -> bool {
        let open = self.0.iter_mut().find(|open| Some(&open.id) == id);
        open.is_some_and(|open| std::mem::replace(&mut open.acknowledged, true))
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let lines = self.0.iter().filter_map(|open| open.line.as_ref());
        lines.map(Vec::len).sum()
    }

    /// Whether one waits for a daemon and someone wants it soon.
    pub(crate) fn needs_daemon(&self) -> bool {
        self.0.iter().any(Open::needs_daemon)
    }

    /// Whether the daemon that is there has one that it will answer by itself.
    pub(crate) fn is_owed_an_answer(&self) -> bool {
        let owed = |open: &Open| open.stage == Stage::Sent && open.kind != Kind::Listen;
        self.0.iter().any(owed)
    }

    /// Whether one will be answered by itself.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.0.iter().any(|open| open.kind != Kind::Listen)
    }
}
