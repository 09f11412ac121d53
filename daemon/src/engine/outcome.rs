//! What a run came to: its ending in words, for the client and for the record.

use std::fmt::Write as _;
use std::time::Duration;

use ptc_protocol::facts::Steps;
use ptc_protocol::run::{CallRecord, Confinement, Ending};
use serde_json::Value;

use super::Parts;
use super::output::{head, middle_cut, visible};
use super::run::{End, Gathered};
use super::streams::Streams;
use crate::journal::RunRecorder;
use crate::pool::frame::{Done, Place, ProgramError};
use crate::pool::{Exit, MAX_SCRATCH_DEPTH, MAX_SCRATCH_ENTRIES};

/// Most characters of an error text.
const MAX_ERROR: usize = 7000;

/// The code with which the runtime leaves when its channel is gone.
const LOST_CHANNEL: i32 = 70;
/// What may have crashed an interpreter.
const CRASH: &str = "very deep recursion and ctypes can do that: do it another way";

/// Most notes of one answer.
const MAX_NOTES: usize = 20;
/// Beginnings of the runtime's hints that say already how calls are awaited.
const AWAITING_HINTS: [&str; 6] = [
    "\nHint: it has no value before it is awaited: ",
    "\nHint: gather takes the calls one by one: ",
    "\nHint: await takes one call, not a list of them: ",
    "\nHint: wait takes tasks: ",
    "\nHint: a future is awaited, not looped over: ",
    "\nHint: it is not done yet: write await ",
];
/// The habit of a notebook, which shows the value of a last line.
const UNPRINTED: &str = "the value of the last line is not printed: write print(...) or emit(...)";

/// What a client is told about one run.
#[derive(Debug)]
pub struct Outcome {
    /// The run's id; `None` when it never started.
    pub run: Option<String>,
    /// How it ended.
    pub ending: Ending,
    /// Which limit ended it.
    pub limit: Option<&'static str>,
    /// What was printed, cut to `max_output_bytes`.
    pub output: String,
    /// The last emitted value.
    pub emitted: Option<Value>,
    /// Why it is no success.
    pub error: Option<String>,
    /// Its calls, in the order of their ends.
    pub calls: Vec<CallRecord>,
    /// Calls that are not in `calls`.
    pub omitted_calls: u64,
    /// Calls made.
    pub total_calls: u64,
    /// Calls that failed.
    pub failed_calls: u64,
    /// Wall clock.
    pub duration: Duration,
    /// The tier; `None` when programs are refused.
    pub confinement: Option<Confinement>,
    /// What the client should know although nothing failed by it.
    pub notes: Vec<String>,
    /// What it printed, its two streams apart.
    pub streams: Streams,
    /// The steps of its own code, where they were counted.
    pub steps: Option<Steps>,
}

impl Outcome {
    pub(super) fn new(
        run: String,
        judged: Judged,
        mut gathered: Gathered,
        output: String,
        duration: Duration,
        confinement: Confinement,
    ) -> Self {
        let told = judged.error.as_deref().unwrap_or_default();
        let mut notes = match &gathered.end {
            End::Done(done) => notes(done, told),
            _ => Vec::new(),
        };
        if let End::Done(done) = &gathered.end
            && done.unprinted
            && output.trim().is_empty()
            && gathered.emitted.is_none()
        {
            notes.push(UNPRINTED.to_owned());
        }
        notes.extend(gathered.notes);
        notes.truncate(MAX_NOTES);
        Self {
            run: Some(run),
            ending: judged.ending,
            limit: judged.limit,
            output,
            emitted: gathered.emitted,
            error: judged.error,
            calls: gathered.calls,
            omitted_calls: gathered.omitted,
            total_calls: gathered.total,
            failed_calls: gathered.failed,
            duration,
            confinement: Some(confinement),
            notes,
            streams: std::mem::take(&mut gathered.output.streams),
            steps: judged.steps,
        }
    }

    pub(super) fn refused(error: String, ending: Ending, confinement: Option<Confinement>) -> Self {
        Self {
            run: None,
            ending,
            limit: None,
            output: String::new(),
            emitted: None,
            error: Some(error),
            calls: Vec::new(),
            omitted_calls: 0,
            total_calls: 0,
            failed_calls: 0,
            duration: Duration::ZERO,
            confinement,
            notes: Vec::new(),
            streams: Streams::default(),
            steps: None,
        }
    }

    /// Whether the program came to its end without an error.
    pub fn ok(&self) -> bool {
        self.error.is_none()
    }
}

/// Names the calls that were never awaited, those left out that the error explains, and counts the tasks.
fn notes(done: &Done, error: &str) -> Vec<String> {
    let names = done.unawaited.iter().map(|name| visible(head(name, 200)));
    let running = match done.running {
        0 => None,
        1 => Some("1 task was still running at the end and was stopped: await it".to_owned()),
        many => Some(format!(
            "{many} tasks were still running at the end and were stopped: await them"
        )),
    };
    names
        .filter(|name| !error.contains(&format!("{name}(...) is async: write await")))
        .filter(|_| !AWAITING_HINTS.iter().any(|hint| error.contains(hint)))
        .take(MAX_NOTES)
        .map(|name| {
            if done.eager {
                format!(
                    "{name}(...) was never awaited: it was cancelled at the end and may have acted; write await {name}(...)"
                )
            } else {
                format!("{name}(...) was never awaited, so it did not run: write await {name}(...)")
            }
        })
        .chain(running)
        .collect()
}

/// An ending in words.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) ending: Ending,
    pub(super) limit: Option<&'static str>,
    pub(super) error: Option<String>,
    /// The error as it came, not yet cut.
    pub(super) whole: Option<String>,
    /// The steps of its own code, where they were counted.
    pub(super) steps: Option<Steps>,
}

impl Judged {
    /// The error as its record has it: masked, then cut, for a cut before could leave the half of a secret.
    pub(super) fn recorded(&self, recorder: &RunRecorder) -> Option<String> {
        let whole = self.whole.as_deref()?;
        Some(told(&recorder.mask(whole)))
    }
}

/// An error as it is told: safe to show and not too long.
fn told(error: &str) -> String {
    middle_cut(&visible(error), MAX_ERROR)
}

/// Names the ending of a run. `exit` is there when the process ended by itself, `stopped`
/// says that the daemon is at the end of its patience with runs.
pub(super) fn judge(
    gathered: &Gathered,
    exit: Option<&Exit>,
    parts: &Parts,
    stopped: bool,
) -> Judged {
    let (ending, limit, error) = match &gathered.end {
        End::Done(done) => of_done(done, parts),
        End::TimedOut(place) => {
            let text = timed_out(parts.limits.timeout, place.as_ref());
            (Ending::TimedOut, Some("timeout_seconds"), Some(text))
        }
        End::Cancelled if stopped => (
            Ending::Cancelled,
            Some("drain_seconds"),
            Some("cancelled: ptcd was stopped and its patience with runs is over (daemon.drain_seconds)".to_owned()),
        ),
        End::Cancelled => (
            Ending::Cancelled,
            None,
            Some("the run was cancelled".to_owned()),
        ),
        End::Corrupted(error) => {
            let text = format!("killed: the program corrupted its tool channel ({error})");
            (Ending::Killed, None, Some(text))
        }
        End::Died => died(exit, parts),
    };
    Judged {
        ending,
        limit,
        error: error.as_deref().map(told),
        whole: error,
        steps: steps(&gathered.end, parts),
    }
}

/// The steps that the program's own interpreter counted; where it was ended from outside nobody knows.
fn steps(end: &End, parts: &Parts) -> Option<Steps> {
    let End::Done(done) = end else { return None };
    Some(Steps {
        used: done.steps?,
        budget: parts.limits.step_budget?,
        stopped: done.steps_stopped,
        advisory: true,
    })
}

fn of_done(done: &Done, parts: &Parts) -> (Ending, Option<&'static str>, Option<String>) {
    if done.ok {
        return (Ending::Finished, None, None);
    }
    let Some(error) = &done.error else {
        return (
            Ending::ScriptError,
            None,
            Some("the program failed without a word".to_owned()),
        );
    };
    let limit = if error.class == "MemoryError" {
        Some("memory_bytes")
    } else if done.steps_stopped && error.class == "StepBudgetExceeded" {
        Some("step_budget")
    } else {
        fills_scratch(error).then_some("scratch_bytes")
    };
    let mut text = error.text.trim_end().to_owned();
    for line in hints(error, parts) {
        text.push_str("\nHint: ");
        text.push_str(&line);
    }
    (Ending::ScriptError, limit, Some(text))
}

/// Whether scratch, or one file in it, has no more room.
fn fills_scratch(error: &ProgramError) -> bool {
    // ENOSPC and EFBIG.
    error.class == "OSError"
        && ["[Errno 28]", "[Errno 27]"]
            .iter()
            .any(|code| error.text.contains(code))
}

/// What only the daemon knows about an error: near names, states of servers, limits.
fn hints(error: &ProgramError, parts: &Parts) -> Vec<String> {
    let mut hints = Vec::new();
    if error.class == "MemoryError" {
        hints.push(memory_limit(parts));
    }
    if fills_scratch(error) {
        hints.push(format!(
            "scratch has room for {} bytes (execution.scratch_bytes); remove files that are done with, or keep the \
             data in memory",
            parts.limits.scratch_bytes
        ));
    }
    if let Some(name) = error
        .name
        .as_deref()
        .filter(|name| name.starts_with("mcp__"))
        // A name that stood in the program as it was sent explains itself.
        .filter(|name| {
            !error
                .text
                .contains(&format!("name '{name}' is not defined: "))
        })
    {
        hints.extend(parts.answers.hint(name));
    }
    hints
}

fn timed_out(limit: Duration, place: Option<&Place>) -> String {
    let mut text = format!("timed out after {} s", seconds(limit));
    match place {
        Some(Place { line, function }) => {
            let _ = write!(text, " at line {line}");
            if function != "<module>" {
                let _ = write!(text, " in {function}");
            }
        }
        None => text.push_str(", line unknown"),
    }
    text.push_str(" (execution.timeout_seconds); do less in one program, or have the limit raised");
    text
}

fn seconds(duration: Duration) -> String {
    if duration.subsec_millis() == 0 {
        duration.as_secs().to_string()
    } else {
        format!("{:.1}", duration.as_secs_f64())
    }
}

fn died(exit: Option<&Exit>, parts: &Parts) -> (Ending, Option<&'static str>, Option<String>) {
    let Some(exit) = exit else {
        let text = "killed: the program closed its tool channel and did not end".to_owned();
        return (Ending::Killed, None, Some(text));
    };
    if exit.scratch_exceeded {
        let text = format!(
            "killed: scratch limit ({} bytes, {MAX_SCRATCH_ENTRIES} files, {MAX_SCRATCH_DEPTH} levels of folders; execution.scratch_bytes)",
            parts.limits.scratch_bytes
        );
        return (Ending::Killed, Some("scratch_bytes"), Some(text));
    }
    let text = match (exit.code, exit.signal) {
        (Some(LOST_CHANNEL), _) => format!(
            "the program closed its tool channel (descriptor 3), or left with code {LOST_CHANNEL}; close only what \
             the program opened"
        ),
        (Some(code), _) => format!(
            "the interpreter exited with code {code} before finishing; to end early, write sys.exit()"
        ),
        (None, Some(9)) if exit.cpu >= parts.limits.timeout => {
            let text = format!("killed: CPU limit ({} s)", seconds(parts.limits.timeout));
            return (Ending::Killed, Some("timeout_seconds"), Some(text));
        }
        (None, Some(9)) if exit.peak_memory_bytes >= parts.limits.memory_bytes => {
            let text = format!("killed: {}", memory_limit(parts));
            return (Ending::Killed, Some("memory_bytes"), Some(text));
        }
        (None, Some(9)) => killed(exit),
        (None, Some(31)) => "killed: forbidden system call".to_owned(),
        // Where a program may signal nobody, not even itself, abort() ends in a fault.
        (None, Some(11)) => {
            format!("the interpreter crashed (SIGSEGV, signal 11; abort() ends so, too); {CRASH}")
        }
        (None, Some(signal)) => match signal_name(signal) {
            Some(name) => format!("the interpreter crashed ({name}, signal {signal}); {CRASH}"),
            None => format!("the interpreter was killed by signal {signal}"),
        },
        (None, None) => "killed: its process was lost".to_owned(),
    };
    (Ending::Killed, None, Some(text))
}

/// A SIGKILL of which nobody here knows.
fn killed(exit: &Exit) -> String {
    // Of a worker whose warden is gone nothing was counted.
    if exit.peak_memory_bytes == 0 {
        return "killed: the process that watches over programs (ptcd warden) has ended, and its programs with it; \
                the next program gets a new one"
            .to_owned();
    }
    format!(
        "killed by signal 9 (SIGKILL); no limit of execution was reached: it held at most {} MiB and used {} s of \
         processor time",
        exit.peak_memory_bytes.div_ceil(1024 * 1024),
        seconds(Duration::from_millis(
            u64::try_from(exit.cpu.as_millis()).unwrap_or(u64::MAX)
        )),
    )
}

fn memory_limit(parts: &Parts) -> String {
    format!(
        "memory limit {} MiB (execution.memory_bytes); keep less at once, for example by working through \
         results one after the other",
        parts.limits.memory_bytes / (1024 * 1024)
    )
}

fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_names_the_limit_and_the_place() {
        let place = Place {
            line: 12,
            function: "fetch_all".to_owned(),
        };
        assert_eq!(
            timed_out(Duration::from_mins(2), Some(&place)),
            "timed out after 120 s at line 12 in fetch_all (execution.timeout_seconds); \
             do less in one program, or have the limit raised"
        );
        let place = Place {
            line: 3,
            function: "<module>".to_owned(),
        };
        assert_eq!(
            timed_out(Duration::from_millis(1500), Some(&place)),
            "timed out after 1.5 s at line 3 (execution.timeout_seconds); \
             do less in one program, or have the limit raised"
        );
        assert_eq!(
            timed_out(Duration::from_secs(2), None),
            "timed out after 2 s, line unknown (execution.timeout_seconds); \
             do less in one program, or have the limit raised"
        );
    }
}
