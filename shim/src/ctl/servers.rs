//! `ptcctl servers`: shows the servers, or steers one.

use clap::{Args, Subcommand};
use ptc_protocol::route;
use ptc_protocol::status::{SCHEMA, Status};
use serde_json::json;

use super::output::{print, print_json};
use super::status::view;
use super::status_text::{all_servers, full};
use super::{Context, Exit, reload, request};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    /// Show all of this server only
    name: Option<String>,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// End a server's connection and make a new one
    Restart {
        /// Name in the configuration
        name: String,
    },
    /// Connect a server that is disabled, until the daemon ends
    Enable {
        /// Name in the configuration
        name: String,
    },
    /// End a server and leave it so, until the daemon ends
    Disable {
        /// Name in the configuration
        name: String,
    },
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let (route, name) = match &arguments.verb {
        None => return list(context, arguments.name.as_deref()).await,
        Some(Verb::Restart { name }) => (route::SERVER_RESTART, name),
        Some(Verb::Enable { name }) => (route::SERVER_ENABLE, name),
        Some(Verb::Disable { name }) => (route::SERVER_DISABLE, name),
    };
    reload::tell(context, &request(route, &[("name", name)])?).await
}

async fn list(context: &Context, name: Option<&str>) -> anyhow::Result<Exit> {
    let mut status: Status = context.connect().await?.get(route::STATUS).await?;
    if let Some(name) = name {
        status.servers.retain(|server| server.name == name);
        if status.servers.is_empty() {
            let text = format!("there is no server {name:?}; `ptcctl servers` lists them");
            return Ok(context.output.failure(&text, Exit::Failure));
        }
    }
    if context.output.json {
        print_json(&json!({ "schema": SCHEMA, "servers": status.servers }))?;
        return Ok(Exit::Ok);
    }
    let view = view(context, &status, name.is_some());
    if name.is_some() {
        print(&full(&status, &view))?;
    } else if status.servers.is_empty() {
        context
            .output
            .message("no server is configured; `ptcctl status` says which file was looked for");
    } else {
        print(&all_servers(&status, &view).join("\n"))?;
    }
    Ok(Exit::Ok)
}
