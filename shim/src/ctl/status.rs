//! `ptcctl status`: shows the daemon, its clients and its servers.

use std::io::IsTerminal as _;

use clap::Args;
use ptc_protocol::route;
use ptc_protocol::status::{Level, ServerState, ServerStatus, Status};
use serde_json::Value;

use super::output::{print, print_json};
use super::status_text::{View, full, short_lines};
use super::{Context, Exit};

/// Characters a line where stdout is no terminal.
const DEFAULT_WIDTH: usize = 100;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Only this server
    server: Option<String>,
    /// Tell by the exit code: 10 not now, 11 not until someone acts, 12 no such server
    #[arg(long)]
    check: bool,
    /// One short line a server
    #[arg(long)]
    plain: bool,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let value: Value = context.connect().await?.get(route::STATUS).await?;
    let mut status: Status = serde_json::from_value(value.clone())?;
    if let Some(name) = &arguments.server {
        status.servers.retain(|server| server.name == *name);
        if status.servers.is_empty() {
            let text = format!("there is no server {name:?}; `ptcctl status` lists them");
            let exit = if arguments.check {
                Exit::UnknownName
            } else {
                Exit::Failure
            };
            return Ok(context.output.failure(&text, exit));
        }
    }
    if context.output.json {
        let shown = if arguments.server.is_some() {
            only_server(value, &status)?
        } else {
            value
        };
        print_json(&shown)?;
    } else if !(arguments.check && context.output.quiet) {
        let text = if arguments.plain {
            short_lines(&status.servers)
        } else {
            full(&status, &view(context, &status, arguments.server.is_some()))
        };
        print(&text)?;
    }
    Ok(if arguments.check {
        verdict(&status, arguments.server.is_some())
    } else {
        Exit::Ok
    })
}

/// The object as the daemon sent it, with only the servers that are left.
fn only_server(mut value: Value, status: &Status) -> anyhow::Result<Value> {
    if let Some(servers) = value.get_mut("servers") {
        *servers = serde_json::to_value(&status.servers)?;
    }
    Ok(value)
}

pub(super) fn view(context: &Context, status: &Status, one: bool) -> View {
    let stdout = std::io::stdout();
    let terminal = stdout
        .is_terminal()
        .then(|| rustix::termios::tcgetwinsize(&stdout).ok());
    let columns = terminal.flatten().map(|size| usize::from(size.ws_col));
    let places = &context.places;
    // A named socket may be that of a daemon with another configuration.
    let own = places.state_dir.to_str() == Some(&status.state_dir);
    View {
        width: columns
            .filter(|columns| *columns > 0)
            .unwrap_or(DEFAULT_WIDTH),
        color: context.output.color,
        verbose: context.output.verbose,
        one,
        doctor: super::doctor_takes_a_server(),
        config: own.then(|| places.config.path().display().to_string()),
        home: std::env::home_dir().and_then(|home| home.to_str().map(str::to_owned)),
    }
}

fn verdict(status: &Status, of_server: bool) -> Exit {
    let level = if of_server {
        status.servers.iter().map(level).max().unwrap_or(Level::Ok)
    } else {
        status.health.level
    };
    match level {
        Level::Ok => Exit::Ok,
        Level::Transient => Exit::Transient,
        Level::Blocked => Exit::Blocked,
    }
}

fn level(server: &ServerStatus) -> Level {
    match server.state {
        ServerState::Ready | ServerState::Disabled => Level::Ok,
        ServerState::Connecting | ServerState::Reconnecting => Level::Transient,
        ServerState::Failed => Level::Blocked,
    }
}
