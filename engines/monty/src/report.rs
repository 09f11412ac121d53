//! Says what went wrong in a program, in the words a model reads: cause, program lines, hint.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use monty_types::{ExcType, MontyException, StackFrame};

use crate::frame::{AnswerError, ProgramError};
use crate::reading::Reading;
use crate::remedy::{self, sentence};
use crate::source::{NAME, Source};

/// Frames that are shown: the first and the last of very many.
const FRAMES: usize = 16;
/// Characters of a line of the program.
const LINE: usize = 300;
/// Characters of a message; the daemon cuts further.
const MESSAGE: usize = 16_000;
const REACH: &str = "programs have no network, no other processes and no files in this engine: tools are the only way to reach data.";
const RETURN: &str =
    "a program has no caller to return to: hand a value back with emit(value), or print it.";
const ASYNC_DEF: &str = "await works at the top level and inside `async def`: write `async def` there, and await its call.";
/// What the interpreter says of its own limit of time, and what a model is told.
const FEED: &str = "feed time limit exceeded";
const TIME: &str =
    "the time for one program is used up (execution.timeout_seconds); do less in one program";
const FENCE: &str = "send plain Python, without the markdown fence.";
const RECURSION: &str =
    "a function calls itself without an end, or deeper than the engine goes: write a loop.";
const SUSPEND: &str = "a tool cannot be called from inside sorted, map or a method that the interpreter calls: await the calls first, then use their values.";
const EXIT: &str = "any code but 0 counts as a failure; to end early without one, write exit().";

/// What is known of a run that errors are explained with.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    pub(crate) source: &'a Source,
    pub(crate) reading: Option<&'a Reading>,
    /// What tools failed with.
    pub(crate) errors: &'a [AnswerError],
    /// The tools, by their names.
    pub(crate) tools: &'a BTreeMap<String, Vec<String>>,
}

/// The error of a program that uses what the engine lacks, found before it ran.
pub(crate) fn of_gap(told: &str, at: usize, source: &Source) -> ProgramError {
    let line = source.number_at(at);
    let text = format!("NotImplementedError: {told}\n{}", place(line, None, source));
    ProgramError {
        class: "NotImplementedError".to_owned(),
        text: text.trim_end().to_owned(),
        line: Some(line),
        name: None,
    }
}

/// The error of a program that is no Python, though the interpreter would take it.
pub(crate) fn of_fault(message: &str, at: usize, source: &Source) -> ProgramError {
    let line = source.number_at(at);
    let hint = if message.starts_with("'return'") {
        RETURN
    } else {
        ASYNC_DEF
    };
    let text = format!(
        "SyntaxError: {message}\n{}Hint: {hint}",
        place(line, None, source)
    );
    ProgramError {
        class: "SyntaxError".to_owned(),
        text,
        line: Some(line),
        name: None,
    }
}

/// The error of a program that ended with `error`; `None` where it left with a code that means success.
pub(crate) fn of_error(error: &MontyException, known: &Known<'_>) -> Option<ProgramError> {
    let message = error.message().unwrap_or_default();
    if error.exc_type() == ExcType::SystemExit {
        return exit(message);
    }
    if error.exc_type() == ExcType::NotImplementedError && is_of_compiler(error) {
        let (construct, instead) = remedy::syntax(message);
        let line = error
            .traceback()
            .last()
            .map_or(1, |frame| known.source.number(line_of(frame)));
        let text = format!(
            "NotImplementedError: {}\n{}",
            sentence(&construct, instead),
            place(line, None, known.source)
        );
        let text = text.trim_end().to_owned();
        return Some(ProgramError {
            class: "NotImplementedError".to_owned(),
            text,
            line: Some(line),
            name: None,
        });
    }
    let class = class_of(error, known);
    let mut text = class.clone();
    let out_of_time = error.exc_type() == ExcType::TimeoutError && message.starts_with(FEED);
    let message = if out_of_time { TIME } else { message };
    if !message.is_empty() {
        text.push_str(": ");
        text.push_str(&cut(message, MESSAGE));
    }
    text.push('\n');
    let frames: Vec<&StackFrame> = error
        .traceback()
        .iter()
        .filter(|frame| frame.filename.starts_with("<python-input"))
        .collect();
    if error.exc_type() == ExcType::SyntaxError {
        if let Some(frame) = frames.last() {
            text.push_str(&syntax_place(frame, known.source));
        }
    } else if !frames.is_empty() {
        text.push_str("Traceback (most recent call last):\n");
        for (at, frame) in frames.iter().enumerate() {
            if frames.len() > FRAMES && at == FRAMES / 2 {
                let _ = writeln!(text, "  ... {} more frames ...", frames.len() - FRAMES);
            }
            if frames.len() <= FRAMES || at < FRAMES / 2 || at >= frames.len() - FRAMES / 2 {
                let line = known.source.number(line_of(frame));
                let function = frame.frame_name.as_deref().unwrap_or("<module>");
                text.push_str(&place(line, Some(function), known.source));
            }
        }
    }
    if let Some(hint) = hint(error, message, known) {
        text.push_str("Hint: ");
        text.push_str(&hint);
    }
    Some(ProgramError {
        class,
        text: text.trim_end().to_owned(),
        line: frames
            .last()
            .map(|frame| known.source.number(line_of(frame))),
        name: name_of(error, message),
    })
}

fn exit(message: &str) -> Option<ProgramError> {
    if matches!(message, "" | "0" | "None" | "False") {
        return None;
    }
    let mut text = format!("SystemExit: {}", cut(message, MESSAGE));
    if message.parse::<i64>().is_ok() {
        text.push_str("\nHint: ");
        text.push_str(EXIT);
    }
    Some(ProgramError {
        class: "SystemExit".to_owned(),
        text,
        line: None,
        name: None,
    })
}

/// Whether the program was refused as a whole: its own errors have a frame of a function or of the module.
fn is_of_compiler(error: &MontyException) -> bool {
    let message = error.message().unwrap_or_default();
    message.starts_with("The monty syntax parser does not yet support ")
        || message.starts_with("Wildcard imports ")
}

/// The class as the program knows it.
fn class_of(error: &MontyException, known: &Known<'_>) -> String {
    let of_tool = error.exc_type() == ExcType::OSError
        && known
            .errors
            .iter()
            .any(|one| Some(one.message.as_str()) == error.message());
    if of_tool {
        "ToolError".to_owned()
    } else {
        error.exc_type().to_string()
    }
}

fn line_of(frame: &StackFrame) -> usize {
    usize::try_from(frame.start.line).unwrap_or(1)
}

fn place(line: usize, function: Option<&str>, source: &Source) -> String {
    let within = function.map_or_else(String::new, |function| format!(", in {function}"));
    let shown = cut(source.line(line).trim(), LINE);
    if shown.is_empty() {
        format!("  File \"{NAME}\", line {line}{within}\n")
    } else {
        format!("  File \"{NAME}\", line {line}{within}\n    {shown}\n")
    }
}

/// The place of a text that is no Python, with a mark under the fault where its line is short.
fn syntax_place(frame: &StackFrame, source: &Source) -> String {
    let line = source.number(line_of(frame));
    let whole = source.line(line);
    let indent = whole.chars().count() - whole.trim_start().chars().count();
    let mut text = place(line, None, source);
    let column = usize::try_from(frame.start.column)
        .unwrap_or(1)
        .saturating_sub(1)
        .saturating_sub(indent);
    if whole.chars().count() <= LINE && frame.start.line == frame.end.line {
        let width = usize::try_from(frame.end.column.saturating_sub(frame.start.column))
            .unwrap_or(1)
            .clamp(1, LINE);
        let _ = writeln!(text, "    {}{}", " ".repeat(column), "^".repeat(width));
    }
    text
}

fn name_of(error: &MontyException, message: &str) -> Option<String> {
    if error.exc_type() != ExcType::NameError {
        return None;
    }
    let rest = message.strip_prefix("name '")?;
    Some(rest.split('\'').next()?.to_owned())
}

fn hint(error: &MontyException, message: &str, known: &Known<'_>) -> Option<String> {
    match error.exc_type() {
        ExcType::SyntaxError if known.source.begins_with_fence() => Some(FENCE.to_owned()),
        ExcType::RecursionError => Some(RECURSION.to_owned()),
        ExcType::NotImplementedError if message.contains("suspend") => Some(SUSPEND.to_owned()),
        ExcType::RuntimeError if message.contains("not supported in this environment") => {
            Some(REACH.to_owned())
        }
        ExcType::NameError => name_hint(&name_of(error, message)?, known),
        ExcType::TypeError | ExcType::AttributeError
            if message.contains("'coroutine'") || message.contains("Future") =>
        {
            Some(
                "a tool's call has no value before it is awaited: write await before it."
                    .to_owned(),
            )
        }
        ExcType::AttributeError => missing_method(message),
        ExcType::ModuleNotFoundError => Some(
            "the engine has part of the standard library only; engine: cpython has all of it."
                .to_owned(),
        ),
        _ => None,
    }
}

fn name_hint(name: &str, known: &Known<'_>) -> Option<String> {
    if monty::builtin_module_names().contains(&name) {
        return Some(format!("write `import {name}` first."));
    }
    let bound = known
        .reading
        .is_some_and(|reading| reading.bound.contains(name));
    let end = format!("__{name}");
    let full = known.tools.keys().find(|tool| tool.ends_with(&end))?;
    (!bound && !name.starts_with("mcp__"))
        .then(|| format!("tools are called by their full names: write await {full}(...)."))
}

/// Methods that Python has and the interpreter may not.
fn missing_method(message: &str) -> Option<String> {
    const METHODS: [&str; 14] = [
        "translate",
        "maketrans",
        "bit_length",
        "bit_count",
        "expandtabs",
        "format_map",
        "casefold",
        "as_integer_ratio",
        "to_bytes",
        "from_bytes",
        "isidentifier",
        "isprintable",
        "fromkeys",
        "__name__",
    ];
    let name = message.rsplit('\'').nth(1)?;
    METHODS
        .contains(&name)
        .then(|| sentence(&format!("{name} of this kind of value"), ""))
}

/// A text with its end left out where it is too long.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}
