//! The record of one run and its calls, as the journal keeps it and the socket shows it.

use serde::{Deserialize, Serialize};

use crate::facts::Facts;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The program came to its end.
    Finished,
    /// The program raised, or does not compile.
    ScriptError,
    /// The wall clock limit ended it.
    TimedOut,
    /// Its client cancelled it or went away.
    Cancelled,
    /// A limit, the kernel or a crash ended its process.
    Killed,
    /// It never started.
    Refused,
}

impl Ending {
    /// The name used in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::ScriptError => "script_error",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Killed => "killed",
            Self::Refused => "refused",
        }
    }
}

/// The tier a program is confined by (CONTRACT 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    /// Namespaces, a read-only root, Landlock where there is, seccomp.
    Full,
    /// Landlock and seccomp, without namespaces.
    Landlock,
    /// macOS `sandbox-exec`.
    Seatbelt,
    /// A docker or podman container.
    Container,
    /// Not confined, by the operator's explicit word.
    None,
}

impl Confinement {
    /// The name used in JSON and in `execution.sandbox`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Landlock => "landlock",
            Self::Seatbelt => "seatbelt",
            Self::Container => "container",
            Self::None => "none",
        }
    }
}

/// What kind of failure a program can catch (CONTRACT 6); the names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorKind {
    /// No tool of that name.
    UnknownTool,
    /// Policy says no.
    Denied,
    /// The arguments do not fit the tool's input schema.
    InvalidArguments,
    /// The run has used up its calls.
    BudgetExhausted,
    /// The call's own time limit passed.
    Timeout,
    /// The tool answered with an error result.
    ToolFailed,
    /// The server answered with a JSON-RPC error, or with what is no answer.
    Protocol,
    /// The result does not fit the declared output schema.
    InvalidResult,
    /// The result is over `max_tool_result_bytes`.
    ResultTooLarge,
    /// The connection ended while the call was in flight.
    ConnectionLost,
    /// The server is not there to be called.
    Unavailable,
    /// The run ended while the call was in flight.
    Cancelled,
}

impl ToolErrorKind {
    /// The name used in JSON and as `ToolError.kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::Denied => "denied",
            Self::InvalidArguments => "invalid_arguments",
            Self::BudgetExhausted => "budget_exhausted",
            Self::Timeout => "timeout",
            Self::ToolFailed => "tool_failed",
            Self::Protocol => "protocol",
            Self::InvalidResult => "invalid_result",
            Self::ResultTooLarge => "result_too_large",
            Self::ConnectionLost => "connection_lost",
            Self::Unavailable => "unavailable",
            Self::Cancelled => "cancelled",
        }
    }
}

/// One tool call of a run, as the answer and the record list it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Callable name.
    pub tool: String,
    /// Arguments as JSON text, cut at 200 characters.
    pub args: String,
    /// Whether a value came back.
    pub ok: bool,
    /// Milliseconds from the call's start to its end, waiting for a place included.
    pub ms: u64,
    /// Kind of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolErrorKind>,
    /// Text of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What its author should know although it did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One run, as the journal keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The run's id.
    pub run: String,
    /// Digest of the session that started it.
    pub session: String,
    /// The client's self-declared label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Start, milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// Wall clock, in milliseconds.
    pub duration_ms: u64,
    /// How it ended.
    pub ending: Ending,
    /// Which limit ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The tier it was confined by.
    pub confinement: Confinement,
    /// Calls made.
    pub calls: u64,
    /// Calls that failed.
    pub failed_calls: u64,
    /// Bytes the program printed.
    pub output_bytes: u64,
    /// Bytes of tool results it was given.
    pub result_bytes: u64,
    /// Processor time of its worker, in milliseconds; `None` until the worker is reaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Peak resident memory of its worker, in bytes; `None` until the worker is reaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// The error as the client saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What else is known; records of older versions lack it.
    #[serde(default)]
    pub facts: Facts,
}

impl RunRecord {
    /// Its end, milliseconds since the Unix epoch.
    pub fn ended_ms(&self) -> u64 {
        self.started_ms.saturating_add(self.duration_ms)
    }
}

/// Most calls a [`RequestCalls`] lists.
pub const MAX_LISTED_CALLS: usize = 100;

/// What the call log says about the newest run that one request started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCalls {
    /// The run's id; `None` where the request started no run.
    pub run: Option<String>,
    /// How it ended; `None` where its daemon ended first, or it still runs.
    pub ending: Option<Ending>,
    /// Calls sent before those listed.
    pub earlier: usize,
    /// The last calls sent, in order, at most [`MAX_LISTED_CALLS`].
    pub calls: Vec<SentCall>,
}

/// One call that went to a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentCall {
    /// Callable name.
    pub tool: String,
    /// Name of the server.
    pub server: String,
    /// Whether a value came back; `None` where nobody knows whether the call took effect.
    pub ok: Option<bool>,
}
