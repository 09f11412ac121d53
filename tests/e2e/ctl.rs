//! `ptcctl`: what it prints, and the codes it ends with.

use libtest_mimic::Trial;
use ptc_protocol::status::{SCHEMA, ServerState, Status};
use ptc_tests::wait::until;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult, daemon_of};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        status_shows_daemon_config_programs_and_servers,
        status_in_json_is_the_status_of_the_socket,
        without_a_daemon_the_code_is_3_and_the_way_to_start_is_said,
        how_the_last_daemon_ended_is_said,
        run_prints_the_output_and_gives_the_code_of_the_ending,
        run_takes_a_file_or_stdin,
        run_without_a_sandbox_ends_with_125,
        stop_ends_the_daemon,
        stop_waits_for_the_end_and_start_for_the_end_of_an_older_one,
        restart_puts_a_new_daemon_in_place_of_the_old,
        a_socket_beside_the_running_daemon_is_told_as_the_cause,
        reload_env_lets_the_next_clients_value_count,
        a_failed_servers_whole_reason_is_shown,
        a_faulty_configuration_is_told_by_every_verb,
        usage_errors_end_with_2,
        call_gives_a_result_that_is_larger_than_an_answer,
        call_owns_up_to_a_call_whose_result_it_cannot_show,
    ]
}

fn party(plan: Plan) -> (Home, Daemon) {
    daemon_of(&plan.server("m", &[]))
}

fn status_shows_daemon_config_programs_and_servers() -> TestResult {
    let (home, daemon) = party(Plan::new().server("gone", &["--exit-at-start", "4"]));
    let _client = home.client();
    until("the broken server has its state", PATIENCE, || {
        daemon.server("gone").state != ServerState::Connecting
    });
    let (code, out, err) = home.ctl(&["status"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with(&format!("ptcd {}", ptc_protocol::BUILD)),
        "{out}"
    );
    for part in [
        &format!("pid {}", daemon.pid()),
        "1 client",
        "ptc-tests",
        "config.yaml",
        "programs",
        "python 3.",
        "SERVER",
        "STATE",
        "1 of 2 ready",
    ] {
        assert!(out.contains(part), "{part} is not in\n{out}");
    }
    let row = |name: &str| {
        out.lines()
            .find(|line| line.split_whitespace().any(|word| word == name))
    };
    assert!(
        row("m").is_some_and(|row| row.contains("ready") && row.contains("11")),
        "{out}"
    );
    assert!(
        row("gone").is_some_and(|row| !row.contains(" ready")),
        "{out}"
    );
    assert!(!out.contains('\u{1b}'), "colours in a pipe: {out:?}");
    assert_eq!(err, "");
    Ok(())
}

fn status_in_json_is_the_status_of_the_socket() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let (code, out, err) = home.ctl(&["--json", "status"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let value: Value = serde_json::from_str(&out)?;
    assert_eq!(value["schema"], SCHEMA);
    let status: Status = serde_json::from_value(value)?;
    assert_eq!((status.pid, status.servers.len()), (daemon.pid(), 1));
    Ok(())
}

fn without_a_daemon_the_code_is_3_and_the_way_to_start_is_said() -> TestResult {
    let home = Home::new(&Plan::new());
    for args in [&["status"][..], &["stop"]] {
        let (code, out, err) = home.ctl(args);
        assert_eq!((code, out.as_str()), (3, ""), "{args:?}: {err}");
        assert!(err.contains(&home.socket().display().to_string()), "{err}");
        assert!(err.contains("start"), "{err}");
    }
    let (code, out, err) = home.ctl(&["--json", "status"]);
    assert_eq!((code, err.as_str()), (3, ""));
    let value: Value = serde_json::from_str(&out)?;
    assert_eq!(
        (&value["schema"], &value["exit"]),
        (&SCHEMA.into(), &3.into())
    );
    assert!(
        value["error"]
            .as_str()
            .unwrap_or_default()
            .contains("start"),
        "{out}"
    );
    let program = home.write("p.py", "print(1)");
    let (code, _, _) = home.ctl(&["run", &program.display().to_string()]);
    assert_eq!(code, 3);
    assert!(!home.socket().exists(), "a question started a daemon");
    Ok(())
}

fn how_the_last_daemon_ended_is_said() -> TestResult {
    let home = Home::new(&Plan::new());
    let says = |what: &str| {
        let (code, _, err) = home.ctl(&["status"]);
        assert_eq!(code, 3, "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(err.contains(what), "{what} is not in {err}");
    };
    says("; none has run yet): start it with");
    let mut daemon = home.daemon();
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.wait(PATIENCE).success());
    says("; the last one was ended by a signal ");
    let daemon = home.daemon();
    let pid = daemon.pid();
    daemon.kill();
    says(&format!("; the last one, pid {pid}, ended without a word)"));
    let _daemon = home.daemon();
    assert_eq!(home.ctl(&["stop"]).0, 0);
    says("; the last one was ended by `ptcctl stop` ");
    Ok(())
}

fn run_prints_the_output_and_gives_the_code_of_the_ending() -> TestResult {
    let (home, _daemon) = party(Plan::new().set("execution.timeout_seconds", 2));
    let run = |code: &str| {
        let file = home.write("program.py", code);
        home.ctl(&["run", &file.display().to_string()])
    };
    let (code, out, err) = run("print((await mcp__m__add(a=40, b=2))['sum'])");
    assert_eq!((code, out.as_str()), (0, "42\n"), "{err}");
    assert!(err.contains("[Script executed successfully]"), "{err}");
    assert!(err.contains("[tool calls: 1;"), "{err}");
    let (code, out, err) = run("print('before')\nraise ValueError('the end')");
    assert_eq!((code, out.as_str()), (1, "before\n"), "{err}");
    assert!(err.contains("ValueError: the end"), "{err}");
    let file = home.write("program.py", "print('a')\nemit({'n': 7})");
    let (code, out, err) = home.ctl(&["-q", "run", &file.display().to_string()]);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (0, "a\n{\"n\":7}\n", "")
    );
    let (code, _, _) = run("while True: pass");
    assert_eq!(code, 124);
    let file = home.write("program.py", "emit({'n': 7})\nprint('p')");
    let (code, out, err) = home.ctl(&["--json", "run", &file.display().to_string()]);
    assert_eq!((code, err.as_str()), (0, ""));
    let value: Value = serde_json::from_str(&out)?;
    assert_eq!(
        (&value["schema"], &value["ok"]),
        (&SCHEMA.into(), &true.into()),
        "{value}"
    );
    assert_eq!(
        (&value["result"]["n"], &value["output"]),
        (&7.into(), &"p\n".into()),
        "{value}"
    );
    Ok(())
}

fn run_takes_a_file_or_stdin() -> TestResult {
    use std::io::Write as _;
    let (home, _daemon) = party(Plan::new());
    let mut child = home
        .command("ptcctl")
        .arg("--config")
        .arg(home.config())
        .args(["run", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(b"print('from stdin')\n")?;
    }
    let output = child.wait_with_output()?;
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout)?.contains("from stdin"));
    let (code, _, err) = home.ctl(&["run", "no-such-file.py"]);
    assert!(code == 1 || code == 2, "{code}");
    assert!(err.contains("no-such-file.py"), "{err}");
    Ok(())
}

fn run_without_a_sandbox_ends_with_125() -> TestResult {
    let word = if cfg!(target_os = "linux") {
        "seatbelt"
    } else {
        "full"
    };
    let (home, daemon) = party(Plan::bare().set("execution.sandbox", word));
    let file = home.write("program.py", "print('must not run')");
    let (code, out, err) = home.ctl(&["run", &file.display().to_string()]);
    assert_eq!(code, 125, "{out}{err}");
    assert!(!out.contains("must not run"));
    let refusal = daemon.status().programs.refusal.unwrap_or_default();
    assert!(refusal.contains(word), "{refusal}");
    let mut client = home.client();
    let run = client.run("print('must not run')");
    assert!(run.is_error);
    assert_eq!(run.structured["ending"], "refused");
    assert!(run.text.contains(word), "{}", run.text);
    let listed = client.call("list_callable_tools", &serde_json::json!({}));
    assert!(listed.text.contains("mcp__m__add"));
    Ok(())
}

fn stop_ends_the_daemon() -> TestResult {
    let (home, mut daemon) = party(Plan::new());
    let tree = daemon.tree();
    let (code, out, err) = home.ctl(&["stop"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(daemon.wait(PATIENCE).success());
    ptc_tests::daemon::gone(&tree, PATIENCE);
    assert_eq!(home.ctl(&["status"]).0, 3);
    Ok(())
}

fn stop_waits_for_the_end_and_start_for_the_end_of_an_older_one() -> TestResult {
    let (home, mut daemon) = party(Plan::new());
    let mut client = home.client();
    let run = client.start_run("import time\nwhile True: time.sleep(0.05)");
    until("it runs", PATIENCE, || {
        daemon.status().programs.pool.busy == 1
    });
    let (code, _, err) = home.ctl(&["stop", "--timeout", "1"]);
    assert_eq!(code, 1, "{err}");
    let waits = "it waits for 1 program to end, then 1 server (m)";
    assert!(err.contains(waits), "{err}");
    assert!(err.contains(&format!("pid {}", daemon.pid())), "{err}");
    let (code, _, err) = home.ctl(&["status"]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("is ending"), "{err}");
    let mut start = home
        .command("ptcctl")
        .arg("--config")
        .arg(home.config())
        .arg("start")
        .stderr(std::fs::File::create(home.path("start.err"))?)
        .spawn()?;
    until("the wait is said", PATIENCE, || {
        let said = std::fs::read_to_string(home.path("start.err"));
        said.is_ok_and(|said| said.contains("still ending"))
    });
    assert!(start.try_wait()?.is_none());
    client.cancel(&run);
    assert!(start.wait()?.success());
    assert!(daemon.wait(PATIENCE).success());
    let (code, _, err) = home.ctl(&["stop"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.ends_with("ptcctl: ptcd has ended\n"), "{err}");
    Ok(())
}

fn restart_puts_a_new_daemon_in_place_of_the_old() -> TestResult {
    let (home, mut daemon) = party(Plan::new().server("s", &["--stubborn"]));
    daemon.wait_for("s", ServerState::Ready);
    let before = daemon.pid();
    let (code, _, err) = home.ctl(&["restart"]);
    assert_eq!(code, 0, "{err}");
    assert!(daemon.wait(PATIENCE).success());
    let (code, out, _) = home.ctl(&["--json", "status"]);
    assert_eq!(code, 0);
    let status: Status = serde_json::from_str(&out)?;
    assert_ne!(status.pid, before);
    assert_eq!(home.ctl(&["stop"]).0, 0);
    let (code, out, err) = home.ctl(&["--json", "restart"]);
    assert_eq!(
        (code, err.as_str()),
        (0, ""),
        "none runs, so one is started"
    );
    assert_eq!(serde_json::from_str::<Value>(&out)?["started"], true);
    assert_eq!(home.ctl(&["stop"]).0, 0);
    Ok(())
}

fn a_socket_beside_the_running_daemon_is_told_as_the_cause() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let other = home.path("run/other.sock").display().to_string();
    let (code, _, err) = home.ctl(&["--socket", &other, "start"]);
    assert_eq!(code, 1, "{err}");
    let cause = format!(
        "another ptcd (pid {}) serves this configuration on {}",
        daemon.pid(),
        daemon.socket().display()
    );
    assert!(err.contains(&cause), "{err}");
    Ok(())
}

fn reload_env_lets_the_next_clients_value_count() -> TestResult {
    let home = Home::new(&Plan::new().entry(serde_json::json!({
        "name": "m", "transport": "stdio", "command": ptc_tests::programs::program("mock-mcp"),
        "env": {"KEY": "${NOTES_KEY}"},
    })));
    let daemon = home.daemon();
    let client = |value: &str| {
        let mut command = home.command("ptc-mcp");
        command
            .arg("--config")
            .arg(home.config())
            .env("NOTES_KEY", value);
        let mut client = home.shim_of(command);
        client.initialize("2025-11-25");
        client
    };
    let look = "print((await mcp__m__env())['KEY'][::-1])";
    let mut first = client("value-one");
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(first.run(look).printed(), "eno-eulav");
    let refused = client("value-two").run(look);
    assert!(
        refused.text.contains("not for this client"),
        "{}",
        refused.text
    );
    let (code, _, err) = home.ctl(&["reload", "--env"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("1 server configured"), "{err}");
    assert!(err.contains("its next connection"), "{err}");
    let mut second = client("value-two");
    daemon.wait_for("m", ServerState::Ready);
    assert_eq!(second.run(look).printed(), "owt-eulav");
    Ok(())
}

fn a_failed_servers_whole_reason_is_shown() -> TestResult {
    let missing = "VARIABLE_OF_A_LONG_NAME_THAT_NOBODY_HAS";
    let home = Home::new(&Plan::new().entry(serde_json::json!({
        "name": "needs", "transport": "stdio", "command": "x",
        "env": {"A": format!("${{{missing}}}")},
    })));
    let daemon = home.daemon();
    let detail = daemon
        .wait_for("needs", ServerState::Failed)
        .detail
        .unwrap_or_default();
    for args in [&["status"][..], &["status", "needs"]] {
        let (code, out, _) = home.ctl(args);
        assert_eq!(code, 0);
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&out).contains(&words(&detail)), "{detail} in\n{out}");
        assert!(!out.contains("next: ptcctl status"), "{out}");
        assert!(out.contains("\nnext: mend the cause"), "{out}");
    }
    Ok(())
}

fn a_faulty_configuration_is_told_by_every_verb() -> TestResult {
    let home = Home::with_text("execution:\n  timeout_second: 5\n");
    let fault = "config.yaml:2:3";
    let (code, _, err) = home.ctl(&["start"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains(fault) && err.contains("has 1 fault:"), "{err}");
    let (code, out, err) = home.ctl(&["tools"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains(fault), "{err}");
    let (code, out, _) = home.ctl(&["status"]);
    assert_eq!((code, out.matches(fault).count()), (0, 1), "{out}");
    home.write_config("servers: []\n");
    let (code, _, err) = home.ctl(&["reload"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(home.ctl(&["tools"]).0, 0);
    assert_eq!(home.ctl(&["stop"]).0, 0);
    Ok(())
}

fn usage_errors_end_with_2() -> TestResult {
    let home = Home::new(&Plan::new());
    for args in [
        &["no-such-verb"][..],
        &["run"],
        &["status", "--no-such-flag"],
        &[],
    ] {
        let (code, _, err) = home.ctl(args);
        assert_eq!(code, 2, "{args:?}");
        assert!(!err.is_empty(), "{args:?}");
    }
    Ok(())
}

fn call_gives_a_result_that_is_larger_than_an_answer() -> TestResult {
    let plan = Plan::new().set("execution.max_output_bytes", 2000);
    let (home, daemon) = party(plan.clone());
    // More than `ptcctl runs` shows of a record.
    let (code, out, err) = home.ctl(&["call", "mcp__m__big", "bytes=1100000"]);
    let same = out == format!("{}\n", "x".repeat(1_100_000));
    assert_eq!((code, same), (0, true), "{err}");
    let says = |part: &str| assert!(err.contains(part), "{part} is not in {err}");
    says("over the limit of execution.max_output_bytes");
    says("record of run r");
    let (code, out, _) = home.ctl(&["--json", "call", "mcp__m__big", "bytes=3000"]);
    let value: Value = serde_json::from_str(&out)?;
    assert_eq!((code, &value["emitted"]), (0, &json!(true)));
    assert_eq!(value["result"], json!("x".repeat(3000)));
    // What is no text is JSON, as it is below the limit.
    let digits = "1".repeat(3000);
    let (code, out, _) = home.ctl(&["call", "mcp__m__echo", &format!("a={digits}")]);
    assert_eq!((code, out), (0, format!("{{\n  \"a\": {digits}\n}}\n")));
    // Without structured content the text tells the run.
    let plan = plan.set("execution.structured_content", "off");
    home.write_config(&plan.clone().server("m", &[]).text());
    assert_eq!(home.ctl(&["reload"]).0, 0);
    let (code, out, err) = home.ctl(&["call", "mcp__m__big", "bytes=3000"]);
    assert_eq!((code, out.len()), (0, 3001), "{err}");
    assert_eq!(daemon.server("m").calls, 4);
    Ok(())
}

fn call_owns_up_to_a_call_whose_result_it_cannot_show() -> TestResult {
    let plan = Plan::new().set("execution.max_output_bytes", 2000);
    let (home, daemon) = party(plan.set("journal.record", "off"));
    let (code, out, err) = home.ctl(&["call", "mcp__m__big", "bytes=3000"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("mcp__m__big was called and gave a result")
            && err.contains("journal.record")
            && !err.contains("emit"),
        "{err}"
    );
    assert_eq!(daemon.server("m").calls, 1);
    Ok(())
}
