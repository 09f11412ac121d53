//! What a tool call in a program gives or raises.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::{Daemon, Home, Plan, TestResult, party};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        values_go_there_and_back_unchanged,
        an_error_result_is_a_tool_failed,
        wrong_arguments_are_refused_before_they_are_sent,
        a_whole_float_is_sent_as_an_integer,
        what_json_cannot_say_is_refused_in_the_program,
        positional_arguments_are_explained,
        an_unknown_tool_is_a_name_error_with_near_names,
        a_forgotten_await_is_explained,
        a_call_has_a_time_limit_and_is_cancelled_downstream,
        the_budget_is_counted_and_refused_calls_are_recorded,
        no_more_calls_than_allowed_are_in_flight,
        a_result_over_the_limit_fails_its_call_only,
        a_result_that_breaks_its_schema_is_invalid,
        results_are_read_by_the_rules,
        a_server_gets_its_own_environment_and_nothing_else,
        a_secret_a_program_passes_on_stands_in_no_error_and_no_record,
    ]
}

/// Program text that makes a call and prints kind, retryability and a part of the message.
fn caught(call: &str, words: &[&str]) -> String {
    format!(
        "try:\n    print('value', {call})\nexcept ToolError as e:\n    print(e.kind, e.tool, e.server, e.retryable)\n    missing = [w for w in {words:?} if w not in str(e)]\n    print(missing and (missing, str(e)))\n"
    )
}

fn values_go_there_and_back_unchanged() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run(
        r#"
values = {
    "big": 1915883588174806058123, "float": 1.0, "small": -0.5e-7, "text": "007", "no": None,
    "deep": [[{"a": [True, False]}]], "emoji": "🦀\u2028", "": "empty name", "self": 1, "name": 2,
    "tool_name": 3, "code": 4, "arguments": 5, "id": 6, "method": 7, "größe": 8, "max-results": 9,
    "from": 10, "$ref": 11, "a b": 12,
}
back = await mcp__m__echo(**values)
print(back == values, [type(back[k]).__name__ for k in ("big", "float", "text")])
"#,
    );
    assert_eq!(run.printed(), "True ['int', 'float', 'str']");
    Ok(())
}

fn an_error_result_is_a_tool_failed() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run(&caught(
        "await mcp__m__fail(message='the drawer is stuck')",
        &["the drawer is stuck"],
    ));
    assert_eq!(run.printed(), "tool_failed mcp__m__fail m False\n[]");
    let uncaught = client.run("await mcp__m__fail(message='no luck')");
    assert!(uncaught.is_error);
    for word in ["ToolError", "no luck", "mcp__m__fail", "line 1"] {
        assert!(uncaught.text.contains(word), "{word}: {}", uncaught.text);
    }
    let data = client.run(
        r#"
try:
    await mcp__m__raw_result(json='{"content": [], "structuredContent": {"code": 7}, "isError": true}')
except ToolError as e:
    print(e.kind, e.data, len(str(e)) > 10)
"#,
    );
    assert_eq!(data.printed(), "tool_failed {'code': 7} True");
    Ok(())
}

fn wrong_arguments_are_refused_before_they_are_sent() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let cases = [
        ("await mcp__m__add(a=1)", &["b"][..]),
        (
            "await mcp__m__add(a=1, b='2')",
            &["b", "integer", "string"][..],
        ),
        ("await mcp__m__add(a=1, b=2, bb=3)", &["bb", "b"][..]),
        ("await mcp__m__add(a=1, b=0.5)", &["b", "integer"][..]),
        ("await mcp__m__sleep(msec=5)", &["ms"][..]),
    ];
    for (call, words) in cases {
        let run = client.run(&caught(call, words));
        let printed = run.printed();
        assert!(
            printed.starts_with("invalid_arguments mcp__m__"),
            "{call}: {printed}"
        );
        assert!(printed.ends_with("\n[]"), "{call}: {printed}");
    }
    let stats = client.run("print((await mcp__m__stats())['tools/call'])");
    assert_eq!(stats.printed(), "1");
    Ok(())
}

fn a_whole_float_is_sent_as_an_integer() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run("print(await mcp__m__add(a=20.0, b=22))");
    assert_eq!(run.printed(), "{'sum': 42}");
    Ok(())
}

fn what_json_cannot_say_is_refused_in_the_program() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run(
        r"
ring = []
ring.append(ring)
bad = [float('nan'), {'deep': [1, float('inf')]}, ring, 'a\udc80b', {1, 2}, object(), b'x']
for value in bad:
    try:
        await mcp__m__echo(outer={'inner': value})
        print('sent')
    except (ValueError, TypeError) as e:
        print(type(e).__name__, 'outer' in str(e) and 'inner' in str(e))
print((await mcp__m__stats())['tools/call'])
",
    );
    assert_eq!(
        run.printed(),
        "ValueError True\nValueError True\nValueError True\nValueError True\nTypeError True\nTypeError True\nTypeError True\n1"
    );
    Ok(())
}

fn positional_arguments_are_explained() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run("await mcp__m__add(1, 2)");
    assert!(run.is_error);
    for word in ["TypeError", "a=", "b="] {
        assert!(run.text.contains(word), "{word}: {}", run.text);
    }
    Ok(())
}

fn an_unknown_tool_is_a_name_error_with_near_names() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run("await mcp__m__ehco(x=1)");
    assert!(run.is_error);
    assert!(
        run.text.contains("NameError") && run.text.contains("mcp__m__echo"),
        "{}",
        run.text
    );
    let other = client.run("print(undefined_thing)");
    assert!(!other.text.contains("mcp__"), "{}", other.text);
    Ok(())
}

fn a_forgotten_await_is_explained() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let used = client.run("rows = mcp__m__echo(x=1)\nprint(rows['x'])");
    assert!(used.is_error);
    assert!(used.text.contains("await mcp__m__echo"), "{}", used.text);
    let never = client.run("mcp__m__echo(x=1)\nprint('end')");
    assert!(
        never.text.contains("mcp__m__echo") && never.text.contains("await"),
        "{}",
        never.text
    );
    Ok(())
}

fn a_call_has_a_time_limit_and_is_cancelled_downstream() -> TestResult {
    let (_home, _daemon, mut client) =
        party(Plan::new().set("execution.tool_call_timeout_seconds", 1));
    let start = Instant::now();
    let run = client.run(&format!(
        "{}import asyncio\nfor _ in range(100):\n    s = await mcp__m__stats()\n    if s.get('notifications/cancelled'): break\n    await asyncio.sleep(0.05)\nprint(s.get('notifications/cancelled'))",
        caught("await mcp__m__sleep(ms=30000)", &["1", "m"])
    ));
    assert!(start.elapsed() < Duration::from_secs(15));
    let printed = run.printed();
    assert!(printed.starts_with("timeout mcp__m__sleep m "), "{printed}");
    assert!(printed.ends_with("\n[]\n1"), "{printed}");
    Ok(())
}

fn the_budget_is_counted_and_refused_calls_are_recorded() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new().set("execution.max_tool_calls", 3));
    let run = client.run(
        "kinds = []\nfor n in range(5):\n    try:\n        await mcp__m__add(a=n, b=n)\n        kinds.append('ok')\n    except ToolError as e:\n        kinds.append(e.kind)\n        text = str(e)\nprint(kinds, '3' in text)\nprint(len(await list_callable_tools()))",
    );
    assert_eq!(
        run.printed(),
        "['ok', 'ok', 'ok', 'budget_exhausted', 'budget_exhausted'] True\n11"
    );
    assert_eq!(
        run.structured["tool_calls"].as_array().map(Vec::len),
        Some(5)
    );
    let flood = client.run(
        "for n in range(500):\n    try:\n        await mcp__m__add(a=n, b=n)\n    except ToolError:\n        pass",
    );
    let listed = flood.structured["tool_calls"].as_array().map(Vec::len);
    assert_eq!(
        (listed, &flood.structured["tool_calls_omitted"]),
        (Some(6), &json!(494))
    );
    assert_eq!(
        client.run("print(await mcp__m__add(a=1, b=1))").printed(),
        "{'sum': 2}"
    );
    Ok(())
}

fn no_more_calls_than_allowed_are_in_flight() -> TestResult {
    let (_home, _daemon, mut client) = party(
        Plan::new()
            .set("execution.max_concurrent_calls", 2)
            .set("execution.tool_call_timeout_seconds", 2),
    );
    let run = client.run(
        "import asyncio, time\nt = time.monotonic()\nawait asyncio.gather(*[mcp__m__sleep(ms=800) for _ in range(6)])\ntook = time.monotonic() - t\nprint(2.3 < took < 8)",
    );
    // Six calls of 0.8 s, two at a time, take 2.4 s: the wait for a place is not the call's own time.
    assert_eq!(run.printed(), "True");
    Ok(())
}

fn a_result_over_the_limit_fails_its_call_only() -> TestResult {
    let (_home, _daemon, mut client) =
        party(Plan::new().set("execution.max_tool_result_bytes", 10_000));
    let run = client.run(&format!(
        "{}print(len(await mcp__m__big(bytes=9000)))",
        caught("await mcp__m__big(bytes=20000)", &["10000"])
    ));
    assert_eq!(
        run.printed(),
        "result_too_large mcp__m__big m False\n[]\n9000"
    );
    Ok(())
}

fn a_result_that_breaks_its_schema_is_invalid() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &["--bad-sum"]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let before = daemon.server("m").pid;
    let run = client.run(&caught("await mcp__m__add(a=1, b=2)", &["sum"]));
    assert_eq!(run.printed(), "invalid_result mcp__m__add m False\n[]");
    // Bad data from a healthy server never reconnects it.
    assert_eq!(daemon.server("m").pid, before);
    Ok(())
}

fn results_are_read_by_the_rules() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let cases = [
        (r#"{"content": []}"#, "None"),
        (r#"{"content": [{"type": "text", "text": "42"}]}"#, "42"),
        (r#"{"content": [{"type": "text", "text": "007"}]}"#, "'007'"),
        (
            r#"{"content": [{"type": "text", "text": "1.10"}]}"#,
            "'1.10'",
        ),
        (r#"{"content": [{"type": "text", "text": "1e3"}]}"#, "'1e3'"),
        (
            r#"{"content": [{"type": "text", "text": "plain"}]}"#,
            "'plain'",
        ),
        (
            r#"{"content": [{"type": "text", "text": "[1, 2]"}]}"#,
            "[1, 2]",
        ),
        (
            r#"{"content": [{"type": "text", "text": "{\"a\": 1}"}, {"type": "text", "text": "{\"a\": 2}"}]}"#,
            "[{'a': 1}, {'a': 2}]",
        ),
        (
            r#"{"content": [{"type": "text", "text": "{\"a\": 1}"}, {"type": "text", "text": "be careful"}]}"#,
            "{'a': 1, '_notes': ['be careful']}",
        ),
        (
            r#"{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}"#,
            "'a\\nb'",
        ),
        (
            r#"{"content": [], "structuredContent": {"result": [1, 2]}}"#,
            "[1, 2]",
        ),
        (
            r#"{"content": [{"type": "text", "text": "{\"result\": 5}"}], "structuredContent": {"result": 5}}"#,
            "{'result': 5}",
        ),
        (
            r#"{"content": [{"type": "text", "text": "warning"}], "structuredContent": {"n": 18446744073709551616}}"#,
            "{'n': 18446744073709551616, '_notes': ['warning']}",
        ),
        (
            r#"{"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}"#,
            "{'data': None, '_notes': ['[non-text content omitted: image (image/png)]']}",
        ),
        (
            r#"{"content": [{"type": "resource", "resource": {"uri": "x://y", "text": "inside"}}]}"#,
            "'inside'",
        ),
    ];
    for (json, expected) in cases {
        let run = client.run(&format!(
            "print(repr(await mcp__m__raw_result(json={json:?})))"
        ));
        assert_eq!(run.printed(), expected, "{json}");
    }
    Ok(())
}

fn a_server_gets_its_own_environment_and_nothing_else() -> TestResult {
    let home = Home::new(&Plan::new().entry(json!({
        "name": "m",
        "transport": "stdio",
        "command": ptc_tests::programs::program("mock-mcp"),
        "env": {"ONLY_MINE": "yes", "EMPTY": ""},
    })));
    let mut daemon = Daemon::spawn(&home, |command| {
        command.env("SECRET_OF_THE_DAEMON", "must not travel");
    });
    daemon.wait_until_it_answers();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let run = client.run(
        "import os\ne = await mcp__m__env()\nprint(e.get('ONLY_MINE'), repr(e.get('EMPTY')), 'SECRET_OF_THE_DAEMON' in e, 'PATH' in e)\n\
         allowed = {'HOME', 'LOGNAME', 'PATH', 'SHELL', 'TERM', 'USER', 'LANG', 'TMPDIR', 'ONLY_MINE', 'EMPTY'}\n\
         print(sorted(set(e) - allowed))\nprint(dict(os.environ))",
    );
    assert_eq!(run.printed(), "yes '' False True\n[]\n{}");
    Ok(())
}

fn a_secret_a_program_passes_on_stands_in_no_error_and_no_record() -> TestResult {
    let secret = "s3cr3t-value-0123456789";
    let home = Home::new(&Plan::new().entry(json!({
        "name": "m", "command": ptc_tests::programs::program("mock-mcp"),
        "env": {"TOKEN": "${TOKEN_OF_TEST}"},
    })));
    let mut daemon = Daemon::spawn(&home, |command| {
        command.env("TOKEN_OF_TEST", secret);
    });
    daemon.wait_until_it_answers();
    daemon.wait_for("m", ServerState::Ready);
    let run = home.client().run(
        "token = (await mcp__m__env())['TOKEN']\nprint(len(token))\nawait mcp__m__sleep(ms=token)",
    );
    assert!(run.is_error && run.text.contains("23"), "{}", run.text);
    assert!(run.text.contains("<TOKEN_OF_TEST:"), "{}", run.text);
    assert!(!run.result.to_string().contains(secret), "{}", run.result);
    Ok(())
}
