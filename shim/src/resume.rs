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
use crate::link::{Link, Next};
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
        if open.kind == Kind::Ping && !up {
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
        if up {
            self.open.push(open);
            return self.send(self.open.len() - 1);
        }
        if self.knows(&open) {
            self.tell_client(open.when_late("", self.said.as_ref()));
        } else {
            self.open.push(open);
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
mod tests {
    use super::*;
    use crate::link::{IDLE_SEARCH, OPENER_PATIENCE, RETRY, STEADY};
    use ptc_protocol::run::SentCall;
    use serde_json::Value;

    const EOF_WAIT: Duration = Duration::from_secs(5);
    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#;
    const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

    /// A machine with a clock that only moves when told.
    struct Bench {
        resume: Resume,
        start: Instant,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                resume: Resume::new(EOF_WAIT),
                start: now,
                now,
            }
        }

        /// Connected, and everything that happens at the start done.
        fn up() -> Self {
            let mut bench = Self::new();
            bench.resume.connected(bench.now);
            bench.did();
            bench
        }

        /// Connected, with a legacy session open.
        fn open() -> Self {
            let mut bench = Self::up();
            bench.client(INITIALIZE);
            bench.daemon(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
            bench.client(INITIALIZED);
            bench.did();
            bench
        }

        fn client(&mut self, line: &str) {
            self.resume.client_line(line.as_bytes(), self.now);
        }

        fn daemon(&mut self, line: &str) {
            self.resume.daemon_line(line.as_bytes().to_vec(), self.now);
        }

        /// Lets the clock run to the next deadline, which must be `ms` after the start.
        fn until(&mut self, ms: u64) {
            let deadline = self.resume.next_deadline().expect("a deadline");
            assert_eq!(deadline - self.start, Duration::from_millis(ms));
            self.now = deadline;
            self.resume.tick(self.now);
        }

        fn lost(&mut self) {
            self.resume.lost("it closed the connection", self.now);
        }

        /// The answer about a call that a lost daemon had: what it made, or nothing known.
        fn told(&mut self, id: &str, calls: Option<&[(&str, Option<bool>)]>) {
            let call = |(tool, ok): &(&str, _)| SentCall {
                tool: (*tool).to_owned(),
                server: "s".to_owned(),
                ok: *ok,
            };
            let calls = calls.map(|calls| RequestCalls {
                calls: calls.iter().map(call).collect(),
                ..RequestCalls::default()
            });
            let id = Id::from_json(id).unwrap();
            self.resume.told(&id, calls.as_ref(), self.now);
        }

        fn failed(&mut self) {
            self.resume.dial_failed("nothing listens on S", self.now);
        }

        /// What was decided since the last time, a line each.
        fn did(&mut self) -> Vec<String> {
            std::iter::from_fn(|| self.resume.next_action())
                .map(|action| match action {
                    Action::ToClient(line) => format!("< {}", short(&line)),
                    Action::ToDaemon(line) => format!("> {}", short(&line)),
                    Action::Dial { launch } => format!("dial {launch}"),
                    Action::Ask(id) => format!("ask {id}"),
                    Action::HangUp => "hang up".to_owned(),
                    Action::Note(text) => format!("note {text}"),
                    Action::Finish => "finish".to_owned(),
                })
                .collect()
        }
    }

    fn request(id: &str, method: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#)
    }

    fn modern(id: &str, method: &str) -> String {
        let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{meta}}}}}"#)
    }

    fn said() -> Said {
        Said {
            build: "b".to_owned(),
            config: "c".to_owned(),
            instructions: "Do.".to_owned(),
            ttl_ms: 60_000,
            tools: serde_json::json!([{"name": "kept"}]),
        }
    }

    /// What [`Bench::did`] shows of a failed call's answer.
    fn failure(id: &str, text: &str) -> String {
        format!(r#"< {id} {{"content":[{{"type":"text","text":"{text}"}}],"isError":true}}"#)
    }

    /// Id, method, error and result, whichever are there.
    fn short(line: &[u8]) -> String {
        let value: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(value["jsonrpc"], "2.0");
        let error = &value["error"];
        let parts = [
            &value["id"],
            &value["method"],
            &value["result"],
            &error["code"],
            &error["message"],
        ];
        let parts = parts.iter().filter(|part| !part.is_null());
        parts.map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lines_pass_unchanged_while_the_daemon_is_there() {
        let mut bench = Bench::new();
        assert_eq!(bench.did(), ["dial true"]);
        bench.resume.connected(bench.now);
        bench.client(INITIALIZE);
        assert_eq!(
            bench.resume.next_action(),
            Some(Action::ToDaemon(INITIALIZE.into()))
        );
        let answer = r#"{"jsonrpc":"2.0", "id":0 ,"result":{"x":1e400}}"#;
        bench.daemon(answer);
        assert_eq!(
            bench.resume.next_action(),
            Some(Action::ToClient(answer.into()))
        );
        bench.client(INITIALIZED);
        bench.client("  \r");
        bench.client(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
        let sent = [
            "> \"notifications/initialized\"",
            "> \"notifications/roots/list_changed\"",
        ];
        assert_eq!(bench.did(), sent);
        assert_eq!(bench.resume.next_deadline(), None);
    }

    #[test]
    fn notifications_before_the_opener_are_swallowed() {
        let mut bench = Bench::up();
        bench.client(INITIALIZED);
        bench.client(&request("1", "ping"));
        bench.client(&request("2", "server/discover"));
        bench.client(r#"{"jsonrpc":"2.0","method":"notifications/other"}"#);
        assert_eq!(bench.did(), ["> 1 \"ping\"", "> 2 \"server/discover\""]);
        bench.client(&request("3", "tools/list"));
        bench.client(r#"{"jsonrpc":"2.0","method":"notifications/other"}"#);
        assert_eq!(
            bench.did(),
            ["> 3 \"tools/list\"", "> \"notifications/other\""]
        );
    }

    #[test]
    fn what_is_no_message_is_answered_and_the_stream_goes_on() {
        let mut bench = Bench::up();
        for line in ["nonsense", "[]", r#"{"jsonrpc":"2.0","id":4}"#] {
            bench.client(line);
        }
        let answers = bench.did();
        assert_eq!(answers.len(), 3);
        assert!(answers[0].starts_with("< -32700"), "{answers:?}");
        assert!(answers[1].starts_with("< -32600 \"batches"), "{answers:?}");
        assert!(answers[2].starts_with("< 4 -32600"), "{answers:?}");
        bench.client(&request("5", "tools/list"));
        assert_eq!(bench.did(), ["> 5 \"tools/list\""]);
    }

    #[test]
    fn an_id_that_is_still_open_is_refused_and_not_forwarded() {
        let mut bench = Bench::open();
        bench.client(&request("1", "tools/call"));
        bench.client(&request("\"1\"", "tools/call"));
        bench.client(&request("1", "tools/list"));
        let did = bench.did();
        assert_eq!(did[..2], ["> 1 \"tools/call\"", "> \"1\" \"tools/call\""]);
        assert_eq!(
            did[2..],
            ["< 1 -32600 \"a request with the id 1 is still open\""]
        );
        bench.daemon(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        bench.client(&request("1", "tools/list"));
        assert_eq!(bench.did(), ["< 1 {}", "> 1 \"tools/list\""]);
    }

    #[test]
    fn only_a_cancel_of_an_open_request_reaches_the_daemon() {
        let mut bench = Bench::open();
        let cancel = |id: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            )
        };
        bench.client(&request("7", "tools/call"));
        bench.did();
        for id in ["\"7\"", "8", "null", "{}"] {
            bench.client(&cancel(id));
        }
        bench.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":null}"#);
        assert_eq!(bench.did(), [""; 0]);
        bench.client(&cancel("7"));
        assert_eq!(bench.did(), ["> \"notifications/cancelled\""]);
        bench.daemon(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert_eq!(bench.did(), [""; 0], "nobody waits for it any more");
    }

    #[test]
    fn a_lost_daemon_is_replaced_and_the_handshake_said_again() {
        let mut bench = Bench::open();
        for (id, method) in [
            ("1", "tools/call"),
            ("2", "resources/list"),
            ("3", "ping"),
            ("4", "tools/list"),
        ] {
            bench.client(&request(id, method));
        }
        bench.did();
        bench.lost();
        let want = [
            "< 2 -31001 \"daemon restarted during this request; nothing was repeated\"",
            "< 3 {}",
        ];
        assert_eq!(bench.did(), want);
        bench.until(50);
        assert_eq!(bench.did(), ["dial true"]);
        bench.resume.connected(bench.now);
        let want = [
            "> \"ptc-mcp-replay-1\" \"initialize\"",
            "> \"notifications/initialized\"",
            "> 4 \"tools/list\"",
            "ask 1",
        ];
        assert_eq!(bench.did(), want);
        bench.told("1", Some(&[]));
        let text = "daemon restarted during this run; no tool call was made; nothing was repeated";
        assert_eq!(bench.did(), [failure("1", text)]);
        bench.daemon(r#"{"jsonrpc":"2.0","id":"ptc-mcp-replay-1","result":{}}"#);
        bench.daemon(r#"{"jsonrpc":"2.0","id":4,"result":{"tools":[]}}"#);
        assert_eq!(bench.did(), ["< 4 {\"tools\":[]}"]);
        bench.client(&request("0", "tools/list"));
        assert_eq!(bench.did(), ["> 0 \"tools/list\""]);
    }

    #[test]
    fn calls_a_lost_daemon_had_are_asked_about_one_by_one_and_never_sent_again() {
        let mut bench = Bench::open();
        bench.client(&request("1", "tools/call"));
        bench.client(&request("\"1\"", "tools/call"));
        bench.lost();
        bench.client(&request("1", "tools/call"));
        bench.did();
        bench.resume.connected(bench.now);
        assert_eq!(bench.did()[2..], ["ask 1"]);
        bench.told("\"1\"", Some(&[]));
        assert_eq!(bench.did(), [""; 0], "it was not asked about yet");
        let calls = [
            ("mcp__a__b", Some(true)),
            ("mcp__a__b", Some(true)),
            ("mcp__a__b", Some(false)),
            ("mcp__c__d", None),
        ];
        bench.told("1", Some(&calls));
        let text = "daemon restarted during this run; tool calls already made: mcp__a__b (2 times, ok), \
                    mcp__a__b (failed), mcp__c__d (unknown whether it took effect); nothing was repeated";
        let want = [failure("1", text), "ask \"1\"".to_owned()];
        assert_eq!(bench.did(), want);
        bench.told("\"1\"", None);
        let text = "daemon restarted during this run; nothing was repeated";
        assert_eq!(bench.did(), [failure("\"1\"", text)]);
        bench.client(&request("1", "tools/call"));
        assert_eq!(bench.did(), ["> 1 \"tools/call\""]);
    }

    #[test]
    fn an_owed_answer_does_not_wait_for_ever() {
        let mut bench = Bench::open();
        for id in ["1", "2", "3"] {
            bench.client(&request(id, "tools/call"));
        }
        bench.lost();
        bench.until(50);
        bench.failed();
        bench.did();
        bench.client(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#,
        );
        bench.now = bench.start + Duration::from_secs(19);
        bench.resume.connected(bench.now);
        assert_eq!(bench.did()[2..], ["ask 1"]);
        let text = "daemon restarted during this run; nothing was repeated";
        bench.until(20_000);
        assert_eq!(bench.did(), [failure("2", text)]);
        bench.until(39_000);
        assert_eq!(bench.did(), [failure("1", text)]);
        bench.told("1", Some(&[]));
        assert_eq!(bench.did(), [""; 0]);
        assert_eq!(bench.resume.next_deadline(), None);
    }

    #[test]
    fn a_second_loss_leaves_what_is_owed_to_the_next_daemon() {
        let mut bench = Bench::open();
        bench.client(&request("1", "tools/call"));
        bench.client(&request("2", "tools/call"));
        bench.lost();
        bench.resume.connected(bench.now);
        bench.lost();
        bench.did();
        bench.told("1", Some(&[("mcp__a__b", None)]));
        let text = "daemon restarted during this run; tool calls already made: \
                    mcp__a__b (unknown whether it took effect); nothing was repeated";
        assert_eq!(bench.did(), [failure("1", text)]);
        bench.until(100);
        assert_eq!(bench.did(), ["dial true"]);
        bench.resume.connected(bench.now);
        assert_eq!(bench.did()[2..], ["ask 2"]);
    }

    #[test]
    fn a_daemon_that_refuses_is_not_asked() {
        let mut bench = Bench::open();
        bench.client(&request("1", "tools/call"));
        bench.lost();
        bench.did();
        bench.resume.refused("no");
        let text = "daemon restarted during this run; nothing was repeated";
        assert_eq!(bench.did()[1..], [failure("1", text)]);
    }

    #[test]
    fn the_pauses_grow_and_the_idle_search_ends() {
        let mut bench = Bench::open();
        bench.lost();
        let mut at = 0;
        for pause in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
            at += pause;
            bench.until(at);
            assert_eq!(
                bench.did(),
                ["dial false"],
                "nobody waits, so it is not started"
            );
            bench.failed();
        }
        bench.now = bench.start + IDLE_SEARCH;
        bench.resume.tick(bench.now);
        bench.failed();
        assert_eq!(bench.did(), ["dial false"]);
        assert_eq!(bench.resume.next_deadline(), None, "no timers while idle");
        bench.client(&request("9", "tools/call"));
        assert_eq!(bench.did(), ["dial true"]);
    }

    #[test]
    fn a_request_ends_a_pause_made_for_nobody() {
        let mut bench = Bench::open();
        bench.lost();
        bench.client(&request("9", "tools/call"));
        assert_eq!(bench.did(), ["dial true"]);
        bench.failed();
        bench.client(&request("10", "tools/call"));
        assert_eq!(
            bench.did(),
            [""; 0],
            "this pause follows a start that failed"
        );
        bench.until(100);
        assert_eq!(bench.did(), ["dial true"]);
    }

    #[test]
    fn a_flapping_daemon_does_not_make_the_pauses_short() {
        let mut bench = Bench::open();
        bench.lost();
        bench.until(50);
        bench.resume.connected(bench.now);
        bench.lost();
        bench.until(150);
        bench.resume.connected(bench.now);
        bench.now += STEADY;
        bench.lost();
        bench.until(5200);
    }

    #[test]
    fn while_the_daemon_is_down_the_openers_get_the_core_and_pings_an_answer() {
        let mut bench = Bench::new();
        bench.client(&request("9", "ping"));
        bench.client(INITIALIZE);
        bench.client(INITIALIZED);
        bench.client(&modern("\"d\"", "server/discover"));
        bench.client(&request("\"e\"", "server/discover"));
        bench.client(&modern("\"f\"", "server/discover").replace("2026-07-28", "2031-01-01"));
        bench.did();
        bench.failed();
        bench.until(50);
        bench.failed();
        assert_eq!(bench.did(), ["dial true"]);
        bench.now = bench.start + Duration::from_millis(1500);
        bench.resume.tick(bench.now);
        let mut did = bench.did();
        did.retain(|line| line != "dial true");
        let core = r#"{"protocolVersion":"2025-06-18","capabilities":{"resources":{"subscribe":false,"listChanged":false},"tools":{"listChanged":false}},"serverInfo":{"name":"ptcd","version":""#;
        assert!(did[0].starts_with(&format!("< 0 {core}")), "{did:?}");
        assert!(
            did[1].contains(r#""supportedVersions":["2026-07-28"]"#),
            "{did:?}"
        );
        assert!(did[2].starts_with("< \"e\" -32602"), "{did:?}");
        assert!(did[3].starts_with("< \"f\" -32022"), "{did:?}");
        bench.resume.connected(bench.now);
        let want = [
            "> \"ptc-mcp-replay-1\" \"initialize\"",
            "> \"notifications/initialized\"",
        ];
        assert_eq!(bench.did(), want);
    }

    #[test]
    fn an_opener_waits_longer_for_a_daemon_that_is_connected() {
        let mut bench = Bench::new();
        bench.client(INITIALIZE);
        bench.did();
        assert_eq!(
            bench.resume.next_deadline(),
            Some(bench.start + OPENER_PATIENCE)
        );
        bench.now += Duration::from_secs(1);
        bench.resume.connected(bench.now);
        assert_eq!(bench.did(), ["> 0 \"initialize\""]);
        bench.until(10_000);
        assert!(bench.did()[0].starts_with("< 0 {\"protocolVersion\""));
        bench.daemon(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
        assert_eq!(bench.did(), [""; 0], "the client has had its answer");
    }

    #[test]
    fn an_unknown_version_is_answered_with_the_newest() {
        let mut bench = Bench::new();
        bench.did();
        bench.client(&INITIALIZE.replace("2025-06-18", "2099-01-01"));
        bench.until(1500);
        assert!(bench.did()[0].contains(r#""protocolVersion":"2025-11-25""#));
    }

    #[test]
    fn what_waited_in_vain_is_told_the_reason_and_the_shim_stays() {
        let mut bench = Bench::new();
        bench.client(&request("1", "tools/call"));
        bench.client(&request("2", "tools/list"));
        bench.did();
        bench.failed();
        bench.now = bench.start + HOLD;
        bench.resume.tick(bench.now);
        let reason = "ptcd cannot be reached: nothing listens on S. Nothing ran. `ptcctl start` says what is wrong.";
        let call =
            format!(r#"< 1 {{"content":[{{"type":"text","text":"{reason}"}}],"isError":true}}"#);
        let list = format!("< 2 -31001 \"{reason}\"");
        assert_eq!(bench.did(), ["dial true".to_owned(), call, list]);
        bench.resume.connected(bench.now);
        bench.client(&request("3", "tools/list"));
        assert_eq!(bench.did(), ["> 3 \"tools/list\""]);
    }

    #[test]
    fn a_daemon_that_cannot_start_is_answered_for_at_once_and_tried_again_later() {
        let mut bench = Bench::new();
        bench.client(INITIALIZE);
        bench.client(&request("1", "tools/call"));
        bench.did();
        bench.resume.blocked("ptcd cannot start: no key", bench.now);
        let did = bench.did();
        assert!(did[0].starts_with("< 0 {\"protocolVersion\""), "{did:?}");
        let text = "ptcd cannot start: no key. Nothing ran. Mend that and call again: \
                    ptcd is then started anew.";
        assert_eq!(did[1..], [failure("1", text)]);
        assert_eq!(bench.resume.next_deadline(), None, "no timers while idle");
        bench.now += RETRY / 2;
        bench.client(&request("2", "tools/call"));
        assert_eq!(bench.did(), ["dial false"], "someone may have started it");
        bench.failed();
        assert_eq!(bench.did(), [failure("2", text)]);
        bench.now += RETRY;
        bench.client(&request("3", "tools/list"));
        assert_eq!(bench.did(), ["dial true"]);
        bench.resume.blocked("ptcd cannot start: no key", bench.now);
        assert!(bench.did()[0].starts_with("< 3 {\"tools\":[{\"name\":\"execute_program\""));
        bench.client(&request("4", "tools/list"));
        bench.resume.connected(bench.now);
        let did = bench.did();
        assert_eq!(did[0], "dial false");
        assert_eq!(did.last().unwrap(), "> 4 \"tools/list\"");
    }

    #[test]
    fn what_a_try_waits_for_is_the_reason_that_is_told() {
        let mut bench = Bench::new();
        bench.client(&request("1", "tools/list"));
        bench.did();
        bench.resume.waiting("an older ptcd is still ending");
        bench.until(20_000);
        let reason = "ptcd cannot be reached: an older ptcd is still ending. Nothing ran. \
                      `ptcctl start` says what is wrong.";
        assert_eq!(bench.did(), [format!("< 1 -31001 \"{reason}\"")]);
    }

    #[test]
    fn a_refusal_answers_what_waits_and_the_next_request_asks_again() {
        let mut bench = Bench::new();
        bench.client(INITIALIZE);
        bench.client(&request("1", "tools/call"));
        bench.did();
        bench.resume.refused("another configuration");
        let text = "-31001 \"ptcd refused this client: another configuration\"";
        let want = [
            "note the daemon refused this client: another configuration".to_owned(),
            format!("< 0 {text}"),
            format!("< 1 {text}"),
        ];
        assert_eq!(bench.did(), want);
        assert_eq!(bench.resume.next_deadline(), None);
        bench.client(&request("2", "tools/call"));
        assert_eq!(bench.did(), ["dial true"]);
    }

    #[test]
    fn after_the_end_of_input_what_was_read_is_answered() {
        let mut bench = Bench::new();
        bench.client(INITIALIZE);
        bench.client(&request("1", "tools/call"));
        bench.resume.eof(bench.now);
        bench.now += Duration::from_secs(8);
        bench.resume.connected(bench.now);
        let did = bench.did();
        assert_eq!(
            did,
            ["dial true", "> 0 \"initialize\"", "> 1 \"tools/call\""]
        );
        bench.daemon(r#"{"jsonrpc":"2.0","id":0,"result":{}}"#);
        bench.daemon(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert_eq!(bench.did(), ["< 0 {}", "< 1 {}", "finish"]);
    }

    #[test]
    fn the_wait_after_the_end_of_input_starts_with_the_daemon_and_has_an_end() {
        let mut bench = Bench::new();
        bench.client(&request("1", "tools/call"));
        bench.resume.eof(bench.now);
        bench.now += Duration::from_secs(3);
        bench.resume.connected(bench.now);
        bench.did();
        bench.until(8000);
        let want = ["< 1 -31000 \"cancelled: stdin ended\"", "finish"];
        assert_eq!(bench.did(), want);
        assert_eq!(bench.resume.next_deadline(), None);
    }

    #[test]
    fn with_nothing_open_the_end_of_input_is_the_end() {
        let mut bench = Bench::open();
        bench.client(&request("5", "subscriptions/listen"));
        bench.did();
        bench.resume.eof(bench.now);
        assert_eq!(
            bench.did(),
            ["< 5 -31000 \"cancelled: stdin ended\"", "finish"]
        );
    }

    #[test]
    fn a_daemon_lost_after_the_end_of_input_is_answered_for_within_the_wait() {
        let lost_at_the_end = || {
            let mut bench = Bench::open();
            bench.client(&request("1", "tools/call"));
            bench.resume.eof(bench.now);
            bench.lost();
            bench.did();
            bench
        };
        let mut bench = lost_at_the_end();
        bench.resume.connected(bench.now);
        bench.told("1", Some(&[]));
        let text = "daemon restarted during this run; no tool call was made; nothing was repeated";
        assert_eq!(bench.did()[3..], [failure("1", text), "finish".to_owned()]);
        let mut bench = lost_at_the_end();
        bench.until(50);
        bench.until(5000);
        let text = "daemon restarted during this run; nothing was repeated";
        let want = [
            "dial true".to_owned(),
            failure("1", text),
            "finish".to_owned(),
        ];
        assert_eq!(bench.did(), want);
    }

    #[test]
    fn questions_of_the_daemon_are_answered_to_the_one_that_asked() {
        let mut bench = Bench::open();
        bench.daemon(&request("5", "roots/list"));
        bench.daemon(&request("6", "elicitation/create"));
        bench.client(r#"{"jsonrpc":"2.0","id":5,"result":{"roots":[]}}"#);
        bench.client(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#);
        let want = [
            "< 5 \"roots/list\"",
            "< 6 \"elicitation/create\"",
            "> 5 {\"roots\":[]}",
        ];
        assert_eq!(bench.did(), want);
        bench.lost();
        assert_eq!(bench.did(), ["< \"notifications/cancelled\""]);
        bench.resume.connected(bench.now);
        bench.did();
        bench.client(r#"{"jsonrpc":"2.0","id":6,"result":{}}"#);
        assert_eq!(bench.did(), [""; 0]);
    }

    #[test]
    fn a_subscription_is_made_again_and_acknowledged_once() {
        let ack = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":5}}}"#;
        let mut bench = Bench::up();
        bench.client(&request("5", "subscriptions/listen"));
        bench.daemon(ack);
        let want = [
            "> 5 \"subscriptions/listen\"",
            "< \"notifications/subscriptions/acknowledged\"",
        ];
        assert_eq!(bench.did(), want);
        bench.lost();
        bench.until(50);
        assert_eq!(bench.did(), ["dial false"]);
        bench.resume.connected(bench.now);
        bench.daemon(ack);
        assert_eq!(bench.did(), ["> 5 \"subscriptions/listen\""]);
        assert_eq!(bench.resume.next_deadline(), None);
    }

    #[test]
    fn a_modern_client_is_resumed_by_its_subscriptions_alone() {
        let mut bench = Bench::up();
        bench.client(&modern("5", "subscriptions/listen"));
        bench.client(&modern("6", "tools/call"));
        bench.client(&modern("7", "resources/list"));
        bench.daemon(r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":5}}}"#);
        bench.did();
        bench.lost();
        let lost = "daemon restarted during this request; nothing was repeated";
        assert_eq!(bench.did(), [format!("< 7 -31001 \"{lost}\"")]);
        bench.resume.connected(bench.now);
        assert_eq!(bench.did(), ["> 5 \"subscriptions/listen\"", "ask 6"]);
        bench.told("6", Some(&[]));
        let text = "daemon restarted during this run; no tool call was made; nothing was repeated";
        let whole = failure("6", text).replace(
            r#""isError":true}"#,
            r#""isError":true,"resultType":"complete"}"#,
        );
        assert_eq!(bench.did(), [whole]);
    }

    #[test]
    fn a_subscription_that_its_daemon_ends_waits_for_the_next_one() {
        let ack = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}"#;
        let mut bench = Bench::up();
        bench.client(&modern("\"s\"", "subscriptions/listen"));
        bench.client(&modern("\"t\"", "subscriptions/listen"));
        bench.daemon(ack);
        bench.did();
        bench.daemon(r#"{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete"}}"#);
        assert_eq!(bench.did(), [""; 0], "the client knows nothing of daemons");
        let refusal = r#"{"jsonrpc":"2.0","id":"t","error":{"code":-32601,"message":"no"}}"#;
        bench.daemon(refusal);
        assert_eq!(bench.did(), ["< \"t\" -32601 \"no\""]);
        bench.lost();
        bench.resume.connected(bench.now);
        bench.daemon(ack);
        assert_eq!(bench.did(), ["> \"s\" \"subscriptions/listen\""]);
        bench.client(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}"#,
        );
        assert_eq!(bench.did(), ["> \"notifications/cancelled\""]);
        bench.lost();
        bench.resume.connected(bench.now);
        assert_eq!(bench.did(), [""; 0]);
    }

    #[test]
    fn a_daemon_that_wants_to_be_connected_to_anew_is_as_soon_as_it_owes_nothing() {
        let renew = r#"{"jsonrpc":"2.0","method":"notifications/ptc/renew"}"#;
        let mut bench = Bench::open();
        bench.client(&request("1", "tools/call"));
        bench.daemon(renew);
        bench.client(&request("2", "subscriptions/listen"));
        bench.client(&request("3", "tools/call"));
        bench.did();
        bench.daemon(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert_eq!(bench.did(), ["< 1 {}"], "it still has a call");
        bench.daemon(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
        assert_eq!(bench.did(), ["< 3 {}", "hang up", "dial false"]);
        bench.client(&request("4", "tools/call"));
        assert_eq!(bench.did(), [""; 0], "held meanwhile");
        bench.resume.connected(bench.now);
        let again = bench.did();
        assert_eq!(again.last().unwrap(), "> 4 \"tools/call\"", "{again:?}");
        assert!(
            again.contains(&"> 2 \"subscriptions/listen\"".to_owned()),
            "{again:?}"
        );
        bench.daemon(r#"{"jsonrpc":"2.0","id":4,"result":{}}"#);
        assert_eq!(bench.did(), ["< 4 {}"], "once is enough");
        // A client that waits for nothing is not waited for.
        bench.daemon(renew);
        assert_eq!(bench.did(), ["hang up", "dial false"]);
        bench.failed();
        assert!(bench.resume.next_deadline().is_some(), "it is tried again");
    }

    #[test]
    fn a_list_is_answered_at_once_from_what_the_daemon_last_said() {
        let mut bench = Bench::new();
        bench.resume.remember(Some(said()));
        bench.client(INITIALIZE);
        bench.client(&request("1", "tools/list"));
        bench.client(&modern("2", "tools/list"));
        let kept = |id| format!("< {id} {{\"tools\":[{{\"name\":\"kept\"}}]}}");
        let want = ["dial true".to_owned(), kept(1), kept(2)];
        assert_eq!(bench.did(), want, "the session has a handshake");
        bench.until(1500);
        let did = bench.did();
        assert!(did[0].contains(r#""instructions":"Do.""#), "{did:?}");
        let mut bench = Bench::new();
        bench.resume.remember(Some(said()));
        bench.client(&modern("2", "tools/list"));
        let did = bench.did();
        assert!(
            did[1].starts_with("< 2 {\"resultType\":\"complete\""),
            "{did:?}"
        );
        for part in [
            "\"ttlMs\":60000",
            "\"cacheScope\":\"private\"",
            "serverInfo",
            "kept",
        ] {
            assert!(did[1].contains(part), "{did:?}");
        }
    }

    #[test]
    fn a_list_nobody_knows_waits_a_moment_for_the_daemon() {
        let mut bench = Bench::new();
        bench.client(INITIALIZE);
        bench.client(&request("1", "tools/list"));
        bench.did();
        bench.until(1500);
        let did = bench.did();
        assert!(
            did[1].starts_with("< 1 {\"tools\":[{\"name\":\"execute_program\""),
            "{did:?}"
        );
        bench.client(&request("2", "tools/list"));
        bench.now += Duration::from_millis(500);
        bench.resume.connected(bench.now);
        assert_eq!(bench.did()[1..], ["> 2 \"tools/list\""]);
        bench.client(&request("3", "tools/list"));
        bench.resume.remember(Some(said()));
        bench.lost();
        assert_eq!(
            bench.did()[1..],
            ["2", "3"].map(|id| format!("< {id} {{\"tools\":[{{\"name\":\"kept\"}}]}}"))
        );
    }

    #[test]
    fn a_list_without_an_opener_is_the_daemons_to_refuse() {
        let mut bench = Bench::new();
        bench.resume.remember(Some(said()));
        bench.client(&request("1", "tools/list"));
        bench.client(&modern("2", "tools/list").replace("2026-07-28", "2031-01-01"));
        bench.did();
        bench.resume.connected(bench.now);
        assert_eq!(bench.did(), ["> 1 \"tools/list\"", "> 2 \"tools/list\""]);
    }

    #[test]
    fn a_modern_clients_ping_is_the_daemons_to_refuse() {
        let mut bench = Bench::new();
        bench.client(&modern("1", "ping"));
        bench.client(&request("2", "ping"));
        bench.client(&modern("3", "tools/call"));
        bench.client(&request("4", "ping"));
        assert_eq!(bench.did(), ["dial true", "< 2 {}"]);
        bench.resume.connected(bench.now);
        let want = ["> 1 \"ping\"", "> 3 \"tools/call\"", "> 4 \"ping\""];
        assert_eq!(bench.did(), want);
    }

    #[test]
    fn a_second_handshake_that_is_refused_leaves_the_first() {
        let mut bench = Bench::open();
        bench.client(&INITIALIZE.replace("\"id\":0", "\"id\":1"));
        bench.daemon(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#);
        bench.lost();
        bench.did();
        bench.resume.connected(bench.now);
        let want = [
            "> \"ptc-mcp-replay-1\" \"initialize\"",
            "> \"notifications/initialized\"",
        ];
        assert_eq!(bench.did(), want);
    }

    #[test]
    fn what_is_too_long_settles_its_own_request_only() {
        let excerpt = |text: &str| Excerpt {
            head: text.into(),
            tail: Vec::new(),
            length: 99,
        };
        let mut bench = Bench::open();
        bench.client(&request("1", "tools/call"));
        bench.did();
        for head in [
            r#"{"id":7,"method":"a"#,
            r#"{"id":1,"method":"a"#,
            r#"{"id":8,"result":"a"#,
        ] {
            bench.resume.client_too_long(&excerpt(head), 10);
        }
        let text = "\"a message of 99 bytes is over the limit of 10 bytes and was skipped\"";
        let want = ["7 ", "", ""].map(|id| format!("< {id}-32600 {text}"));
        assert_eq!(bench.did(), want);
        let now = bench.now;
        bench
            .resume
            .daemon_too_long(&excerpt(r#"{"id":1,"result":"#), 10, now);
        let want = format!(r#"< 1 {{"content":[{{"type":"text","text":{text}}}],"isError":true}}"#);
        assert_eq!(bench.did(), [want]);
        bench.resume.daemon_too_long(&excerpt("{"), 10, now);
        assert_eq!(bench.did(), ["hang up"]);
        bench.until(50);
    }

    #[test]
    fn what_is_open_and_held_is_bounded() {
        let mut bench = Bench::new();
        bench.did();
        let long = request("0", &"x".repeat(MAX_HELD_BYTES / 2));
        bench.client(&long);
        bench.client(&long.replacen(":0", ":1", 1));
        assert_eq!(
            bench.did(),
            ["< 1 -31002 \"too many requests are open; wait for answers first\""]
        );
        for n in 1..=MAX_OPEN {
            bench.client(&request(&n.to_string(), "tools/list"));
        }
        assert_eq!(bench.did().len(), 1);
    }

    #[test]
    fn a_refused_handshake_is_not_said_again() {
        let mut bench = Bench::up();
        bench.client(INITIALIZE);
        bench.daemon(r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}"#);
        bench.lost();
        bench.did();
        bench.resume.connected(bench.now);
        assert_eq!(bench.did(), [""; 0]);
    }
}
