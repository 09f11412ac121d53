//! Who may start a program next: `max_runs` places, fair between sessions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// How long a program waits for a place.
pub(super) const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Programs that may wait, over all sessions.
const MAX_QUEUED: usize = 256;

/// No place was free in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// The queue itself is full.
    #[error("{queued} programs are waiting already; try again later")]
    QueueFull {
        /// How many wait.
        queued: usize,
    },
    /// The daemon takes no more programs.
    #[error("the daemon is ending and starts no more programs; call again in a moment")]
    Closed,
    /// Nothing became free within [`QUEUE_TIMEOUT`].
    #[error("{max_runs} programs are running (execution.max_runs) and no place came free for this one within {} s; try again later", QUEUE_TIMEOUT.as_secs())]
    Busy {
        /// The limit.
        max_runs: usize,
    },
}

/// Gives out places. A session with many programs waiting gets one turn a round.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    max: usize,
    busy: usize,
    /// Whether no program is let in any more.
    closed: bool,
    /// One queue a session, in the order of their next turns.
    queues: VecDeque<(String, VecDeque<oneshot::Sender<Place>>)>,
}

/// One place; dropping it lets the next program in.
#[derive(Debug)]
pub(super) struct Place {
    state: Arc<Mutex<State>>,
}

impl Admission {
    /// `max` places.
    pub(super) fn new(max: usize) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                max,
                busy: 0,
                closed: false,
                queues: VecDeque::new(),
            })),
        }
    }

    /// Changes the number of places; running programs keep theirs.
    pub(super) fn resize(&self, max: usize) {
        lock(&self.state).max = max;
        self.hand_out();
    }

    /// Lets no program in any more, unless one runs or waits; whether that is so now.
    pub(super) fn close_if_idle(&self) -> bool {
        let mut state = lock(&self.state);
        state.closed |= state.busy == 0 && queued(&state) == 0;
        state.closed
    }

    /// Running and waiting programs.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.busy, queued(&state))
    }

    /// Waits for a place. A caller that goes away loses its turn to the next.
    pub(super) async fn admit(&self, session: &str) -> Result<Place, NotAdmitted> {
        let turn = {
            let mut state = lock(&self.state);
            if state.closed {
                return Err(NotAdmitted::Closed);
            }
            if state.busy < state.max && state.queues.is_empty() {
                state.busy += 1;
                return Ok(Place {
                    state: Arc::clone(&self.state),
                });
            }
            let queued = queued(&state);
            if queued >= MAX_QUEUED {
                return Err(NotAdmitted::QueueFull { queued });
            }
            forget_gone(&mut state);
            let (sender, turn) = oneshot::channel();
            match state.queues.iter_mut().find(|(name, _)| name == session) {
                Some((_, queue)) => queue.push_back(sender),
                None => state
                    .queues
                    .push_back((session.to_owned(), VecDeque::from([sender]))),
            }
            turn
        };
        match tokio::time::timeout(QUEUE_TIMEOUT, turn).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(NotAdmitted::Busy {
                max_runs: lock(&self.state).max,
            }),
        }
    }

    fn hand_out(&self) {
        hand_out(&self.state);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.busy = state.busy.saturating_sub(1);
        drop(state);
        hand_out(&self.state);
    }
}

/// Gives free places to waiting programs, one a session in turn.
fn hand_out(shared: &Arc<Mutex<State>>) {
    loop {
        let sender = {
            let mut state = lock(shared);
            if state.busy >= state.max {
                return;
            }
            let Some((session, mut queue)) = state.queues.pop_front() else {
                return;
            };
            let Some(sender) = queue.pop_front() else {
                continue;
            };
            if !queue.is_empty() {
                state.queues.push_back((session, queue));
            }
            state.busy += 1;
            sender
        };
        // Dropping the place of a caller that is gone comes back here with the
        // lock free, so the next in line is served.
        if let Err(unused) = sender.send(Place {
            state: Arc::clone(shared),
        }) {
            drop(unused);
        }
    }
}

/// Drops the turns of callers that went away, so that a client which asks and cancels again and again
/// leaves nothing behind.
fn forget_gone(state: &mut State) {
    for (_, queue) in &mut state.queues {
        queue.retain(|sender| !sender.is_closed());
    }
    state.queues.retain(|(_, queue)| !queue.is_empty());
}

fn queued(state: &State) -> usize {
    state
        .queues
        .iter()
        .map(|(_, queue)| queue.iter().filter(|sender| !sender.is_closed()).count())
        .sum()
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_with_many_programs_does_not_starve_another() {
        let admission = Admission::new(1);
        let first = admission.admit("a").await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for name in ["a1", "a2", "a3", "b1"] {
            let (theirs, admission, order) = (name, admission.clone(), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let place = admission.admit(&theirs[..1]).await.unwrap();
                order.lock().unwrap().push(theirs);
                drop(place);
            }));
            tokio::task::yield_now().await;
        }
        assert_eq!(admission.counts(), (1, 4));
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["a1", "b1", "a2", "a3"]);
        assert_eq!(admission.counts(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_program_waits_no_longer_than_the_limit() {
        let admission = Admission::new(1);
        let _place = admission.admit("a").await.unwrap();
        let error = admission.admit("b").await.unwrap_err();
        assert_eq!(error, NotAdmitted::Busy { max_runs: 1 });
    }

    #[tokio::test(start_paused = true)]
    async fn one_session_with_every_place_and_many_in_the_queue_leaves_another_the_next_place() {
        let admission = Admission::new(8);
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(admission.admit("greedy").await.unwrap());
        }
        let waiting = |name: &'static str| {
            let admission = admission.clone();
            tokio::spawn(async move { admission.admit(name).await.map(|place| (name, place)) })
        };
        let mut tasks: Vec<_> = (0..40).map(|_| waiting("greedy")).collect();
        tokio::task::yield_now().await;
        let modest: Vec<_> = [waiting("modest"), waiting("third")].into();
        tokio::task::yield_now().await;
        assert_eq!(admission.counts(), (8, 42));
        // The greedy one's turn was before the others came; then each has one.
        held.truncate(5);
        let mut served = Vec::new();
        for task in modest {
            served.push(task.await.unwrap().unwrap());
        }
        let names: Vec<_> = served.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["modest", "third"]);
        assert_eq!(admission.counts(), (8, 39));
        // Nothing becomes free any more: the rest is told after the same time.
        let start = tokio::time::Instant::now();
        served.push(tasks.remove(0).await.unwrap().unwrap());
        for task in tasks {
            let refused = task.await.unwrap().map(|_| ()).unwrap_err();
            assert_eq!(refused, NotAdmitted::Busy { max_runs: 8 });
        }
        assert_eq!(start.elapsed(), QUEUE_TIMEOUT);
        assert_eq!(admission.counts(), (8, 0));
    }

    #[tokio::test]
    async fn a_daemon_with_a_program_that_runs_or_waits_is_not_closed() {
        let admission = Admission::new(1);
        let place = admission.admit("a").await.unwrap();
        assert!(!admission.close_if_idle());
        drop(place);
        assert!(admission.close_if_idle() && admission.close_if_idle());
        assert_eq!(admission.admit("a").await.unwrap_err(), NotAdmitted::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_and_goes_away_leaves_nothing_in_the_queue() {
        let admission = Admission::new(1);
        let _place = admission.admit("a").await.unwrap();
        for round in 0..3 * MAX_QUEUED {
            let name = format!("s{}", round % 5);
            let asked = tokio::time::timeout(Duration::ZERO, admission.admit(&name)).await;
            assert!(asked.is_err());
        }
        let left: usize = lock(&admission.state)
            .queues
            .iter()
            .map(|(_, queue)| queue.len())
            .sum();
        assert_eq!((left, admission.counts()), (1, (1, 0)));
    }

    #[tokio::test]
    async fn a_caller_that_went_away_costs_no_place() {
        let admission = Admission::new(1);
        let place = admission.admit("a").await.unwrap();
        let gone = tokio::spawn({
            let admission = admission.clone();
            async move { admission.admit("b").await }
        });
        tokio::task::yield_now().await;
        gone.abort();
        let _ = gone.await;
        drop(place);
        assert_eq!(admission.counts().0, 0);
        admission.admit("c").await.unwrap();
    }
}
