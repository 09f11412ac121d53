//! ptcd's end of the control socket: starts the warden, asks it for workers, learns how they ended.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::sync::oneshot;

use super::limits::Limits;
use super::process::WorkerProcess;
use super::wire::{How, Plan, Report, Request, receive, send};
use super::worker::nameless_file;
use super::{Exit, SandboxError};

/// How long the warden may take to answer; its own limit for a worker's set-up is shorter.
const ANSWER: Duration = Duration::from_secs(15);
/// How long a fork server may take to be warm; the warden's own limit is shorter.
const SERVICE: Duration = Duration::from_secs(25);
/// Wardens that may be waited for at once; a daemon has one, tests have several.
const ORDERS: usize = 16;
/// How long a warden may take to leave after its socket has closed.
const LEAVE: Duration = Duration::from_secs(2);

/// A running warden.
#[derive(Debug)]
pub(super) struct Link {
    socket: Arc<OwnedFd>,
    state: Arc<Mutex<State>>,
    pid: u32,
}

/// A worker that has become the interpreter.
#[derive(Debug)]
struct Started {
    pid: i32,
    pidfd: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    lost: bool,
    configuring: Option<oneshot::Sender<Result<usize, SandboxError>>>,
    /// Filters of a worker that is forked, while workers can be.
    serving: Option<usize>,
    awaiting_service: Option<oneshot::Sender<Result<usize, String>>>,
    spawning: HashMap<u64, oneshot::Sender<Result<Started, SandboxError>>>,
    exits: HashMap<u64, oneshot::Sender<Exit>>,
    gone: Vec<oneshot::Sender<()>>,
}

/// Starts a warden from the one thread that starts them all and lives as long as this process: what a warden gets when
/// its parent dies it gets when that thread ends.
fn start_child(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::SyncSender<io::Result<Child>>);
    static STARTER: LazyLock<Option<mpsc::SyncSender<Order>>> = LazyLock::new(|| {
        let (sender, orders) = mpsc::sync_channel::<Order>(ORDERS);
        let start = move || {
            for (mut command, answer) in orders {
                // Who asked may have given up; then the warden finds its socket closed.
                let _ = answer.send(command.spawn());
            }
        };
        let thread = std::thread::Builder::new().name("wardens".to_owned());
        thread.spawn(start).ok().map(|_| sender)
    });
    let gone = || io::Error::other("there is no thread that starts it");
    let (answer, child) = mpsc::sync_channel(1);
    let starter = STARTER.as_ref().ok_or_else(gone)?;
    starter.send((command, answer)).map_err(|_| gone())?;
    child.recv_timeout(ANSWER).map_err(|_| gone())?
}

impl Link {
    /// Starts `program` as a warden, with an empty environment.
    ///
    /// `inside` puts it, and all its workers, into namespaces of their own.
    pub(super) fn start(program: &Path, inside: bool) -> Result<Self, SandboxError> {
        Self::start_with(program, inside, None)
    }

    /// The same with one more word, which only a warden of the tests takes.
    pub(super) fn start_with(
        program: &Path,
        inside: bool,
        word: Option<&str>,
    ) -> Result<Self, SandboxError> {
        let failed = |source| SandboxError::WardenStart { source };
        let (mine, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| failed(error.into()))?;
        let mut command = Command::new(program);
        command
            .arg0("ptcd")
            .arg("warden")
            .args(inside.then_some("--inside"))
            .args(word)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(other))
            .stdout(Stdio::null());
        let child = start_child(command).map_err(failed)?;
        let pid = child.id();
        let socket = Arc::new(mine);
        let state = Arc::new(Mutex::new(State::default()));
        let (reader, shared) = (Arc::clone(&socket), Arc::clone(&state));
        std::thread::Builder::new()
            .name("warden".to_owned())
            .spawn(move || listen(&reader, &shared, child))
            .map_err(failed)?;
        Ok(Self { socket, state, pid })
    }

    /// Process id of the warden.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the warden has gone; every worker of it ends with it.
    pub(super) fn is_lost(&self) -> bool {
        lock(&self.state).lost
    }

    /// Sends the plan by which workers are made from now on. Gives the way to learn the number of filters.
    pub(super) fn configure(
        &self,
        plan: &Plan,
    ) -> Result<oneshot::Receiver<Result<usize, SandboxError>>, SandboxError> {
        self.configure_by(&plan.to_json().to_string())
    }

    /// The same with a plan's text.
    pub(super) fn configure_by(
        &self,
        plan: &str,
    ) -> Result<oneshot::Receiver<Result<usize, SandboxError>>, SandboxError> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.state).configuring = Some(sender);
        nameless_file(plan.as_bytes())
            .and_then(|file| {
                send(
                    &*self.socket,
                    &Request::Configure.to_json(),
                    &[file.as_fd()],
                )
            })
            .map_err(|_| SandboxError::WardenLost)?;
        Ok(receiver)
    }

    /// Asks for a fork server for workers of these limits, and waits until it serves. Gives the number of filters that
    /// a forked worker has; the error says why there is no server.
    pub(super) async fn serve(&self, limits: Limits) -> Result<usize, String> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.state).awaiting_service = Some(sender);
        let request = Request::Serve { limits }.to_json();
        send(&*self.socket, &request, &[]).map_err(|_| "the warden is lost".to_owned())?;
        match tokio::time::timeout(SERVICE, receiver).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the warden is lost".to_owned()),
            Err(_) => Err("the warden gave no answer".to_owned()),
        }
    }

    /// Whether workers can be forked now.
    pub(super) fn is_serving(&self) -> bool {
        lock(&self.state).serving.is_some()
    }

    /// Asks for a worker and waits until it is the interpreter, and confined.
    pub(super) async fn spawn(
        &self,
        id: u64,
        limits: Limits,
        how: How,
    ) -> Result<WorkerProcess, SandboxError> {
        let (channel, far_channel) =
            UnixStream::pair().map_err(|source| ends(source.kind().into()))?;
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| ends(error.into()));
        let (stdout, far_stdout) = pipe()?;
        let (stderr, far_stderr) = pipe()?;
        let (started, receiver) = oneshot::channel();
        let (exit, exits) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            if state.lost {
                return Err(SandboxError::WardenLost);
            }
            state.spawning.insert(id, started);
            state.exits.insert(id, exit);
        }
        let request = Request::Spawn { id, limits, how }.to_json();
        let far = [far_channel.as_fd(), far_stdout.as_fd(), far_stderr.as_fd()];
        if let Err(error) = send(&*self.socket, &request, &far) {
            let mut state = lock(&self.state);
            state.spawning.remove(&id);
            state.exits.remove(&id);
            // Where nobody has the other end any more, whoever asks next is to start another warden, even if this one
            // has not been reaped yet.
            state.lost |= matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            );
            return Err(SandboxError::WardenLost);
        }
        drop((far_channel, far_stdout, far_stderr));
        let started = answer(receiver).await?;
        Ok(WorkerProcess::new(
            id,
            channel,
            (stdout, stderr),
            (started.pid, started.pidfd),
            (limits, how != How::Exec),
            exits,
        ))
    }

    /// Closes the socket, which ends the warden and all its workers, and waits until it has gone.
    pub(super) async fn stop(&self) {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            if state.lost {
                return;
            }
            state.gone.push(sender);
        }
        self.close();
        let _ = tokio::time::timeout(LEAVE * 2, receiver).await;
    }

    fn close(&self) {
        let _ = rustix::net::shutdown(&*self.socket, Shutdown::Both);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

/// Waits for what a request is answered with.
pub(super) async fn answer<T>(
    receiver: oneshot::Receiver<Result<T, SandboxError>>,
) -> Result<T, SandboxError> {
    match tokio::time::timeout(ANSWER, receiver).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(SandboxError::WardenLost),
        Err(_) => Err(SandboxError::WardenSilent {
            seconds: ANSWER.as_secs(),
        }),
    }
}

fn ends(source: io::Error) -> SandboxError {
    SandboxError::Ends { source }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Each change is one step, so a panic in between leaves nothing half done.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands on what the warden tells, until it has gone.
fn listen(socket: &OwnedFd, state: &Mutex<State>, child: Child) {
    while let Ok(Some((text, descriptors))) = receive(socket) {
        match serde_json::from_slice(&text) {
            Ok(report) => hand_on(&mut lock(state), report, descriptors),
            Err(error) => {
                tracing::error!(%error, "the warden sent what is no report");
                break;
            }
        }
    }
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
    wait_for(child);
    let mut state = lock(state);
    // Their receivers learn it from the senders' end.
    *state = State {
        lost: true,
        gone: std::mem::take(&mut state.gone),
        ..State::default()
    };
    for waiting in state.gone.drain(..) {
        let _ = waiting.send(());
    }
}

fn hand_on(state: &mut State, report: Report, descriptors: Vec<OwnedFd>) {
    match report {
        Report::Configured { filters } => {
            if let Some(waiting) = state.configuring.take() {
                let _ = waiting.send(Ok(filters));
            }
        }
        Report::Unusable { detail } => {
            if let Some(waiting) = state.configuring.take() {
                let _ = waiting.send(Err(SandboxError::Plan { detail }));
            }
        }
        Report::Serving { filters } => {
            state.serving = Some(filters);
            if let Some(waiting) = state.awaiting_service.take() {
                let _ = waiting.send(Ok(filters));
            }
        }
        Report::NotServing { detail } => {
            state.serving = None;
            if let Some(waiting) = state.awaiting_service.take() {
                let _ = waiting.send(Err(detail));
            } else {
                tracing::warn!(detail, "the fork server is lost");
            }
        }
        Report::Spawned { id } => {
            let Some(pidfd) = descriptors.into_iter().next() else {
                return;
            };
            let Some(waiting) = state.spawning.remove(&id) else {
                return;
            };
            // The warden may count processes in another way; what it has ended already has no number.
            let pid = pid_of(&pidfd).unwrap_or(0);
            // Nobody waits for it any more: it must not live on unknown.
            if let Err(Ok(unwanted)) = waiting.send(Ok(Started { pid, pidfd })) {
                let _ = pidfd_send_signal(unwanted.pidfd, Signal::KILL);
            }
        }
        Report::Failed { id, step, detail } => {
            state.exits.remove(&id);
            if let Some(waiting) = state.spawning.remove(&id) {
                let _ = waiting.send(Err(SandboxError::SetUp { step, detail }));
            }
        }
        Report::Exited {
            id,
            code,
            signal,
            cpu_micros,
            peak_memory_bytes,
            scratch_exceeded,
        } => {
            if let Some(waiting) = state.exits.remove(&id) {
                let _ = waiting.send(Exit {
                    code,
                    signal,
                    cpu: Duration::from_micros(cpu_micros),
                    peak_memory_bytes,
                    scratch_exceeded,
                });
            }
        }
    }
}

/// The number of a process as this one counts.
fn pid_of(pidfd: &OwnedFd) -> Option<i32> {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    line.trim().parse().ok().filter(|pid| *pid > 0)
}

/// Reaps the warden; one that does not leave is killed, and the kernel kills its workers.
fn wait_for(mut child: Child) {
    let pause = Duration::from_millis(5);
    for _ in 0..LEAVE.as_millis() / pause.as_millis() {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(pause);
    }
    let _ = child.kill();
    let _ = child.wait();
}
