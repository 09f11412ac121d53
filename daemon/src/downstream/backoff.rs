//! Works out how long to wait before a server is tried again.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_mins(1);
/// The first pause where a call waits.
const LEAST: Duration = Duration::from_millis(200);
/// The longest pause where a call waits.
const LONGEST_LEAST: Duration = Duration::from_secs(5);
/// A connection that lasted this long has proved that the server works.
const STEADY: Duration = Duration::from_secs(30);
/// The longest a start may be given.
const LONGEST_START: Duration = Duration::from_mins(10);

/// The memory of one server's failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts an end or a failed start, after a connection that lasted `up`.
    pub(super) fn failed(&mut self, up: Duration) {
        if up >= STEADY {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
    }

    /// Number of the next attempt, counted from 1.
    pub(super) fn attempt(self) -> u32 {
        self.failures.saturating_add(1)
    }

    /// The pause before the next attempt: 1 s doubling to 60 s, of which
    /// `chance` (0 to 255) takes off up to a quarter.
    pub(super) fn pause(self, chance: u8) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        let whole = FIRST.saturating_mul(1 << doublings).min(LONGEST);
        whole.saturating_sub((whole / 4 / 255) * u32::from(chance))
    }

    /// The pause that stays however urgently calls wait: 0.2 s doubling to 5 s, so that a program that tries a broken
    /// server again and again does not start it again and again.
    pub(super) fn least(self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        LEAST.saturating_mul(1 << doublings).min(LONGEST_LEAST)
    }

    /// How long the next start may take: more each time, so that a first
    /// download can end.
    pub(super) fn start_limit(self, first: Duration) -> Duration {
        first
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST_START.max(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_minute_and_chance_only_shortens_them() {
        let mut backoff = Backoff::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            backoff.failed(Duration::ZERO);
            pauses.push(backoff.pause(0).as_secs());
            let short = backoff.pause(255);
            assert!(short >= backoff.pause(0) * 7 / 10 && short < backoff.pause(0));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn a_waiting_call_shortens_pauses_less_each_time() {
        let mut backoff = Backoff::default();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            backoff.failed(Duration::ZERO);
            pauses.push(backoff.least().as_millis());
            assert!(backoff.least() < backoff.pause(255));
        }
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn only_a_connection_that_lasted_forgives_what_was_before() {
        let mut backoff = Backoff::default();
        backoff.failed(Duration::ZERO);
        backoff.failed(Duration::from_secs(29));
        assert_eq!((backoff.attempt(), backoff.pause(0).as_secs()), (3, 2));
        backoff.failed(Duration::from_secs(30));
        assert_eq!((backoff.attempt(), backoff.pause(0).as_secs()), (2, 1));
    }

    #[test]
    fn each_start_may_take_longer_up_to_a_bound() {
        let first = Duration::from_secs(30);
        let mut backoff = Backoff::default();
        let mut limits = Vec::new();
        for _ in 0..7 {
            limits.push(backoff.start_limit(first).as_secs());
            backoff.failed(Duration::ZERO);
        }
        assert_eq!(limits, [30, 60, 120, 240, 480, 600, 600]);
        let long = Duration::from_mins(15);
        assert_eq!(backoff.start_limit(long), long);
    }
}
