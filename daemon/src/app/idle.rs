//! Ends a daemon of a named configuration that nobody uses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ptc_protocol::paths::ConfigChoice;

use super::{Inner, lock};

/// Longest pause between two looks, since a reload may change the limit.
const LOOK: Duration = Duration::from_mins(1);

/// Tells the daemon to end once it had neither a client nor a run for `daemon.idle_server_seconds`.
///
/// The daemon of the default file stays: the service manager is asked for it, and it is one for a user. Of the others
/// there may be many, started by shims, and nobody would end them.
pub(super) async fn end_when_unused(inner: Arc<Inner>) {
    if matches!(inner.places.config, ConfigChoice::Default(_)) {
        return;
    }
    let mut since = inner.started;
    loop {
        let limit = lock(&inner.loaded).config.daemon.idle_server;
        let (connected, left) = inner.roster.use_of();
        if connected || inner.engine.counts() != (0, 0) {
            since = Instant::now();
        } else if let Some(left) = left {
            since = since.max(left);
        }
        let left = limit.saturating_sub(since.elapsed());
        if left.is_zero() {
            let seconds = limit.as_secs_f32();
            tracing::info!(
                seconds,
                "no client and no program for that long: the daemon ends"
            );
            return inner.stop.cancel();
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}
