//! What holds while a run is under way and ends with it.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Live;

/// Cancels a run when the daemon's patience with its runs is at an end.
#[derive(Debug)]
pub(super) struct AbortWith(tokio::task::JoinHandle<()>);

impl AbortWith {
    pub(super) fn new(abort: &CancellationToken, run: &CancellationToken) -> Self {
        let (abort, run) = (abort.clone(), run.clone());
        Self(tokio::spawn(async move {
            abort.cancelled().await;
            run.cancel();
        }))
    }
}

impl Drop for AbortWith {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Counts a run as under way while it lives.
#[derive(Debug)]
pub(super) struct LiveGuard<'a> {
    live: &'a watch::Sender<Live>,
    session: String,
}

impl<'a> LiveGuard<'a> {
    pub(super) fn new(live: &'a watch::Sender<Live>, session: &str) -> Self {
        live.send_modify(|runs| *runs.entry(session.to_owned()).or_default() += 1);
        Self {
            live,
            session: session.to_owned(),
        }
    }
}

impl Drop for LiveGuard<'_> {
    fn drop(&mut self) {
        self.live.send_modify(|runs| {
            let left = runs
                .get(&self.session)
                .map_or(0, |count| count.saturating_sub(1));
            if left == 0 {
                runs.remove(&self.session);
            } else {
                runs.insert(self.session.clone(), left);
            }
        });
    }
}
