//! No worker outlives its warden or its daemon, and nothing runs where confinement cannot be had.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;
use ptcd::sandbox::{Sandbox, SandboxConfig, SandboxError, WorkerProcess};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::lab::{RUNTIME, ask, config, end, eventually, fresh, image, run_in, spawn, tiers};

/// Within this time processes are gone, and nobody waits longer. It takes milliseconds, but a busy machine is slow to let
/// the killed end.
pub(crate) const GONE: Duration = Duration::from_secs(10);
/// Within this time folders are removed, however many tests remove theirs.
pub(crate) const LATER: Duration = Duration::from_mins(1);

/// A worker that spins and wants no signal, started and busy.
pub(crate) fn stubborn(sandbox: &Sandbox) -> WorkerProcess {
    let worker = spawn(sandbox);
    let mut channel = worker.channel.try_clone().unwrap();
    let program = "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    \
        except (OSError, ValueError): pass\nos.write(3, b'busy\\n')\nwhile True: pass";
    let mut message = u32::try_from(program.len()).unwrap().to_le_bytes().to_vec();
    message.extend_from_slice(program.as_bytes());
    std::io::Write::write_all(&mut channel, &message).unwrap();
    let mut text = [0; 11];
    channel
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    std::io::Read::read_exact(&mut channel, &mut text).unwrap();
    assert_eq!(&text, b"ready\nbusy\n");
    worker
}

pub(crate) fn lives(pid: i32) -> bool {
    // A zombie counts as gone: it runs nothing.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn the_warden_is_killed() -> Result<(), Failed> {
    for choice in [SandboxChoice::None].iter().chain(tiers()) {
        let sandbox = fresh(*choice);
        let mut workers: Vec<WorkerProcess> = (0..3).map(|_| stubborn(&sandbox)).collect();
        kill(sandbox.warden_pid().unwrap());
        for worker in &workers {
            let pid = worker.pid();
            eventually(GONE, "the worker is gone", || !lives(pid));
        }
        for worker in &mut workers {
            let exit =
                RUNTIME.block_on(async { tokio::time::timeout(GONE, worker.exited()).await })?;
            assert_eq!(exit.signal, Some(libc::SIGKILL));
        }
        // The next one comes from a new warden.
        let outcome = run_in(&sandbox, "result = 1");
        assert_eq!(outcome.answer()["ok"], 1);
    }
    Ok(())
}

fn the_sandbox_is_stopped() -> Result<(), Failed> {
    for tier in tiers() {
        let sandbox = fresh(*tier);
        let worker = stubborn(&sandbox);
        RUNTIME.block_on(sandbox.stop());
        let pid = worker.pid();
        eventually(GONE, "the worker is gone", || !lives(pid));
        let again = RUNTIME.block_on(sandbox.spawn());
        assert!(matches!(again, Err(SandboxError::Stopped)), "{again:?}");
    }
    Ok(())
}

/// This program, started again as one that holds a worker, is killed like a daemon.
fn the_daemon_is_killed() -> Result<(), Failed> {
    the_holder_is_killed(false)
}

/// The same where the wardens have been stopped and can do nothing themselves.
fn the_daemon_is_killed_while_its_wardens_sleep() -> Result<(), Failed> {
    the_holder_is_killed(true)
}

fn the_holder_is_killed(stopped: bool) -> Result<(), Failed> {
    let (mut child, line) = played("hold")?;
    let pids: Vec<i32> = line
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    assert!(
        pids.len() == 2 * tiers().len() && pids.iter().all(|pid| lives(*pid)),
        "{line}"
    );
    if stopped {
        for pair in pids.chunks(2) {
            // Who waits outside, where there is one, and the worker's own parent.
            for warden in [pair[0], parent_of(pair[1])?] {
                let pid = rustix::process::Pid::from_raw(warden).ok_or("no process")?;
                rustix::process::kill_process(pid, rustix::process::Signal::STOP)?;
            }
        }
    }
    child.kill()?;
    child.wait()?;
    for pid in pids {
        eventually(GONE, "warden and worker are gone", || !lives(pid));
    }
    Ok(())
}

/// This program, started again to play `mode`, and the first line it prints.
fn played(mode: &str) -> Result<(Child, String), Failed> {
    let mut child = std::process::Command::new(std::env::current_exe()?)
        .env(MODE, mode)
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut output = std::io::BufReader::new(child.stdout.take().ok_or("no output")?);
    let (sender, line) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = std::io::BufRead::read_line(&mut output, &mut text);
        // Nobody waits for it after the deadline.
        let _ = sender.send(read.map(|_| text));
    });
    if let Ok(line) = line.recv_timeout(LATER) {
        return Ok((child, line?));
    }
    child.kill()?;
    child.wait()?;
    Err(format!("what plays {mode} said nothing within {LATER:?}").into())
}

fn parent_of(pid: i32) -> Result<i32, Failed> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').ok_or("no name")?;
    let parent = rest.split_whitespace().nth(1).ok_or("no parent")?;
    Ok(parent.parse()?)
}

/// The variable that makes this program play a daemon.
pub(crate) const MODE: &str = "PTC_SECURITY_MODE";

/// Starts a warden and a worker, tells their numbers, and waits to be killed.
pub(crate) fn hold() {
    let mut held = Vec::new();
    let mut line = String::new();
    for tier in tiers() {
        let sandbox = fresh(*tier);
        let worker = stubborn(&sandbox);
        let pids = format!("{} {} ", sandbox.warden_pid().unwrap(), worker.pid());
        line.push_str(&pids);
        held.push((sandbox, worker));
    }
    line.push('\n');
    std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_mins(1));
}

/// A daemon that has hidden itself is its own warden's program, and can start another.
pub(crate) fn hidden() {
    let sandboxes: Vec<Sandbox> = tiers()
        .iter()
        .map(|tier| {
            let mut config = config(*tier);
            config.warden_program = None;
            let sandbox = RUNTIME.block_on(Sandbox::start(config));
            sandbox.state().unwrap();
            sandbox
        })
        .collect();
    ptcd::sandbox::hide_process().unwrap();
    for sandbox in &sandboxes {
        let worker = spawn(sandbox);
        kill(sandbox.warden_pid().unwrap());
        eventually(GONE, "the worker is gone", || !lives(worker.pid()));
        let outcome = run_in(sandbox, "result = 1");
        assert_eq!(outcome.answer()["ok"], 1);
    }
    crate::lab::clear();
    std::io::Write::write_all(&mut std::io::stdout(), b"hidden\n").unwrap();
    std::thread::sleep(Duration::from_mins(1));
}

fn a_hidden_daemon() -> Result<(), Failed> {
    let (mut child, line) = played("hidden")?;
    let environment = std::fs::read(format!("/proc/{}/environ", child.id()));
    child.kill()?;
    child.wait()?;
    assert_eq!(line, "hidden\n");
    // root may look into every process.
    if !rustix::process::geteuid().is_root() {
        let error = environment.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    }
    Ok(())
}

fn a_killed_worker_is_told() -> Result<(), Failed> {
    for tier in tiers() {
        let sandbox = fresh(*tier);
        let worker = stubborn(&sandbox);
        worker.kill();
        let outcome = end(worker, None);
        assert_eq!(outcome.exit.signal, Some(libc::SIGKILL));
    }
    Ok(())
}

fn a_dropped_worker_is_killed() -> Result<(), Failed> {
    for tier in tiers() {
        let sandbox = fresh(*tier);
        let worker = stubborn(&sandbox);
        let pid = worker.pid();
        drop(worker);
        eventually(GONE, "the worker is gone", || !lives(pid));
    }
    Ok(())
}

fn an_interrupt_reaches_a_worker() -> Result<(), Failed> {
    tiers().iter().try_for_each(|tier| interrupted(*tier))
}

fn interrupted(tier: SandboxChoice) -> Result<(), Failed> {
    let sandbox = fresh(tier);
    let worker = spawn(&sandbox);
    let answer = ask(
        &worker,
        "import faulthandler, signal, time\nfaulthandler.register(signal.SIGUSR1, file=2)\nresult = 1",
    );
    assert!(answer.is_some());
    worker.interrupt();
    eventually(LATER, "the interpreter says where it is", || {
        let mut event = [PollFd::new(&worker.stderr, PollFlags::IN)];
        matches!(poll(&mut event, Some(&Timespec::default())), Ok(1..))
    });
    let mut text = vec![0; 64];
    let read = rustix::io::read(&worker.stderr, &mut text)?;
    assert!(text[..read].starts_with(b"Current thread"), "{text:?}");
    end(worker, answer);
    Ok(())
}

/// A tier that cannot be had is a refusal with a remedy, and nothing weaker runs.
fn refused(choice: SandboxChoice, change: impl Fn(&mut SandboxConfig)) -> String {
    let mut config = config(choice);
    change(&mut config);
    let sandbox = RUNTIME.block_on(Sandbox::start(config));
    let refusal = sandbox.state().unwrap_err();
    let spawned = RUNTIME.block_on(sandbox.spawn());
    assert!(
        matches!(spawned, Err(SandboxError::Refused { message }) if message == refusal.message)
    );
    refusal.message
}

fn tiers_that_are_not_here() -> Result<(), Failed> {
    let text = refused(SandboxChoice::Seatbelt, |_| {});
    assert!(text.contains("write 'sandbox: auto'"), "{text}");
    let text = refused(SandboxChoice::Container, |config| {
        config.container.image = None;
    });
    assert!(text.contains("write 'execution.container.image"), "{text}");
    Ok(())
}

fn a_missing_interpreter() -> Result<(), Failed> {
    let text = refused(SandboxChoice::Auto, |config| {
        config.python = Some("/nowhere/python3".into());
    });
    assert!(text.contains("/nowhere/python3"), "{text}");
    let text = refused(SandboxChoice::Auto, |config| {
        config.search_path = "/nowhere".into();
    });
    assert!(
        text.contains("no CPython 3.11 or later was found"),
        "{text}"
    );
    Ok(())
}

fn a_warden_that_is_none() -> Result<(), Failed> {
    for program in ["/nowhere/ptcd", "/bin/true"] {
        let text = refused(SandboxChoice::Auto, |config| {
            config.warden_program = Some(PathBuf::from(program));
        });
        assert!(text.contains("the warden"), "{text}");
    }
    Ok(())
}

/// As root, a Python below a closed folder is passed over, and refused when it was named.
fn a_python_out_of_reach() -> Result<(), Failed> {
    let home = tempfile::Builder::new()
        .prefix("ptc-home-")
        .tempdir_in("/tmp")?;
    std::fs::set_permissions(
        home.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )?;
    let python = home.path().join("python3.99");
    std::os::unix::fs::symlink("/usr/bin/python3", &python)?;
    let text = refused(SandboxChoice::Auto, |config| {
        config.python = Some(python.clone());
    });
    assert!(text.contains("cannot reach"), "{text}");
    let mut config = config(SandboxChoice::Auto);
    config.search_path = std::env::join_paths([home.path(), Path::new("/usr/bin")])?;
    let sandbox = RUNTIME.block_on(Sandbox::start(config));
    let ready = sandbox.state().unwrap();
    assert!(ready.python.starts_with("/usr/bin"), "{ready:?}");
    Ok(())
}

/// Folders of wardens that were killed go when the next one starts.
fn leftovers_are_swept() -> Result<(), Failed> {
    let sandbox = fresh(SandboxChoice::Landlock);
    let worker = spawn(&sandbox);
    let place = ask(&worker, "result = os.getcwd()").ok_or("no answer")?;
    let folder = PathBuf::from(place["ok"].as_str().ok_or("no path")?);
    let base = folder.parent().ok_or("no parent")?.to_owned();
    kill(sandbox.warden_pid().unwrap());
    let pid = worker.pid();
    eventually(GONE, "the worker is gone", || !lives(pid));
    // Another test's warden may have swept it already.
    swept(&base)
}

/// Starts wardens until one has swept what a dead one left. Each sweeps for a minute, and other tests leave a lot.
pub(crate) fn swept(base: &Path) -> Result<(), Failed> {
    for _ in 0..5 {
        let _next = fresh(SandboxChoice::Landlock);
        let start = std::time::Instant::now();
        while start.elapsed() < LATER {
            if !base.exists() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Err(format!("{} is still there", base.display()).into())
}

/// The layers show from outside.
fn layers_show() -> Result<(), Failed> {
    tiers().iter().try_for_each(|tier| layers_show_in(*tier))
}

fn layers_show_in(tier: SandboxChoice) -> Result<(), Failed> {
    let sandbox = fresh(tier);
    let worker = spawn(&sandbox);
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid()))?;
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
        assert!(status.contains(line), "{status}");
    }
    if tier == SandboxChoice::Full {
        assert!(status.contains("CapBnd:\t0000000000000000"), "{status}");
        for space in ["user", "pid", "mnt", "net", "ipc", "uts"] {
            let of = |whose: &str| std::fs::read_link(format!("/proc/{whose}/ns/{space}"));
            assert_ne!(of(&worker.pid().to_string())?, of("self")?, "{space}");
        }
        let another = spawn(&sandbox);
        for space in ["user", "pid", "mnt", "ipc"] {
            let of = |worker: &WorkerProcess| {
                std::fs::read_link(format!("/proc/{}/ns/{space}", worker.pid()))
            };
            assert_ne!(of(&worker)?, of(&another)?, "{space}");
        }
    }
    let environment = std::fs::read(format!("/proc/{}/environ", worker.pid()))?;
    assert_eq!(environment, b"");
    let warden = sandbox.warden_pid().unwrap();
    assert_eq!(std::fs::read(format!("/proc/{warden}/environ"))?, b"");
    assert_eq!(
        std::fs::read_link(format!("/proc/{warden}/cwd"))?,
        Path::new("/")
    );
    assert_eq!(
        std::fs::read_dir(format!("/proc/{warden}/task"))?.count(),
        1
    );
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    let as_root = rustix::process::geteuid().is_root();
    let out_of_reach = Trial::test(
        "life::a_python_out_of_reach_is_not_taken",
        a_python_out_of_reach,
    );
    // The parent of a contained worker is its engine.
    let of_wardens = |name: &str, run: fn() -> Result<(), Failed>| {
        let trial = Trial::test(name, run);
        if image().is_some() {
            trial.with_kind("no warden").with_ignored_flag(true)
        } else {
            trial
        }
    };
    vec![
        of_wardens("life::workers_die_with_the_warden", the_warden_is_killed),
        Trial::test(
            "life::workers_die_when_the_sandbox_stops",
            the_sandbox_is_stopped,
        ),
        of_wardens("life::workers_die_with_the_daemon", the_daemon_is_killed),
        of_wardens(
            "life::workers_die_with_the_daemon_while_wardens_are_stopped",
            the_daemon_is_killed_while_its_wardens_sleep,
        ),
        of_wardens(
            "life::a_hidden_daemon_starts_its_warden_again",
            a_hidden_daemon,
        ),
        Trial::test("life::a_killed_worker_is_told", a_killed_worker_is_told),
        Trial::test(
            "life::a_dropped_worker_is_killed",
            a_dropped_worker_is_killed,
        ),
        Trial::test(
            "life::an_interrupt_reaches_a_worker",
            an_interrupt_reaches_a_worker,
        ),
        Trial::test(
            "life::a_tier_that_is_not_here_is_refused",
            tiers_that_are_not_here,
        ),
        Trial::test(
            "life::a_missing_interpreter_is_refused",
            a_missing_interpreter,
        ),
        Trial::test(
            "life::a_warden_that_is_none_is_refused",
            a_warden_that_is_none,
        ),
        Trial::test(
            "life::leftovers_of_dead_wardens_are_swept",
            leftovers_are_swept,
        ),
        of_wardens("life::the_layers_show_from_outside", layers_show),
        if as_root {
            out_of_reach
        } else {
            out_of_reach.with_kind("needs root").with_ignored_flag(true)
        },
    ]
}
