//! What `ptcctl` prints and how it exits.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Output, Stdio};

use serde_json::{Value, json};

use super::client::command;
use super::fake_daemon::{FakeDaemon, home};

fn start(daemon: &FakeDaemon, arguments: &[&str]) -> Child {
    let mut command = command(env!("CARGO_BIN_EXE_ptcctl"), daemon.home.path());
    command
        .env("PTC_SOCKET", &daemon.socket)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn status(level: &str, confinement: &Value) -> String {
    let server = json!({
        "name": "jira", "state": "reconnecting", "via": "http", "tools": null, "calls": 0,
        "failed_calls": 0, "p50_ms": null, "last_call_ms_ago": null, "pid": null,
        "detail": "reset", "junk_lines": 0,
    });
    json!({
        "schema": 1, "build": "0.0.0", "pid": 1, "uptime_seconds": 1, "draining": false,
        "socket": "/s", "state_dir": "/d",
        "health": { "level": level, "state": "x", "summary": "y" },
        "config": { "path": null, "read_seconds_ago": 1, "changed_on_disk": false },
        "programs": {
            "confinement": confinement, "python": null, "python_path": null,
            "pool": { "warm": 0, "max_warm": 0, "busy": 0, "max_runs": 0, "queued": 0 },
        },
        "totals": { "runs": 0, "failed_runs": 0, "result_bytes": 0, "output_bytes": 0 },
        "clients": [], "servers": [server],
    })
    .to_string()
}

#[test]
fn without_a_daemon_every_verb_but_start_says_so_and_exits_with_3() {
    let home = home();
    for verb in [
        &["status"][..],
        &["tools"],
        &["reload"],
        &["reload", "--env"],
        &["stop"],
        &["run", "-"],
    ] {
        let mut command = command(env!("CARGO_BIN_EXE_ptcctl"), home.path());
        let socket = home.path().join("ptcd.sock");
        let output = command
            .env("PTC_SOCKET", &socket)
            .args(verb)
            .stdin(Stdio::null());
        let output = output.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (code(&output), output.stdout.len()),
            (Some(3), 0),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1);
        assert!(stderr.contains(socket.to_str().unwrap()), "{stderr}");
        assert!(stderr.contains("`ptcctl start`"), "{stderr}");
    }
    assert!(std::fs::read_dir(home.path()).unwrap().next().is_none());
}

#[test]
fn an_error_is_json_where_json_is_asked_for() {
    let home = home();
    let mut command = command(env!("CARGO_BIN_EXE_ptcctl"), home.path());
    let output = command.args(["--json", "status"]).output().unwrap();
    assert_eq!((code(&output), output.stderr.len()), (Some(3), 0));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&value["schema"], &value["exit"]), (&json!(1), &json!(3)));
    let error = value["error"].as_str().unwrap();
    assert!(error.starts_with("ptcd is not running"), "{error}");
    let daemon = FakeDaemon::start();
    let child = start(&daemon, &["--json", "status", "github"]);
    daemon.answer("GET /v1/status ", "200 OK", &status("ok", &json!("full")));
    let output = child.wait_with_output().unwrap();
    let want = json!({
        "schema": 1, "exit": 1,
        "error": "there is no server \"github\"; `ptcctl status` lists them",
    });
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code(&output), printed), (Some(1), want));
}

#[test]
fn a_daemon_that_is_ending_is_said_to_be_and_stop_waits_for_it() {
    let home = home();
    let state = home.path().join("state/default");
    std::fs::create_dir_all(&state).unwrap();
    let lock = std::fs::File::create(state.join("lock")).unwrap();
    lock.try_lock().unwrap();
    let ctl = |arguments: &[&str]| {
        let mut command = command(env!("CARGO_BIN_EXE_ptcctl"), home.path());
        command.env("PTC_STATE_DIR", home.path().join("state"));
        let command = command.args(arguments).stderr(Stdio::piped());
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let output = ctl(&["status"]).wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(&output), Some(3));
    assert!(stderr.contains("ptcd is ending"), "{stderr}");
    let output = ctl(&["--json", "stop", "--timeout", "1"])
        .wait_with_output()
        .unwrap();
    assert_eq!((code(&output), output.stderr.len()), (Some(1), 0));
    let late = "ptcd is still ending after 1 s: it waits for programs and servers to end; \
                `ptcctl stop` waits on";
    let want = json!({
        "schema": 1, "ok": false, "ended": false, "messages": ["ptcd is ending already", late],
    });
    assert_eq!(
        serde_json::from_slice::<Value>(&output.stdout).unwrap(),
        want
    );
    let mut child = ctl(&["stop"]);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert_eq!(child.try_wait().unwrap(), None, "the lock is held");
    drop(lock);
    assert!(child.wait().unwrap().success());
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(
        said,
        "ptcctl: ptcd is ending already\nptcctl: ptcd has ended\n"
    );
}

#[test]
fn a_usage_error_exits_with_2() {
    let home = home();
    let mut command = command(env!("CARGO_BIN_EXE_ptcctl"), home.path());
    assert_eq!(code(&command.arg("nonsense").output().unwrap()), Some(2));
}

#[test]
fn status_shows_the_servers_and_check_tells_by_the_exit_code() {
    let daemon = FakeDaemon::start();
    for (arguments, level, want) in [
        (&["status"][..], "blocked", 0),
        (&["status", "--check"], "ok", 0),
        (&["status", "--check"], "transient", 10),
        (&["status", "--check"], "blocked", 11),
        (&["status", "--check", "jira"], "blocked", 10),
        (&["status", "--check", "github"], "ok", 12),
        (&["status", "--json"], "ok", 0),
        (&["status", "--plain"], "ok", 0),
    ] {
        let child = start(&daemon, arguments);
        daemon.answer("GET /v1/status ", "200 OK", &status(level, &json!("full")));
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), Some(want), "{arguments:?} {level}");
        let stdout = String::from_utf8_lossy(&output.stdout);
        match arguments {
            [.., "--json"] => {
                assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap()["schema"], 1);
            }
            [.., "--plain"] => assert_eq!(stdout, "jira reconnecting: reset\n"),
            [.., "github"] => assert_eq!(stdout, ""),
            [.., "jira"] => assert_eq!(
                stdout,
                "jira        reconnecting, http\ndetail      reset\ncalls       0\n"
            ),
            _ => assert!(stdout.contains("◌  jira    reconnecting  http"), "{stdout}"),
        }
    }
}

#[test]
fn tools_are_listed_and_what_is_missing_goes_to_stderr() {
    let daemon = FakeDaemon::start();
    let child = start(&daemon, &["tools", "issue"]);
    let list = json!({
        "schema": 1,
        "tools": ["mcp__github__get_issue", "mcp__github__get_repo"],
        "unavailable": { "jira": "reconnecting" },
    });
    daemon.answer("GET /v1/tools ", "200 OK", &list.to_string());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(0));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "mcp__github__get_issue\n"
    );
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "ptcctl: jira is missing: reconnecting\n"
    );
}

#[test]
fn tools_of_a_faulty_configuration_are_its_faults() {
    let daemon = FakeDaemon::start();
    let list = json!({ "schema": 1, "tools": [], "unavailable": {} }).to_string();
    let mut faulty: Value = serde_json::from_str(&status("blocked", &json!("full"))).unwrap();
    faulty["config"]["faults"] = json!(["config.yaml:3:1: unknown key"]);
    let ask = |arguments: &[&str]| {
        let child = start(&daemon, arguments);
        daemon.answer("GET /v1/tools ", "200 OK", &list);
        daemon.answer("GET /v1/status ", "200 OK", &faulty.to_string());
        child.wait_with_output().unwrap()
    };
    let output = ask(&["tools"]);
    assert_eq!((code(&output), output.stdout.len()), (Some(1), 0));
    let want = "ptcctl: config.yaml:3:1: unknown key\n\
                ptcctl: the configuration file has 1 fault: mend the file, then `ptcctl reload`\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), want);
    let output = ask(&["tools", "--json"]);
    assert_eq!((code(&output), output.stderr.len()), (Some(1), 0));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["faults"], json!(["config.yaml:3:1: unknown key"]));
    assert_eq!((&value["schema"], &value["exit"]), (&json!(1), &json!(1)));
}

#[test]
fn reload_posts_and_tells_what_the_daemon_answers() {
    let daemon = FakeDaemon::start();
    // A daemon that stands still is found out before it is asked for what may take long.
    let awake = || daemon.answer("GET /v1/health ", "200 OK", "{}");
    let child = start(&daemon, &["reload"]);
    awake();
    let bad = json!({ "ok": false, "messages": ["config.yaml:3:1: unknown key"] }).to_string();
    daemon.answer("POST /v1/reload ", "200 OK", &bad);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(stderr, "ptcctl: config.yaml:3:1: unknown key\n");
    let child = start(&daemon, &["reload", "--env"]);
    awake();
    let good = json!({ "ok": true, "messages": ["forgotten"] }).to_string();
    daemon.answer("POST /v1/reload?env=true ", "200 OK", &good);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(0));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "ptcctl: forgotten\n"
    );
}

#[test]
fn stop_waits_until_the_lock_of_the_daemon_that_answered_is_free() {
    let daemon = FakeDaemon::start();
    let state = daemon.home.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let lock = std::fs::File::create(state.join("lock")).unwrap();
    lock.try_lock().unwrap();
    let mut told: Value = serde_json::from_str(&status("ok", &json!("full"))).unwrap();
    told["state_dir"] = json!(state);
    told["programs"]["pool"]["busy"] = json!(1);
    told["servers"][0]["pid"] = json!(1);
    let stop = |timeout: &str| {
        let child = start(&daemon, &["stop", "--timeout", timeout]);
        daemon.answer("GET /v1/status ", "200 OK", &told.to_string());
        let done = json!({ "ok": true, "messages": ["draining"] }).to_string();
        daemon.answer("POST /v1/stop ", "200 OK", &done);
        child
    };
    let output = stop("1").wait_with_output().unwrap();
    assert_eq!(code(&output), Some(1));
    let want = "ptcctl: draining\n\
                ptcctl: ptcd (pid 1) is still ending after 1 s: it waits for 1 program to end, \
                then 1 server (jira); `ptcctl stop` waits on\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), want);
    let mut child = stop("60");
    assert_eq!(child.try_wait().unwrap(), None, "the lock is held");
    drop(lock);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(0));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "ptcctl: draining\nptcctl: ptcd has ended\n");
}

#[test]
fn a_failure_of_the_daemon_is_shown() {
    let daemon = FakeDaemon::start();
    let child = start(&daemon, &["tools"]);
    daemon.answer("GET /v1/tools ", "500 Internal Server Error", "it broke");
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "ptcctl: the daemon answered 500: it broke\n");
}

/// Plays one run that ends so, and gives what `ptcctl run` made of it.
fn run(ending: &str, failed: bool, arguments: &[&str], confinement: &Value) -> Output {
    let daemon = FakeDaemon::start();
    let mut child = start(&daemon, arguments);
    child.stdin.take().unwrap().write_all(b"print(1)").unwrap();
    let (mut connection, hello, _) = daemon.welcomed(&[]);
    assert_eq!(hello.client.as_deref(), Some("ptcctl"));
    let (id, method) = connection.request();
    assert_eq!(method, "initialize");
    connection.result(&id, &json!({}));
    assert_eq!(connection.request().1, "notifications/initialized");
    let call = connection.line();
    let params = json!({ "name": "execute_program", "arguments": { "code": "print(1)" } });
    assert_eq!(call["params"], params);
    connection.send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {} }));
    let text = if failed {
        "[Script execution failed]\nE: no\n\n--- output before the error ---\nprinted\n[note: n]"
    } else {
        "[Script executed successfully]\nprinted\n[note: n]"
    };
    let answer = json!({
        "content": [{ "type": "text", "text": text }],
        "structuredContent": { "ok": !failed, "ending": ending },
        "isError": failed,
    });
    connection.result(&call["id"], &answer);
    if ending == "refused" {
        daemon.answer("GET /v1/status ", "200 OK", &status("blocked", confinement));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn run_prints_the_output_alone_and_exits_by_the_ending() {
    for (ending, failed, confinement, want) in [
        ("finished", false, json!("full"), 0),
        ("script_error", true, json!("full"), 1),
        ("timed_out", true, json!("full"), 124),
        ("refused", true, json!("full"), 1),
        ("refused", true, Value::Null, 125),
    ] {
        for quiet in [false, true] {
            let arguments: &[&str] = if quiet {
                &["run", "-", "-q"]
            } else {
                &["run", "-"]
            };
            let output = run(ending, failed, arguments, &confinement);
            assert_eq!(code(&output), Some(want), "{ending}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), "printed\n");
            let stderr = match (failed, quiet) {
                (false, false) => "[Script executed successfully]\n[note: n]\n",
                (false, true) => "",
                (true, false) => "[Script execution failed]\nE: no\n[note: n]\n",
                (true, true) => "E: no\n",
            };
            assert_eq!(String::from_utf8_lossy(&output.stderr), stderr, "{ending}");
        }
    }
    let output = run("finished", false, &["run", "-", "--json"], &Value::Null);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        printed,
        json!({ "schema": 1, "ok": true, "ending": "finished" })
    );
}

#[test]
fn an_interrupt_cancels_the_run() {
    let daemon = FakeDaemon::start();
    let mut child = start(&daemon, &["run", "-"]);
    drop(child.stdin.take());
    let (mut connection, _, _) = daemon.welcomed(&[]);
    let (id, _) = connection.request();
    connection.result(&id, &json!({}));
    connection.request();
    let (id, _) = connection.request();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let cancel = connection.line();
    assert_eq!(cancel["method"], "notifications/cancelled");
    assert_eq!(cancel["params"]["requestId"], id);
    drop(connection);
    assert_eq!(code(&child.wait_with_output().unwrap()), Some(1));
}
