//! Counts the calls of one server.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Calls whose durations are remembered.
const LATEST: usize = 64;

/// Counts since the daemon started.
#[derive(Debug, Default)]
pub(super) struct Stats {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    connections: u64,
    calls: u64,
    failed: u64,
    latest: VecDeque<Duration>,
    last: Option<Instant>,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// Connections after the first.
    pub(super) restarts: u64,
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) p50_ms: Option<u64>,
    pub(super) last_ms_ago: Option<u64>,
}

impl Stats {
    pub(super) fn connected(&self) {
        self.lock().connections += 1;
    }

    pub(super) fn sent(&self) {
        let mut inner = self.lock();
        inner.calls += 1;
        inner.last = Some(Instant::now());
    }

    pub(super) fn ended(&self, took: Duration, ok: bool) {
        let mut inner = self.lock();
        inner.failed += u64::from(!ok);
        if inner.latest.len() >= LATEST {
            inner.latest.pop_front();
        }
        inner.latest.push_back(took);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let inner = self.lock();
        let mut sorted: Vec<Duration> = inner.latest.iter().copied().collect();
        sorted.sort_unstable();
        Snapshot {
            restarts: inner.connections.saturating_sub(1),
            calls: inner.calls,
            failed: inner.failed,
            p50_ms: sorted.get(sorted.len() / 2).map(|&took| millis(took)),
            last_ms_ago: inner.last.map(|last| millis(last.elapsed())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_that_of_the_latest_calls() {
        let stats = Stats::default();
        assert_eq!(stats.snapshot(), Snapshot::default());
        for ms in (0..1000).chain(5000..5064) {
            stats.sent();
            stats.ended(Duration::from_millis(ms), ms % 2 == 0);
        }
        let snapshot = stats.snapshot();
        assert_eq!((snapshot.calls, snapshot.failed), (1064, 532));
        assert_eq!(snapshot.p50_ms, Some(5032));
        assert!(snapshot.last_ms_ago.is_some());
        for restarts in [0, 1, 2] {
            stats.connected();
            assert_eq!(stats.snapshot().restarts, restarts);
        }
    }
}
