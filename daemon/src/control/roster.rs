//! The sessions that are connected now.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ptc_protocol::status::ClientStatus;
use ptc_protocol::{BUILD, Hello, SessionId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::session::Live;

/// Characters shown of a client's label.
const MAX_NAME: usize = 64;

/// Knows every connected session by its id.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    sessions: Arc<Mutex<HashMap<SessionId, Entry>>>,
    /// Told whenever one has left.
    left: Arc<Notify>,
    /// When the last one left.
    last_left: Arc<Mutex<Option<Instant>>>,
}

#[derive(Clone, Debug)]
struct Entry {
    name: Arc<Mutex<String>>,
    pid: u32,
    build: String,
    end: CancellationToken,
    /// Cancelled when the connection has left.
    left: CancellationToken,
    /// Tells a connection from one that replaced it.
    serial: u64,
}

/// One session's place in the roster, left when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    roster: Roster,
    session: SessionId,
    serial: u64,
    /// The name shown for this client.
    pub(super) name: Arc<Mutex<String>>,
    /// Ends this connection.
    pub(super) end: CancellationToken,
    gone: CancellationToken,
}

impl Roster {
    /// Seats a session. One with the same id that is still there is ended: its
    /// shim has come back on another connection. What is cancelled when that one has left comes with the seat.
    pub(super) fn seat(
        &self,
        hello: &Hello,
        end: CancellationToken,
    ) -> (Seat, Option<CancellationToken>) {
        let name = hello.client.as_deref().map_or_else(unnamed, shown);
        let name = Arc::new(Mutex::new(name));
        let mut sessions = lock(&self.sessions);
        let before = sessions.remove(&hello.session);
        let serial = before.as_ref().map_or(0, |entry| entry.serial + 1);
        let before = before.map(|before| {
            before.end.cancel();
            before.left
        });
        let gone = CancellationToken::new();
        let entry = Entry {
            name: Arc::clone(&name),
            pid: hello.pid,
            build: hello.build.clone(),
            end: end.clone(),
            left: gone.clone(),
            serial,
        };
        sessions.insert(hello.session, entry);
        let seat = Seat {
            roster: self.clone(),
            session: hello.session,
            serial,
            name,
            end,
            gone,
        };
        (seat, before)
    }

    /// Waits until no session is connected.
    pub async fn empty(&self) {
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            left.as_mut().enable();
            if lock(&self.sessions).is_empty() {
                return;
            }
            left.await;
        }
    }

    /// Whether a session is connected, and when the last one left; nothing where none has yet.
    pub fn use_of(&self) -> (bool, Option<Instant>) {
        let connected = !lock(&self.sessions).is_empty();
        (connected, *lock(&self.last_left))
    }

    /// The connected clients, by process id.
    pub fn clients(&self, live: &Live) -> Vec<ClientStatus> {
        let mut clients: Vec<_> = lock(&self.sessions)
            .iter()
            .map(|(session, entry)| {
                let label = session.label();
                ClientStatus {
                    name: lock(&entry.name).clone(),
                    runs: live.get(&label).copied().unwrap_or_default(),
                    session: label,
                    pid: entry.pid,
                    other_build: (entry.build != BUILD).then(|| entry.build.clone()),
                }
            })
            .collect();
        clients.sort_by_key(|client| client.pid);
        clients
    }
}

fn unnamed() -> String {
    "unnamed".to_owned()
}

/// A label as it is shown and kept in records, whatever a client calls itself.
fn shown(label: &str) -> String {
    let plain = label.chars().filter(|c| !c.is_control());
    plain.take(MAX_NAME).collect()
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.gone.cancel();
        let mut sessions = lock(&self.roster.sessions);
        if sessions
            .get(&self.session)
            .is_some_and(|entry| entry.serial == self.serial)
        {
            sessions.remove(&self.session);
            *lock(&self.roster.last_left) = Some(Instant::now());
            self.roster.left.notify_waiters();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(byte: u8, pid: u32) -> Hello {
        Hello {
            protocol: [1, 1],
            build: BUILD.to_owned(),
            session: SessionId::from_random([byte; 16]),
            client: None,
            cwd: None,
            project_dir: None,
            client_session: None,
            pid,
            config: None,
            renews: false,
        }
    }

    #[test]
    fn a_label_is_shown_short_and_without_what_steers_a_terminal() {
        let roster = Roster::default();
        let mut hello = hello(1, 10);
        hello.client = Some(format!("ed\u{1b}[31m\n{}", "x".repeat(100_000)));
        let _seat = roster.seat(&hello, CancellationToken::new());
        let name = &roster.clients(&Live::new())[0].name;
        assert_eq!(*name, format!("ed[31m{}", "x".repeat(58)));
    }

    #[test]
    fn a_session_that_comes_back_replaces_its_old_connection() {
        let roster = Roster::default();
        let (first, _) = roster.seat(&hello(1, 10), CancellationToken::new());
        let (other, _) = roster.seat(&hello(2, 11), CancellationToken::new());
        let (again, before) = roster.seat(&hello(1, 10), CancellationToken::new());
        let before = before.unwrap();
        assert!(!before.is_cancelled());
        assert!(first.end.is_cancelled());
        assert!(!other.end.is_cancelled() && !again.end.is_cancelled());
        drop(first);
        assert!(before.is_cancelled());
        let pids: Vec<_> = roster.clients(&Live::new()).iter().map(|c| c.pid).collect();
        assert_eq!(pids, [10, 11]);
        assert_eq!(roster.use_of(), (true, None));
        drop(again);
        assert!(matches!(roster.use_of(), (true, Some(_))));
        assert_eq!(roster.clients(&Live::new()).len(), 1);
    }
}
