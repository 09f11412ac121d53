//! Keeps the daemon's socket where clients look for it.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::log_file::{self, MAX_LOG_BYTES};
use super::orphans::Orphans;
use super::{App, lock};
use crate::control::socket::{Socket, SocketError};
use crate::control::{self, Commands, Control};

/// How often is looked whether the socket is still there. What cleans up temporary folders, or ends
/// a login, removes it under a daemon that lives.
const LOOK: Duration = Duration::from_secs(2);

impl App {
    /// Takes connections until the daemon is told to end; gives the task that goes on answering those
    /// that it has.
    pub(super) async fn attend(&self, listener: UnixListener) -> JoinHandle<()> {
        let inner = &self.inner;
        let control = Control {
            commands: Arc::clone(inner) as Arc<dyn Commands>,
            host: inner.host(),
            roster: inner.roster.clone(),
            shortage: inner.shortage.clone(),
            config: inner.places.hello_config(),
            end: inner.end.clone(),
        };
        let serve = |listener| {
            let serving = control::serve(listener, control.clone(), inner.stop.clone());
            tokio::spawn(serving)
        };
        let mut accepting = serve(listener);
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = String::new();
        let mut orphans = Orphans::default();
        loop {
            tokio::select! {
                () = inner.stop.cancelled() => return accepting,
                _ = looks.tick() => {}
            }
            orphans.look();
            let log = self.inner.places.log_file();
            match log_file::turn(&log, MAX_LOG_BYTES) {
                Ok(true) => tracing::info!("the log was full; the one before is ptcd.log.1"),
                Ok(false) => {}
                // The next look tries again.
                Err(error) => tracing::debug!(%error, "the log cannot be put aside"),
            }
            match self.rebind() {
                Ok(None) => told.clear(),
                Ok(Some(listener)) => {
                    tracing::warn!("the socket was removed, and is made anew");
                    accepting.abort();
                    accepting = serve(listener);
                }
                Err(error) => {
                    let error = error.to_string();
                    if told != error {
                        tracing::error!(
                            error,
                            "the socket was removed, and cannot be made anew yet"
                        );
                        told = error;
                    }
                }
            }
        }
    }

    /// A listener on a new socket, where the one that was made is not in its place any more.
    fn rebind(&self) -> Result<Option<UnixListener>, SocketError> {
        let mut socket = lock(&self.socket);
        let held = lock(&self.lock);
        let (Some(before), Some(held)) = (&mut *socket, &*held) else {
            return Ok(None);
        };
        let path = &self.inner.places.socket;
        if before.is_in_place() {
            if !self.inner.places.daemon_file().exists()
                && let Err(error) = self.inner.write_daemon_file()
            {
                tracing::debug!(%error, "daemon.json cannot be written again");
            }
            return Ok(None);
        }
        // Its number may be given to the next file, which is not to be taken for it.
        before.forget();
        let (listener, fresh) = Socket::bind(path, held)?;
        *socket = Some(fresh);
        let listener = UnixListener::from_std(listener).map_err(|source| SocketError::Io {
            action: "cannot take into use",
            path: path.clone(),
            source,
        })?;
        Ok(Some(listener))
    }
}
