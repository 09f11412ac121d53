//! `ptcctl logs`: prints the end of a log, and what is added to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ptc_protocol::paths::{instance_of_log, server_log_name};
use ptc_protocol::route;
use ptc_protocol::status::{SCHEMA, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
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
    /// The server whose stderr is shown, of every project's instance (default: the daemon's own log)
    server: Option<String>,
    /// Go on with what is added, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// How many lines of the end are shown at first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    lines: usize,
}

/// One log that is shown.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    follower: Follower,
}

impl Log {
    /// Its name, as a heading has it.
    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        visible(&name.to_string_lossy())
    }
}

pub(super) async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let state = state(context).await;
    let path = match &arguments.server {
        Some(server) => state.join("servers").join(server_log_name(server)),
        None => state.join("ptcd.log"),
    };
    let mut logs = Vec::new();
    for path in paths(&path, arguments.server.as_deref()) {
        match Follower::open(&path) {
            Ok(follower) => logs.push(Log { path, follower }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => anyhow::bail!("cannot read {}: {error}", path.display()),
        }
    }
    if logs.is_empty() {
        return Ok(absent(context, arguments, &path));
    }
    let several = logs.len() > 1;
    let mut ends = Vec::new();
    for log in &mut logs {
        let lines = tail(log.follower.file(), arguments.lines)?;
        ends.push(lines.iter().map(|line| visible(line)).collect::<Vec<_>>());
    }
    if context.output.json && !arguments.follow {
        print_json(&whole(&logs, &ends))?;
        return Ok(Exit::Ok);
    }
    for (log, lines) in logs.iter().zip(&ends) {
        show(context, several.then_some(log), lines)?;
    }
    if !arguments.follow {
        return Ok(Exit::Ok);
    }
    follow(context, &mut logs).await
}

/// The folder of the daemon's state; of a daemon on a named socket only it can tell.
async fn state(context: &Context) -> PathBuf {
    let places = &context.places;
    if places.socket_named
        && let Ok(peer) = connect(places).await
        && let Ok(status) = peer.get::<Status>(route::STATUS).await
    {
        return status.state_dir.into();
    }
    places.state_dir.clone()
}

/// The logs to show: of a server that runs once for each project folder those of all its instances, in their order.
fn paths(path: &Path, server: Option<&str>) -> Vec<PathBuf> {
    let Some(server) = server else {
        return vec![path.to_owned()];
    };
    let entries = path.parent().and_then(|folder| folder.read_dir().ok());
    let found = entries.into_iter().flatten().flatten().filter_map(|entry| {
        let number = instance_of_log(server, entry.file_name().to_str()?)?;
        Some((number, entry.path()))
    });
    let sorted: BTreeMap<usize, PathBuf> = found.collect();
    sorted.into_values().collect()
}

/// All of it in one object: the first log, and those of further instances.
fn whole(logs: &[Log], ends: &[Vec<String>]) -> Value {
    let one = |(log, lines): (&Log, &Vec<String>)| json!({ "file": log.path, "lines": lines });
    let mut all = logs.iter().zip(ends).map(one);
    let mut shown = all.next().unwrap_or_default();
    shown["schema"] = json!(SCHEMA);
    let further: Vec<Value> = all.collect();
    if !further.is_empty() {
        shown["further"] = json!(further);
    }
    shown
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

/// Prints lines as they come, each by itself in JSON; of several logs each is named.
fn show(context: &Context, of: Option<&Log>, lines: &[String]) -> std::io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    if !context.output.json {
        let heading = of.map(|log| format!("==> {} <==\n", log.name()));
        return print(&format!(
            "{}{}",
            heading.unwrap_or_default(),
            lines.join("\n")
        ));
    }
    let objects = lines.iter().map(|line| {
        let mut object = json!({ "schema": SCHEMA, "line": line });
        if let Some(log) = of {
            object["file"] = json!(log.path);
        }
        object.to_string()
    });
    print(&objects.collect::<Vec<_>>().join("\n"))
}

/// Follows the logs until INT or TERM, or until nobody reads any more.
async fn follow(context: &Context, logs: &mut [Log]) -> anyhow::Result<Exit> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut ticks = tokio::time::interval(PAUSE);
    let several = logs.len() > 1;
    loop {
        tokio::select! {
            biased;
            _ = interrupt.recv() => return Ok(Exit::Ok),
            _ = terminate.recv() => return Ok(Exit::Ok),
            _ = ticks.tick() => {}
        }
        for log in logs.iter_mut() {
            let lines = log.follower.added()?;
            let lines: Vec<String> = lines.iter().map(|line| visible(line)).collect();
            show(context, several.then_some(&*log), &lines)?;
        }
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
