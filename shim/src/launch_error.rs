//! Why a launch did not end with a daemon, and what it tells on its way.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::connect::ConnectError;

/// Why the daemon is not running now.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// This program does not know where it lies.
    #[error("cannot tell where this program lies: {source}")]
    NoOwnPath {
        /// The system's reason.
        source: io::Error,
    },
    /// The daemon's program is not beside this one.
    #[error(
        "there is no ptcd at {path}: install it beside this program, or build it with `cargo build --release`"
    )]
    NoProgram {
        /// Where it should be.
        path: PathBuf,
    },
    /// A folder or file of the state cannot be used.
    #[error("cannot use {path}: {source}")]
    State {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another client's start did not end.
    #[error("another client has been starting ptcd for {seconds} s")]
    LockHeld {
        /// How long was waited.
        seconds: u64,
    },
    /// The program could not be run.
    #[error("cannot start {path}: {source}")]
    Spawn {
        /// The program.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It ended before it was ready.
    #[error("ptcd ended before it was ready ({status}); its log {log} ends: {tail}")]
    Died {
        /// How it ended.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The log's end.
        tail: String,
    },
    /// It is not ready in time.
    #[error("ptcd was not ready after {seconds} s; its log {log} ends: {tail}")]
    NotReady {
        /// How long was waited.
        seconds: u64,
        /// Its log.
        log: PathBuf,
        /// The log's end.
        tail: String,
    },
    /// It says that it cannot start.
    #[error("ptcd cannot start: {message}")]
    Failed {
        /// Cause and remedy, in its words.
        message: String,
    },
    /// One that was told to end does not.
    #[error(
        "an older ptcd{process} is still ending after {seconds} s: it lets programs and servers end first (daemon.drain_seconds); try again later, or end it yourself", process = numbered(*.pid)
    )]
    StillEnding {
        /// Its process id, where it is known.
        pid: Option<u32>,
        /// How long was waited.
        seconds: u64,
    },
    /// Another one serves the configuration, on a socket that was not named.
    #[error(
        "another ptcd (pid {pid}) serves this configuration on {socket}: use that one, without --socket and PTC_SOCKET, or stop it first"
    )]
    Elsewhere {
        /// Its process id.
        pid: u32,
        /// Its socket.
        socket: PathBuf,
    },
    /// It runs and cannot be talked to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl LaunchError {
    /// Whether trying again is of no use until someone acts.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::NoOwnPath { .. }
            | Self::NoProgram { .. }
            | Self::State { .. }
            | Self::Spawn { .. }
            | Self::Failed { .. }
            | Self::Elsewhere { .. } => true,
            Self::Connect(error) => error.is_permanent(),
            Self::LockHeld { .. }
            | Self::Died { .. }
            | Self::NotReady { .. }
            | Self::StillEnding { .. } => false,
        }
    }
}

/// ` (pid N)`, or nothing.
pub(crate) fn numbered(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

/// What a launch has to tell while it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The daemon is not running, and is about to be started.
    Starting,
    /// An older one has to end first; the sentence says so.
    Waiting(String),
}
