//! The configuration as it is meant: resolved, valid, every default filled in.

mod check;
mod engines;
pub mod expand;
mod expand_error;
mod fault;
mod fields;
mod foreign;
mod load;
pub mod mask;
pub mod offered;
mod policy;
mod raw;
mod risk;
mod servers;
mod show;
mod spellings;
mod submit;
mod template;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::engines::{EngineName, EnginesConfig};
pub use self::fault::{ConfigFaults, Fault};
pub use self::load::{load, load_choice, parse};
pub use self::policy::{ApprovalConfig, Channel, EffectsConfig, GrantConfig, PolicyConfig};
pub use self::risk::{OnError, RiskConfig, RiskKind};
pub use self::show::show;
pub use self::submit::{Profile, ProfileLimits, Profiles, SubmitConfig};

/// Everything the daemon was told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Downstream servers, in the file's order.
    pub servers: Vec<ServerConfig>,
    /// Which tools exist for programs and for clients.
    pub tools: ToolsConfig,
    /// Who may call what.
    pub policy: PolicyConfig,
    /// How programs run.
    pub execution: ExecutionConfig,
    /// How the daemon lives.
    pub daemon: DaemonConfig,
    /// What is recorded.
    pub journal: JournalConfig,
    /// What is run for inspection and for submissions.
    pub submit: SubmitConfig,
    /// Limits by name.
    pub profiles: Profiles,
}

/// One downstream server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Name, unique after folding.
    pub name: String,
    /// How it is reached, its values still holding variables (see [`expand`]).
    pub transport: Transport,
    /// One session for all clients, or one a project.
    pub scope: Scope,
    /// Limit of the first connection attempt.
    pub start_timeout: Duration,
    /// Whether it is to be connected at all.
    pub enabled: bool,
    /// What the operator says it is for; shown to models.
    pub purpose: String,
    /// Whether its tool annotations are believed.
    pub trust_annotations: bool,
    /// Which protocol era is tried.
    pub protocol: Era,
    /// Calls in flight over all clients.
    pub max_concurrent_calls: usize,
}

/// How a server is reached; texts may hold `${VAR}`.
#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    /// A child process that speaks on its stdin and stdout.
    Stdio {
        /// Program, found on the server's own PATH unless it holds a slash.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables it gets beside the fixed ones.
        env: BTreeMap<String, String>,
        /// Working directory: absolute, or relative to [`ServerConfig`]'s file; `None` is the file's folder.
        cwd: Option<String>,
        /// Folder of the configuration file: what relative paths start from.
        base: PathBuf,
    },
    /// Streamable HTTP.
    Http {
        /// Endpoint.
        url: String,
        /// Headers sent with each request.
        headers: BTreeMap<String, String>,
    },
    /// The older HTTP and SSE transport.
    Sse {
        /// Endpoint of the event stream.
        url: String,
        /// Headers sent with each request.
        headers: BTreeMap<String, String>,
    },
}

impl Transport {
    /// The name used in the configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
            Self::Sse { .. } => "sse",
        }
    }
}

/// Who shares a server's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All clients.
    Shared,
    /// The clients of one project folder.
    Project,
}

/// Which protocol revisions are tried with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// What suits the transport.
    Auto,
    /// `initialize` only.
    Legacy,
    /// Per-request metadata only.
    Modern,
}

/// Which tools exist.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolsConfig {
    /// Which callable names exist for programs.
    pub filter: ToolFilter,
    /// The daemon's own tools, in the order they are offered.
    pub expose: Vec<ExposedTool>,
}

/// Globs over callable names; `allow` and `block` exclude each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolFilter {
    /// Everything exists.
    All,
    /// Only what matches.
    Allow(Vec<String>),
    /// Everything but what matches.
    Block(Vec<String>),
}

/// One of the daemon's own tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExposedTool {
    /// `execute_program`
    ExecuteProgram,
    /// `inspect_tool`
    InspectTool,
    /// `list_callable_tools`
    ListCallableTools,
    /// `run_python`
    RunPython,
    /// `submit_execute_unconfirmed`
    SubmitExecuteUnconfirmed,
    /// `submit_outcome`, the same under a shorter name.
    SubmitOutcome,
}

impl ExposedTool {
    /// The name clients call.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExecuteProgram => "execute_program",
            Self::InspectTool => "inspect_tool",
            Self::ListCallableTools => "list_callable_tools",
            Self::RunPython => "run_python",
            Self::SubmitExecuteUnconfirmed => "submit_execute_unconfirmed",
            Self::SubmitOutcome => "submit_outcome",
        }
    }
}

/// How programs run. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutionConfig {
    /// Wall clock of one program.
    pub timeout: Duration,
    /// Output given back, at most 4 MiB.
    pub max_output_bytes: usize,
    /// What runs them.
    pub engines: EnginesConfig,
    /// The confinement asked for.
    pub sandbox: SandboxChoice,
    /// Interpreter; `None` is the newest found.
    pub python: Option<PathBuf>,
    /// Calls one program may make.
    pub max_tool_calls: u64,
    /// Calls one program may have in flight.
    pub max_concurrent_calls: usize,
    /// Limit of one call.
    pub tool_call_timeout: Duration,
    /// Whether the answer ends with a summary of calls.
    pub trace: bool,
    /// Size of one result, at most 48 MiB.
    pub max_tool_result_bytes: usize,
    /// Private memory of one program.
    pub memory_bytes: u64,
    /// Files of one program.
    pub scratch_bytes: u64,
    /// Threads of one program.
    pub max_threads: u64,
    /// Programs at once over all clients.
    pub max_runs: usize,
    /// Whether arguments are checked against input schemas.
    pub check_arguments: bool,
    /// What the structured form of an answer holds.
    pub structured_content: StructuredContent,
    /// Steps of its own code that one program may take, as its interpreter counts them; `None` counts none.
    pub step_budget: Option<u64>,
    /// Warm workers.
    pub pool: PoolConfig,
    /// What the tier `container` is made from.
    pub container: ContainerConfig,
}

/// How workers are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartChoice {
    /// Forked off a warm, confined interpreter where that can be had, else as below.
    Auto,
    /// Each by starting an interpreter of its own.
    Exec,
}

impl StartChoice {
    /// The word for it in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Exec => "exec",
        }
    }
}

/// The confinement asked for (`execution.sandbox`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxChoice {
    /// The strongest that a test at start proved, or refuse.
    Auto,
    /// `full` on Linux, `seatbelt` on macOS.
    Native,
    /// Namespaces.
    Full,
    /// Landlock.
    Landlock,
    /// `sandbox-exec`.
    Seatbelt,
    /// docker or podman.
    Container,
    /// Not confined.
    None,
}

impl SandboxChoice {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Full => "full",
            Self::Landlock => "landlock",
            Self::Seatbelt => "seatbelt",
            Self::Container => "container",
            Self::None => "none",
        }
    }
}

/// What the structured form of an answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructuredContent {
    /// Everything.
    Full,
    /// Everything but the output, which the text has.
    Lean,
    /// There is none.
    Off,
}

/// Warm workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Kept ready when idle.
    pub warm: usize,
    /// Kept ready at most, after a peak.
    pub max: usize,
    /// How they are made.
    pub start: StartChoice,
}

/// What the tier `container` is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerConfig {
    /// Whose containers.
    pub engine: EngineChoice,
    /// The image, as written; it is judged when the tier is asked for.
    pub image: Option<String>,
}

/// The container engine asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// docker, where it is installed and runs, else podman.
    #[default]
    Auto,
    /// docker
    Docker,
    /// podman
    Podman,
}

impl EngineChoice {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// How the daemon lives.
#[derive(Clone, Debug, PartialEq)]
pub struct DaemonConfig {
    /// How long runs may end by themselves when the daemon is told to stop.
    pub drain: Duration,
    /// How long an instance of a server with `scope: project` without calls, or a daemon of a named
    /// configuration without clients, is kept.
    pub idle_server: Duration,
}

/// What is recorded, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalConfig {
    /// Folder; `None` is `journal` in the state folder.
    pub path: Option<PathBuf>,
    /// What is kept of values.
    pub record: Record,
    /// Most finished runs kept.
    pub keep_runs: u64,
    /// Most days kept.
    pub keep_days: u64,
    /// Most bytes kept, the call log included.
    pub keep_bytes: u64,
    /// Whose runs a client may see.
    pub share: Share,
}

/// What is kept of arguments and results; the record of the call itself is always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Arguments and results.
    Full,
    /// Arguments, and each result's keyed hash and size.
    Hashes,
    /// Neither.
    Off,
}

/// Whose runs a client may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Its own session's.
    Own,
    /// Everyone's.
    All,
}

/// A path as written with `~/` (or `~` alone) replaced; `None` where that needs a home directory and none is known.
fn home_path(text: &str, home: Option<&Path>) -> Option<PathBuf> {
    match text.strip_prefix('~') {
        Some("") => home.map(Path::to_owned),
        Some(rest) if rest.starts_with('/') => Some(home?.join(rest.trim_start_matches('/'))),
        _ => Some(text.into()),
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            tools: ToolsConfig {
                filter: ToolFilter::All,
                expose: vec![
                    ExposedTool::ExecuteProgram,
                    ExposedTool::InspectTool,
                    ExposedTool::ListCallableTools,
                ],
            },
            policy: PolicyConfig::default(),
            execution: ExecutionConfig {
                timeout: Duration::from_mins(2),
                max_output_bytes: 65536,
                engines: EnginesConfig::default(),
                sandbox: SandboxChoice::Auto,
                python: None,
                max_tool_calls: 100,
                max_concurrent_calls: 8,
                tool_call_timeout: Duration::from_mins(1),
                trace: true,
                max_tool_result_bytes: 16 * 1024 * 1024,
                memory_bytes: 512 * 1024 * 1024,
                scratch_bytes: 64 * 1024 * 1024,
                max_threads: 64,
                max_runs: 16,
                check_arguments: true,
                structured_content: StructuredContent::Full,
                step_budget: None,
                pool: PoolConfig {
                    warm: 2,
                    max: 8,
                    start: StartChoice::Auto,
                },
                container: ContainerConfig::default(),
            },
            daemon: DaemonConfig {
                drain: Duration::from_secs(30),
                idle_server: Duration::from_mins(30),
            },
            journal: JournalConfig {
                path: None,
                record: Record::Hashes,
                keep_runs: 1000,
                keep_days: 30,
                keep_bytes: 1024 * 1024 * 1024,
                share: Share::Own,
            },
            submit: SubmitConfig::default(),
            profiles: Profiles::default(),
        }
    }
}
