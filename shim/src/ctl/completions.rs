//! `ptcctl completions`: prints a script that completes this command line in a shell.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use ptc_protocol::status::SCHEMA;
use serde_json::json;

use super::output::{print, print_json};
use super::{Cli, Context, Exit};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "ptcctl", &mut script);
    let script = String::from_utf8(script)?;
    if context.output.json {
        let shell = arguments.shell.to_string();
        print_json(&json!({ "schema": SCHEMA, "shell": shell, "script": script }))?;
    } else {
        print(&script)?;
    }
    Ok(Exit::Ok)
}
