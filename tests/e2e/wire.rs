//! JSON-RPC as awkward clients speak it.

use std::time::Duration;

use libtest_mimic::Trial;
use ptc_protocol::MAX_LINE_BYTES;
use ptc_tests::{Home, PATIENCE, Plan, TestResult};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        broken_json_is_answered_and_the_session_goes_on,
        invalid_utf8_does_not_end_the_session,
        batches_are_refused,
        unknown_methods_are_refused_and_unknown_notifications_ignored,
        a_frame_of_nearly_sixteen_mebibytes_goes_up,
        an_over_long_frame_is_refused_and_the_session_goes_on,
        the_largest_answer_comes_down_whole,
        a_program_over_one_mebibyte_is_refused,
        two_lines_of_printf_give_two_lines,
        blank_lines_and_carriage_returns_do_no_harm,
        the_shim_ends_with_its_stdin,
    ]
}

fn broken_json_is_answered_and_the_session_goes_on() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    for broken in ["{\"jsonrpc\": \"2.0\", \"id\": 5,", "nonsense", "{]"] {
        client.write(format!("{broken}\n").as_bytes());
        assert_eq!(client.ask("ping", &json!({})), json!({}), "after {broken}");
    }
    assert_eq!(client.run("print('alive')").printed(), "alive");
    let codes = error_codes(&client.notices);
    assert_eq!(codes, [-32700; 3], "{:?}", client.notices);
    Ok(())
}

fn invalid_utf8_does_not_end_the_session() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    client.write(b"{\"jsonrpc\": \"2.0\", \"id\": 5, \"method\": \"p\xff\xfeing\"}\n");
    client.write(b"\xff\n");
    assert_eq!(client.run("print('alive')").printed(), "alive");
    Ok(())
}

/// Only 2025-03-26 had batches, and no client is known to send one.
fn batches_are_refused() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.shim();
    client.initialize("2025-03-26");
    client.write(b"[]\n");
    client.write(b"[{\"jsonrpc\": \"2.0\", \"id\": \"b\", \"method\": \"ping\"}]\n");
    assert_eq!(client.ask("ping", &json!({})), json!({}));
    assert_eq!(client.run("print('alive')").printed(), "alive");
    assert_eq!(
        error_codes(&client.notices),
        [-32600; 2],
        "{:?}",
        client.notices
    );
    assert!(
        format!("{:?}", client.notices).contains("batch"),
        "{:?}",
        client.notices
    );
    Ok(())
}

fn unknown_methods_are_refused_and_unknown_notifications_ignored() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    for method in ["nothing/here", "tools/nothing", "completion/complete", ""] {
        let id = client.request(method, &json!({}));
        let answer = client.answer(&id);
        assert_eq!(answer["error"]["code"], json!(-32601), "{answer}");
    }
    // What a newer client tries: runs are resources, and the opener of another era says what it lacks here.
    let id = client.request("resources/list", &json!({}));
    assert_eq!(client.answer(&id)["result"]["resources"], json!([]));
    let id = client.request("server/discover", &json!({}));
    assert_eq!(client.answer(&id)["error"]["code"], json!(-32602));
    for odd in [
        json!({"jsonrpc": "2.0", "method": "notifications/unheard-of", "params": {"x": [1]}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled"}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": null}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4711}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "1"}}),
    ] {
        client.send(&odd);
    }
    assert_eq!(client.run("print('alive')").printed(), "alive");
    let id = client.request(
        "tools/call",
        &json!({"name": "no_such_tool", "arguments": {}}),
    );
    let answer = client.answer(&id);
    let refused =
        answer["error"]["code"] == json!(-32602) || answer["result"]["isError"] == json!(true);
    assert!(refused, "{answer}");
    Ok(())
}

fn a_frame_of_nearly_sixteen_mebibytes_goes_up() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    let padding = "p".repeat(MAX_LINE_BYTES - 200);
    assert_eq!(
        client.ask("ping", &json!({"_meta": {"padding": padding}})),
        json!({})
    );
    assert_eq!(client.run("print('alive')").printed(), "alive");
    Ok(())
}

fn an_over_long_frame_is_refused_and_the_session_goes_on() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    let run = client.start_run("import time\ntime.sleep(1)\nprint('untouched')");
    let padding = "p".repeat(MAX_LINE_BYTES + 1000);
    client.send(&json!({
        "jsonrpc": "2.0", "id": "long", "method": "ping", "params": {"padding": padding},
    }));
    assert_eq!(client.ask("ping", &json!({})), json!({}));
    assert_eq!(client.finish_run(&run).printed(), "untouched");
    let refusal = if client.has_answer(&json!("long")) {
        client.answer(&json!("long"))
    } else {
        client
            .notices
            .iter()
            .find(|notice| notice.get("error").is_some())
            .cloned()
            .unwrap_or_default()
    };
    assert!(
        refusal["error"]["code"].is_number(),
        "no error for the long frame: {refusal}"
    );
    let message = refusal["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("16"), "the limit is not named: {message}");
    Ok(())
}

fn the_largest_answer_comes_down_whole() -> TestResult {
    let four = 4 * 1024 * 1024;
    let home = Home::new(&Plan::new().set("execution.max_output_bytes", four));
    let _daemon = home.daemon();
    let mut client = home.client();
    let fits = client.run("print('x' * (4 * 1024 * 1024 - 100))\nemit('end')");
    assert_eq!(
        fits.structured["output"].as_str().map(str::len),
        Some(four - 99)
    );
    // Each of these takes two bytes in JSON, and stands in the answer twice.
    let cut =
        client.run("print('\"' * (4 * 1024 * 1024 - 100))\nemit('\"' * (2 * 1024 * 1024 - 8))");
    let bytes = cut.result.to_string().len();
    assert!(bytes < 15 * 1024 * 1024, "{bytes} bytes");
    assert!(!cut.is_error, "{:.600}", cut.text);
    assert_eq!(client.run("print('alive')").printed(), "alive");
    Ok(())
}

fn a_program_over_one_mebibyte_is_refused() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    let comment = |bytes: usize| format!("print('ran')\n#{}\n", "c".repeat(bytes - 15));
    assert_eq!(client.run(&comment(1024 * 1024)).printed(), "ran");
    let over = client.run(&comment(1024 * 1024 + 1));
    assert!(over.is_error);
    assert!(!over.text.contains("ran\n"), "{:.300}", over.text);
    assert!(
        over.text.contains("1 MiB") || over.text.contains("1048576"),
        "{:.300}",
        over.text
    );
    Ok(())
}

fn two_lines_of_printf_give_two_lines() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let mut shim = home.shim();
    let code = "print((await mcp__m__add(a=20, b=22))['sum'])";
    let lines = format!(
        "{}\n{}\n",
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "printf", "version": "0"},
        }}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "execute_program", "arguments": {"code": code},
        }}),
    );
    shim.write(lines.as_bytes());
    shim.close_stdin();
    let mut answers = Vec::new();
    while let Some(line) = shim.line(Duration::from_secs(40)) {
        answers.push(serde_json::from_str::<Value>(&line)?);
    }
    assert!(shim.wait(PATIENCE).success());
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!(2)], "{answers:?}");
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-06-18");
    let text = answers[1]["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default();
    assert!(
        text.starts_with("[Script executed successfully]\n42\n"),
        "{text}"
    );
    Ok(())
}

fn blank_lines_and_carriage_returns_do_no_harm() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    client.write(b"\n\r\n   \n");
    client.write(b"{\"jsonrpc\": \"2.0\", \"id\": 700, \"method\": \"ping\"}\r\n");
    assert_eq!(client.answer(&json!(700))["result"], json!({}));
    Ok(())
}

fn the_shim_ends_with_its_stdin() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let mut client = home.client();
    client.close_stdin();
    assert!(client.wait(PATIENCE).success());
    assert_eq!(client.line(PATIENCE), None);
    Ok(())
}

fn error_codes(notices: &[Value]) -> Vec<i64> {
    notices
        .iter()
        .filter_map(|notice| notice["error"]["code"].as_i64())
        .collect()
}
