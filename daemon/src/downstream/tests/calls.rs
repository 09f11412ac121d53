//! What becomes of calls, whatever the server answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::super::testing::eventually;
use super::super::*;
use super::{Bench, structured_of, text_of};

#[tokio::test]
async fn tools_are_listed_and_called_with_the_arguments_as_they_were_encoded() {
    let bench = Bench::new("").ready().await;
    let tools: Vec<String> = bench.downstream.servers()[0]
        .tools
        .iter()
        .map(|tool| tool.name.clone())
        .collect();
    assert_eq!(tools, ["t", "stats"]);
    assert_eq!(text_of(&bench.call("t").await.unwrap()), "hello");
    let arguments =
        r#"{"n":123456789012345678901234567890,"f":1.50,"$serde_json::private::Number":"1"}"#;
    let cancel = CancellationToken::new();
    let answer = bench
        .downstream
        .call(
            &View::default(),
            "s",
            "stats",
            Arc::from(arguments),
            Duration::from_secs(9),
            &cancel,
        )
        .await
        .unwrap();
    let structured = structured_of(&answer);
    let echoed = &structured["last"]["params"]["arguments"];
    assert_eq!(echoed["n"].to_string(), "123456789012345678901234567890");
    assert_eq!(echoed["$serde_json::private::Number"], json!("1"));
    let status = bench.state();
    assert_eq!(
        (status.calls, status.failed_calls, status.tools),
        (2, 0, Some(2))
    );
    assert!(status.pid.is_some() && status.p50_ms.is_some());
    bench.downstream.stop().await;
}

#[tokio::test]
async fn noise_on_stdout_is_skipped_and_counted() {
    let mode = r#"put(b"Server v1 ready\n\n\xef\xbb\xbf[]\n\xff\xfe caf\xe9\n\xef\xbb\xbf")
for i in (1, 2): send({"jsonrpc": "2.0", "method": "notifications/message", "params": 3})"#;
    let bench = Bench::new(mode).ready().await;
    assert_eq!(text_of(&bench.call("t").await.unwrap()), "hello");
    assert_eq!(bench.state().junk_lines, 3);
    bench.downstream.stop().await;
}

#[tokio::test]
async fn frames_in_small_pieces_are_whole_in_the_end() {
    let mode = r#"
def put(data):
    for i in range(0, len(data), 3):
        out.write(data[i:i + 3])
def call(m):
    reply(m, text("größe 天气"))"#;
    let bench = Bench::new(mode).ready().await;
    assert_eq!(text_of(&bench.call("t").await.unwrap()), "größe 天气");
    bench.downstream.stop().await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_taken_fails_its_call_at_once_and_no_other() {
    for (body, part) in [
        (
            r#"raw(m, b'{"structuredContent":{"x":NaN}}')"#,
            "not valid JSON",
        ),
        (
            r#"raw(m, b'{"content":[{"type":"text","text":"caf\xe9"}]}')"#,
            "not valid UTF-8",
        ),
        (
            r#"raw(m, b'{"content":[{"type":"text","text":"\\u12"}]}')"#,
            "not valid JSON",
        ),
        (
            r#"send({"id": m["id"], "result": {}, "error": {"code": "E", "message": None}})"#,
            "both",
        ),
        (r#"send({"id": m["id"]})"#, "neither"),
    ] {
        let bench = Bench::new(&format!("def call(m):\n    {body}"))
            .ready()
            .await;
        let begun = Instant::now();
        let (one, other) = tokio::join!(bench.call("t"), bench.call("stats"));
        let error = one.unwrap_err();
        assert!(matches!(error, CallError::Invalid { .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert!(other.is_ok());
        let pid = structured_of(&other.unwrap())["pid"].clone();
        assert_eq!(bench.stats().await["pid"], pid, "no reconnect");
        bench.downstream.stop().await;
    }
}

#[tokio::test]
async fn an_answer_over_the_cap_fails_its_call_and_the_connection_goes_on() {
    let mode = r#"
def call(m):
    if m["params"].get("arguments", {}).get("late"):
        put(b'{"result":"' + b"z" * 8000000 + b'","id":' + str(m["id"]).encode() + b'}\n')
    else:
        reply(m, text("z" * 8000000))"#;
    let bench = Bench::new(mode).ready().await;
    for arguments in ["{}", r#"{"late":true}"#] {
        let cancel = CancellationToken::new();
        let error = bench
            .downstream
            .call(
                &View::default(),
                "s",
                "t",
                Arc::from(arguments),
                Duration::from_secs(20),
                &cancel,
            )
            .await
            .unwrap_err();
        let cap = 3 * 1024 * 1024;
        assert_eq!(
            error,
            CallError::TooLong {
                server: "s".into(),
                cap
            }
        );
    }
    assert_eq!(bench.count("initialize").await, 1);
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_line_that_never_ends_is_named_when_its_call_times_out() {
    let mode = r#"
def call(m):
    put(b'{"id":99,"result":"' + b"z" * 5000000)"#;
    let bench = Bench::new(mode).ready().await;
    let error = bench
        .call_for("t", Duration::from_secs(3))
        .await
        .unwrap_err();
    let CallError::Timeout { remark, .. } = error else {
        panic!("{error:?}");
    };
    assert!(remark.unwrap().contains("bytes so far, without an end"));
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_call_without_an_answer_ends_at_its_limit_and_the_server_is_told() {
    let bench = Bench::new("def call(m): pass").ready().await;
    let limit = Duration::from_millis(300);
    let (slow, other) = tokio::join!(bench.call_for("t", limit), bench.call("stats"));
    assert!(matches!(slow.unwrap_err(), CallError::Timeout { .. }));
    assert!(other.is_ok());
    assert_eq!(bench.count("notifications/cancelled").await, 1);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let error = bench
        .downstream
        .call(
            &View::default(),
            "s",
            "t",
            Arc::from("{}"),
            Duration::from_secs(9),
            &cancel,
        )
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::Cancelled { .. }), "{error:?}");
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_caller_that_goes_away_cancels_its_call() {
    let bench = Bench::new("def call(m): pass").ready().await;
    let call = tokio::spawn(bench.call("t"));
    eventually(|| bench.state().calls == 1).await;
    while bench.count("tools/call").await < 2 {}
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let deadline = Instant::now() + Duration::from_secs(10);
    while bench.count("notifications/cancelled").await != 1 {
        assert!(Instant::now() < deadline);
    }
    bench.downstream.stop().await;
}

#[tokio::test]
async fn answers_out_of_order_reach_their_own_calls() {
    let mode = r#"
held = []
def call(m):
    held.append(m)
    if len(held) == 3:
        for x in reversed(held):
            reply(x, text(x["params"]["name"]))"#;
    let bench = Bench::new(mode).ready().await;
    let (a, b, c) = tokio::join!(bench.call("a"), bench.call("b"), bench.call("c"));
    let texts = [a, b, c].map(|answer| text_of(&answer.unwrap()).to_owned());
    assert_eq!(texts, ["a", "b", "c"]);
    bench.downstream.stop().await;
}

#[tokio::test]
async fn requests_of_the_server_are_answered_at_once() {
    for (method, member, expected) in [
        ("ping", "result", json!({})),
        ("elicitation/create", "result", json!({"action": "decline"})),
        ("sampling/createMessage", "error", json!(-32601)),
        ("roots/list", "error", json!(-32601)),
    ] {
        let mode = format!("def call(m): reply(m, {{'structuredContent': ask('{method}')}})");
        let bench = Bench::new(&mode).ready().await;
        let answer = bench.call("t").await.unwrap();
        let got = structured_of(&answer);
        assert_eq!(got["id"], json!("own-1"));
        let got = if member == "error" {
            &got["error"]["code"]
        } else {
            &got["result"]
        };
        assert_eq!(got, &expected, "{method}");
        bench.downstream.stop().await;
    }
}

#[tokio::test]
async fn calls_beyond_the_servers_places_wait_without_using_up_their_limit() {
    let mode = r#"
def call(m):
    time.sleep(0.8)
    reply(m, text("ok"))"#;
    let bench = Bench::with(mode, |config| config.max_concurrent_calls = 1)
        .ready()
        .await;
    // Together they take longer, each by itself much less.
    let limit = Duration::from_secs(4);
    let calls = (0..6).map(|_| tokio::spawn(bench.call_for("t", limit)));
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    bench.downstream.stop().await;
}

#[tokio::test]
async fn a_json_rpc_error_of_any_code_is_no_lost_connection() {
    for code in [-32000, -32603, -1, 7] {
        let mode = format!(
            "def call(m): send({{'jsonrpc': '2.0', 'id': m['id'], 'error': {{'code': {code}, 'message': 'no', 'data': {{'row': 7}}}}}})"
        );
        let bench = Bench::new(&mode).ready().await;
        let error = bench.call("t").await.unwrap_err();
        let expected = CallError::Refused {
            server: "s".into(),
            code,
            message: "no (its data: {\"row\":7})".into(),
            data: Some(Box::new(serde_json::json!({"row": 7}))),
        };
        assert_eq!(error, expected);
        assert_eq!(bench.count("initialize").await, 1);
        bench.downstream.stop().await;
    }
}
