//! Puts what the session says into its wire form.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequest, ClientNotification, ClientRequest, JsonRpcMessage, RequestId,
    RequestMetaObject,
};
use rmcp::service::{RoleClient, TxJsonRpcMessage};

use super::link::{Kind, Link};

/// Arguments of a call as the JSON text that goes on the wire unchanged.
#[derive(Clone, Debug)]
pub(super) struct EncodedArguments(pub(super) Arc<str>);

/// Headers that repeat arguments of a call, for transports that have headers.
#[derive(Clone, Debug, Default)]
pub(super) struct ParamHeaders(pub(super) Vec<(String, String)>);

/// One message to a server.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    /// Its JSON text, without a line end.
    pub(super) text: String,
    pub(super) what: What,
}

/// What a message is, as far as a transport must know.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// Something to be answered.
    Request(Request),
    /// The end of the handshake; nothing may overtake it.
    Initialized,
    /// Nobody waits for the answer to this request any more.
    Cancelled { id: i64 },
    /// An answer of ours, or other news.
    Other,
}

/// A request, apart from its text.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) id: i64,
    pub(super) kind: Kind,
    pub(super) method: &'static str,
    /// The tool it calls.
    pub(super) name: Option<String>,
    pub(super) params: ParamHeaders,
}

/// A message has no JSON form.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the message cannot be written as JSON: {cause}")]
pub(super) struct EncodeError {
    /// What the encoder says.
    cause: String,
}

impl From<serde_json::Error> for EncodeError {
    fn from(error: serde_json::Error) -> Self {
        Self {
            cause: error.to_string(),
        }
    }
}

impl Outgoing {
    /// An answer to a question of the server.
    pub(super) fn answer(text: String) -> Self {
        let what = What::Other;
        Self { text, what }
    }

    /// The wire form of a message of the session.
    pub(super) fn of(message: &TxJsonRpcMessage<RoleClient>) -> Result<Self, EncodeError> {
        Ok(Self {
            text: text(message)?,
            what: what(message),
        })
    }

    /// Tells the connection which answers are to be expected.
    pub(super) fn note(&self, link: &Link) {
        match &self.what {
            What::Request(request) => link.opened(request.id, request.kind),
            What::Cancelled { id } => link.cancelled(*id),
            What::Initialized | What::Other => {}
        }
    }
}

fn what(message: &TxJsonRpcMessage<RoleClient>) -> What {
    match message {
        JsonRpcMessage::Request(request) => {
            let (kind, method) = match &request.request {
                ClientRequest::InitializeRequest(_) => (Kind::Initialize, "initialize"),
                ClientRequest::DiscoverRequest(_) => (Kind::Discover, "server/discover"),
                ClientRequest::ListToolsRequest(_) => (Kind::List, "tools/list"),
                ClientRequest::CallToolRequest(_) => (Kind::Call, "tools/call"),
                ClientRequest::SubscriptionsListenRequest(_) => {
                    (Kind::Listen, "subscriptions/listen")
                }
                _ => (Kind::Other, "ping"),
            };
            let RequestId::Number(id) = request.id else {
                return What::Other;
            };
            let call = match &request.request {
                ClientRequest::CallToolRequest(call) => Some(call),
                _ => None,
            };
            let params = call.and_then(|call| call.extensions.get::<ParamHeaders>());
            What::Request(Request {
                id,
                kind,
                method,
                name: call.map(|call| call.params.name.to_string()),
                params: params.cloned().unwrap_or_default(),
            })
        }
        JsonRpcMessage::Notification(notification) => match &notification.notification {
            ClientNotification::InitializedNotification(_) => What::Initialized,
            ClientNotification::CancelledNotification(cancelled) => {
                match cancelled.params.request_id {
                    Some(RequestId::Number(id)) => What::Cancelled { id },
                    _ => What::Other,
                }
            }
            _ => What::Other,
        },
        _ => What::Other,
    }
}

fn text(message: &TxJsonRpcMessage<RoleClient>) -> Result<String, EncodeError> {
    if let JsonRpcMessage::Request(request) = message
        && let ClientRequest::CallToolRequest(call) = &request.request
    {
        return call_text(&request.id, call);
    }
    Ok(serde_json::to_string(message)?)
}

/// A call is put together here, around arguments that were encoded once, so
/// that what was judged and logged is what is sent.
fn call_text(id: &RequestId, call: &CallToolRequest) -> Result<String, EncodeError> {
    let id = serde_json::to_string(id)?;
    let name = serde_json::to_string(&call.params.name)?;
    let arguments = call.extensions.get::<EncodedArguments>();
    let arguments = arguments.map_or("{}", |arguments| &*arguments.0);
    let meta = match call.extensions.get::<RequestMetaObject>() {
        Some(meta) => serde_json::to_string(meta)?,
        None => "{}".to_owned(),
    };
    Ok(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{meta},"name":{name},"arguments":{arguments}}}}}"#
    ))
}
