//! `ptcctl stop`: has the daemon end, and waits until it has.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use ptc_protocol::route;
use ptc_protocol::status::{Done, SCHEMA, Status};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::output::{print_json, say};
use super::words::{count, plain};
use super::{Context, Exit, reload};
use crate::connect::{connect, recorded};
use crate::ending::{Ending, is_held};
use crate::launch_error::numbered;
use crate::manager;

/// First and longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));
/// Most servers that are named.
const MAX_NAMED: usize = 5;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// How long running programs and servers are waited for
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl Arguments {
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let end = end(context, arguments.timeout()).await?;
    if context.output.json {
        print_json(&end.json())?;
    }
    Ok(if end.ended { Exit::Ok } else { Exit::Failure })
}

/// What became of a daemon that was told to end.
#[derive(Debug)]
pub(super) struct End {
    /// Whether it has ended.
    pub(super) ended: bool,
    messages: Vec<String>,
}

impl End {
    pub(super) fn json(&self) -> Value {
        let Self { ended, messages } = self;
        json!({ "schema": SCHEMA, "ok": ended, "ended": ended, "messages": messages })
    }
}

/// Tells the daemon to end, and waits so long until it has; says both where there is no JSON.
pub(super) async fn end(context: &Context, timeout: Duration) -> anyhow::Result<End> {
    let until = Instant::now() + timeout;
    let leaving = tell(context).await?;
    let mut pause = PAUSES.0;
    while !leaving.ending.is_over() && Instant::now() < until {
        sleep(pause).await;
        pause = PAUSES.1.min(pause * 2);
    }
    let ended = leaving.ending.is_over();
    let text = if ended && manager::is_service(&context.places) {
        let manager = manager::Kind::of_system().name();
        format!("ptcd has ended; {manager} starts it again at the next connection")
    } else if ended {
        "ptcd has ended".to_owned()
    } else {
        format!(
            "ptcd{} is still ending after {} s: it waits for {}; `ptcctl stop` waits on",
            numbered(leaving.pid),
            timeout.as_secs(),
            leaving.waits_for
        )
    };
    match (context.output.json, ended) {
        (true, _) => {}
        (false, true) => context.output.message(&text),
        (false, false) => say(&text),
    }
    let mut messages = leaving.messages;
    messages.push(text);
    Ok(End { ended, messages })
}

/// A daemon on its way out.
struct Leaving {
    ending: Ending,
    pid: Option<u32>,
    waits_for: String,
    messages: Vec<String>,
}

/// Tells the daemon to end, unless it is ending already.
async fn tell(context: &Context) -> anyhow::Result<Leaving> {
    let places = &context.places;
    let peer = match connect(places).await {
        Ok(peer) => peer,
        Err(error) if error.is_absent() && is_held(&places.lock_file()) => {
            let pid = recorded(places).map(|(pid, _)| pid);
            let text = format!("ptcd{} is ending already", numbered(pid));
            if !context.output.json {
                context.output.message(&text);
            }
            return Ok(Leaving {
                ending: Ending::of(places.lock_file(), None),
                pid,
                waits_for: waits_for(None),
                messages: vec![text],
            });
        }
        Err(error) => return Err(error.into()),
    };
    let listener = peer.pid();
    // Asked before, since afterwards nobody answers any more.
    let status = peer.get::<Status>(route::STATUS).await.ok();
    let pid = status.as_ref().map(|status| status.pid);
    let lock = status.as_ref().map_or_else(
        || places.lock_file(),
        |status| PathBuf::from(&status.state_dir).join("lock"),
    );
    // A number that the system gives differently means another machine's view of processes.
    let ending = Ending::of(lock, pid.filter(|_| pid == listener));
    let done: Done = connect(places).await?.post(route::STOP).await?;
    ensure!(done.ok, "{}", plain(&done.messages.join("; ")));
    if !context.output.json {
        reload::report(context.output, &done);
    }
    Ok(Leaving {
        ending,
        pid,
        waits_for: waits_for(status.as_ref()),
        messages: done.messages,
    })
}

/// What a daemon waits for that was like this when it was told to end.
fn waits_for(status: Option<&Status>) -> String {
    let Some(status) = status else {
        return "programs and servers to end".to_owned();
    };
    let pool = &status.programs.pool;
    let running = (pool.busy + pool.queued) as u64;
    let programs = (running > 0).then(|| count(running, "program"));
    let up = status.servers.iter().filter(|server| server.pid.is_some());
    let mut names: Vec<String> = up.map(|server| plain(&server.name)).collect();
    let total = names.len() as u64;
    if names.len() > MAX_NAMED {
        names.truncate(MAX_NAMED);
        names.push("…".to_owned());
    }
    let servers = (total > 0).then(|| format!("{} ({})", count(total, "server"), names.join(", ")));
    match (programs, servers) {
        (Some(programs), Some(servers)) => format!("{programs} to end, then {servers}"),
        (Some(one), None) | (None, Some(one)) => format!("{one} to end"),
        (None, None) => "its workers to end".to_owned(),
    }
}
