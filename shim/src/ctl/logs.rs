//! `ptcctl logs`: prints the end of a log, and what is added to it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ptc_protocol::paths::server_log_name;
use ptc_protocol::route;
use ptc_protocol::status::{SCHEMA, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::log_file::{Follower, tail};
use super::output::{print, print_json};
use super::words::visible;
use super::{Context, Exit};
use crate::connect::connect;

/// Between two looks at a file that is followed.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The server whose stderr is shown (default: the daemon's own log)
    server: Option<String>,
    /// Go on with what is added, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// How many lines of the end are shown at first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    lines: usize,
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let path = path(context, arguments).await;
    let mut follower = match Follower::open(&path) {
        Ok(follower) => follower,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(absent(context, arguments, &path));
        }
        Err(error) => anyhow::bail!("cannot read {}: {error}", path.display()),
    };
    let lines: Vec<String> = tail(follower.file(), arguments.lines)?
        .iter()
        .map(|line| visible(line))
        .collect();
    if !arguments.follow {
        if context.output.json {
            print_json(&json!({ "schema": SCHEMA, "file": path, "lines": lines }))?;
        } else {
            print(&lines.join("\n"))?;
        }
        return Ok(Exit::Ok);
    }
    show(context, &lines)?;
    follow(context, &mut follower).await
}

/// Where the log lies; of a daemon on a named socket only it can tell.
async fn path(context: &Context, arguments: &Arguments) -> PathBuf {
    let places = &context.places;
    let mut state = places.state_dir.clone();
    if places.socket_named
        && let Ok(peer) = connect(places).await
        && let Ok(status) = peer.get::<Status>(route::STATUS).await
    {
        state = status.state_dir.into();
    }
    match &arguments.server {
        Some(server) => state.join("servers").join(server_log_name(server)),
        None => state.join("ptcd.log"),
    }
}

fn absent(context: &Context, arguments: &Arguments, path: &std::path::Path) -> Exit {
    let path = path.display();
    let text = match &arguments.server {
        Some(server) => format!(
            "there is no log of a server {server:?} ({path}): only servers over stdio that were started have one; \
             `ptcctl status` lists the servers"
        ),
        None => format!(
            "there is no log of the daemon ({path}): one that was started as `ptcd serve` writes to its own stderr"
        ),
    };
    context.output.failure(&text, Exit::Failure)
}

/// Prints lines as they come, each by itself in JSON.
fn show(context: &Context, lines: &[String]) -> std::io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    if !context.output.json {
        return print(&lines.join("\n"));
    }
    let objects = lines
        .iter()
        .map(|line| json!({ "schema": SCHEMA, "line": line }).to_string());
    print(&objects.collect::<Vec<_>>().join("\n"))
}

/// Follows the log until INT or TERM, or until nobody reads any more.
async fn follow(context: &Context, follower: &mut Follower) -> anyhow::Result<Exit> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut ticks = tokio::time::interval(PAUSE);
    loop {
        tokio::select! {
            biased;
            _ = interrupt.recv() => return Ok(Exit::Ok),
            _ = terminate.recv() => return Ok(Exit::Ok),
            _ = ticks.tick() => {}
        }
        let lines: Vec<String> = follower.added()?.iter().map(|line| visible(line)).collect();
        show(context, &lines)?;
        if reader_is_gone() {
            return Ok(Exit::Ok);
        }
    }
}

/// Whether stdout is a pipe or socket that nobody reads any more.
fn reader_is_gone() -> bool {
    let stdout = std::io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(gone)
}
