//! `ptcctl logs`: the ends of logs, and what is added to them.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::process::Process;
use ptc_tests::{Home, PATIENCE, Plan, TestResult, eventually};
use rustix::process::Signal;
use serde_json::Value;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_servers_stderr_is_shown_under_its_name,
        the_daemons_log_outlives_it,
        what_is_added_is_followed_through_rotation_until_interrupted,
        following_ends_when_nobody_reads,
        a_log_that_is_not_there_is_told_with_its_path,
    ]
}

fn append(path: &Path, text: &str) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.append(true).create(true).open(path);
    file.expect("the log")
        .write_all(text.as_bytes())
        .expect("a line");
}

fn a_servers_stderr_is_shown_under_its_name() -> TestResult {
    let home = Home::new(&Plan::new().server("odd-name", &["--exit-at-start", "4"]));
    let daemon = home.daemon();
    eventually("it has failed once", PATIENCE, || {
        let state = daemon.server("odd-name").state;
        (state != ServerState::Connecting).then_some(())
    });
    let (code, out, err) = home.ctl(&["logs", "odd-name"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(!out.trim().is_empty());
    // The daemon writes a server's log under the name that the command line looks for.
    let log = home.state().join("servers/odd_name.log");
    append(&log, "one\ntwo \u{1b}[2J\u{7}\u{202e}\n");
    let (_, out, _) = home.ctl(&["logs", "odd-name", "-n", "2"]);
    assert_eq!(out, "one\ntwo \\x1b[2J\\x07\\u{202e}\n");
    let (_, out, _) = home.ctl(&["logs", "odd-name", "-n", "1", "--json"]);
    let value: Value = serde_json::from_str(&out)?;
    assert_eq!(value["schema"], 1);
    assert_eq!(
        value["lines"],
        serde_json::json!(["two \\x1b[2J\\x07\\u{202e}"])
    );
    Ok(())
}

/// Its last line is that it ended, also where a fork server was being proved then.
fn the_daemons_log_outlives_it() -> TestResult {
    let home = Home::new(&Plan::new().set("execution.pool.start", "auto"));
    assert_eq!(home.ctl(&["start"]).0, 0);
    assert_eq!(home.ctl(&["stop"]).0, 0);
    let (code, out, err) = home.ctl(&["logs"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let last = out.lines().last().unwrap_or_default();
    assert!(last.contains("ptcd ended"), "{out}");
    Ok(())
}

/// A running `ptcctl logs -f`, and the lines it prints.
struct Following {
    child: Child,
    lines: Receiver<String>,
}

impl Following {
    fn start(home: &Home, args: &[&str]) -> Self {
        let mut child = home
            .command("ptcctl")
            .arg("--config")
            .arg(home.config())
            .args(["logs", "-f"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("ptcctl to start");
        let stdout = BufReader::new(child.stdout.take().expect("its stdout"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    #[track_caller]
    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line")
    }

    fn ended(&mut self) -> std::process::ExitStatus {
        eventually("it ends", PATIENCE, || {
            self.child.try_wait().expect("its state")
        })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_of_a_daemon_that_is_not_there(home: &Home) -> std::path::PathBuf {
    std::fs::create_dir_all(home.state()).expect("the state folder");
    home.state().join("ptcd.log")
}

fn what_is_added_is_followed_through_rotation_until_interrupted() -> TestResult {
    let home = Home::new(&Plan::new());
    let log = log_of_a_daemon_that_is_not_there(&home);
    append(&log, "a\nb\nc\n");
    let mut following = Following::start(&home, &["-n", "2"]);
    assert_eq!(following.line(), "b");
    assert_eq!(following.line(), "c");
    append(&log, "d");
    append(&log, "e\n");
    assert_eq!(following.line(), "de");
    std::fs::rename(&log, log.with_extension("log.1"))?;
    append(&log, "f\n");
    assert_eq!(following.line(), "f");
    Process::of(following.child.id())
        .expect("it runs")
        .signal(Signal::INT);
    assert!(following.ended().success());
    Ok(())
}

fn following_ends_when_nobody_reads() -> TestResult {
    let home = Home::new(&Plan::new());
    let log = log_of_a_daemon_that_is_not_there(&home);
    append(&log, "a\n");
    let mut child = home
        .command("ptcctl")
        .arg("--config")
        .arg(home.config())
        .args(["logs", "-f", "--json"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdout = BufReader::new(child.stdout.take().expect("its stdout"));
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    assert_eq!(line, "{\"schema\":1,\"line\":\"a\"}\n");
    drop(stdout);
    let status = eventually("it ends", PATIENCE, || child.try_wait().expect("its state"));
    assert!(status.success(), "{status}");
    Ok(())
}

fn a_log_that_is_not_there_is_told_with_its_path() -> TestResult {
    let home = Home::new(&Plan::new());
    for (args, path) in [
        (&["logs"][..], "ptcd.log"),
        (&["logs", "m"], "servers/m.log"),
    ] {
        let (code, out, err) = home.ctl(args);
        assert_eq!((code, out.as_str()), (1, ""));
        let path = home.state().join(path).display().to_string();
        assert!(err.contains(&path), "{err}");
    }
    Ok(())
}
