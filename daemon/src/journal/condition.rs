//! Remembers whether the journal could be written when that was last tried.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::JournalError;

/// Which part of the journal a write was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The call log.
    Log,
    /// The files of runs.
    Runs,
}

/// What became of the latest writes.
#[derive(Debug, Default)]
pub(super) struct Condition {
    failures: AtomicU64,
    faults: Mutex<Faults>,
}

/// Why the latest write to each place failed, if it did.
#[derive(Debug, Default)]
struct Faults {
    log: Option<String>,
    runs: Option<String>,
}

impl Faults {
    fn of(&mut self, place: Place) -> &mut Option<String> {
        match place {
            Place::Log => &mut self.log,
            Place::Runs => &mut self.runs,
        }
    }
}

impl Condition {
    /// Counts what could not be written, and keeps why until the same place takes something again.
    pub(super) fn note<T>(&self, place: Place, written: &Result<T, JournalError>) {
        let fault = written.as_ref().err().map(ToString::to_string);
        if fault.is_some() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        *self.lock().of(place) = fault;
    }

    /// A try that records nothing: not counted.
    pub(super) fn tried(&self, place: Place, written: Result<(), JournalError>) {
        *self.lock().of(place) = written.err().map(|error| error.to_string());
    }

    /// Whether the latest write to this place failed.
    pub(super) fn is_faulty(&self, place: Place) -> bool {
        self.lock().of(place).is_some()
    }

    /// Why something cannot be written.
    pub(super) fn fault(&self) -> Option<String> {
        let faults = self.lock();
        faults.log.clone().or_else(|| faults.runs.clone())
    }

    /// What could not be written, since the start.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
