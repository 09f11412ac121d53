//! Hands out workers that have a guard each: the tiers of macOS.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ptc_protocol::run::Confinement;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::guard::{Plan, Report};
use super::interpreter::Interpreter;
use super::process::Reins;
use super::seatbelt::{Layout, plain_arguments};
use super::{Exit, Limits, Ready, SandboxConfig, SandboxError, WorkerProcess, canary, refusal};

/// How long a guard may take to tell the end of a worker it was told to end.
const GRACE: Duration = Duration::from_secs(2);
/// How long all of them may take when ptcd stops.
const STOP: Duration = Duration::from_secs(5);
/// Where scratch folders are made: resolved, as the profile wants it.
const SCRATCH: &str = "/tmp";

/// Where guarded workers come from.
#[derive(Debug)]
pub(super) struct Guarded {
    kind: Kind,
    guard: Guard,
    boot: String,
    user: Option<u32>,
    scratch: PathBuf,
    /// Ends all of them.
    end: CancellationToken,
    tending: TaskTracker,
}

/// What a worker is started by.
#[derive(Debug)]
enum Kind {
    Seatbelt {
        program: PathBuf,
        layout: Layout,
        profile: PathBuf,
    },
    /// Not confined.
    Plain { python: PathBuf },
}

/// How a guard is started.
#[derive(Debug)]
pub(super) enum Guard {
    /// This program is.
    #[cfg_attr(
        target_os = "linux",
        expect(dead_code, reason = "Linux has a warden for all workers")
    )]
    Program(PathBuf),
    /// In a thread, for tests.
    #[cfg(test)]
    Thread,
}

/// Proves the tier seatbelt with `program` in the place of `sandbox-exec`.
pub(super) async fn prove_seatbelt(
    config: &SandboxConfig,
    found: &Interpreter,
    guard: Guard,
    user: Option<u32>,
    program: &Path,
) -> Result<(Ready, Guarded), String> {
    if !program.is_file() {
        return Err(refusal::no_sandbox_exec(program));
    }
    let folder = config
        .state_folder
        .as_deref()
        .ok_or_else(refusal::no_folder)?;
    let layout = Layout::of(&found.found, |path| path.canonicalize().ok())
        .map_err(|error| refusal::no_layout(&found.python, &error.to_string()))?;
    let failed = |error: io::Error| refusal::folder_unusable(folder, &error);
    let folder = folder.canonicalize().map_err(failed)?;
    let scratch = scratch_parent();
    let profile = folder.join("python.sb");
    let text = layout.profile(&scratch.join("scratch"));
    write_profile(&profile, &text).map_err(failed)?;
    let mut guarded = Guarded {
        kind: Kind::Seatbelt {
            program: program.to_owned(),
            layout,
            profile,
        },
        guard,
        boot: canary::TEXT.to_owned(),
        user,
        scratch,
        end: CancellationToken::new(),
        tending: TaskTracker::new(),
    };
    let mut worker = guarded
        .spawn(0, config.limits)
        .map_err(|error| refusal::seatbelt_fails(&error.to_string()))?;
    if let Err(detail) = canary::run(&worker, false, false).await {
        // A profile that does not compile, or a worker that does not start, has told why.
        return Err(match last_words(&mut worker).await {
            Some(words) => refusal::seatbelt_fails(&words),
            None => refusal::canary(&detail),
        });
    }
    guarded.boot.clone_from(&config.boot);
    Ok((ready(Confinement::Seatbelt, found), guarded))
}

/// Workers that are not confined.
pub(super) fn plain(
    config: &SandboxConfig,
    found: &Interpreter,
    guard: Guard,
    user: Option<u32>,
) -> (Ready, Guarded) {
    let guarded = Guarded {
        kind: Kind::Plain {
            python: found.python.clone(),
        },
        guard,
        boot: config.boot.clone(),
        user,
        scratch: scratch_parent(),
        end: CancellationToken::new(),
        tending: TaskTracker::new(),
    };
    (ready(Confinement::None, found), guarded)
}

fn ready(confinement: Confinement, found: &Interpreter) -> Ready {
    Ready {
        confinement,
        python: found.python.clone(),
        version: found.version.clone(),
        notes: found.notes.clone(),
    }
}

fn scratch_parent() -> PathBuf {
    let parent = PathBuf::from(SCRATCH);
    parent.canonicalize().unwrap_or(parent)
}

fn write_profile(path: &Path, text: &str) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut file = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// What a worker that gave no answer left where its output goes.
async fn last_words(worker: &mut WorkerProcess) -> Option<String> {
    worker.kill();
    tokio::time::timeout(GRACE * 2, worker.exited())
        .await
        .ok()?;
    rustix::io::ioctl_fionbio(&worker.stderr, true).ok()?;
    let mut stderr = fs::File::from(worker.stderr.try_clone().ok()?);
    let mut bytes = vec![0; 4096];
    let length = io::Read::read(&mut stderr, &mut bytes).unwrap_or(0);
    let text = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default());
    let words = text.trim().to_owned();
    (!words.is_empty()).then_some(words)
}

impl Guarded {
    /// A fresh worker. What keeps it from getting warm is on its standard error, which takes what goes to descriptor 1
    /// as well.
    pub(super) fn spawn(&self, id: u64, limits: Limits) -> Result<WorkerProcess, SandboxError> {
        if self.end.is_cancelled() {
            return Err(SandboxError::Stopped);
        }
        let ends = |source| SandboxError::Ends { source };
        let plan = self.plan(limits).map_err(ends)?;
        let (control, far_control) = UnixStream::pair().map_err(ends)?;
        let (channel, far_channel) = UnixStream::pair().map_err(ends)?;
        let (stderr, output) = pipe().map_err(ends)?;
        // Nothing is ever written to this one.
        let (stdout, _) = pipe().map_err(ends)?;
        let words = output.try_clone().map_err(ends)?;
        control.set_nonblocking(true).map_err(ends)?;
        let control = tokio::net::UnixStream::from_std(control).map_err(ends)?;
        let guard = self
            .guard
            .start(far_control, far_channel.into(), output)
            .map_err(|source| SandboxError::WardenStart { source })?;
        let reins = Reins::under(&self.end);
        let (exit, exits) = oneshot::channel();
        let tended = tend(control, plan, guard, words, reins.clone());
        let ended = reins.ended.clone();
        self.tending.spawn(async move {
            let found = tended.await;
            ended.cancel();
            // Whoever does not wait for it does not want to know.
            let _ = exit.send(found);
        });
        Ok(WorkerProcess::tended(
            id,
            channel,
            (stdout, stderr),
            reins,
            exits,
        ))
    }

    fn plan(&self, limits: Limits) -> io::Result<Plan> {
        let bits = getrandom::u64().map_err(io::Error::other)?;
        let scratch = self.scratch.join(format!("ptcd-{bits:016x}"));
        let words = match &self.kind {
            Kind::Seatbelt {
                program,
                layout,
                profile,
            } => layout
                .command_line(program, profile, &scratch, &self.boot)
                .map_err(io::Error::other)?,
            Kind::Plain { python } => std::iter::once(python.clone().into())
                .chain(plain_arguments(&self.boot))
                .collect(),
        };
        let texts = words.into_iter().map(|word| {
            word.into_string()
                .map_err(|_| io::Error::other("a path is no UTF-8"))
        });
        Ok(Plan {
            words: texts.collect::<io::Result<_>>()?,
            scratch,
            limits,
            user: self.user,
        })
    }

    /// Ends all workers and waits until they have gone, for a while.
    pub(super) async fn stop(&self) {
        self.end.cancel();
        self.tending.close();
        let _ = tokio::time::timeout(STOP, self.tending.wait()).await;
    }
}

impl Guard {
    /// Starts a guard; `None` where it is no process of its own.
    fn start(
        &self,
        control: UnixStream,
        channel: OwnedFd,
        output: OwnedFd,
    ) -> io::Result<Option<Child>> {
        match self {
            Self::Program(program) => Command::new(program)
                .arg("warden")
                .env_clear()
                .current_dir("/")
                // A terminal's signals are for ptcd, which decides when workers end.
                .process_group(0)
                .stdin(Stdio::from(OwnedFd::from(control)))
                .stdout(Stdio::from(channel))
                .stderr(Stdio::from(output))
                .spawn()
                .map(Some),
            #[cfg(test)]
            Self::Thread => {
                let parent = rustix::process::getppid();
                std::thread::spawn(move || super::guard::serve(&control, channel, output, parent));
                Ok(None)
            }
        }
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = io::pipe()?;
    Ok((read.into(), write.into()))
}

/// Tells a guard what to do until it tells how its worker ended; one that tells nothing has lost it.
async fn tend(
    control: tokio::net::UnixStream,
    plan: Plan,
    guard: Option<Child>,
    words: OwnedFd,
    reins: Reins,
) -> Exit {
    let (read, mut write) = control.into_split();
    let mut lines = BufReader::new(read).lines();
    let mut pid = None;
    let mut ended = None;
    let planned = write.write_all(plan.to_line().as_bytes()).await;
    let mut told = planned.is_err();
    let deadline = tokio::time::sleep(Duration::MAX / 4);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            biased;
            () = reins.kill.cancelled(), if !told => {
                told = true;
                let _ = write.write_all(b"k").await;
                deadline.as_mut().reset(tokio::time::Instant::now() + GRACE);
            }
            () = &mut deadline => break,
            () = reins.interrupt.notified(), if !told => {
                let _ = write.write_all(b"i").await;
            }
            line = lines.next_line() => match line {
                Ok(Some(line)) => match serde_json::from_str(&line) {
                    Ok(Report::Started { pid: number }) => pid = Some(number),
                    Ok(Report::Failed { detail }) => {
                        let mut words = fs::File::from(words);
                        let _ = words.write_all(detail.as_bytes());
                        ended = Some(unexplained(Some(71)));
                        break;
                    }
                    Ok(report @ Report::Ended { .. }) => {
                        ended = exit_of(&report);
                        break;
                    }
                    Err(_) => break,
                },
                _ => break,
            },
        }
    }
    let lost = ended.is_none();
    if lost && let Some(pid) = pid.and_then(Pid::from_raw) {
        // Without its guard nobody else would end it. The group was its own.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = tokio::task::spawn_blocking(move || fs::remove_dir_all(plan.scratch)).await;
    }
    if let Some(mut guard) = guard {
        if lost {
            let _ = guard.start_kill();
        }
        let _ = tokio::time::timeout(GRACE, guard.wait()).await;
    }
    ended.unwrap_or_else(|| unexplained(None))
}

fn exit_of(report: &Report) -> Option<Exit> {
    let Report::Ended {
        code,
        signal,
        cpu_micros,
        peak_memory_bytes,
        scratch_exceeded,
    } = report
    else {
        return None;
    };
    Some(Exit {
        code: *code,
        signal: *signal,
        cpu: Duration::from_micros(*cpu_micros),
        peak_memory_bytes: *peak_memory_bytes,
        scratch_exceeded: *scratch_exceeded,
    })
}

fn unexplained(code: Option<i32>) -> Exit {
    Exit {
        code,
        signal: code.is_none().then(|| Signal::KILL.as_raw()),
        cpu: Duration::ZERO,
        peak_memory_bytes: 0,
        scratch_exceeded: false,
    }
}

#[cfg(test)]
mod tests;
