//! Sends one call to a server and waits for its answer.

use std::future::Future as _;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientRequest, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::error::CallError;
use super::ladder::Spoken;
use super::outgoing::{EncodedArguments, ParamHeaders};
use super::param_headers::Annotations;
use super::reach::{READY_WAIT, wait_until_known, wait_until_ready};
use super::reply::{Reply, Turned};
use super::server::{Live, Server};
use super::wire;
use super::{Downstream, View};

/// How long the session may take to notice that its connection has ended.
pub(super) const NOTICE: Duration = Duration::from_secs(2);
/// How long the server may take to read that a call is cancelled.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);
/// JSON-RPC: headers and body do not say the same.
const HEADER_MISMATCH: i64 = -32020;
/// Lines of stderr in an error.
const SHOWN_LINES: usize = 5;

/// A raw `tools/call` result.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The result as it came, exact; its structured content is a string that holds JSON text.
    pub result: Value,
    /// Size of the message it came in, in bytes.
    pub bytes: usize,
}

impl Downstream {
    /// Calls a tool by its original name, for the client that `view` tells of.
    ///
    /// `arguments` is the text of a JSON object, which goes on the wire as it
    /// is. Of a server that runs for each project, the client's own is called,
    /// and started where it does not run. Waiting for one of the server's places does not count against
    /// `limit`; waiting for a server that is starting or reconnecting does, and
    /// is at most 10 s. Nothing is sent twice, unless it surely was not run: a
    /// call that found its session gone is sent once more on a new one.
    ///
    /// # Errors
    /// See [`CallError`]; dropping the future cancels the call as `cancel` does.
    pub async fn call(
        &self,
        view: &View,
        server: &str,
        tool: &str,
        arguments: Arc<str>,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Answer, CallError> {
        let cancelled = || CallError::Cancelled {
            server: server.to_owned(),
        };
        let found = tokio::select! {
            found = self.find(view, server, limit.min(READY_WAIT)) => found?,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        let server = found.server();
        let place = tokio::select! {
            place = server.places.take(&view.client) => place,
            () = cancel.cancelled() => return Err(cancelled()),
        };
        let begun = Instant::now();
        let mut sent = None;
        let mut again = true;
        let answer = loop {
            let left = limit.saturating_sub(begun.elapsed());
            let live = tokio::select! {
                live = wait_until_ready(server, left.min(READY_WAIT)) => live,
                () = cancel.cancelled() => Err(cancelled()),
            };
            let live = match live {
                Ok(live) => live,
                Err(error) => break Err(error),
            };
            sent.get_or_insert_with(|| {
                server.stats.sent();
                Instant::now()
            });
            let call = Call {
                server,
                live: &live,
                limit,
            };
            let left = limit.saturating_sub(begun.elapsed());
            match call.run(tool, Arc::clone(&arguments), left, cancel).await {
                Err(Failure::NotRun { .. }) if std::mem::take(&mut again) => {
                    // The answer is told before the end; the next try must not meet the same connection.
                    let _ = tokio::time::timeout(NOTICE, live.link.ended.cancelled()).await;
                }
                Err(Failure::NotRun { how }) => break Err(call.turned_away(how, true)),
                Err(Failure::Final(error)) => break Err(error),
                Ok(answer) => break Ok(answer),
            }
        };
        let lost = matches!(answer, Err(CallError::ConnectionLost { .. }));
        if lost && server.live().is_err() {
            wait_until_known(server).await;
        }
        let ok = matches!(&answer, Ok(answer) if answer.result.get("isError") != Some(&Value::Bool(true)));
        if let Some(sent) = sent {
            server.stats.ended(sent.elapsed(), ok);
        }
        drop(place);
        answer
    }
}

/// A call that came to nothing.
enum Failure {
    Final(CallError),
    /// It surely was not run, and a new connection may take it.
    NotRun {
        how: String,
    },
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Final(error)
    }
}

struct Call<'a> {
    server: &'a Server,
    live: &'a Live,
    limit: Duration,
}

impl Call<'_> {
    fn name(&self) -> String {
        self.server.config.name.clone()
    }

    async fn run(
        &self,
        tool: &str,
        arguments: Arc<str>,
        left: Duration,
        cancel: &CancellationToken,
    ) -> Result<Answer, Failure> {
        let params = CallToolRequestParams::new(tool.to_owned());
        let mut request = CallToolRequest::new(params);
        request
            .extensions
            .insert(self.param_headers(tool, &arguments));
        request.extensions.insert(EncodedArguments(arguments));
        let options = PeerRequestOptions::no_options();
        let sent = self
            .live
            .peer
            .send_request_with_option(ClientRequest::CallToolRequest(request), options)
            .await;
        let Ok(mut handle) = sent else {
            // It never reached the session, so it was not sent.
            let how = self.end().await;
            return Err(Failure::NotRun { how });
        };
        let id = handle.id.clone();
        let mut guard = CancelGuard {
            peer: &self.live.peer,
            id: Some(handle.id.clone()),
        };
        let answer = tokio::select! {
            biased;
            answer = &mut handle.rx => answer,
            () = tokio::time::sleep(left) => {
                guard.cancel("the call's time limit has passed");
                let link = &self.live.link;
                return Err(Failure::Final(CallError::Timeout {
                    server: self.name(),
                    limit: self.limit,
                    remark: link.latest_remark().or_else(|| {
                        let news = link.latest_news()?;
                        Some(format!("the last it said: {news}"))
                    }),
                }));
            }
            () = cancel.cancelled() => {
                guard.cancel("the caller has ended");
                return Err(Failure::Final(CallError::Cancelled { server: self.name() }));
            }
            () = self.ended() => {
                guard.id = None;
                return Err(self.lost(&id).await);
            }
        };
        guard.id = None;
        match answer {
            Ok(Ok(ServerResult::CustomResult(wrapped))) => self.answer(Reply::unwrap(wrapped.0)),
            Ok(Err(ServiceError::McpError(error))) => Err(Failure::Final(CallError::Refused {
                server: self.name(),
                code: i64::from(error.code.0),
                message: error.message.into_owned(),
                data: error.data.map(Box::new),
            })),
            Ok(Ok(_)) => Err(self.invalid("it is no answer to this request".to_owned())),
            Ok(Err(_)) | Err(_) => Err(self.lost(&id).await),
        }
    }

    /// Completes when the connection has ended and the session, which still
    /// may hold the answer, has had its time to say so.
    async fn ended(&self) {
        self.live.link.ended.cancelled().await;
        tokio::time::sleep(NOTICE).await;
    }

    /// The arguments that this server wants to see in headers, too.
    fn param_headers(&self, tool: &str, arguments: &str) -> ParamHeaders {
        if !self.live.over_http || self.live.spoken == Spoken::Legacy {
            return ParamHeaders::default();
        }
        let tools = self.server.tools().unwrap_or_else(|| Arc::from([]));
        let schema = tools
            .iter()
            .find(|known| known.name == tool)
            .and_then(|known| known.input_schema.as_ref());
        // A tool whose annotations are wrong is not in the list.
        let annotations = schema.and_then(|schema| Annotations::of(schema).ok());
        match annotations.filter(|annotations| !annotations.is_empty()) {
            Some(annotations) => annotations.headers(arguments),
            None => ParamHeaders::default(),
        }
    }

    fn answer(&self, reply: Reply) -> Result<Answer, Failure> {
        match reply {
            Reply::Result { value, bytes } => {
                if self.live.spoken == Spoken::Modern {
                    self.must_be_complete(&value)?;
                }
                Ok(Answer {
                    result: value,
                    bytes,
                })
            }
            Reply::Error {
                code,
                message,
                data,
            } => {
                if code == HEADER_MISMATCH {
                    // The annotations have changed; the next call has the new ones.
                    self.live.link.list_changed.notify_one();
                }
                Err(Failure::Final(CallError::Refused {
                    server: self.name(),
                    code,
                    message,
                    data: data.map(Box::new),
                }))
            }
            Reply::Fault(fault) => Err(self.invalid(fault)),
            Reply::TooLong => Err(Failure::Final(CallError::TooLong {
                server: self.name(),
                cap: self.live.cap,
            })),
            Reply::Lost { how } => Err(Failure::Final(self.connection_lost(how))),
            Reply::Turned {
                how,
                turned: Turned::Reconnect,
            } => Err(Failure::NotRun { how }),
            Reply::Turned { how, turned } => Err(Failure::Final(
                self.turned_away(how, turned == Turned::Later),
            )),
        }
    }

    /// Results of the newer era say what they are.
    fn must_be_complete(&self, result: &Value) -> Result<(), Failure> {
        let wants = match result.get("resultType") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(kind)) => match kind.as_str() {
                "complete" => return Ok(()),
                "input_required" => {
                    format!("asks for input before it answers{}", asked_for(result))
                }
                "task" => "answers with a task to be asked for later".to_owned(),
                other => {
                    let shown = wire::shown(other.as_bytes());
                    return Err(self.invalid(format!("its resultType is {shown:?}")));
                }
            },
            Some(_) => return Err(self.invalid("its resultType is no text".to_owned())),
        };
        Err(Failure::Final(CallError::Unmet {
            server: self.name(),
            wants,
        }))
    }

    fn invalid(&self, fault: String) -> Failure {
        Failure::Final(CallError::Invalid {
            server: self.name(),
            fault,
        })
    }

    fn turned_away(&self, how: String, transient: bool) -> CallError {
        CallError::TurnedAway {
            server: self.name(),
            how,
            transient,
        }
    }

    fn connection_lost(&self, how: String) -> CallError {
        CallError::ConnectionLost {
            server: self.name(),
            how,
            stderr: self.live.tail.text(SHOWN_LINES),
        }
    }

    async fn lost(&self, id: &RequestId) -> Failure {
        let how = self.end().await;
        let turned_away = match id {
            RequestId::Number(id) => self.live.link.was_turned_away(*id),
            RequestId::String(_) => None,
        };
        match turned_away {
            Some(how) => Failure::NotRun { how },
            None => Failure::Final(self.connection_lost(how)),
        }
    }

    /// How the connection ended.
    async fn end(&self) -> String {
        // The cause is told by the reader, which may be a moment behind.
        let told = tokio::time::timeout(NOTICE, self.live.link.ended.cancelled()).await;
        if told.is_ok() {
            self.live.link.how()
        } else {
            "its session ended".to_owned()
        }
    }
}

/// What a server asks for, as far as it says so in a few words.
fn asked_for(result: &Value) -> String {
    let message = result
        .get("inputRequests")
        .and_then(Value::as_object)
        .and_then(|requests| requests.values().next())
        .and_then(|request| request.pointer("/params/message"))
        .and_then(Value::as_str);
    message.map_or_else(String::new, |message| {
        format!(" ({:?})", wire::shown(message.as_bytes()))
    })
}

/// Tells the server that nobody waits for an answer any more, also when the caller's future is dropped.
struct CancelGuard<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl CancelGuard<'_> {
    fn cancel(&mut self, reason: &str) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let peer = self.peer.clone();
        let params = CancelledNotificationParam::new(Some(id), Some(reason.to_owned()));
        let mut told = Box::pin(async move {
            peer.send_notification(CancelledNotification::new(params).into())
                .await
        });
        // The first look queues the message, so that it goes before whatever the caller sends next.
        let mut unheard = Context::from_waker(Waker::noop());
        if told.as_mut().poll(&mut unheard).is_pending() {
            // A server that does not read this is told by the end of its connection.
            runtime.spawn(tokio::time::timeout(CANCEL_LIMIT, told));
        }
    }
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        self.cancel("the caller is gone");
    }
}
