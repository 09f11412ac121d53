//! Shims and daemons of different builds, and connections that are made anew.

use libtest_mimic::Trial;
use ptc_protocol::status::{Done, ServerState};
use ptc_protocol::{PROTOCOL, PROTOCOL_MIN, route};
use ptc_tests::direct::{Direct, hello};
use ptc_tests::wait::until;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult, http};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_recorded_session_of_each_revision_is_still_served,
        a_shim_of_another_revision_is_served_in_the_common_one_or_told_both,
        a_daemon_with_a_run_in_flight_is_not_ended_by_a_newer_shim,
        an_idle_daemon_ends_for_a_newer_shim_and_others_find_the_next,
        the_status_names_a_shim_of_another_build,
        a_reload_that_wants_new_variables_asks_every_client_again,
        a_second_connection_of_one_session_replaces_the_first,
    ]
}

/// Whether `found` has at least what `want` has; members named in `varies` need only be there.
fn fits(want: &Value, found: &Value, varies: &[&str]) -> bool {
    match (want, found) {
        (Value::Object(want), Value::Object(found)) => want.iter().all(|(name, want)| {
            found
                .get(name)
                .is_some_and(|found| varies.contains(&&**name) || fits(want, found, varies))
        }),
        _ => want == found,
    }
}

fn a_recorded_session_of_each_revision_is_still_served() -> TestResult {
    for revision in PROTOCOL_MIN..=PROTOCOL {
        let file = format!(
            "{}/frames/session-{revision}.jsonl",
            env!("CARGO_MANIFEST_DIR")
        );
        let text = std::fs::read_to_string(&file)
            .map_err(|error| anyhow::anyhow!("{file}: a revision needs its record: {error}"))?;
        let entry = json!({
            "name": "m", "transport": "stdio", "command": ptc_tests::programs::program("mock-mcp"),
            "env": {"TOKEN": "${SESSION_FRAMES_TOKEN}"},
        });
        let home = Home::new(&Plan::new().entry(entry));
        let daemon = home.daemon();
        let config = home.config().canonicalize()?;
        let mut stream = Direct::upgrade(&home);
        let mut frames = 0;
        for line in text.lines() {
            let line = line.replace("CONFIG", &config.display().to_string());
            let frame: Value = serde_json::from_str(&line)?;
            if let Some(said) = frame.get("shim") {
                stream.send(said);
            } else if let Some(want) = frame.get("daemon") {
                let varies: Vec<&str> = frame["varies"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                let found = stream.line().unwrap_or_default();
                assert!(
                    fits(want, &found, &varies),
                    "{file}\nwant {want}\nfound {found}"
                );
                frames += 1;
            }
        }
        assert_eq!(frames, 5);
        // The variable has reached the server that waited for it.
        daemon.wait_for("m", ServerState::Ready);
    }
    Ok(())
}

fn a_shim_of_another_revision_is_served_in_the_common_one_or_told_both() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    for (session, range, served) in [
        (1, [PROTOCOL, PROTOCOL + 1], true),
        (2, [0, PROTOCOL], true),
        (3, [PROTOCOL + 1, PROTOCOL + 2], false),
        (4, [PROTOCOL + 2, PROTOCOL], false),
    ] {
        let mut stream = Direct::upgrade(&home);
        let mut said = json!(hello(&home, session));
        said["protocol"] = json!(range);
        // What a later build says besides is no matter of this one.
        said["something_new"] = json!({"a": [1]});
        stream.send(&said);
        let welcome = stream.line().unwrap_or_default();
        if served {
            assert_eq!(welcome["welcome"]["protocol"], PROTOCOL, "{welcome}");
            stream.send(&json!({}));
            stream.initialize();
        } else {
            let text = welcome["refused"]["message"].as_str().unwrap_or_default();
            assert!(text.contains("ptcctl restart"), "{welcome}");
            assert_eq!(stream.line(), None);
        }
    }
    Ok(())
}

fn stop_idle(daemon: &Daemon) -> anyhow::Result<Done> {
    let answer = http::ask(daemon.socket(), "POST", route::STOP_IDLE)?;
    Ok(serde_json::from_str(&answer.body)?)
}

fn a_daemon_with_a_run_in_flight_is_not_ended_by_a_newer_shim() -> TestResult {
    let plan = Plan::new().set("execution.max_runs", 1);
    let home = Home::new(&plan.set("daemon.drain_seconds", 1).server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let first = client.start_run("await mcp__m__sleep(ms=2500)\nprint('whole')");
    let second = client.start_run("print('second')");
    until("one runs and one waits", PATIENCE, || {
        let pool = daemon.status().programs.pool;
        (pool.busy, pool.queued) == (1, 1)
    });
    let done = stop_idle(&daemon)?;
    assert!(!done.ok, "{done:?}");
    assert_eq!(client.finish_run(&first).printed(), "whole");
    assert_eq!(client.finish_run(&second).printed(), "second");
    assert!(!daemon.status().draining);
    Ok(())
}

fn an_idle_daemon_ends_for_a_newer_shim_and_others_find_the_next() -> TestResult {
    let home = Home::new(&Plan::new());
    let mut daemon = home.daemon();
    let mut client = home.client();
    assert_eq!(client.run("print(1)").printed(), "1");
    let done = stop_idle(&daemon)?;
    assert!(done.ok, "{done:?}");
    assert!(daemon.wait(PATIENCE).success());
    assert_eq!(client.run("print(2)").printed(), "2");
    Ok(())
}

fn the_status_names_a_shim_of_another_build() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut other = hello(&home, 1);
    "0.0.9".clone_into(&mut other.build);
    let _other = Direct::open_as(&home, &other);
    let _same = Direct::open_as(&home, &hello(&home, 2));
    until("both are there", PATIENCE, || {
        daemon.status().clients.len() == 2
    });
    let builds: Vec<_> = daemon
        .status()
        .clients
        .into_iter()
        .map(|client| client.other_build)
        .collect();
    assert!(builds.contains(&Some("0.0.9".to_owned())), "{builds:?}");
    assert!(builds.contains(&None), "{builds:?}");
    let (code, out, _) = home.ctl(&["status"]);
    assert!(code == 0 && out.contains("0.0.9"), "{out}");
    Ok(())
}

fn a_reload_that_wants_new_variables_asks_every_client_again() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut command = home.command("ptc-mcp");
    command.arg("--config").arg(home.config());
    command.env("NEWLY_WANTED", "from the editor");
    let mut client = home.shim_of(command);
    client.initialize("2025-11-25");
    let run = client.start_run("import time\ntime.sleep(2)\nprint('undisturbed')");
    until("it runs", PATIENCE, || {
        daemon.status().programs.pool.busy == 1
    });
    let entry = json!({
        "name": "m", "transport": "stdio", "command": ptc_tests::programs::program("mock-mcp"),
        "env": {"TOKEN": "${NEWLY_WANTED}"},
    });
    home.write_config(&Plan::new().entry(entry).text());
    let (code, _, said) = home.ctl(&["reload"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(client.finish_run(&run).printed(), "undisturbed");
    // Nobody has to start the editor anew: its shim comes again and is asked.
    daemon.wait_for("m", ServerState::Ready);
    let look = "print((await mcp__m__env())['TOKEN'])";
    assert_eq!(client.run(look).printed(), "from the editor");
    assert_eq!(daemon.status().clients.len(), 1);
    Ok(())
}

fn a_second_connection_of_one_session_replaces_the_first() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut first = Direct::open(&home, 7);
    first.initialize();
    let code = "await mcp__m__sleep(ms=60000)";
    let call = json!({"name": "execute_program", "arguments": {"code": code}});
    first.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}));
    until("its call is out", PATIENCE, || {
        daemon.server("m").calls == 1
    });
    let mut second = Direct::open(&home, 7);
    second.initialize();
    let call = json!({"name": "execute_program", "arguments": {"code": "print('mine')"}});
    let answer = second.ask(&json!(1), "tools/call", &call);
    let text = answer["result"]["content"][0]["text"].as_str();
    assert_eq!(text, Some("[Script executed successfully]\nmine\n"));
    first.rest();
    until("the first one's run has ended", PATIENCE, || {
        daemon.status().programs.pool.busy == 0
    });
    assert_eq!(daemon.status().clients.len(), 1);
    Ok(())
}
