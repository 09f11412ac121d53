//! Proves a tier by trying, in a real worker of it, what no program may do.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::process::WorkerProcess;

/// The program that tries.
pub(super) const TEXT: &str = include_str!("canary.py");
/// How long all attempts may take together.
const LIMIT: Duration = Duration::from_secs(20);
/// Longest answer.
const LONGEST: u64 = 16 * 1024;

/// What a worker must answer, each with a refusal.
pub(super) const ATTEMPTS: [&str; 13] = [
    "read a file",
    "write a file",
    "connect to a port",
    "connect to a socket",
    "start a process",
    "signal its parent",
    "signal ptcd",
    "read the environment of ptcd",
    "read its own environment file",
    "trace its parent",
    "have a variable",
    "have another descriptor",
    "run a program",
];

/// What no absence explains.
const MUST_BE_REFUSED: [&str; 3] = ["connect to a port", "start a process", "run a program"];

/// What a worker in namespaces of its own must answer with an absence.
const SIGHTS: [&str; 2] = ["see a file", "see ptcd"];
/// What Landlock alone keeps from such a worker.
const LISTING: &str = "list the root";

/// Things an unconfined program of any user could reach.
#[derive(Debug)]
struct Bait {
    folder: PathBuf,
    port: u16,
    _listeners: (TcpListener, UnixListener),
}

impl Bait {
    fn lay() -> io::Result<Self> {
        let bits = getrandom::u64().map_err(io::Error::other)?;
        let folder = PathBuf::from(format!("/tmp/ptcd-canary-{bits:016x}"));
        fs::create_dir(&folder)?;
        let lay = || -> io::Result<(TcpListener, UnixListener)> {
            fs::write(folder.join("file"), b"x")?;
            let unix = UnixListener::bind(folder.join("socket"))?;
            // Open to everyone: only the confinement may stand in the way.
            for (name, mode) in [("", 0o777), ("file", 0o666), ("socket", 0o777)] {
                fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode))?;
            }
            Ok((TcpListener::bind(("127.0.0.1", 0))?, unix))
        };
        let laid = lay().and_then(|listeners| Ok((listeners.0.local_addr()?.port(), listeners)));
        match laid {
            Ok((port, listeners)) => Ok(Self {
                folder,
                port,
                _listeners: listeners,
            }),
            Err(error) => {
                let _ = fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    fn task(&self) -> Value {
        json!({
            "file": self.folder.join("file").to_str(),
            "beside": self.folder.join("beside").to_str(),
            "socket": self.folder.join("socket").to_str(),
            "port": self.port,
            "pid": std::process::id(),
        })
    }
}

impl Drop for Bait {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Lets `worker`, which was started with [`TEXT`], try everything; one that is `inside` must not even see what is outside.
/// Where Landlock holds it besides (`landlocked`) it must not list what it sees either.
/// Gives the version of its Python; the error says what went wrong.
pub(super) async fn run(
    worker: &WorkerProcess,
    inside: bool,
    landlocked: bool,
) -> Result<String, String> {
    let bait = Bait::lay().map_err(|error| format!("it could not be prepared: {error}"))?;
    let answer = tokio::time::timeout(LIMIT, exchange(worker, &bait.task()))
        .await
        .map_err(|_| {
            format!(
                "the test program did not answer within {} s",
                LIMIT.as_secs()
            )
        })?
        .map_err(|error| format!("the test program gave no answer: {error}"))?;
    judge(&answer, inside)?;
    if landlocked && answer.get(LISTING) != Some(&json!(libc::EACCES)) {
        return Err(format!("a confined program could {LISTING}"));
    }
    let version = answer.get("version").and_then(Value::as_str);
    Ok(version.unwrap_or_default().to_owned())
}

async fn exchange(worker: &WorkerProcess, task: &Value) -> io::Result<BTreeMap<String, Value>> {
    let channel = worker.channel.try_clone()?;
    channel.set_nonblocking(true)?;
    let mut channel = UnixStream::from_std(channel)?;
    channel.write_all(format!("{task}\n").as_bytes()).await?;
    let mut text = Vec::new();
    let mut part = [0_u8; 1024];
    while !text.ends_with(b"\n") {
        let length = channel.read(&mut part).await?;
        if length == 0 || text.len() as u64 > LONGEST {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        text.extend_from_slice(part.get(..length).unwrap_or_default());
    }
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// Only a refusal is good: a success is a hole, and anything else proves nothing.
fn judge(answers: &BTreeMap<String, Value>, inside: bool) -> Result<(), String> {
    let hidden = SIGHTS.into_iter().filter(|_| inside);
    for attempt in ATTEMPTS.into_iter().chain(hidden) {
        match answers.get(attempt) {
            // EPERM and EACCES.
            Some(Value::Number(number))
                if matches!(number.as_i64(), Some(1 | 13)) && !SIGHTS.contains(&attempt) => {}
            // ENOENT: inside, what is outside does not exist.
            Some(Value::Number(number))
                if inside && number.as_i64() == Some(2) && !MUST_BE_REFUSED.contains(&attempt) => {}
            Some(Value::Null) => return Err(format!("a confined program could {attempt}")),
            // An interpreter without ctypes cannot make this one.
            Some(Value::String(text)) if text == "left out" && attempt == "trace its parent" => {}
            Some(other) => return Err(format!("the attempt to {attempt} proved nothing: {other}")),
            None => return Err(format!("nothing is known about the attempt to {attempt}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> BTreeMap<String, Value> {
        ATTEMPTS
            .iter()
            .map(|name| ((*name).to_owned(), json!(1)))
            .collect()
    }

    #[test]
    fn a_worker_that_is_refused_everything_is_confined() {
        assert_eq!(judge(&all(), false), Ok(()));
    }

    #[test]
    fn an_absence_explains_no_refused_process() {
        for attempt in MUST_BE_REFUSED {
            let mut answers = all();
            answers.extend(SIGHTS.map(|name| (name.to_owned(), json!(2))));
            assert_eq!(judge(&answers, true), Ok(()));
            answers.insert(attempt.to_owned(), json!(2));
            let fault = format!("the attempt to {attempt} proved nothing: 2");
            assert_eq!(judge(&answers, true), Err(fault));
        }
    }

    #[test]
    fn a_success_an_odd_error_and_silence_each_refuse() {
        for (answer, fault) in [
            (Some(json!(null)), "a confined program could read a file"),
            (
                Some(json!(2)),
                "the attempt to read a file proved nothing: 2",
            ),
            (
                Some(json!("left out")),
                "the attempt to read a file proved nothing: \"left out\"",
            ),
            (None, "nothing is known about the attempt to read a file"),
        ] {
            let mut answers = all();
            answers.remove("read a file");
            if let Some(answer) = answer {
                answers.insert("read a file".to_owned(), answer);
            }
            assert_eq!(judge(&answers, false), Err(fault.to_owned()));
        }
    }
}
