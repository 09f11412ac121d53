//! What is wrong with a configuration file, each fault with its place.

use std::fmt;
use std::path::PathBuf;

/// Longest message of one fault, in characters.
const MAX_MESSAGE: usize = 400;

/// Where something stands in the file; both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Line.
    pub(super) line: usize,
    /// Column, in characters.
    pub(super) column: usize,
}

/// One fault of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Line from 1; 0 when the fault is the file's as a whole.
    pub line: usize,
    /// Column from 1, in characters; 0 when the fault is the file's as a whole.
    pub column: usize,
    /// One line: what is wrong and what to write.
    pub message: String,
}

impl Fault {
    /// A fault at `place`; control characters in the message are made visible.
    pub(super) fn at(place: Place, message: &str) -> Self {
        Self {
            line: place.line,
            column: place.column,
            message: one_line(message),
        }
    }

    /// A fault of the file as a whole.
    pub(super) fn of_file(message: &str) -> Self {
        Self {
            line: 0,
            column: 0,
            message: one_line(message),
        }
    }
}

/// Every fault of one configuration file, in the file's order.
///
/// It displays one fault a line, `FILE:LINE:COLUMN: message`, or
/// `FILE: message` where no line is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFaults {
    /// The file.
    pub path: PathBuf,
    /// Its faults; never empty.
    pub faults: Vec<Fault>,
}

impl ConfigFaults {
    /// The faults as [`fmt::Display`] shows them, one text each.
    pub fn lines(&self) -> Vec<String> {
        let path = self.path.display();
        self.faults
            .iter()
            .map(|fault| match fault.line {
                0 => format!("{path}: {}", fault.message),
                line => format!("{path}:{line}:{}: {}", fault.column, fault.message),
            })
            .collect()
    }
}

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

impl std::error::Error for ConfigFaults {}

/// The text on one line, its control characters visible and its length bounded.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for (count, c) in text.chars().enumerate() {
        if count == MAX_MESSAGE {
            line.push('…');
            break;
        }
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// A value of the file as a message shows it: quoted, at most 40 characters.
pub(super) fn shown(text: &str) -> String {
    if text.chars().count() > 40 {
        let head: String = text.chars().take(40).collect();
        format!("{head:?}…")
    } else {
        format!("{text:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_display_one_a_line_with_file_line_and_column() {
        let place = Place { line: 3, column: 5 };
        let faults = ConfigFaults {
            path: "/c/config.yaml".into(),
            faults: vec![
                Fault::at(place, "two\nlines \u{1b}[0m"),
                Fault::of_file("gone"),
            ],
        };
        assert_eq!(
            faults.to_string(),
            "/c/config.yaml:3:5: two\\nlines \\u{1b}[0m\n/c/config.yaml: gone"
        );
    }

    #[test]
    fn long_texts_are_cut() {
        assert!(one_line(&"ä".repeat(1000)).chars().count() < 410);
        assert_eq!(shown(&"x".repeat(50)), format!("\"{}\"…", "x".repeat(40)));
    }
}
