//! The small files in the state folder by which clients know of the daemon.

use ptc_protocol::status::{DaemonFile, LastEnd};
use ptc_protocol::{BUILD, PROTOCOL};

use super::{Inner, StartError, epoch_ms};

impl Inner {
    pub(super) fn write_daemon_file(&self) -> Result<(), StartError> {
        let file = DaemonFile {
            pid: std::process::id(),
            started_ms: self.started_ms,
            socket: self.places.socket.display().to_string(),
            build: BUILD.to_owned(),
            protocol: PROTOCOL,
        };
        let path = self.places.daemon_file();
        let action = "writing daemon.json";
        let text = serde_json::to_vec(&file).map_err(|error| StartError::Io {
            action,
            source: error.into(),
        })?;
        replace_file(&path, &text).map_err(|source| StartError::Io { action, source })
    }

    /// Leaves what clients are told, for shims that find no daemon. They do without where it fails.
    pub(super) fn write_said(&self) {
        let config = ptc_protocol::said::digest(self.places.config.path());
        let said = self.face.borrow().said(config);
        let written = serde_json::to_vec(&said)
            .map_err(std::io::Error::from)
            .and_then(|text| replace_file(&self.places.said_file(), &text));
        if let Err(error) = written {
            tracing::warn!(%error, "said.json cannot be written");
        }
    }

    /// Leaves when and why this daemon ended, and takes back where it is.
    pub(super) fn write_last_end(&self) {
        let end = LastEnd {
            pid: std::process::id(),
            ended_ms: epoch_ms(),
            told_by: self.told_by.get().copied().unwrap_or("stop").to_owned(),
        };
        let written = serde_json::to_vec(&end)
            .map_err(std::io::Error::from)
            .and_then(|text| replace_file(&self.places.last_end_file(), &text));
        if let Err(error) = written {
            tracing::warn!(%error, "last-end.json cannot be written");
        }
        let _ = std::fs::remove_file(self.places.daemon_file());
    }
}

/// Writes a file of the user's own beside its place and moves it there, so that no reader sees half of it.
fn replace_file(path: &std::path::Path, text: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let fresh = path.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(text)?;
    std::fs::rename(&fresh, path)
}
