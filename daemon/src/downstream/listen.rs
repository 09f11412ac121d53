//! Subscribes to a server's news, in the revisions where nothing comes unasked.

use std::time::{Duration, Instant};

use rmcp::model::{
    ClientRequest, ServerResult, SubscriptionFilter, SubscriptionsListenRequest,
    SubscriptionsListenRequestParams,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient};

use super::link::Link;
use super::reply::Reply;

/// The first pause before a subscription that ended is made again.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// Subscriptions in a row that may end at once.
const MAX_SHORT: u32 = 16;
/// A subscription that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(30);

/// Keeps a subscription to changes of the tools for as long as the connection
/// lasts. Never returns.
pub(super) async fn follow(peer: &Peer<RoleClient>, link: &Link) {
    let announces = link
        .agreement()
        .is_some_and(|agreed| agreed.announces_changes);
    if announces {
        keep_listening(peer, link).await;
    }
    std::future::pending::<()>().await;
}

/// Listens again and again until the server refuses, or has ended too many in a row at once.
async fn keep_listening(peer: &Peer<RoleClient>, link: &Link) {
    let mut pause = PAUSE;
    let mut short = 0;
    while short < MAX_SHORT {
        let since = Instant::now();
        match listen(peer).await {
            // An end in order, of the stream, or of what stands between.
            Some(
                Reply::Result { .. }
                | Reply::Lost { .. }
                | Reply::Turned { .. }
                | Reply::TooLong
                | Reply::Fault(_),
            ) => {}
            Some(Reply::Error { code, message, .. }) => {
                tracing::debug!(code, message, "a server offers no subscription");
                return;
            }
            // The session has ended.
            None => return,
        }
        if since.elapsed() >= GOOD {
            (pause, short) = (PAUSE, 0);
        } else {
            short += 1;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        // What changed meanwhile was told to nobody.
        link.list_changed.notify_one();
    }
}

/// One subscription, to its end.
async fn listen(peer: &Peer<RoleClient>) -> Option<Reply> {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let params = SubscriptionsListenRequestParams::new(filter);
    let request =
        ClientRequest::SubscriptionsListenRequest(SubscriptionsListenRequest::new(params));
    let sent = peer.send_request_with_option(request, PeerRequestOptions::no_options());
    match sent.await.ok()?.await_response().await {
        Ok(ServerResult::CustomResult(wrapped)) => Some(Reply::unwrap(wrapped.0)),
        Ok(_) => Some(Reply::Fault("it is no answer to this request".to_owned())),
        Err(_) => None,
    }
}
