//! The parts of one run, written while it runs: a JSON line each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ptc_protocol::detail::CallEntry;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{JournalError, files};

/// Bytes that are gathered before they are written.
const GATHERED: usize = 256 * 1024;
/// Longest file of parts that is read, in bytes.
pub(super) const MAX_PARTS: u64 = 512 * 1024 * 1024;

/// What a program found when it began; a replay gives it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// The callable names that the program mentions or called, each with its parameters.
    #[serde(default)]
    pub tools: BTreeMap<String, Vec<String>>,
    /// Names that look like tools and were none, and why.
    #[serde(default)]
    pub absent: BTreeMap<String, String>,
    /// What Python's `random` was seeded with.
    #[serde(default)]
    pub seed: Option<u64>,
}

/// One question that the program put to a helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryEntry {
    /// The helper's name.
    pub helper: String,
    /// Arguments, JSON text, masked.
    pub arguments: String,
    /// The value as JSON text, masked; absent where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What the program was told where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a run printed, masked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Printed {
    pub(super) output: String,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    Program(String),
    Context(Context),
    Call(Box<CallEntry>),
    Query(QueryEntry),
    /// The calls in the order in which their answers went to the program.
    Answered(Vec<u64>),
    Output(Printed),
    /// JSON text.
    Result(String),
}

/// Size and hash of a finished file, as the run's head holds them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sealed {
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

/// A file that is being written; dropped before it is kept, it is removed.
#[derive(Debug)]
pub(super) struct RunFile {
    path: PathBuf,
    file: File,
    gathered: Vec<u8>,
    hash: Sha256,
    bytes: u64,
    failed: Option<io::Error>,
    kept: bool,
}

impl RunFile {
    /// Makes the file; an error means that the run must not begin.
    pub(super) fn create(path: PathBuf) -> Result<Self, JournalError> {
        let file = files::create(&path)?;
        Ok(Self {
            path,
            file,
            gathered: Vec::new(),
            hash: Sha256::new(),
            bytes: 0,
            failed: None,
            kept: false,
        })
    }

    /// Adds a line. What cannot be written is told when the file is sealed.
    pub(super) fn add(&mut self, part: &Part) {
        if self.failed.is_some() {
            return;
        }
        if let Err(error) = serde_json::to_writer(&mut self.gathered, part) {
            self.failed = Some(error.into());
            return;
        }
        self.gathered.push(b'\n');
        if self.gathered.len() >= GATHERED {
            self.flush();
        }
    }

    /// Writes what is gathered; an error means that it is not on disk.
    pub(super) fn write(&mut self) -> Result<(), JournalError> {
        self.flush();
        match self.failed.take() {
            None => Ok(()),
            Some(source) => Err(JournalError::Write {
                path: self.path.clone(),
                source,
            }),
        }
    }

    /// Writes the rest. The file stays once it is kept.
    pub(super) fn seal(&mut self) -> Result<Sealed, JournalError> {
        self.write()?;
        Ok(Sealed {
            bytes: self.bytes,
            sha256: ptc_protocol::hex(&self.hash.clone().finalize()),
        })
    }

    /// Says that a head names this file now.
    pub(super) fn keep(&mut self) {
        self.kept = true;
    }

    fn flush(&mut self) {
        if self.failed.is_some() || self.gathered.is_empty() {
            return;
        }
        match self.file.write_all(&self.gathered) {
            Ok(()) => {
                self.hash.update(&self.gathered);
                self.bytes = self.bytes.saturating_add(self.gathered.len() as u64);
            }
            Err(error) => self.failed = Some(error),
        }
        self.gathered.clear();
    }
}

impl Drop for RunFile {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The lines of a finished file, and whether they are the ones that were sealed.
pub(super) fn read(path: &Path, sealed: &Sealed) -> Result<(Vec<Part>, bool), JournalError> {
    let failed = |source| JournalError::Read {
        path: path.to_owned(),
        source,
    };
    let Some(bytes) = files::read_bounded(path, MAX_PARTS)? else {
        return Err(failed(io::Error::new(
            io::ErrorKind::NotFound,
            "it is gone",
        )));
    };
    let intact = ptc_protocol::hex(&Sha256::digest(&bytes)) == sealed.sha256;
    let lines = bytes.split(|byte| *byte == b'\n');
    let parts = lines
        .filter(|line| !line.is_empty())
        .map(serde_json::from_slice)
        .collect::<Result<Vec<Part>, _>>()
        .map_err(|error| failed(error.into()))?;
    Ok((parts, intact))
}
