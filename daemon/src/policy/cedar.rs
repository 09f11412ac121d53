//! The operator's Cedar policies: read from files, asked about calls.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ptc_policy_cedar as cedar;
use sha2::{Digest as _, Sha256};

use super::decision::{Decision, Step, Verdict};
use super::effects::{Effect, Hints};
use super::visibility::PolicyError;
use super::{CallFacts, ProgramFacts, StartDecision, StartFacts};

/// What the files of a folder are called that are read.
const ENDING: &str = "cedar";
/// Most files of a folder.
const MAX_FILES: usize = 100;
/// Most bytes of all files.
const MAX_BYTES: u64 = 1024 * 1024;
/// How clients reach the daemon: there is no other way than its socket.
const TRANSPORT: &str = "socket";

/// The policies of one configuration.
#[derive(Debug)]
pub(super) struct Cedar {
    policies: cedar::Policies,
    path: PathBuf,
    digest: String,
}

/// What is to be said of the policies in force.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// The file or folder they came from.
    pub path: &'a Path,
    /// How many there are.
    pub count: usize,
    /// The first 12 hex digits of the SHA-256 of their texts.
    pub digest: &'a str,
    /// What their author should know although they can be used.
    pub warnings: &'a [String],
    /// Whether they judge programs before these start.
    pub judges_programs: bool,
}

impl Cedar {
    /// Reads a file, or the files of a folder that end in `.cedar`, in the order of their names.
    pub(super) fn load(path: &Path, rubrics: &[&str]) -> Result<Self, PolicyError> {
        let sources = read(path).map_err(|fault| PolicyError::Cedar {
            faults: vec![format!("policy.cedar: {fault}")],
        })?;
        let policies = cedar::Policies::load(&sources, rubrics);
        let policies = policies.map_err(|faults| PolicyError::Cedar {
            faults: faults.iter().map(ToString::to_string).collect(),
        })?;
        let mut hash = Sha256::new();
        for source in &sources {
            hash.update(source.file.as_bytes());
            hash.update([0]);
            hash.update(source.text.as_bytes());
            hash.update([0]);
        }
        let mut digest = ptc_protocol::hex(&hash.finalize());
        digest.truncate(12);
        Ok(Self {
            policies,
            path: path.to_owned(),
            digest,
        })
    }

    pub(super) fn said(&self) -> Said<'_> {
        Said {
            path: &self.path,
            count: self.policies.count(),
            digest: &self.digest,
            warnings: self.policies.warnings(),
            judges_programs: self.policies.judges_programs(),
        }
    }

    pub(super) fn decide_start(&self, start: &StartFacts<'_>) -> Option<StartDecision> {
        let judged = self.policies.judge_start(&cedar::Start {
            client: cedar::Client {
                name: start.client,
                version: start.version,
                transport: TRANSPORT,
            },
            engine: start.engine,
        })?;
        let denied = match judged.verdict {
            cedar::Verdict::Allow => None,
            cedar::Verdict::Deny { reason } => Some(reason),
            // Policies that would ask are none; nobody is asked before a program starts.
            cedar::Verdict::Ask { .. } => Some("it needs a person, and nobody is asked".to_owned()),
        };
        Some(StartDecision {
            denied,
            policies: judged.policies,
            errors: judged.errors,
        })
    }

    pub(super) fn decide(
        &self,
        call: &CallFacts<'_>,
        program: &ProgramFacts<'_>,
        effect: Effect,
        hints: Hints,
    ) -> Decision {
        let tool = &call.tool;
        let judged = self.policies.judge(&cedar::Call {
            client: cedar::Client {
                name: program.client,
                version: program.version,
                transport: TRANSPORT,
            },
            tool: cedar::Tool {
                server: tool.server,
                name: tool.tool,
                callable: tool.callable,
                effect: effect.as_str(),
                hints: cedar::Hints {
                    read_only: hints.read_only,
                    destructive: hints.destructive,
                    idempotent: hints.idempotent,
                    open_world: hints.open_world,
                },
                input_schema: tool.input_schema,
            },
            arguments: call.arguments,
            program: cedar::Program {
                engine: program.engine,
                run: program.run,
                call_index: program.call_index,
                calls_to_tool: program.calls_to_tool,
            },
        });
        let verdict = match judged.verdict {
            cedar::Verdict::Allow => Verdict::Allow,
            cedar::Verdict::Ask { reason } => Verdict::Ask { reason },
            cedar::Verdict::Deny { reason } => Verdict::Deny { reason },
        };
        Decision {
            policies: judged.policies,
            rubrics: judged.risks,
            errors: judged.errors,
            ..Decision::new(verdict, Step::Cedar, effect)
        }
    }
}

/// The texts at a path; an error says what is wrong, the path in it.
fn read(path: &Path) -> Result<Vec<cedar::Source>, String> {
    let shown = path.display();
    let kind = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    if !kind.is_dir() {
        let mut room = MAX_BYTES;
        return Ok(vec![cedar::Source {
            file: shown.to_string(),
            prefix: None,
            text: text(path, &mut room)?,
        }]);
    }
    let entries = fs::read_dir(path).map_err(|error| format!("{shown}: {error}"))?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.map_err(|error| format!("{shown}: {error}"))?.path();
        if file.extension().is_some_and(|ending| ending == ENDING) {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(format!("{shown} holds no file that ends in .{ENDING}"));
    }
    if files.len() > MAX_FILES {
        return Err(format!("{shown} holds more than {MAX_FILES} files"));
    }
    let mut room = MAX_BYTES;
    let source = |file: PathBuf| {
        Ok(cedar::Source {
            file: file.display().to_string(),
            prefix: file
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned()),
            text: text(&file, &mut room)?,
        })
    };
    files.into_iter().map(source).collect()
}

/// A file's text, taken out of the room that is left.
fn text(path: &Path, room: &mut u64) -> Result<String, String> {
    let shown = path.display();
    // A pipe or a device would keep the daemon waiting, so that what is opened is looked at and not what is there before.
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    let file = opened.map_err(|error| format!("{shown}: {error}"))?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Err(format!("{shown} is no file"));
    }
    let mut bytes = Vec::new();
    let read = file.take(*room + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("{shown}: {error}"))?;
    *room = room.checked_sub(bytes.len() as u64).ok_or_else(|| {
        format!("{shown}: the policies have more than {MAX_BYTES} bytes together")
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to());
        let before = String::from_utf8_lossy(before.unwrap_or_default());
        let line = before.matches('\n').count() + 1;
        format!("{shown}:{line}: this is no UTF-8 text")
    })
}
