//! Adds to the record of a finished run what is known only when its worker is gone.

use std::time::Duration;

use super::call_log::{Event, Line};
use super::head::{Usage, Written};
use super::{JournalError, RunRecorder, millis};

/// A run whose record is written, and lacks only what the kernel knows.
#[derive(Debug)]
pub struct FinishedRun {
    recorder: RunRecorder,
    /// Its head as it was written.
    head: Option<Written>,
}

impl FinishedRun {
    pub(super) fn new(recorder: RunRecorder, head: Option<Written>) -> Self {
        Self { recorder, head }
    }

    /// Adds what the kernel counted once the worker was reaped.
    pub fn add_usage(&self, cpu: Duration, peak_memory_bytes: u64) -> Result<(), JournalError> {
        let usage = Usage {
            cpu_ms: millis(cpu),
            peak_memory_bytes,
        };
        let journal = &self.recorder.journal;
        journal.log.write(&Line {
            cpu_ms: Some(usage.cpu_ms),
            peak_memory_bytes: Some(usage.peak_memory_bytes),
            ..self.recorder.line(Event::Usage)
        })?;
        match &self.head {
            Some(head) => journal.store.add_usage(self.recorder.run(), head, usage),
            None => Ok(()),
        }
    }
}
