//! Guards in threads, with programs in the place of `sandbox-exec`.

use std::io::Read as _;

use super::*;
use crate::config::{ContainerConfig, SandboxChoice};
use crate::sandbox::interpreter;

const LIMITS: Limits = Limits {
    memory_bytes: 256 << 20,
    scratch_bytes: 1 << 20,
    max_threads: 8,
    cpu_seconds: 20,
};
const LONG: Duration = Duration::from_secs(40);

async fn interpreter() -> Interpreter {
    let path = std::env::var_os("PATH").unwrap_or_default();
    interpreter::find(None, &path).await.unwrap()
}

fn config(folder: &Path, boot: &str) -> SandboxConfig {
    SandboxConfig {
        choice: SandboxChoice::Seatbelt,
        python: None,
        search_path: std::ffi::OsString::new(),
        limits: LIMITS,
        boot: boot.to_owned(),
        warden_program: None,
        container: ContainerConfig::default(),
        state_folder: Some(folder.to_owned()),
    }
}

async fn unconfined(boot: &str) -> Guarded {
    let found = interpreter().await;
    plain(&config(Path::new("/"), boot), &found, Guard::Thread, None).1
}

/// Everything a worker says on its channel until it closes it.
async fn said(worker: &WorkerProcess) -> String {
    let mut channel = worker.channel.try_clone().unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        channel.read_to_string(&mut text).map(|_| text)
    });
    tokio::time::timeout(LONG, reading)
        .await
        .unwrap()
        .unwrap()
        .unwrap()
}

async fn read(stream: &OwnedFd, length: usize) -> String {
    let mut file = fs::File::from(stream.try_clone().unwrap());
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; length];
        file.read_exact(&mut bytes).map(|()| bytes)
    });
    let bytes = tokio::time::timeout(LONG, reading).await.unwrap();
    String::from_utf8(bytes.unwrap().unwrap()).unwrap()
}

async fn exit(worker: &mut WorkerProcess) -> Exit {
    tokio::time::timeout(LONG, worker.exited()).await.unwrap()
}

fn program(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("sandbox-exec");
    // A file that is still open for writing anywhere, in a child of another test too, cannot be run.
    let mut child = std::process::Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
    path
}

#[tokio::test]
async fn a_worker_finds_what_every_worker_finds() {
    let boot = "import os, resource as r\n\
        def kind(fd):\n    import stat\n    return stat.S_IFMT(os.fstat(fd).st_mode)\n\
        where = os.getcwd()\nopen('file', 'w').close()\nos.environ.pop('LC_CTYPE', None)\n\
        limits = [r.getrlimit(n)[1] for n in (r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE, r.RLIMIT_CORE)]\n\
        mode = os.stat('.').st_mode & 0o777\n\
        links = [os.readlink('/proc/self/fd/%d' % fd) for fd in range(4, 64) if os.path.exists('/proc/self/fd/%d' % fd)]\n\
        extra = [link for link in links if link.startswith('socket')]\n\
        left = sorted(set(os.environ) - {'PWD', 'SHLVL', '_', 'OLDPWD'})\n\
        text = repr((where, left, limits, mode, extra, os.read(0, 1), os.stat('file').st_mode & 0o777))\n\
        os.write(3, text.encode())\nos.write(1, b'one')\nos.write(2, b'two')\nos._exit(7)";
    let guarded = unconfined(boot).await;
    let mut worker = guarded.spawn(1, LIMITS).unwrap();
    let text = said(&worker).await;
    let folder = text.trim_start_matches("('").split('\'').next().unwrap();
    assert!(folder.starts_with("/tmp/ptcd-"), "{text}");
    assert_eq!(
        text,
        format!("('{folder}', [], [20, 1048576, 128, 0], 448, [], b'', 384)")
    );
    assert_eq!(read(&worker.stderr, 6).await, "onetwo");
    let found = exit(&mut worker).await;
    assert_eq!((found.code, found.signal), (Some(7), None));
    assert!(found.cpu > Duration::ZERO && found.peak_memory_bytes > 1 << 20);
    assert!(!Path::new(folder).exists());
}

#[tokio::test]
async fn a_worker_is_interrupted_and_killed() {
    let boot = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
        signal.signal(signal.SIGUSR1, lambda *_: os.write(2, b'here'))\nos.write(1, b'up')\nwhile True: pass";
    let guarded = unconfined(boot).await;
    let mut worker = guarded.spawn(1, LIMITS).unwrap();
    assert_eq!(read(&worker.stderr, 2).await, "up");
    worker.interrupt();
    assert_eq!(read(&worker.stderr, 4).await, "here");
    assert!(worker.lives());
    worker.kill();
    assert_eq!(exit(&mut worker).await.signal, Some(9));
    assert!(!worker.lives());
    // At once, before it can have been started, is as good.
    let mut worker = guarded.spawn(2, LIMITS).unwrap();
    worker.kill();
    assert_eq!(exit(&mut worker).await.signal, Some(9));
}

#[tokio::test]
async fn what_a_worker_leaves_is_removed_and_too_much_ends_it() {
    let boot = "import os, time\nos.makedirs('a/b')\nopen('a/b/c', 'w').close()\nos.symlink('/etc', 'link')\n\
        os.write(3, os.getcwd().encode())\nos.chmod('a/b', 0)\nos.chmod('a', 0)\n\
        os.close(3)\n\
        [open(str(n), 'wb').write(bytes(400000)) for n in range(4)]\nwhile True: time.sleep(1)";
    let guarded = unconfined(boot).await;
    let mut worker = guarded.spawn(1, LIMITS).unwrap();
    let folder = said(&worker).await;
    let found = exit(&mut worker).await;
    assert_eq!((found.signal, found.scratch_exceeded), (Some(9), true));
    assert!(!Path::new(&folder).exists());
    assert!(Path::new("/etc").exists());
}

/// On Linux a guard in a thread sees its socket close as one whose daemon was killed.
#[tokio::test]
async fn without_the_daemon_the_worker_and_what_it_started_end() {
    let boot = "import os, time\nif os.fork() == 0:\n    while True: time.sleep(1)\n\
        os.write(1, b'up')\nwhile True: time.sleep(1)";
    let guarded = unconfined(boot).await;
    let plan = guarded.plan(LIMITS).unwrap();
    let scratch = plan.scratch.clone();
    let (mut control, far) = UnixStream::pair().unwrap();
    let (channel, far_channel) = UnixStream::pair().unwrap();
    let (stderr, output) = pipe().unwrap();
    let serving = std::thread::spawn(move || {
        let parent = rustix::process::getppid();
        crate::sandbox::guard::serve(&far, far_channel.into(), output, parent)
    });
    control.write_all(plan.to_line().as_bytes()).unwrap();
    assert_eq!(read(&stderr, 2).await, "up");
    assert!(scratch.exists());
    drop(control);
    // The end of both processes is the end of their streams.
    let mut rest = String::new();
    let mut channel = channel;
    channel.set_read_timeout(Some(LONG)).unwrap();
    channel.read_to_string(&mut rest).unwrap();
    // There is nobody to tell.
    drop(serving.join().unwrap());
    assert!(!scratch.exists());
}

#[tokio::test]
async fn a_program_that_does_not_confine_is_refused_and_was_called_as_it_should() {
    let folder = tempfile::tempdir().unwrap();
    let found = interpreter().await;
    // Takes its own flags away and runs the rest.
    let program = program(
        folder.path(),
        "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done > \"${0%/*}/words\"\nshift 2\n\
         while [ \"$1\" = -D ]; do shift 2; done\nexec \"$@\"\n",
    );
    let config = config(folder.path(), "BOOT");
    let refused = prove_seatbelt(&config, &found, Guard::Thread, None, &program).await;
    let text = refused.unwrap_err();
    assert!(
        // Its interpreter became another one in the last attempt.
        text.contains("the test of the confinement failed: the test program gave no answer"),
        "{text}"
    );
    let words = fs::read_to_string(folder.path().join("words")).unwrap();
    let words: Vec<&str> = words.split('\0').collect();
    let profile = folder.path().canonicalize().unwrap().join("python.sb");
    assert_eq!(words[..3], ["-f", profile.to_str().unwrap(), "-D"]);
    assert_eq!(words[3], format!("PYTHON={}", found.python.display()));
    let scratch = words.iter().find_map(|word| word.strip_prefix("SCRATCH="));
    assert!(scratch.unwrap().starts_with("/tmp/ptcd-"));
    let text = fs::read_to_string(profile).unwrap();
    assert!(text.contains("(version 1)\n(deny default)"), "{text}");
    // Each parameter of the file is among the words.
    for name in text.split("(param \"").skip(1) {
        let start = format!("{}=", name.split('"').next().unwrap());
        assert!(words.iter().any(|word| word.starts_with(&start)), "{start}");
    }
}

#[tokio::test]
async fn a_profile_that_does_not_compile_is_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let found = interpreter().await;
    let program = program(
        folder.path(),
        "#!/bin/sh\necho 'sandbox-exec: unbound variable: file-link' >&2\nexit 65\n",
    );
    let config = config(folder.path(), "BOOT");
    let refused = prove_seatbelt(&config, &found, Guard::Thread, None, &program).await;
    let text = refused.unwrap_err();
    assert!(text.contains("unbound variable: file-link"), "{text}");
    let none = folder.path().join("none");
    let refused = prove_seatbelt(&config, &found, Guard::Thread, None, &none).await;
    assert!(refused.unwrap_err().contains("there is no "));
}

#[tokio::test]
async fn a_program_whose_worker_gets_nowhere_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let found = interpreter().await;
    // Answers in the test program's place; with another text it says that.
    let answers: Vec<String> = canary::ATTEMPTS
        .iter()
        .map(|name| format!("\"{name}\": 1"))
        .collect();
    let program = program(
        folder.path(),
        &format!(
            "#!/bin/sh\nfor last; do :; done\nif [ \"$last\" = BOOT ]; then echo booted >&3; exit 0; fi\n\
             read task <&3\necho '{{{}}}' >&3\nread more <&3\n",
            answers.join(", ")
        ),
    );
    let config = config(folder.path(), "BOOT");
    let (ready, guarded) = prove_seatbelt(&config, &found, Guard::Thread, None, &program)
        .await
        .unwrap();
    assert_eq!(ready.confinement, Confinement::Seatbelt);
    let mut worker = guarded.spawn(1, LIMITS).unwrap();
    assert_eq!(said(&worker).await, "booted\n");
    assert_eq!(exit(&mut worker).await.code, Some(0));
    guarded.stop().await;
    let again = guarded.spawn(2, LIMITS);
    assert!(matches!(again, Err(SandboxError::Stopped)));
}
