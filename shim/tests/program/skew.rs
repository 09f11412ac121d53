//! A daemon of another build, which speaks the same revision of the handshake.

use ptc_protocol::route;
use ptc_protocol::{PROTOCOL, PROTOCOL_MIN};
use serde_json::{Value, json};

use super::client::{CALL, Client};
use super::fake_daemon::FakeDaemon;
use super::launching::{installed, shim};

/// A shim that could start a daemon of its own build. The one that listens is found before.
fn beside_a_ptcd(daemon: &FakeDaemon) -> Client {
    let home = daemon.home.path();
    let path = installed(home, Some("exit 1"));
    Client::start(shim(&path, home))
}

#[test]
fn an_older_daemon_is_asked_once_to_make_room_and_served_with_when_it_does_not() {
    let daemon = FakeDaemon::start();
    let mut shim = beside_a_ptcd(&daemon);
    let (older, _, _) = daemon.welcomed_by("0.0.1", &[]);
    let path = format!("POST {} HTTP/1.1\r\n", route::STOP_IDLE);
    daemon.answer(
        &path,
        "200 OK",
        r#"{"ok":false,"messages":["programs run"]}"#,
    );
    let mut connection = older;
    shim.send(CALL);
    let (id, _) = connection.request();
    connection.result(&id, &json!({ "text": "served" }));
    assert_eq!(shim.line()["result"], json!({ "text": "served" }));
    // Not again on the next connection, nor of a build that is not older.
    drop(connection);
    let (mut connection, _, _) = daemon.welcomed_by("0.0.1", &[]);
    shim.send(&CALL.replace("\"id\":2", "\"id\":3"));
    let (id, _) = connection.request();
    connection.result(&id, &json!({}));
    assert_eq!(shim.line()["id"], 3);
}

#[test]
fn an_older_daemon_that_does_not_know_the_question_serves_on() {
    let daemon = FakeDaemon::start();
    let mut shim = beside_a_ptcd(&daemon);
    let (mut connection, _, _) = daemon.welcomed_by("0.0.1", &[]);
    let path = format!("POST {} HTTP/1.1\r\n", route::STOP_IDLE);
    daemon.answer(&path, "404 Not Found", "");
    shim.send(CALL);
    assert_eq!(connection.request().1, "tools/call");
}

#[test]
fn an_older_daemon_with_nothing_to_do_is_replaced_before_anything_is_sent() {
    let daemon = FakeDaemon::start();
    let mut shim = beside_a_ptcd(&daemon);
    shim.send(CALL);
    let (mut older, _, _) = daemon.welcomed_by("0.0.1", &[]);
    let path = format!("POST {} HTTP/1.1\r\n", route::STOP_IDLE);
    daemon.answer(&path, "200 OK", r#"{"ok":true,"messages":[]}"#);
    let (mut newer, _, _) = daemon.welcomed(&[]);
    assert_eq!(older.try_line(), None, "the older one has got nothing");
    let (id, _) = newer.request();
    newer.result(&id, &json!({ "text": "new" }));
    assert_eq!(shim.line()["result"], json!({ "text": "new" }));
}

#[test]
fn a_daemon_of_a_newer_build_is_left_alone() {
    let daemon = FakeDaemon::start();
    let mut shim = beside_a_ptcd(&daemon);
    let (mut connection, _, _) = daemon.welcomed_by("999.0.0", &[]);
    shim.send(CALL);
    assert_eq!(connection.request().1, "tools/call");
}

#[test]
fn a_recorded_session_of_each_revision_is_still_spoken() {
    for revision in PROTOCOL_MIN..=PROTOCOL {
        let file = format!(
            "{}/../tests/frames/session-{revision}.jsonl",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(&file).unwrap();
        let frames: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let said: Vec<&Value> = frames
            .iter()
            .filter_map(|frame| frame.get("shim"))
            .collect();
        let daemon = FakeDaemon::start();
        let home = daemon.home.path();
        let mut command = super::client::command(env!("CARGO_BIN_EXE_ptc-mcp"), home);
        command.env("PTC_SOCKET", home.join("ptcd.sock"));
        let (name, value) = said[1].as_object().unwrap().iter().next().unwrap();
        command.env(name, value.as_str().unwrap());
        let mut shim = Client::start(command);
        let (mut connection, hello) = daemon.greeted();
        let hello = json!(hello);
        let expected = said[0].as_object().unwrap();
        for name in expected.keys().filter(|name| *name != "config") {
            assert!(
                hello.get(name).is_some(),
                "{file}: {name} is not said any more"
            );
        }
        let mut heard = 0;
        for frame in frames.iter().skip(2) {
            if let Some(line) = frame.get("daemon") {
                connection.send(line);
                if line.get("id").is_some() {
                    assert_eq!(shim.line(), *line);
                    heard += 1;
                }
            } else if let Some(line) = frame.get("shim") {
                if line.get("jsonrpc").is_some() {
                    shim.send(&line.to_string());
                }
                assert_eq!(connection.line(), *line);
            }
        }
        assert_eq!(heard, 4);
    }
}
