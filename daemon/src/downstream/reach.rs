//! Finds the session that a call goes to, and waits until it can take it.

use std::sync::Arc;
use std::time::Duration;

use ptc_protocol::status::ServerState;

use super::call::NOTICE;
use super::error::CallError;
use super::projects::{NoInstance, Projects, Use};
use super::server::{Live, Server};
use super::supervisor::may_come_back;
use super::{Downstream, Slot, View};

/// How long a call waits for a server that is starting or reconnecting.
pub(super) const READY_WAIT: Duration = Duration::from_secs(10);

impl Downstream {
    /// The session that a client's call to a server goes to. Where as many projects as may be are
    /// all in use, it is waited for one to become free.
    pub(super) async fn find(
        &self,
        view: &View,
        name: &str,
        limit: Duration,
    ) -> Result<Found, CallError> {
        let unavailable = |why: String, transient: bool| CallError::Unavailable {
            server: name.to_owned(),
            why,
            transient,
        };
        let projects = {
            let slots = self.slots();
            match slots.iter().find(|slot| slot.name() == name) {
                Some(Slot::Shared(running)) => {
                    return Ok(Found::Shared(Arc::clone(&running.server)));
                }
                Some(Slot::Projects(projects)) => Arc::clone(projects),
                None => {
                    let why = "it is not in the configuration".to_owned();
                    return Err(unavailable(why, false));
                }
            }
        };
        if !projects.config.enabled {
            return Err(unavailable("disabled".to_owned(), false));
        }
        let waited = tokio::time::timeout(limit, self.engage_when_free(&projects, view)).await;
        match waited.unwrap_or(Err(NoInstance::Full)) {
            Ok(used) => Ok(Found::OfProject(used)),
            Err(none) => Err(unavailable(none.words(), none == NoInstance::Full)),
        }
    }

    async fn engage_when_free(
        &self,
        projects: &Arc<Projects>,
        view: &View,
    ) -> Result<Use, NoInstance> {
        loop {
            let mut freed = std::pin::pin!(projects.freed.notified());
            freed.as_mut().enable();
            match self.engage(projects, view) {
                Err(NoInstance::Full) => freed.await,
                found => return found,
            }
        }
    }
}

/// Where a call goes.
#[derive(Debug)]
pub(super) enum Found {
    Shared(Arc<Server>),
    OfProject(Use),
}

impl Found {
    pub(super) fn server(&self) -> &Arc<Server> {
        match self {
            Self::Shared(server) => server,
            Self::OfProject(used) => &used.server,
        }
    }
}

pub(super) async fn wait_until_ready(server: &Server, limit: Duration) -> Result<Live, CallError> {
    let deadline = tokio::time::Instant::now() + limit;
    let mut version = server.version();
    loop {
        version.mark_unchanged();
        let (state, why) = match server.live() {
            Ok(live) => return Ok(live),
            Err(found) => found,
        };
        let transient = may_come_back(state);
        let waited = if transient {
            server.wake.notify_one();
            tokio::time::timeout_at(deadline, version.changed()).await
        } else {
            Ok(Ok(()))
        };
        if !transient || waited.is_err() {
            return Err(CallError::Unavailable {
                server: server.config.name.clone(),
                why: state_words(state, &why),
                transient,
            });
        }
    }
}

/// Waits, not for long, until the loss of a connection shows in the server's state.
pub(super) async fn wait_until_known(server: &Server) {
    let mut version = server.version();
    let known = async {
        loop {
            version.mark_unchanged();
            if server.phase() != ServerState::Ready || version.changed().await.is_err() {
                return;
            }
        }
    };
    // At the limit the caller is told all the same.
    let _ = tokio::time::timeout(NOTICE, known).await;
}

fn state_words(state: ServerState, why: &str) -> String {
    if why.is_empty() {
        state.as_str().to_owned()
    } else {
        format!("{} ({why})", state.as_str())
    }
}
