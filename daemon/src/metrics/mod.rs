//! Counts what the daemon does and writes it, with its state, as Prometheus text.
//!
//! Labels hold names of configured servers and values of enums of this program, never what a
//! client, a tool or a program chose: the number of series is bounded by the configuration.

pub mod process;
mod sheet;

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};
use ptc_protocol::run::{Ending, ToolErrorKind};
use ptc_protocol::status::Status;

use self::sheet::Sheet;

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;
/// Upper bounds of the buckets for runs and calls, in seconds.
const BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// A metric of this program is not as the library wants it.
    #[error("a metric cannot be made or written")]
    Library(#[from] prometheus::Error),
}

/// What the daemon counts while it works. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    runs: IntCounterVec,
    run_seconds: HistogramVec,
    calls: IntCounterVec,
    failures: IntCounterVec,
    call_seconds: HistogramVec,
}

/// What the status does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// Workers that became ready since the pool was made.
    pub workers_started: u64,
    /// Workers that did not.
    pub workers_failed: u64,
    /// Bytes on disk that the journal counts as its own.
    pub journal_bytes: u64,
    /// Lines and files that could not be written since the start.
    pub journal_failures: u64,
}

impl Metrics {
    /// Counters at zero.
    pub fn new() -> Result<Self, MetricsError> {
        let counters =
            |name, help, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let seconds = |name, help, labels: &[&str]| {
            let options = HistogramOpts::new(name, help).buckets(BUCKETS.to_vec());
            HistogramVec::new(options, labels)
        };
        let metrics = Self {
            registry: Registry::new(),
            runs: counters(
                "ptcd_runs_total",
                "Programs by how they ended.",
                &["ending"],
            )?,
            run_seconds: seconds(
                "ptcd_run_duration_seconds",
                "Wall clock of programs that ran.",
                &[],
            )?,
            calls: counters(
                "ptcd_calls_total",
                "Tool calls of programs by server; no server where the tool is unknown.",
                &["server"],
            )?,
            failures: counters(
                "ptcd_call_failures_total",
                "Tool calls that failed, by server and kind of failure.",
                &["server", "kind"],
            )?,
            call_seconds: seconds(
                "ptcd_call_duration_seconds",
                "Tool calls from the program's request to its answer, by server.",
                &["server"],
            )?,
        };
        for ending in [
            Ending::Finished,
            Ending::ScriptError,
            Ending::TimedOut,
            Ending::Cancelled,
            Ending::Killed,
            Ending::Refused,
        ] {
            metrics.runs.with_label_values(&[ending.as_str()]);
        }
        let Self { registry, .. } = &metrics;
        registry.register(Box::new(metrics.runs.clone()))?;
        registry.register(Box::new(metrics.run_seconds.clone()))?;
        registry.register(Box::new(metrics.calls.clone()))?;
        registry.register(Box::new(metrics.failures.clone()))?;
        registry.register(Box::new(metrics.call_seconds.clone()))?;
        Ok(metrics)
    }

    /// A program has ended after `took`; `None` for one that never started.
    pub fn run_ended(&self, ending: Ending, took: Option<Duration>) {
        self.runs.with_label_values(&[ending.as_str()]).inc();
        if let Some(took) = took {
            let none: &[&str] = &[];
            self.run_seconds
                .with_label_values(none)
                .observe(took.as_secs_f64());
        }
    }

    /// A call has ended. `server` is a configured one's name, or empty where the tool is unknown.
    pub fn call_ended(&self, server: &str, failure: Option<ToolErrorKind>, took: Duration) {
        self.calls.with_label_values(&[server]).inc();
        if let Some(kind) = failure {
            self.failures
                .with_label_values(&[server, kind.as_str()])
                .inc();
        }
        self.call_seconds
            .with_label_values(&[server])
            .observe(took.as_secs_f64());
    }

    /// Everything that was counted, and the daemon's state, in the text format 0.0.4.
    ///
    /// # Errors
    /// The library refuses a metric of this program.
    pub fn text(&self, status: &Status, extra: &Extra) -> Result<String, MetricsError> {
        let mut families = self.registry.gather();
        families.extend(Sheet::of(status, extra)?.gather());
        families.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(TextEncoder::new().encode_to_string(&families)?)
    }
}

#[cfg(test)]
mod tests;
