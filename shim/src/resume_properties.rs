//! Whatever order things happen in, every request gets one answer and nothing is sent twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use ptc_protocol::run::RequestCalls;
use ptc_protocol::said::Said;
use serde_json::{Value, json};

use crate::message::Id;
use crate::resume::{Action, HOLD, Resume};
use crate::resume_events::{Event, METHODS, event};

/// Ids that are easily mixed up.
fn id(which: usize) -> Value {
    [
        json!(1),
        json!("1"),
        json!(2),
        json!("ptc-mcp-replay-1"),
        json!("ä\"\n"),
    ][which]
        .clone()
}

/// A request as the client sent it.
#[derive(Clone, Debug)]
struct Asked {
    id: String,
    method: &'static str,
}

/// A request that the daemon of this connection has.
#[derive(Clone, Debug)]
struct Had {
    id: Value,
    /// `None` for what the shim asks by itself.
    tag: Option<u64>,
}

/// The ids of what the shim asks by itself, which a client may have too.
fn is_of_the_shim(id: &Value) -> bool {
    id.as_str().is_some_and(|id| id.starts_with("ptc-mcp"))
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of the world of its own"
)]
struct World {
    resume: Resume,
    now: Instant,
    up: bool,
    dialling: bool,
    connection: u64,
    finished: bool,
    eof: bool,
    /// By the number that each request carries: what has no answer yet.
    open: BTreeMap<u64, Asked>,
    cancelled: BTreeSet<u64>,
    next: u64,
    /// Requests that were sent, and on which connection last.
    sent: BTreeMap<u64, u64>,
    has: Vec<Had>,
    questions: Vec<(Value, u64)>,
    asked: Vec<Id>,
}

type Checked = Result<(), TestCaseError>;

impl World {
    fn new() -> Self {
        Self {
            resume: Resume::new(Duration::from_secs(5)),
            now: Instant::now(),
            up: false,
            dialling: false,
            connection: 0,
            finished: false,
            eof: false,
            open: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            next: 0,
            sent: BTreeMap::new(),
            has: Vec::new(),
            questions: Vec::new(),
            asked: Vec::new(),
        }
    }

    fn client(&mut self, line: &Value) {
        self.resume
            .client_line(line.to_string().as_bytes(), self.now);
    }

    fn daemon(&mut self, line: &Value) {
        self.resume
            .daemon_line(line.to_string().into_bytes(), self.now);
    }

    fn happen(&mut self, event: &Event) -> Checked {
        if self.finished {
            return Ok(());
        }
        if !self.eof {
            self.client_does(event)?;
        }
        if self.up {
            self.daemon_does(event)?;
        }
        self.link_does(event);
        self.act(None).map(drop)
    }

    fn client_does(&mut self, event: &Event) -> Checked {
        match *event {
            Event::Request { method, id, modern } => self.request(method, id, modern)?,
            Event::Cancel(which) => self.cancel(&id(which)),
            Event::Initialized => {
                self.client(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
            }
            Event::Garbage => {
                self.resume.client_line(b"{nonsense", self.now);
                let told = self.act(None)?;
                prop_assert_eq!(told, 1, "one line for a line that is none");
            }
            Event::Reply(nth) => {
                if let Some((id, _)) = self.questions.get(nth) {
                    let line = json!({"jsonrpc": "2.0", "id": id, "result": {}});
                    self.client(&line);
                }
            }
            Event::Eof => {
                self.eof = true;
                self.resume.eof(self.now);
            }
            _ => {}
        }
        Ok(())
    }

    fn daemon_does(&mut self, event: &Event) -> Checked {
        match *event {
            Event::Answer { nth, error } if nth < self.has.len() => {
                let had = self.has.remove(nth);
                let mark = json!({"tag": had.tag});
                let answer = if error {
                    json!({"jsonrpc": "2.0", "id": had.id, "error": {"code": 1, "message": "", "data": mark}})
                } else {
                    json!({"jsonrpc": "2.0", "id": had.id, "result": mark})
                };
                self.daemon(&answer);
            }
            Event::Acknowledge(nth) if nth < self.has.len() => {
                let key = "io.modelcontextprotocol/subscriptionId";
                let params = json!({"_meta": {key: self.has[nth].id}});
                let method = "notifications/subscriptions/acknowledged";
                self.daemon(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
            }
            Event::Stray(which) => {
                let id = id(which);
                // An answer to what it has is no stray one.
                if self.has.iter().all(|had| had.id != id) && !is_of_the_shim(&id) {
                    self.daemon(&json!({"jsonrpc": "2.0", "id": id, "result": {"tag": null}}));
                    let told = self.act(None)?;
                    prop_assert_eq!(told, 0, "an answer that nobody asked for");
                }
            }
            Event::Notice => {
                self.daemon(&json!({"jsonrpc": "2.0", "method": "notifications/message"}));
            }
            Event::Renew => {
                self.daemon(&json!({"jsonrpc": "2.0", "method": ptc_protocol::RENEW_NOTICE}));
            }
            Event::Question(which) => {
                self.questions.push((id(which), self.connection));
                let line = json!({"jsonrpc": "2.0", "id": id(which), "method": "roots/list"});
                self.daemon(&line);
            }
            Event::Lost => {
                self.hung_up();
                self.resume.lost("it closed the connection", self.now);
            }
            _ => {}
        }
        Ok(())
    }

    fn link_does(&mut self, event: &Event) {
        let dialling = std::mem::take(&mut self.dialling);
        match *event {
            Event::Up if dialling => {
                self.up = true;
                self.connection += 1;
                self.resume.connected(self.now);
            }
            Event::Failed if dialling => self.resume.dial_failed("nothing listens", self.now),
            Event::Blocked if dialling => self.resume.blocked("no ptcd", self.now),
            Event::Refused if dialling => self.resume.refused("another configuration"),
            _ => self.dialling = dialling,
        }
        match *event {
            Event::Told(known) if !self.asked.is_empty() => {
                let id = self.asked.remove(0);
                let calls = known.then(RequestCalls::default);
                self.resume.told(&id, calls.as_ref(), self.now);
            }
            Event::Remember(known) => self.resume.remember(known.then(|| Said {
                build: "b".to_owned(),
                config: "c".to_owned(),
                instructions: String::new(),
                ttl_ms: 1,
                tools: json!([]),
            })),
            Event::Tick => self.tick(),
            _ => {}
        }
    }

    fn tick(&mut self) {
        if let Some(deadline) = self.resume.next_deadline() {
            self.now = self.now.max(deadline);
            self.resume.tick(self.now);
        }
    }

    fn request(&mut self, method: usize, which: usize, modern: bool) -> Checked {
        // A cancelled id may not be used again, since its answer may be on the way. The others may not
        // either, but their second use is told from the first.
        let crossing = |had: &Had| {
            had.id == id(which) && had.tag.is_some_and(|tag| self.cancelled.contains(&tag))
        };
        if self.eof || self.has.iter().any(crossing) {
            return Ok(());
        }
        let (tag, method) = (self.next, METHODS[method]);
        self.next += 1;
        let mut params = json!({"tag": tag});
        if modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let asked = Asked {
            id: id(which).to_string(),
            method,
        };
        self.open.insert(tag, asked);
        self.client(
            &json!({"jsonrpc": "2.0", "id": id(which), "method": method, "params": params}),
        );
        self.act(Some(tag)).map(drop)
    }

    fn cancel(&mut self, id: &Value) {
        let params = json!({"requestId": id});
        self.client(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}),
        );
        let id = id.to_string();
        let open = self
            .open
            .iter()
            .find(|(_, asked)| asked.id == id && asked.method != "initialize")
            .map(|(tag, _)| *tag);
        if let Some(tag) = open {
            self.open.remove(&tag);
            self.cancelled.insert(tag);
        }
    }

    fn hung_up(&mut self) {
        self.up = false;
        self.has.clear();
        self.questions.clear();
    }

    /// Does what was decided, and checks it; gives the number of answers to the client. `fresh` is
    /// the request that was made just now.
    fn act(&mut self, fresh: Option<u64>) -> Result<usize, TestCaseError> {
        let mut answers = 0;
        while let Some(action) = self.resume.next_action() {
            prop_assert!(!self.finished, "{:?} after the end", action);
            match action {
                Action::ToClient(line) => {
                    answers += usize::from(self.hand_to_client(&line, fresh)?);
                }
                Action::ToDaemon(line) => self.hand_to_daemon(&line)?,
                Action::Dial { .. } => {
                    prop_assert!(!self.up && !self.dialling, "two connections");
                    self.dialling = true;
                }
                Action::Ask(id) => self.asked.push(id),
                Action::HangUp => {
                    let waited_for = |had: &Had| {
                        let open = had.tag.and_then(|tag| self.open.get(&tag));
                        open.is_some_and(|asked| asked.method != "subscriptions/listen")
                    };
                    prop_assert!(
                        !self.has.iter().any(waited_for),
                        "hung up on {:?}",
                        self.has
                    );
                    self.hung_up();
                }
                Action::Note(_) => {}
                Action::Finish => {
                    prop_assert!(self.open.is_empty(), "left open: {:?}", self.open);
                    self.finished = true;
                }
            }
        }
        Ok(answers)
    }

    /// Whether the line is an answer.
    fn hand_to_client(&mut self, line: &[u8], fresh: Option<u64>) -> Result<bool, TestCaseError> {
        let line: Value = serde_json::from_slice(line).unwrap();
        if line.get("method").is_some() {
            return Ok(false);
        }
        if line["id"].is_null() {
            return Ok(true);
        }
        let id = line["id"].to_string();
        let mark = [&line["result"]["tag"], &line["error"]["data"]["tag"]]
            .into_iter()
            .find_map(Value::as_u64);
        if let Some(tag) = mark {
            prop_assert!(!self.cancelled.contains(&tag), "cancelled: {line}");
            let asked = self.open.remove(&tag);
            prop_assert_eq!(asked.map(|asked| asked.id), Some(id), "{}", line);
            return Ok(true);
        }
        // One of the shim's own: a second request under an open id is refused, the first one goes on.
        let refused = line["error"]["code"] == json!(-32600);
        let found = if refused {
            fresh
        } else {
            let mut same = self.open.iter().filter(|(_, asked)| asked.id == id);
            same.next().map(|(tag, _)| *tag)
        };
        let asked = found.and_then(|tag| self.open.remove(&tag));
        prop_assert_eq!(asked.map(|asked| asked.id), Some(id), "{}", line);
        Ok(true)
    }

    fn hand_to_daemon(&mut self, line: &[u8]) -> Checked {
        let line: Value = serde_json::from_slice(line).unwrap();
        prop_assert!(self.up, "written to nobody: {line}");
        if line.get("method").is_none() {
            let asked = self
                .questions
                .iter()
                .position(|(id, connection)| *id == line["id"] && *connection == self.connection);
            let Some(at) = asked else {
                return Err(TestCaseError::fail(format!("nobody asked for {line}")));
            };
            self.questions.remove(at);
            return Ok(());
        }
        let Some(id) = line.get("id") else {
            return Ok(());
        };
        let own = line["method"] == "initialize" && is_of_the_shim(id);
        let tag = line["params"]["tag"].as_u64();
        let Some(number) = tag.filter(|tag| !own || self.open.contains_key(tag)) else {
            self.has.push(Had {
                id: id.clone(),
                tag: None,
            });
            return Ok(());
        };
        let before = self.sent.insert(number, self.connection);
        let repeats = [
            "tools/list",
            "initialize",
            "server/discover",
            "subscriptions/listen",
        ];
        if let Some(before) = before {
            prop_assert!(before < self.connection, "twice on one connection: {line}");
            let method = line["method"].as_str().unwrap_or_default();
            prop_assert!(repeats.contains(&method), "sent twice: {line}");
        }
        prop_assert!(
            self.open.contains_key(&number),
            "sent though answered: {line}"
        );
        self.has.push(Had {
            id: id.clone(),
            tag,
        });
        Ok(())
    }

    /// No daemon comes any more and the input ends: everything is answered within the promised time.
    fn end(&mut self) -> Checked {
        self.happen(&Event::Lost)?;
        let start = self.now;
        self.happen(&Event::Eof)?;
        for _ in 0..10_000 {
            if self.finished {
                break;
            }
            self.happen(&Event::Failed)?;
            self.happen(&Event::Told(false))?;
            if self.resume.next_deadline().is_none() {
                break;
            }
            self.happen(&Event::Tick)?;
        }
        prop_assert!(self.finished, "no end; open: {:?}", self.open);
        let waited = self.now - start;
        prop_assert!(waited <= HOLD + Duration::from_secs(5), "{:?}", waited);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_has_one_answer_and_nothing_is_sent_twice(
        events in prop::collection::vec(event(), 1..80)
    ) {
        let mut world = World::new();
        world.act(None)?;
        for event in &events {
            world.happen(event)?;
        }
        world.end()?;
    }
}
