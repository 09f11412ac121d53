//! Ids, parameters and the number of a client's requests.

use libtest_mimic::Trial;
use ptc_tests::wait::until;
use ptc_tests::{Direct, Home, PATIENCE, Plan, Run, TestResult, http};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        ids_of_every_form_come_back_as_they_were_written,
        what_is_no_id_is_answered,
        params_of_the_wrong_type_name_the_place,
        a_program_that_is_not_named_once_does_not_run,
        requests_beyond_the_served_number_are_refused,
        a_burst_of_requests_is_answered_whole,
        a_client_that_reads_nothing_holds_up_nobody,
        string_and_number_ids_are_told_apart,
        a_duplicate_id_in_flight_never_gets_the_other_ones_answer,
    ]
}

fn ids_of_every_form_come_back_as_they_were_written() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = Direct::open(&home, 1);
    let params = json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "ids", "version": "0"},
    });
    client.ask(&json!("0"), "initialize", &params);
    let mut shim = home.client();
    for id in [
        "0",
        "-1",
        "9007199254740993",
        "18446744073709551616",
        "123456789012345678901234567890",
        "1.0",
        "1.5",
        "-0",
        r#""""#,
        r#""0""#,
        r#""ä \u0000 \" \\""#,
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#) + "\n";
        client.write(line.as_bytes());
        let answer = client.text().unwrap_or_default();
        let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":["#);
        assert!(answer.starts_with(&start), "{id}: {answer:.80}");
        shim.write(line.as_bytes());
        let answer = shim.line(PATIENCE).unwrap_or_default();
        assert!(answer.starts_with(&start), "{id}: {answer:.80}");
    }
    Ok(())
}

fn what_is_no_id_is_answered() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut direct = Direct::open(&home, 1);
    let mut shim = home.client();
    for (id, told) in [
        ("null", "null"),
        ("true", "null"),
        ("{}", "null"),
        ("[7]", "null"),
        // Half a character cannot be read, but it can be given back.
        (r#""a\ud800""#, r#""a\ud800""#),
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#) + "\n";
        let start = format!(r#"{{"jsonrpc":"2.0","id":{told},"error":{{"code":-32600,"#);
        direct.write(line.as_bytes());
        let answer = direct.text().unwrap_or_default();
        assert!(answer.starts_with(&start), "{id}: {answer}");
        shim.write(line.as_bytes());
        let answer = shim.line(PATIENCE).unwrap_or_default();
        assert!(answer.starts_with(&start), "{id}: {answer}");
    }
    assert_eq!(shim.run("print('alive')").printed(), "alive");
    Ok(())
}

fn params_of_the_wrong_type_name_the_place() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    let program = |arguments: Value| json!({"name": "execute_program", "arguments": arguments});
    for (method, params, code, part) in [
        ("tools/call", json!([1]), -32602, "params: found an array"),
        ("tools/call", json!("x"), -32602, "params: found a string"),
        ("tools/call", Value::Null, -32602, "params: found null"),
        ("tools/call", json!({}), -32602, "params.name"),
        ("tools/call", json!({"name": null}), -32602, "params.name"),
        (
            "tools/call",
            program(json!([])),
            -32602,
            "params.arguments: found an array",
        ),
        (
            "tools/call",
            program(json!("print(1)")),
            -32602,
            "params.arguments: found a string",
        ),
        (
            "tools/call",
            json!({"name": "x", "arguments": {}}),
            -32602,
            "unknown tool",
        ),
        ("tools/list", json!(7), -32602, "params: found a number"),
        ("tools/list", json!({"cursor": 7}), -32602, "params.cursor"),
        (
            "initialize",
            json!({"protocolVersion": 7}),
            -32602,
            "initialize",
        ),
        ("no/such", json!([1]), -32601, "no/such"),
    ] {
        let id = client.request(method, &params);
        let error = client.answer(&id)["error"].take();
        assert_eq!(error["code"], code, "{method} {params}: {error}");
        let text = error["message"].as_str().unwrap_or_default();
        assert!(text.contains(part), "{method} {params}: {error}");
    }
    let missing = "execute_program: arguments.code: found nothing, required a string";
    for params in [
        json!({"name": "execute_program"}),
        program(Value::Null),
        program(json!({})),
    ] {
        let refused = Run::of(client.ask("tools/call", &params));
        assert_eq!(
            (refused.is_error, refused.text.as_str()),
            (true, missing),
            "{params}"
        );
    }
    let listed = json!({"name": "list_callable_tools", "arguments": null});
    assert_eq!(Run::of(client.ask("tools/call", &listed)).text, "[]");
    Ok(())
}

fn a_program_that_is_not_named_once_does_not_run() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut client = home.client();
    for (params, part) in [
        (
            r#"{"name":"execute_program","arguments":{"code":"print(1)","code":"print(2)"}}"#,
            "params.arguments cannot be read: the key \"code\" stands twice",
        ),
        (
            r#"{"name":"execute_program","arguments":{"code":"print(1)","\u0063ode":"print(2)"}}"#,
            "the key \"code\" stands twice",
        ),
        (
            r#"{"name":"execute_program","arguments":{"code":"print(1)"},"arguments":{"code":"print(2)"}}"#,
            "the key \"arguments\" stands twice",
        ),
        (
            r#"{"name":"execute_program","arguments":{"code":"print('\udc00')"}}"#,
            "params.arguments.code: found half of a surrogate pair (\\udc00), required text of whole characters",
        ),
        (
            r#"{"name":"execute_program","arguments":{"code\ud800":"print(1)"}}"#,
            "params.arguments: found half of a surrogate pair (\\ud800) in a name",
        ),
    ] {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":"twice","method":"tools/call","params":{params}}}"#);
        client.write(format!("{line}\n").as_bytes());
        let error = client.answer(&json!("twice"))["error"].take();
        assert_eq!(error["code"], -32602, "{params}: {error}");
        let text = error["message"].as_str().unwrap_or_default();
        assert!(text.contains(part), "{params}: {error}");
    }
    let runs = http::ask(daemon.socket(), "GET", ptc_protocol::route::RUNS)?.body;
    assert_eq!(runs.trim(), "[]");
    Ok(())
}

fn requests_beyond_the_served_number_are_refused() -> TestResult {
    let home = Home::new(&Plan::new().set("execution.max_runs", 1));
    let daemon = home.daemon();
    let mut client = Direct::open(&home, 1);
    let params = json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "greedy", "version": "0"},
    });
    client.ask(&json!(0), "initialize", &params);
    let code = "import time\ntime.sleep(600)";
    let call = json!({"name": "execute_program", "arguments": {"code": code}});
    for id in 1..=64 {
        client.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call}));
    }
    let refused = client.ask(&json!(65), "tools/call", &call);
    assert_eq!(refused["error"]["code"], -31002, "{refused}");
    let text = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("64 requests"), "{refused}");
    let mut other = home.client();
    assert_eq!(
        other.ask("ping", &json!({})),
        json!({}),
        "each client has its own places"
    );
    client.send(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 64},
    }));
    let answer = client.ask(&json!(66), "ping", &json!({}));
    assert_eq!(answer["result"], json!({}));
    drop(client);
    until("its programs have ended", PATIENCE, || {
        daemon.status().programs.pool.busy == 0
    });
    Ok(())
}

fn a_burst_of_requests_is_answered_whole() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = Direct::open(&home, 1);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for id in 0..300 {
        client.send(&json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {"_meta": meta},
        }));
    }
    let mut answered = Vec::new();
    while answered.len() < 300 {
        let line = client.line().unwrap_or_default();
        assert!(line["result"]["tools"].is_array(), "{line}");
        answered.push(line["id"].as_u64());
    }
    answered.sort_unstable();
    assert_eq!(answered, (0..300).map(Some).collect::<Vec<_>>());
    Ok(())
}

fn a_client_that_reads_nothing_holds_up_nobody() -> TestResult {
    let mebibyte = 1024 * 1024;
    let home = Home::new(&Plan::new().set("execution.max_output_bytes", mebibyte));
    let daemon = home.daemon();
    let mut client = Direct::open(&home, 1);
    let params = json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "deaf", "version": "0"},
    });
    client.ask(&json!(0), "initialize", &params);
    let code = "print('x' * (1024 * 1024 - 1))";
    let call = json!({"name": "execute_program", "arguments": {"code": code}});
    for id in 1..=20 {
        client.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call}));
    }
    // Each answer may take 15 of the 256 MiB a client's answers have until it reads them.
    let ended = || daemon.status().totals.runs;
    until(
        "as many programs ran as have room for their answers",
        PATIENCE * 4,
        || ended() == 17,
    );
    let mut other = home.client();
    assert_eq!(other.run("print('alive')").printed(), "alive");
    assert_eq!(ended(), 18, "the other three wait for the reader");
    let mut answered = Vec::new();
    while answered.len() < 20 {
        let line = client.line().unwrap_or_default();
        let output = line["result"]["structuredContent"]["output"].as_str();
        assert_eq!(
            output.map(str::len),
            Some(mebibyte),
            "{:.300}",
            line.to_string()
        );
        answered.push(line["id"].as_u64());
    }
    answered.sort_unstable();
    assert_eq!(answered, (1..=20).map(Some).collect::<Vec<_>>());
    Ok(())
}

fn string_and_number_ids_are_told_apart() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    let call = |word: &str| {
        json!({
            "name": "execute_program",
            "arguments": {"code": format!("import time\ntime.sleep(0.3)\nprint('{word}')")},
        })
    };
    let ids = [
        json!("77"),
        json!(77),
        json!("a b"),
        json!(9_007_199_254_740_993_i64),
    ];
    for id in &ids {
        client.send_request(
            id,
            "tools/call",
            &call(&format!("for {id}").replace('"', "~")),
        );
    }
    for id in &ids {
        let run = client.finish_run(id);
        assert_eq!(run.printed(), format!("for {id}").replace('"', "~"));
    }
    Ok(())
}

fn a_duplicate_id_in_flight_never_gets_the_other_ones_answer() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    let call = |code: &str| json!({"name": "execute_program", "arguments": {"code": code}});
    let id = json!("twin");
    client.send_request(
        &id,
        "tools/call",
        &call("import time\ntime.sleep(1)\nprint('first')"),
    );
    client.send_request(&id, "tools/call", &call("print('second')"));
    let mut seen = Vec::new();
    while let Some(line) = client.line(PATIENCE) {
        let message: Value = serde_json::from_str(&line)?;
        if message["id"] == id {
            seen.push(message);
        }
        if seen
            .iter()
            .any(|message| message.to_string().contains("first"))
        {
            break;
        }
    }
    for message in &seen {
        let ok = message.get("error").is_some() || message.to_string().contains("first");
        assert!(
            ok,
            "the second request of an id in flight was run: {message}"
        );
    }
    Ok(())
}
