//! Asks the policies whether a program may start, and records those that may not.

use ptc_protocol::facts::StartEntry;
use ptc_protocol::run::{Confinement, Ending, RunRecord};

use super::record::{epoch_ms, facts, new_run_id};
use super::second::chosen;
use super::{Engine, Parts, Request, RunError, lock};
use crate::config::EngineName;
use crate::journal::{Ended, RunStart};
use crate::policy::{Policy, StartFacts};

/// What policies say of a client's programs in an engine; `None` where none is about starts.
pub fn judge_start(
    policy: &Policy,
    engine: EngineName,
    client: &str,
    version: &str,
) -> Option<StartEntry> {
    let decision = policy.decide_start(&StartFacts {
        client,
        version,
        engine: engine.as_str(),
    })?;
    let verdict = if decision.denied.is_some() {
        "deny"
    } else {
        "allow"
    };
    Some(StartEntry {
        verdict: verdict.to_owned(),
        policies: decision.policies,
        reason: decision.denied,
        errors: decision.errors,
        rules: policy.cedar().map(|said| said.digest.to_owned()),
    })
}

impl Engine {
    /// Judges a program before it waits for a place, by the engine it would have now: what is denied takes no place and
    /// no worker. It is judged once more when it begins.
    pub(super) async fn may_wait(&self, request: &Request) -> Result<(), RunError> {
        match chosen(&self.parts(), &request.purpose) {
            Ok(parts) => self.may_start(&parts, request).await.map(drop),
            // Why there is no such engine is told by who looks for its worker.
            Err(_) => Ok(()),
        }
    }

    /// What the policies in force say of this program in these parts, for its record.
    ///
    /// # Errors
    /// That they deny it, which is recorded; or that this cannot be recorded.
    pub(super) async fn may_start(
        &self,
        parts: &Parts,
        request: &Request,
    ) -> Result<Option<StartEntry>, RunError> {
        let caller = &request.caller;
        let client = caller.client.as_deref().unwrap_or_default();
        let said = judge_start(&parts.gate.policy(), parts.engine, client, &caller.version);
        let Some(reason) = said.as_ref().and_then(|said| said.reason.clone()) else {
            return Ok(said);
        };
        let error = RunError::Denied(reason);
        let record = refusal(parts, request, said, error.to_string());
        let (engine, request) = (self.clone(), request.clone());
        let filed = tokio::task::spawn_blocking(move || engine.file_refusal(&request, &record));
        filed.await.map_err(|_| RunError::Inside)??;
        Err(error)
    }

    /// Writes it. Blocking.
    fn file_refusal(&self, request: &Request, record: &RunRecord) -> Result<(), RunError> {
        let recorder = self.inner.journal.begin(&RunStart {
            run: &record.run,
            session: &record.session,
            client: record.client.as_deref(),
            request: &request.caller.request,
            program: &request.code,
        })?;
        let ended = Ended {
            output: "",
            stdout: "",
            stderr: "",
            result: None,
        };
        recorder.finish(record, &ended)?;
        lock(&self.inner.tally).count(record, 0, chrono::Local::now());
        Ok(())
    }
}

/// The record of a program that was denied.
fn refusal(parts: &Parts, request: &Request, said: Option<StartEntry>, error: String) -> RunRecord {
    let mut facts = facts(parts, &request.caller, &request.purpose);
    facts.start = said;
    RunRecord {
        run: new_run_id(),
        session: request.caller.session.clone(),
        client: request.caller.client.clone(),
        started_ms: epoch_ms(),
        duration_ms: 0,
        ending: Ending::Refused,
        limit: None,
        confinement: parts.pool.confinement().unwrap_or(Confinement::None),
        calls: 0,
        failed_calls: 0,
        output_bytes: 0,
        result_bytes: 0,
        cpu_ms: None,
        peak_memory_bytes: None,
        error: Some(error),
        facts,
    }
}
