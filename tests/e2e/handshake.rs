//! The opening of a session, and what the daemon offers in it.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_tests::{Home, Plan, TestResult};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        every_revision_is_echoed,
        an_unknown_revision_is_answered_with_the_newest,
        the_server_says_who_it_is,
        the_list_of_tools_is_the_same_whatever_servers_are_up,
        the_tools_are_described_as_the_contract_says,
        expose_decides_which_tools_are_offered_in_which_order,
        an_empty_list_of_tools_is_said_plainly,
        requests_before_initialize_are_refused,
        a_ping_before_initialize_is_answered,
        requests_work_without_the_initialized_notification,
        a_ping_during_a_run_is_answered_at_once,
        instructions_and_definitions_stay_small,
        a_slow_server_does_not_hold_up_the_opening,
    ]
}

fn every_revision_is_echoed() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = home.shim();
        let result = client.initialize(revision);
        assert_eq!(result["protocolVersion"], revision);
        assert_eq!(client.run("print(6 * 7)").printed(), "42", "{revision}");
    }
    Ok(())
}

fn an_unknown_revision_is_answered_with_the_newest() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    for revision in ["1999-01-01", "2031-01-01", "", "yes"] {
        let mut client = home.shim();
        let result = client.initialize(revision);
        assert_eq!(result["protocolVersion"], "2025-11-25", "for {revision:?}");
        assert_eq!(tool_names(&client.ask("tools/list", &json!({}))).len(), 3);
    }
    Ok(())
}

fn the_server_says_who_it_is() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let result = home.shim().initialize("2025-11-25");
    let name = result["serverInfo"]["name"].as_str().unwrap_or_default();
    assert!(name.starts_with("ptc"), "{result}");
    assert_eq!(result["serverInfo"]["version"], ptc_protocol::BUILD);
    let capabilities = json!({
        "resources": {"subscribe": false, "listChanged": false},
        "tools": {"listChanged": false},
    });
    assert_eq!(result["capabilities"], capabilities);
    Ok(())
}

fn the_list_of_tools_is_the_same_whatever_servers_are_up() -> TestResult {
    let home = Home::new(
        &Plan::new()
            .server("good", &[])
            .server("late", &["--slow-init", "1500"])
            .server("gone", &["--exit-at-start", "3"]),
    );
    let daemon = home.daemon();
    let raw = |client: &mut ptc_tests::Client| client.ask("tools/list", &json!({})).to_string();
    let early = raw(&mut home.client());
    daemon.wait_for("good", ptc_protocol::status::ServerState::Ready);
    daemon.wait_for("late", ptc_protocol::status::ServerState::Ready);
    let late = raw(&mut home.client());
    assert_eq!(early, late);
    Ok(())
}

fn the_tools_are_described_as_the_contract_says() -> TestResult {
    let home = Home::new(&Plan::new().set("execution.max_output_bytes", 70_000));
    let _daemon = home.daemon();
    let list = home.client().ask("tools/list", &json!({}));
    assert_eq!(
        tool_names(&list),
        ["execute_program", "inspect_tool", "list_callable_tools"]
    );
    let shape = |at: usize| {
        let tool = &list["tools"][at];
        let title = [&tool["title"], &tool["annotations"]["title"]]
            .into_iter()
            .find_map(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let hints = &tool["annotations"];
        let hint = |name: &str| hints[name].as_bool();
        (
            title,
            hint("readOnlyHint"),
            hint("openWorldHint"),
            tool.get("outputSchema").is_none(),
            tool["inputSchema"]["required"].clone(),
        )
    };
    let (title, read_only, open_world, no_schema, required) = shape(0);
    assert_eq!(title, "Run program");
    assert_ne!(read_only, Some(true));
    assert_ne!(open_world, Some(false));
    assert_eq!((no_schema, required), (true, json!(["code"])));
    assert_eq!(
        shape(1),
        (
            "Inspect tool".to_owned(),
            Some(true),
            Some(false),
            true,
            json!(["tool_name"])
        )
    );
    let (title, read_only, open_world, no_schema, _) = shape(2);
    assert_eq!(
        (title.as_str(), read_only, open_world, no_schema),
        ("List tools", Some(true), Some(false), true)
    );
    assert_eq!(
        list["tools"][0]["_meta"]["anthropic/maxResultSizeChars"],
        json!(2 * 70_000 + 8192)
    );
    Ok(())
}

fn expose_decides_which_tools_are_offered_in_which_order() -> TestResult {
    let order = json!(["list_callable_tools", "execute_program"]);
    let home = Home::new(&Plan::new().set("tools.expose", order));
    let _daemon = home.daemon();
    let mut client = home.client();
    assert_eq!(
        tool_names(&client.ask("tools/list", &json!({}))),
        ["list_callable_tools", "execute_program"]
    );
    let id = client.request(
        "tools/call",
        &json!({"name": "inspect_tool", "arguments": {"tool_name": "x"}}),
    );
    let answer = client.answer(&id);
    assert!(
        answer.get("error").is_some() || answer["result"]["isError"] == json!(true),
        "a tool that is turned off was called: {answer}"
    );
    Ok(())
}

fn an_empty_list_of_tools_is_said_plainly() -> TestResult {
    let home = Home::new(&Plan::new().set("tools.expose", json!([])));
    let _daemon = home.daemon();
    let mut client = home.shim();
    let told = client.initialize("2025-11-25")["instructions"].clone();
    assert_eq!(
        told,
        "ptc offers no tool in this configuration: its key tools.expose is an empty list."
    );
    assert_eq!(client.ask("tools/list", &json!({})), json!({"tools": []}));
    let id = client.start_run("print(1)");
    let answer = client.answer(&id);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    Ok(())
}

fn requests_before_initialize_are_refused() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    let id = client.start_run("print('too early')");
    let answer = client.answer(&id);
    assert!(answer["error"]["code"].is_number(), "{answer}");
    assert!(!answer.to_string().contains("[Script executed"), "{answer}");
    client.initialize("2025-11-25");
    assert_eq!(client.run("print('now')").printed(), "now");
    Ok(())
}

fn a_ping_before_initialize_is_answered() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    assert_eq!(client.ask("ping", &json!({})), json!({}));
    client.initialize("2025-06-18");
    assert_eq!(client.ask("ping", &json!({})), json!({}));
    Ok(())
}

fn requests_work_without_the_initialized_notification() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    client.ask(
        "initialize",
        &json!({
            "protocolVersion": "2025-03-26", "capabilities": {},
            "clientInfo": {"name": "hasty", "version": "0"},
        }),
    );
    assert_eq!(client.run("print('here')").printed(), "here");
    Ok(())
}

fn a_ping_during_a_run_is_answered_at_once() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    let run = client.start_run("import time\ntime.sleep(8)\nprint('done')");
    assert_eq!(client.ask("ping", &json!({})), json!({}));
    assert!(!client.has_answer(&run));
    assert_eq!(client.finish_run(&run).printed(), "done");
    Ok(())
}

fn instructions_and_definitions_stay_small() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    let instructions = client.initialize("2025-11-25")["instructions"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(!instructions.is_empty());
    assert!(instructions.chars().count() <= 2048);
    let list = client.ask("tools/list", &json!({}));
    for tool in list["tools"].as_array().into_iter().flatten() {
        let description = tool["description"].as_str().unwrap_or_default();
        assert!((1..=2000).contains(&description.chars().count()), "{tool}");
    }
    let characters = instructions.chars().count() + list["tools"].to_string().chars().count();
    assert!(characters / 4 < 700, "{} tokens", characters / 4);
    Ok(())
}

fn a_slow_server_does_not_hold_up_the_opening() -> TestResult {
    let home = Home::new(
        &Plan::new()
            .server("silent", &["--no-init"])
            .server("slow", &["--slow-init", "20000"]),
    );
    let _daemon = home.daemon();
    let start = Instant::now();
    let mut client = home.client();
    let listed = client.call("list_callable_tools", &json!({}));
    assert_eq!(client.run("print(1)").printed(), "1");
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
    let missing = &listed.structured["unavailable"];
    assert!(
        missing.get("silent").is_some() && missing.get("slow").is_some(),
        "{missing}"
    );
    Ok(())
}

fn tool_names(list: &Value) -> Vec<&str> {
    list["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str())
        .collect()
}
