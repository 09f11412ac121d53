//! The tier container with a real engine: run by `tests/real/container`, which names an image.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use ptcd::config::SandboxChoice;

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::{
    CONTAINER_FOLDER, IMAGE, RUNTIME, ask as program, config, end, eventually, fresh, image,
    run_in, spawn,
};
use crate::life::{LATER, MODE, stubborn};

/// Attempts that succeed here, as docs/security.md says: a container has a /proc, a /sys and the usual devices, and
/// what else the image holds.
pub(crate) const SHOWN: &[&str] = &[
    "own_memory_map_is_not_read",
    "devices_are_not_opened",
    "sys_is_not_read",
    "the_root_is_not_listed",
    "what_is_installed_beside_the_library_is_not_read",
    "the_kernel_tells_nothing_of_itself",
    "no_device_but_one_is_opened",
    "groups_of_control_are_not_listed",
    "the_one_device_keeps_its_times_and_mode",
];

/// Those that succeed in a container of docker alone: it puts a file with the name `localhost` there.
pub(crate) const SHOWN_BY_DOCKER: &[&str] = &["names_are_not_resolved"];

/// A watchdog may take this long.
const WATCHDOG: Duration = Duration::from_secs(5);

/// The engine that the tier takes where none is named: the first that answers.
pub(crate) fn engine() -> &'static str {
    static ENGINE: LazyLock<&str> = LazyLock::new(|| {
        let answers = |name: &&str| {
            Command::new(name)
                .arg("info")
                .output()
                .is_ok_and(|output| output.status.success())
        };
        ["docker", "podman"].into_iter().find(answers).unwrap()
    });
    *ENGINE
}

fn ask(words: &[&str]) -> String {
    let output = Command::new(engine()).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Names of the containers, running or not, with this owner's label.
fn containers(owner: &str) -> Vec<String> {
    let label = format!("label=ptcd={owner}");
    let names = ask(&["ps", "--all", "--filter", &label, "--format", "{{.Names}}"]);
    names.split_whitespace().map(str::to_owned).collect()
}

/// Starts a container whose program wants no end, tells its owner, and waits to be killed.
pub(crate) fn hold() {
    let sandbox = fresh(SandboxChoice::Container);
    let worker = stubborn(&sandbox);
    let owner = std::fs::read_to_string(CONTAINER_FOLDER.path().join("container.owner")).unwrap();
    let line = format!("{owner} {}\n", CONTAINER_FOLDER.path().display());
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_mins(1));
    drop(worker);
}

/// A daemon that is killed can tell nobody; the container ends all the same, whatever its program does.
fn the_daemon_is_killed() -> Result<(), Failed> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(MODE, "contain")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let (owner, folder) = line.trim().split_once(' ').ok_or("no owner")?;
    assert_eq!(containers(owner).len(), 1);
    child.kill()?;
    child.wait()?;
    eventually(WATCHDOG, "the container is gone", || {
        containers(owner).is_empty()
    });
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

fn an_ended_worker_leaves_no_container() -> Result<(), Failed> {
    let mut config = config(SandboxChoice::Container);
    let folder = tempfile::tempdir()?;
    config.state_folder = Some(folder.path().to_owned());
    let sandbox = RUNTIME.block_on(ptcd::sandbox::Sandbox::start(config));
    let owner = std::fs::read_to_string(folder.path().join("container.owner"))?;
    let worker = stubborn(&sandbox);
    assert_eq!(containers(&owner).len(), 1);
    let exit = end(worker, Some(true.into())).exit;
    assert_eq!(exit.signal, Some(libc::SIGKILL));
    assert!(exit.cpu > Duration::ZERO);
    drop(spawn(&sandbox));
    eventually(WATCHDOG, "the containers are gone", || {
        containers(&owner).is_empty()
    });
    Ok(())
}

fn leftovers_are_removed() -> Result<(), Failed> {
    let mut config = config(SandboxChoice::Container);
    let folder = tempfile::tempdir()?;
    config.state_folder = Some(folder.path().to_owned());
    let owner = "00112233aabbccdd";
    std::fs::write(folder.path().join("container.owner"), owner)?;
    let label = format!("ptcd={owner}");
    let image = image().ok_or("no image")?;
    let name = format!("ptcd-{owner}-dead-{}", std::process::id());
    ask(&["create", "--name", &name, "--label", &label, &image, "x"]);
    assert_eq!(containers(owner), [name]);
    let sandbox = RUNTIME.block_on(ptcd::sandbox::Sandbox::start(config));
    assert_eq!(sandbox.state().unwrap().notes, Vec::<String>::new());
    eventually(WATCHDOG, "the containers are gone", || {
        containers(owner).is_empty()
    });
    Ok(())
}

/// As in the other tiers: a program that stands still is ended, and its container with it.
fn a_stopped_worker_is_killed() -> Result<(), Failed> {
    let mut config = config(SandboxChoice::Container);
    let folder = tempfile::tempdir()?;
    config.state_folder = Some(folder.path().to_owned());
    let sandbox = RUNTIME.block_on(ptcd::sandbox::Sandbox::start(config));
    let owner = std::fs::read_to_string(folder.path().join("container.owner"))?;
    let worker = spawn(&sandbox);
    let answer = program(&worker, "result = 1");
    let [name] = &containers(&owner)[..] else {
        return Err("not one container".into());
    };
    let supervisor = ask(&["inspect", "--format", "{{.State.Pid}}", name]);
    let supervisor = supervisor.trim();
    let children =
        std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"))?;
    let pid: i32 = children.trim().parse()?;
    kill_process(Pid::from_raw(pid).ok_or("no pid")?, Signal::STOP)?;
    eventually(LATER, "it is stopped", || {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "))
    });
    let outcome = end(worker, answer);
    assert_eq!(outcome.exit.signal, Some(libc::SIGKILL));
    eventually(WATCHDOG, "the container is gone", || {
        containers(&owner).is_empty()
    });
    Ok(())
}

/// The program's process is not the one that watches over it, and has no hold on that one.
fn the_watchdog_is_out_of_reach() -> Result<(), Failed> {
    let sandbox = fresh(SandboxChoice::Container);
    let program = "def code(action, *words):\n    try: action(*words)\n    except OSError as error: return error.errno\n    \
        return 0\nread = lambda path: open(path, 'rb').read(1)\n\
        result = [os.getppid(), code(os.kill, 1, 9), code(read, '/proc/1/mem'), code(read, '/proc/1/environ'), \
        code(os.listdir, '/proc/1/fd'), code(read, '/proc/self/environ')]";
    let outcome = run_in(&sandbox, program);
    assert_eq!(
        outcome.answer()["ok"],
        serde_json::json!([1, 1, 13, 13, 13, 13])
    );
    Ok(())
}

pub(crate) fn all() -> Vec<Trial> {
    let make = |name: &str, run: fn() -> Result<(), Failed>| {
        let trial = Trial::test(format!("container::{name}"), run);
        if image().is_some() {
            trial
        } else {
            let reason = format!("{IMAGE} names no image");
            trial.with_kind(reason).with_ignored_flag(true)
        }
    };
    vec![
        make("workers_die_with_the_daemon", the_daemon_is_killed),
        make(
            "an_ended_worker_leaves_no_container",
            an_ended_worker_leaves_no_container,
        ),
        make("a_stopped_worker_is_killed", a_stopped_worker_is_killed),
        make("leftovers_are_removed", leftovers_are_removed),
        make("the_watchdog_is_out_of_reach", the_watchdog_is_out_of_reach),
    ]
}
