//! Speaks with the user's service manager, systemd or launchd, by its own program.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use ptc_protocol::paths::{Places, variable};
use tokio::process::Command;
use tokio::time::timeout;

/// How long the service manager may take over one thing, the daemon's start included.
const LIMIT: Duration = Duration::from_secs(30);
/// The name launchd knows the daemon by.
pub(crate) const LABEL: &str = "dev.ptc.ptcd";
/// The units of systemd.
pub(crate) const SOCKET_UNIT: &str = "ptcd.socket";
pub(crate) const SERVICE_UNIT: &str = "ptcd.service";

/// Why the service manager did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManagerError {
    /// Its program could not be run.
    #[error("cannot run {program}: {source}")]
    Spawn {
        /// Its name.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// It took too long.
    #[error("{command} did not end within {seconds} s")]
    Slow {
        /// What was run.
        command: String,
        /// How long was waited.
        seconds: u64,
    },
    /// It refused.
    #[error("{command} failed ({status}): {said}")]
    Refused {
        /// What was run.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The last line it wrote to stderr.
        said: String,
        /// What it wrote to stdout.
        answered: String,
    },
}

/// A service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Systemd,
    Launchd,
}

impl Kind {
    /// The one of this system.
    pub(crate) const fn of_system() -> Self {
        if cfg!(target_os = "macos") {
            Self::Launchd
        } else {
            Self::Systemd
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Launchd => "launchd",
        }
    }

    /// The file whose presence says that the daemon is a service.
    pub(crate) fn main_file(self, units: &Path) -> PathBuf {
        match self {
            Self::Systemd => units.join(SOCKET_UNIT),
            Self::Launchd => units.join(format!("{LABEL}.plist")),
        }
    }
}

/// launchd's name for the session of this user.
pub(crate) fn launchd_domain() -> String {
    format!("gui/{}", crate::connect::own_uid())
}

/// Whether the daemon of these places is a service.
pub(crate) fn is_service(places: &Places) -> bool {
    let units = places.units.as_deref();
    units.is_some_and(|units| Kind::of_system().main_file(units).is_file())
}

/// Has the service manager start the daemon, and waits until it serves.
pub(crate) async fn start(places: &Places) -> Result<(), ManagerError> {
    let Some(units) = &places.units else {
        return Ok(());
    };
    let kind = Kind::of_system();
    match kind {
        Kind::Systemd => {
            run(&["systemctl", "--user", "start", SOCKET_UNIT, SERVICE_UNIT]).await?;
        }
        Kind::Launchd => {
            let domain = launchd_domain();
            let job = format!("{domain}/{LABEL}");
            if run(&["launchctl", "print", &job]).await.is_err() {
                let file = kind.main_file(units).display().to_string();
                run(&["launchctl", "bootstrap", &domain, &file]).await?;
            }
            run(&["launchctl", "kickstart", &job]).await?;
        }
    }
    Ok(())
}

/// Runs a command of the service manager; gives what it wrote.
pub(crate) async fn run(words: &[&str]) -> Result<Output, ManagerError> {
    let [program, arguments @ ..] = words else {
        return Err(ManagerError::Spawn {
            program: String::new(),
            source: io::ErrorKind::InvalidInput.into(),
        });
    };
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/").kill_on_drop(true);
    command.stdin(Stdio::null());
    // Editors strip the variable by which systemd of this user is found.
    if std::env::var_os(variable::XDG_RUNTIME_DIR).is_none_or(|value| value.is_empty()) {
        let folder = format!("/run/user/{}", crate::connect::own_uid());
        if Path::new(&folder).is_dir() {
            command.env(variable::XDG_RUNTIME_DIR, folder);
        }
    }
    let shown = words.join(" ");
    let output = match timeout(LIMIT, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(source)) => {
            return Err(ManagerError::Spawn {
                program: (*program).to_owned(),
                source,
            });
        }
        Err(_) => {
            return Err(ManagerError::Slow {
                command: shown,
                seconds: LIMIT.as_secs(),
            });
        }
    };
    if output.status.success() {
        return Ok(output);
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = text.lines().rev().find(|line| !line.trim().is_empty());
    Err(ManagerError::Refused {
        command: shown,
        status: output.status,
        said: said.unwrap_or("it said nothing").trim().to_owned(),
        answered: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    })
}
