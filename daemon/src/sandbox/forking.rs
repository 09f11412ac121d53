//! Decides whether the next worker is forked: proves a fork server by a worker that tries to get out, and goes without one where that fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::link::Link;
use super::linux::Wardens;
use super::verify::{Expected, verify};
use super::wire::How;
use super::{Limits, SandboxError, WorkerProcess, canary};

/// How long the first worker waits for a fork server before it becomes a fresh interpreter, which takes as long.
const FIRST: Duration = Duration::from_secs(10);
/// After a fault no server is asked for so long.
const AGAIN: Duration = Duration::from_secs(30);

/// Whether workers are forked, and by which warden's server.
#[derive(Debug)]
pub(super) struct Forking {
    /// What a forked worker is compared with, but for its filters.
    expected: Expected,
    limits: Limits,
    state: Mutex<State>,
    settled: Notify,
}

/// Whether workers are to be forked.
#[derive(Debug)]
pub(super) enum Wanted {
    /// Where a server can be had.
    Yes,
    /// The operator does not want it, or there is nothing to confine.
    No,
    /// It cannot be had here for good, and why.
    Impossible(String),
}

/// What becomes of the next worker.
enum Next {
    /// It is forked by this warden's server.
    Forked(Arc<Link>, Expected),
    /// It is an interpreter of its own.
    Fresh,
    /// That is being found out for the first time.
    Waits,
}

#[derive(Debug)]
enum State {
    /// Nobody wants it, or it cannot be had for good; the text says why, where that is of interest.
    Off(Option<String>),
    Untried,
    Proving,
    Proved(Expected, Weak<Link>),
    Failed(String, Instant),
}

impl Forking {
    /// Workers with `limits` are forked if that is wanted and a server can be had.
    pub(super) fn new(expected: Expected, limits: Limits, wanted: Wanted) -> Arc<Self> {
        let state = match wanted {
            Wanted::Yes => State::Untried,
            Wanted::No => State::Off(None),
            Wanted::Impossible(why) => State::Off(Some(why)),
        };
        Arc::new(Self {
            expected,
            limits,
            state: Mutex::new(state),
            settled: Notify::new(),
        })
    }

    /// Why workers are not forked, for the operator.
    pub(super) fn note(&self) -> Option<String> {
        let state = self.lock();
        let (why, again) = match &*state {
            State::Off(Some(why)) => (why, String::new()),
            State::Failed(why, _) => {
                let seconds = AGAIN.as_secs();
                let again = format!("; one is tried with the first program {seconds} s later");
                (why, again)
            }
            State::Off(None) | State::Untried | State::Proving | State::Proved(..) => return None,
        };
        Some(format!(
            "each program starts an interpreter of its own, which takes longer: there is no fork server: {why}{again}"
        ))
    }

    /// Whether workers are forked now.
    pub(super) fn is_forking(&self) -> bool {
        match &*self.lock() {
            State::Proved(_, link) => link
                .upgrade()
                .is_some_and(|link| !link.is_lost() && link.is_serving()),
            _ => false,
        }
    }

    /// A forked worker; `None` where the next one has to be a fresh interpreter. Waits for the proof the first time.
    pub(super) async fn spawn(
        self: &Arc<Self>,
        wardens: &Arc<Wardens>,
        id: u64,
    ) -> Option<WorkerProcess> {
        let (link, expected) = self.serving(wardens).await?;
        let made = link.spawn(id, self.limits, How::Fork).await;
        match made.and_then(|worker| verify(&worker, expected).map(|()| worker)) {
            Ok(worker) => Some(worker),
            Err(error) => {
                let mut state = self.lock();
                *state = if link.is_lost() || matches!(error, SandboxError::WardenLost) {
                    State::Untried
                } else {
                    // Those who wait at the same time fail for the same reason.
                    if !matches!(*state, State::Failed(..)) {
                        tracing::warn!(%error, "a worker could not be forked");
                    }
                    State::Failed(error.to_string(), Instant::now())
                };
                None
            }
        }
    }

    /// The warden whose server serves now, and what its workers are compared with.
    async fn serving(self: &Arc<Self>, wardens: &Arc<Wardens>) -> Option<(Arc<Link>, Expected)> {
        let until = Instant::now() + FIRST;
        loop {
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            match self.look(wardens) {
                Next::Forked(link, expected) => return Some((link, expected)),
                Next::Fresh => return None,
                Next::Waits => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            tokio::time::timeout(left, settled).await.ok()?;
        }
    }

    fn look(self: &Arc<Self>, wardens: &Arc<Wardens>) -> Next {
        let mut state = self.lock();
        match &*state {
            State::Proving => return Next::Waits,
            State::Off(_) => return Next::Fresh,
            State::Failed(_, at) if at.elapsed() < AGAIN => return Next::Fresh,
            State::Failed(..) => {
                // Meanwhile nobody waits for it.
                *state = State::Failed("it is being started again".to_owned(), Instant::now());
                self.prove(wardens);
                return Next::Fresh;
            }
            State::Proved(expected, link) => {
                if let Some(link) = link.upgrade().filter(|link| !link.is_lost()) {
                    if link.is_serving() {
                        return Next::Forked(link, *expected);
                    }
                    *state = State::Failed(
                        "it ended, or did not answer in time".to_owned(),
                        Instant::now(),
                    );
                    return Next::Fresh;
                }
            }
            State::Untried => {}
        }
        *state = State::Proving;
        self.prove(wardens);
        Next::Waits
    }

    /// Begins to prove a server, in the background: who asked for a worker may give up.
    fn prove(self: &Arc<Self>, wardens: &Arc<Wardens>) {
        let (forking, wardens) = (Arc::clone(self), Arc::clone(wardens));
        tokio::spawn(async move {
            let proved = forking.try_out(&wardens).await;
            // Where the sandbox was stopped meanwhile the server ended with it, and nobody misses it.
            if let Err(why) = &proved
                && !wardens.is_stopped()
            {
                tracing::warn!(why, "there is no fork server");
            }
            *forking.lock() = match proved {
                Ok((expected, link)) => State::Proved(expected, Arc::downgrade(&link)),
                Err(why) => State::Failed(why, Instant::now()),
            };
            forking.settled.notify_waiters();
        });
    }

    async fn try_out(&self, wardens: &Wardens) -> Result<(Expected, Arc<Link>), String> {
        let text = |error: SandboxError| error.to_string();
        let link = wardens.current().map_err(text)?;
        let expected = Expected {
            filters: Some(link.serve(self.limits).await?),
            ..self.expected
        };
        let worker = link
            .spawn(wardens.next_id(), self.limits, How::Canary)
            .await
            .map_err(text)?;
        verify(&worker, expected).map_err(text)?;
        let landlocked = expected.inside && wardens.has_landlock();
        canary::run(&worker, expected.inside, landlocked).await?;
        Ok((expected, link))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one step, so a panic in between leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
