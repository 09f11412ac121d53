//! The head of a finished run: the small file that makes it one, sealed with the daemon's key.

use std::path::Path;

use ptc_protocol::run::RunRecord;
use serde::{Deserialize, Serialize};

use super::run_file::Sealed;
use super::{JournalError, files};
use crate::config::mask::Masker;

/// Longest head that is read, in bytes: those of older versions hold output and program, every byte escaped.
const MAX_HEAD: u64 = 64 * 1024 * 1024;
/// What the key is used for.
const PURPOSE: &str = "head";
/// What stands before the seal, which is the last member of the object.
const SEAL: &str = ",\"seal\":\"";
/// Hex digits of a seal, and what closes it.
const SEAL_END: usize = 64 + "\"}".len();

/// What is known of a run, and which file of parts is its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) record: RunRecord,
    /// The file of parts beside it; runs of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sealed: Option<Sealed>,
    /// Where older versions kept the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) program: Option<String>,
    /// Where older versions kept the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<String>,
}

/// Reads a head, and whether it is the one that was written; `None` where there is none.
///
/// One that was changed claims nothing: neither a replay nor checks.
pub(super) fn read(path: &Path, masker: &Masker) -> Result<Option<(Head, bool)>, JournalError> {
    let Some(bytes) = files::read_bounded(path, MAX_HEAD)? else {
        return Ok(None);
    };
    let mut head: Head = serde_json::from_slice(&bytes).map_err(|error| JournalError::Read {
        path: path.to_owned(),
        source: error.into(),
    })?;
    let own = is_sealed(&bytes, masker);
    if !own {
        unclaimed(&mut head.record);
    }
    Ok(Some((head, own)))
}

/// Writes a head with its seal; how many bytes it takes.
pub(super) fn write(path: &Path, head: &Head, masker: &Masker) -> Result<u64, JournalError> {
    let mut bytes = serde_json::to_vec(head).map_err(|error| JournalError::Write {
        path: path.to_owned(),
        source: error.into(),
    })?;
    let seal = masker.keyed_hash(PURPOSE, &bytes);
    bytes.pop();
    bytes.extend_from_slice(format!("{SEAL}{seal}\"}}").as_bytes());
    files::replace(path, &bytes)?;
    Ok(bytes.len() as u64)
}

/// Takes out of a record what nobody vouches for any more.
pub(super) fn unclaimed(record: &mut RunRecord) {
    record.facts.replayed = None;
    record.facts.submission = None;
}

/// Whether the bytes are those that a seal was put on. It goes by them, not by what they mean, so that records of
/// versions with other members keep theirs.
fn is_sealed(bytes: &[u8], masker: &Masker) -> bool {
    let at = bytes.len().checked_sub(SEAL.len() + SEAL_END);
    let Some((body, end)) = at.and_then(|at| bytes.split_at_checked(at)) else {
        return false;
    };
    let whole = [body, b"}"].concat();
    let seal = masker.keyed_hash(PURPOSE, &whole);
    end == format!("{SEAL}{seal}\"}}").as_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ptc_protocol::facts::{Facts, Replayed};
    use ptc_protocol::run::{Confinement, Ending};

    use super::*;

    fn masker(key: u8) -> Masker {
        Masker::with_key([key; 32], &BTreeMap::new())
    }

    fn head() -> Head {
        let record = RunRecord {
            run: "r1".to_owned(),
            session: "s".to_owned(),
            client: Some("editor".to_owned()),
            started_ms: 1,
            duration_ms: 2,
            ending: Ending::Finished,
            limit: None,
            confinement: Confinement::Full,
            calls: 3,
            failed_calls: 0,
            output_bytes: 4,
            result_bytes: 5,
            cpu_ms: None,
            peak_memory_bytes: None,
            error: None,
            facts: Facts {
                replayed: Some(Replayed {
                    time_ms: 6,
                    output_sha256: "aa".to_owned(),
                }),
                ..Facts::default()
            },
        };
        Head {
            record,
            sealed: None,
            program: None,
            output: None,
        }
    }

    /// Whether a head of these bytes keeps its claim, and whether it counts as the one that was written.
    fn found(bytes: &[u8], masker: &Masker) -> (bool, bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r1.json");
        std::fs::write(&path, bytes).unwrap();
        let (head, own) = read(&path, masker).unwrap().unwrap();
        (head.record.facts.replayed.is_some(), own)
    }

    #[test]
    fn only_a_head_that_is_as_it_was_written_claims_anything() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r1.json");
        let bytes = write(&path, &head(), &masker(3)).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(bytes, written.len() as u64);
        assert_eq!(found(written.as_bytes(), &masker(3)), (true, true));
        assert_eq!(found(written.as_bytes(), &masker(4)), (false, false));
        let (body, _) = written.split_once(SEAL).unwrap();
        for changed in [
            written.replace("\"calls\":3", "\"calls\":4"),
            written.replace("\"calls\":3", "\"calls\": 3"),
            format!("{written}\n"),
            format!("{body}}}"),
            format!("{body}{SEAL}{}\"}}", "0".repeat(64)),
            format!("{body}{SEAL}\"}}"),
        ] {
            assert_ne!(changed, written);
            let (claims, own) = found(changed.as_bytes(), &masker(3));
            assert!(!claims && !own, "{changed}");
        }
    }

    #[test]
    fn a_member_of_another_version_is_under_the_seal_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r1.json");
        let body = serde_json::to_string(&head()).unwrap();
        let body = format!("{},\"later\":1}}", body.strip_suffix('}').unwrap());
        let seal = masker(3).keyed_hash(PURPOSE, body.as_bytes());
        let whole = format!("{}{SEAL}{seal}\"}}", body.strip_suffix('}').unwrap());
        std::fs::write(&path, &whole).unwrap();
        assert!(read(&path, &masker(3)).unwrap().unwrap().1);
        std::fs::write(&path, whole.replace("\"later\":1", "\"later\":2")).unwrap();
        assert!(!read(&path, &masker(3)).unwrap().unwrap().1);
    }
}
