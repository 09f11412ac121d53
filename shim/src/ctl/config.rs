//! `ptcctl config`: says which configuration there is and whether it is sound.

use std::path::PathBuf;

use clap::Subcommand;
use ptc_protocol::route;
use ptc_protocol::status::{ConfigShown, SCHEMA};
use serde_json::json;

use super::output::{print, print_json, say};
use super::words::{count, plain};
use super::{Context, Exit, reload, request};

#[derive(Debug, Subcommand)]
pub(super) enum Arguments {
    /// Have the daemon read a file, and tell every fault in it; nothing is taken over
    Check {
        /// The file (default: the daemon's own)
        file: Option<PathBuf>,
    },
    /// Print the path of the configuration file; asks no daemon
    Path,
    /// Print the configuration in force, every default filled in and secrets masked
    Show,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    match arguments {
        Arguments::Check { file } => check(context, file.as_deref()).await,
        Arguments::Path => Ok(path(context)?),
        Arguments::Show => show(context).await,
    }
}

async fn check(context: &Context, file: Option<&std::path::Path>) -> anyhow::Result<Exit> {
    if context
        .connect()
        .await
        .is_err_and(|error| error.is_absent())
    {
        let text = "ptcd, which reads the file, is not running: start it with `ptcctl start`, or have the file read \
                    without it by `ptcd check`";
        return Ok(context.output.failure(text, Exit::NotRunning));
    }
    let Some(file) = file else {
        return reload::tell(context, route::CONFIG_CHECK).await;
    };
    // The daemon has another working directory.
    let file = std::path::absolute(file)?;
    let path = request(route::CONFIG_CHECK, &[("path", &file.to_string_lossy())])?;
    reload::tell(context, &path).await
}

fn path(context: &Context) -> std::io::Result<Exit> {
    let path = context.places.config.path();
    let present = path.exists();
    if context.output.json {
        print_json(&json!({ "schema": SCHEMA, "path": path, "present": present }))?;
    } else {
        print(&path.display().to_string())?;
        if !present {
            context.output.message("there is no such file yet");
        }
    }
    Ok(Exit::Ok)
}

async fn show(context: &Context) -> anyhow::Result<Exit> {
    let shown: ConfigShown = context.connect().await?.get(route::CONFIG).await?;
    if context.output.json {
        print_json(&serde_json::to_value(&shown)?)?;
    } else {
        print_json(&shown.config)?;
        for fault in &shown.faults {
            say(&plain(fault));
        }
        if !shown.faults.is_empty() {
            let faults = count(shown.faults.len() as u64, "fault");
            say(&format!(
                "the file has {faults}, so this is in force in its place: mend the file, then `ptcctl reload`"
            ));
        }
    }
    Ok(if shown.faults.is_empty() {
        Exit::Ok
    } else {
        Exit::Failure
    })
}
