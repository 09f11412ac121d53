//! Speaks MCP with a server over the older HTTP transport: one event stream, and a POST a message.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{Method, Response, Url};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::carrier::Carrier;
use super::endpoint::{self, Endpoint, shown_url};
use super::events::{EventCutter, Piece};
use super::greeting::Refusal;
use super::inbox::{Inbox, Next};
use super::link::Link;
use super::outgoing::{Outgoing, What};
use super::refusal::{Refused, is_event_stream};
use super::reply::{Reply, Turned};
use super::stderr::Mask;

/// Limit of what no caller waits for.
const ERRAND_LIMIT: Duration = Duration::from_secs(10);
/// Errands on their way at once; more are not run.
const ERRANDS: usize = 32;
/// Most bytes of the event that names where to post.
const MAX_ENDPOINT_BYTES: usize = 8 * 1024;

struct Sse {
    endpoint: Endpoint,
    link: Arc<Link>,
    inbox: Inbox,
    mask: Mask,
    /// Longest message that is read, in bytes.
    cap: usize,
    /// Where to post, once the server has said so.
    post_to: watch::Sender<Option<Url>>,
    answers: mpsc::WeakSender<Outgoing>,
    errands: Arc<Semaphore>,
}

/// Starts to carry messages. The task ends when the session or the stream does.
pub(super) fn start(
    endpoint: Endpoint,
    cap: usize,
    mask: Mask,
    link: Arc<Link>,
) -> (Carrier, JoinHandle<()>) {
    let (carrier, ends) = Carrier::new(Arc::clone(&link));
    let sse = Arc::new(Sse {
        endpoint,
        link,
        inbox: ends.inbox,
        mask,
        cap,
        post_to: watch::Sender::new(None),
        answers: ends.answers,
        errands: Arc::new(Semaphore::new(ERRANDS)),
    });
    let task = tokio::spawn(sse.run(ends.queue));
    (carrier, task)
}

impl Sse {
    async fn run(self: Arc<Self>, queue: mpsc::Receiver<Outgoing>) {
        let how = tokio::select! {
            () = self.link.closing.cancelled() => "it was closed".to_owned(),
            () = self.link.ended.cancelled() => return,
            how = self.read() => how,
            () = Arc::clone(&self).write(queue) => "it was closed".to_owned(),
        };
        self.link.end(how);
    }

    /// Reads the stream until it ends, and says how.
    async fn read(&self) -> String {
        let mut response = match self.open().await {
            Ok(response) => response,
            Err(how) => return how,
        };
        let mut cutter = EventCutter::new(self.cap);
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return "its event stream ended".to_owned(),
                Err(error) => {
                    return format!("its event stream broke: {}", endpoint::cause(error));
                }
            };
            let mut rest: &[u8] = &chunk;
            while !rest.is_empty() {
                let (taken, piece) = cutter.feed(rest);
                rest = rest.get(taken..).unwrap_or_default();
                if let Some(piece) = piece
                    && let Err(how) = self.take(piece).await
                {
                    return how;
                }
            }
        }
    }

    async fn open(&self) -> Result<Response, String> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let url = self.endpoint.url();
        let sent = self.endpoint.send(Method::GET, url, &headers, None).await;
        let response = sent.map_err(|unanswered| unanswered.how)?;
        if response.status().is_success() && is_event_stream(response.headers()) {
            return Ok(response);
        }
        let refused = Refused::read(response).await;
        let mut how = refused.words(&self.mask);
        if matches!(refused.status().as_u16(), 400 | 404 | 405 | 406) {
            how.push_str("; if it is a streamable HTTP endpoint, write `transport: http`");
        }
        let turned = match refused.reply(&self.mask) {
            Reply::Turned { turned, .. } => turned,
            _ => Turned::Later,
        };
        self.link.refused(Refusal::Turned {
            how: how.clone(),
            turned,
        });
        Err(how)
    }

    async fn take(&self, piece: Piece) -> Result<(), String> {
        let wanted = match piece {
            Piece::TooLong { id } => self.inbox.too_long(id).await,
            Piece::Event(event) if event.name == "endpoint" => return self.told(&event.data),
            Piece::Event(event) if event.is_message() => {
                match self.inbox.take(event.data).await {
                    Next::GoOn => true,
                    Next::Stop => false,
                    Next::Answer(text) => {
                        if let Some(answers) = self.answers.upgrade() {
                            // A server that asks faster than it takes answers gets none.
                            let _ = answers.try_send(Outgoing::answer(text));
                        }
                        true
                    }
                }
            }
            Piece::Event(_) => true,
        };
        if wanted {
            Ok(())
        } else {
            Err("it was closed".to_owned())
        }
    }

    /// The server says where to post. Another origin would get our headers.
    fn told(&self, data: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(data.get(..MAX_ENDPOINT_BYTES).unwrap_or(data));
        let joined = text
            .ok()
            .and_then(|text| self.endpoint.url().join(text.trim()).ok());
        let how = match joined {
            Some(url) if url.origin() == self.endpoint.url().origin() => {
                self.post_to.send_replace(Some(url));
                return Ok(());
            }
            Some(url) => format!(
                "it names an endpoint on another origin, {}: refused, since its headers are for {} only",
                shown_url(&url),
                self.endpoint.shown()
            ),
            None => "it names an endpoint that is no URL".to_owned(),
        };
        self.link.refused(Refusal::Turned {
            how: how.clone(),
            turned: Turned::Barred,
        });
        Err(how)
    }

    async fn write(self: Arc<Self>, mut queue: mpsc::Receiver<Outgoing>) {
        let mut told = self.post_to.subscribe();
        if told.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let mut tasks = JoinSet::new();
        loop {
            let message = tokio::select! {
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
                message = queue.recv() => message,
            };
            let Some(message) = message else {
                return;
            };
            let sse = Arc::clone(&self);
            match message.what {
                What::Request(request) => {
                    tasks.spawn(async move {
                        let Some(reply) = sse.post(&message.text).await else {
                            return;
                        };
                        let ends = match &reply {
                            Reply::Turned {
                                how,
                                turned: Turned::Reconnect,
                            }
                            | Reply::Lost { how } => Some(how.clone()),
                            _ => None,
                        };
                        // Nobody is there to be told when the session has ended.
                        let _ = sse.inbox.settle(request.id, reply).await;
                        // Only now: the end of the connection must not overtake the answer.
                        if let Some(how) = ends {
                            sse.link.calls_settled().await;
                            sse.link.end(how);
                        }
                    });
                }
                // Nothing may overtake it.
                What::Initialized => sse.errand(&message.text).await,
                What::Cancelled { .. } | What::Other => {
                    if let Ok(place) = Arc::clone(&sse.errands).try_acquire_owned() {
                        tasks.spawn(async move {
                            sse.errand(&message.text).await;
                            drop(place);
                        });
                    }
                }
            }
        }
    }

    async fn errand(&self, text: &str) {
        if tokio::time::timeout(ERRAND_LIMIT, self.post(text))
            .await
            .is_err()
        {
            self.link
                .remark("it does not answer what is sent to it".to_owned());
        }
    }

    /// Posts a message. What comes is the answer only where the server did not take it.
    async fn post(&self, text: &str) -> Option<Reply> {
        let url = self.post_to.borrow().clone()?;
        let headers = HeaderMap::new();
        let sent = self.endpoint.send(Method::POST, &url, &headers, Some(text));
        let response = match sent.await {
            Ok(response) => response,
            Err(unanswered) if unanswered.unsent => {
                return Some(Reply::Turned {
                    how: unanswered.how,
                    turned: Turned::Reconnect,
                });
            }
            // It may have been taken: then the answer comes by the stream.
            Err(unanswered) => {
                self.link.remark(unanswered.how);
                return None;
            }
        };
        if response.status().is_success() {
            return None;
        }
        let refused = Refused::read(response).await;
        if !refused.loses_session() {
            return Some(refused.reply(&self.mask));
        }
        let status = refused.status();
        let how = format!("it no longer knows the session (HTTP {})", status.as_u16());
        Some(if status.is_client_error() {
            Reply::Turned {
                how,
                turned: Turned::Reconnect,
            }
        } else {
            Reply::Lost { how }
        })
    }
}
