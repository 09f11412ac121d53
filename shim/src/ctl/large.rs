//! The result of `ptcctl call` that is larger than an answer may be: taken from the record of its run.

use std::time::Duration;

use ptc_protocol::detail::RunDetail;
use ptc_protocol::route;
use serde_json::{Value, json};

use super::call::shown;
use super::output::{print, print_json};
use super::run::{as_json, structured, text_of};
use super::words::plain;
use super::{Context, Exit, request};

/// What stands in an answer's text before what the program emitted.
const RESULT: &str = "\n--- result ---\n";
/// What names the record in an answer's text.
const RECORD: &str = "ptc://runs/";
/// How long the daemon may take to read a record of some mebibytes.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a call gave a result and the program printed it, for it could not be emitted.
pub(super) fn is_in(answer: &Value) -> bool {
    let failed = answer.get("isError") == Some(&Value::Bool(true));
    let emitted = match structured(answer) {
        Some(structured) => structured.get("emitted") == Some(&Value::Bool(true)),
        // A line break in the result itself is written as `\n`.
        None => text_of(answer).contains(RESULT),
    };
    !failed && !emitted
}

/// Shows the result as the record has it, or says that the call was made and why its result is not there.
pub(super) async fn show(context: &Context, tool: &str, answer: &Value) -> anyhow::Result<Exit> {
    let found = match run_of(answer) {
        Some(run) => recorded(context, &run).await.map(|value| (run, value)),
        None => Err("no record of it is kept (journal.record)".to_owned()),
    };
    let (run, value) = match found {
        Ok(found) => found,
        Err(why) => {
            let text = format!(
                "{tool} was called and gave a result, which cannot be shown: it is over the limit of \
                 execution.max_output_bytes, and {why}. Calling again makes the call again: have a program take what \
                 you need of the result (`ptcctl run`), or give the key a higher value"
            );
            return Ok(context.output.failure(&text, Exit::Failure));
        }
    };
    let from = format!(
        "the result is over the limit of execution.max_output_bytes and was taken from the record of run {}, where \
         values of secrets are masked",
        plain(&run)
    );
    context.output.message(&from);
    if context.output.json {
        let mut object = as_json(answer, structured(answer));
        for (key, part) in [
            ("emitted", json!(true)),
            ("output", json!("")),
            ("result", value),
            ("from_record", json!(true)),
        ] {
            object[key] = part;
        }
        print_json(&object)?;
    } else {
        print(&shown(&value))?;
    }
    Ok(Exit::Ok)
}

/// The id of the run: without structured content it stands where the text says that the output is cut.
fn run_of(answer: &Value) -> Option<String> {
    if let Some(run) = structured(answer).and_then(|structured| structured.get("run")) {
        return run.as_str().map(str::to_owned);
    }
    let text = text_of(answer);
    let (_, rest) = text.rsplit_once(RECORD)?;
    let (run, _) = rest.split_once('/')?;
    Some(run.to_owned())
}

/// What the program printed, as its run's record has it.
async fn recorded(context: &Context, run: &str) -> Result<Value, String> {
    let path = request(route::RUN, &[("id", run), ("whole", "true")]);
    let path = path.map_err(|error| error.to_string())?;
    let peer = context.connect().await.map_err(|error| error.to_string())?;
    let detail: Result<RunDetail, _> = peer.get_within(&path, READ_TIMEOUT).await;
    let detail = detail
        .map_err(|error| format!("the record of run {} is not to be had: {error}", plain(run)))?;
    value_of(&detail)
}

/// The result in a record; one that is not whole is none.
fn value_of(detail: &RunDetail) -> Result<Value, String> {
    let run = plain(&detail.record.run);
    let Some(output) = &detail.output else {
        return Err(format!(
            "the record of run {run} has no output (journal.record)"
        ));
    };
    serde_json::from_str(output).map_err(|_| {
        format!(
            "the record of run {run} has {} of its {} bytes",
            output.len(),
            detail.record.output_bytes
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_was_printed_is_told_from_one_that_was_emitted() {
        let structured =
            |emitted: bool| json!({"structuredContent": {"emitted": emitted, "run": "r1"}});
        assert!(is_in(&structured(false)));
        assert!(!is_in(&structured(true)));
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        let emitted = "[Script executed successfully]\n(no output)\n--- result ---\n1";
        assert!(!is_in(&text(emitted)));
        let printed = "[Script executed successfully]\n\"\\n--- result ---\\n\n[output truncated: 4 of 9 bytes shown; the \
                       whole is in the resource ptc://runs/r2/response)";
        assert!(is_in(&text(printed)));
        assert!(!is_in(
            &json!({"isError": true, "structuredContent": {"emitted": false}})
        ));
        assert_eq!(run_of(&structured(false)).as_deref(), Some("r1"));
        assert_eq!(run_of(&text(printed)).as_deref(), Some("r2"));
        assert_eq!(run_of(&text("none")), None);
    }
}
