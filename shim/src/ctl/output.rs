//! Writes data to stdout, and messages to stderr.

use std::io::{self, Write as _};

use ptc_protocol::status::SCHEMA;
use serde_json::{Value, json};

use super::{Exit, visible};

/// How the command line speaks.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent flags of the command line"
)]
pub(super) struct Output {
    /// `--json`.
    pub(super) json: bool,
    /// Whether stdout takes colours.
    pub(super) color: bool,
    /// `--quiet`.
    pub(super) quiet: bool,
    /// `--verbose`.
    pub(super) verbose: bool,
}

impl Output {
    /// A message about what was done.
    pub(super) fn message(self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    /// Says why the program ends with this code: on stderr, or as JSON on stdout.
    pub(super) fn failure(self, text: &str, exit: Exit) -> Exit {
        let value = json!({ "schema": SCHEMA, "error": text, "exit": exit.code() });
        if !self.json || print_json(&value).is_err() {
            say(text);
        }
        exit
    }

    /// A message for those who asked for more.
    pub(super) fn detail(self, text: &str) {
        if self.verbose {
            say(text);
        }
    }
}

/// A message, whatever was asked for.
pub(super) fn say(text: &str) {
    // Without a stderr there is nobody to tell.
    let _ = writeln!(io::stderr(), "ptcctl: {}", visible::text(text));
}

/// Writes lines to stderr, nothing in front of them.
pub(super) fn say_plainly(text: &str) {
    // Without a stderr there is nobody to tell.
    let _ = writeln!(io::stderr(), "{}", visible::text(text.trim_end()));
}

/// Writes text to stdout, its last line ended; a reader that has gone away is no failure.
pub(super) fn print(text: &str) -> io::Result<()> {
    let end = if text.ends_with('\n') || text.is_empty() {
        ""
    } else {
        "\n"
    };
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(end.as_bytes()))
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Writes a JSON value to stdout.
pub(super) fn print_json(value: &Value) -> io::Result<()> {
    print(&visible::json(&format!("{value:#}")))
}
