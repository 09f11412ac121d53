//! Keeps what the two ends of one connection know in common.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::greeting::Refusal;

/// Late answers to cancelled requests that are recognised.
const MAX_CANCELLED: usize = 1024;

/// How long the other calls of a connection that is of no more use may take to be told so.
const LAST_CALLS: Duration = Duration::from_secs(1);
/// Pause between two looks at them.
const LOOK: Duration = Duration::from_millis(10);

/// What kind of request an id belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Initialize,
    Discover,
    List,
    Call,
    Listen,
    Other,
}

/// What an id in an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// An open request, which is now answered.
    Open(Kind),
    /// A request that was cancelled; the answer is of no use.
    Cancelled,
    /// No request at all, or one that has been answered already.
    Stray,
}

/// The state of one connection, from its start to its end.
#[derive(Debug, Default)]
pub(super) struct Link {
    requests: Mutex<Requests>,
    /// Cancelled when we want no more of the server.
    pub(super) closing: CancellationToken,
    /// Cancelled when nothing more can come from the server.
    pub(super) ended: CancellationToken,
    /// Told when the server says that its tools have changed.
    pub(super) list_changed: Notify,
    how: OnceLock<String>,
    junk: AtomicU64,
    last_junk: Mutex<Option<String>>,
    remark: Mutex<Option<String>>,
    news: Mutex<Option<String>>,
    agreed: OnceLock<Agreed>,
    refusal: OnceLock<Refusal>,
    /// The folder that a server of one project may ask for.
    pub(super) project: Option<Arc<Path>>,
}

/// What a handshake came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    /// The revision that is spoken.
    pub(super) version: String,
    /// Whether the server says that it tells of changes to its tools.
    pub(super) announces_changes: bool,
}

#[derive(Debug, Default)]
struct Requests {
    open: HashMap<i64, Kind>,
    cancelled: VecDeque<i64>,
    /// Calls that were surely not run; no more than were in flight at the end.
    turned_away: HashMap<i64, String>,
}

impl Link {
    /// A connection to a server that works for one project, or for all clients.
    pub(super) fn new(project: Option<Arc<Path>>) -> Self {
        Self {
            project,
            ..Self::default()
        }
    }

    pub(super) fn opened(&self, id: i64, kind: Kind) {
        self.requests().open.insert(id, kind);
    }

    pub(super) fn cancelled(&self, id: i64) {
        let mut requests = self.requests();
        if requests.open.remove(&id).is_some() {
            if requests.cancelled.len() >= MAX_CANCELLED {
                requests.cancelled.pop_front();
            }
            requests.cancelled.push_back(id);
        }
    }

    pub(super) fn settle(&self, id: i64) -> Settled {
        let mut requests = self.requests();
        if let Some(kind) = requests.open.remove(&id) {
            return Settled::Open(kind);
        }
        match requests
            .cancelled
            .iter()
            .position(|&cancelled| cancelled == id)
        {
            Some(index) => {
                requests.cancelled.remove(index);
                Settled::Cancelled
            }
            None => Settled::Stray,
        }
    }

    /// A call was not taken, and the connection is of no more use.
    pub(super) fn turned_away(&self, id: i64, how: String) {
        self.requests().turned_away.insert(id, how);
    }

    /// Why a call was not taken, if it was not.
    pub(super) fn was_turned_away(&self, id: i64) -> Option<String> {
        self.requests().turned_away.remove(&id)
    }

    /// Whether a request is still to be answered.
    pub(super) fn is_open(&self, id: i64) -> bool {
        self.requests().open.contains_key(&id)
    }

    /// Waits, not for long, until no call is open any more. Of the calls of a
    /// connection that is of no more use, each may still be told that it was not run.
    pub(super) async fn calls_settled(&self) {
        let settled = async {
            while self.has_calls() {
                tokio::time::sleep(LOOK).await;
            }
        };
        // What is still open then may have been run.
        let _ = tokio::time::timeout(LAST_CALLS, settled).await;
    }

    fn has_calls(&self) -> bool {
        let requests = self.requests();
        requests.open.values().any(|kind| *kind == Kind::Call)
    }

    /// Takes out the open requests without which the server cannot be used.
    pub(super) fn settle_handshake(&self) -> Vec<(i64, Kind)> {
        let mut requests = self.requests();
        let found: Vec<(i64, Kind)> = requests
            .open
            .iter()
            .filter(|(_, kind)| matches!(kind, Kind::Initialize | Kind::Discover | Kind::List))
            .map(|(&id, &kind)| (id, kind))
            .collect();
        for (id, _) in &found {
            requests.open.remove(id);
        }
        found
    }

    /// Says how the connection ended; only the first word counts.
    pub(super) fn end(&self, how: String) {
        // A second reason is a consequence of the first.
        let _ = self.how.set(how);
        self.ended.cancel();
    }

    /// How the connection ended.
    pub(super) fn how(&self) -> String {
        self.how
            .get()
            .cloned()
            .unwrap_or_else(|| "it was closed".to_owned())
    }

    /// Counts a line that is no protocol.
    pub(super) fn add_junk(&self, shown: String) {
        self.junk.fetch_add(1, Ordering::Relaxed);
        *self
            .last_junk
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(shown);
    }

    /// The beginning of the latest line that is no protocol, for an error at the start.
    pub(super) fn last_junk(&self) -> Option<String> {
        self.last_junk
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn junk(&self) -> u64 {
        self.junk.load(Ordering::Relaxed)
    }

    /// Keeps the latest oddity, for a call that gets no answer because of it.
    pub(super) fn remark(&self, remark: String) {
        *self.remark.lock().unwrap_or_else(PoisonError::into_inner) = Some(remark);
    }

    pub(super) fn latest_remark(&self) -> Option<String> {
        self.remark
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps the latest progress or log line, to tell what a slow call was doing.
    pub(super) fn heard(&self, news: String) {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) = Some(news);
    }

    pub(super) fn latest_news(&self) -> Option<String> {
        self.news
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The handshake is done; there is one a connection.
    pub(super) fn agreed(&self, version: &str, announces_changes: bool) {
        let _ = self.agreed.set(Agreed {
            version: version.to_owned(),
            announces_changes,
        });
    }

    pub(super) fn agreement(&self) -> Option<&Agreed> {
        self.agreed.get()
    }

    /// The handshake came to nothing; the first cause counts.
    pub(super) fn refused(&self, refusal: Refusal) {
        let _ = self.refusal.set(refusal);
    }

    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.get()
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_settled_once() {
        let link = Link::default();
        link.opened(1, Kind::Call);
        link.opened(2, Kind::Call);
        link.cancelled(2);
        link.cancelled(9);
        assert_eq!(link.settle(1), Settled::Open(Kind::Call));
        assert_eq!(link.settle(1), Settled::Stray);
        assert_eq!(link.settle(2), Settled::Cancelled);
        assert_eq!(link.settle(2), Settled::Stray);
        assert_eq!(link.settle(9), Settled::Stray);
    }

    #[test]
    fn the_handshake_is_settled_apart_from_calls() {
        let link = Link::default();
        link.opened(1, Kind::Call);
        link.opened(2, Kind::List);
        assert_eq!(link.settle_handshake(), [(2, Kind::List)]);
        assert_eq!(link.settle(1), Settled::Open(Kind::Call));
    }

    #[test]
    fn the_first_reason_of_the_end_counts() {
        let link = Link::default();
        link.end("first".into());
        link.end("second".into());
        assert_eq!(link.how(), "first");
        assert!(link.ended.is_cancelled());
    }
}
