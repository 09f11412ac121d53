//! Gives out the places for calls at one server, in turn between the clients that wait.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// All places of one server. A client with many calls waiting gets one turn a round.
#[derive(Debug)]
pub(super) struct Places {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// One queue a client, in the order of their next turns. Calls are bounded by the runs that make them.
    queues: VecDeque<(Arc<str>, VecDeque<oneshot::Sender<Place>>)>,
}

/// One place; dropping it lets the next call in.
#[derive(Debug)]
pub(super) struct Place {
    /// Nothing once it has been given back.
    state: Option<Arc<Mutex<State>>>,
}

impl Places {
    pub(super) fn new(count: usize) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                free: count.max(1),
                queues: VecDeque::new(),
            })),
        }
    }

    /// Waits for a place. A caller that goes away loses its turn to the next.
    pub(super) async fn take(&self, client: &Arc<str>) -> Place {
        loop {
            let turn = {
                let mut state = lock(&self.state);
                if state.free > 0 {
                    state.free -= 1;
                    return Place::of(&self.state);
                }
                let (sender, turn) = oneshot::channel();
                match state.queues.iter_mut().find(|(name, _)| name == client) {
                    Some((_, queue)) => {
                        queue.retain(|waiting| !waiting.is_closed());
                        queue.push_back(sender);
                    }
                    None => state
                        .queues
                        .push_back((Arc::clone(client), VecDeque::from([sender]))),
                }
                turn
            };
            if let Ok(place) = turn.await {
                return place;
            }
        }
    }
}

impl Place {
    fn of(state: &Arc<Mutex<State>>) -> Self {
        Self {
            state: Some(Arc::clone(state)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(shared) = self.state.take() else {
            return;
        };
        loop {
            let sender = {
                let mut state = lock(&shared);
                let Some((client, mut queue)) = state.queues.pop_front() else {
                    state.free += 1;
                    return;
                };
                let sender = queue.pop_front();
                if !queue.is_empty() {
                    state.queues.push_back((client, queue));
                }
                sender
            };
            match sender.map(|sender| sender.send(Self::of(&shared))) {
                Some(Ok(())) => return,
                // Its caller is gone, and the next is looked for right here.
                Some(Err(mut back)) => back.state = None,
                None => {}
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn client(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[tokio::test]
    async fn a_client_with_many_calls_waiting_gets_one_turn_a_round() {
        let places = Arc::new(Places::new(1));
        let held = places.take(&client("a")).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for name in ["a", "a", "a", "b", "a", "b"] {
            let (own, order) = (Arc::clone(&places), Arc::clone(&order));
            waiting.push(tokio::spawn(async move {
                let place = own.take(&client(name)).await;
                order.lock().unwrap().push(name);
                drop(place);
            }));
            let queued = || -> usize {
                let state = lock(&places.state);
                state.queues.iter().map(|(_, queue)| queue.len()).sum()
            };
            while queued() < waiting.len() {
                tokio::task::yield_now().await;
            }
        }
        drop(held);
        for waiter in waiting {
            waiter.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["a", "b", "a", "b", "a", "a"]);
        assert_eq!(lock(&places.state).free, 1);
    }

    #[tokio::test]
    async fn who_no_longer_waits_costs_nobody_a_turn() {
        let places = Places::new(1);
        let (a, b) = (client("a"), client("b"));
        let held = places.take(&a).await;
        for _ in 0..3 {
            let gone = tokio::time::timeout(Duration::from_millis(1), places.take(&a));
            assert!(gone.await.is_err());
        }
        drop(held);
        let again = tokio::time::timeout(Duration::from_secs(30), places.take(&b));
        let again = again.await.unwrap();
        assert!(lock(&places.state).queues.is_empty());
        drop(again);
        assert_eq!(lock(&places.state).free, 1);
    }
}
