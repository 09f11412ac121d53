//! What the socket shows of finished runs, and their replays.

use std::pin::Pin;

use ptc_protocol::detail::{CallEntry, Replay, RunDetail};
use ptc_protocol::status::{SCHEMA, Totals};

use super::{App, Inner};
use crate::engine::output::head;
use crate::engine::replay::{ReplayError, not_replayable};
use crate::journal::JournalError;
use crate::session::{Host, json_head, provenance_of};

/// Most calls, bytes of output and characters of a call's arguments that are shown of one run; its resources have more.
const MAX_CALLS: usize = 2000;
const MAX_OUTPUT: usize = 1024 * 1024;
const MAX_ARGUMENTS: usize = 2000;
/// Most bytes of JSON of a run's output that are shown where it is wanted whole: those who ask take no longer answers
/// than 16 MiB.
const MAX_WHOLE: usize = 12 * 1024 * 1024;

/// A call without its result, its arguments bounded.
fn bare(entry: CallEntry) -> CallEntry {
    let arguments = entry.arguments.as_deref();
    CallEntry {
        arguments: arguments.map(|text| text.chars().take(MAX_ARGUMENTS).collect()),
        result: None,
        data: None,
        seal: None,
        ..entry
    }
}

impl App {
    /// The socket's path.
    pub fn socket(&self) -> String {
        self.inner.places.socket.display().to_string()
    }

    /// Counts since the start.
    pub fn totals(&self) -> Totals {
        self.inner.engine.totals()
    }
}

impl Inner {
    /// What sessions work with.
    pub(super) fn host(&self) -> Host {
        Host {
            engine: self.engine.clone(),
            registry: self.registry.clone(),
            journal: self.journal.clone(),
            face: self.face.subscribe(),
        }
    }

    /// One finished run in full; `None` where it is not kept. Blocking; may be large.
    pub(super) fn run_detail(
        &self,
        run: &str,
        whole: bool,
    ) -> Result<Option<RunDetail>, JournalError> {
        let Some(stored) = self.journal.run(run)? else {
            return Ok(None);
        };
        let not_replayable = not_replayable(&stored);
        let provenance = provenance_of(&stored);
        let calls = stored.parts.calls.into_iter().take(MAX_CALLS);
        let result = stored.parts.result.as_deref();
        let output = stored.parts.output.as_deref();
        Ok(Some(RunDetail {
            schema: SCHEMA,
            provenance,
            not_replayable,
            calls: calls.map(bare).collect(),
            program: stored.parts.program,
            output: output.map(|text| {
                let most = if whole {
                    json_head(text, MAX_WHOLE)
                } else {
                    MAX_OUTPUT
                };
                head(text, most).to_owned()
            }),
            result: result.and_then(|text| serde_json::from_str(text).ok()),
            record: stored.record,
        }))
    }

    /// Repeats a run from its record.
    pub(super) fn repeat(
        &self,
        run: String,
        code: Option<String>,
    ) -> Pin<Box<dyn Future<Output = Result<Replay, ReplayError>> + Send + '_>> {
        let engine = self.engine.clone();
        Box::pin(async move { engine.replay(&run, code).await })
    }
}
