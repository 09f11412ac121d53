//! The requests of one client that are under way, under its own ids and under those rmcp has for them.
//!
//! rmcp keeps ids as 64-bit numbers or strings, so it would round some and
//! refuse others. It gets numbers of ours, and the client's text is put back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ptc_protocol::envelope::Id;
use rmcp::model::ProgressToken;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Requests of one client that may be under way at once, answers it has not read among them.
pub(super) const MAX_IN_FLIGHT: usize = 64;
/// Mebibytes that answers of one client may take, from the start of their programs until they are read.
const ANSWER_ROOM: u32 = 256;
const MIB: usize = 1024 * 1024;

/// Why a request cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// Its id belongs to one that is under way.
    Twin,
    /// Too many are under way.
    Full,
}

/// The open requests of one connection.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    shared: Arc<Shared>,
    room: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    /// Told whenever a place is given back.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: i64,
    open: HashMap<i64, Open>,
    /// Answers on their way to the client.
    unread: usize,
}

impl Table {
    fn is_full(&self) -> bool {
        self.open.len() + self.unread >= MAX_IN_FLIGHT
    }

    fn is_quiet(&self) -> bool {
        self.unread == 0 && self.open.values().all(|open| open.lasting)
    }
}

#[derive(Debug)]
struct Open {
    id: Id,
    progress: Option<ProgressToken>,
    room: Option<OwnedSemaphorePermit>,
    /// Answered only when the session ends.
    lasting: bool,
}

/// An answer's place, given back when it is dropped: once the client has the answer.
#[derive(Debug)]
pub(super) struct Unread {
    shared: Arc<Shared>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Drop for Unread {
    fn drop(&mut self) {
        let mut table = lock(&self.shared.table);
        table.unread = table.unread.saturating_sub(1);
        self.shared.freed.notify_waiters();
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            shared: Arc::default(),
            room: Arc::new(Semaphore::new(ANSWER_ROOM as usize)),
        }
    }
}

impl Requests {
    /// Takes a request in; gives the number rmcp gets as its id.
    pub(super) fn open(&self, id: Id, progress: Option<ProgressToken>) -> Result<i64, NoPlace> {
        let mut table = lock(&self.shared.table);
        if table.open.values().any(|open| open.id == id) {
            return Err(NoPlace::Twin);
        }
        if table.is_full() {
            return Err(NoPlace::Full);
        }
        let number = table.next;
        table.next += 1;
        let open = Open {
            id,
            progress,
            room: None,
            lasting: false,
        };
        table.open.insert(number, open);
        Ok(number)
    }

    /// Notes that a request is a subscription, which nobody waits for.
    pub(super) fn lasts(&self, number: i64) {
        if let Some(open) = lock(&self.shared.table).open.get_mut(&number) {
            open.lasting = true;
        }
    }

    /// Waits until another request can be taken in.
    pub(super) async fn place(&self) {
        loop {
            let mut freed = std::pin::pin!(self.shared.freed.notified());
            // From here on no place is given back unnoticed.
            freed.as_mut().enable();
            if !lock(&self.shared.table).is_full() {
                return;
            }
            freed.await;
        }
    }

    /// Waits until no request is under way and every answer is read.
    pub(super) async fn idle(&self) {
        let is_idle = |table: &Table| table.open.is_empty() && table.unread == 0;
        self.until(is_idle).await;
    }

    /// The same, leaving subscriptions aside.
    pub(super) async fn quiet(&self) {
        self.until(Table::is_quiet).await;
    }

    /// Whether nobody waits for an answer now.
    pub(super) fn is_quiet(&self) -> bool {
        lock(&self.shared.table).is_quiet()
    }

    async fn until(&self, holds: impl Fn(&Table) -> bool) {
        loop {
            let mut freed = std::pin::pin!(self.shared.freed.notified());
            freed.as_mut().enable();
            if holds(&lock(&self.shared.table)) {
                return;
            }
            freed.await;
        }
    }

    /// The client's id of an open request.
    pub(super) fn id(&self, number: i64) -> Option<Id> {
        lock(&self.shared.table)
            .open
            .get(&number)
            .map(|open| open.id.clone())
    }

    /// Takes out a request that is cancelled; no answer to it is sent any more, so its id is free.
    pub(super) fn cancel(&self, id: &Id) -> Option<i64> {
        let mut table = lock(&self.shared.table);
        let number = table
            .open
            .iter()
            .find_map(|(number, open)| (open.id == *id).then_some(*number))?;
        table.open.remove(&number);
        self.shared.freed.notify_waiters();
        Some(number)
    }

    /// Takes out a request that is answered: its id, and the place its answer has until it is read.
    pub(super) fn answered(&self, number: i64) -> Option<(Id, Unread)> {
        let mut table = lock(&self.shared.table);
        let open = table.open.remove(&number)?;
        table.unread += 1;
        let unread = Unread {
            shared: Arc::clone(&self.shared),
            _room: open.room,
        };
        Some((open.id, unread))
    }

    /// Whether an open request asked for progress under this token.
    pub(super) fn wants(&self, token: &ProgressToken) -> bool {
        let table = lock(&self.shared.table);
        table
            .open
            .values()
            .any(|open| open.progress.as_ref() == Some(token))
    }

    /// Waits until an answer of at most so many bytes has room beside those the client has not read.
    /// The room is kept until its answer is read, or it is cancelled.
    pub(super) async fn reserve(&self, number: i64, bytes: usize) {
        let wanted = u32::try_from(bytes.div_ceil(MIB)).unwrap_or(ANSWER_ROOM);
        let wanted = wanted.clamp(1, ANSWER_ROOM);
        // The semaphore is never closed.
        let room = Arc::clone(&self.room).acquire_many_owned(wanted).await.ok();
        if let Some(open) = lock(&self.shared.table).open.get_mut(&number) {
            open.room = room;
        }
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> Id {
        Id::from_json(text).unwrap()
    }

    #[test]
    fn ids_keep_their_type_and_every_digit() {
        for text in [
            "1",
            "\"1\"",
            "1.0",
            "-0",
            "12345678901234567890123",
            "9007199254740993",
        ] {
            assert_eq!(id(text).to_string(), text);
            assert_eq!(id(text).value().to_string(), text);
        }
        assert_eq!(id("\"\\u0061\""), id("\"a\""));
        for text in ["null", "true", "[1]", "{}", "\"\\ud800\"", "", "01"] {
            assert_eq!(Id::from_json(text), None, "{text}");
        }
    }

    #[test]
    fn an_id_is_free_once_answered_or_cancelled_and_a_place_once_read() {
        let requests = Requests::default();
        let number = requests.open(id("1"), None).unwrap();
        assert_eq!(requests.open(id("1"), None), Err(NoPlace::Twin));
        assert!(requests.open(id("\"1\""), None).is_ok());
        let (answered, unread) = requests.answered(number).unwrap();
        assert_eq!(answered, id("1"));
        assert!(requests.answered(number).is_none());
        for n in 2..MAX_IN_FLIGHT {
            requests.open(id(&n.to_string()), None).unwrap();
        }
        assert_eq!(requests.open(id("1"), None), Err(NoPlace::Full));
        drop(unread);
        assert!(requests.open(id("1"), None).is_ok());
        assert!(requests.cancel(&id("7")).is_some());
        assert_eq!(requests.cancel(&id("7")), None);
        assert!(requests.open(id("7"), None).is_ok());
    }

    #[tokio::test]
    async fn subscriptions_are_no_reason_to_wait() {
        let requests = Requests::default();
        let subscription = requests.open(id("1"), None).unwrap();
        assert!(!requests.is_quiet());
        requests.lasts(subscription);
        requests.quiet().await;
        let call = requests.open(id("2"), None).unwrap();
        assert!(!requests.is_quiet());
        let (_, unread) = requests.answered(call).unwrap();
        assert!(!requests.is_quiet());
        drop(unread);
        assert!(requests.is_quiet());
    }

    #[tokio::test]
    async fn large_answers_wait_until_others_are_read() {
        let requests = Requests::default();
        let first = requests.open(id("1"), None).unwrap();
        let second = requests.open(id("2"), None).unwrap();
        requests.reserve(first, 200 * MIB).await;
        let waiting = tokio::spawn({
            let requests = requests.clone();
            async move { requests.reserve(second, 100 * MIB).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(requests.answered(first));
        waiting.await.unwrap();
        assert!(requests.cancel(&id("2")).is_some());
        let third = requests.open(id("3"), None).unwrap();
        requests.reserve(third, usize::MAX).await;
    }
}
