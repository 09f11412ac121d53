//! What `ptc-mcp` does for its client while a daemon listens.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ptc_protocol::route;
use serde_json::{Value, json};

use super::client::{CALL, Client, INITIALIZE, command};
use super::eventually;
use super::fake_daemon::{Connection, FakeDaemon, home};

/// Opens a legacy session from both sides.
fn opened(daemon: &FakeDaemon, shim: &mut Client) -> Connection {
    let (mut connection, _, _) = daemon.welcomed(&[]);
    shim.send(INITIALIZE);
    let (id, _) = connection.request();
    connection.result(&id, &json!({ "serverInfo": {} }));
    assert_eq!(shim.line()["id"], 1);
    shim.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(connection.request().1, "notifications/initialized");
    connection
}

#[test]
fn two_requests_on_stdin_give_two_lines_and_a_prompt_end() {
    let daemon = FakeDaemon::start();
    let mut shim = Client::shim(daemon.home.path(), &["--client", "setup-check"]);
    let start = Instant::now();
    shim.raw(format!("{INITIALIZE}\n{CALL}").as_bytes());
    shim.close_stdin();
    let (mut connection, hello, vars) = daemon.welcomed(&[]);
    assert_eq!(hello.client.as_deref(), Some("setup-check"));
    assert_eq!((hello.pid, hello.config), (shim.pid(), None));
    assert_eq!(vars, json!({}));
    for (want, text) in [("initialize", "one"), ("tools/call", "two")] {
        let (id, method) = connection.request();
        assert_eq!(method, want);
        connection.result(&id, &json!({ "text": text }));
    }
    assert_eq!(
        shim.line(),
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "text": "one" } })
    );
    assert_eq!(shim.line()["id"], 2);
    assert!(shim.end().success());
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "no waiting for nothing"
    );
    assert_eq!(connection.try_line(), None);
    assert_eq!(shim.stderr(), "");
}

#[test]
fn what_is_not_answered_after_the_end_of_stdin_is_cancelled() {
    let daemon = FakeDaemon::start();
    let mut shim = Client::shim(daemon.home.path(), &["--eof-wait", "0.2"]);
    shim.send(CALL);
    shim.close_stdin();
    let (mut connection, _, _) = daemon.welcomed(&[]);
    assert_eq!(connection.request().1, "tools/call");
    let want = (json!(2), -31000, "cancelled: stdin ended".to_owned());
    assert_eq!(shim.error(), want);
    assert!(shim.end().success());
    assert_eq!(
        connection.try_line(),
        None,
        "the stream is closed with the shim"
    );
}

#[test]
fn what_is_no_message_is_answered_and_the_session_goes_on() {
    let daemon = FakeDaemon::start();
    let mut shim = Client::shim(daemon.home.path(), &[]);
    let mut connection = opened(&daemon, &mut shim);
    shim.send("{nonsense");
    assert_eq!(shim.error().1, -32700);
    shim.raw(b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"\xff\"}\n");
    assert_eq!(shim.error().1, -32700);
    for batch in ["[]", r#"[{"jsonrpc":"2.0","id":9,"method":"ping"}]"#] {
        shim.send(batch);
        let (id, code, text) = shim.error();
        assert_eq!((id, code), (Value::Null, -32600));
        assert!(text.contains("batches are not supported"), "{text}");
    }
    shim.send("\r\n");
    let long = "x".repeat(16 * 1024 * 1024);
    shim.send(&format!(
        r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"code":"{long}"}},"id":"long"}}"#
    ));
    let (id, code, text) = shim.error();
    assert_eq!((id, code), (json!("long"), -32600));
    assert!(text.contains("over the limit of 16777216 bytes"), "{text}");
    shim.send(CALL);
    assert_eq!(connection.request(), (json!(2), "tools/call".to_owned()));
    shim.send(CALL);
    let (id, code, text) = shim.error();
    assert_eq!((id, code), (json!(2), -32600));
    assert!(text.contains("still open"), "{text}");
    connection.result(&json!(2), &json!({}));
    assert_eq!(shim.line()["result"], json!({}));
}

#[test]
fn ids_keep_their_type_and_long_lines_pass_both_ways() {
    let daemon = FakeDaemon::start();
    let mut shim = Client::shim(daemon.home.path(), &[]);
    let mut connection = opened(&daemon, &mut shim);
    let long = "x".repeat(15 * 1024 * 1024);
    for id in [r#""1""#, "12345678901234567890123"] {
        shim.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"code":"{long}"}}}}"#
        ));
        let line = connection.line();
        assert_eq!(
            line["params"]["code"].as_str().map(str::len),
            Some(long.len())
        );
        connection.raw(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"text":"{long}"}}}}{}"#,
            "\n"
        ));
        let answer = shim.text();
        assert!(answer.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"#)));
        assert!(answer.len() > long.len());
    }
}

#[test]
fn a_client_that_does_not_read_holds_the_daemon_back_and_loses_nothing() {
    let daemon = FakeDaemon::start();
    let mut command = command(env!("CARGO_BIN_EXE_ptc-mcp"), daemon.home.path());
    command.env("PTC_SOCKET", &daemon.socket);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut connection, _, _) = daemon.welcomed(&[]);
    let written = thread::spawn(move || {
        for number in 0..40 {
            let text = "y".repeat(1024 * 1024);
            connection.send(&json!({ "jsonrpc": "2.0", "method": "n", "params": { "number": number, "text": text } }));
        }
    });
    // The first line being there shows that the shim has begun; it cannot have kept 40 MiB.
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    for number in 0..40 {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["params"]["number"], number);
    }
    written.join().unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_daemon_that_comes_back_gets_the_handshake_again() {
    let daemon = FakeDaemon::start();
    let mut shim = Client::shim(daemon.home.path(), &[]);
    let mut connection = opened(&daemon, &mut shim);
    shim.send(CALL);
    connection.request();
    drop(connection);
    let (mut connection, hello, _) = daemon.welcomed(&[]);
    assert_eq!(hello.pid, shim.pid());
    let asked = format!("GET {} HTTP/1.1\r\n", route::calls(hello.session, "2"));
    let known = r#"{"run":"r","ending":"finished","earlier":7,"calls":[{"tool":"mcp__a__b","server":"a","ok":true}]}"#;
    daemon.answer(&asked, "200 OK", known);
    let answer = shim.line();
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(
        answer["result"]["content"][0]["text"],
        "daemon restarted during this run, which had ended (finished); tool calls already made: \
         7 earlier ones, mcp__a__b (ok); nothing was repeated"
    );
    let replay = connection.line();
    assert_eq!(
        (&replay["method"], &replay["params"]["clientInfo"]["name"]),
        (&json!("initialize"), &json!("setup-check"))
    );
    connection.result(&replay["id"], &json!({ "serverInfo": {} }));
    assert_eq!(connection.request().1, "notifications/initialized");
    shim.send(&CALL.replace(r#""id":2"#, r#""id":3"#));
    assert_eq!(connection.request(), (json!(3), "tools/call".to_owned()));
    connection.result(&json!(3), &json!({ "ok": 1 }));
    assert_eq!(
        shim.line(),
        json!({ "jsonrpc": "2.0", "id": 3, "result": { "ok": 1 } })
    );
}

#[test]
fn a_daemon_that_cannot_tell_the_calls_leaves_the_rest_of_the_answer() {
    let daemon = FakeDaemon::start();
    let mut shim = Client::shim(daemon.home.path(), &[]);
    let mut connection = opened(&daemon, &mut shim);
    shim.send(&CALL.replace(r#""id":2"#, r#""id":"2""#));
    connection.request();
    drop(connection);
    let (_connection, hello, _) = daemon.welcomed(&[]);
    let asked = format!("GET {} HTTP/1.1\r\n", route::calls(hello.session, "\"2\""));
    daemon.answer(&asked, "404 Not Found", "");
    let answer = shim.line();
    assert_eq!(answer["id"], "2");
    assert_eq!(
        answer["result"]["content"][0]["text"],
        "daemon restarted during this run; nothing was repeated"
    );
}

#[test]
fn the_session_keeps_its_id_over_connections_and_another_shim_has_another() {
    let daemon = FakeDaemon::start();
    let mut shim = Client::shim(daemon.home.path(), &[]);
    let (connection, first, _) = daemon.welcomed(&[]);
    drop(connection);
    let (_connection, second, _) = daemon.welcomed(&[]);
    assert_eq!(first.session, second.session);
    shim.close_stdin();
    assert!(shim.end().success());
    let _other = Client::shim(daemon.home.path(), &[]);
    let (_connection, third, _) = daemon.welcomed(&[]);
    assert_ne!(first.session, third.session);
}

#[test]
fn sigterm_ends_it_at_once_and_closes_the_stream() {
    let daemon = FakeDaemon::start();
    let mut shim = Client::shim(daemon.home.path(), &[]);
    let mut connection = opened(&daemon, &mut shim);
    shim.send(CALL);
    connection.request();
    shim.terminate();
    assert!(shim.end().success());
    assert_eq!(connection.try_line(), None);
}

#[test]
fn a_stdout_without_a_reader_ends_it_even_while_nothing_happens() {
    let daemon = FakeDaemon::start();
    let mut command = command(env!("CARGO_BIN_EXE_ptc-mcp"), daemon.home.path());
    command.env("PTC_SOCKET", &daemon.socket);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut connection, _, _) = daemon.welcomed(&[]);
    drop(child.stdout.take());
    eventually("the shim's end", || child.try_wait().unwrap());
    assert_eq!(connection.try_line(), None);
}

#[test]
fn a_refusal_is_told_on_stderr_and_to_the_client() {
    let daemon = FakeDaemon::start();
    let mut shim = Client::shim(daemon.home.path(), &[]);
    // A call waits longer than a handshake does, so a slow machine makes no difference.
    shim.send(CALL);
    let (mut connection, _) = daemon.greeted();
    connection.send(&json!({ "refused": { "message": "another configuration" } }));
    drop(connection);
    let (id, code, text) = shim.error();
    assert_eq!((id, code), (json!(2), -31001));
    assert_eq!(text, "ptcd refused this client: another configuration");
    shim.close_stdin();
    assert!(shim.end().success());
    let stderr = shim.stderr();
    assert!(
        stderr.contains("the daemon refused this client: another configuration"),
        "{stderr}"
    );
}

#[test]
fn wanted_variables_cross_and_nothing_else() {
    let daemon = FakeDaemon::start();
    let config = daemon.home.path().join("other.yaml");
    let mut command = command(env!("CARGO_BIN_EXE_ptc-mcp"), daemon.home.path());
    command
        .env("PTC_SOCKET", &daemon.socket)
        .env("TOKEN", "s3cret")
        .env("OTHER", "kept")
        .env("CLAUDE_PROJECT_DIR", "/p")
        .arg("--config")
        .arg(&config);
    let _shim = Client::start(command);
    let (_connection, hello, vars) = daemon.welcomed(&["TOKEN", "MISSING", "not a name"]);
    assert_eq!(vars, json!({ "TOKEN": "s3cret" }));
    assert_eq!(hello.project_dir.as_deref(), Some("/p"));
    let config = config.canonicalize().unwrap_or(
        daemon
            .home
            .path()
            .canonicalize()
            .unwrap()
            .join("other.yaml"),
    );
    assert_eq!(hello.config.as_deref(), config.to_str());
}

#[test]
fn version_and_help_touch_no_daemon_and_bad_flags_are_usage_errors() {
    let home = home();
    let run = |argument: &str| {
        let mut command: Command = command(env!("CARGO_BIN_EXE_ptc-mcp"), home.path());
        command.arg(argument).output().unwrap()
    };
    let version = run("--version");
    assert_eq!(
        String::from_utf8_lossy(&version.stdout),
        format!("ptc-mcp {}\n", ptc_protocol::BUILD)
    );
    assert!(run("--help").status.success());
    let bad = run("--nonsense");
    assert_eq!((bad.status.code(), bad.stdout.len()), (Some(2), 0));
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}
