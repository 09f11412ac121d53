//! `list_callable_tools` and `inspect_tool`, from outside and from within a program.

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::{Home, PATIENCE, Plan, TestResult, eventually};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        the_list_is_sorted_and_names_what_is_missing,
        the_tools_of_a_server_that_is_gone_are_not_listed,
        allow_and_block_decide_what_exists,
        inspect_tool_gives_name_description_and_schemas,
        inspect_tool_says_near_names_for_an_unknown_one,
        bad_arguments_to_our_tools_are_refused_and_nothing_runs,
        the_helpers_in_a_program_say_the_same,
    ]
}

const TOOLS: [&str; 11] = [
    "mcp__m__add",
    "mcp__m__big",
    "mcp__m__cwd",
    "mcp__m__echo",
    "mcp__m__env",
    "mcp__m__fail",
    "mcp__m__figures",
    "mcp__m__pid",
    "mcp__m__raw_result",
    "mcp__m__sleep",
    "mcp__m__stats",
];

fn the_list_is_sorted_and_names_what_is_missing() -> TestResult {
    let home = Home::new(
        &Plan::new()
            .server("m", &[])
            .server("broken-one", &["--exit-at-start", "3"]),
    );
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let listed = eventually("the broken server has a reason", PATIENCE, || {
        let listed = client.call("list_callable_tools", &json!({}));
        let reason = listed.structured["unavailable"]["broken-one"].clone();
        reason
            .as_str()
            .is_some_and(|reason| reason.contains("licence"))
            .then_some(listed)
    });
    assert!(!listed.is_error);
    assert_eq!(serde_json::from_str::<Value>(&listed.text)?, json!(TOOLS));
    assert_eq!(listed.structured["tools"], json!(TOOLS));
    let second = listed.result["content"][1]["text"]
        .as_str()
        .unwrap_or_default();
    assert!(second.contains("broken-one"), "{}", listed.result);
    Ok(())
}

fn the_tools_of_a_server_that_is_gone_are_not_listed() -> TestResult {
    let home = Home::new(
        &Plan::new()
            .server("m", &["--die-mid-call"])
            .server("n", &[]),
    );
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    daemon.wait_for("n", ServerState::Ready);
    let mut client = home.client();
    let listed = client.run(
        "before = await list_callable_tools()\n\
         try:\n    await mcp__m__echo(a=1)\nexcept ToolError as e:\n    print(e.kind)\n\
         after = await list_callable_tools()\n\
         print(any('__m__' in n for n in before), any('__m__' in n for n in after), any('__n__' in n for n in after))",
    );
    assert_eq!(listed.printed(), "connection_lost\nTrue False True");
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(
        client.call("list_callable_tools", &json!({})).structured["tools"]
            .as_array()
            .map(Vec::len),
        Some(22)
    );
    Ok(())
}

fn allow_and_block_decide_what_exists() -> TestResult {
    let allowed = Home::new(
        &Plan::new()
            .server("m", &[])
            .set("tools.allow", json!(["mcp__m__[ae]*", "mcp__m__pi?"])),
    );
    let daemon = allowed.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = allowed.client();
    assert_eq!(
        client.call("list_callable_tools", &json!({})).structured["tools"],
        json!(["mcp__m__add", "mcp__m__echo", "mcp__m__env", "mcp__m__pid"])
    );
    let denied = client.run("await mcp__m__big(bytes=1)");
    assert!(denied.is_error);
    assert!(denied.text.contains("NameError"), "{}", denied.text);
    assert!(denied.text.contains("tools.allow"), "{}", denied.text);
    drop(client);
    drop(daemon);
    let none = Home::new(&Plan::new().server("m", &[]).set("tools.allow", json!([])));
    let daemon = none.daemon();
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(
        none.client()
            .call("list_callable_tools", &json!({}))
            .structured["tools"],
        json!([])
    );
    drop(daemon);
    let blocked = Home::new(
        &Plan::new()
            .server("m", &[])
            .set("tools.block", json!(["mcp__m__*", "*sleep"])),
    );
    let daemon = blocked.daemon();
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(
        blocked
            .client()
            .call("list_callable_tools", &json!({}))
            .structured["tools"],
        json!([])
    );
    Ok(())
}

fn inspect_tool_gives_name_description_and_schemas() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let add = client.call("inspect_tool", &json!({"tool_name": "mcp__m__add"}));
    let add: Value = serde_json::from_str(&add.text)?;
    assert_eq!(add["name"], "mcp__m__add");
    assert_eq!(add["description"], "Adds two integers.");
    assert_eq!(add["inputSchema"]["required"], json!(["a", "b"]));
    assert_eq!(add["outputSchema"]["required"], json!(["sum"]));
    let echo = client.call("inspect_tool", &json!({"tool_name": "mcp__m__echo"}));
    assert!(!echo.is_error);
    let echo: Value = serde_json::from_str(&echo.text)?;
    assert_eq!(echo.get("outputSchema"), Some(&Value::Null));
    assert!(echo["note"].is_string(), "{echo}");
    Ok(())
}

fn inspect_tool_says_near_names_for_an_unknown_one() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    for name in ["mcp__m__ecko", "echo", "mcp__m__Echo"] {
        let unknown = client.call("inspect_tool", &json!({"tool_name": name}));
        assert!(unknown.is_error);
        assert!(unknown.text.contains(name), "{}", unknown.text);
        assert!(unknown.text.contains("mcp__m__echo"), "{}", unknown.text);
        let named = TOOLS
            .iter()
            .filter(|tool| unknown.text.contains(**tool))
            .count();
        assert!(named <= 3, "{}", unknown.text);
    }
    Ok(())
}

fn bad_arguments_to_our_tools_are_refused_and_nothing_runs() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let cases = [
        ("execute_program", json!({}), "code", "string"),
        ("execute_program", json!({"code": null}), "code", "string"),
        ("execute_program", json!({"code": 5}), "code", "string"),
        (
            "execute_program",
            json!({"code": ["print(1)"]}),
            "code",
            "string",
        ),
        (
            "execute_program",
            json!({"code": "await mcp__m__echo()", "timeout": 5}),
            "timeout",
            "code",
        ),
        ("inspect_tool", json!({}), "tool_name", "string"),
        (
            "inspect_tool",
            json!({"tool_name": 7}),
            "tool_name",
            "string",
        ),
        (
            "inspect_tool",
            json!({"name": "mcp__m__echo"}),
            "name",
            "tool_name",
        ),
        ("list_callable_tools", json!({"filter": "x"}), "filter", ""),
    ];
    for (tool, arguments, path, required) in cases {
        let id = client.request("tools/call", &json!({"name": tool, "arguments": arguments}));
        let answer = client.answer(&id);
        let text = answer["error"]["message"]
            .as_str()
            .or(answer["result"]["content"][0]["text"].as_str())
            .unwrap_or_default();
        let refused = answer.get("error").is_some() || answer["result"]["isError"] == json!(true);
        assert!(refused, "{tool} {arguments}: {answer}");
        assert!(
            text.contains(path) && text.contains(required),
            "{tool} {arguments}: {text}"
        );
    }
    let id = client.request(
        "tools/call",
        &json!({"name": "execute_program", "arguments": [1]}),
    );
    assert!(client.answer(&id).get("error").is_some());
    let counts = client.run("s = await mcp__m__stats()\nprint(s['tools/call'])");
    assert_eq!(counts.printed(), "1");
    assert_eq!(daemon.status().totals.runs, 1);
    Ok(())
}

fn the_helpers_in_a_program_say_the_same() -> TestResult {
    let home = Home::new(
        &Plan::new()
            .server("m", &[])
            .server("gone", &["--exit-at-start", "1"]),
    );
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let run = client.run(
        "import json\n\
         names = await list_callable_tools()\n\
         print(len(names), names[0])\n\
         print((await inspect_tool(tool_name='mcp__m__add'))['inputSchema']['required'])\n\
         s = await server_status()\n\
         print(s['m']['connected'], s['m']['tools'], s['gone']['connected'], bool(s['gone']['error']))\n\
         try:\n    await inspect_tool(tool_name='mcp__m__ad')\n\
         except ToolError as e:\n    print(e.kind, 'mcp__m__add' in str(e))",
    );
    assert_eq!(
        run.printed(),
        "11 mcp__m__add\n['a', 'b']\nTrue 11 False True\nunknown_tool True"
    );
    assert_eq!(run.structured["tool_calls"], json!([]));
    assert!(!run.text.contains("[tool calls"), "{}", run.text);
    Ok(())
}
