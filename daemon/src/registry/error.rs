//! Says to a program's author what went wrong with a call.

use ptc_protocol::run::ToolErrorKind;
use serde_json::Value;

use crate::downstream::CallError;

/// What a program can catch.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The stable kind.
    pub kind: ToolErrorKind,
    /// What happened, on which server, and what to do.
    pub message: String,
    /// Callable name.
    pub tool: Option<String>,
    /// The server's name.
    pub server: Option<String>,
    /// Whether the same call may work later; false where it may have had an effect.
    pub retryable: bool,
    /// What the server or the check gave as data.
    pub data: Option<Box<Value>>,
}

impl ToolError {
    pub(super) fn new(kind: ToolErrorKind, message: String) -> Self {
        Self {
            kind,
            message,
            tool: None,
            server: None,
            retryable: false,
            data: None,
        }
    }

    pub(super) fn of(mut self, tool: &str, server: &str) -> Self {
        self.tool = Some(tool.to_owned());
        self.server = Some(server.to_owned());
        self
    }

    pub(super) fn with_data(mut self, data: Option<Value>) -> Self {
        self.data = data.map(Box::new);
        self
    }

    pub(super) fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// Names the arguments that the tool's schema does not, where they may be why the tool failed.
    pub(super) fn with_strangers(mut self, strangers: Option<&str>) -> Self {
        use ToolErrorKind::{InvalidResult, Protocol, ToolFailed};
        if let Some(strangers) = strangers
            && matches!(self.kind, ToolFailed | Protocol | InvalidResult)
        {
            self.message = format!("{}; note: {strangers}", self.message);
        }
        self
    }

    /// The words for a call that gave no result.
    pub(super) fn from_call(tool: &str, mut error: CallError) -> Self {
        let text = error.to_string();
        let data = take_data(&mut error);
        let (kind, server, message, retryable) = match error {
            CallError::Unavailable {
                server, transient, ..
            } => {
                let advice = if transient {
                    "nothing was sent; try again later"
                } else {
                    "nothing was sent, and only the user can mend this: `ptcctl status` says why"
                };
                let message = format!("{tool} was not called: {text}; {advice}");
                (ToolErrorKind::Unavailable, server, message, transient)
            }
            CallError::Timeout { server, remark, .. } => {
                let remark = remark.map_or_else(String::new, |remark| format!(" ({remark})"));
                let message = format!(
                    "{tool}: {text}{remark}; it was told to stop but may have acted; \
                     ask for less at once, or raise execution.tool_call_timeout_seconds"
                );
                (ToolErrorKind::Timeout, server, message, false)
            }
            CallError::Cancelled { server } => {
                let message = format!("{tool}: {text}; it may have acted");
                (ToolErrorKind::Cancelled, server, message, false)
            }
            CallError::ConnectionLost { server, stderr, .. } => {
                let message = lost(tool, &text, stderr);
                (ToolErrorKind::ConnectionLost, server, message, false)
            }
            CallError::Refused { server, .. } => {
                let message = format!(
                    "{tool}: {text}; the connection goes on; compare the arguments with \
                     inspect_tool(tool_name={tool:?})"
                );
                (ToolErrorKind::Protocol, server, message, false)
            }
            CallError::TurnedAway {
                server, transient, ..
            } => turned_away(tool, &text, server, transient),
            CallError::Unmet { server, .. } => {
                let message = format!(
                    "{tool}: {text}; a program cannot give it: pass what is needed as arguments, \
                     or use another tool"
                );
                (ToolErrorKind::ToolFailed, server, message, false)
            }
            CallError::Invalid { server, .. } => {
                let message = format!(
                    "{tool}: {text}; this is a fault of the server and the connection goes on; \
                     ask for something else or smaller"
                );
                (ToolErrorKind::Protocol, server, message, false)
            }
            CallError::TooLong { server, .. } => {
                let message = format!(
                    "{tool}: {text}, which is more than is read; ask for less: one page, a \
                     filter, fewer fields"
                );
                (ToolErrorKind::ResultTooLarge, server, message, false)
            }
        };
        let mut error = Self::new(kind, message)
            .of(tool, &server)
            .retryable(retryable);
        error.data = data;
        error
    }

    pub(super) fn failed(tool: &str, server: &str, text: &str, data: Option<Value>) -> Self {
        let text = if text.is_empty() {
            "no text came with the error"
        } else {
            text
        };
        let message = format!("{tool}: server {server} answered with an error: {text}");
        Self::new(ToolErrorKind::ToolFailed, message)
            .of(tool, server)
            .with_data(data)
    }

    pub(super) fn shape(tool: &str, server: &str, what: &str) -> Self {
        let message = format!(
            "{tool}: the answer of server {server} is invalid: {what}; this is a fault of the \
             server and the connection goes on"
        );
        Self::new(ToolErrorKind::Protocol, message).of(tool, server)
    }

    pub(super) fn too_large(tool: &str, server: &str, bytes: usize, limit: usize) -> Self {
        let message = format!(
            "{tool}: the result of server {server} has {bytes} bytes, over the limit of \
             {limit} (execution.max_tool_result_bytes); ask for less: one page, a filter, \
             fewer fields"
        );
        Self::new(ToolErrorKind::ResultTooLarge, message).of(tool, server)
    }
}

/// What a server says beside the message of its error.
fn take_data(error: &mut CallError) -> Option<Box<Value>> {
    match error {
        CallError::Refused { data, .. } => data.take(),
        _ => None,
    }
}

fn lost(tool: &str, text: &str, stderr: Option<String>) -> String {
    let stderr = stderr.map_or_else(String::new, |text| format!("; its stderr: {text}"));
    format!(
        "{tool}: {text}{stderr}; the call may have had its effect and is not sent \
         again; look before you repeat it"
    )
}

fn turned_away(
    tool: &str,
    text: &str,
    server: String,
    transient: bool,
) -> (ToolErrorKind, String, String, bool) {
    let advice = if transient {
        "nothing was done; try again later"
    } else {
        "nothing was done, and trying again will not help until someone acts"
    };
    let message = format!("{tool}: {text}; {advice}");
    (ToolErrorKind::Unavailable, server, message, transient)
}

/// A name by which no tool can be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no tool can be called by the name {name}: {hint}")]
pub struct UnknownTool {
    /// The name asked for.
    pub name: String,
    /// Near names, or why it is not there.
    pub hint: String,
    /// Up to three near names.
    pub near: Vec<String>,
}

impl From<UnknownTool> for ToolError {
    fn from(unknown: UnknownTool) -> Self {
        let mut error = Self::new(ToolErrorKind::UnknownTool, unknown.to_string());
        error.tool = Some(unknown.name);
        error
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_message_says_what_happened_where_and_what_to_do() {
        let server = || "h".to_owned();
        for (error, kind, retryable, parts) in [
            (
                CallError::Unavailable {
                    server: server(),
                    why: "reconnecting (try 4 in 8 s)".into(),
                    transient: true,
                },
                ToolErrorKind::Unavailable,
                true,
                ["try 4 in 8 s", "try again later"],
            ),
            (
                CallError::Timeout {
                    server: server(),
                    limit: Duration::from_mins(1),
                    remark: Some("odd".into()),
                },
                ToolErrorKind::Timeout,
                false,
                ["within 60 s (odd)", "tool_call_timeout_seconds"],
            ),
            (
                CallError::ConnectionLost {
                    server: server(),
                    how: "it was killed by signal 9".into(),
                    stderr: Some("oom".into()),
                },
                ToolErrorKind::ConnectionLost,
                false,
                ["killed by signal 9; its stderr: oom", "not sent again"],
            ),
            (
                CallError::Refused {
                    server: server(),
                    code: -32000,
                    message: "no".into(),
                    data: Some(Box::new(serde_json::json!({"hint": 1}))),
                },
                ToolErrorKind::Protocol,
                false,
                ["error -32000: no", "inspect_tool"],
            ),
            (
                CallError::TooLong {
                    server: server(),
                    cap: 9,
                },
                ToolErrorKind::ResultTooLarge,
                false,
                ["more than 9 bytes", "ask for less"],
            ),
        ] {
            let error = ToolError::from_call("mcp__h__t", error);
            assert_eq!((error.kind, error.retryable), (kind, retryable));
            assert_eq!(error.tool.as_deref(), Some("mcp__h__t"));
            assert_eq!(error.server.as_deref(), Some("h"));
            let text = error.to_string();
            assert!(text.contains("server h"), "{text}");
            for part in parts {
                assert!(text.contains(part), "{text}");
            }
        }
    }
}
