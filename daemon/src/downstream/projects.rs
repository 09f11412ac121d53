//! Runs a server once for each project folder: starts, shares and ends its instances.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ptc_protocol::status::{ServerState, ServerStatus};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::health;
use super::known::Known;
use super::server::{Scoped, Server};
use super::stats::Stats;
use super::{Options, Running};
use crate::config::ServerConfig;

/// Most instances of one server. Past it, the one that was idle for longest is ended.
pub(super) const MAX_INSTANCES: usize = 8;
/// Longest pause between two looks at whether an instance is idle, since the limit may change.
const LOOK: Duration = Duration::from_mins(1);
/// What a client without a project folder is told.
const NO_PROJECT: &str = "it runs once for each project folder and this client has named none: \
     start the client in the folder of a project, or set CLAUDE_PROJECT_DIR for it";

/// One server with `scope: project`.
#[derive(Debug)]
pub(super) struct Projects {
    pub(super) config: ServerConfig,
    pub(super) stats: Arc<Stats>,
    known: Arc<Known>,
    state: Mutex<State>,
    /// Told whenever a call has ended.
    pub(super) freed: Notify,
    /// Counts the changes of all servers.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Set when the configuration no longer has this server.
    closed: bool,
    instances: Vec<Instance>,
    /// What is still being ended: an instance of the same project waits for it.
    ending: Vec<(Arc<Path>, JoinHandle<()>)>,
}

#[derive(Debug)]
struct Instance {
    project: Arc<Path>,
    number: usize,
    running: Running,
    /// Calls that have a use for it now.
    users: usize,
    /// When the last of them ended.
    used: Instant,
}

/// One call's use of an instance, which is not ended while it lasts.
#[derive(Debug)]
pub(super) struct Use {
    projects: Arc<Projects>,
    pub(super) server: Arc<Server>,
}

/// Why there is no instance for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoInstance {
    /// The client has named no project folder.
    NoProject,
    /// As many as may be are all in use.
    Full,
    /// The server is no longer configured.
    Closed,
}

impl NoInstance {
    pub(super) fn words(self) -> String {
        match self {
            Self::NoProject => NO_PROJECT.to_owned(),
            Self::Full => format!(
                "it runs for {MAX_INSTANCES} project folders, the most there may be, and all are in use"
            ),
            Self::Closed => "it is stopped".to_owned(),
        }
    }
}

impl Projects {
    pub(super) fn new(
        config: ServerConfig,
        stats: Arc<Stats>,
        options: &Options,
        changed: watch::Sender<u64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            known: Arc::new(Known::open(&options.lists_dir, &config)),
            config,
            stats,
            state: Mutex::default(),
            freed: Notify::new(),
            changed,
        })
    }

    /// The instance of a project, started with `start` where it does not run.
    pub(super) fn engage(
        self: &Arc<Self>,
        project: Option<&Arc<Path>>,
        start: impl FnOnce(Scoped, Option<JoinHandle<()>>) -> Running,
    ) -> Result<Use, NoInstance> {
        let project = project.ok_or(NoInstance::NoProject)?;
        let mut state = self.lock();
        if state.closed {
            return Err(NoInstance::Closed);
        }
        let found = state.of(project);
        let index = match found {
            Some(index) => index,
            None => self.add(&mut state, project, start)?,
        };
        let instance = state.instances.get_mut(index).ok_or(NoInstance::Closed)?;
        instance.users += 1;
        Ok(Use {
            projects: Arc::clone(self),
            server: Arc::clone(&instance.running.server),
        })
    }

    fn add(
        &self,
        state: &mut State,
        project: &Arc<Path>,
        start: impl FnOnce(Scoped, Option<JoinHandle<()>>) -> Running,
    ) -> Result<usize, NoInstance> {
        state.ending.retain(|(_, task)| !task.is_finished());
        if state.instances.len() >= MAX_INSTANCES {
            let idlest = state.idlest().ok_or(NoInstance::Full)?;
            state.end(idlest);
        }
        let taken = |number: &usize| state.instances.iter().all(|one| one.number != *number);
        let number = (0..MAX_INSTANCES).find(taken).unwrap_or_default();
        let before = state
            .ending
            .iter()
            .position(|(ending, _)| ending == project)
            .map(|index| state.ending.swap_remove(index).1);
        let scoped = Scoped {
            project: Arc::clone(project),
            number,
            known: Arc::clone(&self.known),
        };
        state.instances.push(Instance {
            project: Arc::clone(project),
            number,
            running: start(scoped, before),
            users: 0,
            used: Instant::now(),
        });
        self.changed.send_modify(|version| *version += 1);
        Ok(state.instances.len() - 1)
    }

    /// Whether a look at its tools has to start an instance, since nothing is known of them.
    pub(super) fn is_unknown(&self) -> bool {
        self.config.enabled && self.known.tools().is_none()
    }

    /// Ends an instance once it was idle for as long as `idle` says.
    pub(super) async fn watch_idle(
        self: Arc<Self>,
        server: Arc<Server>,
        stop: CancellationToken,
        idle: impl Fn() -> Duration,
    ) {
        while let Some(pause) = self.end_if_idle(&server, idle()) {
            tokio::select! {
                () = tokio::time::sleep(pause.min(LOOK)) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// How long until it is to be looked at again; nothing once it is ended.
    fn end_if_idle(&self, server: &Arc<Server>, limit: Duration) -> Option<Duration> {
        let mut state = self.lock();
        let index = state
            .instances
            .iter()
            .position(|one| Arc::ptr_eq(&one.running.server, server))?;
        let instance = state.instances.get(index)?;
        let idle = instance.used.elapsed();
        if instance.users > 0 {
            return Some(limit);
        }
        if idle < limit {
            return Some(limit.saturating_sub(idle));
        }
        tracing::info!(
            server = %self.config.name,
            project = %instance.project.display(),
            "an idle instance ends"
        );
        state.end(index);
        drop(state);
        self.changed.send_modify(|version| *version += 1);
        None
    }

    /// Ends the instances that the reload of a configuration has made out of date.
    pub(super) fn end_where(&self, outdated: impl Fn(&Server) -> bool) {
        let mut state = self.lock();
        let mut index = 0;
        while let Some(instance) = state.instances.get(index) {
            if outdated(&instance.running.server) {
                state.end(index);
            } else {
                index += 1;
            }
        }
    }

    /// Ends all instances, for good.
    pub(super) fn close(&self) {
        self.end_where(|_| true);
        self.lock().closed = true;
        self.freed.notify_waiters();
    }

    /// What is still being ended, for the server that comes in this one's place.
    pub(super) fn hand_over(&self, to: &Self) {
        let ending = std::mem::take(&mut self.lock().ending);
        to.lock().ending = ending;
    }

    /// Every instance that runs.
    pub(super) fn servers(&self) -> Vec<Arc<Server>> {
        let state = self.lock();
        let servers = state.instances.iter();
        servers.map(|one| Arc::clone(&one.running.server)).collect()
    }

    /// The server as one client sees it.
    pub(super) fn seen_from(&self, project: Option<&Arc<Path>>) -> super::Server {
        let known = self.known.tools();
        let Some(project) = project else {
            return self.shown(ServerState::Failed, Some(NO_PROJECT.to_owned()), known);
        };
        let running = {
            let state = self.lock();
            state
                .of(project)
                .and_then(|index| state.instances.get(index))
                .map(|instance| Arc::clone(&instance.running.server))
        };
        let Some(server) = running else {
            let unknown = known.is_none();
            return if unknown {
                let detail = "it starts when its tools are asked for".to_owned();
                self.shown(ServerState::Connecting, Some(detail), None)
            } else {
                self.shown(ServerState::Ready, None, known)
            };
        };
        let mut status = server.status();
        let tools = server.tools().or(known);
        if status.state == ServerState::Connecting && tools.is_some() {
            // The last known list serves while it starts, and a call waits for it.
            status.state = ServerState::Ready;
        }
        self.enabled_or_not(super::Server {
            name: status.name.clone(),
            state: status,
            tools: tools.unwrap_or_else(|| Arc::from([])),
        })
    }

    /// The server as the operator sees it, all instances together.
    pub(super) fn overview(&self) -> super::Server {
        let servers = self.servers();
        let parts: Vec<(Arc<Server>, ServerStatus)> = servers
            .into_iter()
            .map(|server| (Arc::clone(&server), server.status()))
            .collect();
        let state = parts
            .iter()
            .map(|(_, status)| status.state)
            .min_by_key(|state| rank(*state))
            .unwrap_or(ServerState::Ready);
        let known = self.known.tools();
        let count = known.as_ref().map(|tools| tools.len());
        let mut shown = self.shown(state, Some(summary(&parts)), known);
        shown.state.tools = count;
        shown.state.junk_lines = parts.iter().map(|(_, status)| status.junk_lines).sum();
        if let [(_, only)] = parts.as_slice() {
            shown.state.pid = only.pid;
            shown.state.protocol.clone_from(&only.protocol);
        }
        shown.state.notes = parts
            .iter()
            .flat_map(|(server, status)| about(server, status))
            .collect();
        self.enabled_or_not(shown)
    }

    fn shown(
        &self,
        state: ServerState,
        detail: Option<String>,
        tools: Option<Arc<[super::ToolDefinition]>>,
    ) -> super::Server {
        let counts = self.stats.snapshot();
        self.enabled_or_not(super::Server {
            name: self.config.name.clone(),
            state: ServerStatus {
                name: self.config.name.clone(),
                state,
                via: self.config.transport.name().to_owned(),
                protocol: None,
                tools: None,
                calls: counts.calls,
                failed_calls: counts.failed,
                p50_ms: counts.p50_ms,
                last_call_ms_ago: counts.last_ms_ago,
                pid: None,
                restarts: counts.restarts,
                health: health::of(&self.config.name, state, detail.clone()),
                detail,
                junk_lines: 0,
                notes: Vec::new(),
            },
            tools: tools.unwrap_or_else(|| Arc::from([])),
        })
    }

    fn enabled_or_not(&self, mut server: super::Server) -> super::Server {
        if !self.config.enabled {
            let name = &self.config.name;
            server.state.state = ServerState::Disabled;
            server.state.detail = None;
            server.state.health = health::of(name, ServerState::Disabled, None);
        }
        server
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of(&self, project: &Arc<Path>) -> Option<usize> {
        self.instances
            .iter()
            .position(|instance| instance.project == *project)
    }

    /// The unused instance that is least of a loss.
    fn idlest(&self) -> Option<usize> {
        self.instances
            .iter()
            .enumerate()
            .filter(|(_, instance)| instance.users == 0)
            .min_by_key(|(_, instance)| {
                let failed = instance.running.server.phase() == ServerState::Failed;
                (!failed, instance.used)
            })
            .map(|(index, _)| index)
    }

    fn end(&mut self, index: usize) {
        let instance = self.instances.swap_remove(index);
        instance.running.stop.cancel();
        self.ending.push((instance.project, instance.running.task));
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut state = self.projects.lock();
        let server = &self.server;
        let instance = state
            .instances
            .iter_mut()
            .find(|one| Arc::ptr_eq(&one.running.server, server));
        // One that was ended by the operator meanwhile is no longer there.
        if let Some(instance) = instance {
            instance.users = instance.users.saturating_sub(1);
            instance.used = Instant::now();
        }
        drop(state);
        self.projects.freed.notify_waiters();
    }
}

/// Which state of an instance stands for all: one that works shows that the server does.
fn rank(state: ServerState) -> u8 {
    match state {
        ServerState::Ready => 0,
        ServerState::Connecting => 1,
        ServerState::Reconnecting => 2,
        ServerState::Failed | ServerState::Disabled => 3,
    }
}

fn summary(parts: &[(Arc<Server>, ServerStatus)]) -> String {
    match parts {
        [] => "runs for no project now; a call starts it".to_owned(),
        [(server, status)] => {
            let detail = status.detail.as_deref().unwrap_or_default();
            format!("for {}: {detail}", folder(server))
        }
        many => {
            let ready =
                |(_, status): &&(Arc<Server>, ServerStatus)| status.state == ServerState::Ready;
            let ready = many.iter().filter(ready).count();
            format!("for {} projects, ready for {ready}", many.len())
        }
    }
}

/// One instance in a line, and what is to be known of its tools.
fn about(server: &Server, status: &ServerStatus) -> Vec<String> {
    let detail = match &status.detail {
        Some(detail) => format!(" ({detail})"),
        None => String::new(),
    };
    let state = status.state.as_str();
    let own = format!(
        "project {}: {state}{detail}; its stderr is in {}",
        folder(server),
        server.log_name()
    );
    std::iter::once(own).chain(status.notes.clone()).collect()
}

fn folder(server: &Server) -> String {
    server
        .project()
        .map(|project| project.display().to_string())
        .unwrap_or_default()
}
