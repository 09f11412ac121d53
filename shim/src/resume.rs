//! Decides what is forwarded, held, replayed or answered by the shim itself; does no I/O.
//!
//! Whoever drives it tells it what happened, with the time, and then does the
//! [`Action`]s it hands out, in order.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use ptc_protocol::RENEW_NOTICE;
use ptc_protocol::envelope::trim;
use ptc_protocol::run::RequestCalls;
use ptc_protocol::said::Said;
use serde_json::value::RawValue;

use crate::answers;
use crate::excerpt::gist;
use crate::lines::Excerpt;
use crate::link::{ANSWER_PATIENCE, Link, Next};
use crate::message::{self, Id, Message};
use crate::opener::Opening;
use crate::pending::{Kind, Open, Pending, Stage};

pub use crate::action::Action;

/// How long a request waits for a daemon that is not there, and then for the list of its calls.
pub const HOLD: Duration = Duration::from_secs(20);
/// Most requests open at once, in either direction.
const MAX_OPEN: usize = 1024;
/// Most bytes of lines held for the daemon.
const MAX_HELD_BYTES: usize = 32 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Open,
    Ended,
    /// Ended, and everything is answered.
    Answered,
}

/// One client's conversation, across as many connections to daemons as it takes.
#[derive(Debug)]
pub struct Resume {
    link: Link,
    /// What the daemon last said, as far as it still holds.
    said: Option<Said>,
    opening: Opening,
    /// Whether this connection has seen the request that opens a session.
    opened: bool,
    /// Whether the daemon wants to be connected to anew.
    renew: bool,
    replays: u64,
    open: Pending,
    /// Ids whose next answer is not for the client.
    swallow: Vec<Id>,
    /// Ids of the daemon's open requests to the client.
    asked: Vec<Id>,
    eof_wait: Duration,
    input: Input,
    eof_deadline: Option<Instant>,
    actions: VecDeque<Action>,
}

impl Resume {
    /// Begins by reaching for the daemon; `eof_wait` is how long answers are waited for after the input's end.
    pub fn new(eof_wait: Duration) -> Self {
        let launch = true;
        Self {
            link: Link::dialling(launch),
            said: None,
            opening: Opening::default(),
            opened: false,
            renew: false,
            replays: 0,
            open: Pending::default(),
            swallow: Vec::new(),
            asked: Vec::new(),
            eof_wait,
            input: Input::Open,
            eof_deadline: None,
            actions: VecDeque::from([Action::Dial { launch }]),
        }
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// What the daemon last said under this configuration, for while it is not there.
    pub fn remember(&mut self, said: Option<Said>) {
        self.said = said;
    }

    /// A line came from the client.
    pub fn client_line(&mut self, line: &[u8], now: Instant) {
        let line = trim(line);
        if line.is_empty() {
            return;
        }
        let message = match message::check_depth(line).and_then(|()| message::read(line)) {
            Ok(message) => message,
            Err(fault) => return self.tell_client(fault.answer()),
        };
        match message {
            Message::Request {
                id,
                id_at,
                method,
                params,
            } => {
                let kind = Kind::of(&method, params);
                let modern = message::is_modern(params);
                self.request(Open::new(id, kind, modern, line, now), id_at, line, now);
            }
            Message::Notification { method, params } => self.notification(&method, params, line),
            Message::Response { id, .. } => {
                let asked = self
                    .asked
                    .iter()
                    .position(|asked| Some(asked) == id.as_ref());
                if let Some(at) = asked {
                    self.asked.swap_remove(at);
                    self.tell_daemon(line.to_vec());
                }
            }
        }
        self.renew_if_quiet(now);
    }

    /// A line from the client was longer than `limit`.
    pub fn client_too_long(&mut self, excerpt: &Excerpt, limit: usize) {
        let gist = gist(excerpt);
        let id = gist
            .id
            .filter(|id| !gist.is_response && self.open.position(id).is_none());
        let text = answers::too_long(excerpt.length, limit);
        self.tell_client(message::error(id.as_ref(), message::INVALID_REQUEST, &text));
    }

    /// A line came from the daemon.
    pub fn daemon_line(&mut self, line: Vec<u8>, now: Instant) {
        match message::read(&line) {
            Ok(Message::Request { id, .. }) => {
                if self.asked.len() < MAX_OPEN {
                    self.asked.push(id);
                    self.tell_client(line);
                }
            }
            Ok(Message::Notification { method, .. }) if method == RENEW_NOTICE => self.renew = true,
            Ok(Message::Notification { method, params }) => {
                if !(method == "notifications/subscriptions/acknowledged"
                    && self
                        .open
                        .acknowledge(message::subscription_id(params).as_ref()))
                {
                    self.tell_client(line);
                }
            }
            Ok(Message::Response { id: None, .. }) => self.tell_client(line),
            Ok(Message::Response {
                id: Some(id),
                is_error,
            }) => {
                if !is_error && self.open.suspend(&id, now) {
                    return;
                }
                if let Some(open) = self.settle(&id) {
                    if open.kind.is_initialize() {
                        self.opening.answered(is_error);
                    }
                    self.tell_client(line);
                }
            }
            Err(fault) => self.push(Action::Note(format!(
                "skipped a line of the daemon: {fault}"
            ))),
        }
        self.finish_if_answered();
        self.renew_if_quiet(now);
    }

    /// A line from the daemon was longer than `limit`.
    pub fn daemon_too_long(&mut self, excerpt: &Excerpt, limit: usize, now: Instant) {
        let text = answers::too_long(excerpt.length, limit);
        let Some(id) = gist(excerpt).id else {
            self.push(Action::HangUp);
            return self.lost(&text, now);
        };
        if let Some(open) = self.settle(&id) {
            self.tell_client(match open.kind {
                Kind::Call => message::tool_failure(&id, &text, open.modern),
                _ => message::error(Some(&id), message::UNAVAILABLE, &text),
            });
        }
        self.finish_if_answered();
    }

    /// The daemon is there and has welcomed the shim.
    pub fn connected(&mut self, now: Instant) {
        self.link.connected(now);
        self.opened = false;
        if self.input == Input::Ended {
            self.eof_deadline.get_or_insert(now + self.eof_wait);
        }
        self.replay_opener();
        for at in 0..self.open.len() {
            self.send(at);
        }
        self.ask(now);
    }

    /// What [`Action::Ask`] came to: the calls of the request with this id, or `None` where nobody can tell.
    pub fn told(&mut self, id: &Id, calls: Option<&RequestCalls>, now: Instant) {
        if let Some(open) = self.open.take_asked(id) {
            self.tell_client(answers::lost_call(id, calls, open.modern));
        }
        self.ask(now);
        self.finish_if_answered();
    }

    /// The driver's try to reach the daemon waits for something, and goes on.
    pub fn waiting(&mut self, reason: &str) {
        self.link.waits_for(reason);
    }

    /// The daemon could not be reached.
    pub fn dial_failed(&mut self, reason: &str, now: Instant) {
        match self.link.failed(reason, self.open.needs_daemon(), now) {
            Next::Launch => self.dial(true),
            Next::Wait => {}
            Next::GiveUp => self.give_up(),
        }
    }

    /// The daemon cannot be had until someone acts, so nobody is kept waiting for it.
    pub fn blocked(&mut self, reason: &str, now: Instant) {
        self.link.blocked(reason, now);
        self.give_up();
    }

    /// The daemon answered that it will not serve this shim.
    pub fn refused(&mut self, reason: &str) {
        self.link.refused(reason);
        self.push(Action::Note(format!(
            "the daemon refused this client: {reason}"
        )));
        for open in self.open.take() {
            self.tell_client(open.when_refused(reason));
        }
        self.finish_if_answered();
    }

    /// The stream to the daemon has ended.
    pub fn lost(&mut self, reason: &str, now: Instant) {
        self.link.lost(reason, now);
        self.renew = false;
        self.swallow.clear();
        for id in std::mem::take(&mut self.asked) {
            self.tell_client(answers::moot(&id));
        }
        for mut open in self.open.take() {
            if let Some(answer) = open.when_lost(now) {
                self.tell_client(answer);
            } else if self.knows(&open) {
                self.tell_client(open.when_late("", self.said.as_ref()));
            } else {
                self.open.push(open);
            }
        }
        self.finish_if_answered();
    }

    /// The client's input has ended.
    pub fn eof(&mut self, now: Instant) {
        self.input = Input::Ended;
        if self.link.is_up() {
            self.eof_deadline = Some(now + self.eof_wait);
        }
        self.finish_if_answered();
    }

    /// The time [`Resume::next_deadline`] named has come.
    pub fn tick(&mut self, now: Instant) {
        if self.eof_deadline.is_some_and(|deadline| deadline <= now) {
            return self.cancel_everything();
        }
        if self.link.pause_end().is_some_and(|until| until <= now) {
            self.dial(self.open.needs_daemon());
        }
        for open in self.open.take() {
            if self.deadline(&open).is_none_or(|deadline| deadline > now) {
                self.open.push(open);
                continue;
            }
            if open.stage == Stage::Sent {
                self.swallow.push(open.id.clone());
            }
            let text = answers::unreachable(self.link.reason());
            self.tell_client(open.when_late(&text, self.said.as_ref()));
        }
        self.finish_if_answered();
    }

    /// When [`Resume::tick`] has something to do; `None` while nothing waits.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.input == Input::Answered {
            return None;
        }
        let pause = self.link.pause_end();
        let requests = self.open.iter().filter_map(|open| self.deadline(open));
        requests.chain(pause).chain(self.eof_deadline).min()
    }

    fn request(&mut self, mut open: Open, id_at: Range<usize>, line: &[u8], now: Instant) {
        let id = &open.id;
        if self.open.position(id).is_some() || self.swallow.contains(id) {
            let text = format!("a request with the id {id} is still open");
            return self.tell_client(message::error(Some(id), message::INVALID_REQUEST, &text));
        }
        let up = self.link.is_up();
        if !matches!(open.kind, Kind::Discover(_)) {
            // After a handshake nobody minds what a request says of its revision.
            open.modern &= self.opening.opener().is_none() && !open.kind.is_initialize();
            self.opening.note(open.modern && open.kind.opens());
        }
        if open.kind == Kind::Ping && (open.modern || self.opening.is_modern()) {
            // That revision has it no more, as the daemon says.
            open.kind = Kind::Other;
        }
        // A daemon that owes as many answers as may be open is asked for no more that are for nobody.
        let mute = !up || self.swallow.len() >= MAX_OPEN;
        if open.kind == Kind::Ping && mute {
            return self.tell_client(answers::pong(id));
        }
        let held = self.open.held_bytes();
        if self.open.len() >= MAX_OPEN || (!up && held + line.len() > MAX_HELD_BYTES) {
            let text = "too many requests are open; wait for answers first";
            return self.tell_client(message::error(Some(id), message::BUSY, text));
        }
        if open.kind.is_initialize() {
            self.opening.begin(line, id_at);
        }
        if open.kind == Kind::List && !open.modern && self.opening.opener().is_none() {
            // The daemon says what is missing.
            open.kind = Kind::Other;
        }
        if mute && self.knows(&open) {
            self.tell_client(open.when_late("", self.said.as_ref()));
        } else {
            self.open.push(open);
            if up {
                return self.send(self.open.len() - 1);
            }
        }
        if self.link.wakes() {
            self.dial(!self.link.is_blocked(now));
        }
    }

    /// Whether the shim has the daemon's own answer to this.
    fn knows(&self, open: &Open) -> bool {
        open.kind == Kind::List && self.said.is_some()
    }

    fn notification(&mut self, method: &str, params: Option<&RawValue>, line: &[u8]) {
        match method {
            "notifications/initialized" => self.opening.initialized(),
            "notifications/cancelled" => {
                let id = message::cancelled_id(params);
                if !id.is_some_and(|id| self.open.cancel(&id)) {
                    return;
                }
            }
            _ => {}
        }
        if self.opened {
            self.tell_daemon(line.to_vec());
        }
    }

    /// Says the client's `initialize` again; the answer is for nobody unless the client still waits for its own.
    fn replay_opener(&mut self) {
        let Some(opener) = self.opening.opener().cloned() else {
            return;
        };
        if let Some(at) = self.open.initialize() {
            self.send(at);
        } else {
            self.replays += 1;
            let (id, line) = opener.replay(self.replays);
            self.swallow.extend(id);
            self.tell_daemon(line);
        }
        self.opened = true;
        if opener.initialized {
            self.tell_daemon(answers::INITIALIZED.to_vec());
        }
    }

    /// Sends a held request.
    fn send(&mut self, at: usize) {
        let Some(open) = self.open.get_mut(at) else {
            return;
        };
        if let Some(line) = open.take_line() {
            self.opened |= open.kind.opens();
            self.tell_daemon(line);
        }
    }

    /// Connects anew where the daemon wants that and owes nothing, so that nothing can be lost by it.
    fn renew_if_quiet(&mut self, now: Instant) {
        if self.renew && !self.open.is_owed_an_answer() && self.input == Input::Open {
            self.push(Action::HangUp);
            self.lost("it asked to be connected to anew", now);
            self.dial(self.open.needs_daemon());
        }
    }

    /// Asks about the next call that a lost daemon had.
    fn ask(&mut self, now: Instant) {
        if self.link.is_up()
            && let Some(id) = self.open.next_to_ask(now)
        {
            self.push(Action::Ask(id));
        }
    }

    /// Takes an answered request out; `None` when its answer is not for the client.
    fn settle(&mut self, id: &Id) -> Option<Open> {
        if let Some(at) = self.swallow.iter().position(|swallow| swallow == id) {
            self.swallow.swap_remove(at);
            return None;
        }
        self.open.settle(id)
    }

    fn deadline(&self, open: &Open) -> Option<Instant> {
        // The daemon that has it may be stopped, and its own answer would be no other.
        if open.stage == Stage::Sent && (open.kind == Kind::Ping || self.knows(open)) {
            return Some(open.since + ANSWER_PATIENCE);
        }
        if open.kind.is_opener() {
            return Some(self.link.opener_deadline(open.since));
        }
        open.is_bounded().then(|| open.since + HOLD)
    }

    /// Answers what waits for a daemon that cannot be had.
    fn give_up(&mut self) {
        let text = answers::blocked(self.link.reason());
        for open in self.open.take() {
            if open.needs_daemon() {
                self.tell_client(open.when_late(&text, self.said.as_ref()));
            } else {
                self.open.push(open);
            }
        }
        self.finish_if_answered();
    }

    fn dial(&mut self, launch: bool) {
        self.link.dial(launch);
        self.push(Action::Dial { launch });
    }

    fn cancel_everything(&mut self) {
        for open in self.open.take() {
            self.tell_client(open.when_cancelled());
        }
        self.finish_if_answered();
    }

    fn finish_if_answered(&mut self) {
        if self.input == Input::Ended && !self.open.awaits_answer() {
            self.input = Input::Answered;
            self.cancel_everything();
            self.push(Action::Finish);
        }
    }

    fn tell_client(&mut self, line: Vec<u8>) {
        self.push(Action::ToClient(line));
    }

    fn tell_daemon(&mut self, line: Vec<u8>) {
        if self.link.is_up() {
            self.push(Action::ToDaemon(line));
        }
    }

    fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }
}

#[cfg(test)]
#[path = "tests/resume.rs"]
mod tests;
