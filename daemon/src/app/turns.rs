//! Has reloads take turns, with room for one that waits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ptc_protocol::status::Done;
use tokio::sync::watch;

use super::{Inner, lock};

/// How long a reload that is under way may hold up the daemon's end.
const LAST_TURN: Duration = Duration::from_secs(10);

/// Most messages of a reload that are logged: a file may have thousands of faults.
const MAX_LOGGED: usize = 20;

/// What a reload says that was asked for while another was under way.
const AFTER_ANOTHER: &str =
    "another reload was under way: this is the one after it, which read the file after you asked";
/// What a reload says that is not the last one.
const OVERTAKEN: &str = "another reload was asked for meanwhile and comes next: `ptcctl config show` has what is in \
     force then";

/// The reload that is under way and the one that waits.
///
/// Who asks while one is under way is answered by the next, which reads the file after that; all who ask before it
/// begins share it.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    /// Whether one is under way.
    busy: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    busy: bool,
    closed: bool,
    next: Option<Turn>,
}

/// One reload for all who asked for it.
#[derive(Debug)]
pub(super) struct Turn {
    /// Whether the values that clients sent are forgotten as well.
    pub(super) forget_sent: bool,
    after_another: bool,
    answer: watch::Sender<Option<Done>>,
}

/// A reload that was asked for.
#[derive(Debug)]
pub(super) struct Asked {
    answer: watch::Receiver<Option<Done>>,
    /// Whether nobody takes turns now, so that somebody has to begin.
    pub(super) first: bool,
}

impl Asked {
    /// Waits for what came of it.
    pub(super) async fn answer(mut self) -> Done {
        match self.answer.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(done)) => done.clone(),
            Ok(None) | Err(_) => Done {
                ok: false,
                messages: vec![
                    "the daemon is ending: the configuration was not read again".to_owned(),
                ],
            },
        }
    }
}

impl Turns {
    /// Asks for a reload.
    pub(super) fn ask(&self, forget_sent: bool) -> Asked {
        let mut state = lock(&self.state);
        let (busy, closed) = (state.busy, state.closed);
        let turn = state.next.get_or_insert_with(|| Turn {
            forget_sent,
            after_another: busy,
            answer: watch::Sender::new(None),
        });
        turn.forget_sent |= forget_sent;
        let answer = turn.answer.subscribe();
        if closed {
            state.next = None;
        } else {
            state.busy = true;
            self.busy.send_replace(true);
        }
        Asked {
            answer,
            first: !busy && !closed,
        }
    }

    /// The next reload; with none the turns are over.
    fn next(&self) -> Option<Turn> {
        let mut state = lock(&self.state);
        let next = state.next.take().filter(|_| !state.closed);
        if next.is_none() {
            state.busy = false;
            self.busy.send_replace(false);
        }
        next
    }

    /// Tells all who asked what came of their reload.
    fn tell(&self, turn: &Turn, mut done: Done) {
        if turn.after_another {
            done.messages.push(AFTER_ANOTHER.to_owned());
        }
        if lock(&self.state).next.is_some() {
            done.messages.push(OVERTAKEN.to_owned());
        }
        turn.answer.send_replace(Some(done));
    }

    /// Begins no more reloads and waits for the one under way; false when it takes too long.
    pub(super) async fn close(&self) -> bool {
        {
            let mut state = lock(&self.state);
            state.closed = true;
            state.next = None;
        }
        let mut busy = self.busy.subscribe();
        let idle = busy.wait_for(|busy| !busy);
        tokio::time::timeout(LAST_TURN, idle).await.is_ok()
    }
}

/// Takes turns until nobody asks any more. What a reload does goes on when those who asked for it have left.
pub(super) async fn take_turns(inner: Arc<Inner>) {
    while let Some(turn) = inner.turns.next() {
        inner.manager.reloading();
        // A task of its own, so that a panic in it is an answer and the next reload is had.
        let work = tokio::spawn(Arc::clone(&inner).reload_now(turn.forget_sent));
        let done = work.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a reload failed inside the daemon");
            Done {
                ok: false,
                messages: vec![
                    "the reload failed inside the daemon; its log has the reason".to_owned(),
                ],
            }
        });
        let in_force = if done.ok {
            ""
        } else {
            "; the file has faults and is not in force"
        };
        let serving = format!("serving {}{in_force}", inner.places.socket.display());
        inner.manager.ready(&serving);
        let (ok, left_out) = (done.ok, done.messages.len().saturating_sub(MAX_LOGGED));
        let messages: Vec<&String> = done.messages.iter().take(MAX_LOGGED).collect();
        tracing::info!(ok, ?messages, left_out, "the configuration was read again");
        inner.turns.tell(&turn, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(word: &str) -> Done {
        Done {
            ok: true,
            messages: vec![word.to_owned()],
        }
    }

    #[tokio::test]
    async fn all_who_ask_during_a_reload_share_the_next_one() {
        let turns = Turns::default();
        let first = turns.ask(false);
        assert!(first.first);
        let turn = turns.next().unwrap();
        let (second, third) = (turns.ask(false), turns.ask(true));
        assert!(!second.first && !third.first);
        turns.tell(&turn, done("one"));
        assert_eq!(first.answer().await.messages, ["one", OVERTAKEN]);
        let turn = turns.next().unwrap();
        assert!(turn.forget_sent);
        turns.tell(&turn, done("two"));
        assert!(turns.next().is_none());
        for asked in [second, third] {
            assert_eq!(asked.answer().await.messages, ["two", AFTER_ANOTHER]);
        }
        assert!(turns.ask(false).first);
    }

    #[tokio::test]
    async fn who_asks_before_it_begins_shares_it_and_hears_of_no_other() {
        let turns = Turns::default();
        let (first, second) = (turns.ask(false), turns.ask(false));
        let turn = turns.next().unwrap();
        turns.tell(&turn, done("one"));
        for asked in [first, second] {
            assert_eq!(asked.answer().await.messages, ["one"]);
        }
    }

    #[tokio::test]
    async fn at_the_end_nothing_begins_and_nobody_is_kept_waiting() {
        let turns = Turns::default();
        let first = turns.ask(false);
        let turn = turns.next().unwrap();
        let second = turns.ask(false);
        let closing = turns.close();
        let ending = async {
            turns.tell(&turn, done("one"));
            assert!(turns.next().is_none());
        };
        assert!(tokio::join!(closing, ending).0);
        assert!(first.answer().await.ok);
        let late = turns.ask(false);
        assert!(!late.first);
        for asked in [second, late] {
            assert!(asked.answer().await.messages[0].starts_with("the daemon is ending"));
        }
    }
}
