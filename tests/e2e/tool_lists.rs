//! What becomes of whole lists of tools: names that stay, rules that hide, oddities that cost nothing.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::{Daemon, Home, Plan, TestResult};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_name_once_given_stays_and_a_newcomer_takes_the_suffix,
        a_broken_file_of_names_is_set_aside_with_a_word_in_status,
        names_the_rule_could_not_have_given_do_not_count,
        allow_takes_the_exact_name_and_block_the_plain_one_too,
        of_a_tool_listed_twice_the_first_counts_and_status_says_so,
        a_malformed_tool_costs_no_other,
        eight_hundred_tools_start_soon_and_no_call_lists_them_again,
        nothing_is_fetched_for_a_schema,
    ]
}

/// Starts a daemon in `home` whose server `s` lists these tools.
fn start(home: &Home, plan: Plan, tools: &Value) -> Daemon {
    let script = home.write("script.json", &json!({"tools": tools}).to_string());
    let script = script.to_str().unwrap_or_default();
    home.write_config(&plan.server("s", &["--script", script]).text());
    let daemon = home.daemon();
    daemon.wait_for("s", ServerState::Ready);
    daemon
}

fn named(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

/// Each callable name and the tool a call of it reaches.
fn reached(home: &Home) -> anyhow::Result<Vec<(String, String)>> {
    let mut client = home.client();
    let listed = client.call("list_callable_tools", &json!({}));
    let names: Vec<String> = serde_json::from_value(listed.structured["tools"].clone())?;
    let reached = names.into_iter().map(|name| {
        let run = client.run(&format!("emit((await {name}())['tool'])"));
        let tool = run.structured["result"].as_str();
        (name, tool.unwrap_or(&run.text).to_owned())
    });
    Ok(reached.collect())
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(name, tool)| ((*name).to_owned(), (*tool).to_owned()))
        .collect()
}

const GIVEN: [(&str, &str); 2] = [("mcp__s__x_y", "x.y"), ("mcp__s__z", "z")];
const LATER: [(&str, &str); 3] = [
    ("mcp__s__x_y", "x.y"),
    ("mcp__s__x_y_8f47", "x_y"),
    ("mcp__s__z", "z"),
];

fn a_name_once_given_stays_and_a_newcomer_takes_the_suffix() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = start(&home, Plan::new(), &named(&["x.y", "z"]));
    assert_eq!(reached(&home)?, pairs(&GIVEN));
    daemon.stop();
    let daemon = start(&home, Plan::new(), &named(&["x_y", "x.y", "z"]));
    assert_eq!(reached(&home)?, pairs(&LATER));
    daemon.stop();
    // Gone and come back, it is still the one it was.
    let daemon = start(&home, Plan::new(), &named(&["x_y"]));
    assert_eq!(reached(&home)?, pairs(&LATER[1..2]));
    daemon.stop();
    Ok(())
}

fn a_broken_file_of_names_is_set_aside_with_a_word_in_status() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = start(&home, Plan::new(), &named(&["x.y", "z"]));
    assert_eq!(reached(&home)?, pairs(&GIVEN));
    daemon.stop();
    let file = home.state().join("names.json");
    let kept = std::fs::read_to_string(&file)?;
    assert!(kept.contains("mcp__s__x_y"), "{kept}");
    std::fs::write(&file, "{\"version\":1,\"trusted\":true}\n[\"s\", oops\n")?;
    let daemon = start(&home, Plan::new(), &named(&["x.y", "x_y", "z"]));
    // Nobody has the name that two may have had before.
    let names: Vec<String> = reached(&home)?.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 3);
    assert!(names.iter().all(|name| name != "mcp__s__x_y"), "{names:?}");
    assert!(names.iter().any(|name| name == "mcp__s__z"), "{names:?}");
    let notes = daemon.status().programs.notes.join("\n");
    assert!(
        notes.contains("line 2") && notes.contains("set aside as"),
        "{notes}"
    );
    let (code, out, _) = home.ctl(&["status"]);
    assert_eq!(code, 0);
    assert!(out.contains("set aside as"), "{out}");
    let aside = std::fs::read_to_string(file.with_extension("broken"))?;
    assert!(aside.ends_with("oops\n"), "{aside}");
    daemon.stop();
    Ok(())
}

fn names_the_rule_could_not_have_given_do_not_count() -> TestResult {
    let home = Home::new(&Plan::new());
    start(&home, Plan::new(), &named(&["z"])).stop();
    let file = home.state().join("names.json");
    std::fs::write(
        &file,
        "{\"version\":1,\"trusted\":true}\n[\"s\",\"drop\",\"mcp__s__read\"]\n[\"s\",\"z\",\"mcp__s__z\"]\n",
    )?;
    let daemon = start(&home, Plan::new(), &named(&["drop", "read", "z"]));
    assert_eq!(
        reached(&home)?,
        pairs(&[
            ("mcp__s__drop", "drop"),
            ("mcp__s__read", "read"),
            ("mcp__s__z", "z")
        ])
    );
    let notes = daemon.status().programs.notes.join("\n");
    assert!(notes.contains("do not count"), "{notes}");
    daemon.stop();
    Ok(())
}

fn allow_takes_the_exact_name_and_block_the_plain_one_too() -> TestResult {
    let tools = named(&["a-b", "a_b", "c-d", "c.d", "e"]);
    for (list, globs, left) in [
        (
            "tools.allow",
            json!(["mcp__s__a_b", "mcp__s__c_d"]),
            &["a_b"][..],
        ),
        ("tools.allow", json!(["mcp__s__a_b_*"]), &["a-b"]),
        ("tools.allow", json!(["mcp__s__c_d_????"]), &["c-d", "c.d"]),
        ("tools.block", json!(["mcp__s__a_b", "mcp__s__c_d"]), &["e"]),
        (
            "tools.block",
            json!(["mcp__s__a_b_*", "mcp__s__E"]),
            &["a_b", "c-d", "c.d", "e"],
        ),
    ] {
        let home = Home::new(&Plan::new());
        let _daemon = start(&home, Plan::new().set(list, globs.clone()), &tools);
        let mut got: Vec<String> = reached(&home)?.into_iter().map(|(_, tool)| tool).collect();
        got.sort();
        assert_eq!(got, left, "{list}: {globs}");
    }
    Ok(())
}

fn of_a_tool_listed_twice_the_first_counts_and_status_says_so() -> TestResult {
    let home = Home::new(&Plan::new());
    let twice = |name: &str, key: &str| json!({"name": name, "inputSchema": {"type": "object", "properties": {key: {}}}});
    let tools = json!([twice("t", "first"), twice("t", "second"), twice("u", "x")]);
    let daemon = start(&home, Plan::new(), &tools);
    assert_eq!(
        reached(&home)?,
        pairs(&[("mcp__s__t", "t"), ("mcp__s__u", "u")])
    );
    let shown = home
        .client()
        .call("inspect_tool", &json!({"tool_name": "mcp__s__t"}));
    let shown: Value = serde_json::from_str(&shown.text)?;
    assert_eq!(shown["inputSchema"]["properties"], json!({"first": {}}));
    let server = daemon.server("s");
    assert_eq!(server.tools, Some(2));
    assert_eq!(
        server.notes,
        ["the tool \"t\" is listed twice; the first one counts"]
    );
    let log = std::fs::read_to_string(home.daemon_log())?;
    let warned = log
        .lines()
        .filter(|line| line.contains("WARN") && line.contains("listed twice"));
    assert_eq!(warned.count(), 1, "{log}");
    Ok(())
}

fn a_malformed_tool_costs_no_other() -> TestResult {
    let home = Home::new(&Plan::new());
    let tools = json!([
        7, null, {}, {"name": ""}, {"name": 5}, {"name": "n".repeat(2000)},
        {"name": "bare"}, {"name": "odd", "inputSchema": [], "outputSchema": "x", "description": {}},
    ]);
    let daemon = start(&home, Plan::new(), &tools);
    assert_eq!(
        reached(&home)?,
        pairs(&[("mcp__s__bare", "bare"), ("mcp__s__odd", "odd")])
    );
    let notes = daemon.server("s").notes;
    assert_eq!(notes.len(), 8, "{notes:?}");
    Ok(())
}

fn eight_hundred_tools_start_soon_and_no_call_lists_them_again() -> TestResult {
    let home = Home::new(&Plan::new());
    let mut tools: Vec<Value> = (0..800)
        .map(|n| {
            json!({"name": format!("op-{n}"), "description": "d".repeat(900), "inputSchema": {
                "type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}},
            }})
        })
        .collect();
    tools.push(json!({"name": "stats"}));
    let begun = Instant::now();
    let _daemon = start(&home, Plan::new(), &json!(tools));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    let run = home.client().run(
        "names = await list_callable_tools()\n\
         for n in range(50):\n    await mcp__s__op_799(id=str(n))\n\
         s = await mcp__s__stats()\nprint(len(names), s['tools/list'], s['tools/call'])",
    );
    assert_eq!(run.printed(), "801 1 51");
    Ok(())
}

/// Schemas that name addresses are compiled, checked and shown; the listener behind the addresses sees nobody.
fn nothing_is_fetched_for_a_schema() -> TestResult {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = format!("http://{}/schema.json", listener.local_addr()?);
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    std::thread::spawn(move || {
        for _ in listener.incoming() {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let inner = json!({"type": "object", "properties": {"a": {"$ref": address}}});
    let schemas = [
        inner.clone(),
        json!({"$ref": address}),
        json!({"$id": address, "type": "object"}),
        json!({"id": address, "$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}),
        json!({"$schema": address, "type": "object"}),
        json!({"$id": address, "properties": {"a": {"$ref": "other.json"}}}),
        json!({"properties": {"a": {"$dynamicRef": format!("{address}#x")}}}),
        json!({"allOf": [{"$recursiveRef": address}, {"contentSchema": {"$ref": address}}]}),
        json!({"$vocabulary": {address.clone(): true}, "type": "object"}),
    ];
    let mut tools: Vec<Value> = Vec::new();
    for (index, schema) in schemas.iter().enumerate() {
        let name = format!("t{index}");
        tools.push(json!({"name": name, "inputSchema": schema, "outputSchema": schema}));
    }
    let home = Home::new(&Plan::new());
    let _daemon = start(&home, Plan::new(), &json!(tools));
    let mut client = home.client();
    for (index, schema) in schemas.iter().enumerate() {
        let name = format!("mcp__s__t{index}");
        let shown = client.call("inspect_tool", &json!({"tool_name": name}));
        assert!(!shown.is_error, "{}", shown.text);
        let run = client.run(&format!(
            "try:\n    print((await {name}(a=1))['tool'])\nexcept ToolError as e:\n    print(e.kind)"
        ));
        assert_eq!(run.printed(), format!("t{index}"), "{schema}");
    }
    assert_eq!(seen.load(Ordering::SeqCst), 0);
    Ok(())
}
