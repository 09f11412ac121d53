//! `ptcctl start`: starts the daemon where it is not running.

use std::cell::Cell;

use ptc_protocol::route;
use ptc_protocol::status::{SCHEMA, Status};
use serde_json::json;

use super::output::{print_json, say};
use super::words::{count, plain};
use super::{Context, Exit};
use crate::launch::{Ask, Progress, launch};

pub(super) async fn run(context: &Context) -> anyhow::Result<Exit> {
    let output = context.output;
    let started = Cell::new(false);
    let tell = |progress| match progress {
        Progress::Starting => started.set(true),
        Progress::Waiting(text) => output.message(&text),
    };
    let peer = launch(&context.places, Ask::Anew, tell).await?;
    let (started, socket) = (started.get(), peer.socket().display().to_string());
    // A daemon that cannot say how it is runs all the same.
    let status = peer.get::<Status>(route::STATUS).await.ok();
    let faults = status
        .map(|status| status.config.faults)
        .unwrap_or_default();
    if output.json {
        let value =
            json!({ "schema": SCHEMA, "started": started, "socket": socket, "faults": faults });
        print_json(&value)?;
        return Ok(Exit::Ok);
    }
    output.message(&if started {
        format!("ptcd is ready on {socket}")
    } else {
        format!("ptcd was running already, on {socket}")
    });
    if !faults.is_empty() {
        say(&format!(
            "the configuration file has {}: mend the file, then `ptcctl reload`",
            count(faults.len() as u64, "fault")
        ));
        for fault in &faults {
            say(&plain(fault));
        }
    }
    Ok(Exit::Ok)
}
