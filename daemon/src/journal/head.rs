//! The head of a finished run: the small file that makes it one, sealed with the daemon's key.
//!
//! What the kernel counted is known only after the answer. It becomes a second line of the same file with a seal of its
//! own, since a file made anew costs the file system several times what a line costs. A second line that was cut short
//! says nothing and takes nothing away from the first.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
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
/// What it is used for where a line follows a head.
const USAGE_PURPOSE: &str = "usage";
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

/// What the kernel counted for a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) cpu_ms: u64,
    pub(super) peak_memory_bytes: u64,
}

impl Usage {
    /// Puts it into the record.
    pub(super) fn note(self, record: &mut RunRecord) {
        record.cpu_ms = Some(self.cpu_ms);
        record.peak_memory_bytes = Some(self.peak_memory_bytes);
    }
}

/// The line behind a head.
#[derive(Debug, Serialize, Deserialize)]
struct Added {
    usage: Usage,
    seal: String,
}

/// A head that was written: what a line behind it is sealed with.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// Its size in bytes.
    pub(super) bytes: u64,
    seal: String,
}

/// Reads a head, and whether it is the one that was written; `None` where there is none.
///
/// One that was changed claims nothing: neither a replay nor checks.
pub(super) fn read(path: &Path, masker: &Masker) -> Result<Option<(Head, bool)>, JournalError> {
    let Some(bytes) = files::read_bounded(path, MAX_HEAD)? else {
        return Ok(None);
    };
    let failed = |error: serde_json::Error| JournalError::Read {
        path: path.to_owned(),
        source: error.into(),
    };
    let mut values = serde_json::Deserializer::from_slice(&bytes).into_iter::<Head>();
    let Some(found) = values.next() else {
        return Err(failed(serde::de::Error::custom("it is empty")));
    };
    let mut head = found.map_err(failed)?;
    let (first, rest) = bytes.split_at(values.byte_offset().min(bytes.len()));
    let mut own = is_sealed(first, masker);
    if let Ok(added) = serde_json::from_slice::<Added>(rest) {
        own = own && added.seal == usage_seal(seal_of(first), added.usage, masker);
        added.usage.note(&mut head.record);
    }
    if !own {
        unclaimed(&mut head.record);
    }
    Ok(Some((head, own)))
}

/// Writes a head with its seal, anew and whole.
pub(super) fn write(path: &Path, head: &Head, masker: &Masker) -> Result<Written, JournalError> {
    let mut bytes = serde_json::to_vec(head).map_err(|error| JournalError::Write {
        path: path.to_owned(),
        source: error.into(),
    })?;
    let seal = masker.keyed_hash(PURPOSE, &bytes);
    bytes.pop();
    bytes.extend_from_slice(format!("{SEAL}{seal}\"}}").as_bytes());
    files::replace(path, &bytes)?;
    Ok(Written {
        bytes: bytes.len() as u64,
        seal,
    })
}

/// Adds what the kernel counted to a head that was written so; how many bytes that takes, `None` where the file is
/// another by now or none.
pub(super) fn add(
    path: &Path,
    written: &Written,
    usage: Usage,
    masker: &Masker,
) -> Result<Option<u64>, JournalError> {
    let failed = |source| JournalError::Write {
        path: path.to_owned(),
        source,
    };
    let Some(mut file) = files::open_to_add(path)? else {
        return Ok(None);
    };
    if !is_as_written(&file, written).map_err(failed)? {
        return Ok(None);
    }
    let seal = usage_seal(written.seal.as_bytes(), usage, masker);
    let line =
        serde_json::to_string(&Added { usage, seal }).map_err(|error| failed(error.into()))?;
    let line = format!("\n{line}");
    file.write_all(line.as_bytes()).map_err(failed)?;
    Ok(Some(line.len() as u64))
}

/// Whether a file ends with the seal of this head, at the same place.
fn is_as_written(file: &File, written: &Written) -> io::Result<bool> {
    let mut end = [0; SEAL_END];
    if file.metadata()?.len() != written.bytes {
        return Ok(false);
    }
    file.read_exact_at(&mut end, written.bytes.saturating_sub(SEAL_END as u64))?;
    Ok(end == *format!("{}\"}}", written.seal).as_bytes())
}

/// The seal of a line behind the head with this seal, so that it fits no other.
fn usage_seal(head: &[u8], usage: Usage, masker: &Masker) -> String {
    let counted = format!(" {} {}", usage.cpu_ms, usage.peak_memory_bytes);
    masker.keyed_hash(USAGE_PURPOSE, &[head, counted.as_bytes()].concat())
}

/// The hex digits of a sealed head's seal; anything else where it has none.
fn seal_of(head: &[u8]) -> &[u8] {
    let end = head.len().saturating_sub("\"}".len());
    let start = (end + "\"}".len()).saturating_sub(SEAL_END);
    head.get(start..end).unwrap_or_default()
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
        let made = write(&path, &head(), &masker(3)).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(made.bytes, written.len() as u64);
        assert_eq!(found(written.as_bytes(), &masker(3)), (true, true));
        assert_eq!(found(written.as_bytes(), &masker(4)), (false, false));
        let (body, _) = written.split_once(SEAL).unwrap();
        for changed in [
            written.replace("\"calls\":3", "\"calls\":4"),
            written.replace("\"calls\":3", "\"calls\": 3"),
            format!(" {written}"),
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
    fn what_was_counted_is_a_line_with_a_seal_that_fits_this_head_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r1.json");
        let usage = Usage {
            cpu_ms: 7,
            peak_memory_bytes: 8,
        };
        let made = write(&path, &head(), &masker(3)).unwrap();
        let alone = std::fs::read_to_string(&path).unwrap();
        let bytes = add(&path, &made, usage, &masker(3)).unwrap().unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        assert_eq!(whole.len() as u64, made.bytes + bytes);
        let (read_head, own) = read(&path, &masker(3)).unwrap().unwrap();
        assert!(own && read_head.record.facts.replayed.is_some());
        let counted = (read_head.record.cpu_ms, read_head.record.peak_memory_bytes);
        assert_eq!(counted, (Some(7), Some(8)));
        // Wherever the line is cut, the head is the one that was written and nothing was counted.
        for cut in alone.len()..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (read_head, own) = read(&path, &masker(3)).unwrap().unwrap();
            assert!(own && read_head.record.facts.replayed.is_some(), "{cut}");
            assert_eq!(read_head.record.cpu_ms, None, "{cut}");
        }
        let changed = whole.replace("\"cpu_ms\":7", "\"cpu_ms\":6");
        assert_ne!(changed, whole);
        assert_eq!(found(changed.as_bytes(), &masker(3)), (false, false));
        let other = Head {
            record: RunRecord {
                calls: 4,
                ..head().record
            },
            ..head()
        };
        write(&path, &other, &masker(3)).unwrap();
        assert_eq!(add(&path, &made, usage, &masker(3)).unwrap(), None);
        let line = whole.strip_prefix(&alone).unwrap();
        let moved = std::fs::read_to_string(&path).unwrap() + line;
        assert_eq!(found(moved.as_bytes(), &masker(3)), (false, false));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(add(&path, &made, usage, &masker(3)).unwrap(), None);
        assert!(!path.exists());
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
