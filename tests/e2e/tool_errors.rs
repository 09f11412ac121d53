//! Every kind of `ToolError` with all its fields, and results of tens of megabytes.

use std::time::Duration;

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::{Client, Daemon, Home, Plan, TestResult, party_of};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        each_kind_has_all_its_fields,
        each_kind_that_a_server_causes_has_all_its_fields,
        a_server_that_does_not_come_back_is_unavailable,
        a_call_in_flight_at_the_end_is_cancelled,
        an_unknown_argument_is_named_where_the_call_fails,
        duplicate_keys_reach_no_server,
        large_results_arrive_whole,
        large_results_are_bounded_by_the_limit,
    ]
}

/// Program text that makes a call and prints what it raises.
fn caught(call: &str) -> String {
    format!(
        "try:\n    print('value', {call})\nexcept ToolError as e:\n    print((e.kind, e.tool, e.server, e.retryable, e.data))\n    print(e)\n"
    )
}

/// Makes one call; asserts the fields as Python shows them, and words of the message.
#[track_caller]
fn assert_raises(plan: &Plan, before: &str, call: &str, fields: &str, words: &[&str]) {
    let (_home, daemon, mut client) = party_of(plan);
    let pid = daemon.server("m").pid;
    let run = client.run(&format!("{before}{}", caught(call)));
    let (head, message) = run.printed().split_once('\n').unwrap_or_default();
    assert_eq!(head, fields, "{}", run.text);
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message}");
    }
    if !fields.starts_with("('connection_lost'") {
        assert_eq!(daemon.server("m").pid, pid, "{fields}: it was reconnected");
    }
}

fn each_kind_has_all_its_fields() -> TestResult {
    let plain = || Plan::new().server("m", &[]);
    assert_raises(
        &plain(),
        "",
        "await inspect_tool(tool_name='mcp__m__ecko')",
        "('unknown_tool', 'mcp__m__ecko', None, False, None)",
        &[
            "no tool can be called by the name",
            "did you mean mcp__m__echo?",
        ],
    );
    assert_raises(
        &plain(),
        "",
        "await mcp__m__add(a=1, b='2')",
        "('invalid_arguments', 'mcp__m__add', 'm', False, {'problems': [{'path': 'b', 'found': 'a string (\"2\")', 'required': 'integer', 'nearest': None}]})",
        &[
            "server m was not called",
            "write b=2",
            "signature: mcp__m__add(a: integer, b: integer)",
        ],
    );
    assert_raises(
        &plain().set("execution.max_tool_calls", 1),
        "await mcp__m__echo()\n",
        "await mcp__m__echo()",
        "('budget_exhausted', 'mcp__m__echo', None, False, None)",
        &["was not called", "1"],
    );
    assert_raises(
        &plain().set("execution.tool_call_timeout_seconds", 1),
        "",
        "await mcp__m__sleep(ms=60000)",
        "('timeout', 'mcp__m__sleep', 'm', False, None)",
        &[
            "server m did not answer within 1 s",
            "may have acted",
            "tool_call_timeout_seconds",
        ],
    );
    assert_raises(
        &plain(),
        "",
        "await mcp__m__fail(message='no paper')",
        "('tool_failed', 'mcp__m__fail', 'm', False, None)",
        &["server m answered with an error: no paper"],
    );
    Ok(())
}

fn each_kind_that_a_server_causes_has_all_its_fields() -> TestResult {
    assert_raises(
        &Plan::new().server("m", &["--lie"]),
        "",
        "await mcp__m__echo()",
        "('protocol', 'mcp__m__echo', 'm', False, None)",
        &["a result and an error both", "the connection goes on"],
    );
    assert_raises(
        &Plan::new().server("m", &["--bad-sum"]),
        "",
        "await mcp__m__add(a=1, b=2)",
        "('invalid_result', 'mcp__m__add', 'm', False, {'problems': [{'path': 'sum', 'found': 'a string (\"many\")', 'required': 'integer', 'nearest': None}]})",
        &[
            "does not fit the output schema",
            "member `sum` must be an integer, got a string (\"many\")",
        ],
    );
    assert_raises(
        &Plan::new()
            .server("m", &[])
            .set("execution.max_tool_result_bytes", 5000),
        "",
        "await mcp__m__big(bytes=6000)",
        "('result_too_large', 'mcp__m__big', 'm', False, None)",
        &["6002 bytes", "5000", "ask for less"],
    );
    assert_raises(
        &Plan::new().server("m", &["--die-mid-call"]),
        "",
        "await mcp__m__echo()",
        "('connection_lost', 'mcp__m__echo', 'm', False, None)",
        &[
            "the connection to server m was lost",
            "exit code 9",
            "not sent again",
        ],
    );
    Ok(())
}

fn a_server_that_does_not_come_back_is_unavailable() -> TestResult {
    let home = Home::new(&Plan::new());
    let once = home.path("once").display().to_string();
    let mock = ptc_tests::programs::program("mock-mcp");
    // The second start never answers.
    let script = format!(
        "test -e '{once}' && exec '{0}' --no-init; touch '{once}'; exec '{0}' --die-mid-call",
        mock.display()
    );
    home.write_config(
        &Plan::new()
            .entry(json!({"name": "m", "command": "/bin/sh", "args": ["-c", script]}))
            .set("execution.tool_call_timeout_seconds", 1)
            .text(),
    );
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let run = home.client().run(&format!(
        "try:\n    await mcp__m__echo()\nexcept ToolError as e:\n    print(e.kind)\n{}",
        caught("await mcp__m__echo(n=2)")
    ));
    let printed = run.printed();
    let head = "connection_lost\n('unavailable', 'mcp__m__echo', 'm', True, None)\n";
    assert!(printed.starts_with(head), "{printed}");
    for word in [
        "server m",
        "reconnecting",
        "nothing was sent",
        "try again later",
    ] {
        assert!(printed.contains(word), "{word:?} is not in {printed}");
    }
    Ok(())
}

fn a_call_in_flight_at_the_end_is_cancelled() -> TestResult {
    let (_home, _daemon, mut client) = party_of(&Plan::new().server("m", &[]));
    let run = client.run(
        "import asyncio\nwaits = asyncio.ensure_future(mcp__m__sleep(ms=60000))\nawait asyncio.sleep(0)\nwhile not (await mcp__m__stats()).get('tools/call', 0) >= 2:\n    pass\nprint('end')",
    );
    assert_eq!(run.printed().lines().next(), Some("end"));
    let calls = run.structured["tool_calls"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let cut: Vec<&Value> = calls
        .iter()
        .filter(|call| call["tool"] == "mcp__m__sleep")
        .collect();
    assert_eq!(cut.len(), 1, "{calls:?}");
    assert_eq!(cut[0]["ok"], false);
    let error = cut[0]["error"].as_str().unwrap_or_default();
    assert!(error.contains("cancelled"), "{error}");
    Ok(())
}

fn an_unknown_argument_is_named_where_the_call_fails() -> TestResult {
    let home = Home::new(&Plan::new());
    let limit = json!({"type": "object", "properties": {"limit": {"type": "integer"}, "query": {"type": "string"}}});
    let tool = |name: &str, schema: &Value| json!({"name": name, "inputSchema": schema});
    let failed = r#""result":{"isError":true,"content":[{"type":"text","text":"nothing found"}]}"#;
    let script = json!({
        "tools": [
            tool("fails", &limit), tool("refuses", &limit), tool("works", &limit),
            tool("open", &json!({"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}})),
            tool("any", &json!({})),
        ],
        "answers": {
            "fails": failed, "open": failed, "any": failed,
            "refuses": r#""error":{"code":-32602,"message":"bad params"}"#,
        },
    });
    let script = home.write("script.json", &script.to_string());
    home.write_config(
        &Plan::new()
            .server("m", &["--script", script.to_str().unwrap_or_default()])
            .text(),
    );
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    for (call, words) in [
        (
            "await mcp__m__fails(limits=3)",
            &[
                "('tool_failed',",
                "nothing found",
                "note: unknown argument `limits`: did you mean `limit`?",
            ][..],
        ),
        (
            "await mcp__m__fails(query='q', colour=1)",
            &["note: unknown argument `colour`: it takes limit, query"],
        ),
        (
            "await mcp__m__refuses(qury='q')",
            &[
                "('protocol',",
                "error -32602: bad params",
                "did you mean `query`?",
            ],
        ),
        ("await mcp__m__works(limits=3)", &["value {'tool': 'works'"]),
    ] {
        let run = client.run(&caught(call));
        for word in words {
            assert!(
                run.printed().contains(word),
                "{word:?} is not in {}",
                run.text
            );
        }
    }
    for call in [
        "await mcp__m__fails(limit=3)",
        "await mcp__m__open(b=3)",
        "await mcp__m__any(b=3)",
    ] {
        let run = client.run(&caught(call));
        assert!(!run.printed().contains("note:"), "{}", run.text);
    }
    Ok(())
}

fn duplicate_keys_reach_no_server() -> TestResult {
    let (_home, _daemon, mut client) = party_of(&Plan::new().server("m", &[]));
    // Two keys that are one as JSON text are refused in the program already.
    let run = client.run(
        "try: await mcp__m__echo(outer={1: 'a', '1': 'b'})\nexcept ValueError as e: print(e)\n\
         print((await mcp__m__stats())['tools/call'])",
    );
    let printed = run.printed();
    assert_eq!(
        printed,
        "arguments.outer has the keys 1 and '1', which are one key in JSON: keep one of them\n1"
    );
    Ok(())
}

/// A server of large results, with limits that let them pass.
fn large(max_result_bytes: u64) -> (Home, Daemon, Client) {
    let home = Home::new(&Plan::new());
    let script = json!({"tools": [{"name": "rows"}, {"name": "big"}]});
    let script = home.write("script.json", &script.to_string());
    home.write_config(
        &Plan::new()
            .server("m", &["--script", script.to_str().unwrap_or_default()])
            .set("execution.max_tool_result_bytes", max_result_bytes)
            .set("execution.memory_bytes", 1_500_000_000_u64)
            .set("execution.timeout_seconds", 300)
            .set("execution.tool_call_timeout_seconds", 280)
            .text(),
    );
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let client = home.client();
    (home, daemon, client)
}

fn large_results_arrive_whole() -> TestResult {
    let (_home, _daemon, mut client) = large(48 * 1024 * 1024);
    for mebibytes in [10, 40] {
        let id = client.start_run(&format!(
            r#"
count = {mebibytes} * 1024
text = await mcp__m__big(bytes=count * 1024)
print(len(text) == count * 1024, text.strip('x') == '')
del text
rows = (await mcp__m__rows(count=count))['rows']
words = 'äöü €\n"' * 70
print([row['n'] for row in rows] == list(range(count)), all(row['words'] == words for row in rows))
"#
        ));
        let mut answer = client.answer_within(&id, Duration::from_mins(5));
        let run = ptc_tests::Run::of(answer["result"].take());
        assert_eq!(run.printed(), "True True\nTrue True", "{mebibytes}");
    }
    Ok(())
}

fn large_results_are_bounded_by_the_limit() -> TestResult {
    let (_home, _daemon, mut client) = large(2 * 1024 * 1024);
    let run = client.run(&format!(
        "{}print(len(await mcp__m__big(bytes=2 * 1024 * 1024 - 2)))",
        caught("await mcp__m__big(bytes=2 * 1024 * 1024 - 1)")
    ));
    let printed = run.printed();
    assert!(printed.starts_with("('result_too_large',"), "{printed}");
    // Counted as JSON, with its quotes.
    assert!(printed.contains("2097153 bytes"), "{printed}");
    assert!(printed.ends_with("\n2097150"), "{printed}");
    Ok(())
}
