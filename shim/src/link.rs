//! How the daemon is reached for: tries, pauses, and how patient an opener is meanwhile.

use std::time::{Duration, Instant};

/// How long an opener or a list waits for the daemon's own text while the daemon is not there.
pub(crate) const OPENER_PATIENCE: Duration = Duration::from_millis(1500);
/// How long they wait once it is connected.
pub(crate) const OPENER_LIMIT: Duration = Duration::from_secs(10);
/// First and longest pause between two tries to reach the daemon.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How long a lost daemon is looked for when nothing waits for it; then the next request looks again.
pub(crate) const IDLE_SEARCH: Duration = Duration::from_mins(1);
/// How long a daemon that cannot start, for a cause that stays, is not started again.
pub(crate) const RETRY: Duration = Duration::from_secs(3);
/// A connection that lasted this long starts the pauses anew.
pub(crate) const STEADY: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is tried until someone asks for something.
    Resting,
    Pausing {
        until: Instant,
    },
    Dialling {
        /// Whether the daemon is started where it is not there.
        launch: bool,
    },
    Up {
        since: Instant,
    },
}

/// What a try that has failed is followed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The daemon is to be started at once.
    Launch,
    /// Another try after a pause, or none.
    Wait,
    /// Nothing: what waits is told why.
    GiveUp,
}

/// Why starting the daemon is of no use for now.
#[derive(Debug)]
struct Block {
    until: Instant,
    reason: String,
}

/// Where the shim stands with the daemon.
#[derive(Debug)]
pub(crate) struct Link {
    state: State,
    pause: Duration,
    search_until: Option<Instant>,
    block: Option<Block>,
    reason: String,
}

impl Link {
    /// A link whose first try is under way.
    pub(crate) fn dialling(launch: bool) -> Self {
        Self {
            state: State::Dialling { launch },
            pause: PAUSES.0,
            search_until: None,
            block: None,
            reason: "it has not answered yet".to_owned(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Why the daemon is not there.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// A try begins.
    pub(crate) fn dial(&mut self, launch: bool) {
        self.state = State::Dialling { launch };
    }

    /// The try goes on, and waits for something.
    pub(crate) fn waits_for(&mut self, reason: &str) {
        reason.clone_into(&mut self.reason);
    }

    pub(crate) fn connected(&mut self, now: Instant) {
        self.block = None;
        self.state = State::Up { since: now };
        self.search_until = None;
    }

    /// A try has failed; `needed` says whether someone waits for the daemon.
    pub(crate) fn failed(&mut self, reason: &str, needed: bool, now: Instant) -> Next {
        let launched = matches!(self.state, State::Dialling { launch: true });
        reason.clone_into(&mut self.reason);
        if needed && !launched {
            let Some(block) = self.block.as_ref().filter(|block| now < block.until) else {
                return Next::Launch;
            };
            self.reason.clone_from(&block.reason);
            self.state = State::Resting;
            return Next::GiveUp;
        }
        if needed || self.search_until.is_some_and(|until| now < until) {
            self.pause_from(now);
        } else {
            self.state = State::Resting;
        }
        Next::Wait
    }

    /// The daemon cannot start until someone acts; for a while it is only looked for.
    pub(crate) fn blocked(&mut self, reason: &str, now: Instant) {
        reason.clone_into(&mut self.reason);
        self.block = Some(Block {
            until: now + RETRY,
            reason: reason.to_owned(),
        });
        self.search_until = None;
        self.state = State::Resting;
    }

    /// Whether starting the daemon is of no use now.
    pub(crate) fn is_blocked(&self, now: Instant) -> bool {
        self.block.as_ref().is_some_and(|block| now < block.until)
    }

    pub(crate) fn refused(&mut self, reason: &str) {
        reason.clone_into(&mut self.reason);
        self.state = State::Resting;
    }

    pub(crate) fn lost(&mut self, reason: &str, now: Instant) {
        if let State::Up { since } = self.state
            && now.saturating_duration_since(since) >= STEADY
        {
            self.pause = PAUSES.0;
        }
        reason.clone_into(&mut self.reason);
        self.search_until = Some(now + IDLE_SEARCH);
        self.pause_from(now);
    }

    /// Someone waits for the daemon; true when it is to be reached for now: no pause that was
    /// made for nobody holds any longer.
    pub(crate) fn wakes(&mut self) -> bool {
        match self.state {
            State::Resting => true,
            State::Pausing { .. } => self.search_until.take().is_some(),
            State::Dialling { .. } | State::Up { .. } => false,
        }
    }

    /// When the pause ends, if there is one.
    pub(crate) fn pause_end(&self) -> Option<Instant> {
        match self.state {
            State::Pausing { until } => Some(until),
            State::Resting | State::Dialling { .. } | State::Up { .. } => None,
        }
    }

    /// How long an opener waits that has waited since then.
    pub(crate) fn opener_deadline(&self, since: Instant) -> Instant {
        since
            + if self.is_up() {
                OPENER_LIMIT
            } else {
                OPENER_PATIENCE
            }
    }

    fn pause_from(&mut self, now: Instant) {
        let until = now + self.pause;
        self.state = State::Pausing { until };
        self.pause = PAUSES.1.min(self.pause * 2);
    }
}
