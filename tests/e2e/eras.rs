//! Which protocol era is spoken with whom, and what the newer one brings.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::mock_http::{Answer, Mock, Plays, Request, error, result};
use ptc_tests::party::ECHO;
use ptc_tests::{Client, Home, PATIENCE, Plan, TestResult, eventually, party_of};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_process_is_greeted_and_asked_nothing_it_may_not_know,
        a_process_without_a_handshake_is_found_out_and_remembered,
        an_endpoint_that_answers_the_question_strangely_is_greeted,
        an_endpoint_that_refuses_as_a_newer_one_is_not_greeted,
        revisions_that_do_not_meet_are_both_named,
        a_server_that_lists_many_revisions_is_spoken_to_in_the_newest,
        what_is_configured_is_spoken_and_nothing_else,
        a_result_that_is_none_yet_fails_its_call_at_once,
        annotated_arguments_go_into_headers_and_wrong_annotations_cost_one_tool,
        news_are_subscribed_to_and_subscribed_to_again,
        a_process_without_a_handshake_tells_its_news,
    ]
}

const COUNTS: &str = "\
counts = await mcp__m__stats()
print(counts.get('initialize'), counts.get('server/discover'))
";

fn a_process_is_greeted_and_asked_nothing_it_may_not_know() -> TestResult {
    let (_home, daemon, mut client) = party_of(&Plan::new().server("m", &[]));
    assert_eq!(client.run(COUNTS).printed(), "1 None");
    let status = daemon.server("m");
    assert_eq!(status.protocol.as_deref(), Some("2025-11-25"));
    Ok(())
}

fn a_process_without_a_handshake_is_found_out_and_remembered() -> TestResult {
    for how in ["refuses", "ends"] {
        let (_home, daemon, mut client) = party_of(&Plan::new().server("m", &["--modern", how]));
        assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
        // The process that was greeted is of no use; this one was only asked.
        assert_eq!(client.run(COUNTS).printed(), "None 1");
        let status = daemon.server("m");
        assert_eq!(status.protocol.as_deref(), Some("2026-07-28"));
        let first = status.pid;
        if let Some(process) = first.and_then(ptc_tests::process::Process::of) {
            process.kill();
        }
        eventually("another process serves", PATIENCE, || {
            let server = daemon.server("m");
            (server.state == ServerState::Ready && server.pid != first).then_some(())
        });
        assert_eq!(client.run(COUNTS).printed(), "None 1");
    }
    Ok(())
}

fn an_endpoint_that_answers_the_question_strangely_is_greeted() -> TestResult {
    type Script = fn(&Request) -> Answer;
    let answers: [Script; 8] = [
        |request| Answer::json(200, &result(request, &json!({}))),
        |request| Answer::json(200, &result(request, &json!({"supportedVersions": "all"}))),
        |request| Answer::json(200, &error(request, -32601, "what?")),
        |request| Answer::json(404, &error(request, -32601, "what?")),
        |_| Answer::text(400, "text/plain", "Bad Request: Missing session ID"),
        |_| Answer::status(405),
        |_| Answer::text(500, "text/html", "<html>oops</html>"),
        |_| Answer::text(200, "text/html", "<html>hello</html>"),
    ];
    for answer in answers {
        let mock = Mock::start(Plays::Legacy, move |request, _| {
            (request.name() == "server/discover").then(|| answer(request))
        });
        let (_home, daemon, mut client) = party_of(&Plan::new().entry(mock.entry("m")));
        assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
        assert_eq!(daemon.server("m").protocol.as_deref(), Some("2025-11-25"));
        assert_eq!(mock.count("server/discover"), 1);
        assert_eq!(mock.count("initialize"), 1);
    }
    Ok(())
}

fn an_endpoint_that_refuses_as_a_newer_one_is_not_greeted() -> TestResult {
    for code in [-32020, -32021] {
        let mock = Mock::start(Plays::Modern, move |request, _| {
            Some(Answer::json(400, &error(request, code, "not so")))
        });
        let home = Home::new(&Plan::new().entry(mock.entry("m")));
        let daemon = home.daemon();
        let detail = eventually("the refusal is shown", PATIENCE, || {
            let detail = daemon.server("m").detail?;
            detail.contains("not so").then_some(detail)
        });
        assert!(detail.contains(&code.to_string()), "{detail}");
        assert_eq!(mock.count("initialize"), 0);
    }
    Ok(())
}

fn revisions_that_do_not_meet_are_both_named() -> TestResult {
    let refusing = |supported: Value| {
        move |request: &Request, _: &Mock| {
            if request.name() != "server/discover" {
                return None;
            }
            let mut answer = error(request, -32022, "no such revision");
            answer["error"]["data"] = json!({"supported": supported, "requested": "2026-07-28"});
            Some(Answer::json(400, &answer))
        }
    };
    let future = Mock::start(Plays::Modern, refusing(json!(["2031-01-01"])));
    let home = Home::new(&Plan::new().entry(future.entry("m")));
    let daemon = home.daemon();
    let detail = daemon
        .wait_for("m", ServerState::Failed)
        .detail
        .unwrap_or_default();
    for revision in ["2031-01-01", "2026-07-28", "2025-11-25"] {
        assert!(detail.contains(revision), "{detail}");
    }
    assert_eq!(future.count("initialize"), 0);
    // A server that is of two minds is asked once more, in the words it wants.
    let turn = AtomicUsize::new(0);
    let refusing_once = refusing(json!(["2026-07-28"]));
    let unsure = Mock::start(Plays::Modern, move |request, mock| {
        let first = request.name() == "server/discover" && turn.fetch_add(1, Ordering::SeqCst) == 0;
        if first {
            refusing_once(request, mock)
        } else {
            None
        }
    });
    let (_home, _daemon, mut client) = party_of(&Plan::new().entry(unsure.entry("m")));
    assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
    assert_eq!(unsure.count("server/discover"), 2);
    let stubborn = Mock::start(Plays::Modern, refusing(json!(["2026-07-28"])));
    let home = Home::new(&Plan::new().entry(stubborn.entry("m")));
    home.daemon().wait_for("m", ServerState::Failed);
    assert_eq!(stubborn.count("server/discover"), 2);
    let older = Mock::start(Plays::Legacy, refusing(json!(["2025-06-18", "2025-11-25"])));
    let (_home, _daemon, mut client) = party_of(&Plan::new().entry(older.entry("m")));
    assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
    Ok(())
}

fn a_server_that_lists_many_revisions_is_spoken_to_in_the_newest() -> TestResult {
    let mock = Mock::start(Plays::Modern, |request, _| {
        let listed = json!({
            "supportedVersions": ["2024-11-05", "2025-11-25", "2026-07-28"],
            "capabilities": {"tools": {}},
        });
        (request.name() == "server/discover").then(|| Answer::json(200, &result(request, &listed)))
    });
    let (_home, daemon, mut client) = party_of(&Plan::new().entry(mock.entry("m")));
    assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
    assert_eq!(daemon.server("m").protocol.as_deref(), Some("2026-07-28"));
    // It announces no news, so none are subscribed to.
    assert_eq!(mock.count("subscriptions/listen"), 0);
    Ok(())
}

fn what_is_configured_is_spoken_and_nothing_else() -> TestResult {
    let old = Mock::good(Plays::Legacy);
    let mut entry = old.entry("m");
    entry["protocol"] = json!("legacy");
    let (_home, _daemon, mut client) = party_of(&Plan::new().entry(entry));
    assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
    assert_eq!(old.count("server/discover"), 0);
    let old = Mock::good(Plays::Legacy);
    let mut entry = old.entry("m");
    entry["protocol"] = json!("modern");
    let home = Home::new(&Plan::new().entry(entry));
    let daemon = home.daemon();
    eventually("the refusal is shown", PATIENCE, || {
        let detail = daemon.server("m").detail?;
        detail.contains("no session id").then_some(())
    });
    assert_eq!(old.count("initialize"), 0);
    Ok(())
}

fn a_result_that_is_none_yet_fails_its_call_at_once() -> TestResult {
    for (value, kind, words) in [
        (
            json!({
                "resultType": "input_required", "requestState": "s",
                "inputRequests": {"k": {"method": "elicitation/create", "params": {"message": "Which account?"}}},
            }),
            "tool_failed",
            "Which account?",
        ),
        (
            json!({"resultType": "task", "task": {"taskId": "t"}}),
            "tool_failed",
            "task",
        ),
        (json!({"resultType": "riddle"}), "protocol", "riddle"),
        (json!({"resultType": 7}), "protocol", "resultType"),
        (json!({"structuredContent": {"a": 1}}), "{'a': 1}", ""),
        (
            json!({"resultType": "complete", "structuredContent": [1, null]}),
            "[1, None]",
            "",
        ),
    ] {
        let mock = Mock::start(Plays::Modern, move |request, _| {
            request
                .calls("echo")
                .then(|| Answer::json(200, &result(request, &value)))
        });
        let (_home, _daemon, mut client) = party_of(&Plan::new().entry(mock.entry("m")));
        let start = Instant::now();
        let run = client.run(ECHO);
        assert!(run.printed().starts_with(kind), "{}", run.text);
        assert!(run.printed().contains(words), "{}", run.text);
        assert!(start.elapsed() < Duration::from_secs(15));
        assert_eq!(mock.calls("echo"), 1);
    }
    Ok(())
}

fn annotated_arguments_go_into_headers_and_wrong_annotations_cost_one_tool() -> TestResult {
    let property = |kind: &str, header: &str| json!({"type": kind, "x-mcp-header": header});
    let tools = json!([
        {"name": "echo", "inputSchema": {"type": "object", "properties": {
            "region": property("string", "Region"), "n": property("integer", "N"),
        }}},
        {"name": "größe", "inputSchema": {"type": "object"}},
        {"name": "wrong", "inputSchema": {"type": "object", "properties": {
            "x": property("number", "X"),
        }}},
    ]);
    let mock = Mock::start(Plays::Modern, move |request, _| {
        (request.name() == "tools/list")
            .then(|| Answer::json(200, &result(request, &json!({"tools": tools}))))
    });
    let (_home, daemon, mut client) = party_of(&Plan::new().entry(mock.entry("m")));
    let status = daemon.server("m");
    assert_eq!(status.tools, Some(2));
    assert!(
        status
            .notes
            .iter()
            .any(|note| note.contains("wrong") && note.contains("left out")),
        "{:?}",
        status.notes
    );
    client.run("await mcp__m__echo(region='Zürich', n=2**70)");
    let name = client.run("print([n for n in await list_callable_tools() if 'gr' in n][0])");
    client.run(&format!("await {}()", name.printed()));
    let calls = mock.of("tools/call");
    assert_eq!(
        calls[0].header("mcp-param-region"),
        Some("=?base64?WsO8cmljaA==?=")
    );
    assert_eq!(
        calls[0].header("mcp-param-n"),
        Some("1180591620717411303424")
    );
    assert_eq!(calls[1].header("mcp-name"), Some("=?base64?Z3LDtsOfZQ==?="));
    // The older era knows no such annotations, and loses no tool by them.
    let old = Mock::start(Plays::Legacy, |request, _| {
        let tools = json!([{"name": "echo", "inputSchema": {"properties": {
            "x": {"type": "number", "x-mcp-header": "X"},
        }}}]);
        (request.name() == "tools/list")
            .then(|| Answer::json(200, &result(request, &json!({"tools": tools}))))
    });
    let (_home, _daemon, mut client) = party_of(&Plan::new().entry(old.entry("m")));
    client.run("await mcp__m__echo(x=1.5)");
    assert_eq!(old.of("tools/call")[0].header("mcp-param-x"), None);
    Ok(())
}

fn news_are_subscribed_to_and_subscribed_to_again() -> TestResult {
    let mock = Mock::good(Plays::Modern);
    let (_home, _daemon, _client) = party_of(&Plan::new().entry(mock.entry("m")));
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    for round in 1..3 {
        eventually("news are subscribed to", PATIENCE, || {
            (mock.count("subscriptions/listen") == round && mock.streams() == 1).then_some(())
        });
        let listed = mock.count("tools/list");
        mock.push(&changed);
        eventually("tools are listed again", PATIENCE, || {
            (mock.count("tools/list") > listed).then_some(())
        });
        mock.end_streams();
    }
    let wanted = &mock.of("subscriptions/listen")[0].message["params"]["notifications"];
    assert_eq!(wanted, &json!({"toolsListChanged": true}));
    assert_eq!(mock.count("server/discover"), 1);
    assert_eq!(mock.count("GET"), 0);
    Ok(())
}

fn a_process_without_a_handshake_tells_its_news() -> TestResult {
    let (_home, _daemon, mut client) = party_of(&Plan::new().server("m", &["--modern", "refuses"]));
    let listings = |client: &mut Client| -> u64 {
        let run = client.run("print((await mcp__m__stats())['tools/list'])");
        run.printed().parse().unwrap_or_default()
    };
    assert_eq!(listings(&mut client), 1);
    eventually("the change is followed", PATIENCE, || {
        // Each call of echo tells of a change to whoever listens.
        client.run("await mcp__m__echo()");
        (listings(&mut client) >= 2).then_some(())
    });
    Ok(())
}
