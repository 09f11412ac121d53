//! Where the attempts are made: one sandbox a tier, and things outside that they reach for.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use ptcd::config::{ContainerConfig, EngineChoice, SandboxChoice, StartChoice};
use ptcd::sandbox::testing::Ground;
use ptcd::sandbox::{Exit, Limits, Sandbox, SandboxConfig, WorkerProcess};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// How long one program may take.
const LIMIT: Duration = Duration::from_secs(40);

/// Names the image of the tier container; `tests/real/container` makes one.
pub(crate) const IMAGE: &str = "PTC_TEST_IMAGE";

pub(crate) const LIMITS: Limits = Limits {
    memory_bytes: 256 << 20,
    scratch_bytes: 8 << 20,
    max_threads: 32,
    cpu_seconds: 20,
};

pub(crate) static CONTAINER_FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    tempfile::Builder::new()
        .prefix("ptc-security-engine-")
        .tempdir()
        .unwrap()
});

pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// A sandbox that stays for all tests.
pub(crate) fn sandbox(choice: SandboxChoice) -> &'static Sandbox {
    static NONE: OnceLock<Sandbox> = OnceLock::new();
    static LANDLOCK: OnceLock<Sandbox> = OnceLock::new();
    static FULL: OnceLock<Sandbox> = OnceLock::new();
    static CONTAINER: OnceLock<Sandbox> = OnceLock::new();
    let shared = match choice {
        SandboxChoice::None => &NONE,
        SandboxChoice::Landlock => &LANDLOCK,
        SandboxChoice::Full => &FULL,
        SandboxChoice::Container => &CONTAINER,
        other => panic!("no shared sandbox for {other:?}"),
    };
    shared.get_or_init(|| fresh(choice))
}

/// The same whose workers are all interpreters of their own.
pub(crate) fn sandbox_of_fresh_interpreters(choice: SandboxChoice) -> &'static Sandbox {
    static LANDLOCK: OnceLock<Sandbox> = OnceLock::new();
    static FULL: OnceLock<Sandbox> = OnceLock::new();
    let shared = match choice {
        SandboxChoice::Landlock => &LANDLOCK,
        SandboxChoice::Full => &FULL,
        // Nothing is forked there.
        other => return sandbox(other),
    };
    shared.get_or_init(|| {
        started(SandboxConfig {
            start: StartChoice::Exec,
            ..config(choice)
        })
    })
}

/// The confining tiers that this machine has; why it lacks one is told by a test of its own.
pub(crate) fn tiers() -> &'static [SandboxChoice] {
    static TIERS: OnceLock<Vec<SandboxChoice>> = OnceLock::new();
    TIERS.get_or_init(|| {
        if image().is_some() {
            return vec![SandboxChoice::Container];
        }
        let mut tiers = vec![SandboxChoice::Landlock];
        tiers.extend(lack_of_full().is_none().then_some(SandboxChoice::Full));
        tiers
    })
}

/// The image of the tier container. Where one is named, the attempts are made in that tier alone.
pub(crate) fn image() -> Option<String> {
    std::env::var(IMAGE).ok()
}

/// Why the tier full cannot be had here, if it cannot.
pub(crate) fn lack_of_full() -> Option<&'static str> {
    static LACK: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let sandbox = RUNTIME.block_on(Sandbox::start(config(SandboxChoice::Full)));
        sandbox.state().err().map(|refusal| refusal.message)
    };
    LACK.get_or_init(find).as_deref()
}

/// A sandbox of one test's own.
pub(crate) fn fresh(choice: SandboxChoice) -> Sandbox {
    started(config(choice))
}

fn started(config: SandboxConfig) -> Sandbox {
    let sandbox = RUNTIME.block_on(Sandbox::start(config));
    sandbox.state().unwrap();
    sandbox
}

pub(crate) fn config(choice: SandboxChoice) -> SandboxConfig {
    SandboxConfig {
        choice,
        start: start(),
        python: None,
        search_path: std::env::var_os("PATH").unwrap_or_default(),
        limits: LIMITS,
        boot: include_str!("boot.py").to_owned(),
        warden_program: Some(ptc_tests::programs::program("ptcd")),
        container: ContainerConfig {
            engine: EngineChoice::Auto,
            image: image(),
        },
        state_folder: image().map(|_| CONTAINER_FOLDER.path().to_owned()),
    }
}

/// Names how workers are made, `auto` or `exec`; `auto` if it is not set, as in ptcd. Attempts are made in both.
pub(crate) const START: &str = "PTC_TEST_START";

fn start() -> StartChoice {
    match std::env::var(START).as_deref() {
        Ok("exec") => StartChoice::Exec,
        Ok("auto") | Err(_) => StartChoice::Auto,
        Ok(other) => panic!("{START} is {other}"),
    }
}

/// Where sandboxes without a layer come from; this program is their warden.
pub(crate) fn ground() -> &'static Ground {
    static GROUND: OnceLock<Ground> = OnceLock::new();
    GROUND.get_or_init(|| {
        let mut config = config(SandboxChoice::Full);
        config.warden_program = Some(std::env::current_exe().unwrap());
        RUNTIME.block_on(Ground::find(config)).unwrap()
    })
}

/// The same with ptcd as the warden, which leaves nothing out.
pub(crate) fn ground_of_ptcd() -> Ground {
    let config = config(SandboxChoice::Full);
    RUNTIME.block_on(Ground::find(config)).unwrap()
}

/// What is left of a program.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What it answered, if it came to that.
    pub(crate) answer: Option<Value>,
    /// How its worker ended.
    pub(crate) exit: Exit,
}

impl Outcome {
    /// Its answer.
    pub(crate) fn answer(&self) -> &Value {
        self.answer
            .as_ref()
            .unwrap_or_else(|| panic!("no answer: {:?}", self.exit))
    }
}

/// How a filter answers what is refused by argument; not every engine reads an error number from its profile.
fn refusals() -> &'static [i32] {
    if image().is_some() {
        &[libc::EINVAL, libc::EPERM]
    } else {
        &[libc::EINVAL]
    }
}

/// Runs a program in a worker of its own.
pub(crate) fn run(choice: SandboxChoice, program: &str) -> Outcome {
    run_in(sandbox(choice), program)
}

pub(crate) fn run_in(sandbox: &Sandbox, program: &str) -> Outcome {
    let worker = spawn(sandbox);
    let answer = ask(&worker, program);
    end(worker, answer)
}

pub(crate) fn spawn(sandbox: &Sandbox) -> WorkerProcess {
    RUNTIME.block_on(sandbox.spawn()).unwrap()
}

/// Sends a program to a worker and waits for its answer, without ending the worker.
pub(crate) fn ask(worker: &WorkerProcess, program: &str) -> Option<Value> {
    let program = format!(
        "facts = json.loads({:?}); \
         unrefused = lambda calls: [n for n, code in calls if code not in facts['refusals']]\n{program}",
        outside().facts.to_string()
    );
    let mut channel = worker.channel.try_clone().unwrap();
    channel.set_read_timeout(Some(LIMIT)).unwrap();
    let mut message = u32::try_from(program.len()).unwrap().to_le_bytes().to_vec();
    message.extend_from_slice(program.as_bytes());
    let mut lines = BufReader::new(channel.try_clone().unwrap());
    let mut ready = String::new();
    lines.read_line(&mut ready).ok()?;
    if ready != "ready\n" {
        return None;
    }
    channel.write_all(&message).ok()?;
    let mut text = String::new();
    lines.read_line(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Ends a worker and waits until it has.
pub(crate) fn end(mut worker: WorkerProcess, answer: Option<Value>) -> Outcome {
    if answer.is_some() {
        worker.kill();
    }
    let exit = RUNTIME.block_on(async {
        if let Ok(exit) = tokio::time::timeout(LIMIT, worker.exited()).await {
            return exit;
        }
        // It hangs, or the machine is slow beyond measure: that is an outcome, too.
        worker.kill();
        tokio::time::timeout(LIMIT, worker.exited()).await.unwrap()
    });
    Outcome { answer, exit }
}

/// Polls until something holds.
pub(crate) fn eventually(limit: Duration, what: &str, holds: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Things that an unconfined program of any user can reach.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) facts: Value,
    _listeners: (TcpListener, UnixListener, UnixListener),
    _peer: WorkerProcess,
}

static OUTSIDE: OnceLock<Outside> = OnceLock::new();

/// Removes what the tests have laid out; a static is never dropped.
pub(crate) fn clear() {
    if image().is_some() {
        RUNTIME.block_on(sandbox(SandboxChoice::Container).stop());
        std::fs::remove_dir_all(CONTAINER_FOLDER.path()).unwrap();
    }
    if let Some(outside) = OUTSIDE.get() {
        std::fs::remove_dir_all(outside.folder.path()).unwrap();
    }
}

/// A shared library that this program has loaded.
fn some_library() -> std::path::PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.split_whitespace().filter(|word| {
        word.starts_with('/') && word.contains("libgcc_s") || word.contains("/libm.so")
    });
    paths.next().unwrap().into()
}

pub(crate) fn outside() -> &'static Outside {
    OUTSIDE.get_or_init(|| {
        let folder = tempfile::Builder::new()
            .prefix("ptc-security-")
            .tempdir_in("/tmp")
            .unwrap();
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(folder.path(), 0o777);
        let file = folder.path().join("file");
        std::fs::write(&file, "outside").unwrap();
        open(&file, 0o666);
        let socket = folder.path().join("socket");
        let unix = UnixListener::bind(&socket).unwrap();
        open(&socket, 0o777);
        let library = folder.path().join("library.so");
        std::fs::copy(some_library(), &library).unwrap();
        open(&library, 0o755);
        let name = format!("ptc-security-{}", std::process::id());
        let hidden =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        // Of the user that programs are, whoever that is.
        let peer = spawn(sandbox(SandboxChoice::None));
        let facts = json!({
            "folder": folder.path().to_str(),
            "file": file.to_str(),
            "library": library.to_str(),
            "socket": socket.to_str(),
            "abstract": name,
            "port": port.local_addr().unwrap().port(),
            "pid": std::process::id(),
            "peer": peer.pid(),
            "sys": crate::calls::numbers(),
            "refusals": refusals(),
        });
        Outside {
            folder,
            facts,
            _listeners: (port, unix, hidden),
            _peer: peer,
        }
    })
}
