//! `ptcctl replay`: repeats a run from its record, and says where it parts from it.

use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use ptc_protocol::detail::{Replay, Verdict};
use ptc_protocol::route;
use ptc_protocol::run::Ending;

use super::output::{print, print_json, say_plainly};
use super::words::{count, plain};
use super::{Context, Exit, request};
use crate::connect::ConnectError;

/// How long a replay is waited for; the run's own limits end it long before.
const LIMIT: Duration = Duration::from_hours(2);
/// Longest program, in bytes.
const MAX_PROGRAM_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The run, as `ptcctl runs` names it
    run: String,
    /// Run this file against the recorded results, in place of the recorded program (- for stdin)
    #[arg(long, value_name = "FILE")]
    edit: Option<PathBuf>,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let code = match &arguments.edit {
        Some(file) => read(file)?,
        None => String::new(),
    };
    let path = request(route::REPLAY, &[("id", &arguments.run)])?;
    let peer = context.connect_awake().await?;
    let replay = match peer.post_text::<Replay>(&path, code, LIMIT).await {
        Ok(replay) => replay,
        Err(ConnectError::Status { status: 409, body }) => {
            return Ok(context.output.failure(&body, Exit::Failure));
        }
        Err(error) => bail!(error),
    };
    if context.output.json {
        print_json(&serde_json::to_value(&replay)?)?;
    } else {
        show(&replay)?;
    }
    Ok(exit_of(&replay))
}

fn read(file: &PathBuf) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let limit = MAX_PROGRAM_BYTES + 1;
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        let open = std::fs::File::open(file);
        open.and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    let shown = file.display();
    ensure!(!bytes.is_empty(), "{shown} is empty");
    let size = bytes.len() as u64;
    ensure!(
        size <= MAX_PROGRAM_BYTES,
        "{shown} has more than {MAX_PROGRAM_BYTES} bytes"
    );
    String::from_utf8(bytes).with_context(|| format!("{shown} is not valid UTF-8"))
}

/// What changed code printed goes to stdout, everything about it to stderr; a verdict is data itself.
fn show(replay: &Replay) -> anyhow::Result<()> {
    let about = about(replay).join("\n");
    if !replay.edited {
        print(&about)?;
        return Ok(());
    }
    print(&replay.output)?;
    if let Some(result) = &replay.result {
        print(&format!("{result:#}"))?;
    }
    say_plainly(&about);
    Ok(())
}

fn about(replay: &Replay) -> Vec<String> {
    let (made, answered) = replay.calls;
    let mut lines: Vec<String> = replay
        .error
        .iter()
        .filter(|_| replay.edited)
        .cloned()
        .collect();
    lines.extend(
        replay
            .differences
            .iter()
            .map(|text| format!("- {}", plain(text))),
    );
    lines.extend(
        replay
            .depends_on
            .iter()
            .filter(|_| replay.verdict == Verdict::NotReproducible)
            .map(|text| format!("- it depends on {}", plain(text))),
    );
    lines.extend(
        replay
            .notes
            .iter()
            .map(|text| format!("note: {}", plain(text))),
    );
    let calls = count(made, "call");
    lines.push(match replay.verdict {
        Verdict::Same => format!("same: output, result and {calls} are those of the record"),
        Verdict::Different => "different: it parts from its record as said above".to_owned(),
        Verdict::NotReproducible => {
            "not reproducible: it depends on what no record can give again".to_owned()
        }
        Verdict::Edited => format!(
            "{}: {calls}, {answered} answered from the record; no server was called",
            replay.ending.as_str()
        ),
    });
    lines
}

fn exit_of(replay: &Replay) -> Exit {
    let well = match replay.verdict {
        Verdict::Same => true,
        Verdict::Edited => replay.ending == Ending::Finished && replay.differences.is_empty(),
        Verdict::Different | Verdict::NotReproducible => false,
    };
    if well { Exit::Ok } else { Exit::Failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(verdict: Verdict, differences: &[&str]) -> Replay {
        Replay {
            schema: 1,
            run: "r1".to_owned(),
            edited: verdict == Verdict::Edited,
            verdict,
            differences: differences.iter().map(|&text| text.to_owned()).collect(),
            depends_on: vec!["the clock (time.time, line 3)".to_owned()],
            notes: Vec::new(),
            ending: Ending::Finished,
            error: None,
            output: String::new(),
            result: None,
            calls: (2, 1),
        }
    }

    #[test]
    fn the_last_line_is_the_verdict_and_the_code_follows_it() {
        for (verdict, differences, last, exit) in [
            (
                Verdict::Same,
                &[][..],
                "same: output, result and 2 calls",
                Exit::Ok,
            ),
            (Verdict::Different, &["x"], "different: ", Exit::Failure),
            (
                Verdict::NotReproducible,
                &["x"],
                "not reproducible: ",
                Exit::Failure,
            ),
            (
                Verdict::Edited,
                &[],
                "finished: 2 calls, 1 answered",
                Exit::Ok,
            ),
            (Verdict::Edited, &["x"], "finished: ", Exit::Failure),
        ] {
            let replay = replay(verdict, differences);
            let lines = about(&replay);
            assert!(lines.last().unwrap().starts_with(last), "{lines:?}");
            assert_eq!(exit_of(&replay), exit);
            let told = lines.iter().any(|line| line.contains("the clock"));
            assert_eq!(told, verdict == Verdict::NotReproducible);
        }
    }
}
