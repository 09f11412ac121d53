//! `ptcctl env`: records the environment that the daemon gives its servers, or shows it.

use std::path::PathBuf;

use clap::Subcommand;
use ptc_protocol::environment::{RecordedBy, RecordedEnvironment, may_be_recorded};
use ptc_protocol::status::SCHEMA;
use serde_json::{Value, json};

use super::output::{print, print_json, say};
use super::words::{ago_since, count, plain};
use super::{Context, Exit};
use crate::ending::is_held;
use crate::environment::{self, Captured};
use crate::launch::{Ask, private_folder};

/// Whose values are shown: they name places and people, where others may be secrets.
const SHOWN: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR"];

#[derive(Debug, Subcommand)]
pub(super) enum Arguments {
    /// Record PATH and these variables as the login shell has them, for every later start of the daemon
    Capture {
        /// Variables that `${...}` in the configuration refers to (default: those captured before)
        #[arg(value_parser = name)]
        names: Vec<String>,
        /// The shell to ask in place of the user's login shell
        #[arg(long, value_name = "PROGRAM")]
        shell: Option<PathBuf>,
    },
    /// Show what is recorded, or what a daemon would be given now; values of captured names are not shown
    Show,
}

/// A variable's name that may be recorded.
fn name(text: &str) -> Result<String, String> {
    if may_be_recorded(text) {
        return Ok(text.to_owned());
    }
    Err(if ptc_protocol::is_variable_name(text) {
        "it changes what code programs run and is never recorded: LD_*, DYLD_*, PYTHON*, NODE_OPTIONS"
            .to_owned()
    } else {
        "it has not the form of a variable's name".to_owned()
    })
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    match arguments {
        Arguments::Capture { names, shell } => capture(context, names, shell.as_deref()).await,
        Arguments::Show => show(context).await,
    }
}

async fn capture(
    context: &Context,
    names: &[String],
    shell: Option<&std::path::Path>,
) -> anyhow::Result<Exit> {
    let places = &context.places;
    let before = environment::read(places).filter(|before| before.by == RecordedBy::Capture);
    let names = match (names, before) {
        ([], Some(before)) => before.names,
        (names, _) => names.to_vec(),
    };
    let Captured { recorded, missing } = environment::capture(&names, shell).await?;
    private_folder(&places.state_root)?;
    private_folder(&places.state_dir)?;
    environment::write(places, &recorded)?;
    let missing: Vec<String> = missing.into_iter().collect();
    let running = is_held(&places.lock_file());
    let exit = if missing.is_empty() {
        Exit::Ok
    } else {
        Exit::Failure
    };
    if context.output.json {
        let mut value = json_of(context, &recorded);
        value["missing"] = json!(missing);
        value["takes_effect"] = json!(if running { "restart" } else { "start" });
        print_json(&value)?;
        return Ok(exit);
    }
    let shell = recorded.login_shell.as_deref().unwrap_or_default();
    for name in &missing {
        say(&format!("{} has no {name}", plain(shell)));
    }
    let captured = count((names.len() - missing.len()) as u64, "variable");
    let effect = if running {
        "takes effect with `ptcctl restart`"
    } else {
        "takes effect when the daemon starts"
    };
    let text = format!(
        "PATH and {captured} captured from {}: {effect}",
        plain(shell)
    );
    context.output.message(&text);
    Ok(exit)
}

async fn show(context: &Context) -> anyhow::Result<Exit> {
    let found = environment::read(&context.places);
    let captured = found
        .as_ref()
        .is_some_and(|found| found.by == RecordedBy::Capture);
    let shown = match found {
        Some(found) if captured => found,
        _ => environment::for_start(&context.places, Ask::Anew).await,
    };
    if context.output.json {
        print_json(&json_of(context, &shown))?;
        return Ok(Exit::Ok);
    }
    let lines = shown.variables.iter().map(|(name, value)| {
        if SHOWN.contains(&name.as_str()) {
            format!("{name}={}", plain(value))
        } else {
            format!("{name} ({})", hidden(value))
        }
    });
    print(&lines.collect::<Vec<_>>().join("\n"))?;
    let from = shown.login_shell.as_deref().map_or_else(
        || "no login shell has answered".to_owned(),
        |shell| format!("the login shell is {}", plain(shell)),
    );
    context.output.message(&if captured {
        format!(
            "captured {} from {}",
            ago_since(shown.recorded_ms),
            shown.login_shell.as_deref().map_or_else(String::new, plain)
        )
    } else {
        format!(
            "nothing is captured: this is what a daemon is given that a client starts now; {from}"
        )
    });
    Ok(Exit::Ok)
}

fn hidden(value: &str) -> String {
    count(value.chars().count() as u64, "character")
}

fn json_of(context: &Context, shown: &RecordedEnvironment) -> Value {
    let variables = shown.variables.iter().map(|(name, value)| {
        let value = if SHOWN.contains(&name.as_str()) {
            json!(value)
        } else {
            json!({ "characters": value.chars().count() })
        };
        (name.clone(), value)
    });
    json!({
        "schema": SCHEMA,
        "captured": shown.by == RecordedBy::Capture,
        "recorded_ms": shown.recorded_ms,
        "login_shell": shown.login_shell,
        "file": context.places.environment_file(),
        "names": shown.names,
        "variables": variables.collect::<serde_json::Map<_, _>>(),
    })
}
