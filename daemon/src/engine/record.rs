//! The record of one run: opened before it, written before its answer, completed after its worker.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ptc_protocol::facts::{Facts, Limits, StartEntry};
use ptc_protocol::run::{Confinement, RunRecord};

use super::admission::Lender;
use super::call::millis;
use super::outcome::Judged;
use super::output::OutputBuffer;
use super::run::Gathered;
use super::{Caller, Parts, Purpose, Request, RunError};
use crate::config::ExecutionConfig;
use crate::journal::{Ended, FinishedRun, Journal, RunRecorder, RunStart};
use crate::pool::{Busy, Exit, Worker};

/// A run whose begin is recorded.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) run: String,
    started_ms: u64,
    pub(super) recorder: RunRecorder,
    /// Its place among the programs, while it waits for a person.
    pub(super) lender: Lender,
    facts: Facts,
}

impl Opened {
    /// Records that a run begins; without that it does not.
    pub(super) fn begin(
        journal: &Journal,
        request: &Request,
        parts: &Parts,
        (lender, start): (Lender, Option<StartEntry>),
    ) -> Result<Self, RunError> {
        let run = new_run_id();
        let started_ms = epoch_ms();
        let recorder = journal.begin(&RunStart {
            run: &run,
            session: &request.caller.session,
            client: request.caller.client.as_deref(),
            request: &request.caller.request,
            program: &request.code,
        })?;
        Ok(Self {
            run,
            started_ms,
            recorder,
            lender,
            facts: Facts {
                start,
                ..facts(parts, &request.caller, &request.purpose)
            },
        })
    }

    /// The record, without what only the kernel knows.
    pub(super) fn record(
        &self,
        caller: Caller,
        gathered: &Gathered,
        judged: &Judged,
        duration: Duration,
        confinement: Confinement,
    ) -> RunRecord {
        RunRecord {
            run: self.run.clone(),
            session: caller.session,
            client: caller.client,
            started_ms: self.started_ms,
            duration_ms: millis(duration),
            ending: judged.ending,
            limit: judged.limit.map(str::to_owned),
            confinement,
            calls: gathered.total,
            failed_calls: gathered.failed,
            output_bytes: gathered.output.total(),
            result_bytes: gathered.result_bytes,
            cpu_ms: None,
            peak_memory_bytes: None,
            error: judged.recorded(&self.recorder),
            facts: Facts {
                steps: judged.steps,
                ..self.facts.clone()
            },
        }
    }
}

/// How long an answer waits for its record to be on disk.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);

/// What is known of every run of these parts.
pub(super) fn facts(parts: &Parts, caller: &Caller, purpose: &Purpose) -> Facts {
    Facts {
        kind: purpose.kind,
        part_of: purpose.part_of.clone(),
        project: caller.project.clone(),
        model: caller.model.clone(),
        ptcd: Some(ptc_protocol::BUILD.to_owned()),
        engine: Some(parts.engine.as_str().to_owned()),
        python: parts.pool.python(),
        limits: Some(limits(&parts.limits)),
        ..Facts::default()
    }
}

fn limits(limits: &ExecutionConfig) -> Limits {
    Limits {
        timeout_ms: millis(limits.timeout),
        max_output_bytes: limits.max_output_bytes as u64,
        max_tool_calls: limits.max_tool_calls,
        max_concurrent_calls: limits.max_concurrent_calls as u64,
        tool_call_timeout_ms: millis(limits.tool_call_timeout),
        max_tool_result_bytes: limits.max_tool_result_bytes as u64,
        memory_bytes: limits.memory_bytes,
        scratch_bytes: limits.scratch_bytes,
        max_threads: limits.max_threads,
    }
}

/// What a run gave, for its record.
#[derive(Debug)]
pub(super) struct Given {
    output: OutputBuffer,
    result: Option<String>,
}

impl Given {
    pub(super) fn of(gathered: &Gathered) -> Self {
        Self {
            output: gathered.output.clone(),
            result: gathered.emitted.as_ref().map(ToString::to_string),
        }
    }

    /// What of it the record has once it is masked. May be large.
    fn ended<'a>(&'a self, recorder: &RunRecorder) -> Ended<'a> {
        let streams = &self.output.streams;
        Ended {
            output: self.output.settled(recorder),
            stdout: streams.stdout().settled(recorder),
            stderr: streams.stderr().settled(recorder),
            result: self.result.as_deref(),
        }
    }
}

/// Writes a run's record before its answer goes; an answer does not wait for ever for a disk.
pub(super) async fn write(
    recorder: RunRecorder,
    record: RunRecord,
    given: Given,
) -> Option<FinishedRun> {
    let writing = tokio::task::spawn_blocking(move || {
        let ended = given.ended(&recorder);
        recorder.finish(&record, &ended)
    });
    match tokio::time::timeout(RECORD_TIMEOUT, writing).await {
        Ok(Ok(Ok(finished))) => Some(finished),
        Ok(Ok(Err(error))) => {
            tracing::error!(%error, "the record of a run could not be written");
            None
        }
        Ok(Err(_)) | Err(_) => {
            tracing::error!("the record of a run was not written in time");
            None
        }
    }
}

/// Reaps the worker after the answer has gone and appends what only the kernel knows.
pub(super) async fn close(
    mut worker: Worker,
    busy: Busy,
    exit: Option<Exit>,
    finished: Option<FinishedRun>,
) {
    let exit = match exit {
        Some(exit) => Some(exit),
        None => worker.exited().await,
    };
    drop(worker);
    drop(busy);
    let (Some(exit), Some(finished)) = (exit, finished) else {
        return;
    };
    let added = move || finished.add_usage(exit.cpu, exit.peak_memory_bytes);
    if let Ok(Err(error)) = tokio::task::spawn_blocking(added).await {
        tracing::error!(%error, "a run's use of the machine could not be recorded");
    }
}

/// A run's id: its start in base 36, so that ids sort by time, and 40 random bits.
pub(super) fn new_run_id() -> String {
    let mut random = [0_u8; 5];
    if getrandom::fill(&mut random).is_err() {
        // Ids need only be told apart; the clock's nanoseconds do for that.
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .subsec_nanos();
        random[..4].copy_from_slice(&nanos.to_le_bytes());
    }
    let mut left = epoch_ms();
    let mut digits = Vec::new();
    while left > 0 {
        let digit = u32::try_from(left % 36).unwrap_or_default();
        digits.push(char::from_digit(digit, 36).unwrap_or('0'));
        left /= 36;
    }
    let time: String = digits.iter().rev().collect();
    format!("r{time}-{}", ptc_protocol::hex(&random))
}

pub(super) fn epoch_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ptc_protocol::run::Ending;
    use serde_json::Value;

    use super::super::output::{MAX_RECORDED, Pipe};
    use super::*;
    use crate::config::Config;
    use crate::config::mask::Masker;

    const SECRET: &str = "s3cr3t-of-the-test";

    fn journal(folder: &std::path::Path) -> Journal {
        let masker = Masker::with_key([5; 32], &BTreeMap::new());
        masker.register("TOKEN", SECRET);
        Journal::open(&Config::default().journal, folder, masker).unwrap()
    }

    fn recorder(journal: &Journal) -> RunRecorder {
        let start = RunStart {
            run: "r1",
            session: "abc123",
            client: None,
            request: &Value::Null,
            program: "",
        };
        journal.begin(&start).unwrap()
    }

    #[test]
    fn a_cut_through_a_secret_leaves_no_half_of_it_in_the_record() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path());
        let recorder = recorder(&journal);
        for (most, pipe) in [(MAX_RECORDED, Pipe::Stdout), (64 * 1024, Pipe::Stderr)] {
            let mut output = OutputBuffer::default();
            output.push(pipe, &"x".repeat(most - 9));
            output.push(pipe, SECRET);
            output.push(pipe, "and more");
            let given = Given {
                output,
                result: None,
            };
            let ended = given.ended(&recorder);
            for text in [ended.output, ended.stdout, ended.stderr] {
                let masked = recorder.mask(text);
                assert!(!masked.contains("s3cr3t"), "{:?}", masked.get(most - 40..));
            }
            let cut = match pipe {
                Pipe::Stdout => ended.output,
                Pipe::Stderr => ended.stderr,
            };
            assert_eq!(cut.len(), most - 9);
        }
        let mut output = OutputBuffer::default();
        output.push(Pipe::Stdout, "what ends like a secret begins: s3cr3t-of");
        let given = Given {
            output,
            result: None,
        };
        assert!(given.ended(&recorder).output.ends_with("s3cr3t-of"));
        assert!(given.ended(&recorder).stdout.ends_with("s3cr3t-of"));
    }

    #[test]
    fn an_error_is_masked_before_it_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = recorder(&journal(folder.path()));
        let long = SECRET.repeat(2000);
        let judged = Judged {
            ending: Ending::ScriptError,
            limit: None,
            error: None,
            whole: Some(format!("ValueError: {long}")),
            steps: None,
        };
        let kept = judged.recorded(&recorder).unwrap();
        assert!(kept.contains("<TOKEN:") && kept.contains("left out"));
        assert!(!kept.contains("s3cr3t"), "{kept}");
        assert!(kept.chars().count() <= 7000);
    }
}
