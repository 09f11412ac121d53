//! Clients of both eras while the daemon comes and goes.

use std::os::unix::fs::PermissionsExt as _;

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::programs::program;
use ptc_tests::wait::until;
use ptc_tests::{Client, Home, PATIENCE, Plan, TestResult};
use rustix::process::Signal;
use serde_json::json;

use crate::eras_upstream::{MODERN, SUBSCRIPTION, error, keys, modern, run, with_meta};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_second_initialize_is_answered_and_outlives_the_daemon,
        a_modern_client_lives_through_a_crash_of_the_daemon,
        a_shim_alone_answers_openers_and_lists,
        what_a_shim_says_alone_follows_a_reload,
        a_stopped_daemon_is_answered_for_and_answers_nothing_twice,
    ]
}

/// A shim with no ptcd beside it, so that it can start none.
fn lonely(home: &Home) -> std::io::Result<Client> {
    let alone = home.path("home/ptc-mcp");
    if !alone.exists() {
        std::fs::copy(program("ptc-mcp"), &alone)?;
    }
    let mut command = std::process::Command::new(alone);
    command.env_clear().envs(home.environment());
    command.arg("--config").arg(home.config());
    Ok(home.shim_of(command))
}

fn a_second_initialize_is_answered_and_outlives_the_daemon() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut client = home.shim();
    client.initialize("2025-11-25");
    let run = client.start_run("import time\ntime.sleep(1)\nprint('first')");
    assert_eq!(
        client.initialize("2025-03-26")["protocolVersion"],
        "2025-03-26"
    );
    assert_eq!(client.initialize(MODERN)["protocolVersion"], "2025-11-25");
    assert_eq!(client.finish_run(&run).printed(), "first");
    assert_eq!(keys(&client.ask("tools/list", &json!({}))), ["tools"]);
    let odd = json!({"protocolVersion": [], "capabilities": {}, "clientInfo": {}});
    assert_eq!(error(&mut client, "initialize", &odd)["code"], -32602);
    daemon.kill();
    assert_eq!(client.run("print('again')").printed(), "again");
    Ok(())
}

fn a_modern_client_lives_through_a_crash_of_the_daemon() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.shim();
    let listening = client.request(
        "subscriptions/listen",
        &with_meta(json!({"notifications": {"toolsListChanged": true}})),
    );
    let code = "await mcp__m__add(a=1, b=2)\nawait mcp__m__sleep(ms=60000)";
    let call = json!({"name": "execute_program", "arguments": {"code": code}});
    let lost = client.request("tools/call", &with_meta(call));
    until("it has called twice", PATIENCE, || {
        daemon.server("m").calls == 2
    });
    daemon.kill();
    let answer = client.answer(&lost);
    let text = answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default();
    assert!(text.contains("mcp__m__add (ok)"), "{answer}");
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(run(&mut client, "print('on')").printed(), "on");
    // A daemon that ends in order ends the subscription, which is no matter of the client's.
    let (code, _, said) = home.ctl(&["restart"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(run(&mut client, "print('and on')").printed(), "and on");
    assert!(!client.has_answer(&listening));
    assert_eq!(client.notices.len(), 1, "{:?}", client.notices);
    assert_eq!(
        client.notices[0]["params"]["_meta"][SUBSCRIPTION],
        listening
    );
    Ok(())
}

fn a_stopped_daemon_is_answered_for_and_answers_nothing_twice() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut client = home.client();
    let tools = client.ask("tools/list", &json!({}));
    daemon.freeze();
    let run = client.start_run("print('on')");
    let asked = [
        client.request("ping", &json!({})),
        client.request("tools/list", &json!({})),
    ];
    assert_eq!(client.answer(&asked[0])["result"], json!({}));
    assert_eq!(client.answer(&asked[1])["result"], tools);
    assert!(!client.has_answer(&run));
    daemon.signal(Signal::CONT);
    assert_eq!(client.finish_run(&run).printed(), "on");
    // Answered in order, so that what was late has been there by now.
    assert_eq!(client.ask("tools/list", &json!({})), tools);
    for id in &asked {
        assert!(!client.has_answer(id), "a second answer to {id}");
    }
    Ok(())
}

fn a_shim_alone_answers_openers_and_lists() -> TestResult {
    let order = json!(["list_callable_tools", "execute_program"]);
    let home = Home::new(&Plan::new().set("tools.expose", order));
    let daemon = home.daemon();
    let mut client = home.shim();
    let said = (
        modern(&mut client, "server/discover", json!({})),
        modern(&mut client, "tools/list", json!({})),
        home.client().ask("tools/list", &json!({})),
    );
    daemon.stop();
    let mut client = lonely(&home)?;
    let told = modern(&mut client, "server/discover", json!({}));
    for key in [
        "supportedVersions",
        "capabilities",
        "instructions",
        "resultType",
        "_meta",
    ] {
        assert_eq!(told[key], said.0[key], "{key}");
    }
    let list = modern(&mut client, "tools/list", json!({}));
    assert_eq!(list["tools"].to_string(), said.1["tools"].to_string());
    assert_eq!(keys(&list), keys(&said.1));
    let mut client = lonely(&home)?;
    assert_eq!(
        client.initialize("2025-06-18")["instructions"],
        said.0["instructions"]
    );
    assert_eq!(
        client.ask("tools/list", &json!({})).to_string(),
        said.2.to_string()
    );
    assert!(client.run("print(1)").is_error);
    // What was said under another configuration is not said again.
    home.write_config(&Plan::new().text());
    let mut client = lonely(&home)?;
    assert!(
        client
            .initialize("2025-06-18")
            .get("instructions")
            .is_none()
    );
    let list = client.ask("tools/list", &json!({}));
    assert_eq!(list["tools"].as_array().map(Vec::len), Some(3));
    Ok(())
}

fn what_a_shim_says_alone_follows_a_reload() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let offered = |client: &mut Client| {
        client.initialize("2025-06-18");
        let list = client.ask("tools/list", &json!({}));
        list["tools"].as_array().map(Vec::len)
    };
    home.write_config(&Plan::new().set("tools.expose", json!([])).text());
    let (code, _, said) = home.ctl(&["reload"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(offered(&mut home.shim()), Some(0));
    daemon.stop();
    assert_eq!(offered(&mut lonely(&home)?), Some(0));
    // A file that others may write is not believed.
    let file = home.state().join("said.json");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666))?;
    assert_eq!(offered(&mut lonely(&home)?), Some(3));
    Ok(())
}
