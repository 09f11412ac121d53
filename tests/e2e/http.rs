//! Calls of servers over streamable HTTP, and what becomes of their answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::mock_http::{Answer, Mock, Plays, event, result};
use ptc_tests::party::ECHO;
use ptc_tests::{Client, Daemon, Home, Plan, TestResult, party_of};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        calls_go_through_in_both_eras_with_what_each_wants_in_its_headers,
        calls_at_once_reach_their_own_answers,
        results_keep_every_digit_and_every_oddity,
        an_answer_that_cannot_be_taken_fails_its_call_and_no_other,
        a_call_that_finds_its_session_gone_is_run_once_on_a_new_one,
        a_server_that_fails_in_words_about_its_session_gets_a_new_one,
        a_stream_that_breaks_fails_its_call_at_once_and_nothing_is_repeated,
        a_stream_that_can_be_taken_up_again_is,
        a_server_that_wants_other_credentials_says_so_and_is_left_alone,
        a_call_that_is_forbidden_fails_and_the_connection_stays,
        what_a_server_repeats_of_our_headers_is_masked,
    ]
}

/// A daemon with one server `m` and a client.
pub(super) fn party(mock: &Mock) -> (Home, Daemon, Client) {
    party_of(&plan(mock))
}

pub(super) fn plan(mock: &Mock) -> Plan {
    Plan::new()
        .entry(mock.entry("m"))
        .set("execution.tool_call_timeout_seconds", 20)
}

fn calls_go_through_in_both_eras_with_what_each_wants_in_its_headers() -> TestResult {
    for (plays, revision) in [(Plays::Legacy, "2025-11-25"), (Plays::Modern, "2026-07-28")] {
        let mock = Mock::good(plays);
        let (_home, daemon, mut client) = party(&mock);
        assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
        let status = daemon.server("m");
        assert_eq!((status.via.as_str(), status.tools), ("http", Some(2)));
        assert_eq!(status.protocol.as_deref(), Some(revision));
        let call = mock.of("tools/call").remove(0);
        assert_eq!(call.header("mcp-protocol-version"), Some(revision));
        assert_eq!(
            call.header("accept"),
            Some("application/json, text/event-stream")
        );
        let modern = plays == Plays::Modern;
        assert_eq!(call.header("mcp-method"), modern.then_some("tools/call"));
        assert_eq!(call.header("mcp-name"), modern.then_some("echo"));
        let session = call.header("mcp-session-id");
        assert_eq!(session, (!modern).then_some("session-1"));
        daemon.stop();
        assert_eq!(mock.count("DELETE"), usize::from(!modern), "a farewell");
        assert_eq!(mock.count("tools/call"), 1);
    }
    Ok(())
}

fn calls_at_once_reach_their_own_answers() -> TestResult {
    for plays in [Plays::Legacy, Plays::Modern] {
        let mock = Mock::good(plays);
        let home = Home::new(&plan(&mock).set("execution.max_concurrent_calls", 16));
        let daemon = home.daemon();
        daemon.wait_for("m", ServerState::Ready);
        let run = home.client().run(
            "import asyncio\n\
             slow = [mcp__m__sleep(ms=400 - 20 * n) for n in range(20)]\n\
             fast = [mcp__m__echo(n=n) for n in range(20)]\n\
             got = await asyncio.gather(*slow, *fast)\n\
             print([r['ms'] for r in got[:20]] == [400 - 20 * n for n in range(20)], [r['n'] for r in got[20:]] == list(range(20)))",
        );
        assert_eq!(run.printed(), "True True");
        assert_eq!(mock.count("tools/call"), 40);
    }
    Ok(())
}

fn results_keep_every_digit_and_every_oddity() -> TestResult {
    const RESULT: &[u8] =
        br#"{"structuredContent":{"n":1267650600228229401496703205376,"f":1.10,"d":1,"d":2},
        "content":[{"type":"hologram","x":1},{"type":"text","text":"by the way"}]}"#;
    for streamed in [false, true] {
        let mock = Mock::start(Plays::Legacy, move |request, _| {
            let answer = if streamed {
                // An event's data has no line ends of its own.
                let text: Vec<u8> = RESULT.iter().copied().filter(|&b| b != b'\n').collect();
                Answer::raw_event(request, &text)
            } else {
                Answer::raw_result(request, RESULT)
            };
            request.calls("echo").then_some(answer)
        });
        let (_home, _daemon, mut client) = party(&mock);
        let run = client.run("r = await mcp__m__echo(n=2**100)\nprint(r['n'] == 2**100, r['f'], r['d'], r['_notes'])");
        let printed = run.printed();
        assert!(printed.starts_with("True 1.1 2 ["), "{printed}");
        assert!(
            printed.contains("hologram") && printed.contains("by the way"),
            "{printed}"
        );
        let call = mock.of("tools/call").remove(0);
        let sent = &call.message["params"]["arguments"]["n"];
        assert_eq!(sent.to_string(), "1267650600228229401496703205376");
    }
    Ok(())
}

fn an_answer_that_cannot_be_taken_fails_its_call_and_no_other() -> TestResult {
    let turn = AtomicUsize::new(0);
    let mock = Mock::start(Plays::Legacy, move |request, _| {
        if !request.calls("echo") {
            return None;
        }
        let big = format!("{{\"content\":[],\"x\":\"{}\"}}", "z".repeat(4_000_000));
        Some(match turn.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::raw_result(request, br#"{"structuredContent":{"x":NaN}}"#),
            1 => Answer::raw_event(request, br#"{"structuredContent":{"x":NaN}}"#),
            2 => Answer::raw_result(request, b"\"caf\xe9\""),
            3 => Answer::raw_result(request, big.as_bytes()),
            4 => Answer::raw_event(request, big.as_bytes()),
            5 => Answer::json(200, &json!({"jsonrpc": "2.0", "id": 99, "result": {}})),
            6 => Answer::status(202),
            7 => Answer::text(200, "text/html; charset=utf-8", "<html>Sign in</html>"),
            8 => Answer::text(502, "text/plain", "bad gateway"),
            9 => Answer::json(200, &json!([])),
            10 => Answer::json(200, &nameless("no luck")),
            11 => Answer::open(event(&nameless("no chance"))),
            _ => Answer::json(200, &json!({"jsonrpc": "2.0", "id": request.message["id"]})),
        })
    });
    let home = Home::new(&plan(&mock).set("execution.max_tool_result_bytes", 1_000_000));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    for expected in [
        "protocol NaN|not valid JSON",
        "protocol not valid JSON",
        "protocol not valid UTF-8",
        "result_too_large ask for less",
        "result_too_large ask for less",
        "protocol id 99",
        "protocol HTTP 202",
        "protocol text/html",
        "protocol HTTP 502",
        "protocol no JSON-RPC",
        "protocol no luck",
        "protocol no chance",
        "protocol neither a result nor an error",
    ] {
        let start = Instant::now();
        let run = client.run(ECHO);
        let (kind, words) = expected.split_once(' ').unwrap_or_default();
        let printed = run.printed();
        assert!(printed.starts_with(kind), "{expected}: {printed}");
        assert!(
            words.split('|').any(|word| printed.contains(word)),
            "{expected}: {printed}"
        );
        assert!(start.elapsed() < Duration::from_secs(15), "{expected}");
        let other = client.run("print(await mcp__m__sleep(ms=0))");
        assert_eq!(other.printed(), "{'ms': 0}");
    }
    assert_eq!(mock.count("initialize"), 1, "no reconnect");
    Ok(())
}

/// An error that does not name its request.
fn nameless(message: &str) -> serde_json::Value {
    json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32603, "message": message}})
}

fn a_call_that_finds_its_session_gone_is_run_once_on_a_new_one() -> TestResult {
    let mock = Mock::good(Plays::Legacy);
    let (_home, daemon, mut client) = party(&mock);
    for round in 2..4 {
        mock.forget();
        assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
        assert_eq!(mock.count("initialize"), round);
    }
    let calls = mock.of("tools/call");
    let sessions: Vec<_> = calls
        .iter()
        .filter_map(|call| call.header("mcp-session-id"))
        .collect();
    assert_eq!(
        sessions,
        ["session-1", "session-2", "session-2", "session-3"]
    );
    let greeted = mock.of("initialize");
    assert!(
        greeted
            .iter()
            .all(|request| request.header("mcp-session-id").is_none())
    );
    assert_eq!(mock.count("tools/list"), 3, "tools are listed again");
    assert_eq!(mock.count("server/discover"), 1, "the era is remembered");
    let status = daemon.server("m");
    assert_eq!((status.calls, status.failed_calls), (2, 0));
    // Many at once find it gone, and each is run.
    mock.forget();
    let run = client.run(
        "import asyncio\n\
         got = await asyncio.gather(*[mcp__m__echo(n=n) for n in range(8)])\n\
         print([r['n'] for r in got])",
    );
    assert_eq!(run.printed(), "[0, 1, 2, 3, 4, 5, 6, 7]");
    assert_eq!(mock.count("initialize"), 4);
    Ok(())
}

fn a_server_that_fails_in_words_about_its_session_gets_a_new_one() -> TestResult {
    for (status, run) in [(400, true), (401, true), (503, false)] {
        let calls = AtomicUsize::new(0);
        let mock = Mock::start(Plays::Legacy, move |request, _| {
            let first = request.calls("echo") && calls.fetch_add(1, Ordering::SeqCst) == 0;
            first.then(|| Answer::text(status, "text/plain", "Bad Request: unknown Session ID"))
        });
        let (_home, _daemon, mut client) = party(&mock);
        let printed = client.run(ECHO).printed().to_owned();
        if run {
            assert_eq!(printed, "{'a': 1}", "{status}");
        } else {
            assert!(printed.starts_with("connection_lost"), "{printed}");
            assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
        }
        assert_eq!(mock.count("initialize"), 2, "{status}");
    }
    Ok(())
}

fn a_stream_that_breaks_fails_its_call_at_once_and_nothing_is_repeated() -> TestResult {
    let progress = json!({
        "jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": 1, "progress": 1},
    });
    for (plays, cut) in [
        (Plays::Legacy, true),
        (Plays::Legacy, false),
        (Plays::Modern, true),
        (Plays::Modern, false),
    ] {
        let first = event(&progress);
        let mock = Mock::start(plays, move |request, _| {
            let answer = Answer::stream(vec![first.clone()], cut);
            request.calls("echo").then_some(answer)
        });
        let (_home, _daemon, mut client) = party(&mock);
        let start = Instant::now();
        let run = client.run(ECHO);
        assert!(run.printed().starts_with("connection_lost"), "{}", run.text);
        assert!(start.elapsed() < Duration::from_secs(15));
        assert_eq!(mock.calls("echo"), 1);
        let other = client.run("print(await mcp__m__sleep(ms=0))");
        assert_eq!(other.printed(), "{'ms': 0}");
    }
    let mock = Mock::start(Plays::Legacy, |request, _| {
        request.calls("echo").then(|| Answer::nothing(true))
    });
    let (_home, _daemon, mut client) = party(&mock);
    let run = client.run(ECHO);
    assert!(run.printed().starts_with("connection_lost"), "{}", run.text);
    assert_eq!(mock.calls("echo"), 1);
    Ok(())
}

fn a_stream_that_can_be_taken_up_again_is() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |request, mock| {
        if request.calls("echo") {
            let head = b"id: place-1\nretry: 10\ndata:\n\n".to_vec();
            return Some(Answer::stream(vec![head], true));
        }
        if request.method != "GET" {
            return None;
        }
        match request.header("last-event-id") {
            None => Some(Answer::status(405)),
            Some("place-1") => {
                // A server may end a stream again and again.
                let head = b"id: place-2\n\n".to_vec();
                Some(Answer::stream(vec![head], false))
            }
            Some("place-2") => {
                let call = mock.of("tools/call").pop()?;
                let message = result(&call, &json!({"structuredContent": {"late": 1}}));
                Some(Answer::stream(vec![event(&message)], false))
            }
            Some(_) => Some(Answer::status(400)),
        }
    });
    let (_home, _daemon, mut client) = party(&mock);
    assert_eq!(client.run(ECHO).printed(), "{'late': 1}");
    assert_eq!(mock.calls("echo"), 1);
    Ok(())
}

fn a_server_that_wants_other_credentials_says_so_and_is_left_alone() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |request, _| {
        let right = request.header("authorization") == Some("Bearer right-token-77");
        (!right).then(|| {
            Answer::json(401, &json!({"error": "invalid_token"})).header(
                "WWW-Authenticate",
                "Bearer error=\"invalid_token\", resource_metadata=\"http://x/\"",
            )
        })
    });
    let mut entry = mock.entry("m");
    entry["headers"] = json!({"Authorization": "Bearer wrong-token-77"});
    let home = Home::new(&Plan::new().entry(entry.clone()));
    let daemon = home.daemon();
    let detail = daemon
        .wait_for("m", ServerState::Failed)
        .detail
        .unwrap_or_default();
    assert!(detail.contains("headers.Authorization"), "{detail}");
    assert!(detail.contains("invalid_token"), "{detail}");
    assert!(!detail.contains("wrong-token"), "{detail}");
    let before = mock.requests().len();
    let listed = home.client().call("list_callable_tools", &json!({}));
    assert!(listed.structured["unavailable"]["m"].is_string());
    assert_eq!(mock.requests().len(), before, "it is left alone");
    assert!(before <= 2, "{before} requests");
    entry["headers"] = json!({"Authorization": "Bearer right-token-77"});
    home.write_config(&Plan::new().entry(entry).text());
    assert_eq!(home.ctl(&["reload"]).0, 0);
    daemon.wait_for("m", ServerState::Ready);
    Ok(())
}

fn a_call_that_is_forbidden_fails_and_the_connection_stays() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |request, _| {
        let body = json!({"error": "insufficient_scope"});
        request.calls("echo").then(|| Answer::json(403, &body))
    });
    let (_home, daemon, mut client) = party(&mock);
    let run = client.run(ECHO);
    let printed = run.printed();
    assert!(printed.starts_with("unavailable"), "{printed}");
    for part in ["403", "insufficient_scope", "headers.Authorization"] {
        assert!(printed.contains(part), "{printed}");
    }
    assert_eq!(mock.calls("echo"), 1, "no retry");
    assert_eq!(mock.count("initialize"), 1);
    assert_eq!(daemon.server("m").state, ServerState::Ready);
    Ok(())
}

fn what_a_server_repeats_of_our_headers_is_masked() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |request, _| {
        let told = format!("denied for {}", request.header("x-key").unwrap_or(""));
        request
            .calls("echo")
            .then(|| Answer::text(403, "text/plain", told + &"z".repeat(9000)))
    });
    let mut entry = mock.entry("m");
    entry["headers"] = json!({"X-Key": "hunter2-hunter2"});
    let home = Home::new(&Plan::new().entry(entry));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let run = home.client().run(ECHO);
    let printed = run.printed();
    assert!(printed.contains("denied for <X-Key:"), "{printed}");
    assert!(!run.result.to_string().contains("hunter2"), "{printed}");
    assert!(printed.len() < 1000, "it is cut: {}", printed.len());
    Ok(())
}
