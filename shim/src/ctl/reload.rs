//! `ptcctl reload`: has the daemon read its configuration again.

use std::time::Duration;

use clap::Args;
use ptc_protocol::route;
use ptc_protocol::status::{Done, SCHEMA};
use serde_json::{Value, json};

use super::output::{Output, print_json, say};
use super::words::plain;
use super::{Context, Exit};

/// How long a reload may take: the one that is under way, then this one, each with a sandbox to be proved.
const RELOAD_TIMEOUT: Duration = Duration::from_mins(3);

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Forget the values of variables that clients sent, so that the next client's count
    #[arg(long)]
    env: bool,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let path = if arguments.env {
        route::RELOAD_ENV
    } else {
        route::RELOAD
    };
    let peer = context.connect_awake().await?;
    shown(context, &peer.post_within(path, RELOAD_TIMEOUT).await?)
}

/// Has the daemon do something, and shows what it says of it.
pub(super) async fn tell(context: &Context, path: &str) -> anyhow::Result<Exit> {
    shown(context, &context.connect().await?.post(path).await?)
}

fn shown(context: &Context, done: &Done) -> anyhow::Result<Exit> {
    if context.output.json {
        print_json(&as_json(done))?;
    } else {
        report(context.output, done);
    }
    Ok(if done.ok { Exit::Ok } else { Exit::Failure })
}

/// What an operation on the daemon answered; where it was refused its sentences are the error.
fn as_json(done: &Done) -> Value {
    let Done { ok, messages } = done;
    let mut object = json!({ "schema": SCHEMA, "ok": ok, "messages": messages });
    if !ok {
        object["error"] = json!(messages.join("; "));
        object["exit"] = json!(Exit::Failure.code());
    }
    object
}

/// Shows what an operation on the daemon answered.
pub(super) fn report(output: Output, done: &Done) {
    for message in &done.messages {
        let text = plain(message);
        if done.ok {
            output.message(&text);
        } else {
            say(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_the_error_of_the_json() {
        let of = |ok: bool| Done {
            ok,
            messages: vec!["a".to_owned(), "b".to_owned()],
        };
        let done = json!({"schema": 1, "ok": true, "messages": ["a", "b"]});
        assert_eq!(as_json(&of(true)), done);
        let refused =
            json!({"schema": 1, "ok": false, "messages": ["a", "b"], "error": "a; b", "exit": 1});
        assert_eq!(as_json(&of(false)), refused);
    }
}
