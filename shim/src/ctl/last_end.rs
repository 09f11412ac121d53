//! Says how the last daemon of a configuration ended.

use ptc_protocol::paths::Places;
use ptc_protocol::status::LastEnd;

use super::words::ago_since;
use crate::connect::{own_file, recorded};

/// Longest `last-end.json`, in bytes.
const MAX_BYTES: u64 = 4096;

/// Half a sentence about the daemon before; nothing listens now, and nobody holds the lock.
pub(super) fn of(places: &Places) -> String {
    // A daemon that ends in order takes its record back.
    if let Some((pid, _)) = recorded(places) {
        let log = if places.log_file().exists() {
            ": `ptcctl logs` has its last words"
        } else {
            ""
        };
        return format!("the last one, pid {pid}, ended without a word{log}");
    }
    let text = own_file(&places.last_end_file(), MAX_BYTES);
    let end = text.and_then(|text| serde_json::from_str::<LastEnd>(&text).ok());
    match end {
        Some(LastEnd {
            ended_ms, told_by, ..
        }) => {
            let by = if told_by == "signal" {
                "a signal"
            } else {
                "`ptcctl stop`"
            };
            format!("the last one was ended by {by} {}", ago_since(ended_ms))
        }
        None => "none has run yet".to_owned(),
    }
}
