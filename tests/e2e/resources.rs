//! Finished runs as MCP resources: list, read, origin, in both eras; and `ptcctl runs`.

use libtest_mimic::Trial;
use ptc_tests::{Client, Home, Plan, TestResult, party};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_finished_run_is_listed_and_read_with_its_origin,
        streams_calls_and_program_have_resources_of_their_own,
        output_cut_in_the_answer_is_whole_in_the_resource,
        a_client_finds_its_own_runs_and_with_share_all_everyones,
        clients_without_a_handshake_read_them_too,
        what_is_not_listed_cannot_be_read,
        runs_are_listed_filtered_and_shown_as_bars,
        runs_outlive_the_daemon_and_a_killed_one_loses_none,
    ]
}

fn uris(client: &mut Client) -> Vec<String> {
    let list = client.ask("resources/list", &json!({}));
    let resources = list["resources"].as_array().cloned().unwrap_or_default();
    let uris = resources
        .iter()
        .filter_map(|resource| resource["uri"].as_str());
    uris.map(str::to_owned).collect()
}

/// The texts of one read, in order.
fn read(client: &mut Client, uri: &str) -> Vec<Value> {
    let read = client.ask("resources/read", &json!({"uri": uri}));
    read["contents"].as_array().cloned().unwrap_or_default()
}

fn run_id(structured: &Value) -> String {
    structured["run"].as_str().unwrap_or_default().to_owned()
}

fn a_finished_run_is_listed_and_read_with_its_origin() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run("print('hello')\nemit({'n': 1})");
    let id = run_id(&run.structured);
    let list = client.ask("resources/list", &json!({}));
    let first = &list["resources"][0];
    assert_eq!(first["uri"], json!(format!("ptc://runs/{id}/response")));
    let description = first["description"].as_str().unwrap_or_default();
    assert!(
        description.starts_with("finished, unverified: "),
        "{description}"
    );
    let contents = read(&mut client, &format!("ptc://runs/{id}/response"));
    assert_eq!(contents.len(), 2, "{contents:?}");
    let text = contents[0]["text"].as_str().unwrap_or_default();
    assert!(
        text.starts_with("hello\n--- result ---\n{\"n\":1}"),
        "{text}"
    );
    assert!(text.contains("[unverified: "), "{text}");
    let origin: Value = serde_json::from_str(contents[1]["text"].as_str().unwrap_or_default())?;
    assert_eq!(
        contents[1]["uri"],
        json!(format!("ptc://runs/{id}/provenance"))
    );
    for (key, value) in [
        ("run", json!(id)),
        ("ending", json!("finished")),
        ("kind", json!("program")),
        ("level", json!("unverified")),
        ("client", json!("ptc-tests")),
        ("ptcd", json!(ptc_protocol::BUILD)),
        ("engine", json!("cpython")),
        ("confinement", run.structured["confinement"].clone()),
        ("model", Value::Null),
    ] {
        assert_eq!(origin[key], value, "{key} in {origin}");
    }
    for hash in ["program_sha256", "output_sha256", "deliverable_sha256"] {
        assert_eq!(origin[hash].as_str().map(str::len), Some(64), "{hash}");
    }
    Ok(())
}

fn streams_calls_and_program_have_resources_of_their_own() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nawait mcp__m__add(a=1, b=2)\ntry:\n    await mcp__m__fail(message='no')\nexcept ToolError: pass\n";
    let run = client.run(code);
    let id = run_id(&run.structured);
    let text = |contents: Vec<Value>| contents[0]["text"].as_str().unwrap_or_default().to_owned();
    let program = text(read(&mut client, &format!("ptc://runs/{id}/program")));
    assert_eq!(program, code);
    let contents = read(&mut client, &format!("ptc://runs/{id}/program-output"));
    assert_eq!(contents.len(), 2);
    let streams: Value = serde_json::from_str(&text(contents))?;
    assert_eq!(streams["runs"][0]["apart"], false, "{streams}");
    assert_eq!(streams["runs"][0]["stdout"], "out\nerr\n", "{streams}");
    assert_eq!(streams["runs"][0]["stderr"], "", "{streams}");
    assert_eq!(streams["runs"][0]["exit_code"], 0, "{streams}");
    let calls: Value =
        serde_json::from_str(&text(read(&mut client, &format!("ptc://runs/{id}/calls"))))?;
    let calls = calls["calls"].as_array().cloned().unwrap_or_default();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(calls[0]["tool"], "mcp__m__add");
    assert_eq!(calls[0]["arguments"], "{\"a\":1,\"b\":2}");
    assert_eq!(
        (&calls[0]["ok"], &calls[1]["ok"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(calls[1]["kind"], "tool_failed");
    assert!(
        calls.iter().all(|call| call.get("result").is_none()),
        "{calls:?}"
    );
    Ok(())
}

fn output_cut_in_the_answer_is_whole_in_the_resource() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new().set("execution.max_output_bytes", 1000));
    let run = client.run("for n in range(5000): print('line', n)");
    let id = run_id(&run.structured);
    let uri = format!("ptc://runs/{id}/response");
    assert!(
        run.text
            .contains(&format!("the whole is in the resource {uri}")),
        "{}",
        run.text
    );
    let contents = read(&mut client, &uri);
    let text = contents[0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("line 0\n") && text.contains("\nline 4999\n"));
    Ok(())
}

fn a_client_finds_its_own_runs_and_with_share_all_everyones() -> TestResult {
    for (share, seen) in [("own", 1), ("all", 2)] {
        let home = Home::new(&Plan::new().set("journal.share", share));
        let _daemon = home.daemon();
        let mut one = home.shim_with(&["--client", "one"]);
        one.initialize("2025-11-25");
        let mut two = home.shim_with(&["--client", "two"]);
        two.initialize("2025-06-18");
        let first = run_id(&one.run("print(1)").structured);
        two.run("print(2)");
        let responses = |client: &mut Client| {
            let uris = uris(client);
            uris.iter().filter(|uri| uri.ends_with("/response")).count()
        };
        assert_eq!(
            (responses(&mut one), responses(&mut two)),
            (seen, seen),
            "{share}"
        );
        let id = two.request(
            "resources/read",
            &json!({"uri": format!("ptc://runs/{first}/response")}),
        );
        assert_eq!(two.answer(&id).get("result").is_some(), share == "all");
    }
    Ok(())
}

fn clients_without_a_handshake_read_them_too() -> TestResult {
    let (home, _daemon, mut client) = party(Plan::new());
    let id = run_id(&client.run("print('x')").structured);
    let mut modern = home.shim();
    let meta = |mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "ptc-tests", "version": "1"},
        });
        params
    };
    // The first request names the client, so that its own runs are found by the next.
    let call = json!({"name": "execute_program", "arguments": {"code": "print('y')"}});
    modern.ask("tools/call", &meta(call));
    let list = modern.ask("resources/list", &meta(json!({})));
    assert_eq!(list["resultType"], "complete", "{list}");
    assert_eq!(
        (&list["ttlMs"], &list["cacheScope"]),
        (&json!(0), &json!("private"))
    );
    let uri = format!("ptc://runs/{id}/response");
    assert!(list.to_string().contains(&uri), "{list}");
    let read = modern.ask("resources/read", &meta(json!({"uri": uri})));
    assert_eq!(read["contents"].as_array().map(Vec::len), Some(2), "{read}");
    assert_eq!(read["resultType"], "complete");
    let gone = modern.request(
        "resources/read",
        &meta(json!({"uri": "ptc://runs/none/response"})),
    );
    assert_eq!(modern.answer(&gone)["error"]["code"], -32602);
    Ok(())
}

fn what_is_not_listed_cannot_be_read() -> TestResult {
    let (home, _daemon, mut client) = party(Plan::new());
    let id = run_id(&client.run("print('x')").structured);
    home.write("home/secret.json", "{\"secret\": 1}");
    for uri in [
        format!("ptc://runs/{id}/../{id}/response"),
        format!("ptc://runs/{id}%2fresponse"),
        format!("ptc://runs/{id}/response\u{0}"),
        format!("ptc://runs/{}/response", "x".repeat(100_000)),
        "ptc://runs/../../../home/secret/response".to_owned(),
        "ptc://runs/%2e%2e/response".to_owned(),
        "file:///etc/passwd".to_owned(),
        String::new(),
    ] {
        let request = client.request("resources/read", &json!({"uri": uri}));
        let answer = client.answer(&request);
        assert_eq!(answer["error"]["code"], -32002, "{uri:.100}: {answer}");
        assert!(answer.to_string().len() < 2000);
    }
    let request = client.request("resources/list", &json!({"cursor": "nonsense"}));
    assert_eq!(client.answer(&request)["error"]["code"], -32602);
    // The session goes on.
    assert_eq!(client.run("print('y')").printed(), "y");
    Ok(())
}

fn runs_are_listed_filtered_and_shown_as_bars() -> TestResult {
    let (home, _daemon, mut client) = party(Plan::new());
    let good = client.run("await mcp__m__sleep(ms=20)\nawait mcp__m__add(a=1, b=2)\nprint('x')");
    let bad = client.run("1 / 0");
    let (good, bad) = (run_id(&good.structured), run_id(&bad.structured));
    let (code, out, err) = home.ctl(&["runs"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("RUN "), "{out}");
    assert!(
        lines[1].starts_with(&bad) && lines[2].starts_with(&good),
        "{out}"
    );
    assert!(
        lines[1].contains("script_error") && lines[2].contains("finished"),
        "{out}"
    );
    let (_, failed, _) = home.ctl(&["runs", "--failed"]);
    assert!(failed.contains(&bad) && !failed.contains(&good), "{failed}");
    let (_, none, _) = home.ctl(&["runs", "--client", "nobody"]);
    assert_eq!(none, "");
    let (_, json, _) = home.ctl(&["--json", "runs", "--since", "1h", "--client", "ptc-tests"]);
    let json: Value = serde_json::from_str(&json)?;
    assert_eq!(json["runs"].as_array().map(Vec::len), Some(2), "{json}");
    assert_eq!(json["runs"][0]["level"], "unverified");
    let (code, shown, _) = home.ctl(&["runs", &good]);
    assert_eq!(code, 0, "{shown}");
    for part in [
        "ending   finished",
        "level    unverified",
        "mcp__m__sleep",
        "mcp__m__add",
        "\u{2588}",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    let (_, json, _) = home.ctl(&["--json", "runs", &good]);
    let json: Value = serde_json::from_str(&json)?;
    assert_eq!(json["calls"].as_array().map(Vec::len), Some(2), "{json}");
    assert_eq!(json["provenance"]["level"], "unverified");
    let (code, _, err) = home.ctl(&["runs", "no-such"]);
    assert_eq!(code, 1);
    assert!(err.contains("ptcctl runs"), "{err}");
    Ok(())
}

fn runs_outlive_the_daemon_and_a_killed_one_loses_none() -> TestResult {
    let (home, daemon, mut client) = party(Plan::new());
    let mut done: Vec<String> = Vec::new();
    for n in 0..5 {
        done.push(run_id(&client.run(&format!("print({n})")).structured));
    }
    client.start_run("await mcp__m__sleep(ms=600000)");
    ptc_tests::wait::until("the last one runs", ptc_tests::PATIENCE, || {
        daemon.status().programs.pool.busy == 1
    });
    // A shim that lives would start a daemon of its own, and one that is gone would have its run cancelled.
    client.signal(rustix::process::Signal::STOP);
    daemon.kill();
    drop(client);
    let _daemon = home.daemon();
    let mut client = home.client();
    let listed = uris(&mut client);
    let responses: Vec<String> = done
        .iter()
        .rev()
        .map(|id| format!("ptc://runs/{id}/response"))
        .collect();
    let found: Vec<String> = listed
        .into_iter()
        .filter(|uri| uri.ends_with("/response"))
        .collect();
    // The one that ran when its daemon was killed is not claimed to be finished.
    assert_eq!(found, responses);
    assert!(
        read(&mut client, &responses[0])[0]["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("4\n"))
    );
    Ok(())
}
