//! Calls the program of docker or podman; nobody else does.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use super::PROCESS;
use super::relay::last_words;
use crate::config::EngineChoice;
use crate::sandbox::refusal;

/// How long an engine may take for a short command.
pub(super) const COMMAND: Duration = Duration::from_secs(20);
/// Longest answer of an engine.
const LONGEST: u64 = 1 << 16;

/// Which engine: their programs differ in a few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// docker
    Docker,
    /// podman
    Podman,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// An engine that answers.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub(super) kind: Kind,
    pub(super) program: PathBuf,
}

/// The engine that was asked for, or the first of both that answers; else the text of a refusal.
pub(super) async fn find(choice: EngineChoice, search_path: &OsStr) -> Result<Engine, String> {
    let names: &[&str] = match choice {
        EngineChoice::Auto => &["docker", "podman"],
        EngineChoice::Docker => &["docker"],
        EngineChoice::Podman => &["podman"],
    };
    let mut silent = Vec::new();
    for name in names {
        let Some(program) = on_path(name, search_path) else {
            continue;
        };
        match ask(program).await {
            Ok(engine) => return Ok(engine),
            Err(error) => silent.push((*name, error.to_string())),
        }
    }
    Err(if silent.is_empty() {
        refusal::no_engine(names)
    } else {
        refusal::engine_silent(&silent)
    })
}

/// Asks a program which engine it is, and the engine whether it runs.
async fn ask(program: PathBuf) -> io::Result<Engine> {
    let mut engine = Engine {
        kind: Kind::Docker,
        program,
    };
    // Some systems call podman docker.
    let version = engine.command(&["--version"]).await?;
    if version.to_ascii_lowercase().contains("podman") {
        engine.kind = Kind::Podman;
    }
    let format = match engine.kind {
        Kind::Docker => "{{.ServerVersion}}",
        Kind::Podman => "{{.Version.Version}}",
    };
    engine.command(&["info", "--format", format]).await?;
    Ok(engine)
}

fn on_path(name: &str, search_path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(search_path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| {
            fs::metadata(path)
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
}

impl Engine {
    /// The engine's program with its own environment, in which it finds its engine, and no terminal's signals.
    fn program(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a short command and gives what it printed; the error is what it complained of.
    pub(super) async fn command(&self, arguments: &[&str]) -> io::Result<String> {
        let mut child = self.program().args(arguments).spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let answer = async {
            let mut output = String::new();
            let reading = async {
                if let Some(stdout) = stdout {
                    stdout.take(LONGEST).read_to_string(&mut output).await?;
                }
                io::Result::Ok(())
            };
            let complaint = async {
                match stderr {
                    Some(stderr) => last_words(stderr).await,
                    None => String::new(),
                }
            };
            let (read, complaint) = tokio::join!(reading, complaint);
            read?;
            let status = child.wait().await?;
            if status.success() {
                Ok(output)
            } else if complaint.is_empty() {
                Err(io::Error::other(format!("it ended with {status}")))
            } else {
                Err(io::Error::other(complaint))
            }
        };
        tokio::time::timeout(COMMAND, answer)
            .await
            .unwrap_or_else(|_| {
                let seconds = COMMAND.as_secs();
                Err(io::Error::other(format!("no answer within {seconds} s")))
            })
    }

    pub(super) fn start(&self, arguments: Vec<String>) -> io::Result<Child> {
        self.program().args(arguments).stdin(Stdio::piped()).spawn()
    }

    /// Removes what a ptcd of the same owner that has died left, and nothing of this process.
    pub(super) async fn remove_leftovers(&self, owner: &str) -> io::Result<()> {
        let label = format!("label=ptcd={owner}");
        let listed = self
            .command(&["ps", "--all", "--filter", &label, "--format", "{{.Names}}"])
            .await?;
        let own = format!("ptcd-{owner}-{}-", *PROCESS);
        let left: Vec<&str> = listed
            .split_whitespace()
            .filter(|name| name.starts_with("ptcd-") && !name.starts_with(&own))
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        let words: Vec<&str> = ["rm", "--force"].into_iter().chain(left).collect();
        self.command(&words).await.map(drop)
    }
}
