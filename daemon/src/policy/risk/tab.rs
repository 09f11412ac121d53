//! Counts what was asked and denied, so that no loop finds out by trying what a model lets through.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Denials one after the other past which a program has none of its calls judged.
const IN_A_ROW: u32 = 3;
/// Denials past which a session has none, and within which time.
const IN_A_SESSION: (usize, Duration) = (20, Duration::from_mins(10));
/// Most sessions that are remembered.
const MAX_SESSIONS: usize = 1024;

/// What was asked for one program.
#[derive(Debug, Default)]
pub struct Tab(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    asked: u64,
    denied_in_a_row: u32,
}

impl Tab {
    /// Takes one of `most` requests; whether there was one left.
    pub(super) fn take(&self, most: u64) -> bool {
        let mut counts = self.lock();
        let left = counts.asked < most;
        counts.asked += u64::from(left);
        left
    }

    /// Notes a call that was judged fine.
    pub(super) fn allowed(&self) {
        self.lock().denied_in_a_row = 0;
    }

    /// Notes a call that was judged to be none.
    pub(super) fn denied(&self) {
        let mut counts = self.lock();
        counts.denied_in_a_row = counts.denied_in_a_row.saturating_add(1);
    }

    /// Why no call of this program is judged any more.
    pub(super) fn stopped(&self) -> Option<String> {
        (self.lock().denied_in_a_row >= IN_A_ROW).then(|| {
            format!("it denied {IN_A_ROW} calls of this program in a row, so the program makes no more such calls")
        })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Denials by session, so that another program is no way around the count of one.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<String, VecDeque<Instant>>>);

impl Sessions {
    /// Notes a denial.
    pub(super) fn denied(&self, session: &str) {
        let mut sessions = self.lock();
        let now = Instant::now();
        if sessions.len() >= MAX_SESSIONS && !sessions.contains_key(session) {
            sessions.retain(|_, denials| denials.back().is_some_and(|last| is_recent(*last, now)));
            // Forgetting sessions would be a way around; who comes past so many shares one count.
            if sessions.len() >= MAX_SESSIONS {
                push(sessions.entry(String::new()).or_default(), now);
                return;
            }
        }
        push(sessions.entry(session.to_owned()).or_default(), now);
    }

    /// Why no call of this session is judged now.
    pub(super) fn stopped(&self, session: &str) -> Option<String> {
        let (most, within) = IN_A_SESSION;
        let sessions = self.lock();
        let denials = sessions.get(session).or_else(|| sessions.get(""))?;
        let now = Instant::now();
        let recent = denials.iter().filter(|denial| is_recent(**denial, now));
        (recent.count() >= most).then(|| {
            format!(
                "it denied {most} calls of this client within {} minutes",
                within.as_secs() / 60
            )
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, VecDeque<Instant>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push(denials: &mut VecDeque<Instant>, now: Instant) {
    denials.push_back(now);
    if denials.len() > IN_A_SESSION.0 {
        denials.pop_front();
    }
}

fn is_recent(denial: Instant, now: Instant) -> bool {
    now.duration_since(denial) < IN_A_SESSION.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_denials_in_a_row_stop_a_program_and_a_yes_between_them_does_not() {
        let tab = Tab::default();
        for denials in [2, 2] {
            for _ in 0..denials {
                tab.denied();
            }
            assert_eq!(tab.stopped(), None);
            tab.allowed();
        }
        for _ in 0..3 {
            tab.denied();
        }
        assert!(
            tab.stopped()
                .unwrap()
                .contains("3 calls of this program in a row")
        );
    }

    #[test]
    fn a_program_has_so_many_requests_and_no_more() {
        let tab = Tab::default();
        assert_eq!([tab.take(2), tab.take(2), tab.take(2)], [true, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn twenty_denials_stop_a_session_for_a_while_and_no_other() {
        let sessions = Sessions::default();
        for _ in 0..19 {
            sessions.denied("a");
        }
        assert_eq!(sessions.stopped("a"), None);
        tokio::time::advance(Duration::from_mins(5)).await;
        sessions.denied("a");
        assert!(sessions.stopped("a").unwrap().contains("20 calls"));
        assert_eq!(sessions.stopped("b"), None);
        tokio::time::advance(Duration::from_mins(5)).await;
        assert_eq!(sessions.stopped("a"), None);
    }
}
