//! Servers over the older HTTP transport.

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::mock_http::{Answer, Mock, Plays};
use ptc_tests::{Home, PATIENCE, Plan, TestResult, eventually};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        calls_go_through_and_headers_go_along,
        an_endpoint_on_another_origin_is_refused,
        a_stream_that_ends_fails_its_calls_and_is_opened_again,
        a_session_that_is_gone_is_made_anew_for_the_call,
    ]
}

const ECHO: &str = "\
try:
    print(await mcp__m__echo(a=2**70))
except ToolError as e:
    print(e.kind, e)
";

fn calls_go_through_and_headers_go_along() -> TestResult {
    let mock = Mock::good(Plays::Sse);
    let mut entry = mock.entry("m");
    entry["headers"] = json!({"X-Key": "some-secret-key"});
    let home = Home::new(&Plan::new().entry(entry));
    let daemon = home.daemon();
    let status = daemon.wait_for("m", ServerState::Ready);
    assert_eq!((status.via.as_str(), status.tools), ("sse", Some(2)));
    assert_eq!(status.protocol.as_deref(), Some("2025-11-25"));
    let run = home.client().run(ECHO);
    assert_eq!(run.printed(), "{'a': 1180591620717411303424}");
    let requests = mock.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.header("x-key") == Some("some-secret-key"))
    );
    assert_eq!(mock.of("tools/call")[0].path, "/messages?session=1");
    let table = home.ctl(&["status"]).1;
    assert!(table.contains(" sse "), "{table}");
    let whole = home.ctl(&["status", "m"]).1;
    assert!(whole.contains("MCP 2025-11-25"), "{whole}");
    Ok(())
}

fn an_endpoint_on_another_origin_is_refused() -> TestResult {
    let other = Mock::good(Plays::Sse);
    let endpoint = format!(
        "event: endpoint\ndata: {}/messages?session=1\n\n",
        other.origin()
    );
    let mock = Mock::start(Plays::Sse, move |request, _| {
        (request.method == "GET").then(|| Answer::open(endpoint.clone()))
    });
    let mut entry = mock.entry("m");
    entry["headers"] = json!({"Authorization": "Bearer keep-this-here"});
    let home = Home::new(&Plan::new().entry(entry));
    let daemon = home.daemon();
    let detail = daemon
        .wait_for("m", ServerState::Failed)
        .detail
        .unwrap_or_default();
    assert!(detail.contains("another origin"), "{detail}");
    assert_eq!(other.requests().len(), 0);
    Ok(())
}

fn a_stream_that_ends_fails_its_calls_and_is_opened_again() -> TestResult {
    let mock = Mock::start(Plays::Sse, |request, mock| {
        if request.calls("echo") && mock.calls("echo") == 1 {
            mock.end_streams();
            return Some(Answer::status(202));
        }
        None
    });
    let home = Home::new(&Plan::new().entry(mock.entry("m")));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let run = client.run(ECHO);
    assert!(run.printed().starts_with("connection_lost"), "{}", run.text);
    assert_eq!(client.run(ECHO).printed(), "{'a': 1180591620717411303424}");
    assert_eq!(mock.calls("echo"), 2, "nothing is sent twice");
    mock.end_streams();
    eventually("the loss is noticed without a call", PATIENCE, || {
        (mock.count("initialize") == 3).then_some(())
    });
    Ok(())
}

fn a_session_that_is_gone_is_made_anew_for_the_call() -> TestResult {
    let mock = Mock::start(Plays::Sse, |request, mock| {
        let first = request.calls("echo") && mock.calls("echo") == 1;
        first.then(|| Answer::text(404, "text/plain", "no such session"))
    });
    let home = Home::new(&Plan::new().entry(mock.entry("m")));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let run = home.client().run(ECHO);
    assert_eq!(run.printed(), "{'a': 1180591620717411303424}");
    assert_eq!(mock.count("initialize"), 2);
    Ok(())
}
