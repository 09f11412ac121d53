//! Holds the daemon's connections to the servers whose tools programs call.

mod backoff;
mod call;
mod carrier;
mod compact;
mod connection;
mod descendants;
mod endpoint;
mod error;
mod events;
mod greeting;
mod handler;
mod health;
mod http;
mod http_stream;
mod id_scan;
mod inbox;
pub(crate) mod json;
mod known;
mod ladder;
mod line;
mod link;
mod listen;
mod listing;
mod outgoing;
mod param_headers;
mod places;
mod process;
mod projects;
mod reach;
mod refusal;
mod rendering;
mod reply;
pub(crate) mod result;
mod server;
mod spawn;
mod sse;
mod stats;
mod stderr;
mod stdio;
mod supervisor;
pub mod survivors;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod view;
pub(crate) mod wire;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ptc_protocol::status::{ServerState, ServerStatus};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

pub use call::Answer;
pub use endpoint::Address;
pub use error::CallError;
pub use listing::ToolDefinition;
pub use spawn::{Entry, NotThere, locate};
pub use stderr::{Mask, Settled};
pub use view::View;

use crate::config::{Scope, ServerConfig, Transport};
use connection::Plan;
use projects::{NoInstance, Projects, Use};
use server::{Scoped, Server as Shared};
use spawn::{Launch, LaunchError, Spawner};
use stats::Stats;
use supervisor::Supervisor;

/// Where a server is, every variable replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process to be started.
    Process(Entry),
    /// An HTTP endpoint.
    Endpoint(Address),
}

/// Gives a server's target with every variable replaced, `${project}` by the path, or what the operator should do.
pub type Expand = Arc<dyn Fn(&ServerConfig, Option<&Path>) -> Result<Target, String> + Send + Sync>;
/// Gives a variable of the daemon's recorded environment.
pub type Recorded = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What all servers have in common.
#[derive(Clone)]
pub struct Options {
    /// Size of one result for a program, in bytes. Messages may have twice as much and 1 MiB.
    pub max_result_bytes: usize,
    /// How an entry's variables are replaced; an error is shown as the server's detail.
    pub expand: Expand,
    /// The daemon's recorded environment, from which servers get eight variables.
    pub recorded: Recorded,
    /// Folder of the servers' logs; it must be there.
    pub log_dir: PathBuf,
    /// Folder of the last known lists of servers with `scope: project`; it must be there.
    pub lists_dir: PathBuf,
    /// How long an instance of such a server is kept without a call.
    pub idle: Duration,
    /// Takes secrets out of what is shown or written down.
    pub mask: Mask,
    /// How far a text can be masked before the rest of it is there.
    pub settled: Settled,
    /// The ptcd program, which is started once more to end what servers leave behind where this daemon is killed;
    /// `None` does without.
    pub own_program: Option<PathBuf>,
    /// File mode creation mask of servers: that of the user, not the daemon's own strict one.
    pub umask: rustix::fs::Mode,
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment may hold secrets, and the rest is code.
        formatter
            .debug_struct("Options")
            .field("max_result_bytes", &self.max_result_bytes)
            .field("log_dir", &self.log_dir)
            .finish_non_exhaustive()
    }
}

impl Options {
    fn plan(&self, config: &ServerConfig, project: Option<&Path>) -> Result<Plan, LaunchError> {
        let target =
            (self.expand)(config, project).map_err(|cause| LaunchError::Entry { cause })?;
        Ok(match target {
            Target::Process(entry) => {
                Plan::Process(Launch::plan(entry, &*self.recorded, self.umask)?)
            }
            Target::Endpoint(address) => match config.transport {
                Transport::Sse { .. } => Plan::Sse(address),
                Transport::Stdio { .. } | Transport::Http { .. } => Plan::Http(address),
            },
        })
    }
}

/// One server at one moment.
#[derive(Clone, Debug)]
pub struct Server {
    /// Name in the configuration.
    pub name: String,
    /// What it is doing.
    pub state: ServerStatus,
    /// Its last known tools; they can be called while the state is ready.
    pub tools: Arc<[ToolDefinition]>,
}

/// All servers of the configuration. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Downstream {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: Arc<Options>,
    spawner: Spawner,
    slots: Mutex<Vec<Slot>>,
    changed: watch::Sender<u64>,
    max_result_bytes: AtomicUsize,
    /// How long an instance of one project is kept without a call, in milliseconds.
    idle_ms: Arc<AtomicU64>,
    stop: CancellationToken,
    /// The supervisors, those of servers that are no longer configured included.
    tasks: TaskTracker,
}

/// One entry of the configuration.
#[derive(Debug)]
enum Slot {
    /// One session for all clients.
    Shared(Running),
    /// One session for each project.
    Projects(Arc<Projects>),
}

/// One session, or the attempts at one.
#[derive(Debug)]
struct Running {
    server: Arc<Shared>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Slot {
    fn name(&self) -> &str {
        match self {
            Self::Shared(running) => &running.server.config.name,
            Self::Projects(projects) => &projects.config.name,
        }
    }

    /// Every session there is.
    fn servers(&self) -> Vec<Arc<Shared>> {
        match self {
            Self::Shared(running) => vec![Arc::clone(&running.server)],
            Self::Projects(projects) => projects.servers(),
        }
    }

    fn end(&self) {
        match self {
            Self::Shared(running) => running.stop.cancel(),
            Self::Projects(projects) => projects.close(),
        }
    }
}

impl Downstream {
    /// Starts to connect to every enabled server that all clients share, and waits for none.
    ///
    /// # Errors
    /// The system gives no thread to start processes from.
    pub fn start(servers: Vec<ServerConfig>, options: Options) -> io::Result<Self> {
        let downstream = Self {
            inner: Arc::new(Inner {
                max_result_bytes: AtomicUsize::new(options.max_result_bytes),
                idle_ms: Arc::new(AtomicU64::new(millis(options.idle))),
                spawner: Spawner::start(options.own_program.as_deref())?,
                options: Arc::new(options),
                slots: Mutex::new(Vec::new()),
                changed: watch::Sender::new(0),
                stop: CancellationToken::new(),
                tasks: TaskTracker::new(),
            }),
        };
        downstream.reload(servers);
        Ok(downstream)
    }

    /// All servers, in the configuration's order, as the operator sees them.
    pub fn servers(&self) -> Vec<Server> {
        self.seen(Projects::overview)
    }

    /// All servers, in the configuration's order, as one client sees them: of a server that runs
    /// for each project, what runs or would run for the client's own.
    pub fn servers_for(&self, view: &View) -> Vec<Server> {
        self.seen(|projects| projects.seen_from(view.project.as_ref()))
    }

    fn seen(&self, projects: impl Fn(&Projects) -> Server) -> Vec<Server> {
        let shown = |slot: &Slot| match slot {
            Slot::Shared(running) => Server {
                name: running.server.config.name.clone(),
                state: running.server.status(),
                tools: running.server.tools().unwrap_or_else(|| Arc::from([])),
            },
            Slot::Projects(of_projects) => projects(of_projects),
        };
        self.slots().iter().map(shown).collect()
    }

    /// Starts what a client's look at the tools needs: the instances for its project of those
    /// servers whose tools nobody has seen yet. Others start with their first call.
    pub fn look(&self, view: &View) {
        let unknown: Vec<Arc<Projects>> = self
            .slots()
            .iter()
            .filter_map(|slot| match slot {
                Slot::Projects(projects) if projects.is_unknown() => Some(Arc::clone(projects)),
                _ => None,
            })
            .collect();
        // Judged when the list of servers is free again: what judges waits for whoever changes it.
        let open = |projects: &Arc<Projects>| !view.barred.contains(&projects.config.name);
        for projects in unknown.into_iter().filter(open) {
            // Where there is no room, or no project, the list says so.
            let _ = self.engage(&projects, view);
        }
    }

    /// Changes whenever a server's state or list of tools does.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// The size one result may have, in bytes.
    pub fn max_result_bytes(&self) -> usize {
        self.inner.max_result_bytes.load(Ordering::Relaxed)
    }

    /// Takes over another size for results. What connections read at most changes with their next start.
    pub fn set_max_result_bytes(&self, bytes: usize) {
        self.inner.max_result_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Takes over another time for which instances of single projects are kept without a call;
    /// those that run see it within a minute.
    pub fn set_idle(&self, idle: Duration) {
        self.inner.idle_ms.store(millis(idle), Ordering::Relaxed);
    }

    /// Takes secrets out of a text that is shown or written down.
    pub fn mask(&self, text: &str) -> String {
        (self.inner.options.mask)(text)
    }

    /// Takes over another list of servers.
    ///
    /// A server whose entry, variables included, is as before keeps its
    /// session; one that had failed is tried again.
    pub fn reload(&self, servers: Vec<ServerConfig>) {
        let mut slots = self.slots();
        let mut old = std::mem::take(&mut *slots);
        for config in servers {
            let before = old
                .iter()
                .position(|slot| slot.name() == config.name)
                .map(|index| old.remove(index));
            slots.push(self.slot(config, before));
        }
        drop(slots);
        for gone in old {
            gone.end();
        }
        self.inner.changed.send_modify(|version| *version += 1);
    }

    /// The slot for an entry, in place of the one that had its name before.
    fn slot(&self, config: ServerConfig, before: Option<Slot>) -> Slot {
        match (config.scope, before) {
            (Scope::Shared, Some(Slot::Shared(running)))
                if !self.is_stale(&running.server, &config) =>
            {
                Slot::Shared(running)
            }
            (Scope::Shared, Some(Slot::Shared(running))) => {
                running.stop.cancel();
                let stats = Arc::clone(&running.server.stats);
                Slot::Shared(self.supervise(config, stats, None, Some(running.task)))
            }
            (Scope::Project, Some(Slot::Projects(projects))) if projects.config == config => {
                projects.end_where(|server| self.is_stale(server, &config));
                Slot::Projects(projects)
            }
            (scope, before) => {
                let changed = self.inner.changed.clone();
                if let Some(before) = &before {
                    before.end();
                }
                let stats = match &before {
                    Some(Slot::Shared(running)) => Arc::clone(&running.server.stats),
                    Some(Slot::Projects(projects)) => Arc::clone(&projects.stats),
                    None => Arc::default(),
                };
                if scope == Scope::Shared {
                    return Slot::Shared(self.supervise(config, stats, None, None));
                }
                let fresh = Projects::new(config, stats, &self.inner.options, changed);
                if let Some(Slot::Projects(projects)) = &before {
                    projects.hand_over(&fresh);
                }
                Slot::Projects(fresh)
            }
        }
    }

    /// Ends a server's connections and makes new ones at once, all of them where it runs for
    /// several projects. Gives how many those are, or nothing if there is no such server.
    pub fn restart(&self, name: &str) -> Option<usize> {
        let slots = self.slots();
        let servers = slots.iter().find(|slot| slot.name() == name)?.servers();
        for server in &servers {
            server.restart.notify_one();
        }
        Some(servers.len())
    }

    /// Ends all servers in order, those still starting included. When it
    /// returns, no process of theirs is left.
    pub async fn stop(&self) {
        self.inner.stop.cancel();
        for slot in self.slots().iter() {
            slot.end();
        }
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        self.slots().clear();
    }

    fn is_stale(&self, server: &Shared, config: &ServerConfig) -> bool {
        if server.config != *config || server.phase() == ServerState::Failed {
            return true;
        }
        let project = server.project().map(AsRef::as_ref);
        match server.plan() {
            Some(plan) => !self
                .inner
                .options
                .plan(config, project)
                .is_ok_and(|now| now == plan),
            None => false,
        }
    }

    /// The instance of a server for a client's project, which is started where it does not run.
    fn engage(&self, projects: &Arc<Projects>, view: &View) -> Result<Use, NoInstance> {
        projects.engage(view.project.as_ref(), |scoped, after| {
            let (config, stats) = (projects.config.clone(), Arc::clone(&projects.stats));
            let running = self.supervise(config, stats, Some(scoped), after);
            let idle = Arc::clone(&self.inner.idle_ms);
            let watch = Arc::clone(projects).watch_idle(
                Arc::clone(&running.server),
                running.stop.clone(),
                move || Duration::from_millis(idle.load(Ordering::Relaxed)),
            );
            self.inner.tasks.spawn(watch);
            running
        })
    }

    fn supervise(
        &self,
        config: ServerConfig,
        stats: Arc<Stats>,
        scoped: Option<Scoped>,
        after: Option<JoinHandle<()>>,
    ) -> Running {
        let stop = self.inner.stop.child_token();
        let changed = self.inner.changed.clone();
        let server = Arc::new(Shared::new(config, stats, scoped, changed));
        let supervisor = Supervisor {
            server: Arc::clone(&server),
            spawner: self.inner.spawner.clone(),
            options: Arc::clone(&self.inner.options),
            max_result_bytes: self.max_result_bytes(),
            stop: stop.clone(),
        };
        let task = self.inner.tasks.spawn(async move {
            if let Some(before) = after {
                // Two processes of one server could fight over what it holds.
                let _ = before.await;
            }
            let name = supervisor.server.config.name.clone();
            let span = tracing::error_span!("server", server = name);
            supervisor.run().instrument(span).await;
        });
        Running { server, stop, task }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.inner
            .slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
