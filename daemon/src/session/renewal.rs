//! Ends a session whose shim is to come again, at a moment when nobody waits for anything.

use std::time::Duration;

use ptc_protocol::RENEW_NOTICE;
use tokio_util::sync::CancellationToken;

use super::layer::Lines;
use super::writer::Line;

/// How long nothing must be under way: a client that has just had an answer often sends the next request at once.
const QUIET: Duration = Duration::from_millis(300);

/// What ends a session, besides its client.
#[derive(Clone, Debug, Default)]
pub struct Until {
    /// Ends it.
    pub end: CancellationToken,
    /// Ends it once nothing is under way.
    pub renew: CancellationToken,
    /// Whether the shim knows the notice that it is to come again.
    pub renews: bool,
}

/// Ends a session that is to be made anew, once its client waits for nothing.
///
/// Only the shim knows what it has sent and has no answer to, so one that can is told and hangs up itself: what
/// crosses the end of a stream that is closed from here would be lost.
pub(super) async fn renew_when_idle(lines: Lines, until: Until) {
    let idle = async {
        until.renew.cancelled().await;
        if until.renews {
            tell(&lines).await;
            std::future::pending::<()>().await;
        }
        loop {
            lines.requests.quiet().await;
            tokio::time::sleep(QUIET).await;
            if lines.requests.is_quiet() {
                return;
            }
        }
    };
    tokio::select! {
        () = lines.gone.cancelled() => {}
        () = idle => until.end.cancel(),
    }
}

async fn tell(lines: &Lines) {
    let line = Line {
        bytes: format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{RENEW_NOTICE}\"}}\n").into_bytes(),
        unread: None,
    };
    if let Some(writer) = lines.writer.upgrade() {
        // A writer that is gone has ended the session.
        let _ = writer.send(line).await;
    }
}
