//! Clients of the revision without a handshake, beside those with one.

use std::time::Duration;

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::wait::until;
use ptc_tests::{Client, Direct, Home, PATIENCE, Plan, Run, TestResult};
use rustix::process::Signal;
use serde_json::{Value, json};

pub(super) const MODERN: &str = "2026-07-28";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
pub(super) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        discover_tells_what_initialize_tells,
        discover_decides_nothing,
        a_session_needs_no_handshake,
        the_list_is_the_same_byte_for_byte,
        a_request_that_says_too_little_is_refused,
        other_revisions_are_refused_with_the_one_there_is,
        what_the_revision_has_no_more_is_not_found,
        a_handshake_after_the_opener_is_refused,
        a_legacy_session_stays_legacy,
        a_subscription_is_acknowledged_first_and_ends_with_a_result,
        a_cancelled_subscription_hears_nothing_more,
        the_client_is_shown_by_the_name_it_gives,
    ]
}

/// Parameters with what each request must say of itself.
pub(super) fn with_meta(mut params: Value) -> Value {
    params["_meta"] = json!({VERSION: MODERN, CAPABILITIES: {}});
    params
}

pub(super) fn modern(client: &mut Client, method: &str, params: Value) -> Value {
    client.ask(method, &with_meta(params))
}

pub(super) fn error(client: &mut Client, method: &str, params: &Value) -> Value {
    let id = client.request(method, params);
    let mut answer = client.answer(&id);
    assert!(answer.get("result").is_none(), "{method}: {answer}");
    answer["error"].take()
}

pub(super) fn run(client: &mut Client, code: &str) -> Run {
    let params = json!({"name": "execute_program", "arguments": {"code": code}});
    Run::of(modern(client, "tools/call", params))
}

pub(super) fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .collect();
    keys.sort_unstable();
    keys
}

fn discover_tells_what_initialize_tells() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    let told = modern(&mut client, "server/discover", json!({}));
    assert_eq!(told["supportedVersions"], json!([MODERN]));
    assert_eq!(told["resultType"], "complete");
    assert_eq!(told["cacheScope"], "private");
    assert!(told["ttlMs"].as_u64() > Some(0), "{told}");
    assert!(told["capabilities"]["tools"].is_object(), "{told}");
    let info = json!({"name": "ptcd", "version": ptc_protocol::BUILD});
    assert_eq!(told["_meta"][SERVER_INFO], info);
    let legacy = home.shim().initialize("2025-06-18");
    assert_eq!(told["instructions"], legacy["instructions"]);
    assert_eq!(told["capabilities"], legacy["capabilities"]);
    assert_eq!(legacy["serverInfo"], info);
    assert_eq!(
        keys(&legacy),
        [
            "capabilities",
            "instructions",
            "protocolVersion",
            "serverInfo"
        ]
    );
    Ok(())
}

fn discover_decides_nothing() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    assert_eq!(client.ask("ping", &json!({})), json!({}));
    modern(&mut client, "server/discover", json!({}));
    modern(&mut client, "server/discover", json!({}));
    assert_eq!(client.ask("ping", &json!({})), json!({}));
    let answer = client.initialize("2025-11-25");
    assert_eq!(answer["protocolVersion"], "2025-11-25");
    assert_eq!(client.run("print('legacy')").printed(), "legacy");
    modern(&mut client, "server/discover", json!({}));
    assert_eq!(client.run("print('still')").printed(), "still");
    let mut client = home.shim();
    modern(&mut client, "server/discover", json!({}));
    assert_eq!(run(&mut client, "print('modern')").printed(), "modern");
    Ok(())
}

fn a_session_needs_no_handshake() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.shim();
    let code = "print((await mcp__m__add(a=20, b=22))['sum'])\nemit([1])";
    let done = run(&mut client, code);
    assert!(done.text.contains("\n42\n"), "{}", done.text);
    assert_eq!(done.result["resultType"], "complete");
    assert_eq!(done.result["_meta"][SERVER_INFO]["name"], "ptcd");
    assert_eq!(done.structured["result"], json!([1]));
    let failed = run(&mut client, "1 / 0");
    assert!(failed.is_error);
    assert_eq!(failed.result["resultType"], "complete");
    for (tool, arguments, part) in [
        ("list_callable_tools", json!({}), "mcp__m__add"),
        (
            "inspect_tool",
            json!({"tool_name": "mcp__m__add"}),
            "inputSchema",
        ),
        ("list_callable_tools", Value::Null, "mcp__m__add"),
    ] {
        let params = json!({"name": tool, "arguments": arguments});
        let done = Run::of(modern(&mut client, "tools/call", params));
        assert!(done.text.contains(part), "{tool}: {}", done.text);
        assert_eq!(done.result["resultType"], "complete", "{tool}");
    }
    Ok(())
}

fn the_list_is_the_same_byte_for_byte() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &["--slow-init", "800"]));
    let daemon = home.daemon();
    let list = |client: &mut Client| modern(client, "tools/list", json!({})).to_string();
    let mut first = home.shim();
    let early = list(&mut first);
    daemon.wait_for("m", ServerState::Ready);
    run(&mut first, "print(await list_callable_tools())");
    assert_eq!(list(&mut first), early);
    assert_eq!(list(&mut home.shim()), early);
    let value: Value = serde_json::from_str(&early)?;
    assert_eq!(
        keys(&value),
        ["_meta", "cacheScope", "resultType", "tools", "ttlMs"]
    );
    assert_eq!(
        (&value["resultType"], &value["cacheScope"]),
        (&json!("complete"), &json!("private"))
    );
    assert!(value["ttlMs"].as_u64() > Some(0), "{value}");
    let legacy = home.client().ask("tools/list", &json!({}));
    assert_eq!(keys(&legacy), ["tools"]);
    assert_eq!(legacy["tools"].to_string(), value["tools"].to_string());
    let cursor = error(&mut first, "tools/list", &with_meta(json!({"cursor": "x"})));
    assert_eq!(cursor["code"], -32602);
    Ok(())
}

fn a_request_that_says_too_little_is_refused() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    let call = json!({"name": "execute_program", "arguments": {"code": "print(1)"}});
    let refused = |client: &mut Client| {
        for meta in [
            Value::Null,
            json!({}),
            json!({VERSION: MODERN}),
            json!({CAPABILITIES: {}}),
            json!({VERSION: 7, CAPABILITIES: {}}),
            json!({VERSION: MODERN, CAPABILITIES: "none"}),
        ] {
            let mut params = call.clone();
            if !meta.is_null() {
                params["_meta"] = meta.clone();
            }
            let fault = error(client, "tools/call", &params);
            assert_eq!(fault["code"], -32602, "{meta}: {fault}");
            let text = fault["message"].as_str().unwrap_or_default();
            assert!(text.contains("io.modelcontextprotocol/"), "{meta}: {fault}");
        }
    };
    refused(&mut client);
    assert_eq!(run(&mut client, "print('now')").printed(), "now");
    refused(&mut client);
    Ok(())
}

fn other_revisions_are_refused_with_the_one_there_is() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    for round in 0..2 {
        for version in ["2025-11-25", "2031-01-01", ""] {
            for method in ["server/discover", "tools/list"] {
                let params = json!({"_meta": {VERSION: version, CAPABILITIES: {}}});
                let fault = error(&mut client, method, &params);
                assert_eq!(fault["code"], -32022, "{round} {method} {fault}");
                let data = json!({"supported": [MODERN], "requested": version});
                assert_eq!(fault["data"], data, "{round} {method}");
            }
        }
        modern(&mut client, "tools/list", json!({}));
    }
    Ok(())
}

fn what_the_revision_has_no_more_is_not_found() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    for round in 0..2 {
        for method in [
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
            "prompts/get",
            "completion/complete",
            "tasks/list",
            "no/such",
        ] {
            let fault = error(&mut client, method, &with_meta(json!({})));
            assert_eq!(fault["code"], -32601, "{round} {method} {fault}");
        }
        let params = with_meta(json!({"name": "no_such_tool", "arguments": {}}));
        let fault = error(&mut client, "tools/call", &params);
        assert_eq!(fault["code"], -32602, "{fault}");
    }
    assert_eq!(error(&mut client, "ping", &json!({}))["code"], -32601);
    Ok(())
}

fn a_handshake_after_the_opener_is_refused() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    run(&mut client, "print('opened')");
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "late", "version": "0"},
    });
    let fault = error(&mut client, "initialize", &params);
    assert_eq!(fault["code"], -32022);
    assert_eq!(
        fault["data"],
        json!({"supported": [MODERN], "requested": "2025-11-25"})
    );
    assert_eq!(run(&mut client, "print('on')").printed(), "on");
    Ok(())
}

fn a_legacy_session_stays_legacy() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    for revision in [
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        MODERN,
    ] {
        let mut client = home.shim();
        let agreed = client.initialize(revision)["protocolVersion"].clone();
        assert_ne!(agreed, MODERN);
        for meta in [
            json!({}),
            json!({VERSION: MODERN, CAPABILITIES: {}}),
            json!({VERSION: "x"}),
        ] {
            let list = client.ask("tools/list", &json!({"_meta": meta}));
            assert_eq!(keys(&list), ["tools"], "{revision} {meta}");
            let params = json!({
                "name": "execute_program", "arguments": {"code": "print(7)"}, "_meta": meta,
            });
            let done = client.ask("tools/call", &params);
            assert_eq!(
                keys(&done),
                ["content", "isError", "structuredContent"],
                "{revision} {meta}"
            );
            assert!(done["structuredContent"].is_object());
        }
        let fault = error(
            &mut client,
            "subscriptions/listen",
            &json!({"notifications": {}}),
        );
        assert_eq!(fault["code"], -32601, "{revision}");
    }
    Ok(())
}

fn a_subscription_is_acknowledged_first_and_ends_with_a_result() -> TestResult {
    let home = Home::new(&Plan::new());
    let mut daemon = home.daemon();
    let mut client = Direct::open(&home, 1);
    for id in [json!("s-1"), json!(1.5)] {
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["file:///x"]});
        let params = with_meta(json!({"notifications": filter}));
        let method = "subscriptions/listen";
        client.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let first = client.line().unwrap_or_default();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(first["params"]["_meta"][SUBSCRIPTION], id);
        // Nothing that is offered changes under a client.
        assert_eq!(first["params"]["notifications"], json!({}));
    }
    let list = client.ask(&json!(2), "tools/list", &with_meta(json!({})));
    assert!(list["result"]["tools"].is_array(), "{list}");
    daemon.signal(Signal::TERM);
    let mut ended = Vec::new();
    while let Some(line) = client.line() {
        assert_eq!(line["result"]["resultType"], "complete", "{line}");
        assert_eq!(line["result"]["_meta"][SUBSCRIPTION], line["id"], "{line}");
        ended.push(line["id"].to_string());
    }
    ended.sort();
    assert_eq!(ended, ["\"s-1\"", "1.5"]);
    assert!(daemon.wait(PATIENCE).success());
    Ok(())
}

fn a_cancelled_subscription_hears_nothing_more() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut client = home.shim();
    let id = client.request(
        "subscriptions/listen",
        &with_meta(json!({"notifications": {}})),
    );
    run(&mut client, "print('acknowledged')");
    client.cancel(&id);
    run(&mut client, "print('cancelled')");
    daemon.stop();
    assert!(!client.has_answer(&id));
    let methods: Vec<_> = client.notices.iter().map(|n| n["method"].clone()).collect();
    assert_eq!(methods, ["notifications/subscriptions/acknowledged"]);
    Ok(())
}

fn the_client_is_shown_by_the_name_it_gives() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut client = home.shim();
    let mut params = with_meta(json!({}));
    params["_meta"]["io.modelcontextprotocol/clientInfo"] =
        json!({"name": "editor", "version": "1"});
    client.ask("server/discover", &params);
    until("it is shown", Duration::from_secs(10), || {
        daemon
            .status()
            .clients
            .iter()
            .any(|client| client.name == "editor")
    });
    Ok(())
}
