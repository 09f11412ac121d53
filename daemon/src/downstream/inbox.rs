//! Hands what a server sent to the MCP session.

use std::path::Path;
use std::sync::Arc;

use rmcp::model::{CustomResult, JsonRpcMessage, RequestId, ServerResult};
use rmcp::service::{RoleClient, RxJsonRpcMessage};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::greeting;
use super::handler;
use super::link::{Kind, Link, Settled};
use super::reply::{Reply, Turned};
use super::wire::{self, Incoming, Outcome};

/// Messages over this size are read off the runtime's own threads, in bytes.
const BIG_BYTES: usize = 256 * 1024;

/// What a transport does after a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Read on.
    GoOn,
    /// Send this to the server, if it takes it.
    Answer(String),
    /// The session wants no more.
    Stop,
}

impl Next {
    fn while_wanted(wanted: bool) -> Self {
        if wanted { Self::GoOn } else { Self::Stop }
    }
}

/// The session's end of the reading.
#[derive(Debug)]
pub(super) struct Inbox {
    link: Arc<Link>,
    session: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
}

impl Inbox {
    pub(super) fn new(
        link: Arc<Link>,
        session: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    ) -> Self {
        Self { link, session }
    }

    /// Takes in one message.
    pub(super) async fn take(&self, message: Vec<u8>) -> Next {
        let bytes = message.len();
        match read(message).await {
            Some(incoming) => self.take_read(incoming, bytes).await,
            // The runtime is ending.
            None => Next::Stop,
        }
    }

    /// Takes in one message that has been read already.
    pub(super) async fn take_read(&self, incoming: Incoming, bytes: usize) -> Next {
        match incoming {
            Incoming::Blank => Next::GoOn,
            Incoming::Junk { shown } => {
                self.link.add_junk(shown);
                Next::GoOn
            }
            Incoming::Notification { method, params } => {
                self.heard(&method, params.as_ref());
                Next::GoOn
            }
            Incoming::Request { id, method } => {
                Next::Answer(answer(&id, &method, self.link.project.as_deref()))
            }
            Incoming::Answer { id, outcome } => {
                let wanted = match self.link.settle(id) {
                    Settled::Open(kind) => {
                        let reply = reply(outcome, bytes, kind == Kind::List);
                        self.deliver(id, kind, reply).await
                    }
                    Settled::Cancelled => true,
                    Settled::Stray => self.stray(id).await,
                };
                Next::while_wanted(wanted)
            }
        }
    }

    /// A message over the cap has come. False when the session wants no more.
    pub(super) async fn too_long(&self, id: Option<i64>) -> bool {
        match id {
            None => true,
            Some(id) => match self.link.settle(id) {
                Settled::Open(kind) => self.deliver(id, kind, Reply::TooLong).await,
                Settled::Cancelled => true,
                Settled::Stray => self.stray(id).await,
            },
        }
    }

    /// Answers a request of ours in the server's place, if it is still open.
    pub(super) async fn settle(&self, id: i64, reply: Reply) -> bool {
        match self.link.settle(id) {
            Settled::Open(kind) => self.deliver(id, kind, reply).await,
            Settled::Cancelled | Settled::Stray => true,
        }
    }

    fn heard(&self, method: &str, params: Option<&Value>) {
        match method {
            "notifications/tools/list_changed" => self.link.list_changed.notify_one(),
            "notifications/progress" | "notifications/message" => {
                self.link.heard(news(method, params));
            }
            _ => {}
        }
    }

    /// An answer to nothing. A handshake cannot go on with a server that
    /// mistakes its ids; a call may still be answered rightly.
    async fn stray(&self, id: i64) -> bool {
        let remark = format!("it answered with id {id}, which no open request has");
        self.link.remark(remark.clone());
        for (open, kind) in self.link.settle_handshake() {
            let fault = Reply::Fault(format!("the ids do not match: {remark}"));
            if !self.deliver(open, kind, fault).await {
                return false;
            }
        }
        true
    }

    async fn deliver(&self, id: i64, kind: Kind, reply: Reply) -> bool {
        if let (
            Kind::Call,
            Reply::Turned {
                how,
                turned: Turned::Reconnect,
            },
        ) = (kind, &reply)
        {
            // The connection may end before the session has handed this on.
            self.link.turned_away(id, how.clone());
        }
        let id = RequestId::Number(id);
        let greeted = match kind {
            Kind::Initialize => greeting::initialize(reply, &self.link),
            Kind::Discover => greeting::discover(reply, &self.link),
            Kind::List | Kind::Call | Kind::Listen | Kind::Other => {
                Ok(ServerResult::CustomResult(CustomResult(reply.wrap())))
            }
        };
        let message = match greeted {
            Ok(result) => JsonRpcMessage::response(result, id),
            Err(refusal) => {
                // The session needs to know little; whoever asked for the handshake has it whole.
                let error = refusal.for_session();
                self.link.refused(refusal);
                JsonRpcMessage::error(error, Some(id))
            }
        };
        self.session.send(message).await.is_ok()
    }
}

/// Reads one message; a big one elsewhere, so that other servers need not wait.
pub(super) async fn read(message: Vec<u8>) -> Option<Incoming> {
    if message.len() > BIG_BYTES {
        let reading = tokio::task::spawn_blocking(move || wire::read(&message));
        return reading.await.ok();
    }
    Some(wire::read(&message))
}

/// What an outcome is to whoever asked; of a list it is enough that most of it can be read.
pub(super) fn reply(outcome: Outcome, bytes: usize, list: bool) -> Reply {
    match outcome {
        // One tool's deep schema, which cannot be used anyway, costs no other tool.
        Outcome::TooDeep { shallow } if list => Reply::Result {
            value: shallow,
            bytes,
        },
        Outcome::TooDeep { .. } => Reply::Fault(wire::TOO_DEEP.to_owned()),
        Outcome::Result(value) => Reply::Result { value, bytes },
        Outcome::Error {
            code,
            message,
            data,
        } => Reply::Error {
            code,
            message,
            data,
        },
        Outcome::Fault(fault) => Reply::Fault(fault),
    }
}

fn answer(id: &Value, method: &str, project: Option<&Path>) -> String {
    match handler::answer(method, project) {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err((code, message)) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    }
    .to_string()
}

/// Progress or a log line in a few words.
fn news(method: &str, params: Option<&Value>) -> String {
    let get = |key: &str| params.and_then(|params| params.get(key));
    let text = |key: &str| match get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let words = if method == "notifications/progress" {
        let of = match get("total") {
            Some(total) => format!(" of {total}"),
            None => String::new(),
        };
        format!("progress {}{of} {}", text("progress"), text("message"))
    } else {
        format!("log {}: {}", text("level"), text("data"))
    };
    wire::shown(words.as_bytes())
}
