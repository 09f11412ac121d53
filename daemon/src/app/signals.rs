//! Follows the signals that steer the daemon.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Inner, StartError};

/// The signals that steer the daemon. From their making on, none of them ends it by itself, so
/// they are made before anyone can find the daemon.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Begins to follow TERM, INT and HUP.
    pub fn new() -> Result<Self, StartError> {
        let follow = |kind| {
            signal(kind).map_err(|source| StartError::Io {
                action: "following signals",
                source,
            })
        };
        Ok(Self {
            terminate: follow(SignalKind::terminate())?,
            interrupt: follow(SignalKind::interrupt())?,
            hangup: follow(SignalKind::hangup())?,
        })
    }
}

pub(super) async fn follow_signals(inner: Arc<Inner>, signals: Signals) {
    let Signals {
        mut terminate,
        mut interrupt,
        mut hangup,
    } = signals;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            // It is not waited for, since another signal may come meanwhile; its end is logged.
            _ = hangup.recv() => drop(inner.reload_all(false)),
        }
    }
    inner.told_by.get_or_init(|| "signal");
    inner.stop.cancel();
}
