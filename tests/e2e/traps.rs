//! What is known to go wrong with the MCP library beneath, and does not here.
//!
//! `docs/protocol.md` lists every such trap with the test that holds it; those
//! that another area holds are not repeated here.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::mock_http::{Answer, Mock, Plays, event, result};
use ptc_tests::party::ECHO;
use ptc_tests::{Client, Daemon, Home, Plan, TestResult, party_of};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        an_answer_over_sixteen_mebibytes_fails_at_once_by_name,
        a_number_beyond_all_floats_is_no_reason_to_hang,
        a_result_of_an_older_shape_is_not_lost_in_silence,
        a_malformed_tool_costs_no_other,
        cursors_that_never_end_are_given_up,
        keys_keep_their_order_and_the_last_of_two_counts,
        a_notification_before_the_opening_is_passed_over,
        arguments_of_another_shape_are_refused_by_name,
        a_client_that_does_not_read_holds_up_nobody_and_loses_nothing,
        progress_is_told_in_the_order_it_came,
        a_silent_server_costs_its_own_limit_only,
        no_log_holds_what_a_server_or_a_program_said,
        a_large_structured_result_comes_through,
    ]
}

fn party(mock: &Mock, change: impl FnOnce(Plan) -> Plan) -> (Home, Daemon, Client) {
    party_of(&change(Plan::new().entry(mock.entry("m"))))
}

fn an_answer_over_sixteen_mebibytes_fails_at_once_by_name() -> TestResult {
    // Over the limit of one result, and over what is read at all; both with the default limits.
    for mebibytes in ["17", "40"] {
        let bytes = format!("{mebibytes}000000");
        let home = Home::new(&Plan::new().server("m", &["--oversize", &bytes]));
        let daemon = home.daemon();
        let pid = daemon.wait_for("m", ServerState::Ready).pid;
        let start = Instant::now();
        let run = home.client().run(ECHO);
        assert!(
            run.printed().starts_with("result_too_large"),
            "{}",
            run.text
        );
        assert!(
            start.elapsed() < Duration::from_secs(50),
            "it waited for its limit"
        );
        assert_eq!(daemon.server("m").pid, pid);
    }
    Ok(())
}

fn a_number_beyond_all_floats_is_no_reason_to_hang() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |request, _| {
        request
            .calls("echo")
            .then(|| Answer::raw_result(request, br#"{"structuredContent":{"x":1e400,"y":1E2}}"#))
    });
    let (_home, _daemon, mut client) = party(&mock, |plan| plan);
    let start = Instant::now();
    let run = client.run(ECHO);
    assert_eq!(run.printed(), "{'x': inf, 'y': 100.0}");
    assert!(start.elapsed() < Duration::from_secs(15));
    Ok(())
}

fn a_result_of_an_older_shape_is_not_lost_in_silence() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |request, _| {
        request
            .calls("echo")
            .then(|| Answer::json(200, &result(request, &json!({"toolResult": "old"}))))
    });
    let (_home, _daemon, mut client) = party(&mock, |plan| plan);
    assert_eq!(client.run(ECHO).printed(), "old");
    assert_eq!(mock.count("initialize"), 1);
    Ok(())
}

fn a_malformed_tool_costs_no_other() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |request, _| {
        let tools = json!([
            {"name": "echo", "inputSchema": {"type": "object"}},
            {"name": "bare"},
            {"description": "no name"},
            7,
        ]);
        (request.name() == "tools/list")
            .then(|| Answer::json(200, &result(request, &json!({"tools": tools}))))
    });
    let (_home, daemon, mut client) = party(&mock, |plan| plan);
    assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
    let status = daemon.server("m");
    assert_eq!((status.tools, status.notes.len()), (Some(2), 2));
    Ok(())
}

fn cursors_that_never_end_are_given_up() -> TestResult {
    for cursor in ["again", ""] {
        let mock = Mock::start(Plays::Modern, move |request, _| {
            let page = json!({"tools": [{"name": "echo"}], "nextCursor": cursor});
            (request.name() == "tools/list").then(|| Answer::json(200, &result(request, &page)))
        });
        let (_home, daemon, mut client) = party(&mock, |plan| plan);
        assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
        assert_eq!(daemon.server("m").tools, Some(1));
        assert_eq!(mock.count("tools/list"), 2, "an empty cursor is one, too");
    }
    Ok(())
}

fn keys_keep_their_order_and_the_last_of_two_counts() -> TestResult {
    let mock = Mock::start(Plays::Modern, |request, _| {
        let text = br#"{"structuredContent":{"z":1,"a":2,"m":3,"z":4}}"#;
        request
            .calls("echo")
            .then(|| Answer::raw_result(request, text))
    });
    let (_home, _daemon, mut client) = party(&mock, |plan| plan);
    assert_eq!(client.run(ECHO).printed(), "{'z': 4, 'a': 2, 'm': 3}");
    client.run("await mcp__m__echo(z=1, a=2, m=3)");
    let sent = &mock.of("tools/call")[1].message["params"]["arguments"];
    assert_eq!(sent.to_string(), r#"{"z":1,"a":2,"m":3}"#);
    Ok(())
}

fn a_notification_before_the_opening_is_passed_over() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    for method in [
        "notifications/initialized",
        "notifications/roots/list_changed",
    ] {
        client.send(&json!({"jsonrpc": "2.0", "method": method}));
    }
    client.initialize("2025-11-25");
    assert_eq!(client.run("print(1)").printed(), "1");
    Ok(())
}

fn arguments_of_another_shape_are_refused_by_name() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    for arguments in [json!([1]), json!("code"), json!(5)] {
        let call = json!({"name": "execute_program", "arguments": arguments});
        let id = client.request("tools/call", &call);
        let answer = client.answer(&id);
        assert_eq!(answer["error"]["code"], json!(-32602), "{answer}");
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("arguments"), "{message}");
    }
    assert_eq!(client.run("print(1)").printed(), "1");
    Ok(())
}

fn a_client_that_does_not_read_holds_up_nobody_and_loses_nothing() -> TestResult {
    const REQUESTS: u64 = 400;
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut child = home
        .command("ptc-mcp")
        .arg("--config")
        .arg(home.config())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        anyhow::bail!("no pipes");
    };
    let writer = std::thread::spawn(move || -> std::io::Result<_> {
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "lazy", "version": "1"},
        });
        let opening = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello});
        writeln!(stdin, "{opening}")?;
        for id in 1..REQUESTS {
            writeln!(
                stdin,
                "{}",
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})
            )?;
        }
        Ok(stdin)
    });
    // Another client notices nothing of it.
    assert_eq!(home.client().run("print(1)").printed(), "1");
    let mut answered = BTreeSet::new();
    for line in BufReader::new(stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(&line?)?;
        let id = message["id"].as_u64().unwrap_or(REQUESTS);
        assert!(answered.insert(id), "{id} is answered twice");
        if answered.len() as u64 == REQUESTS {
            break;
        }
    }
    assert_eq!(answered, (0..REQUESTS).collect());
    drop(writer.join());
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn progress_is_told_in_the_order_it_came() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |request, _| {
        let progress = |n: u64| {
            event(&json!({
                "jsonrpc": "2.0", "method": "notifications/progress",
                "params": {
                    "progressToken": request.message["params"]["_meta"]["progressToken"],
                    "progress": n, "total": 2000, "message": "counting",
                },
            }))
        };
        request
            .calls("echo")
            .then(|| Answer::open((0..2000).flat_map(progress).collect::<Vec<u8>>()))
    });
    let (_home, _daemon, mut client) = party(&mock, |plan| {
        plan.set("execution.tool_call_timeout_seconds", 2)
    });
    let run = client.run(ECHO);
    assert!(run.printed().starts_with("timeout"), "{}", run.text);
    assert!(
        run.printed().contains("progress 1999 of 2000 counting"),
        "{}",
        run.text
    );
    Ok(())
}

fn a_silent_server_costs_its_own_limit_only() -> TestResult {
    let deaf = Mock::start(Plays::Modern, |_, _| Some(Answer::nothing(false)));
    let mut entry = deaf.entry("deaf");
    entry["start_timeout_seconds"] = json!(1);
    let home = Home::new(
        &Plan::new()
            .entry(entry)
            .server("mute", &["--no-init"])
            .server("m", &[]),
    );
    let start = Instant::now();
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(home.client().run(ECHO).printed(), "{'a': 1}");
    assert!(start.elapsed() < Duration::from_secs(20));
    ptc_tests::eventually("its limit is told", ptc_tests::PATIENCE, || {
        let detail = daemon.server("deaf").detail?;
        let asked = deaf.count("server/discover") > 0 && deaf.count("initialize") > 0;
        (asked && detail.contains("within 1 s")).then_some(())
    });
    Ok(())
}

fn no_log_holds_what_a_server_or_a_program_said() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |request, _| {
        request.calls("echo").then(|| {
            let value = json!({"structuredContent": {"said": "a-word-of-the-server"}});
            Answer::json(200, &result(request, &value))
        })
    });
    let (home, daemon, mut client) = party(&mock, |plan| plan);
    let run = client.run("print(await mcp__m__echo(word='a-word-of-the-program'))");
    assert_eq!(run.printed(), "{'said': 'a-word-of-the-server'}");
    daemon.stop();
    let log = std::fs::read_to_string(home.daemon_log())?;
    assert!(log.contains("server is ready"), "{log}");
    assert!(!log.contains("a-word-of"), "{log}");
    Ok(())
}

fn a_large_structured_result_comes_through() -> TestResult {
    let mock = Mock::start(Plays::Modern, |request, _| {
        let row = r#"{"id":12345678901234567890,"name":"a row","values":[1,2.50,null,true]}"#;
        let rows = vec![row; 130_000].join(",");
        let text = format!(r#"{{"structuredContent":{{"rows":[{rows}]}}}}"#);
        request
            .calls("echo")
            .then(|| Answer::raw_event(request, text.as_bytes()))
    });
    let (_home, _daemon, mut client) = party(&mock, |plan| plan);
    let run = client.run("r = (await mcp__m__echo())['rows']\nprint(len(r), r[-1]['id'])");
    assert_eq!(run.printed(), "130000 12345678901234567890");
    Ok(())
}
