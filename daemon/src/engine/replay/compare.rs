//! Says where a repeated run parts from its record.

use ptc_protocol::run::Ending;

use super::super::output::{MAX_RECORDED, head, middle_cut, visible};
use crate::journal::StoredRun;
use crate::registry::same_data;

/// Most characters of a line in a difference.
const MAX_LINE: usize = 160;

/// What a repeated run gave, masked as its record is.
#[derive(Debug)]
pub(super) struct Repeated {
    pub(super) ending: Ending,
    pub(super) error: Option<String>,
    pub(super) output: String,
    pub(super) result: Option<String>,
    pub(super) made: u64,
    pub(super) answered: u64,
    /// Where its calls part from the recorded ones.
    pub(super) differences: Vec<String>,
    /// Recorded calls and results that are not the ones of the run.
    pub(super) changed: Vec<String>,
    pub(super) python: Option<String>,
}

impl Repeated {
    pub(super) fn checked(mut self, changed: Vec<String>) -> Self {
        self.changed = changed;
        self
    }
}

/// Every difference, the calls' first; of changed code only the calls are compared.
pub(super) fn compare(stored: &StoredRun, now: &Repeated, edited: bool) -> Vec<String> {
    let mut found = now.changed.clone();
    found.extend(now.differences.iter().cloned());
    if edited {
        // A call that changed code does not make any more is no fault.
        found.retain(|text| !text.ends_with("was not made"));
        return found;
    }
    let record = &stored.record;
    if record.calls != now.made {
        found.push(format!(
            "{} calls were made, and {} are now",
            record.calls, now.made
        ));
    }
    if record.ending != now.ending {
        found.push(format!(
            "it ended as {}, and now as {}",
            record.ending.as_str(),
            now.ending.as_str()
        ));
    } else if first_part(record.error.as_deref()) != first_part(now.error.as_deref()) {
        found.push(format!(
            "the error was {}, and is {}",
            one_line(record.error.as_deref().unwrap_or("none")),
            one_line(now.error.as_deref().unwrap_or("none"))
        ));
    }
    let recorded = stored.parts.output.as_deref().unwrap_or_default();
    let output = head(&now.output, MAX_RECORDED);
    if recorded != output {
        found.push(output_difference(recorded, output));
    }
    let same_result = match (stored.parts.result.as_deref(), now.result.as_deref()) {
        (None, None) => true,
        (Some(before), Some(now)) => same_data(before, now),
        _ => false,
    };
    if !same_result {
        found.push(format!(
            "the result was {}, and is {}",
            one_line(stored.parts.result.as_deref().unwrap_or("none")),
            one_line(now.result.as_deref().unwrap_or("none"))
        ));
    }
    if !stored.intact {
        found.push(
            "the record on disk is not the one that was written (its hash differs)".to_owned(),
        );
    }
    found
}

/// An error without the hints, which go by what is there now.
fn first_part(error: Option<&str>) -> Option<&str> {
    error.map(|text| text.split("\nHint: ").next().unwrap_or(text))
}

fn output_difference(before: &str, now: &str) -> String {
    let mut lines = before.lines().zip(now.lines()).enumerate();
    let first = lines.find(|(_, (before, now))| before != now);
    match first {
        Some((at, (before, now))) => format!(
            "line {} of the output was {}, and is {}",
            at + 1,
            one_line(before),
            one_line(now)
        ),
        None => format!(
            "the output had {} bytes, and has {}",
            before.len(),
            now.len()
        ),
    }
}

fn one_line(text: &str) -> String {
    let shown = middle_cut(&visible(text), MAX_LINE).replace('\n', " ");
    format!("`{shown}`")
}
