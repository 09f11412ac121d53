//! A full disk, a folder that cannot be written, a log that takes nothing.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::suite::skip;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        on_a_full_disk_programs_are_refused_and_the_daemon_lives,
        a_state_folder_that_cannot_be_written_is_said_to_the_client,
        a_log_that_takes_nothing_costs_no_run,
        a_log_that_has_grown_large_is_put_aside,
    ]
}

/// What gives a program mounts of its own.
const APART: [&str; 4] = ["unshare", "--mount", "--propagation", "private"];

/// Ends the test as ignored where nothing can be mounted.
fn needs_mounts() -> anyhow::Result<()> {
    let mut command = Command::new(APART[0]);
    command.args(&APART[1..]);
    let script = "mount -t tmpfs -o size=64k none /mnt 2>&1";
    let tried = command
        .args(["/bin/sh", "-c", script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if tried.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    skip("only root, with the right to mount, can have a small disk of its own")
}

/// The folder of all state of this home, made.
fn state_root(home: &Home) -> anyhow::Result<PathBuf> {
    let state = home.state();
    let root = state.parent().unwrap_or(Path::new("/nowhere")).to_owned();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&root)?;
    Ok(root)
}

/// Runs a shell line among the daemon's mounts; whether it ended well.
fn among_its_mounts(daemon: &Daemon, line: &str) -> anyhow::Result<bool> {
    let status = Command::new("nsenter")
        .args(["--mount", "--target", &daemon.pid().to_string()])
        .args(["/bin/sh", "-c", line])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(status.success())
}

fn on_a_full_disk_programs_are_refused_and_the_daemon_lives() -> TestResult {
    needs_mounts()?;
    let home = Home::new(&Plan::new().server("m", &[]));
    let root = state_root(&home)?.display().to_string();
    let mount = format!("mount -t tmpfs -o size=2m,mode=700 none '{root}'");
    let mut daemon = Daemon::under_shell(&home, &APART, &mount);
    daemon.wait_until_it_answers();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let run = client.start_run(
        "print('begun', flush=True)\nawait mcp__m__sleep(ms=3000)\nmade = 1\n\
         while made < 90:\n    await mcp__m__echo(text='x' * 500)\n    made += 1",
    );
    ptc_tests::wait::until("its call is out", PATIENCE, || {
        daemon.server("m").calls == 1
    });
    let fill = format!("cat /dev/zero > '{root}/fill'");
    assert!(
        !among_its_mounts(&daemon, &fill)?,
        "the disk takes everything"
    );
    // No log line, no call: once the last block of the log is full, the program that runs is told.
    let run = client.finish_run(&run);
    assert!(run.is_error && run.text.contains("begun"), "{}", run.text);
    assert!(run.text.contains("No space left"), "{}", run.text);
    let calls = daemon.server("m").calls;
    assert!(calls < 90, "{calls} calls with no room for their log lines");
    let refused = client.call("execute_program", &json!({"code": "print('never')"}));
    assert!(refused.is_error, "{}", refused.text);
    assert!(
        refused.text.contains("journal") && refused.text.contains("No space left"),
        "{}",
        refused.text
    );
    assert!(!refused.text.contains("never\n"), "{}", refused.text);
    // What needs no log line works, and what is only kept for comfort fails quietly.
    let listed = client.call("list_callable_tools", &json!({}));
    assert!(!listed.is_error && listed.text.contains("mcp__m__echo"));
    let (code, _, said) = home.ctl(&["reload"]);
    assert_eq!(code, 0, "{said}");
    let (code, shown, _) = home.ctl(&["status", "--check"]);
    assert_eq!(code, 11, "{shown}");
    assert!(
        shown.contains("refused: cannot write to the journal") && shown.contains("next: make room"),
        "{shown}"
    );
    assert_eq!(writable(&daemon)?, "0");
    let (code, checks, _) = home.ctl(&["doctor"]);
    assert_eq!(code, 1, "{checks}");
    assert!(
        checks.contains("failed  state folder") && checks.contains("No space left"),
        "{checks}"
    );
    assert!(among_its_mounts(&daemon, &format!("rm '{root}/fill'"))?);
    // Nobody has to run a program for it to be seen.
    assert_eq!(writable(&daemon)?, "1");
    let (code, shown, _) = home.ctl(&["status", "--check"]);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(client.run("print('and on')").printed(), "and on");
    daemon.stop();
    Ok(())
}

/// What the metrics say of the journal.
fn writable(daemon: &Daemon) -> anyhow::Result<String> {
    let answer = ptc_tests::http::ask(daemon.socket(), "GET", ptc_protocol::route::METRICS)?;
    let value = answer
        .body
        .lines()
        .find_map(|line| line.strip_prefix("ptcd_journal_writable "));
    Ok(value.unwrap_or_default().trim().to_owned())
}

fn a_state_folder_that_cannot_be_written_is_said_to_the_client() -> TestResult {
    let home = Home::new(&Plan::new());
    let root = state_root(&home)?.display().to_string();
    let mut command = if rustix::process::geteuid().is_root() {
        needs_mounts()?;
        let mount = format!("mount --bind '{root}' '{root}'\nmount -o remount,ro,bind '{root}'");
        home.under_shell("ptc-mcp", &APART, &mount)
    } else {
        home.under_shell("ptc-mcp", &[], &format!("chmod 500 '{root}'"))
    };
    command.arg("--config").arg(home.config());
    let mut client = home.shim_of(command);
    client.initialize("2025-11-25");
    let id = client.start_run("print('never')");
    let answer = client.answer(&id);
    let text = answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(
        text.contains(&root) && text.contains("Nothing ran"),
        "{text}"
    );
    assert_eq!(client.ask("ping", &json!({})), json!({}));
    Ok(())
}

fn a_log_that_takes_nothing_costs_no_run() -> TestResult {
    let full = Path::new("/dev/full");
    if !full.exists() {
        return skip("this system has no /dev/full");
    }
    let home = Home::new(&Plan::new().server("m", &[]));
    let log = std::fs::File::options().write(true).open(full)?;
    let mut daemon = Daemon::spawn(&home, |command| {
        command.env("PTC_LOG", "debug").stderr(log);
    });
    daemon.wait_until_it_answers();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    for n in 0..3 {
        let run = client.run(&format!("print(await mcp__m__add(a={n}, b=1))"));
        assert_eq!(run.printed(), format!("{{'sum': {}}}", n + 1));
    }
    daemon.stop();
    Ok(())
}

fn a_log_that_has_grown_large_is_put_aside() -> TestResult {
    let home = Home::new(&Plan::new());
    let state = home.state();
    state_root(&home)?;
    std::fs::DirBuilder::new().mode(0o700).create(&state)?;
    let log = state.join("ptcd.log");
    std::fs::File::create(&log)?.set_len(40 << 20)?;
    // Started by the shim, the daemon writes to this file.
    let mut client = home.client();
    assert_eq!(client.run("print(1)").printed(), "1");
    ptc_tests::wait::until("it begins anew", PATIENCE, || {
        log.metadata().is_ok_and(|about| about.len() < 1 << 20)
    });
    assert!(state.join("ptcd.log.1").metadata()?.len() >= 40 << 20);
    let (code, _, said) = home.ctl(&["stop"]);
    assert_eq!(code, 0, "{said}");
    ptc_tests::wait::until("the last words are in the new one", PATIENCE, || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("ptcd ended"))
    });
    Ok(())
}
