//! Calls that wait for a person's yes, as the socket shows them.

use serde::{Deserialize, Serialize};

/// One call that waits in the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// How it is named to be answered.
    pub id: String,
    /// The run that asks.
    pub run: String,
    /// Name of the client that started it, as it says itself.
    pub client: String,
    /// Callable name.
    pub tool: String,
    /// Name of the server.
    pub server: String,
    /// What the tool does.
    pub effect: String,
    /// Why a person is asked; may be empty.
    pub reason: String,
    /// The arguments, JSON text, secrets masked.
    pub arguments: String,
    /// How long it waits.
    pub waits_seconds: u64,
}

/// What [`crate::route::APPROVALS`] answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingList {
    /// See [`crate::status::SCHEMA`].
    pub schema: u32,
    /// Calls that wait, the oldest first.
    pub waiting: Vec<Waiting>,
}
