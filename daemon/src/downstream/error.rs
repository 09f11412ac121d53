//! Names what can go wrong with a call on its way to a server and back.

use std::time::Duration;

/// A call that gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server is not there to be called; nothing was sent.
    #[error("server {server} is not available: {why}")]
    Unavailable {
        /// The server's name.
        server: String,
        /// Its state and the cause.
        why: String,
        /// Whether it may come back by itself.
        transient: bool,
    },
    /// No answer came in time; the server was told that the call is cancelled.
    #[error("server {server} did not answer within {} s", limit.as_secs_f64())]
    Timeout {
        /// The server's name.
        server: String,
        /// The call's limit.
        limit: Duration,
        /// An oddity of the server that may be the cause.
        remark: Option<String>,
    },
    /// The caller gave up; the server was told.
    #[error("the call to server {server} was cancelled")]
    Cancelled {
        /// The server's name.
        server: String,
    },
    /// The connection ended after the call was sent; it may have had its effect.
    #[error("the connection to server {server} was lost: {how}")]
    ConnectionLost {
        /// The server's name.
        server: String,
        /// How it ended: the exit code or signal, where known.
        how: String,
        /// The last lines of its stderr, masked.
        stderr: Option<String>,
    },
    /// The server answered with a JSON-RPC error.
    #[error("server {server} answered with error {code}: {message}")]
    Refused {
        /// The server's name.
        server: String,
        /// The error's code.
        code: i64,
        /// The error's message.
        message: String,
        /// What else the error has.
        data: Option<Box<serde_json::Value>>,
    },
    /// The server, or what stands before it, did not take the call; it was not run.
    #[error("server {server} did not take the call: {how}")]
    TurnedAway {
        /// The server's name.
        server: String,
        /// What it said, and the remedy.
        how: String,
        /// Whether it may take it later.
        transient: bool,
    },
    /// The server wants something that no program can give before it answers.
    #[error("server {server} {wants}")]
    Unmet {
        /// The server's name.
        server: String,
        /// What it wants, as the rest of a sentence.
        wants: String,
    },
    /// The server's answer is none: not JSON, not UTF-8, or of a wrong shape.
    #[error("the answer of server {server} is invalid: {fault}")]
    Invalid {
        /// The server's name.
        server: String,
        /// What is wrong with it.
        fault: String,
    },
    /// The server's answer is over what is read at all.
    #[error("the answer of server {server} has more than {cap} bytes")]
    TooLong {
        /// The server's name.
        server: String,
        /// The longest message that is read, in bytes.
        cap: usize,
    },
}
