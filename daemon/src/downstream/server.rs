//! Holds what is known of one server while its supervisor works on it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ptc_protocol::paths::instance_log_name;
use ptc_protocol::status::{ServerState, ServerStatus};
use rmcp::service::{Peer, RoleClient};
use tokio::sync::{Notify, watch};

use super::connection::Plan;
use super::health;
use super::known::Known;
use super::ladder::Spoken;
use super::link::Link;
use super::listing::ToolDefinition;
use super::places::Places;
use super::stats::Stats;
use super::stderr::Tail;
use crate::config::ServerConfig;

/// Most notes about one server.
const MAX_NOTES: usize = 40;

/// A connection that calls can be sent on.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) peer: Peer<RoleClient>,
    pub(super) link: Arc<Link>,
    pub(super) tail: Tail,
    pub(super) spoken: Spoken,
    pub(super) over_http: bool,
    /// Longest message that is read, in bytes.
    pub(super) cap: usize,
}

/// What makes a server that of one project.
#[derive(Clone, Debug)]
pub(super) struct Scoped {
    /// Real path of the project's folder.
    pub(super) project: Arc<Path>,
    /// Which of the server's instances it is, counted from 0; decides the name of its log.
    pub(super) number: usize,
    /// Where its list is left for times at which no instance runs.
    pub(super) known: Arc<Known>,
}

/// One server, shared by its supervisor and its callers.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: ServerConfig,
    pub(super) stats: Arc<Stats>,
    /// Places for calls in flight.
    pub(super) places: Places,
    /// What it is for, where it works for one project.
    pub(super) scoped: Option<Scoped>,
    /// A call that waits shortens the pause before the next attempt.
    pub(super) wake: Notify,
    /// The operator wants a new connection now.
    pub(super) restart: Notify,
    inner: Mutex<Inner>,
    /// Counts the changes of this server.
    version: watch::Sender<u64>,
    /// Counts the changes of all servers.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    phase: ServerState,
    detail: Option<String>,
    next_try: Option<(u32, Instant)>,
    live: Option<Live>,
    tail: Option<Tail>,
    pid: Option<u32>,
    tools: Option<Arc<[ToolDefinition]>>,
    notes: Vec<String>,
    junk_before: u64,
    plan: Option<Plan>,
    /// What it spoke when it was last connected.
    spoken: Option<Spoken>,
}

impl Server {
    pub(super) fn new(
        config: ServerConfig,
        stats: Arc<Stats>,
        scoped: Option<Scoped>,
        changed: watch::Sender<u64>,
    ) -> Self {
        let phase = if config.enabled {
            ServerState::Connecting
        } else {
            ServerState::Disabled
        };
        Self {
            places: Places::new(config.max_concurrent_calls),
            scoped,
            config,
            stats,
            wake: Notify::new(),
            restart: Notify::new(),
            inner: Mutex::new(Inner {
                phase,
                detail: None,
                next_try: None,
                live: None,
                tail: None,
                pid: None,
                tools: None,
                notes: Vec::new(),
                junk_before: 0,
                plan: None,
                spoken: None,
            }),
            version: watch::Sender::new(0),
            changed,
        }
    }

    /// An attempt to connect begins.
    pub(super) fn starting(&self, first: bool, plan: Plan, tail: Tail) {
        self.change(|inner| {
            inner.phase = if first {
                ServerState::Connecting
            } else {
                ServerState::Reconnecting
            };
            inner.next_try = None;
            inner.plan = Some(plan);
            inner.tail = Some(tail);
            if first {
                inner.detail = None;
            }
        });
    }

    /// The attempt has a process, or needs none.
    pub(super) fn has_process(&self, pid: Option<u32>) {
        self.change(|inner| inner.pid = pid);
    }

    /// The attempt goes on in another way, since this one did not do.
    pub(super) fn trying_otherwise(&self, why: String) {
        self.change(|inner| {
            inner.detail = Some(why);
            inner.pid = None;
        });
    }

    /// What the server spoke when it was last connected.
    pub(super) fn spoken(&self) -> Option<Spoken> {
        self.lock().spoken
    }

    /// Tools can be called.
    pub(super) fn ready(&self, live: Live, tools: Arc<[ToolDefinition]>, notes: Vec<String>) {
        self.learn(&tools);
        self.stats.connected();
        self.change(|inner| {
            inner.phase = ServerState::Ready;
            inner.detail = None;
            inner.spoken = Some(live.spoken);
            inner.live = Some(live);
            inner.tools = Some(tools);
            self.log_news(&inner.notes, &notes);
            inner.notes = notes;
        });
    }

    fn log_news(&self, known: &[String], notes: &[String]) {
        for note in notes.iter().filter(|note| !known.contains(note)) {
            tracing::warn!(server = %self.config.name, %note, "about a server's tools");
        }
    }

    /// The list of tools is a new one.
    pub(super) fn relisted(&self, tools: Arc<[ToolDefinition]>, notes: Vec<String>) {
        self.learn(&tools);
        self.change(|inner| {
            inner.tools = Some(tools);
            self.log_news(&inner.notes, &notes);
            inner.notes = notes;
        });
    }

    fn learn(&self, tools: &Arc<[ToolDefinition]>) {
        if let Some(scoped) = &self.scoped {
            scoped.known.learn(tools);
        }
    }

    /// The folder it works for, where it works for one project.
    pub(super) fn project(&self) -> Option<&Arc<Path>> {
        self.scoped.as_ref().map(|scoped| &scoped.project)
    }

    /// The name of the file that its stderr is written to.
    pub(super) fn log_name(&self) -> String {
        let number = self.scoped.as_ref().map_or(0, |scoped| scoped.number);
        instance_log_name(&self.config.name, number + 1)
    }

    /// Something about the tools should be known.
    pub(super) fn note(&self, note: String) {
        self.change(|inner| {
            if inner.notes.len() < MAX_NOTES && !inner.notes.contains(&note) {
                inner.notes.push(note);
            }
        });
    }

    /// The connection has ended; what is left of it is still being tidied up.
    pub(super) fn losing(&self, why: String) {
        self.change(|inner| {
            inner.phase = ServerState::Reconnecting;
            inner.detail = Some(why);
        });
    }

    /// There is no connection any more, and the next attempt is planned.
    pub(super) fn down(&self, why: String, attempt: u32, pause: Duration) {
        self.change(|inner| {
            inner.phase = ServerState::Reconnecting;
            inner.detail = Some(why);
            inner.next_try = Some((attempt, Instant::now() + pause));
            inner.drop_connection();
        });
    }

    /// Nothing more is tried until someone acts.
    pub(super) fn failed(&self, why: String) {
        self.change(|inner| {
            inner.phase = ServerState::Failed;
            inner.detail = Some(why);
            inner.next_try = None;
            inner.drop_connection();
        });
    }

    /// The connection that calls can be sent on, or the state and its cause.
    pub(super) fn live(&self) -> Result<Live, (ServerState, String)> {
        let inner = self.lock();
        match &inner.live {
            Some(live) if !live.link.ended.is_cancelled() => Ok(live.clone()),
            Some(live) => Err((ServerState::Reconnecting, live.link.how())),
            None => Err((inner.phase, inner.words())),
        }
    }

    /// Changes with each change of this server.
    pub(super) fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(super) fn phase(&self) -> ServerState {
        self.lock().phase
    }

    /// How the latest attempt was made.
    pub(super) fn plan(&self) -> Option<Plan> {
        self.lock().plan.clone()
    }

    /// The last known tools, whether or not they can be called now.
    pub(super) fn tools(&self) -> Option<Arc<[ToolDefinition]>> {
        self.lock().tools.clone()
    }

    pub(super) fn status(&self) -> ServerStatus {
        let stats = self.stats.snapshot();
        let inner = self.lock();
        let ready = inner.phase == ServerState::Ready;
        let detail = Some(inner.words()).filter(|words| !words.is_empty());
        let live_junk = inner.live.as_ref().map_or(0, |live| live.link.junk());
        ServerStatus {
            name: self.config.name.clone(),
            state: inner.phase,
            via: self.config.transport.name().to_owned(),
            protocol: inner
                .live
                .as_ref()
                .and_then(|live| live.link.agreement())
                .map(|agreed| agreed.version.clone()),
            tools: inner
                .tools
                .as_ref()
                .filter(|_| ready)
                .map(|tools| tools.len()),
            calls: stats.calls,
            failed_calls: stats.failed,
            p50_ms: stats.p50_ms,
            last_call_ms_ago: stats.last_ms_ago,
            pid: inner.pid,
            restarts: stats.restarts,
            health: health::of(&self.config.name, inner.phase, detail.clone()),
            detail,
            junk_lines: inner.junk_before.saturating_add(live_junk),
            notes: inner.notes.clone(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.version.send_modify(|version| *version += 1);
        self.changed.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn drop_connection(&mut self) {
        if let Some(live) = self.live.take() {
            self.junk_before = self.junk_before.saturating_add(live.link.junk());
        }
        self.pid = None;
        self.tail = None;
    }

    /// What happens next to a server that is not connected.
    fn next_words(&self) -> String {
        if let Some((attempt, at)) = self.next_try {
            let left = at.saturating_duration_since(Instant::now());
            return format!("try {attempt} in {} s", left.as_secs() + 1);
        }
        match self.tail.as_ref().and_then(Tail::last) {
            Some(line) => format!("starting: {line}"),
            None => "starting".to_owned(),
        }
    }

    /// One line for people.
    fn words(&self) -> String {
        let mut parts: Vec<String> = self.detail.iter().cloned().collect();
        match self.phase {
            ServerState::Ready => {
                if let Some(pid) = self.pid {
                    parts.push(format!("pid {pid}"));
                }
                let link = self.live.as_ref().map(|live| &live.link);
                if let Some(agreed) = link.and_then(|link| link.agreement()) {
                    parts.push(format!("MCP {}", agreed.version));
                }
            }
            ServerState::Connecting | ServerState::Reconnecting => {
                parts.push(self.next_words());
            }
            ServerState::Failed | ServerState::Disabled => {}
        }
        parts.join("; ")
    }
}
