//! Brings one connection to a server up, from the process or the address to the handshake.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, RoleClient, RunningService,
    serve_client_with_lifecycle_and_ct,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::carrier::Carrier;
use super::endpoint::{Address, Endpoint};
use super::greeting::Refusal;
use super::handler::Handler;
use super::ladder::Spoken;
use super::link::Link;
use super::process::Process;
use super::reply::Turned;
use super::spawn::{Launch, LaunchError, Spawner};
use super::stderr::{Mask, Settled, Tail, drain};
use super::{http, sse, stdio};

/// What the system gives at most without a privilege.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1024 * 1024;
/// How long the end of a connection over HTTP may take; its farewell has a limit of its own.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// How a server is to be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// A process to start.
    Process(Launch),
    /// A streamable HTTP endpoint.
    Http(Address),
    /// An endpoint of the older HTTP transport.
    Sse(Address),
}

/// What is on the other side.
#[derive(Debug)]
pub(super) enum Side {
    Process(Process),
    /// The task that carries the messages.
    Endpoint(JoinHandle<()>),
}

impl Side {
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Self::Process(process) => Some(process.id()),
            Self::Endpoint(_) => None,
        }
    }

    /// Ends it. The session must be closed already; `patience` is how long
    /// each gentler step is given to a process.
    pub(super) async fn end(self, patience: Duration) {
        match self {
            Self::Process(process) => process.end(patience).await,
            Self::Endpoint(mut task) => {
                if tokio::time::timeout(CLOSE_LIMIT, &mut task).await.is_err() {
                    task.abort();
                }
            }
        }
    }
}

/// A connection whose handshake is still to come.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) side: Side,
    pub(super) link: Arc<Link>,
    pub(super) carrier: Carrier,
}

/// What every connection of a server needs.
pub(super) struct Setup<'a> {
    pub(super) spawner: &'a Spawner,
    /// Longest message that is read, in bytes.
    pub(super) cap: usize,
    pub(super) log: std::path::PathBuf,
    pub(super) mask: Mask,
    pub(super) settled: Settled,
    pub(super) tail: Tail,
    /// The folder of a server that works for one project.
    pub(super) project: Option<Arc<Path>>,
}

/// Starts the process and its pipes, or what sends requests.
pub(super) async fn start(
    plan: Plan,
    spoken: Spoken,
    setup: Setup<'_>,
) -> Result<Started, LaunchError> {
    let link = Arc::new(Link::new(setup.project.clone()));
    let (carrier, task) = match plan {
        Plan::Process(launch) => return start_process(launch, setup, link).await,
        Plan::Http(address) => {
            let endpoint = Endpoint::new(&address)?;
            http::start(endpoint, spoken, setup.cap, setup.mask, Arc::clone(&link))
        }
        Plan::Sse(address) => {
            let endpoint = Endpoint::new(&address)?;
            sse::start(endpoint, setup.cap, setup.mask, Arc::clone(&link))
        }
    };
    Ok(Started {
        side: Side::Endpoint(task),
        link,
        carrier,
    })
}

async fn start_process(
    launch: Launch,
    setup: Setup<'_>,
    link: Arc<Link>,
) -> Result<Started, LaunchError> {
    let mut child = setup.spawner.spawn(launch).await?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let process = Process::watch(child, setup.spawner.survivors.clone());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(LaunchError::Refused {
            program: std::path::PathBuf::new(),
            cause: "it has no pipes".to_owned(),
            transient: true,
        });
    };
    widen(&stdout);
    let masking = (setup.mask, setup.settled);
    tokio::spawn(drain(stderr, setup.tail, setup.log, masking));
    let carrier = stdio::start(stdin, stdout, process.exit(), setup.cap, Arc::clone(&link));
    Ok(Started {
        side: Side::Process(process),
        link,
        carrier,
    })
}

/// Asks for a larger pipe, so that a large result takes fewer turns. Not having it costs time only.
#[cfg(target_os = "linux")]
fn widen(stdout: &tokio::process::ChildStdout) {
    let _ = rustix::pipe::fcntl_setpipe_size(stdout, PIPE_BYTES);
}

#[cfg(not(target_os = "linux"))]
fn widen(_stdout: &tokio::process::ChildStdout) {}

/// A session that is up.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) running: RunningService<RoleClient, Handler>,
}

impl Session {
    pub(super) fn peer(&self) -> Peer<RoleClient> {
        self.running.peer().clone()
    }
}

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("it did not answer {opener} within {} s", limit.as_secs_f64())]
    Timeout {
        opener: &'static str,
        limit: Duration,
    },
    #[error("{how} before it answered {opener}")]
    Ended { opener: &'static str, how: String },
    /// Trying again in the same way would end in the same way.
    #[error("{why}")]
    Version { why: String, other_era: bool },
    #[error("it answered {opener} with error {code}: {message}")]
    Refused {
        opener: &'static str,
        code: i64,
        message: String,
    },
    #[error("its answer to {opener} cannot be taken: {fault}")]
    Fault { opener: &'static str, fault: String },
    /// It was reached and wanted no such request, or could not be reached at all.
    #[error("{how}")]
    Turned {
        how: String,
        /// Whether it is of use to try again.
        for_good: bool,
        /// Whether a request of the other era may be wanted.
        other_era: bool,
    },
}

impl HandshakeError {
    /// Whether trying again would end in the same way.
    pub(super) fn is_for_good(&self) -> bool {
        match self {
            Self::Version { .. } => true,
            Self::Turned { for_good, .. } => *for_good,
            Self::Timeout { .. }
            | Self::Ended { .. }
            | Self::Refused { .. }
            | Self::Fault { .. } => false,
        }
    }
}

/// Agrees with the server on a session, within a limit.
pub(super) async fn shake_hands(
    carrier: Carrier,
    spoken: Spoken,
    link: &Link,
    limit: Duration,
) -> Result<Session, HandshakeError> {
    let opener = spoken.opener();
    let lifecycle = match spoken {
        Spoken::Legacy => ClientLifecycleMode::Initialize,
        Spoken::Modern => ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
    };
    let token = CancellationToken::new();
    let handler = Handler {
        // The newer era has no requests of servers.
        roots: spoken == Spoken::Legacy && link.project.is_some(),
    };
    let session = serve_client_with_lifecycle_and_ct(handler, carrier, lifecycle, token);
    let error = match tokio::time::timeout(limit, session).await {
        Ok(Ok(running)) => return Ok(Session { running }),
        Ok(Err(error)) => error,
        Err(_) => return Err(HandshakeError::Timeout { opener, limit }),
    };
    let closed = matches!(
        error,
        ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. }
    );
    if closed && link.refusal().is_none() {
        // The end may have been met by the writer before the reader has its cause.
        let told = tokio::time::timeout(Duration::from_secs(1), link.ended.cancelled());
        let how = match told.await {
            Ok(()) => link.how(),
            Err(_) => "it closed its pipes".to_owned(),
        };
        if link.refusal().is_none() {
            return Err(HandshakeError::Ended { opener, how });
        }
    }
    Err(match link.refusal() {
        Some(refusal) => of_refusal(refusal.clone(), opener),
        None => HandshakeError::Fault {
            opener,
            fault: error.to_string(),
        },
    })
}

fn of_refusal(refusal: Refusal, opener: &'static str) -> HandshakeError {
    match refusal {
        Refusal::Version {
            text, other_era, ..
        } => HandshakeError::Version {
            why: text,
            other_era,
        },
        Refusal::Error { code, message } => HandshakeError::Refused {
            opener,
            code,
            message,
        },
        Refusal::Fault(fault) => HandshakeError::Fault { opener, fault },
        Refusal::Turned { how, turned } => HandshakeError::Turned {
            how,
            for_good: turned == Turned::Barred,
            // Who is not let in, or is sent elsewhere, is not helped by another question.
            other_era: turned == Turned::Unwanted,
        },
    }
}
