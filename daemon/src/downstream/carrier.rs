//! Joins the MCP session to whatever carries its messages.

use std::sync::Arc;

use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::mpsc;

use super::inbox::Inbox;
use super::link::Link;
use super::outgoing::{EncodeError, Outgoing};

/// Messages that may wait for a server that takes none.
const OUTGOING: usize = 64;
/// Messages read ahead of the session.
const INCOMING: usize = 4;

/// The server does not take messages any more.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum SendError {
    /// Whoever carries the messages has ended.
    #[error("the way to the server is closed")]
    Closed,
    /// The message has no JSON form.
    #[error(transparent)]
    Encoding(#[from] EncodeError),
}

/// The MCP session's way to the server, the same for all transports.
#[derive(Debug)]
pub(super) struct Carrier {
    outgoing: mpsc::Sender<Outgoing>,
    incoming: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    link: Arc<Link>,
}

/// The other end of a [`Carrier`], for the transport.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) queue: mpsc::Receiver<Outgoing>,
    pub(super) inbox: Inbox,
    /// For answers to the server. Weak, so that the queue ends when the session drops its end.
    pub(super) answers: mpsc::WeakSender<Outgoing>,
}

impl Carrier {
    pub(super) fn new(link: Arc<Link>) -> (Self, Ends) {
        let (outgoing, queue) = mpsc::channel(OUTGOING);
        let (deliver, incoming) = mpsc::channel(INCOMING);
        let ends = Ends {
            queue,
            inbox: Inbox::new(Arc::clone(&link), deliver),
            answers: outgoing.downgrade(),
        };
        let carrier = Self {
            outgoing,
            incoming,
            link,
        };
        (carrier, ends)
    }
}

impl Transport<RoleClient> for Carrier {
    type Error = SendError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), SendError>> + Send + 'static {
        // Queued here and not in the future wherever there is room: a
        // cancellation must not overtake its request.
        let queued = Outgoing::of(&message).map(|message| {
            message.note(&self.link);
            self.outgoing.try_send(message)
        });
        let outgoing = self.outgoing.clone();
        async move {
            match queued? {
                Ok(()) => Ok(()),
                Err(mpsc::error::TrySendError::Closed(_)) => Err(SendError::Closed),
                Err(mpsc::error::TrySendError::Full(message)) => {
                    outgoing.send(message).await.map_err(|_| SendError::Closed)
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), SendError> {
        self.link.closing.cancel();
        Ok(())
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.link.closing.cancel();
    }
}
