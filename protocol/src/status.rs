//! The daemon's state as plain data, for `ptcctl` and for the health check.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::run::Confinement;

/// Revision of the JSON that `ptcctl --json` prints.
pub const SCHEMA: u32 = 1;

/// How well one part is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It works.
    #[default]
    Ok,
    /// It does not work now and may by itself.
    Transient,
    /// It does not work until someone acts.
    Blocked,
}

/// One statement about one part of the daemon, computed here and shown by every face.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// How well it is.
    pub level: Level,
    /// One word for the state.
    pub state: String,
    /// One sentence.
    pub summary: String,
    /// The cause, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// What one downstream server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// Its first connection is being made.
    Connecting,
    /// Its tools can be called.
    Ready,
    /// It was lost or failed to start, and is being tried again.
    Reconnecting,
    /// It will not be tried again by itself.
    Failed,
    /// Turned off in the configuration.
    Disabled,
}

impl ServerState {
    /// The name used in JSON and shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Reconnecting => "reconnecting",
            Self::Failed => "failed",
            Self::Disabled => "disabled",
        }
    }
}

/// One downstream server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Name in the configuration.
    pub name: String,
    /// What it is doing.
    pub state: ServerState,
    /// `stdio`, `http` or `sse`.
    pub via: String,
    /// Revision of the protocol that is spoken, while it is connected.
    #[serde(default)]
    pub protocol: Option<String>,
    /// Tools a program can call, `None` while unknown.
    pub tools: Option<usize>,
    /// Calls sent since the daemon started.
    pub calls: u64,
    /// Calls of these that failed.
    pub failed_calls: u64,
    /// Median duration of the latest calls, in milliseconds.
    pub p50_ms: Option<u64>,
    /// Milliseconds since the last call.
    pub last_call_ms_ago: Option<u64>,
    /// Process id, for a running stdio server.
    pub pid: Option<u32>,
    /// One line for people: the fault, the next try, or what is running.
    pub detail: Option<String>,
    /// Connections made after the first one since the daemon started.
    #[serde(default)]
    pub restarts: u64,
    /// How well it is; every face shows this statement.
    #[serde(default)]
    pub health: Health,
    /// Lines on its stdout that were no protocol.
    pub junk_lines: u64,
    /// Things a person should know about its tools.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The pool of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Workers ready to take a program.
    pub warm: usize,
    /// Most warm workers kept.
    pub max_warm: usize,
    /// Programs running.
    pub busy: usize,
    /// Most programs at once.
    pub max_runs: usize,
    /// Programs waiting for a place.
    pub queued: usize,
    /// Whether workers are forked off a warm interpreter now; each is an interpreter of its own otherwise.
    #[serde(default)]
    pub forked: bool,
}

/// Whether programs can run, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramsStatus {
    /// The tier in force; `None` when programs are refused.
    pub confinement: Option<Confinement>,
    /// Why programs are refused, with the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// What a person should know about the tier or the interpreter.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Version of the interpreter, such as `3.12.4`.
    pub python: Option<String>,
    /// Real path of the interpreter.
    pub python_path: Option<String>,
    /// The pool.
    pub pool: PoolStatus,
    /// Engines that programs may run in beside CPython.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<EngineStatus>,
}

/// An engine that programs may run in beside CPython.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Whether programs that name no engine run in it.
    pub default: bool,
    /// Its version, once a worker of it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why it cannot be had, with the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// Counts since the daemon started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Programs ended.
    pub runs: u64,
    /// Of these, not ended well.
    pub failed_runs: u64,
    /// Bytes of tool results that programs were given.
    pub result_bytes: u64,
    /// Bytes of output that clients were given.
    pub output_bytes: u64,
    /// Bytes of tool results that did not come back as output, each run by itself.
    #[serde(default)]
    pub kept_out_bytes: u64,
}

/// What one process takes of the machine; `None` where the system does not tell it cheaply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFigures {
    /// Its process id.
    pub pid: u32,
    /// Open descriptors.
    pub open_fds: Option<u64>,
    /// Memory of its that is resident, in bytes.
    pub rss_bytes: Option<u64>,
    /// The same with each shared page divided among those that share it, in bytes.
    pub pss_bytes: Option<u64>,
}

/// The daemon's own processes, as they see themselves: others may not look into them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes {
    /// The daemon.
    pub daemon: ProcessFigures,
    /// The parent of its workers, where the tier in force has one.
    pub warden: Option<ProcessFigures>,
}

/// One connected client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Its label: `--client`, else the name it gave in `initialize`.
    pub name: String,
    /// Digest of its session.
    pub session: String,
    /// Its shim's process id.
    pub pid: u32,
    /// The shim's build, where it differs from the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_build: Option<String>,
    /// Programs it is running.
    pub runs: usize,
}

/// The configuration in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// Real path of the file; `None` where none is present.
    pub path: Option<String>,
    /// Seconds since it was read.
    pub read_seconds_ago: u64,
    /// Every fault of the file, when the one on disk is not in force.
    #[serde(default)]
    pub faults: Vec<String>,
    /// Whether the file has changed since it was read.
    pub changed_on_disk: bool,
    /// Names of variables that no one has sent.
    #[serde(default)]
    pub missing_variables: Vec<String>,
}

/// Whether what runs can be recorded; what cannot be does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStatus {
    /// Why it cannot be written: what failed last and still does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// Everything `ptcctl status` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// The daemon's build.
    pub build: String,
    /// The daemon's process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Whether it is draining.
    pub draining: bool,
    /// The socket's path.
    pub socket: String,
    /// The state folder.
    pub state_dir: String,
    /// The whole daemon's health.
    pub health: Health,
    /// The configuration in force.
    pub config: ConfigStatus,
    /// The Cedar policies in force; `None` where none are configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyStatus>,
    /// Whether and how programs run.
    pub programs: ProgramsStatus,
    /// Whether what runs can be recorded.
    #[serde(default)]
    pub journal: JournalStatus,
    /// Counts since the start.
    pub totals: Totals,
    /// Counts since midnight where the daemon runs, those of earlier daemons among them.
    #[serde(default)]
    pub today: Totals,
    /// What the daemon's processes take of the machine.
    #[serde(default)]
    pub processes: Processes,
    /// Connected clients.
    pub clients: Vec<ClientStatus>,
    /// Downstream servers, in the configuration's order.
    pub servers: Vec<ServerStatus>,
}

/// The Cedar policies in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// The file or folder they came from.
    pub path: String,
    /// How many there are.
    pub policies: usize,
    /// Which set: the first digits of its hash.
    pub rules: String,
    /// What their author should know although they can be used.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// What [`crate::route::TOOLS`] answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolList {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Sorted callable names.
    pub tools: Vec<String>,
    /// Servers whose tools are missing now, and why.
    pub unavailable: BTreeMap<String, String>,
    /// What each tool does to the world: `read`, `write` or `destructive`. Older daemons do not say it.
    #[serde(default)]
    pub effects: BTreeMap<String, String>,
}

/// What [`crate::route::CONFIG`] answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigShown {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Real path of the file; `None` where none is present.
    pub path: Option<String>,
    /// Every fault of the file, when the one on disk is not in force.
    #[serde(default)]
    pub faults: Vec<String>,
    /// Sections and keys as the file writes them, variables not replaced, secrets masked.
    pub config: serde_json::Value,
}

/// What an operation on the daemon answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Whether it was done.
    pub ok: bool,
    /// What happened, a sentence a line.
    pub messages: Vec<String>,
}

/// The `daemon.json` in the state folder, by which a client in another environment finds the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonFile {
    /// The daemon's process id.
    pub pid: u32,
    /// Start, milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// The socket's path.
    pub socket: String,
    /// The daemon's build.
    pub build: String,
    /// The handshake revision it speaks.
    pub protocol: u32,
}

/// The `last-end.json` that a daemon leaves when it ends in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastEnd {
    /// The process id it had.
    pub pid: u32,
    /// When, milliseconds since the Unix epoch.
    pub ended_ms: u64,
    /// Who told it to end: `signal` or `stop`.
    pub told_by: String,
}

/// One line on the readiness pipe or stdout of `ptcd serve --ready-fd N`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readiness {
    /// The socket takes connections.
    Ready {
        /// Its path.
        socket: String,
    },
    /// Another daemon of this configuration holds the lock.
    AlreadyRunning,
    /// The daemon cannot start.
    Failed {
        /// Cause and remedy.
        message: String,
    },
}
