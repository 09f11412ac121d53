//! What a service manager gives the daemon, and what it is told in return.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use ptc_protocol::paths::Places;

use super::StartError;
use crate::control::socket::{self, Lock, Socket, SocketError, private_folder};

/// How long a service waits for the lock of a daemon that is still ending.
const LOCK_PATIENCE: Duration = Duration::from_secs(75);

/// How the daemon came to be started.
#[derive(Debug, Default)]
pub struct Service {
    /// The socket that the service manager holds, where it gave one.
    pub(super) listener: Option<UnixListener>,
    /// How long the lock of another daemon is waited for.
    pub(super) patience: Duration,
    pub(super) manager: Manager,
}

impl Service {
    /// Takes what systemd or launchd hands over. Call it before any thread is started, since it
    /// takes the variables that name the descriptors out of the environment.
    ///
    /// # Errors
    /// What was handed over is no stream socket.
    pub fn adopt() -> Result<Self, StartError> {
        let listener = handed_over().map_err(|source| StartError::Io {
            action: "taking the socket from the service manager",
            source,
        })?;
        Ok(Self {
            listener,
            patience: LOCK_PATIENCE,
            manager: Manager { listens: true },
        })
    }
}

#[cfg(target_os = "linux")]
fn handed_over() -> std::io::Result<Option<UnixListener>> {
    listenfd::ListenFd::from_env().take_unix_listener(0)
}

#[cfg(target_os = "macos")]
fn handed_over() -> std::io::Result<Option<UnixListener>> {
    crate::control::launchd::listener()
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn handed_over() -> std::io::Result<Option<UnixListener>> {
    Ok(None)
}

/// The socket that was handed over, whose place then counts, else one of the daemon's own.
pub(super) fn listen(
    handed_over: Option<UnixListener>,
    places: &mut Places,
    lock: &Lock,
) -> Result<(UnixListener, Option<Socket>), SocketError> {
    if let Some(listener) = handed_over {
        places.socket = socket::adopt(&listener)?;
        return Ok((listener, None));
    }
    let (listener, socket) = Socket::bind(&places.socket, lock)?;
    Ok((listener, Some(socket)))
}

/// Has this process's stderr go to the daemon's log, as it does where a client starts it.
///
/// # Errors
/// The state folder or the file cannot be had.
pub fn log_to_file(places: &Places) -> Result<(), StartError> {
    private_folder(&places.state_root)?;
    private_folder(&places.state_dir)?;
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(places.log_file());
    opened
        .and_then(|log| Ok(rustix::stdio::dup2_stderr(&log)?))
        .map_err(|source| StartError::Io {
            action: "opening its log",
            source,
        })
}

/// The service manager, where one waits to be told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manager {
    listens: bool,
}

/// What it is told.
#[derive(Debug)]
enum Notice<'a> {
    Ready(&'a str),
    Reloading,
    Stopping,
    Failed(&'a str),
    Lives,
}

impl Manager {
    /// The socket takes connections, and what was reloaded is in force.
    pub(super) fn ready(self, text: &str) {
        self.tell(&Notice::Ready(text));
    }

    /// The configuration is being read again; [`Manager::ready`] follows.
    pub(super) fn reloading(self) {
        self.tell(&Notice::Reloading);
    }

    /// The daemon takes nothing more.
    pub(super) fn stopping(self) {
        self.tell(&Notice::Stopping);
    }

    /// The daemon cannot start.
    pub fn failed(self, text: &str) {
        self.tell(&Notice::Failed(text));
    }

    /// Says that the daemon lives as often as the unit's watchdog wants, as long as the runtime runs.
    pub(super) fn keep_watchdog(self) {
        let Some(limit) = self.listens.then(watchdog).flatten() else {
            return;
        };
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
            loop {
                ticks.tick().await;
                self.tell(&Notice::Lives);
            }
        });
    }

    fn tell(self, notice: &Notice<'_>) {
        if self.listens
            && let Err(error) = send(notice)
        {
            tracing::warn!(%error, ?notice, "the service manager cannot be told");
        }
    }
}

#[cfg(target_os = "linux")]
fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

#[cfg(target_os = "linux")]
fn send(notice: &Notice<'_>) -> std::io::Result<()> {
    use sd_notify::NotifyState as State;
    match notice {
        Notice::Ready(text) => sd_notify::notify(&[State::Ready, State::Status(text)]),
        // Without the time a unit of type notify-reload would wait for nothing.
        Notice::Reloading => sd_notify::notify(&[State::Reloading, State::monotonic_usec_now()?]),
        Notice::Stopping => sd_notify::notify(&[
            State::Stopping,
            State::Status("letting programs and servers end"),
        ]),
        Notice::Failed(text) => sd_notify::notify(&[State::Status(text)]),
        Notice::Lives => sd_notify::notify(&[State::Watchdog]),
    }
}

/// launchd has no watchdog.
#[cfg(not(target_os = "linux"))]
fn watchdog() -> Option<Duration> {
    None
}

/// launchd asks for nothing; what it would be told stands in the log.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "systemd may fail to listen")]
fn send(notice: &Notice<'_>) -> std::io::Result<()> {
    let text = match notice {
        Notice::Ready(text) | Notice::Failed(text) => text,
        Notice::Reloading => "reading the configuration again",
        Notice::Stopping => "letting programs and servers end",
        Notice::Lives => "it lives",
    };
    tracing::debug!(text, "launchd is told nothing");
    Ok(())
}

impl Service {
    /// The service manager, to be told why the daemon does not start.
    pub fn manager(&self) -> Manager {
        self.manager
    }
}
