//! Puts a question to the person at the client, in the client's own protocol.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ClientResult, ElicitRequest, ElicitRequestParams, ServerRequest};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::engine::output::visible;
use crate::engine::{Answer, Asker, Boxed, Question};

/// Most bytes of arguments that are shown whole.
const MAX_SHOWN: usize = 2048;
/// Bytes shown of the beginning, and of the end, of longer ones.
const SHOWN_PART: usize = 800;
/// Most characters of a name or a reason.
const MAX_NAME: usize = 300;
/// Questions that a client is asked at once.
pub(super) const AT_ONCE: usize = 8;
/// Questions that may wait to be put into one answer.
const MAX_QUEUED: usize = 1024;
/// How long rmcp may take to put a request into the queue of a client.
const SENDING: Duration = Duration::from_secs(10);

const ONCE: &str = "allow_once";
const TOOL: &str = "allow_tool_for_this_program";
const DENY: &str = "deny";

/// Whether the client of a request can show a form to its user.
pub(super) fn can_be_asked(context: &RequestContext<RoleServer>, modern: bool) -> bool {
    let capabilities = if modern {
        context.meta.client_capabilities()
    } else {
        context
            .peer
            .peer_info()
            .map(|info| info.capabilities.clone())
    };
    // One that names no mode means forms.
    capabilities
        .and_then(|capabilities| capabilities.elicitation)
        .is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

/// Clients without forms.
#[derive(Debug)]
pub(super) struct NoAsker;

impl Asker for NoAsker {
    fn ask(&self, question: Question) -> Boxed<'static, Answer> {
        // A model's words about a call are for people: a program would learn from them what to try next.
        let why = if question.reason.is_empty() || question.once_only {
            String::new()
        } else {
            format!(" ({})", question.reason)
        };
        Box::pin(std::future::ready(Answer::No(format!(
            "it needs a person's yes{why}, and this client cannot ask for one (it has no elicitation); `policy.approval: \
             local` has `ptcctl approvals` ask"
        ))))
    }
}

/// Clients with a handshake: each question is a request of its own while the program's stays open.
#[derive(Debug)]
pub(super) struct ByRequest {
    peer: Peer<RoleServer>,
    places: Arc<Semaphore>,
}

impl ByRequest {
    pub(super) fn new(peer: Peer<RoleServer>) -> Self {
        Self {
            peer,
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }
}

impl Asker for ByRequest {
    fn ask(&self, question: Question) -> Boxed<'static, Answer> {
        let (peer, places) = (self.peer.clone(), Arc::clone(&self.places));
        Box::pin(async move {
            let Ok(_place) = places.acquire().await else {
                return lost();
            };
            let (sender, answer) = oneshot::channel();
            // A task of its own, so that the client's form is taken back when nobody waits for it any more.
            tokio::spawn(elicit(peer, question, sender));
            answer.await.unwrap_or_else(|_| lost())
        })
    }
}

async fn elicit(peer: Peer<RoleServer>, question: Question, mut to: oneshot::Sender<Answer>) {
    let Some(request) = form(&question) else {
        let _ = to.send(lost());
        return;
    };
    let sending = peer.send_cancellable_request(
        ServerRequest::ElicitRequest(request),
        PeerRequestOptions::no_options(),
    );
    let Ok(Ok(mut handle)) = tokio::time::timeout(SENDING, sending).await else {
        let _ = to.send(lost());
        return;
    };
    tokio::select! {
        response = &mut handle.rx => {
            let answer = match response {
                Ok(Ok(ClientResult::ElicitResult(result))) => {
                    let result = serde_json::to_value(result).unwrap_or_default();
                    answer_of(&result, may_grant(&question))
                }
                Ok(Ok(_)) => no("the client's answer was none to this question"),
                Ok(Err(_)) | Err(_) => lost(),
            };
            let _ = to.send(answer);
        }
        () = to.closed() => {
            let _ = tokio::time::timeout(SENDING, handle.cancel(Some("no longer needed".to_owned()))).await;
        }
    }
}

/// A question on its way to a client, with the place for its answer.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) question: Question,
    answer: oneshot::Sender<Answer>,
}

impl Asked {
    /// Whether somebody still waits.
    pub(super) fn is_open(&self) -> bool {
        !self.answer.is_closed()
    }

    /// Takes the client's result, an elicitation's.
    pub(super) fn take(self, result: &Value) {
        let answer = answer_of(result, may_grant(&self.question));
        let _ = self.answer.send(answer);
    }
}

/// Clients without a handshake: questions go into the answer to the program's own request.
#[derive(Debug)]
pub(super) struct ByAnswer(mpsc::Sender<Asked>);

impl ByAnswer {
    /// The asker, and where its questions come out.
    pub(super) fn new() -> (Self, mpsc::Receiver<Asked>) {
        let (sender, questions) = mpsc::channel(MAX_QUEUED);
        (Self(sender), questions)
    }
}

impl Asker for ByAnswer {
    fn ask(&self, question: Question) -> Boxed<'static, Answer> {
        let to = self.0.clone();
        Box::pin(async move {
            let (sender, answer) = oneshot::channel();
            let asked = Asked {
                question,
                answer: sender,
            };
            if to.send(asked).await.is_err() {
                return lost();
            }
            answer.await.unwrap_or_else(|_| lost())
        })
    }
}

/// The form that a person fills in.
pub(super) fn form(question: &Question) -> Option<ElicitRequest> {
    let choices = if may_grant(question) {
        json!([ONCE, TOOL, DENY])
    } else {
        json!([ONCE, DENY])
    };
    let params = json!({
        "mode": "form",
        "message": message(question),
        "requestedSchema": {
            "type": "object",
            "properties": {"decision": {
                "type": "string", "title": "Decision", "enum": choices, "default": DENY,
            }},
            "required": ["decision"],
        },
    });
    let params: ElicitRequestParams = serde_json::from_value(params)
        .inspect_err(|error| tracing::error!(%error, "a question cannot be put"))
        .ok()?;
    Some(ElicitRequest::new(params))
}

/// What a person reads, bounded and without anything that steers a terminal or turns the direction of text.
fn message(question: &Question) -> String {
    let line = |text: &str| {
        let text: String = text.chars().take(MAX_NAME).collect();
        visible(&text).replace(['\n', '\r', '\t'], " ")
    };
    let mut text = format!(
        "A program wants to call {} on server {} ({}). The program asks, not the user: nobody typed this.",
        line(&question.tool),
        line(&question.server),
        question.effect,
    );
    // Writing to a string does not fail.
    if !question.reason.is_empty() {
        let _ = write!(text, "\nWhy you are asked: {}", line(&question.reason));
    }
    let _ = write!(text, "\nArguments: {}", shown(&question.arguments));
    let _ = write!(text, "\nRun {}", line(&question.run));
    text
}

/// Whether a yes may count for more than this call.
fn may_grant(question: &Question) -> bool {
    question.arguments.len() <= MAX_SHOWN && !question.once_only
}

/// Arguments as they are shown; long ones by head, tail, size and hash, since what is not shown may hold anything.
fn shown(arguments: &str) -> String {
    if arguments.len() <= MAX_SHOWN {
        return visible(arguments);
    }
    let mut head = SHOWN_PART;
    while !arguments.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = arguments.len() - SHOWN_PART;
    while !arguments.is_char_boundary(tail) {
        tail += 1;
    }
    let hash = ptc_protocol::hex(&Sha256::digest(arguments.as_bytes()));
    format!(
        "{}\n[{} bytes in all, SHA-256 {hash}; the middle is not shown]\n{}",
        visible(arguments.get(..head).unwrap_or_default()),
        arguments.len(),
        visible(arguments.get(tail..).unwrap_or_default()),
    )
}

/// What an elicitation's result says. Only an accepted form with a choice that was offered is a yes.
fn answer_of(result: &Value, whole: bool) -> Answer {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let action = text(result.get("action"));
    let decision = text(
        result
            .get("content")
            .and_then(|content| content.get("decision")),
    );
    match (action.as_str(), decision.as_str()) {
        ("accept", ONCE) => Answer::Once,
        ("accept", TOOL) if whole => Answer::Tool,
        ("accept", _) => no("the person at the client said no"),
        ("decline", _) => no("the person at the client declined"),
        ("cancel", _) => no("the person at the client put the question aside"),
        _ => no("the client's answer was none to this question"),
    }
}

fn no(text: &str) -> Answer {
    Answer::No(text.to_owned())
}

fn lost() -> Answer {
    no("it needs a person's yes, and the client can no longer be asked")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(arguments: &str) -> Question {
        Question {
            run: "r1".to_owned(),
            client: "c".to_owned(),
            tool: "mcp__a__b".to_owned(),
            server: "a\u{202e}\nx".to_owned(),
            effect: "write",
            reason: "it \u{1b}[2J costs money".to_owned(),
            arguments: arguments.to_owned(),
            once_only: false,
        }
    }

    #[test]
    fn a_person_reads_what_is_bounded_and_steers_nothing() {
        let text = message(&question("{\"a\":\"\u{202e}\u{7}\"}"));
        assert!(!text.contains(['\u{202e}', '\u{1b}', '\u{7}']), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("nobody typed this"));
        let long = format!("{{\"a\":\"{}é\"}}", "é".repeat(100_000));
        let text = message(&question(&long));
        assert!(text.len() < 4096, "{}", text.len());
        assert!(text.contains("bytes in all, SHA-256 "));
    }

    #[test]
    fn arguments_that_are_not_shown_whole_are_allowed_once_at_most() {
        let choices = |arguments: &str| {
            let form = form(&question(arguments)).unwrap();
            let form = serde_json::to_value(&form.params).unwrap();
            form["requestedSchema"]["properties"]["decision"]["enum"].clone()
        };
        assert_eq!(choices("{}"), json!([ONCE, TOOL, DENY]));
        assert_eq!(choices(&"x".repeat(3000)), json!([ONCE, DENY]));
        let once_only = Question {
            once_only: true,
            ..question("{}")
        };
        assert!(!may_grant(&once_only));
    }

    #[test]
    fn only_an_accepted_choice_that_was_offered_is_a_yes() {
        let accepted =
            |decision: &str| json!({"action": "accept", "content": {"decision": decision}});
        assert_eq!(answer_of(&accepted(ONCE), true), Answer::Once);
        assert_eq!(answer_of(&accepted(TOOL), true), Answer::Tool);
        for (result, whole) in [
            (accepted(TOOL), false),
            (accepted(DENY), true),
            (accepted("ALLOW_ONCE"), true),
            (json!({"action": "accept"}), true),
            (
                json!({"action": "accept", "content": {"decision": [ONCE]}}),
                true,
            ),
            (
                json!({"action": "decline", "content": {"decision": ONCE}}),
                true,
            ),
            (json!({"action": "cancel"}), true),
            (json!({"content": {"decision": ONCE}}), true),
            (json!(null), true),
        ] {
            assert!(
                matches!(answer_of(&result, whole), Answer::No(_)),
                "{result}"
            );
        }
    }
}
