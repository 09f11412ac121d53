//! Starts the daemon where none is running, once however many clients ask.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use ptc_protocol::DOCTOR_TIMEOUT;
use ptc_protocol::doctor::Checks;
use ptc_protocol::paths::{ConfigChoice, Places, variable};
use ptc_protocol::status::Readiness;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::connect::{ConnectError, Peer, connect, dial, open_to_others, own_uid, recorded};
use crate::ending::is_held;
use crate::environment;
pub use crate::environment::Ask;
use crate::launch_error::numbered;
pub use crate::launch_error::{LaunchError, Progress};
use crate::manager;

/// How long a started daemon may take until it is ready.
pub const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an older daemon may take to end: it lets programs and servers end first.
pub const ENDING_TIMEOUT: Duration = Duration::from_secs(90);
/// How long an older daemon is waited for without a word.
const QUIET: Duration = Duration::from_millis(300);
/// How long another client's start is waited for, an older daemon's end included.
const LOCK_TIMEOUT: Duration = Duration::from_secs(115);
/// How often a start is tried that finds the daemon's lock taken.
const START_TRIES: usize = 3;
/// How long a daemon that holds its lock may take until it listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);
/// First and longest pause between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// Longest readiness line, in bytes.
const MAX_READINESS_BYTES: u64 = 64 * 1024;
/// How much of the log's end an error shows, in bytes.
const TAIL_BYTES: u64 = 2048;
/// The variables of this process by which the daemon finds the same places; `HOME` among them, as
/// this process has it. What servers get is recorded for the daemon and read by it.
const PLACES: [&str; 7] = [
    "HOME",
    "USER",
    "LOGNAME",
    variable::XDG_RUNTIME_DIR,
    variable::XDG_CONFIG_HOME,
    variable::STATE_DIR,
    variable::LOG,
];
/// The variables of this process that count where nothing is recorded for them.
const FALLBACKS: &[&str] = if cfg!(target_os = "macos") {
    &["LANG", "TMPDIR"]
} else {
    &["LANG"]
};

/// Connects to the daemon, and starts it first where none is running.
///
/// Whoever else starts it at the same time is waited for, and so is an older
/// daemon that is still ending; every wait has a limit.
pub async fn launch(
    places: &Places,
    ask: Ask,
    mut tell: impl FnMut(Progress),
) -> Result<Peer, LaunchError> {
    if let Some(peer) = reach(places).await? {
        return Ok(peer);
    }
    let program = program()?;
    tell(Progress::Starting);
    private_folder(&places.state_root)?;
    private_folder(&places.state_dir)?;
    let lock = private_file(&places.state_dir.join("start.lock"))?;
    let mut older = Older::new(places, &mut tell);
    if let Some(peer) = lock_or_reach(places, &lock, &mut older).await? {
        return Ok(peer);
    }
    // The lock is let go when `lock` is dropped, at the end of this function.
    if let Some(peer) = reach(places).await? {
        return Ok(peer);
    }
    for _ in 0..START_TRIES {
        if let Some(peer) = older.gone().await? {
            return Ok(peer);
        }
        if start_service(places, older.tell).await || start(places, &program, ask).await? {
            break;
        }
        // The daemon's lock was taken after all: whoever has it serves soon, or is ending.
    }
    listening(places).await
}

/// Connects to a daemon that is about to listen.
async fn listening(places: &Places) -> Result<Peer, LaunchError> {
    let until = Instant::now() + LISTEN_TIMEOUT;
    let mut pause = PAUSES.0;
    loop {
        match connect(places).await {
            Err(error) if error.is_absent() && Instant::now() < until => {}
            result => return Ok(result?),
        }
        rest(&mut pause).await;
    }
}

/// A daemon that holds the configuration's lock and does not listen: most likely it is ending.
struct Older<'a, F> {
    places: &'a Places,
    since: Instant,
    tell: &'a mut F,
    told: bool,
}

impl<'a, F: FnMut(Progress)> Older<'a, F> {
    fn new(places: &'a Places, tell: &'a mut F) -> Self {
        Self {
            places,
            since: Instant::now(),
            tell,
            told: false,
        }
    }

    /// Says once, after a moment, what is waited for, if there is one.
    fn mention(&mut self) {
        if self.told || self.since.elapsed() < QUIET || !is_held(&self.places.lock_file()) {
            return;
        }
        self.told = true;
        let process = numbered(recorded(self.places).map(|(pid, _)| pid));
        (self.tell)(Progress::Waiting(format!(
            "an older ptcd{process} is still ending: it is waited for, at most {} s",
            ENDING_TIMEOUT.as_secs()
        )));
    }

    /// Waits until the lock is free, unless a daemon turns up that can be used.
    async fn gone(&mut self) -> Result<Option<Peer>, LaunchError> {
        let from = Instant::now();
        let mut pause = PAUSES.0;
        while is_held(&self.places.lock_file()) {
            if let Some(peer) = reach(self.places).await? {
                return Ok(Some(peer));
            }
            if let Some(error) = elsewhere(self.places).await {
                return Err(error);
            }
            if from.elapsed() >= ENDING_TIMEOUT {
                return Err(LaunchError::StillEnding {
                    pid: recorded(self.places).map(|(pid, _)| pid),
                    seconds: ENDING_TIMEOUT.as_secs(),
                });
            }
            self.mention();
            rest(&mut pause).await;
        }
        Ok(None)
    }
}

/// The daemon of this configuration on a socket other than the one that was named.
async fn elsewhere(places: &Places) -> Option<LaunchError> {
    let (pid, socket) = recorded(places)?;
    if socket == places.socket {
        return None;
    }
    dial(&socket).await.ok()?;
    Some(LaunchError::Elsewhere { pid, socket })
}

async fn reach(places: &Places) -> Result<Option<Peer>, ConnectError> {
    match connect(places).await {
        Ok(peer) => Ok(Some(peer)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Takes the lock, unless a daemon turns up while another client has it.
async fn lock_or_reach<F: FnMut(Progress)>(
    places: &Places,
    lock: &File,
    older: &mut Older<'_, F>,
) -> Result<Option<Peer>, LaunchError> {
    let until = Instant::now() + LOCK_TIMEOUT;
    let mut pause = PAUSES.0;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => {
                let path = places.state_dir.join("start.lock");
                return Err(LaunchError::State { path, source });
            }
        }
        if Instant::now() >= until {
            return Err(LaunchError::LockHeld {
                seconds: LOCK_TIMEOUT.as_secs(),
            });
        }
        older.mention();
        rest(&mut pause).await;
        if let Some(peer) = reach(places).await? {
            return Ok(Some(peer));
        }
    }
}

async fn rest(pause: &mut Duration) {
    sleep(*pause).await;
    *pause = PAUSES.1.min(*pause * 2);
}

/// Whether a daemon could be started by this program.
pub(crate) fn is_installed() -> bool {
    program().is_ok()
}

/// The `ptcd` beside this program's real place; never one from `PATH` or the working directory.
pub(crate) fn program() -> Result<PathBuf, LaunchError> {
    let own = std::env::current_exe().and_then(|path| {
        // A program that was replaced while it ran is shown with this mark on Linux.
        let text = path.to_string_lossy();
        let path = text
            .strip_suffix(" (deleted)")
            .map_or(path.clone(), PathBuf::from);
        path.parent().unwrap_or(Path::new("/")).canonicalize()
    });
    let folder = own.map_err(|source| LaunchError::NoOwnPath { source })?;
    let path = folder.join("ptcd");
    if path.is_file() {
        Ok(path)
    } else {
        Err(LaunchError::NoProgram { path })
    }
}

/// Makes a folder with mode 0700, or takes these rights from others where it is there.
pub(crate) fn private_folder(path: &Path) -> Result<(), LaunchError> {
    let work = || {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(path)?;
        let about = std::fs::symlink_metadata(path)?;
        if !about.is_dir() || about.uid() != own_uid() {
            return Err(io::Error::other("it is not a folder of yours"));
        }
        if open_to_others(&about) {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    };
    work().map_err(|source| state(path, source))
}

/// Opens a file for appending with mode 0600, making it where it is missing.
pub(crate) fn private_file(path: &Path) -> Result<File, LaunchError> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let work = || {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(flags.bits().cast_signed())
            .open(path)?;
        let about = file.metadata()?;
        if !about.is_file() || about.uid() != own_uid() {
            return Err(io::Error::other("it is not a file of yours"));
        }
        if open_to_others(&about) {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        Ok(file)
    };
    work().map_err(|source| state(path, source))
}

fn state(path: &Path, source: io::Error) -> LaunchError {
    LaunchError::State {
        path: path.to_owned(),
        source,
    }
}

/// Has the service manager start the daemon where it is a service; false where it is not, or could not be.
async fn start_service(places: &Places, tell: &mut impl FnMut(Progress)) -> bool {
    if !manager::is_service(places) {
        return false;
    }
    match manager::start(places).await {
        Ok(()) => true,
        Err(error) => {
            let manager = manager::Kind::of_system().name();
            tell(Progress::Waiting(format!(
                "{manager} does not start ptcd ({error}): it is started without"
            )));
            false
        }
    }
}

/// Runs the program and waits for its readiness; false when another daemon holds the lock.
async fn start(places: &Places, program: &Path, ask: Ask) -> Result<bool, LaunchError> {
    let path = places.log_file();
    let log = private_file(&path)?;
    let mut log = Log {
        from: log.metadata().map_or(0, |about| about.len()),
        path,
        file: log,
    };
    let recorded = environment::for_start(places, ask).await;
    let file = places.environment_file();
    environment::write(places, &recorded).map_err(|source| state(&file, source))?;
    let spawned = log
        .file
        .try_clone()
        .and_then(|file| command(places, program, &recorded.variables, file).spawn());
    let mut child = spawned.map_err(|source| LaunchError::Spawn {
        path: program.to_owned(),
        source,
    })?;
    match timeout(READY_TIMEOUT, readiness(&mut child)).await {
        Ok(Ok(Readiness::Ready { .. })) => Ok(true),
        Ok(Ok(Readiness::AlreadyRunning)) => Ok(false),
        Ok(Ok(Readiness::Failed { message })) => Err(LaunchError::Failed { message }),
        Ok(Err(status)) => Err(LaunchError::Died {
            status,
            tail: log.tail(),
            log: log.path,
        }),
        Err(_) => Err(LaunchError::NotReady {
            seconds: READY_TIMEOUT.as_secs(),
            tail: log.tail(),
            log: log.path,
        }),
    }
}

/// The daemon's command line and surroundings.
///
/// Told `--detach`, it makes a session of its own, which the system allows only
/// to a process that leads no group yet: so it is given none here.
fn command(
    places: &Places,
    program: &Path,
    recorded: &BTreeMap<String, String>,
    log: File,
) -> Command {
    let verb = ["serve", "--detach", "--ready-stdout"];
    let mut command = surrounded(places, program, recorded, &verb);
    if places.socket_named {
        command.arg("--socket").arg(&places.socket);
    }
    command.stderr(log);
    command
}

/// A verb of the program in the surroundings of a daemon.
fn surrounded(
    places: &Places,
    program: &Path,
    recorded: &BTreeMap<String, String>,
    verb: &[&str],
) -> Command {
    let mut command = Command::new(program);
    command.args(verb);
    if let ConfigChoice::Named(path) = &places.config {
        command.arg("--config").arg(path);
    }
    let own = |names: &'static [&str]| {
        let names = names.iter();
        names.filter_map(|name| Some((*name, std::env::var_os(name)?)))
    };
    command
        .env_clear()
        .envs(own(FALLBACKS))
        .envs(recorded.iter().filter(|(name, _)| is_base(name)))
        .envs(own(&PLACES))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// Has the program check what a daemon of these places would need, or `server` alone; starts no daemon. Takes at most
/// [`DOCTOR_TIMEOUT`].
pub(crate) async fn examine(places: &Places, server: Option<&str>) -> Result<Checks, LaunchError> {
    let program = program()?;
    let recorded = environment::for_start(places, Ask::Once).await;
    let mut command = surrounded(places, &program, &recorded.variables, &["doctor"]);
    if let Some(name) = server {
        command.arg(format!("--server={name}"));
    }
    command.stderr(Stdio::piped()).kill_on_drop(true);
    let spawned = command.spawn();
    let child = spawned.map_err(|source| LaunchError::Spawn {
        path: program.clone(),
        source,
    })?;
    let seconds = DOCTOR_TIMEOUT.as_secs();
    let Ok(ended) = timeout(DOCTOR_TIMEOUT, child.wait_with_output()).await else {
        let message = format!("it did not end its checks within {seconds} s");
        return Err(LaunchError::Failed { message });
    };
    let output = ended.map_err(|source| LaunchError::Spawn {
        path: program,
        source,
    })?;
    serde_json::from_slice(&output.stdout).map_err(|_| LaunchError::Failed {
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Whether the daemon itself, not only its servers, uses a recorded variable.
fn is_base(name: &str) -> bool {
    ["PATH", "SHELL", "LANG", "TMPDIR"].contains(&name)
}

/// The daemon's readiness line, or how it ended without one.
async fn readiness(child: &mut Child) -> Result<Readiness, ExitStatus> {
    if let Some(pipe) = child.stdout.take() {
        let mut line = Vec::new();
        let mut pipe = BufReader::new(pipe.take(MAX_READINESS_BYTES));
        let read = async {
            let _ = pipe.read_until(b'\n', &mut line).await;
        };
        // Something else may keep the pipe open after the daemon has ended.
        tokio::select! {
            biased;
            () = read => {}
            _ = child.wait() => {}
        }
        if let Ok(readiness) = serde_json::from_slice(&line) {
            return Ok(readiness);
        }
    }
    match child.wait().await {
        Ok(status) => Err(status),
        Err(_) => Err(ExitStatus::default()),
    }
}

struct Log {
    path: PathBuf,
    file: File,
    /// Its length before the daemon was started.
    from: u64,
}

impl Log {
    /// What the daemon has written last, on one line.
    fn tail(&mut self) -> String {
        let read = || {
            let mut file = File::open(&self.path)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(
                self.from.max(length.saturating_sub(TAIL_BYTES)),
            ))?;
            let mut bytes = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok::<_, io::Error>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = read().unwrap_or_default();
        let lines: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        if lines.is_empty() {
            "(nothing)".to_owned()
        } else {
            lines.join(" | ")
        }
    }
}
