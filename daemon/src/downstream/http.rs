//! Speaks MCP with a server over streamable HTTP.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::carrier::Carrier;
use super::endpoint::{self, Endpoint};
use super::inbox::{self, Inbox};
use super::ladder::Spoken;
use super::link::{Kind, Link};
use super::outgoing::{Outgoing, Request, What};
use super::param_headers;
use super::refusal::{Refused, asked_pause, is_event_stream, is_json};
use super::reply::{Reply, Turned};
use super::stderr::Mask;
use super::wire::{self, Incoming};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Limit of what no caller waits for: news to the server, and the end of a session.
const ERRAND_LIMIT: Duration = Duration::from_secs(10);
/// Limit of the end of a session.
const GOODBYE_LIMIT: Duration = Duration::from_secs(2);
/// Errands on their way at once; more are not run, for a server that asks faster than it takes answers.
const ERRANDS: usize = 32;
/// How much of an answer that is none is looked at for words, in bytes.
const MAX_HEAD: usize = 4096;
/// Times a request is sent again because the server asked for a pause.
const PATIENT_TRIES: usize = 5;
/// How long everything else waits for the stream of news: some servers send no head before its first event.
const NEWS_LIMIT: Duration = Duration::from_millis(500);

/// What one connection needs.
#[derive(Debug)]
pub(super) struct Http {
    pub(super) endpoint: Endpoint,
    pub(super) spoken: Spoken,
    pub(super) link: Arc<Link>,
    pub(super) inbox: Inbox,
    pub(super) mask: HttpMask,
    /// Longest message that is read, in bytes.
    pub(super) cap: usize,
    session: Mutex<Option<HeaderValue>>,
    /// Whether the server has said that it no longer knows the session.
    forgotten: AtomicBool,
    calls: Mutex<HashMap<i64, CancellationToken>>,
    /// Where answers to the server are queued.
    pub(super) answers: mpsc::WeakSender<Outgoing>,
    /// Places for what no caller waits for.
    errands: Arc<Semaphore>,
}

/// The mask, which has no `Debug` of its own.
#[derive(Clone)]
pub(super) struct HttpMask(pub(super) Mask);

impl std::fmt::Debug for HttpMask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Mask")
    }
}

/// Starts to carry messages. The task ends when the session does.
pub(super) fn start(
    endpoint: Endpoint,
    spoken: Spoken,
    cap: usize,
    mask: Mask,
    link: Arc<Link>,
) -> (Carrier, JoinHandle<()>) {
    let (carrier, ends) = Carrier::new(Arc::clone(&link));
    let http = Arc::new(Http {
        endpoint,
        spoken,
        link,
        inbox: ends.inbox,
        mask: HttpMask(mask),
        cap,
        session: Mutex::default(),
        forgotten: AtomicBool::new(false),
        calls: Mutex::default(),
        answers: ends.answers,
        errands: Arc::new(Semaphore::new(ERRANDS)),
    });
    let task = tokio::spawn(http.run(ends.queue));
    (carrier, task)
}

impl Http {
    async fn run(self: Arc<Self>, mut queue: mpsc::Receiver<Outgoing>) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                () = self.link.closing.cancelled() => break,
                Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
                message = queue.recv() => match message {
                    Some(message) => self.dispatch(message, &mut tasks).await,
                    None => break,
                },
            }
        }
        tasks.shutdown().await;
        self.goodbye().await;
        self.link.end("it was closed".to_owned());
    }

    async fn dispatch(self: &Arc<Self>, message: Outgoing, tasks: &mut JoinSet<()>) {
        let http = Arc::clone(self);
        match message.what {
            What::Request(request) => {
                let cancel = CancellationToken::new();
                self.calls().insert(request.id, cancel.clone());
                tasks.spawn(async move { http.carry(request, message.text, cancel).await });
            }
            What::Initialized => {
                // Nothing may overtake it.
                self.errand(&message.text).await;
                if self.spoken == Spoken::Legacy {
                    let (opening, opened) = oneshot::channel();
                    tasks.spawn(async move { http.follow_news(opening).await });
                    // What the server says or asks before it has this stream is lost.
                    let _ = tokio::time::timeout(NEWS_LIMIT, opened).await;
                }
            }
            What::Cancelled { id } => {
                if let Some(cancel) = self.calls().remove(&id) {
                    cancel.cancel();
                }
                // The end of its stream says it to a server of the newer era.
                if self.spoken == Spoken::Legacy {
                    http.start_errand(message.text, tasks);
                }
            }
            What::Other => http.start_errand(message.text, tasks),
        }
    }

    fn start_errand(self: Arc<Self>, text: String, tasks: &mut JoinSet<()>) {
        if let Ok(place) = Arc::clone(&self.errands).try_acquire_owned() {
            tasks.spawn(async move {
                self.errand(&text).await;
                drop(place);
            });
        }
    }

    /// Sends one request and waits for its answer.
    async fn carry(&self, request: Request, text: String, cancel: CancellationToken) {
        let reply = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            reply = self.ask(&request, &text) => reply,
        };
        self.calls().remove(&request.id);
        let Some(reply) = reply else {
            return;
        };
        let broke = matches!(reply, Reply::Lost { .. });
        let ends = match &reply {
            Reply::Turned {
                how,
                turned: Turned::Reconnect,
            } => Some(how.clone()),
            _ => None,
        };
        // Nobody is there to be told when the session has ended.
        let _ = self.inbox.settle(request.id, reply).await;
        // Only now: the end of the connection must not overtake the answer.
        if let Some(how) = ends {
            self.link.calls_settled().await;
            self.link.end(how);
        } else if broke && let Some(how) = self.endpoint.absence().await {
            // Nothing else would tell before the next call.
            self.link.end(how);
        }
    }

    /// The answer, where it did not go to the session already.
    async fn ask(&self, request: &Request, text: &str) -> Option<Reply> {
        let headers = self.request_headers(request);
        for _ in 0..PATIENT_TRIES {
            let sent = self.post(&headers, text).await;
            let response = match sent {
                Ok(response) => response,
                Err(reply) => return Some(reply),
            };
            let Some(pause) = asked_pause(&response) else {
                return self.answer(request, response).await;
            };
            self.link.remark(format!(
                "it asked to wait {} s (HTTP {})",
                pause.as_secs(),
                response.status().as_u16()
            ));
            drop(response);
            tokio::time::sleep(pause).await;
        }
        Some(Reply::Turned {
            how: format!("it asked {PATIENT_TRIES} times to wait"),
            turned: Turned::Later,
        })
    }

    async fn post(&self, headers: &HeaderMap, text: &str) -> Result<Response, Reply> {
        let url = self.endpoint.url();
        let sent = self.endpoint.send(Method::POST, url, headers, Some(text));
        sent.await.map_err(|unanswered| {
            if !unanswered.unsent {
                return Reply::Lost {
                    how: unanswered.how,
                };
            }
            Reply::Turned {
                how: unanswered.how,
                turned: Turned::Reconnect,
            }
        })
    }

    /// Takes in the answer to a request.
    async fn answer(&self, request: &Request, response: Response) -> Option<Reply> {
        if !response.status().is_success() {
            return Some(self.refused(request.kind, response).await);
        }
        if request.kind == Kind::Initialize {
            *self.session() = response.headers().get(SESSION).cloned();
        }
        if is_event_stream(response.headers()) {
            return self.streamed(request.id, response).await;
        }
        if is_json(response.headers()) {
            return self.whole(request, response).await;
        }
        Some(Reply::Fault(
            Refused::read(response).await.words(&self.mask.0),
        ))
    }

    async fn refused(&self, kind: Kind, response: Response) -> Reply {
        let refused = Refused::read(response).await;
        let in_session = kind != Kind::Initialize && self.session().is_some();
        if !in_session || !refused.loses_session() {
            return refused.reply(&self.mask.0);
        }
        let how = self.lose_session(&refused);
        if refused.status().is_client_error() {
            // A refusal of the session is none of the tool: it was not run.
            Reply::Turned {
                how,
                turned: Turned::Reconnect,
            }
        } else {
            self.link.end(how.clone());
            Reply::Lost { how }
        }
    }

    pub(super) fn lose_session(&self, refused: &Refused) -> String {
        self.forgotten.store(true, Ordering::Relaxed);
        format!(
            "it no longer knows the session (HTTP {})",
            refused.status().as_u16()
        )
    }

    /// An answer in one JSON text.
    async fn whole(&self, request: &Request, mut response: Response) -> Option<Reply> {
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > self.cap => {
                    return Some(Reply::TooLong);
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => {
                    let cause = endpoint::cause(error);
                    return Some(Reply::Lost {
                        how: format!("its answer broke off: {cause}"),
                    });
                }
            }
        }
        let bytes = body.len();
        let head = body.get(..MAX_HEAD.min(bytes)).unwrap_or_default().to_vec();
        match inbox::read(body).await? {
            Incoming::Answer { id: found, outcome } if found == request.id => {
                Some(inbox::reply(outcome, bytes, request.kind == Kind::List))
            }
            Incoming::Answer { id: found, .. } => Some(Reply::Fault(format!(
                "the ids do not match: it answered with id {found}"
            ))),
            Incoming::Blank => Some(Reply::Fault("it is empty".to_owned())),
            Incoming::Junk { .. } => {
                // Masked before it is cut: a part of a secret is not recognised.
                let head = (self.mask.0)(&String::from_utf8_lossy(&head));
                let shown = wire::shown(head.as_bytes());
                Some(Reply::Fault(format!("it is no JSON-RPC answer: {shown:?}")))
            }
            Incoming::Request { .. } | Incoming::Notification { .. } => {
                Some(Reply::Fault("it is a message of another kind".to_owned()))
            }
        }
    }

    /// Sends what is not answered.
    async fn errand(&self, text: &str) {
        let headers = self.common_headers();
        let errand = async {
            let response = match self.post(&headers, text).await {
                Ok(response) => response,
                Err(Reply::Turned { how, .. }) => return self.link.end(how),
                Err(_) => return,
            };
            if response.status().is_success() {
                return;
            }
            let had_session = self.session().is_some();
            let refused = Refused::read(response).await;
            if had_session && refused.loses_session() {
                self.link.end(self.lose_session(&refused));
            }
        };
        if tokio::time::timeout(ERRAND_LIMIT, errand).await.is_err() {
            self.link
                .remark("it does not answer what is sent to it".to_owned());
        }
    }

    /// Tells the server that its session is over.
    async fn goodbye(&self) {
        if self.session().is_none() || self.forgotten.load(Ordering::Relaxed) {
            return;
        }
        let headers = self.common_headers();
        let url = self.endpoint.url();
        let sent = self.endpoint.send(Method::DELETE, url, &headers, None);
        // A server that does not hear it forgets the session by itself.
        let _ = tokio::time::timeout(GOODBYE_LIMIT, sent).await;
    }

    pub(super) fn common_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        if let Some(session) = self.session().clone() {
            headers.insert(SESSION, session);
        }
        let version = match (self.spoken, self.link.agreement()) {
            (Spoken::Modern, _) => Some(super::handler::MODERN_VERSION),
            (Spoken::Legacy, Some(agreed)) => Some(agreed.version.as_str()),
            (Spoken::Legacy, None) => None,
        };
        if let Some(value) = version.and_then(|version| HeaderValue::from_str(version).ok()) {
            headers.insert(VERSION, value);
        }
        headers
    }

    fn request_headers(&self, request: &Request) -> HeaderMap {
        let mut headers = self.common_headers();
        if self.spoken == Spoken::Legacy {
            return headers;
        }
        headers.insert(METHOD, HeaderValue::from_static(request.method));
        let name = request.name.as_deref().map(param_headers::encode);
        if let Some(value) = name.and_then(|name| HeaderValue::from_str(&name).ok()) {
            headers.insert(NAME, value);
        }
        for (name, value) in &request.params.0 {
            let name = HeaderName::from_bytes(name.as_bytes()).ok();
            if let (Some(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        }
        headers
    }

    pub(super) fn session(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<i64, CancellationToken>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
