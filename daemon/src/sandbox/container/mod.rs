//! The tier `container`: proves it, then hands out workers that live in a container each.

mod engine;
mod flags;
mod relay;

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Signal, getrlimit};
use tokio::net::unix::pipe::Sender;
use tokio::process::Child;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::engine::{COMMAND, Engine, find};
use self::flags::Run;
use self::relay::{Ends, carry_in, carry_out, last_words};
use super::process::Reins;
use super::profile::Profile;
use super::profile::engine::gate;
use super::{Exit, Limits, Ready, SandboxConfig, SandboxError, WorkerProcess, canary, refusal};

/// What stands before the worker's own text.
const SUPERVISOR: &str = include_str!("supervisor.py");
/// The interpreter inside an image, unless one is named.
const PYTHON: &str = "python3";
/// The oldest Python that will do.
const OLDEST: (u32, u32) = (3, 11);
/// How long a container may take to end by itself before the engine is asked to remove it.
const GRACE: Duration = Duration::from_secs(2);
/// How long what was written last may take to arrive.
const LATE: Duration = Duration::from_secs(2);
/// How long all containers may take to end when ptcd stops.
const STOP: Duration = Duration::from_secs(5);
/// Processes of the user that containers run as, a wall behind the limit of each container: named because engines name
/// more than an ordinary limit lets them, and under the 32768 to which podman lowers its own.
const PROCESSES: u64 = 1 << 14;

/// Tells the containers of this process from those of one that has died.
static PROCESS: LazyLock<String> = LazyLock::new(|| {
    let bits = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
    format!("{bits:016x}")
});
static CONTAINERS: AtomicU64 = AtomicU64::new(1);

/// Where contained workers come from.
#[derive(Debug)]
pub(super) struct Containers {
    engine: Engine,
    owner: String,
    image: String,
    python: String,
    profile: PathBuf,
    boot: String,
    /// Ends all of them.
    end: CancellationToken,
    tending: TaskTracker,
}

/// Proves the tier: an engine that answers, an image that is there, a worker of it that gets nowhere.
pub(super) async fn prove(config: &SandboxConfig) -> Result<(Ready, Containers), String> {
    let wanted = config.container.image.as_deref();
    let image = wanted.ok_or_else(refusal::no_image)?;
    if !is_fixed(image) {
        return Err(refusal::no_digest(image));
    }
    let engine = find(config.container.engine, &config.search_path).await?;
    let name = engine.kind.name();
    engine
        .command(&["image", "inspect", "--format", "{{.Id}}", image])
        .await
        .map_err(|error| refusal::image_missing(name, image, &error.to_string()))?;
    let folder = config
        .state_folder
        .as_deref()
        .ok_or_else(refusal::no_folder)?;
    let failed = |error: io::Error| refusal::folder_unusable(folder, &error);
    let owner = owner(folder).map_err(failed)?;
    let profile = write_profile(folder).map_err(failed)?;
    let mut notes = Vec::new();
    if let Err(error) = engine.remove_leftovers(&owner).await {
        notes.push(format!(
            "containers that an earlier ptcd left could not be removed: {error}"
        ));
    }
    let python = config.python.as_ref().map_or(Ok(PYTHON), |path| {
        path.to_str().ok_or_else(|| refusal::named_missing(path))
    })?;
    let mut containers = Containers {
        engine,
        owner,
        image: image.to_owned(),
        python: python.to_owned(),
        profile,
        boot: canary::TEXT.to_owned(),
        end: CancellationToken::new(),
        tending: TaskTracker::new(),
    };
    let version = containers.try_out(config.limits).await?;
    containers.boot.clone_from(&config.boot);
    let ready = Ready {
        confinement: ptc_protocol::run::Confinement::Container,
        python: PathBuf::from(python),
        version,
        notes,
    };
    Ok((ready, containers))
}

impl Containers {
    /// Starts one container that tries to get out. Gives the version of its Python.
    async fn try_out(&self, limits: Limits) -> Result<String, String> {
        let name = self.engine.kind.name();
        let mut worker = self
            .spawn(0, limits)
            .map_err(|error| refusal::engine_fails(name, &error.to_string()))?;
        let answer = canary::run(&worker, true, false).await;
        let version = match answer {
            Ok(version) => version,
            // The engine's words, or the supervisor's, say more than the silence of a container that never was.
            Err(detail) => match worker_words(&mut worker).await {
                Some(words) => return Err(refusal::engine_fails(name, &words)),
                None => return Err(refusal::canary(&detail)),
            },
        };
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        let found = (
            parts.next().unwrap_or(0),
            parts.next().unwrap_or(0),
            parts.next().unwrap_or(0),
        );
        if (found.0, found.1) < OLDEST {
            return Err(refusal::image_too_old(&self.image, &version));
        }
        Ok(version)
    }

    /// A fresh worker. What keeps it from getting warm is on its standard error.
    pub(super) fn spawn(&self, id: u64, limits: Limits) -> Result<WorkerProcess, SandboxError> {
        if self.end.is_cancelled() {
            return Err(SandboxError::Stopped);
        }
        let ends = |source| SandboxError::Ends { source };
        let number = CONTAINERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("ptcd-{}-{}-{number}", self.owner, *PROCESS);
        let processes = getrlimit(Resource::Nproc).maximum;
        let arguments = Run {
            owner: &self.owner,
            name: &name,
            image: &self.image,
            profile: &self.profile,
            python: &self.python,
            limits,
            processes: processes.map_or(PROCESSES, |hard| hard.min(PROCESSES)),
            text: &supervised(&self.boot, limits),
        }
        .arguments(self.engine.kind);
        let (channel, far) = UnixStream::pair().map_err(ends)?;
        far.set_nonblocking(true).map_err(ends)?;
        let (stdout, far_stdout) = pipe().map_err(ends)?;
        let (stderr, far_stderr) = pipe().map_err(ends)?;
        let far = Ends {
            channel: tokio::net::UnixStream::from_std(far).map_err(ends)?,
            stdout: Sender::from_owned_fd(far_stdout).map_err(ends)?,
            stderr: Sender::from_owned_fd(far_stderr).map_err(ends)?,
        };
        let child = self
            .engine
            .start(arguments)
            .map_err(|source| SandboxError::Engine {
                engine: self.engine.kind.name(),
                source,
            })?;
        let reins = Reins::under(&self.end);
        let (exit, exits) = oneshot::channel();
        let tended = tend(self.engine.clone(), name, child, far, reins.clone(), exit);
        self.tending.spawn(tended);
        Ok(WorkerProcess::tended(
            id,
            channel,
            (stdout, stderr),
            reins,
            exits,
        ))
    }

    /// Ends all containers and waits until they have gone, for a while.
    pub(super) async fn stop(&self) {
        self.end.cancel();
        self.tending.close();
        let _ = tokio::time::timeout(STOP, self.tending.wait()).await;
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        // Whoever holds a worker still needs it: only the canary's, which nobody holds, has to go by itself.
        self.tending.close();
    }
}

fn pipe() -> io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)> {
    let (read, write) = io::pipe()?;
    Ok((read.into(), write.into()))
}

/// What a worker that never answered left on its standard error.
async fn worker_words(worker: &mut WorkerProcess) -> Option<String> {
    worker.kill();
    tokio::time::timeout(GRACE + COMMAND, worker.exited())
        .await
        .ok()?;
    let stderr = worker.stderr.try_clone().ok()?;
    let receiver = tokio::net::unix::pipe::Receiver::from_owned_fd(stderr).ok()?;
    let words = tokio::time::timeout(LATE, last_words(receiver))
        .await
        .ok()?;
    (!words.is_empty()).then_some(words)
}

/// The text an interpreter starts with: the supervisor, then what the worker goes on with.
fn supervised(boot: &str, limits: Limits) -> String {
    format!(
        "{SUPERVISOR}start(\"{}\", ({}, {}, {}), ({}, {}))\ndel start, supervise\n{boot}",
        gate(),
        limits.memory_bytes,
        limits.file_bytes(),
        limits.cpu_seconds,
        flags::memory(limits),
        flags::tasks(limits),
    )
}

/// Whether an image can never be another one: a digest, or the id of one that was built here.
fn is_fixed(image: &str) -> bool {
    let digest = match image.split_once('@') {
        Some((name, digest)) if is_name(name) => digest,
        Some(_) => return false,
        None => image,
    };
    digest.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The characters of image names; a name that begins with a dash would be a flag.
fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-/:".contains(&byte))
}

/// What the containers of one daemon are labelled with, at each of its starts the same.
fn owner(folder: &Path) -> io::Result<String> {
    let path = folder.join("container.owner");
    let is_one = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match fs::read_to_string(&path) {
        Ok(text) if is_one(&text) => return Ok(text),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let bits = getrandom::u64().map_err(io::Error::other)?;
    let text = format!("{bits:016x}");
    write_private(&path, &text)?;
    Ok(text)
}

/// Writes the engine's seccomp profile where only this user can change it.
fn write_profile(folder: &Path) -> io::Result<PathBuf> {
    let text = Profile::for_engine().map_err(io::Error::other)?.to_string();
    let path = folder.join("container.seccomp.json");
    write_private(&path, &text)?;
    path.canonicalize()
}

/// Puts a file in another's place in one step.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension(format!("new-{}", *PROCESS));
    let mut file = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

/// Carries between a container and its ends, and sees to it that it ends when it should.
async fn tend(
    engine: Engine,
    name: String,
    mut child: Child,
    ends: Ends,
    reins: Reins,
    exit: oneshot::Sender<Exit>,
) {
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return;
    };
    let (read, write) = ends.channel.into_split();
    let carrying_in = tokio::spawn(carry_in(stdin, read, reins.clone()));
    let pipes = (ends.stdout, ends.stderr);
    let mut carrying_out = tokio::spawn(carry_out(stdout, write, pipes, reins.clone()));
    let words = tokio::spawn(last_words(stderr));
    let status = tokio::select! {
        status = child.wait() => status,
        () = reins.kill.cancelled() => finish(&engine, &name, &mut child).await,
    };
    carrying_in.abort();
    let heard = tokio::time::timeout(LATE, &mut carrying_out).await;
    carrying_out.abort();
    let mut ended = None;
    if let Ok(Ok(mut heard)) = heard {
        ended = heard.ended;
        if !heard.spoke
            && let Ok(Ok(words)) = tokio::time::timeout(LATE, words).await
        {
            let written = tokio::io::AsyncWriteExt::write_all(&mut heard.stderr, words.as_bytes());
            let _ = tokio::time::timeout(LATE, written).await;
        }
    }
    let killed = reins.kill.is_cancelled();
    reins.ended.cancel();
    // Whoever does not wait for it does not want to know.
    let _ = exit.send(ended.unwrap_or_else(|| unexplained(killed, status.ok())));
}

/// Waits for a container that was told to end; one that does not is removed, then its engine's program is killed.
async fn finish(
    engine: &Engine,
    name: &str,
    child: &mut Child,
) -> io::Result<std::process::ExitStatus> {
    if let Ok(status) = tokio::time::timeout(GRACE, child.wait()).await {
        return status;
    }
    if let Err(error) = engine.command(&["rm", "--force", name]).await {
        tracing::warn!(name, %error, "a container could not be removed; the next start of ptcd tries again");
    }
    if let Ok(status) = tokio::time::timeout(GRACE, child.wait()).await {
        return status;
    }
    child.start_kill()?;
    child.wait().await
}

/// How a worker ended of which the supervisor could not tell.
fn unexplained(killed: bool, status: Option<std::process::ExitStatus>) -> Exit {
    let code = status.and_then(|status| status.code());
    let signal = match code {
        _ if killed => Some(Signal::KILL.as_raw()),
        // Engines add 128 to a signal.
        Some(code @ 129..=192) => Some(code - 128),
        Some(_) => None,
        None => Some(Signal::KILL.as_raw()),
    };
    Exit {
        code: if signal.is_some() { None } else { code },
        signal,
        cpu: Duration::ZERO,
        peak_memory_bytes: 0,
        scratch_exceeded: false,
    }
}

#[cfg(test)]
mod tests;
