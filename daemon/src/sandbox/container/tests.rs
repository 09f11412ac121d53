//! An engine's program that is a script: what ptcd asks of it, and what it makes of the answers.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use ptc_protocol::run::Confinement;

use super::engine::Kind;
use super::*;
use crate::config::{ContainerConfig, EngineChoice, SandboxChoice};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const LIMITS: Limits = Limits {
    memory_bytes: 64 << 20,
    scratch_bytes: 1 << 20,
    max_threads: 8,
    cpu_seconds: 5,
};

/// Behaves as its folder says: `version`, `down`, `no-image`, `left`, and `run`, the way its containers behave.
const ENGINE: &str = r#"#!/usr/bin/env python3
import json, os, struct, sys, time

folder = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[1:]


def says(name):
    try:
        return open(os.path.join(folder, name)).read()
    except OSError:
        return ""


def tell(kind, data=b""):
    record = kind + struct.pack("<I", len(data)) + data
    os.write(1, record)


def take(length):
    data = b""
    while len(data) < length:
        part = os.read(0, length - len(data))
        if not part:
            sys.exit(0)
        data += part
    return data


def supervise(text):
    """The supervisor itself, with a child that needs no container."""
    import signal, socket

    scope = {}
    exec(text, scope)
    here, there = socket.socketpair()
    outs = [os.pipe(), os.pipe()]
    waker, wake = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGUSR1, lambda *_: os.write(outs[1][1], b"here"))
        os.write(outs[0][1], b"past")
        there.sendall(b"ready")
        while True:
            data = there.recv(65536)
            if data == b"exit":
                os.write(outs[0][1], b"late")
                there.sendall(b"bye")
                os._exit(7)
            there.sendall(data.upper())
    there.close()
    for _, end in outs:
        os.close(end)
    scope["supervise"](child, here.detach(), [outs[0][0], outs[1][0]], waker)


with open(os.path.join(folder, "log"), "a") as log:
    log.write(json.dumps(words if words[0] != "run" else words[:-1]) + "\n")
if words[0] == "--version":
    print(says("version"))
elif words[0] == "info":
    if says("down"):
        sys.exit(says("down"))
    print("1.0")
elif words[0] == "image":
    if says("no-image"):
        sys.exit("no such image")
elif words[0] == "ps":
    print(says("left"))
elif words[0] == "run":
    how = says("run")
    if how == "fails":
        sys.exit("the image has no such program")
    if how == "hangs":
        time.sleep(1000)
    if how == "babbles":
        os.write(1, b"hello, I am no supervisor\n")
        time.sleep(1000)
    if how == "supervise":
        supervise(words[-1].split('start("')[0])
    if how == "dies":
        tell(b"c", b"ready")
        sys.exit(137)
    tell(b"1", b"early")
    if how != "canary":
        tell(b"c", b"ready")
    while True:
        head = take(5)
        kind, data = head[:1], take(struct.unpack("<I", head[1:])[0])
        if kind == b"k":
            tell(b"x", b'{"code":null,"signal":9,"cpu_micros":7,"peak_memory_bytes":8}')
            sys.exit(0)
        if kind == b"i":
            tell(b"2", b"at line 1")
        if kind == b"c" and how == "canary":
            tell(b"c", says("answers").encode() + b"\n")
        elif kind == b"c":
            tell(b"c", data.upper())
"#;

struct Fake {
    folder: tempfile::TempDir,
}

impl Fake {
    /// An engine's program of this name.
    fn named(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fake = Self { folder };
        fake.say("version", &format!("{name} version 1.0"));
        let path = fake.path(name);
        // A file that is still open for writing anywhere, in a child of another test too, cannot be run.
        std::process::Command::new("sh")
            .args(["-c", "cat > \"$0\" && chmod 700 \"$0\""])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .and_then(|mut child| {
                child.stdin.take().unwrap().write_all(ENGINE.as_bytes())?;
                child.wait()
            })
            .unwrap();
        fake
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn say(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn asked(&self, first: &str) -> Vec<Vec<String>> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines()
            .map(|line| serde_json::from_str::<Vec<String>>(line).unwrap())
            .filter(|words| words.first().is_some_and(|word| word == first))
            .collect()
    }

    fn config(&self) -> SandboxConfig {
        config(&[self])
    }

    fn containers(&self) -> Containers {
        Containers {
            engine: Engine {
                kind: Kind::Docker,
                program: self.path("docker"),
            },
            owner: "00".to_owned(),
            image: format!("image@{DIGEST}"),
            python: PYTHON.to_owned(),
            profile: PathBuf::from("/profile"),
            boot: String::new(),
            end: CancellationToken::new(),
            tending: TaskTracker::new(),
        }
    }
}

fn config(fakes: &[&Fake]) -> SandboxConfig {
    let own = std::env::var_os("PATH").unwrap_or_default();
    SandboxConfig {
        choice: SandboxChoice::Container,
        python: None,
        // The scripts find their interpreter by their own PATH.
        search_path: std::env::join_paths(fakes.iter().map(|fake| fake.folder.path()))
            .unwrap_or(own),
        limits: LIMITS,
        boot: String::new(),
        warden_program: None,
        container: ContainerConfig {
            engine: EngineChoice::Auto,
            image: Some(format!("image@{DIGEST}")),
        },
        state_folder: fakes.first().map(|fake| fake.folder.path().to_owned()),
    }
}

/// What a confined program would answer.
fn refused() -> serde_json::Value {
    let mut answers = serde_json::json!({"version": "3.12.1", "see a file": 2, "see ptcd": 2});
    for attempt in canary::ATTEMPTS {
        answers[attempt] = 1.into();
    }
    answers
}

async fn refusal_of(config: &SandboxConfig) -> String {
    prove(config).await.unwrap_err()
}

#[tokio::test]
async fn each_cause_has_its_own_refusal_and_remedy() {
    let fake = Fake::named("docker");
    let mut texts = Vec::new();
    let mut config = fake.config();
    config.container.image = None;
    texts.push((refusal_of(&config).await, "execution.container.image"));
    config.container.image = Some("python:3.12".to_owned());
    texts.push((refusal_of(&config).await, "NAME@sha256:DIGEST"));
    let mut config = fake.config();
    config.search_path = "/nowhere".into();
    texts.push((refusal_of(&config).await, "docker or podman is not on PATH"));
    config.container.engine = EngineChoice::Podman;
    texts.push((
        refusal_of(&config).await,
        "container and podman is not on PATH",
    ));
    let mut config = fake.config();
    config.state_folder = None;
    texts.push((refusal_of(&config).await, "no state folder"));
    config.state_folder = Some("/nowhere".into());
    texts.push((refusal_of(&config).await, "make that folder writable"));
    fake.say("down", "is the docker daemon running?");
    let text = refusal_of(&fake.config()).await;
    texts.push((text, "(is the docker daemon running?); start it"));
    fs::remove_file(fake.path("down")).unwrap();
    fake.say("no-image", "1");
    texts.push((
        refusal_of(&fake.config()).await,
        "'docker pull image@sha256:",
    ));
    fs::remove_file(fake.path("no-image")).unwrap();
    fake.say("run", "fails");
    texts.push((
        refusal_of(&fake.config()).await,
        "the image has no such program",
    ));
    fake.say("run", "canary");
    let mut answers = refused();
    answers["start a process"] = serde_json::Value::Null;
    fake.say("answers", &answers.to_string());
    let text = refusal_of(&fake.config()).await;
    texts.push((text, "a confined program could start a process"));
    answers = refused();
    answers["version"] = "3.10.2".into();
    fake.say("answers", &answers.to_string());
    texts.push((refusal_of(&fake.config()).await, "is 3.10.2; name in"));
    for (text, words) in &texts {
        assert!(text.contains(words), "{text}");
        assert!(text.starts_with("cannot "), "{text}");
    }
    let different: std::collections::BTreeSet<&String> =
        texts.iter().map(|(text, _)| text).collect();
    assert_eq!(different.len(), texts.len());
}

#[tokio::test]
async fn an_engine_whose_worker_gets_nowhere_is_taken() {
    let fake = Fake::named("docker");
    fake.say("run", "canary");
    fake.say("answers", &refused().to_string());
    let (ready, containers) = prove(&fake.config()).await.unwrap();
    assert_eq!(ready.confinement, Confinement::Container);
    assert_eq!((ready.version.as_str(), ready.notes.len()), ("3.12.1", 0));
    // The profile is there for the engine, and for nobody else.
    let file = fs::metadata(&containers.profile).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&containers.profile).unwrap();
    let profile: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let run = fake.asked("run").remove(0);
    let seccomp = format!("seccomp={}", containers.profile.display());
    assert!(run.contains(&seccomp), "{run:?}");
    // Another start has the same label.
    let (_, again) = prove(&fake.config()).await.unwrap();
    assert_eq!(containers.owner, again.owner);
    containers.stop().await;
    again.stop().await;
}

#[tokio::test]
async fn a_silent_docker_leaves_it_to_podman() {
    let (docker, podman) = (Fake::named("docker"), Fake::named("podman"));
    docker.say("down", "not running");
    let path = config(&[&docker, &podman]).search_path;
    let engine = find(EngineChoice::Auto, &path).await.unwrap();
    assert_eq!(
        (engine.kind, engine.program),
        (Kind::Podman, podman.path("podman"))
    );
    docker.say("down", "");
    let engine = find(EngineChoice::Auto, &path).await.unwrap();
    assert_eq!(engine.kind, Kind::Docker);
    // Some systems call podman docker.
    docker.say("version", "podman version 4.3.1");
    let engine = find(EngineChoice::Docker, &path).await.unwrap();
    assert_eq!(
        (engine.kind, engine.program),
        (Kind::Podman, docker.path("docker"))
    );
}

fn read(stream: impl Into<fs::File>, length: usize) -> String {
    let mut bytes = vec![0; length];
    stream.into().read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

async fn said(worker: &WorkerProcess, length: usize) -> String {
    let mut channel = worker.channel.try_clone().unwrap();
    tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; length];
        channel.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    })
    .await
    .unwrap()
}

async fn exit(worker: &mut WorkerProcess) -> Exit {
    tokio::time::timeout(Duration::from_secs(40), worker.exited())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_worker_speaks_is_steered_and_ends() {
    let fake = Fake::named("docker");
    let containers = fake.containers();
    let mut worker = containers.spawn(1, LIMITS).unwrap();
    assert_eq!(said(&worker, 5).await, "ready");
    (&worker.channel).write_all(b"frame").unwrap();
    assert_eq!(said(&worker, 5).await, "FRAME");
    assert_eq!(read(worker.stdout.try_clone().unwrap(), 5), "early");
    worker.interrupt();
    let stderr = worker.stderr.try_clone().unwrap();
    let dump = tokio::task::spawn_blocking(move || read(stderr, 9)).await;
    assert_eq!(dump.unwrap(), "at line 1");
    assert!(worker.lives());
    worker.kill();
    let found = exit(&mut worker).await;
    assert_eq!((found.signal, found.peak_memory_bytes), (Some(9), 8));
    assert!(!worker.lives());
    assert_eq!(fake.asked("rm"), Vec::<Vec<String>>::new());
}

#[tokio::test]
async fn the_supervisor_carries_both_ways_and_tells_the_end() {
    let fake = Fake::named("docker");
    fake.say("run", "supervise");
    let containers = fake.containers();
    let mut worker = containers.spawn(1, LIMITS).unwrap();
    assert_eq!(said(&worker, 5).await, "ready");
    assert_eq!(read(worker.stdout.try_clone().unwrap(), 4), "past");
    // More than fits into one record, a pipe or a socket.
    let long = vec![b'a'; 3 << 20];
    let mut channel = worker.channel.try_clone().unwrap();
    let writing = tokio::task::spawn_blocking(move || channel.write_all(&long));
    assert_eq!(said(&worker, 3 << 20).await, "A".repeat(3 << 20));
    writing.await.unwrap().unwrap();
    worker.interrupt();
    let stderr = worker.stderr.try_clone().unwrap();
    let dump = tokio::task::spawn_blocking(move || read(stderr, 4)).await;
    assert_eq!(dump.unwrap(), "here");
    (&worker.channel).write_all(b"exit").unwrap();
    assert_eq!(said(&worker, 3).await, "bye");
    // It was written before, so it is there.
    assert_eq!(read(worker.stdout.try_clone().unwrap(), 4), "late");
    let found = exit(&mut worker).await;
    assert_eq!((found.code, found.signal), (Some(7), None));
    assert!(found.cpu > Duration::ZERO && found.peak_memory_bytes > 0);
    let mut worker = containers.spawn(2, LIMITS).unwrap();
    assert_eq!(said(&worker, 5).await, "ready");
    worker.kill();
    let found = exit(&mut worker).await;
    assert_eq!((found.code, found.signal), (None, Some(9)));
    assert!(found.peak_memory_bytes > 0, "the supervisor told nothing");
    assert_eq!(fake.asked("rm"), Vec::<Vec<String>>::new());
}

#[tokio::test]
async fn a_container_that_hangs_is_removed() {
    for how in ["hangs", "babbles"] {
        let fake = Fake::named("docker");
        fake.say("run", how);
        let containers = fake.containers();
        let mut worker = containers.spawn(1, LIMITS).unwrap();
        if how == "hangs" {
            worker.kill();
        }
        assert_eq!(exit(&mut worker).await.signal, Some(9));
        let removed = fake.asked("rm").remove(0);
        assert_eq!(removed[..2], ["rm", "--force"]);
        let run = fake.asked("run").pop();
        if let Some(run) = run {
            assert!(run.contains(&removed[2]), "{run:?} {removed:?}");
        }
    }
}

#[tokio::test]
async fn an_engine_that_fails_is_quoted_and_one_that_dies_is_an_end() {
    let fake = Fake::named("docker");
    fake.say("run", "fails");
    let containers = fake.containers();
    let mut worker = containers.spawn(1, LIMITS).unwrap();
    assert_eq!(exit(&mut worker).await.code, Some(1));
    let words = "the image has no such program";
    let stderr = worker.stderr.try_clone().unwrap();
    assert_eq!(read(stderr, words.len()), words);
    fake.say("run", "dies");
    let mut worker = containers.spawn(2, LIMITS).unwrap();
    let found = exit(&mut worker).await;
    assert_eq!((found.code, found.signal), (None, Some(9)));
}

#[tokio::test]
async fn only_what_a_dead_daemon_left_is_removed() {
    let fake = Fake::named("docker");
    let containers = fake.containers();
    let own = format!("ptcd-00-{}-7", *PROCESS);
    fake.say("left", &format!("ptcd-00-dead-1\n{own}\nptcd-00-dead-2\n"));
    containers.engine.remove_leftovers("00").await.unwrap();
    assert_eq!(
        fake.asked("rm"),
        [["rm", "--force", "ptcd-00-dead-1", "ptcd-00-dead-2"].map(str::to_owned)]
    );
    assert!(fake.asked("ps")[0].contains(&"label=ptcd=00".to_owned()));
}

#[tokio::test]
async fn stopping_ends_every_worker_and_a_dropped_one_ends_by_itself() {
    let fake = Fake::named("docker");
    let containers = fake.containers();
    let mut kept = containers.spawn(1, LIMITS).unwrap();
    let dropped = containers.spawn(2, LIMITS).unwrap();
    assert_eq!(said(&kept, 5).await, "ready");
    drop(dropped);
    containers.stop().await;
    assert_eq!(exit(&mut kept).await.signal, Some(9));
    assert!(containers.tending.is_empty());
    let again = containers.spawn(3, LIMITS);
    assert!(matches!(again, Err(SandboxError::Stopped)));
}

#[test]
fn an_image_is_fixed_by_its_digest_only() {
    for image in [
        format!("python@{DIGEST}"),
        format!("host.example:5000/some/python:3.12-slim@{DIGEST}"),
        DIGEST.to_owned(),
    ] {
        assert!(is_fixed(&image), "{image}");
    }
    for image in [
        "python",
        "python:3.12",
        "python@sha256:0123",
        "sha256:",
        &format!("--privileged@{DIGEST}"),
        &format!("@{DIGEST}"),
        &format!("a b@{DIGEST}"),
        &format!("python@{}", DIGEST.to_uppercase()),
        &format!("python@{DIGEST}0"),
        &format!("python@md5:{}", &DIGEST[7..]),
    ] {
        assert!(!is_fixed(image), "{image}");
    }
}

#[test]
fn the_text_of_a_worker_fits_into_one_argument() {
    // Linux takes no argument of 128 KiB or more.
    let text = supervised(&crate::pool::runtime::boot_source(), LIMITS);
    assert!(text.len() < 127 * 1024, "{}", text.len());
    assert!(!text.contains('\0'));
}
