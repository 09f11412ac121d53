//! Keeps what happened in a course: counts, findings, and the runs that clients were told of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Findings that are kept; the first tell most.
const MOST: usize = 20;

/// Shared by all parties of a course.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    counts: BTreeMap<String, u64>,
    findings: Vec<String>,
    clients: usize,
    /// Runs that clients were told have finished, with the nonce of the program.
    finished: BTreeMap<String, String>,
}

impl Ledger {
    pub(super) fn count(&self, what: impl Into<String>) {
        *self.lock().counts.entry(what.into()).or_default() += 1;
    }

    pub(super) fn finding(&self, text: String) {
        let mut inner = self.lock();
        if inner.findings.len() < MOST {
            inner.findings.push(text);
        }
    }

    pub(super) fn is_bad(&self) -> bool {
        !self.lock().findings.is_empty()
    }

    /// One more client, or one less.
    pub(super) fn client(&self, comes: bool) {
        let mut inner = self.lock();
        inner.clients = if comes {
            inner.clients + 1
        } else {
            inner.clients.saturating_sub(1)
        };
    }

    pub(super) fn clients(&self) -> usize {
        self.lock().clients
    }

    pub(super) fn finished(&self, run: &str, nonce: &str) {
        self.count("programs finished");
        let before = self
            .lock()
            .finished
            .insert(run.to_owned(), nonce.to_owned());
        if let Some(before) = before {
            self.finding(format!("run {run} answered {before} and {nonce}"));
        }
    }

    pub(super) fn all_finished(&self) -> BTreeMap<String, String> {
        self.lock().finished.clone()
    }

    pub(super) fn findings(&self) -> Option<String> {
        let inner = self.lock();
        let text = inner.findings.join("\n  ");
        (!inner.findings.is_empty()).then(|| format!("findings:\n  {text}"))
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        for (what, count) in &self.lock().counts {
            let _ = writeln!(text, "{count:>9}  {what}");
        }
        text
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
