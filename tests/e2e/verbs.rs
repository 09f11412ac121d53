//! `ptcctl`: the verbs that look at tools, servers and the configuration, call a tool, or steer a server.

use libtest_mimic::Trial;
use ptc_protocol::status::{ConfigShown, SCHEMA, ServerState};
use ptc_tests::wait::until;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult, daemon_of};
use rustix::process::Signal;
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        inspect_shows_a_tool_and_near_names_where_there_is_none,
        call_gives_the_result_of_one_tool,
        call_keeps_text_and_digits,
        call_tells_why_a_tool_failed,
        call_takes_its_arguments_from_stdin,
        servers_are_shown_with_their_causes,
        a_server_is_restarted,
        a_server_is_disabled_until_it_is_enabled,
        config_check_tells_every_fault_and_takes_nothing_over,
        config_path_asks_no_daemon,
        ptcd_check_asks_no_daemon,
        a_pattern_for_no_name_is_a_fault_and_hidden_tools_are_not_counted,
        config_show_fills_in_defaults_and_masks_secrets,
        names_reset_gives_the_names_anew,
        every_verb_takes_the_global_flags_and_gives_one_object_with_its_schema,
        a_command_line_that_cannot_be_read_is_told_as_json_where_that_is_asked_for,
        a_daemon_that_stands_still_is_not_waited_for,
        completions_know_every_verb,
    ]
}

fn party(plan: Plan) -> (Home, Daemon) {
    daemon_of(&plan.server("m", &[]))
}

fn inspect_shows_a_tool_and_near_names_where_there_is_none() -> TestResult {
    let (home, _daemon) = party(Plan::new());
    let (code, out, err) = home.ctl(&["inspect", "mcp__m__add"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for part in [
        "mcp__m__add\nAdds two integers.\n",
        "  a (integer, required)\n",
        "inputSchema: {",
        "outputSchema: {",
    ] {
        assert!(out.contains(part), "{part} is not in\n{out}");
    }
    let (code, out, _) = home.ctl(&["--json", "inspect", "mcp__m__add"]);
    let tool: Value = serde_json::from_str(&out)?;
    assert_eq!((code, &tool["name"]), (0, &json!("mcp__m__add")));
    let (code, out, err) = home.ctl(&["inspect", "mcp__m__ad"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("mcp__m__add"), "{err}");
    Ok(())
}

fn call_gives_the_result_of_one_tool() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let (code, out, err) = home.ctl(&["call", "mcp__m__add", "a=40", "b=2"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, "{\n  \"sum\": 42\n}\n");
    let (code, out, _) = home.ctl(&["--json", "call", "mcp__m__add", "a=1", "b=2"]);
    let value: Value = serde_json::from_str(&out)?;
    assert_eq!((code, &value["result"]["sum"]), (0, &json!(3)));
    assert_eq!(value["tool_calls"][0]["tool"], "mcp__m__add");
    // A text is printed as it is.
    let (_, out, _) = home.ctl(&["call", "mcp__m__big", "bytes=3"]);
    assert_eq!(out, "xxx\n");
    assert_eq!(daemon.status().totals.runs, 3);
    Ok(())
}

fn call_keeps_text_and_digits() -> TestResult {
    let (home, _daemon) = party(Plan::new());
    let args = [
        "call",
        "mcp__m__echo",
        "n=1267650600228229401496703205376",
        "zip:=\"00123\"",
        "word=it's \"so\"\\n",
        "--arguments",
        "{\"x\": [null, 1.0]}",
    ];
    let (code, out, err) = home.ctl(&args);
    assert_eq!((code, err.as_str()), (0, ""));
    let compact: String = serde_json::from_str::<Value>(&out)?.to_string();
    let want = "{\"x\":[null,1.0],\"n\":1267650600228229401496703205376,\"zip\":\"00123\",\"word\":\"it's \\\"so\\\"\\\\n\"}";
    assert_eq!(compact, want);
    // What the schema calls a string stays one.
    let (code, out, err) = home.ctl(&["call", "mcp__m__fail", "message=007"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("007"), "{err}");
    Ok(())
}

fn call_tells_why_a_tool_failed() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let (code, out, err) = home.ctl(&["call", "mcp__m__fail", "message=no luck"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("no luck"), "{err}");
    let (code, _, err) = home.ctl(&["call", "mcp__m__nothing"]);
    assert_eq!(code, 1);
    assert!(err.contains("mcp__m__nothing"), "{err}");
    let before = daemon.server("m").calls;
    let (code, _, err) = home.ctl(&["call", "mcp__m__add", "a=one", "b=2"]);
    assert_eq!(code, 1);
    assert!(err.contains('a') && err.contains("integer"), "{err}");
    assert_eq!(daemon.server("m").calls, before, "nothing was sent");
    for (pair, word) in [("a", "name=value"), ("a:=NaN", "no JSON")] {
        let (code, _, err) = home.ctl(&["call", "mcp__m__add", pair]);
        assert_eq!(code, 2, "{pair}");
        assert!(err.contains(word), "{err}");
    }
    Ok(())
}

fn call_takes_its_arguments_from_stdin() -> TestResult {
    use std::io::Write as _;
    let (home, _daemon) = party(Plan::new());
    let mut child = home
        .command("ptcctl")
        .arg("--config")
        .arg(home.config())
        .args(["call", "mcp__m__add", "b=2", "--arguments", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(b"{\"a\": 5}")?;
    }
    let output = child.wait_with_output()?;
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout)?.contains("\"sum\": 7"));
    Ok(())
}

fn servers_are_shown_with_their_causes() -> TestResult {
    let (home, daemon) = party(Plan::new().server("gone", &["--exit-at-start", "4"]));
    until("the broken server has its state", PATIENCE, || {
        daemon.server("gone").state != ServerState::Connecting
    });
    let (code, out, _) = home.ctl(&["servers"]);
    assert_eq!(code, 0);
    assert!(out.starts_with("   SERVER"), "{out}");
    assert!(out.contains("exit code 4"), "{out}");
    let (code, out, _) = home.ctl(&["servers", "m"]);
    assert_eq!(code, 0);
    assert!(out.starts_with("m ") && !out.contains("gone"), "{out}");
    let (_, out, _) = home.ctl(&["--json", "servers"]);
    let value: Value = serde_json::from_str(&out)?;
    assert_eq!(value["schema"], SCHEMA);
    assert_eq!(value["servers"].as_array().map(Vec::len), Some(2));
    let (code, _, err) = home.ctl(&["servers", "nobody"]);
    assert_eq!(code, 1);
    assert!(err.contains("there is no server"), "{err}");
    Ok(())
}

fn a_server_is_restarted() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let before = daemon.server("m").pid;
    let (code, _, err) = home.ctl(&["servers", "restart", "m"]);
    assert_eq!(code, 0, "{err}");
    until("another process serves", PATIENCE, || {
        let server = daemon.server("m");
        server.state == ServerState::Ready && server.pid != before
    });
    let (code, _, err) = home.ctl(&["servers", "restart", "nobody"]);
    assert_eq!(code, 1);
    assert!(err.contains("there are: m"), "{err}");
    Ok(())
}

fn a_server_is_disabled_until_it_is_enabled() -> TestResult {
    let (home, daemon) = party(Plan::new().entry(json!({
        "name": "off", "transport": "stdio", "enabled": false,
        "command": ptc_tests::programs::program("mock-mcp"),
    })));
    let mut client = home.client();
    let pid = daemon.server("m").pid.unwrap_or_default();
    let (code, _, err) = home.ctl(&["servers", "disable", "m"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("until this daemon ends"), "{err}");
    daemon.wait_for("m", ServerState::Disabled);
    until("its process is gone", PATIENCE, || {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    });
    let run = client.run("try: await mcp__m__add(a=1, b=2)\nexcept Exception as e: print(repr(e))");
    assert!(!run.printed().contains('3'), "{}", run.text);
    let (code, _, err) = home.ctl(&["servers", "restart", "m"]);
    assert_eq!(code, 1);
    assert!(err.contains("ptcctl servers enable m"), "{err}");
    // A reload does not undo what was done by hand.
    assert_eq!(home.ctl(&["reload"]).0, 0);
    assert_eq!(daemon.server("m").state, ServerState::Disabled);
    let (code, _, err) = home.ctl(&["servers", "enable", "m"]);
    assert_eq!(code, 0);
    assert!(err.contains("as in the configuration"), "{err}");
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(
        client
            .run("print((await mcp__m__add(a=1, b=2))['sum'])")
            .printed(),
        "3"
    );
    assert_eq!(home.ctl(&["servers", "enable", "off"]).0, 0);
    daemon.wait_for("off", ServerState::Ready);
    Ok(())
}

fn config_check_tells_every_fault_and_takes_nothing_over() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let (code, _, err) = home.ctl(&["config", "check"]);
    assert_eq!(code, 0);
    assert!(err.contains("no faults; 1 server configured"), "{err}");
    let bad = home.write(
        "bad.yaml",
        "execution:\n  timeout_second: 5\n  max_runs: 0\n",
    );
    let (code, out, err) = home.ctl(&["config", "check", &bad.display().to_string()]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("bad.yaml:2:3:") && err.contains("bad.yaml:3:13:"),
        "{err}"
    );
    let (_, out, _) = home.ctl(&["--json", "config", "check", &bad.display().to_string()]);
    let value: Value = serde_json::from_str(&out)?;
    assert_eq!(value["ok"], false);
    assert_eq!(value["messages"].as_array().map(Vec::len), Some(2));
    home.write_config("servers: []\n");
    assert_eq!(home.ctl(&["config", "check"]).0, 0);
    assert_eq!(
        daemon.status().servers.len(),
        1,
        "the file was only checked"
    );
    Ok(())
}

fn ptcd_check_asks_no_daemon() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let config = home.config().display().to_string();
    let check = || {
        let output = home
            .command("ptcd")
            .args(["check", "--config", &config])
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        anyhow::Ok((output.status.code(), text))
    };
    let (code, text) = check()?;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("no faults; 1 server configured"), "{text}");
    home.write_config("execution: {max_runs: 0, trace: loud}\n");
    let (code, text) = check()?;
    assert_eq!((code, text.lines().count()), (Some(1), 2), "{text}");
    let (code, _, err) = home.ctl(&["config", "check"]);
    assert_eq!(code, 3);
    assert!(err.contains("`ptcd check`"), "{err}");
    assert!(!home.socket().exists(), "a question started a daemon");
    Ok(())
}

fn a_pattern_for_no_name_is_a_fault_and_hidden_tools_are_not_counted() -> TestResult {
    let (home, daemon) = party(Plan::new().set("tools.block", json!(["*__add", "*__echo"])));
    let (_, out, _) = home.ctl(&["tools"]);
    assert_eq!(daemon.server("m").tools, Some(out.lines().count()));
    assert!(!out.contains("__add"), "{out}");
    let text = Plan::new()
        .server("m-x", &[])
        .set("tools.block", json!(["mcp__m-x__add"]))
        .text();
    home.write_config(&text);
    let (code, _, err) = home.ctl(&["reload"]);
    assert_eq!(code, 1);
    assert!(err.contains("write \"mcp__m_x__add\""), "{err}");
    Ok(())
}

fn config_path_asks_no_daemon() -> TestResult {
    let home = Home::new(&Plan::new());
    let (code, out, err) = home.ctl(&["config", "path"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let real = home.config().canonicalize()?;
    assert_eq!(out.trim_end(), real.display().to_string());
    std::fs::remove_file(home.config())?;
    let (code, out, _) = home.ctl(&["--json", "config", "path"]);
    let value: Value = serde_json::from_str(&out)?;
    assert_eq!((code, &value["present"]), (0, &json!(false)));
    assert_eq!(home.ctl(&["config", "show"]).0, 3);
    Ok(())
}

fn config_show_fills_in_defaults_and_masks_secrets() -> TestResult {
    let secret = "a-secret-of-the-header";
    let (home, _daemon) = party(Plan::new().entry(json!({
        "name": "web", "transport": "http", "url": "http://127.0.0.1:9/mcp",
        "headers": {"X-Key": secret, "X-Other": "${NOBODY_SETS_THIS}"},
    })));
    let (code, out, err) = home.ctl(&["config", "show"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(!out.contains(secret), "{out}");
    assert!(out.contains("${NOBODY_SETS_THIS}"), "{out}");
    let config: Value = serde_json::from_str(&out)?;
    assert_eq!(config["execution"]["max_tool_calls"], 100);
    assert_eq!(config["servers"][0]["protocol"], "auto");
    let (_, out, _) = home.ctl(&["--json", "config", "show"]);
    let shown: ConfigShown = serde_json::from_str(&out)?;
    assert_eq!(shown.config, config);
    assert!(shown.path.is_some() && shown.faults.is_empty());
    home.write_config("execution: {max_runs: 0}\n");
    assert_eq!(home.ctl(&["reload"]).0, 1);
    let (code, out, err) = home.ctl(&["config", "show"]);
    assert_eq!(code, 1, "the file is not what is in force");
    assert!(err.contains("max_runs"), "{err}");
    assert_eq!(serde_json::from_str::<Value>(&out)?, config);
    Ok(())
}

fn names_reset_gives_the_names_anew() -> TestResult {
    let home = Home::new(&Plan::new().server("m-x", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m-x", ServerState::Ready);
    assert_eq!(home.ctl(&["tools", "add"]).1, "mcp__m_x__add\n");
    // Another server of the same folded name takes the suffix, for the first one's names are kept.
    home.write_config(&Plan::new().server("m_x", &[]).text());
    assert_eq!(home.ctl(&["reload"]).0, 0);
    daemon.wait_for("m_x", ServerState::Ready);
    let (_, out, _) = home.ctl(&["tools", "add"]);
    assert!(out.starts_with("mcp__m_x__add_"), "{out}");
    let (code, _, err) = home.ctl(&["names", "reset"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(home.ctl(&["tools", "add"]).1, "mcp__m_x__add\n");
    Ok(())
}

fn every_verb_takes_the_global_flags_and_gives_one_object_with_its_schema() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let socket = daemon.socket().display().to_string();
    let program = home.write("p.py", "print(1)").display().to_string();
    let long = "n".repeat(100_000);
    std::fs::write(home.state().join("ptcd.log"), "a line\n")?;
    for (verb, want) in [
        (&["status"][..], 0),
        (&["status", "nobody"], 1),
        (&["status", "--check"], 0),
        (&["servers"], 0),
        (&["servers", "restart", "m"], 0),
        (&["servers", "restart", "nobody"], 1),
        (&["doctor", "nobody"], 1),
        (&["inspect", &long], 2),
        (&["runs", &long], 2),
        (&["runs", "--client", &long], 2),
        (&["servers", "disable", &long], 2),
        (&["doctor", &long], 2),
        (&["replay", &long], 2),
        (&["runs", "--since", "1000000000000d"], 2),
        (&["tools"], 0),
        (&["inspect", "mcp__m__add"], 0),
        (&["call", "mcp__m__add", "a=1", "b=2"], 0),
        (&["run", &program], 0),
        (&["logs"], 0),
        (&["logs", "nobody"], 1),
        (&["env", "show"], 0),
        (&["config", "check"], 0),
        (&["config", "path"], 0),
        (&["config", "show"], 0),
        (&["names", "reset"], 0),
        (&["reload"], 0),
        (&["start"], 0),
        (&["service", "status"], 1),
        (&["completions", "zsh"], 0),
        (&["stop"], 0),
        (&["status"], 3),
    ] {
        daemon_has_its_server(&daemon, verb);
        let flags = ["--json", "--no-color", "-q", "--socket", &socket];
        let (code, out, err) = home.ctl(&[verb, &flags].concat());
        assert_eq!((code, err.as_str()), (want, ""), "{verb:?}: {out}");
        let value: Value = serde_json::from_str(&out)?;
        assert_eq!(value["schema"], SCHEMA, "{verb:?}: {out}");
        if want != 0 {
            assert_eq!(value["exit"], want, "{verb:?}: {out}");
            assert!(value["error"].is_string(), "{verb:?}: {out}");
        }
    }
    Ok(())
}

/// Waits until the server is ready, for verbs that need it.
fn daemon_has_its_server(daemon: &Daemon, verb: &[&str]) {
    if ["status", "tools", "inspect", "call"].contains(&verb[0]) && !verb.contains(&"nobody") {
        let answers = ptc_tests::http::ask(daemon.socket(), "GET", ptc_protocol::route::HEALTH);
        if answers.is_ok() {
            daemon.wait_for("m", ServerState::Ready);
        }
    }
}

fn a_command_line_that_cannot_be_read_is_told_as_json_where_that_is_asked_for() -> TestResult {
    let home = Home::new(&Plan::new());
    let lines: [&[&str]; 5] = [
        &["--json", "zzz"],
        &["--json"],
        &["runs", "--since", "zzz", "--json"],
        &["tools", "unpin", "", "--json"],
        &["logs", "--json", "-n", "-1"],
    ];
    for line in lines {
        let (code, out, err) = home.ctl(line);
        assert_eq!((code, err.as_str()), (2, ""), "{line:?}");
        let told: Value = serde_json::from_str(&out)?;
        assert_eq!(
            (&told["schema"], &told["exit"]),
            (&json!(SCHEMA), &json!(2)),
            "{line:?}"
        );
        assert!(told["error"].is_string(), "{line:?}: {out}");
    }
    let (code, out, err) = home.ctl(&["zzz"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("zzz"), "{err}");
    let (code, out, _) = home.ctl(&["--json", "--help"]);
    assert!(code == 0 && out.contains("Usage: ptcctl"), "{out}");
    Ok(())
}

/// Requests that may take long are put only to a daemon that was heard to answer.
fn a_daemon_that_stands_still_is_not_waited_for() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    daemon.freeze();
    let found = [&["reload"][..], &["replay", "r1"][..]].map(|line| home.ctl(line));
    daemon.signal(Signal::CONT);
    for (code, _, err) in found {
        assert_eq!(code, 1, "{err}");
        assert!(err.contains("did not answer within 10 s"), "{err}");
    }
    Ok(())
}

fn completions_know_every_verb() -> TestResult {
    let home = Home::new(&Plan::new());
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, out, err) = home.ctl(&["completions", shell]);
        assert_eq!((code, err.as_str()), (0, ""), "{shell}");
        for verb in ["status", "logs", "env", "service", "completions", "--json"] {
            let name = verb.trim_start_matches('-');
            assert!(
                out.contains(name),
                "{verb} is not in the script for {shell}"
            );
        }
    }
    let (code, _, _) = home.ctl(&["completions", "cmd"]);
    assert_eq!(code, 2);
    Ok(())
}
