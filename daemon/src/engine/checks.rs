//! What is run for inspection and for submissions: how often a session may, and the record of a submission.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ptc_protocol::facts::{RunKind, Submission};
use ptc_protocol::run::{Ending, RunRecord};

use super::call::millis;
use super::output::TRUNCATED;
use super::record::{epoch_ms, facts, new_run_id};
use super::{Caller, Engine, Parts, Purpose, RunError};
use crate::config::ExecutionConfig;
use crate::journal::{Ended, Journal, RunStart};
use crate::pool::Pool;

/// Sessions whose use is remembered; of more, the first one is forgotten.
const MAX_SESSIONS: usize = 4096;

/// Where inspections and submissions run, where their limits are not those of other programs.
#[derive(Clone, Debug)]
pub struct Checks {
    /// Workers under these limits.
    pub pool: Pool,
    /// The limits.
    pub limits: ExecutionConfig,
}

/// How often each session inspected and submitted.
#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    by_session: BTreeMap<String, BTreeMap<&'static str, u64>>,
    order: VecDeque<String>,
}

impl Budgets {
    /// Takes one of `most`; gives how many are left, or nothing where none was.
    fn take(&self, session: &str, kind: RunKind, most: u64) -> Option<u64> {
        let mut used = self.lock();
        if !used.by_session.contains_key(session) {
            used.order.push_back(session.to_owned());
            if used.order.len() > MAX_SESSIONS
                && let Some(first) = used.order.pop_front()
            {
                used.by_session.remove(&first);
            }
        }
        let kinds = used.by_session.entry(session.to_owned()).or_default();
        let count = kinds.entry(kind.as_str()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(most - *count)
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A submission in the making: its id stands in the records of its programs.
#[derive(Debug)]
pub struct Filing {
    /// The id of its own record.
    pub run: String,
    started_ms: u64,
    started: Instant,
}

impl Default for Filing {
    fn default() -> Self {
        Self {
            run: new_run_id(),
            started_ms: epoch_ms(),
            started: Instant::now(),
        }
    }
}

/// What a submission came to.
#[derive(Clone, Debug)]
pub struct Filed {
    /// Its programs, as JSON text.
    pub programs: String,
    /// What each of them printed, as its answer had it.
    pub outputs: Vec<String>,
    /// Its deliverable, as JSON text.
    pub deliverable: String,
    /// What the checks gave.
    pub facts: Submission,
}

impl Engine {
    /// Takes one of the session's work calls or submissions; gives how many are left, or nothing where none was.
    pub fn take_check(&self, session: &str, kind: RunKind, most: u64) -> Option<u64> {
        self.inner.budgets.take(session, kind, most)
    }

    /// Writes the record of a whole submission, beside those of its programs. Blocking.
    ///
    /// # Errors
    /// That it cannot be recorded; it must not be accepted then.
    pub fn file(&self, filing: &Filing, caller: &Caller, filed: &Filed) -> Result<(), RunError> {
        let parts = self.parts();
        let journal = &self.inner.journal;
        let output: String = filed
            .outputs
            .iter()
            .map(|text| settled(journal, text))
            .collect();
        let recorder = journal.begin(&RunStart {
            run: &filing.run,
            session: &caller.session,
            client: caller.client.as_deref(),
            request: &caller.request,
            program: &filed.programs,
        })?;
        let purpose = Purpose {
            kind: RunKind::Submission,
            part_of: None,
            engine: None,
        };
        let mut facts = facts(&parts, caller, &purpose);
        facts.submission = Some(filed.facts.clone());
        let record = RunRecord {
            run: filing.run.clone(),
            session: caller.session.clone(),
            client: caller.client.clone(),
            started_ms: filing.started_ms,
            duration_ms: millis(filing.started.elapsed()),
            ending: if filed.facts.passed {
                Ending::Finished
            } else {
                Ending::ScriptError
            },
            limit: None,
            confinement: parts
                .pool
                .confinement()
                .unwrap_or(ptc_protocol::run::Confinement::None),
            calls: 0,
            failed_calls: 0,
            output_bytes: output.len() as u64,
            result_bytes: 0,
            cpu_ms: None,
            peak_memory_bytes: None,
            error: None,
            facts,
        };
        let ended = Ended {
            output: &output,
            stdout: &output,
            stderr: "",
            result: Some(&filed.deliverable),
        };
        recorder.finish(&record, &ended)?;
        Ok(())
    }
}

/// An output that may have been cut, without what may be the first half of a secret at the cut.
fn settled(journal: &Journal, output: &str) -> String {
    match output.rfind(TRUNCATED) {
        Some(at) => {
            let (text, note) = output.split_at(at);
            format!("{}{note}", journal.settled(text.trim_end_matches('\n')))
        }
        None => output.to_owned(),
    }
}

/// The parts in force for a run: those of checks where it is one and they have their own.
pub(super) fn parts_for(parts: &Arc<Parts>, purpose: &Purpose) -> Arc<Parts> {
    match &parts.checks {
        Some(checks) if purpose.kind != RunKind::Program => Arc::new(Parts {
            limits: checks.limits.clone(),
            pool: checks.pool.clone(),
            ..Parts::clone(parts)
        }),
        _ => Arc::clone(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_its_own_count_of_each_kind() {
        let budgets = Budgets::default();
        let take = |session: &str, kind| budgets.take(session, kind, 2);
        assert_eq!(take("a", RunKind::Inspection), Some(1));
        assert_eq!(take("a", RunKind::Submission), Some(1));
        assert_eq!(take("a", RunKind::Inspection), Some(0));
        assert_eq!(take("a", RunKind::Inspection), None);
        assert_eq!(take("b", RunKind::Inspection), Some(1));
        for n in 0..MAX_SESSIONS {
            take(&format!("s{n}"), RunKind::Inspection);
        }
        assert_eq!(take("a", RunKind::Inspection), Some(1));
        assert!(budgets.lock().by_session.len() <= MAX_SESSIONS);
    }
}
