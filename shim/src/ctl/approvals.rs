//! `ptcctl approvals`: shows the calls that wait for a person, and answers one.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use ptc_protocol::approval::{Waiting, WaitingList};
use ptc_protocol::route;

use super::output::{print, print_json};
use super::words::{plain, span};
use super::{Context, Exit, reload, request};

/// Most characters of the arguments that are shown.
const MAX_SHOWN: usize = 4000;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the calls that wait (the default)
    List,
    /// Let a call be made; asks at the terminal
    Allow {
        /// The call, as the list names it
        id: String,
        /// Allow every further call of the tool by the same program, too
        #[arg(long)]
        tool: bool,
    },
    /// Deny a call; asks at the terminal
    Deny {
        /// The call, as the list names it
        id: String,
    },
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    match &arguments.verb {
        None | Some(Verb::List) => list(context).await,
        Some(Verb::Allow { id, tool: false }) => answer(context, id, "once", "allow it once").await,
        Some(Verb::Allow { id, tool: true }) => {
            let what = "allow this tool for the rest of the program";
            answer(context, id, "tool", what).await
        }
        Some(Verb::Deny { id }) => answer(context, id, "deny", "deny it").await,
    }
}

async fn list(context: &Context) -> anyhow::Result<Exit> {
    let list: WaitingList = context.connect().await?.get(route::APPROVALS).await?;
    if context.output.json {
        print_json(&serde_json::to_value(&list)?)?;
        return Ok(Exit::Ok);
    }
    if list.waiting.is_empty() {
        context.output.message("no call waits for a person");
    }
    for waiting in &list.waiting {
        print(&told(waiting))?;
    }
    Ok(Exit::Ok)
}

/// Answers after a yes that was typed at the terminal: what runs without one is no person.
async fn answer(context: &Context, id: &str, word: &str, what: &str) -> anyhow::Result<Exit> {
    let list: WaitingList = context.connect().await?.get(route::APPROVALS).await?;
    let Some(waiting) = list.waiting.iter().find(|waiting| waiting.id == id) else {
        let text = format!("no call waits as {id}: `ptcctl approvals` lists those that do");
        return Ok(context.output.failure(&text, Exit::Failure));
    };
    if !confirmed(&format!("{}\n{what}? Type yes: ", told(waiting)))? {
        return Ok(context
            .output
            .failure("nothing was answered", Exit::Failure));
    }
    let path = request(route::APPROVALS_ANSWER, &[("id", id), ("answer", word)])?;
    reload::tell(context, &path).await
}

fn confirmed(question: &str) -> anyhow::Result<bool> {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty");
    let mut terminal =
        terminal.context("this asks at the terminal (/dev/tty), and there is none")?;
    terminal.write_all(question.as_bytes())?;
    terminal.flush()?;
    let mut line = String::new();
    BufReader::new(terminal).read_line(&mut line)?;
    Ok(line.trim() == "yes")
}

fn told(waiting: &Waiting) -> String {
    let mut arguments: String = waiting.arguments.chars().take(MAX_SHOWN).collect();
    if arguments.len() < waiting.arguments.len() {
        arguments = format!(
            "{arguments} [cut: {} bytes in all]",
            waiting.arguments.len()
        );
    }
    let reason = match waiting.reason.as_str() {
        "" => String::new(),
        reason => format!("\n    why: {}", plain(reason)),
    };
    format!(
        "{}  {} ({}), asked by a program of {}, run {}, {} ago{reason}\n    {}",
        plain(&waiting.id),
        plain(&waiting.tool),
        plain(&waiting.effect),
        plain(&waiting.client),
        plain(&waiting.run),
        span(waiting.waits_seconds),
        plain(&arguments),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_waits_is_told_whole_and_steers_no_terminal() {
        let waiting = Waiting {
            id: "0a1b2c3d".to_owned(),
            run: "r1".to_owned(),
            client: "editor".to_owned(),
            tool: "mcp__a__b".to_owned(),
            server: "a".to_owned(),
            effect: "write".to_owned(),
            reason: "it costs".to_owned(),
            arguments: "{\"a\":\"\u{202e}\"}".to_owned(),
            waits_seconds: 5,
        };
        let text = told(&waiting);
        assert!(
            text.starts_with(
                "0a1b2c3d  mcp__a__b (write), asked by a program of editor, run r1, 5s ago\n"
            ),
            "{text}"
        );
        assert!(
            text.contains("why: it costs") && !text.contains('\u{202e}'),
            "{text}"
        );
        let long = Waiting {
            arguments: "x".repeat(5000),
            reason: String::new(),
            ..waiting
        };
        assert!(told(&long).contains("[cut: 5000 bytes in all]"));
    }
}
