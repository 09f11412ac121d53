//! How connections to HTTP servers come about, last and end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::mock_http::{Answer, Authority, Mock, Plays, event, result};
use ptc_tests::party::ECHO;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult, eventually};
use serde_json::json;

use super::http::{party, plan};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        redirections_are_followed_only_within_the_origin_and_never_as_get,
        odd_but_lawful_servers_work,
        a_pause_that_is_asked_for_is_kept,
        proxies_of_the_environment_are_not_used,
        certificates_are_checked,
        what_a_server_asks_of_us_is_answered_while_a_call_runs,
        news_outside_of_calls_are_followed,
        the_stream_for_news_is_open_before_anything_is_asked,
        a_cancelled_call_is_told_to_the_server,
        a_server_that_goes_is_noticed_and_comes_back,
        the_wrong_transport_is_named,
        a_page_that_is_no_protocol_is_shown,
    ]
}

fn redirections_are_followed_only_within_the_origin_and_never_as_get() -> TestResult {
    let target = Mock::good(Plays::Legacy);
    for (status, location, other) in [
        (301, "/elsewhere".to_owned(), false),
        (302, "/elsewhere".to_owned(), false),
        (307, target.url(), true),
        (308, target.url(), true),
        (301, target.url(), true),
    ] {
        let to = location.clone();
        let mock = Mock::start(Plays::Legacy, move |request, _| {
            (request.path == "/mcp").then(|| Answer::status(status).header("Location", &to))
        });
        let mut entry = mock.entry("m");
        entry["headers"] = json!({"Authorization": "Bearer keep-this-here"});
        let home = Home::new(&Plan::new().entry(entry));
        let daemon = home.daemon();
        let detail = daemon
            .wait_for("m", ServerState::Failed)
            .detail
            .unwrap_or_default();
        let named = if other {
            location
        } else {
            format!("{}{location}", mock.origin())
        };
        assert!(
            detail.contains(&format!("write `url: {named}`")),
            "{detail}"
        );
        assert_eq!(mock.count("GET"), 0, "{status}");
        assert!(mock.requests().iter().all(|request| request.path == "/mcp"));
    }
    assert_eq!(target.requests().len(), 0, "nothing went to another origin");
    let mock = Mock::start(Plays::Legacy, |request, _| {
        (request.path == "/mcp").then(|| Answer::status(307).header("Location", "/new"))
    });
    let (_home, _daemon, mut client) = party(&mock);
    assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
    Ok(())
}

fn odd_but_lawful_servers_work() -> TestResult {
    type Script = fn(&ptc_tests::mock_http::Request, &Mock) -> Option<Answer>;
    let scripts: [Script; 4] = [
        // GET is not there in yet another way.
        |request, _| (request.method == "GET").then(|| Answer::status(400)),
        // Line ends, blanks, comments, ids.
        |request, _| {
            if request.name() != "tools/call" && request.name() != "tools/list" {
                return None;
            }
            let value = if request.calls("echo") {
                json!({"structuredContent": {"a": 1}})
            } else {
                json!({"tools": [{"name": "echo"}]})
            };
            let message = result(request, &value);
            let text = format!(
                ": ping\r\n\r\nid: 7\r\nretry: 100\r\nevent: message\r\ndata:{message}\r\n\r\n"
            );
            Some(Answer::stream(vec![text.into_bytes()], true))
        },
        |request, _| {
            let value = json!({"structuredContent": {"a": 1}});
            let text = result(request, &value).to_string();
            request
                .calls("echo")
                .then(|| Answer::text(200, "Application/JSON; Charset=UTF-8", text))
        },
        // No session at all.
        |request, _| {
            (request.name() == "initialize")
                .then(|| {
                    let value = json!({"protocolVersion": "2024-11-05", "capabilities": {}});
                    Answer::json(200, &result(request, &value))
                })
                .or_else(|| {
                    (request.name() == "tools/list").then(|| {
                        let value = json!({"tools": [{"name": "echo"}]});
                        Answer::json(200, &result(request, &value))
                    })
                })
                .or_else(|| {
                    request.calls("echo").then(|| {
                        let value = json!({"structuredContent": {"a": 1}});
                        Answer::json(200, &result(request, &value))
                    })
                })
        },
    ];
    for script in scripts {
        let mock = Mock::start(Plays::Legacy, script);
        let (_home, _daemon, mut client) = party(&mock);
        assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
        assert_eq!(mock.count("initialize"), 1);
    }
    Ok(())
}

fn a_pause_that_is_asked_for_is_kept() -> TestResult {
    let turn = AtomicUsize::new(0);
    let mock = Mock::start(Plays::Legacy, move |request, _| {
        if !request.calls("echo") {
            return None;
        }
        match turn.fetch_add(1, Ordering::SeqCst) {
            0 => Some(Answer::text(429, "text/plain", "slow down").header("Retry-After", "1")),
            1 => Some(Answer::status(503).header("Retry-After", "1")),
            2 => None,
            _ => Some(Answer::text(429, "text/plain", "tomorrow").header("Retry-After", "86400")),
        }
    });
    let (_home, _daemon, mut client) = party(&mock);
    let start = Instant::now();
    assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert_eq!(mock.calls("echo"), 3);
    let run = client.run(ECHO);
    assert!(run.printed().starts_with("unavailable"), "{}", run.text);
    assert!(run.printed().contains("429") && run.printed().contains("tomorrow"));
    Ok(())
}

fn proxies_of_the_environment_are_not_used() -> TestResult {
    let mock = Mock::good(Plays::Legacy);
    let home = Home::new(&plan(&mock));
    let mut daemon = Daemon::spawn(&home, |command| {
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env(name, "http://127.0.0.1:1");
        }
    });
    daemon.wait_until_it_answers();
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(home.client().run(ECHO).printed(), "{'a': 1}");
    Ok(())
}

fn certificates_are_checked() -> TestResult {
    let (known, unknown) = (Authority::new(), Authority::new());
    let good = Mock::secure(Plays::Legacy, &known, "127.0.0.1");
    let other_name = Mock::secure(Plays::Legacy, &known, "example.org");
    let stranger = Mock::secure(Plays::Legacy, &unknown, "127.0.0.1");
    let home = Home::new(
        &Plan::new()
            .entry(good.entry("m"))
            .entry(other_name.entry("other"))
            .entry(stranger.entry("stranger")),
    );
    let file = home.write("authority.pem", known.pem());
    let mut daemon = Daemon::spawn(&home, |command| {
        command.env("SSL_CERT_FILE", file);
    });
    daemon.wait_until_it_answers();
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(home.client().run(ECHO).printed(), "{'a': 1}");
    for name in ["other", "stranger"] {
        let detail = eventually("the fault of its certificate", PATIENCE, || {
            let detail = daemon.server(name).detail?;
            detail.contains("certificate").then_some(detail)
        });
        assert!(detail.contains("SSL_CERT_FILE"), "{detail}");
    }
    assert_eq!(other_name.requests().len() + stranger.requests().len(), 0);
    Ok(())
}

fn what_a_server_asks_of_us_is_answered_while_a_call_runs() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |request, mock| {
        if request.message.get("method").is_none() && request.message.get("id").is_some() {
            let answers = mock.of("POST").len();
            if answers == 4 {
                let call = mock.of("tools/call").pop()?;
                mock.push(&result(&call, &json!({"structuredContent": {"a": 1}})));
            }
            return Some(Answer::status(202));
        }
        if !request.calls("echo") {
            return None;
        }
        let ask = |id: &str, method: &str| {
            event(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}}))
        };
        Some(Answer::open(
            [
                ask("q1", "ping"),
                ask("q2", "sampling/createMessage"),
                ask("q3", "elicitation/create"),
                ask("q4", "roots/list"),
            ]
            .concat(),
        ))
    });
    let (_home, _daemon, mut client) = party(&mock);
    assert_eq!(client.run(ECHO).printed(), "{'a': 1}");
    let answer = |id: &str| {
        let answers = mock.of("POST");
        let found = answers
            .iter()
            .find(|answer| answer.message["id"] == json!(id));
        found.map(|found| found.message.clone()).unwrap_or_default()
    };
    assert_eq!(answer("q1")["result"], json!({}));
    assert_eq!(answer("q2")["error"]["code"], json!(-32601));
    assert_eq!(answer("q3")["result"], json!({"action": "decline"}));
    assert_eq!(answer("q4")["error"]["code"], json!(-32601));
    Ok(())
}

fn the_stream_for_news_is_open_before_anything_is_asked() -> TestResult {
    let good = Mock::good(Plays::Legacy);
    let silent = Mock::start(Plays::Legacy, |request, _| {
        (request.method == "GET").then(|| Answer::nothing(false))
    });
    for mock in [good, silent] {
        let (_home, daemon, _client) = party(&mock);
        let requests = mock.requests();
        let place = |name: &str| requests.iter().position(|request| request.name() == name);
        let (stream, list) = (place("GET"), place("tools/list"));
        assert!(stream.is_some() && stream < list, "{requests:?}");
        daemon.stop();
    }
    Ok(())
}

fn news_outside_of_calls_are_followed() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |request, _| {
        (request.method == "GET").then(|| Answer::open(&b": here\n\n"[..]))
    });
    let (_home, _daemon, _client) = party(&mock);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    eventually("the stream for news is open", PATIENCE, || {
        (mock.streams() == 1).then_some(())
    });
    mock.push(&changed);
    eventually("tools are listed again", PATIENCE, || {
        (mock.count("tools/list") == 2).then_some(())
    });
    mock.end_streams();
    eventually("the stream is opened again", PATIENCE, || {
        (mock.streams() == 1).then_some(())
    });
    for _ in 0..200 {
        mock.push(&changed);
    }
    eventually("tools are listed again", PATIENCE, || {
        (mock.count("tools/list") >= 3).then_some(())
    });
    assert!(mock.count("tools/list") <= 8);
    assert_eq!(mock.count("initialize"), 1);
    Ok(())
}

fn a_cancelled_call_is_told_to_the_server() -> TestResult {
    for plays in [Plays::Legacy, Plays::Modern] {
        let mock = Mock::start(plays, |request, _| {
            request
                .calls("echo")
                .then(|| Answer::open(&b": wait\n\n"[..]))
        });
        let home = Home::new(&plan(&mock).set("execution.tool_call_timeout_seconds", 1));
        let daemon = home.daemon();
        daemon.wait_for("m", ServerState::Ready);
        let run = home.client().run(ECHO);
        assert!(run.printed().starts_with("timeout"), "{}", run.text);
        if plays == Plays::Legacy {
            let told = eventually("the server is told", PATIENCE, || {
                mock.of("notifications/cancelled").pop()
            });
            let call = mock.of("tools/call").remove(0);
            assert_eq!(told.message["params"]["requestId"], call.message["id"]);
        } else {
            eventually("the stream of the call is closed", PATIENCE, || {
                // What is left is the subscription.
                mock.push(&json!({}));
                (mock.streams() == 1).then_some(())
            });
            assert_eq!(mock.count("notifications/cancelled"), 0);
        }
    }
    Ok(())
}

fn a_server_that_goes_is_noticed_and_comes_back() -> TestResult {
    let home = Home::new(&Plan::new().entry(json!({
        "name": "m", "transport": "http", "url": "http://127.0.0.1:1/mcp",
    })));
    let daemon = home.daemon();
    let detail = eventually("the cause is told", PATIENCE, || {
        let server = daemon.server("m");
        server
            .detail
            .filter(|detail| detail.contains("cannot connect to http://127.0.0.1:1/mcp"))
    });
    assert!(detail.contains("refused"), "{detail}");
    let mock = Mock::good(Plays::Legacy);
    let (_home, daemon, mut client) = party(&mock);
    mock.close();
    let run = client.run(ECHO);
    let printed = run.printed();
    assert!(
        printed.starts_with("unavailable") || printed.starts_with("connection_lost"),
        "{printed}"
    );
    daemon.wait_for("m", ServerState::Reconnecting);
    Ok(())
}

fn the_wrong_transport_is_named() -> TestResult {
    let old = Mock::good(Plays::Sse);
    let new = Mock::good(Plays::Legacy);
    let home = Home::new(
        &Plan::new()
            .entry(json!({"name": "a", "transport": "http", "url": old.url()}))
            .entry(json!({"name": "b", "transport": "sse", "url": new.url()})),
    );
    let daemon = home.daemon();
    for (name, word) in [("a", "sse"), ("b", "transport: http")] {
        eventually("the other transport is named", PATIENCE, || {
            let detail = daemon.server(name).detail?;
            detail.contains(word).then_some(())
        });
    }
    Ok(())
}

fn a_page_that_is_no_protocol_is_shown() -> TestResult {
    let mock = Mock::start(Plays::Legacy, |_, _| {
        Some(Answer::text(
            200,
            "text/html; charset=utf-8",
            "<html>Sign in</html>",
        ))
    });
    let home = Home::new(&plan(&mock));
    let daemon = home.daemon();
    let detail = eventually("the page is shown", PATIENCE, || {
        daemon
            .server("m")
            .detail
            .filter(|detail| detail.contains("Sign in"))
    });
    assert!(
        detail.contains("HTTP 200") && detail.contains("text/html"),
        "{detail}"
    );
    Ok(())
}
