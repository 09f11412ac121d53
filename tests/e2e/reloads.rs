//! Reloads: one at a time, with programs, clients and servers under way.

use std::process::{Command, Stdio};

use libtest_mimic::Trial;
use ptc_protocol::run::Confinement;
use ptc_protocol::status::{ConfigShown, ServerState};
use ptc_tests::process::needs_proc;
use ptc_tests::wait::until;
use ptc_tests::{Client, Home, PATIENCE, Plan, TestResult};
use serde_json::{Value, json};

use crate::eras_upstream::{SUBSCRIPTION, run, with_meta};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        reloads_that_overlap_end_with_the_newest_file_and_one_configuration,
        programs_outlive_a_reload_of_what_they_run_in,
        a_program_that_waits_begins_under_the_configuration_in_force,
        a_long_file_of_faults_holds_nobody_up,
        nobody_uses_the_credentials_of_another_client,
        a_value_that_cannot_be_sent_is_not_called_unset,
        nothing_is_lost_when_clients_are_asked_again,
        a_reload_says_what_is_in_force,
    ]
}

/// `ptcctl` beside the test, not waited for.
fn ctl(home: &Home, args: &[&str]) -> std::io::Result<std::process::Child> {
    let mut command = home.command("ptcctl");
    command.arg("--config").arg(home.config()).args(args);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
}

/// A shim whose editor has these variables.
fn client_with(home: &Home, variables: &[(&str, &str)]) -> Client {
    let mut client = home.shim_of(shim_with(home, variables));
    client.initialize("2025-11-25");
    client
}

fn shim_with(home: &Home, variables: &[(&str, &str)]) -> Command {
    let mut command = home.command("ptc-mcp");
    command.arg("--config").arg(home.config());
    command.envs(variables.iter().copied());
    command
}

/// The scripted server under this name with an environment.
fn server(name: &str, env: &Value) -> Value {
    json!({
        "name": name, "transport": "stdio", "env": env,
        "command": ptc_tests::programs::program("mock-mcp"),
    })
}

fn reloads_that_overlap_end_with_the_newest_file_and_one_configuration() -> TestResult {
    let bytes = |mib: u64| mib * 1024 * 1024;
    let confined = |round: u64| Plan::new().set("execution.memory_bytes", bytes(300 + round));
    let open = |round: u64| {
        let plan = Plan::new().set("execution.sandbox", "none");
        plan.set("execution.memory_bytes", bytes(400 + round))
    };
    let home = Home::new(&confined(0));
    let daemon = home.daemon();
    for round in 0..6 {
        // The newest file is the confined one in every other round.
        let (first, second) = if round % 2 == 0 {
            (open(round), confined(round))
        } else {
            (confined(round), open(round))
        };
        home.write_config(&first.text());
        let mut reloads = vec![ctl(&home, &["reload"])?];
        if round > 3 {
            until("it was read", PATIENCE, || {
                !daemon.status().config.changed_on_disk
            });
        }
        home.write_config(&second.text());
        reloads.push(ctl(&home, &["reload"])?);
        reloads.push(ctl(&home, &["reload"])?);
        for reload in reloads {
            let output = reload.wait_with_output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "round {round}: {said}");
        }
        let (_, out, _) = home.ctl(&["--json", "config", "show"]);
        let shown: ConfigShown = serde_json::from_str(&out)?;
        let execution = &shown.config["execution"];
        let newest: Value = serde_json::from_str(&second.text())?;
        for key in ["sandbox", "memory_bytes"] {
            assert_eq!(execution[key], newest["execution"][key], "round {round}");
        }
        let tier = daemon.status().programs.confinement;
        let tier = tier.map(Confinement::as_str);
        let unconfined = execution["sandbox"] == "none";
        assert_eq!(tier == Some("none"), unconfined, "round {round}: {tier:?}");
        let ran = home.client().run("print('ran')");
        assert_eq!(ran.printed(), "ran");
        assert_eq!(ran.structured["confinement"].as_str(), tier);
    }
    Ok(())
}

fn programs_outlive_a_reload_of_what_they_run_in() -> TestResult {
    needs_proc()?;
    let plan = Plan::new().server("m", &[]);
    let home = Home::new(&plan);
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    // It ends when there is a server `go`, so not before the last reload.
    let code = "import asyncio\nprint('begun')\nawait mcp__m__pid()\n\
                while 'go' not in await server_status():\n    await asyncio.sleep(0.1)\n\
                open('f', 'w').write('x')\nprint('ended')";
    let runs = [client.start_run(code), client.start_run(code)];
    until("both run", PATIENCE, || daemon.server("m").calls == 2);
    let wardens = || {
        let processes = home.processes().into_iter();
        let lines = processes.map(ptc_tests::process::Process::command_line);
        lines
            .filter(|line| line.get(1).is_some_and(|word| word == "warden"))
            .count()
    };
    let before = wardens();
    for mib in [200_u64, 201] {
        let changed = plan
            .clone()
            .set("execution.memory_bytes", mib * 1024 * 1024);
        home.write_config(&changed.set("execution.timeout_seconds", 60).text());
        let (code, _, said) = home.ctl(&["reload"]);
        assert_eq!(code, 0, "{said}");
        // What begins now has its own workshop.
        assert_eq!(client.run("print('new')").printed(), "new");
    }
    for run in &runs {
        assert!(!client.has_answer(run), "it was ended");
    }
    home.write_config(&plan.server("go", &[]).text());
    let (code, _, said) = home.ctl(&["reload"]);
    assert_eq!(code, 0, "{said}");
    for run in runs {
        assert_eq!(client.finish_run(&run).printed(), "begun\nended");
    }
    until("nothing is left of what was in force", PATIENCE, || {
        wardens() == before
    });
    daemon.stop();
    Ok(())
}

fn a_program_that_waits_begins_under_the_configuration_in_force() -> TestResult {
    let plan = Plan::new().server("m", &[]).set("execution.max_runs", 1);
    let home = Home::new(&plan);
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let first = client.start_run("await mcp__m__sleep(ms=4000)\nprint('first')");
    until("it runs", PATIENCE, || daemon.server("m").calls == 1);
    let second = client.start_run("import time\ntime.sleep(60)");
    until("one waits", PATIENCE, || {
        daemon.status().programs.pool.queued == 1
    });
    home.write_config(&plan.set("execution.timeout_seconds", 1).text());
    let (code, _, said) = home.ctl(&["reload"]);
    assert_eq!(code, 0, "{said}");
    // The first one keeps the time it began with.
    assert_eq!(client.finish_run(&first).printed(), "first");
    let second = client.finish_run(&second);
    assert!(
        second.text.contains("timed out after 1 s"),
        "{}",
        second.text
    );
    Ok(())
}

fn a_long_file_of_faults_holds_nobody_up() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut client = home.client();
    assert_eq!(client.run("print('before')").printed(), "before");
    let faults = "  - {nam: s}\n".repeat(6000);
    home.write_config(&format!("servers:\n{faults}"));
    let reloads = (0..3).map(|_| ctl(&home, &["-q", "reload"]));
    let reloads = reloads.collect::<std::io::Result<Vec<_>>>()?;
    for n in 0..5 {
        assert_eq!(client.run(&format!("print({n})")).printed(), n.to_string());
    }
    for reload in reloads {
        let output = reload.wait_with_output()?;
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("the configuration in force stays"),
            "{}",
            said.len()
        );
    }
    assert!(!daemon.status().config.faults.is_empty());
    Ok(())
}

fn nobody_uses_the_credentials_of_another_client() -> TestResult {
    let entry = server("m", &json!({"KEY": "${LOAN_KEY}"}));
    let home = Home::new(&Plan::new().entry(entry.clone()));
    let daemon = home.daemon();
    let look = "print((await mcp__m__env())['KEY'][::-1])";
    let mut first = client_with(
        &home,
        &[("LOAN_KEY", "value-one"), ("MORE_KEY", "more-one")],
    );
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(first.run(look).printed(), "eno-eulav");
    let mut second = client_with(&home, &[("LOAN_KEY", "value-two")]);
    assert_barred(&mut second, look, "another value of ${LOAN_KEY}");
    assert_eq!(home.ctl(&["reload", "--env"]).0, 0);
    let mut third = client_with(&home, &[("LOAN_KEY", "value-two")]);
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(third.run(look).printed(), "owt-eulav");
    // The value in use is the second client's own now, and not the first one's any more.
    assert_eq!(second.run(look).printed(), "owt-eulav");
    assert_barred(&mut first, look, "another value of ${LOAN_KEY}");
    // A variable that nobody was asked for is another client's until a client has been asked.
    let busy =
        first.start_run("await __import__('asyncio').sleep(3)\nprint(await server_status())");
    until("it runs", PATIENCE, || {
        daemon.status().programs.pool.busy == 1
    });
    let more = server("n", &json!({"KEY": "${MORE_KEY}"}));
    home.write_config(&Plan::new().entry(entry).entry(more).text());
    assert_eq!(home.ctl(&["reload"]).0, 0);
    let mut fourth = client_with(&home, &[("MORE_KEY", "more-two")]);
    daemon.wait_for("n", ServerState::Ready);
    let look = "print((await mcp__n__env())['KEY'][::-1])";
    assert_eq!(fourth.run(look).printed(), "owt-erom");
    let seen = first.finish_run(&busy);
    assert!(seen.printed().contains("not asked yet"), "{}", seen.text);
    // It was asked as soon as it waited for nothing, and its value is another.
    until("it has been asked", PATIENCE, || {
        first
            .run(look)
            .text
            .contains("another value of ${MORE_KEY}")
    });
    assert_barred(&mut first, look, "another value of ${MORE_KEY}");
    Ok(())
}

#[track_caller]
fn assert_barred(client: &mut Client, code: &str, why: &str) {
    let refused = client.run(code);
    assert!(
        refused.text.contains("not for this client"),
        "{}",
        refused.text
    );
    assert!(refused.text.contains(why), "{}", refused.text);
    let list = client.call("list_callable_tools", &json!({}));
    let unavailable = list.structured["unavailable"].to_string();
    assert!(unavailable.contains(why), "{}", list.result);
}

fn a_value_that_cannot_be_sent_is_not_called_unset() -> TestResult {
    let home = Home::new(&Plan::new().entry(server("m", &json!({"KEY": "${HUGE_KEY}"}))));
    let daemon = home.daemon();
    let before = daemon.wait_for("m", ServerState::Failed).detail;
    assert!(before.is_some_and(|detail| detail.contains("${HUGE_KEY} is not set")));
    let huge = "x".repeat(40_000);
    let mut client = client_with(&home, &[("HUGE_KEY", &huge)]);
    until("its value is known to be too long", PATIENCE, || {
        let detail = daemon.server("m").detail.unwrap_or_default();
        detail.contains("cannot be sent: it is longer than 32768 bytes")
            && !detail.contains("not set")
    });
    let list = client.call("list_callable_tools", &json!({}));
    assert!(
        list.result.to_string().contains("longer than 32768 bytes"),
        "{}",
        list.result
    );
    Ok(())
}

fn nothing_is_lost_when_clients_are_asked_again() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let names: Vec<String> = (0..4).map(|n| format!("ASKED_{n}")).collect();
    let values: Vec<(&str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), "of-the-editor"))
        .collect();
    let mut legacy = client_with(&home, &values);
    let mut modern = home.shim_of(shim_with(&home, &values));
    let listening = modern.request(
        "subscriptions/listen",
        &with_meta(json!({"notifications": {"toolsListChanged": true}})),
    );
    assert_eq!(run(&mut modern, "print('there')").printed(), "there");
    let mut plan = Plan::new();
    for (n, name) in names.iter().enumerate() {
        plan = plan.entry(server(
            &format!("s{n}"),
            &json!({"KEY": format!("${{{name}}}")}),
        ));
        home.write_config(&plan.text());
        let reload = ctl(&home, &["reload"])?;
        // Request after request, whatever connection they find.
        for round in 0..12 {
            let code = format!("print({n}, {round})");
            let printed = format!("{n} {round}");
            assert_eq!(legacy.run(&code).printed(), printed);
            assert_eq!(run(&mut modern, &code).printed(), printed);
        }
        let output = reload.wait_with_output()?;
        assert!(output.status.success(), "{output:?}");
        daemon.wait_for(&format!("s{n}"), ServerState::Ready);
    }
    let look = "print([(await f())['KEY'] for f in (mcp__s0__env, mcp__s3__env)])";
    let both = "['of-the-editor', 'of-the-editor']";
    for _ in 0..2 {
        until("each was asked", PATIENCE, || {
            legacy.run(look).text.contains(both)
        });
        until("each was asked", PATIENCE, || {
            run(&mut modern, look).text.contains(both)
        });
    }
    assert!(!modern.has_answer(&listening), "the subscription goes on");
    assert_eq!(modern.notices.len(), 1, "{:?}", modern.notices);
    assert_eq!(
        modern.notices[0]["params"]["_meta"][SUBSCRIPTION],
        listening
    );
    assert!(legacy.notices.is_empty(), "{:?}", legacy.notices);
    assert_eq!(daemon.status().clients.len(), 2);
    Ok(())
}

fn a_reload_says_what_is_in_force() -> TestResult {
    let home = Home::new(&Plan::new());
    let _daemon = home.daemon();
    let (code, _, said) = home.ctl(&["reload"]);
    let real = home.config().canonicalize()?;
    let start = format!("{} is in force: 0 servers configured", real.display());
    assert!(code == 0 && said.contains(&start), "{said}");
    home.write_config("execution: {max_runs: 0}\n");
    let (code, _, said) = home.ctl(&["reload"]);
    assert_eq!(code, 1);
    assert!(said.contains("max_runs"), "{said}");
    assert!(
        said.contains("the configuration in force stays, as it was read"),
        "{said}"
    );
    // Many at once are one after another, and each knows where it stood.
    home.write_config(&Plan::new().text());
    let reloads = (0..8).map(|_| ctl(&home, &["reload"]));
    let reloads = reloads.collect::<std::io::Result<Vec<_>>>()?;
    for reload in reloads {
        let output = reload.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(&start), "{said}");
    }
    Ok(())
}
