//! Names what the state machine of a conversation has its driver do.

use crate::message::Id;

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write a line, without its newline, to the client.
    ToClient(Vec<u8>),
    /// Write a line, without its newline, to the daemon.
    ToDaemon(Vec<u8>),
    /// Try to reach the daemon, and say how that ended.
    Dial {
        /// Whether to start it where it is not there.
        launch: bool,
    },
    /// Ask the daemon, on a connection of its own, which calls a request made that an earlier daemon had.
    Ask(Id),
    /// Close the stream to the daemon; no `lost` is expected for it.
    HangUp,
    /// Tell the person who reads the shim's messages.
    Note(String),
    /// Everything is answered: write what is left to the client, then end.
    Finish,
}
