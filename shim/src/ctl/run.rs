//! `ptcctl run`: runs one program, through an MCP session like any client's.

use std::io::{self, Read as _};
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Args;
use ptc_protocol::route;
use ptc_protocol::run::Ending;
use ptc_protocol::status::{SCHEMA, Status};
use serde_json::{Map, Value, json};

use super::mcp::Session;
use super::output::{print, print_json, say_plainly};
use super::run_text::Parts;
use super::{Context, Exit};

/// Longest program, in bytes: the daemon takes no longer one.
const MAX_PROGRAM_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The program's file, or - for stdin
    file: PathBuf,
    /// What runs it, where the configuration offers a choice (execution.engines)
    #[arg(long, value_name = "NAME", value_parser = ["cpython", "monty"])]
    engine: Option<String>,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let code = read_program(arguments)?;
    let Some(answer) = Session::open(context)
        .await?
        .execute(&code, arguments.engine.as_deref())
        .await?
    else {
        return Ok(context.output.failure("cancelled", Exit::Failure));
    };
    let structured = structured(&answer);
    if context.output.json {
        print_json(&as_json(&answer, structured))?;
    } else {
        let parts = Parts::of(&text_of(&answer), structured);
        print(&parts.output)?;
        let about = parts.about(context.output.quiet);
        if !about.is_empty() {
            say_plainly(&about);
        }
    }
    ended(context, &answer).await
}

/// The structured content of an answer.
pub(super) fn structured(answer: &Value) -> Option<&Map<String, Value>> {
    answer.get("structuredContent").and_then(Value::as_object)
}

/// How the program ends after this answer.
pub(super) async fn ended(context: &Context, answer: &Value) -> anyhow::Result<Exit> {
    let failed = answer.get("isError") == Some(&Value::Bool(true));
    let ending = structured(answer).and_then(|structured| structured.get("ending"));
    let ending = ending.and_then(|ending| serde_json::from_value(ending.clone()).ok());
    let exit = exit_of(ending, failed);
    if exit == Exit::Failure && ending == Some(Ending::Refused) && refuses_programs(context).await {
        return Ok(Exit::NoSandbox);
    }
    Ok(exit)
}

fn read_program(arguments: &Arguments) -> anyhow::Result<String> {
    let file = &arguments.file;
    let mut bytes = Vec::new();
    let read = if file.as_os_str() == "-" {
        io::stdin()
            .lock()
            .take(MAX_PROGRAM_BYTES + 1)
            .read_to_end(&mut bytes)
    } else {
        let open = std::fs::File::open(file);
        open.and_then(|file| file.take(MAX_PROGRAM_BYTES + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    ensure!(
        bytes.len() as u64 <= MAX_PROGRAM_BYTES,
        "the program has more than {MAX_PROGRAM_BYTES} bytes"
    );
    String::from_utf8(bytes).with_context(|| format!("{} is not valid UTF-8", file.display()))
}

/// Whether the daemon has no sandbox to run programs in.
async fn refuses_programs(context: &Context) -> bool {
    let Ok(peer) = context.connect().await else {
        return false;
    };
    let status = peer.get::<Status>(route::STATUS).await;
    status.is_ok_and(|status| status.programs.confinement.is_none())
}

fn exit_of(ending: Option<Ending>, failed: bool) -> Exit {
    match ending {
        Some(Ending::TimedOut) => Exit::TimedOut,
        Some(
            Ending::Finished
            | Ending::ScriptError
            | Ending::Cancelled
            | Ending::Killed
            | Ending::Refused,
        )
        | None
            if failed =>
        {
            Exit::Failure
        }
        Some(_) | None => Exit::Ok,
    }
}

/// Every text block, one after the other.
pub(super) fn text_of(answer: &Value) -> String {
    let blocks = answer.get("content").and_then(Value::as_array);
    let blocks = blocks.into_iter().flatten();
    let texts = blocks.filter_map(|block| block.get("text")?.as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// The structured content, or what there is without it, with its schema number.
pub(super) fn as_json(answer: &Value, structured: Option<&Map<String, Value>>) -> Value {
    let mut object = Map::from_iter([("schema".to_owned(), json!(SCHEMA))]);
    if let Some(structured) = structured {
        object.extend(structured.clone());
    } else {
        let ok = answer.get("isError") != Some(&Value::Bool(true));
        let text = text_of(answer);
        object.insert("ok".to_owned(), json!(ok));
        if !ok {
            object.insert("error".to_owned(), json!(Parts::of(&text, None).error));
        }
        object.insert("text".to_owned(), json!(text));
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_follows_the_ending() {
        for (ending, failed, want) in [
            (Some(Ending::Finished), false, Exit::Ok),
            (Some(Ending::ScriptError), true, Exit::Failure),
            (Some(Ending::Killed), true, Exit::Failure),
            (Some(Ending::TimedOut), true, Exit::TimedOut),
            (None, true, Exit::Failure),
            (None, false, Exit::Ok),
        ] {
            assert_eq!(exit_of(ending, failed), want, "{ending:?}");
        }
    }

    #[test]
    fn without_structured_content_the_text_is_the_json() {
        let answer = json!({
            "content": [{ "type": "text", "text": "a" }, { "type": "image" }, { "type": "text", "text": "b" }],
            "isError": true,
        });
        let want = json!({ "schema": 1, "ok": false, "error": "a\nb", "text": "a\nb" });
        assert_eq!(as_json(&answer, None), want);
        let structured = Map::from_iter([("ok".to_owned(), json!(true))]);
        let want = json!({ "schema": 1, "ok": true });
        assert_eq!(as_json(&answer, Some(&structured)), want);
    }
}
