//! What a daemon last said of itself to its clients, kept for while it is not there.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Largest file of this kind that is read, in bytes.
pub const MAX_SAID_BYTES: u64 = 256 * 1024;

/// The tools' definitions under a configuration that sets nothing, as the JSON text of a list.
pub const DEFAULT_TOOLS: &str = include_str!("default_tools.json");

/// The answers that depend on build and configuration only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The daemon's build, see [`crate::BUILD`].
    pub build: String,
    /// [`digest`] of the configuration file in force.
    pub config: String,
    /// The text of `initialize` and `server/discover`.
    pub instructions: String,
    /// How long a client may take the answers for fresh, in milliseconds.
    pub ttl_ms: u64,
    /// The list of `tools/list`, in the order and with the bytes a client gets.
    pub tools: Value,
}

/// Largest configuration file that is digested, in bytes.
const MAX_CONFIG_BYTES: u64 = 16 * 1024 * 1024;

/// The digest of a configuration file as it lies there now; that of an absent file differs from that of an empty one.
///
/// What is no regular file is not read, since reading a pipe takes what another is to read.
pub fn digest(config: &Path) -> String {
    let fits = std::fs::metadata(config)
        .is_ok_and(|about| about.is_file() && about.len() <= MAX_CONFIG_BYTES);
    match fits.then(|| std::fs::read(config)) {
        Some(Ok(text)) => crate::hex(&Sha256::digest(text)),
        Some(Err(_)) | None => "absent".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_texts_and_an_absent_file_apart_and_reads_no_device() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.yaml");
        let absent = digest(&file);
        std::fs::write(&file, "").unwrap();
        let empty = digest(&file);
        std::fs::write(&file, "servers: []\n").unwrap();
        assert_ne!(digest(&file), empty);
        assert_ne!(empty, absent);
        assert_eq!(digest(Path::new("/dev/zero")), absent);
    }

    #[test]
    fn the_list_of_an_unknown_configuration_is_a_list_of_tools() {
        let tools: Vec<Value> = serde_json::from_str(DEFAULT_TOOLS).unwrap();
        assert!(
            tools
                .iter()
                .all(|tool| tool["inputSchema"]["type"] == "object")
        );
    }
}
