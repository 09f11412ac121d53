//! How `ptc-mcp` starts a daemon, played by a script beside a copy of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::client::{Client, INITIALIZE, command};
use super::eventually;
use super::fake_daemon::{FakeDaemon, home};

/// Runs a shell script, so that no file it writes is ever open in this process, which other tests fork.
fn shell(script: &str, arguments: &[&Path]) {
    let mut command = Command::new("sh");
    let status = command.args(["-ec", script, "sh"]).args(arguments).status();
    assert!(status.unwrap().success());
}

/// A folder with a copy of the shim and, where given, a script as its `ptcd`.
pub(super) fn installed(home: &Path, script: Option<&str>) -> PathBuf {
    let folder = home.join("bin");
    let shim = folder.join("ptc-mcp");
    shell(
        "mkdir \"$1\"; cp \"$2\" \"$3\"",
        &[&folder, Path::new(env!("CARGO_BIN_EXE_ptc-mcp")), &shim],
    );
    let state = if cfg!(target_os = "macos") {
        ".ptc"
    } else {
        ".local/state/ptc"
    };
    record(&home.join(state));
    if let Some(script) = script {
        let text = format!("#!/bin/sh\n{script}\n");
        shell(
            "printf %s \"$2\" > \"$1\"; chmod 700 \"$1\"",
            &[&folder.join("ptcd"), Path::new(&text)],
        );
    }
    shim
}

/// An environment as an earlier start has recorded it, so that no login shell is waited for.
fn record(state: &Path) {
    let text = r#"{"schema":1,"by":"start","recorded_ms":1,"login_shell":"/bin/sh",
        "variables":{"PATH":"/usr/bin:/bin"}}"#;
    shell(
        "umask 077; mkdir -p \"$1\"; printf %s \"$2\" > \"$1/environment.json\"",
        &[&state.join("default"), Path::new(text)],
    );
}

pub(super) fn shim(path: &Path, home: &Path) -> Command {
    let mut command = command(path.to_str().unwrap(), home);
    command.env("SECRET", "not for the daemon");
    command.arg("--socket").arg(home.join("ptcd.sock"));
    command
}

/// A daemon whose socket gets its name only when the script runs.
const STARTS: &str = r#"
echo started >> "$HOME/starts"
{ echo "$@"; pwd; env; } > "$HOME/seen"
mv "$HOME/staged.sock" "$HOME/ptcd.sock"
echo '{"ready":{"socket":"there"}}'
"#;

#[test]
fn six_shims_at_once_start_one_daemon() {
    let daemon = FakeDaemon::listening_on("staged.sock");
    let home = daemon.home.path();
    let path = installed(home, Some(STARTS));
    let mut shims: Vec<Client> = (0..6).map(|_| Client::start(shim(&path, home))).collect();
    for shim in &mut shims {
        shim.send(INITIALIZE);
    }
    let mut connections = Vec::new();
    for _ in &shims {
        let (mut connection, _, _) = daemon.welcomed(&[]);
        let (id, method) = connection.request();
        assert_eq!(method, "initialize");
        connection.result(&id, &json!({ "from": "the daemon" }));
        connections.push(connection);
    }
    for shim in &mut shims {
        assert_eq!(shim.line()["result"], json!({ "from": "the daemon" }));
    }
    let starts = std::fs::read_to_string(home.join("starts")).unwrap();
    assert_eq!(starts, "started\n");
    let seen = std::fs::read_to_string(home.join("seen")).unwrap();
    let mut lines = seen.lines();
    let socket = home.join("ptcd.sock");
    let arguments = format!(
        "serve --detach --ready-stdout --socket {}",
        socket.display()
    );
    assert_eq!(lines.next(), Some(arguments.as_str()));
    assert_eq!(lines.next(), Some("/"));
    assert!(
        seen.contains("\nHOME=") && !seen.contains("SECRET"),
        "{seen}"
    );
    assert!(seen.contains("\nPATH=/usr/bin:/bin\n"), "{seen}");
}

#[test]
fn a_daemon_that_dies_at_its_start_is_told_with_its_last_words() {
    let home = home();
    let script = "echo 'no luck: the disk is full' >&2; exit 3";
    let path = installed(home.path(), Some(script));
    let mut client = Client::start(shim(&path, home.path()));
    client.send(INITIALIZE);
    client.send(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    assert_eq!(
        client.line(),
        json!({ "jsonrpc": "2.0", "id": "p", "result": {} })
    );
    let core = client.line();
    assert_eq!(core["result"]["serverInfo"]["name"], "ptcd");
    assert_eq!(core["result"]["protocolVersion"], "2025-06-18");
    client.terminate();
    let stderr = client.stderr();
    assert!(
        stderr.contains("exit status: 3") && stderr.contains("no luck: the disk is full"),
        "{stderr}"
    );
}

#[test]
fn a_daemon_that_cannot_start_says_why_and_nobody_waits() {
    let home = home();
    let script = r#"echo started >> "$HOME/starts"
echo '{"failed":{"message":"the configuration is a folder"}}'; sleep 60"#;
    let path = installed(home.path(), Some(script));
    let mut client = Client::start(shim(&path, home.path()));
    let from = std::time::Instant::now();
    client.send(INITIALIZE);
    assert_eq!(client.line()["id"], 1);
    client.send(r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#);
    let list = client.line();
    assert_eq!(list["result"]["tools"].as_array().map(Vec::len), Some(3));
    for id in 2..5 {
        client.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call"}}"#
        ));
        let answer = client.line();
        assert_eq!(
            (&answer["id"], &answer["result"]["isError"]),
            (&json!(id), &json!(true))
        );
        let cause = "ptcd cannot start: the configuration is a folder. Nothing ran.";
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(cause), "{text}");
    }
    let waited = from.elapsed();
    assert!(waited < std::time::Duration::from_secs(10), "{waited:?}");
    let starts = std::fs::read_to_string(home.path().join("starts")).unwrap();
    assert!(starts.lines().count() <= 4, "{starts}");
    client.terminate();
    let stderr = client.stderr();
    assert!(
        stderr.contains("ptcd cannot start: the configuration is a folder"),
        "{stderr}"
    );
}

#[test]
fn an_older_daemon_is_waited_for_before_a_new_one_is_started() {
    let daemon = FakeDaemon::listening_on("staged.sock");
    let home = daemon.home.path();
    let state = home.join("state/default");
    std::fs::create_dir_all(&state).unwrap();
    let lock = std::fs::File::create(state.join("lock")).unwrap();
    lock.try_lock().unwrap();
    let path = installed(home, Some(STARTS));
    record(&home.join("state"));
    let mut command = shim(&path, home);
    command.env("PTC_STATE_DIR", home.join("state"));
    let said = home.join("said");
    let mut client = Client::start_with_stderr(command, &said);
    client.send(INITIALIZE);
    eventually("the wait is said", || {
        let said = std::fs::read_to_string(&said).ok()?;
        said.contains("an older ptcd is still ending").then_some(())
    });
    assert!(!home.join("starts").exists());
    drop(lock);
    let (mut connection, _, _) = daemon.welcomed(&[]);
    let (id, _) = connection.request();
    connection.result(&id, &json!({ "from": "the daemon" }));
    assert_eq!(client.line()["result"], json!({ "from": "the daemon" }));
}

#[test]
fn a_daemon_on_another_socket_is_the_cause_that_is_told() {
    let daemon = FakeDaemon::listening_on("real.sock");
    let home = daemon.home.path();
    let state = home.join("state/default");
    std::fs::create_dir_all(&state).unwrap();
    let lock = std::fs::File::create(state.join("lock")).unwrap();
    lock.try_lock().unwrap();
    let real = home.join("real.sock");
    let file = json!({
        "pid": 4312, "started_ms": 1, "socket": real, "build": "b", "protocol": 1,
    });
    shell(
        "umask 077; printf %s \"$2\" > \"$1\"",
        &[&state.join("daemon.json"), Path::new(&file.to_string())],
    );
    let path = installed(home, Some(STARTS));
    record(&home.join("state"));
    let mut command = shim(&path, home);
    command.env("PTC_STATE_DIR", home.join("state"));
    let mut client = Client::start(command);
    client.send(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#);
    let (_, _, text) = client.error();
    let cause = format!(
        "another ptcd (pid 4312) serves this configuration on {}",
        real.display()
    );
    assert!(text.starts_with(&cause), "{text}");
    assert!(!home.join("starts").exists());
}

#[test]
fn without_a_daemon_beside_it_the_shim_says_where_it_looked_and_stays() {
    let home = home();
    let path = installed(home.path(), None);
    let mut client = Client::start(shim(&path, home.path()));
    client.send(INITIALIZE);
    assert_eq!(client.line()["result"]["serverInfo"]["name"], "ptcd");
    let late = FakeDaemon::listening_on("ptcd.sock");
    std::fs::rename(&late.socket, home.path().join("ptcd.sock")).unwrap();
    client.send(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#);
    let (mut connection, _, _) = late.welcomed(&[]);
    assert_eq!(connection.request().1, "initialize");
    assert_eq!(connection.request(), (json!(5), "tools/list".to_owned()));
    client.close_stdin();
    connection.result(&json!(5), &json!({ "tools": [] }));
    assert_eq!(client.line()["id"], 5);
    let stderr = client.stderr();
    assert!(stderr.contains("there is no ptcd at"), "{stderr}");
    assert!(stderr.contains("/bin/ptcd"), "{stderr}");
}

#[test]
fn the_log_and_the_lock_are_the_users_alone() {
    use std::os::unix::fs::MetadataExt as _;
    let home = home();
    let path = installed(home.path(), Some("echo words >&2; exit 1"));
    let state = home.path().join("state");
    let mut command = shim(&path, home.path());
    command.env("PTC_STATE_DIR", &state);
    let _client = Client::start(command);
    let folder = state.join("default");
    eventually("the log", || {
        std::fs::read_to_string(folder.join("ptcd.log"))
            .ok()
            .filter(|text| text.contains("words"))
    });
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().mode() & 0o777;
    let modes = ["", "ptcd.log", "start.lock"].map(|name| mode(folder.join(name)));
    assert_eq!(modes, [0o700, 0o600, 0o600]);
    assert_eq!(mode(state), 0o700);
}
