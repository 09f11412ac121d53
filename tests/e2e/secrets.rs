//! No secret of a configuration in what the daemon writes down or tells.

use std::collections::BTreeSet;
use std::path::Path;

use libtest_mimic::Trial;
use ptc_protocol::route;
use ptc_protocol::status::ServerState;
use ptc_tests::mock_http::{Answer, Mock, Plays};
use ptc_tests::wait::until;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult, http};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![no_secret_is_in_a_file_of_the_state_or_on_a_route]
}

/// One value for each way by which a secret comes into a configuration.
const SECRETS: [(&str, &str); 5] = [
    ("TEST_ENV_TOKEN", "q7-environment-value"),
    ("TEST_ARG_TOKEN", "q7-argument-value"),
    ("TEST_HEADER_TOKEN", "q7-header-value"),
    ("TEST_URL_TOKEN", "q7-address-value"),
    ("TEST_COMMAND_TOKEN", "q7-command-value"),
];
/// One that stands in the file itself.
const LITERAL: &str = "q7-literal-header-value";

/// A program that has secrets in its text, calls, prints, and ends with one in its error.
const TELLS: &str = "\
env = await mcp__m__env()
print(env)
await mcp__m__echo(a='q7-environment-value', b=['q7-argument-value'])
try:
    await mcp__m__fail(message='failed with q7-environment-value')
except ToolError as e:
    print(e)
try:
    await mcp__h__fail(message='q7-header-value')
except ToolError as e:
    print(e)
raise ValueError('q7-environment-value and q7-literal-header-value')
";

/// HTTP servers that repeat what they were sent: one in its answers to calls, one in refusing everything.
fn repeaters() -> (Mock, Mock) {
    let told = Mock::start(Plays::Legacy, |request, _| {
        let seen = format!("{} {:?} {}", request.path, request.headers, LITERAL);
        request
            .calls("echo")
            .then(|| Answer::text(500, "text/plain", seen))
    });
    let denies = Mock::start(Plays::Legacy, |request, _| {
        let seen = format!("{} {:?}", request.path, request.headers);
        Some(Answer::text(403, "text/plain", seen))
    });
    (told, denies)
}

/// Servers that use every secret, and everything written down.
fn secretive(told: &Mock, denies: &Mock) -> Plan {
    let headers = json!({"Authorization": "Bearer ${TEST_HEADER_TOKEN}", "X-Literal": LITERAL});
    let (mut repeats, mut refuses) = (told.entry("h"), denies.entry("d"));
    repeats["headers"] = headers.clone();
    refuses["headers"] = headers;
    refuses["url"] = json!(format!("{}/mcp/${{TEST_URL_TOKEN}}", denies.origin()));
    let own = ptc_tests::programs::program("mock-mcp");
    Plan::new()
        .set("journal", json!({"record": "full"}))
        .entry(json!({
            "name": "m", "transport": "stdio", "command": own,
            "args": ["--tag", "${TEST_ARG_TOKEN}"], "env": {"TOKEN": "${TEST_ENV_TOKEN}"},
        }))
        // It complains of its argument on stderr and ends.
        .entry(json!({"name": "bad", "transport": "stdio", "command": own, "args": ["${TEST_ARG_TOKEN}"]}))
        .entry(json!({"name": "gone", "transport": "stdio", "command": "/nowhere/${TEST_COMMAND_TOKEN}"}))
        .entry(repeats)
        .entry(refuses)
}

/// What each route says, by its path.
fn told_on_routes(daemon: &Daemon, request: &Value) -> anyhow::Result<Vec<(String, String)>> {
    let session = daemon.status().clients[0].session.clone();
    let request = request.to_string();
    let mut told = Vec::new();
    for route in [
        route::STATUS.to_owned(),
        route::HEALTH.to_owned(),
        route::METRICS.to_owned(),
        route::TOOLS.to_owned(),
        route::RUNS.to_owned(),
        route::CONFIG.to_owned(),
        route::with(route::TOOL, &[("name", "mcp__m__env")]),
        route::with(
            route::CALLS,
            &[("session", &session), ("request", &request)],
        ),
    ] {
        let answer = http::ask(daemon.socket(), "GET", &route)?;
        anyhow::ensure!(answer.status == 200, "{route}: {}", answer.body);
        told.push((route, answer.body));
    }
    for route in [route::CONFIG_CHECK, route::RELOAD] {
        let answer = http::ask(daemon.socket(), "POST", route)?;
        told.push((route.to_owned(), answer.body));
    }
    Ok(told)
}

fn no_secret_is_in_a_file_of_the_state_or_on_a_route() -> TestResult {
    let (told, denies) = repeaters();
    let home = Home::new(&secretive(&told, &denies));
    let mut daemon = Daemon::spawn(&home, |command| {
        command.env("PTC_LOG", "trace").envs(SECRETS);
    });
    daemon.wait_until_it_answers();
    daemon.wait_for("m", ServerState::Ready);
    daemon.wait_for("h", ServerState::Ready);
    daemon.wait_for("bad", ServerState::Reconnecting);
    daemon.wait_for("gone", ServerState::Failed);
    until("the one that denies is done with", PATIENCE, || {
        let detail = daemon.server("d").detail;
        detail.is_some_and(|detail| detail.contains("403"))
    });
    let mut client = home.client();
    let run = client.run(TELLS);
    // What a program prints is its client's; so the secrets did go this way.
    assert!(
        run.is_error && run.text.contains("q7-environment-value"),
        "{}",
        run.text
    );
    let params = json!({
        "name": "execute_program", "arguments": {"code": "print(await mcp__h__echo(a=1))"},
    });
    let id = client.request("tools/call", &params);
    client.answer(&id);
    let mut places = told_on_routes(&daemon, &id)?;
    daemon.stop();
    let state = home.state();
    let kept = files(state.parent().unwrap_or(&state));
    assert!(kept.len() >= 5, "{kept:?}");
    for file in kept.into_iter().chain([home.daemon_log()]) {
        let bytes = std::fs::read(&file)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        places.push((file.display().to_string(), text));
    }
    let mut masks = BTreeSet::new();
    for (place, text) in &places {
        for (_, secret) in SECRETS.iter().chain([&("", LITERAL)]) {
            assert_eq!(text.find(secret), None, "{place} holds {secret}");
        }
        let masked = |name: &str| text.contains(&format!("<{name}:"));
        masks.extend(
            SECRETS
                .iter()
                .map(|(name, _)| *name)
                .filter(|name| masked(name)),
        );
    }
    // They were there to be masked.
    assert_eq!(masks.len(), SECRETS.len(), "{masks:?}");
    Ok(())
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.symlink_metadata().is_ok_and(|about| about.is_dir()) {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}
