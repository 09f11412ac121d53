//! Configurations that are wrong, incomplete or ahead of this version.

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::wait::until;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        every_fault_of_a_file_is_answered_with_its_place,
        a_named_file_that_is_missing_is_said,
        no_file_at_all_means_no_servers,
        the_example_is_valid_and_is_the_default,
        a_missing_variable_fails_only_its_server,
        a_bad_file_at_reload_keeps_the_old_one,
        a_reload_keeps_unchanged_servers,
        relative_paths_start_at_the_file,
        yaml_scalars_reach_the_server_as_written,
    ]
}

fn every_fault_of_a_file_is_answered_with_its_place() -> TestResult {
    let cases: &[(&str, &[&str])] = &[
        ("servers: [\n", &["config.yaml:"]),
        ("servers:\n\t- name: x\n", &["config.yaml:2:1", "tab"]),
        (
            "execution:\n  timeout_second: 5\n",
            &["config.yaml:2:3", "timeout_second", "timeout_seconds"],
        ),
        ("tools:\n  allow: mcp__x__*\n", &["config.yaml:2:", "allow"]),
        (
            "tools:\n  allow: []\n  block: [mcp__x__y]\n",
            &["config.yaml:", "allow", "block"],
        ),
        (
            "execution:\n  timeout_seconds: 0\n",
            &["config.yaml:2:", "timeout_seconds"],
        ),
        (
            "execution:\n  max_tool_calls: -1\n  trace: loud\n",
            &[
                "config.yaml:2:",
                "max_tool_calls",
                "config.yaml:3:",
                "trace",
            ],
        ),
        (
            "servers:\n  - {name: a-b, transport: stdio, command: x}\n  - {name: a_b, transport: stdio, command: y}\n",
            &["config.yaml:3:", "a-b", "a_b", "2"],
        ),
        (
            "mcpServers:\n  github: {command: npx}\n",
            &["config.yaml:1:1", "mcpServers", "servers"],
        ),
        (
            "execution:\n  trace: off\n  trace: off\n",
            &["config.yaml:3:3", "trace"],
        ),
    ];
    for (text, words) in cases {
        let home = Home::with_text(text);
        let daemon = home.daemon();
        let mut client = home.client();
        let listed = client.call("list_callable_tools", &json!({}));
        let run = client.run("print('must not run')");
        assert!(run.is_error, "{text:?}");
        assert_eq!(run.structured["ending"], "refused", "{text:?}");
        for word in *words {
            assert!(run.text.contains(word), "{word} for {text:?}: {}", run.text);
            assert!(
                listed.result.to_string().contains(word),
                "{word} for {text:?}: {}",
                listed.result
            );
        }
        let status = daemon.status();
        assert!(!status.config.faults.is_empty());
        assert!(status.servers.is_empty());
    }
    Ok(())
}

fn a_named_file_that_is_missing_is_said() -> TestResult {
    let home = Home::new(&Plan::new());
    let mut command = home.command("ptc-mcp");
    command.arg("--config").arg(home.path("not-here.yaml"));
    let mut client = home.shim_of(command);
    client.initialize("2025-11-25");
    let run = client.run("print(1)");
    assert!(run.is_error);
    assert!(run.text.contains("not-here.yaml"), "{}", run.text);
    Ok(())
}

fn no_file_at_all_means_no_servers() -> TestResult {
    let home = Home::new(&Plan::new());
    let mut command = home.command("ptc-mcp");
    command.arg("--client").arg("bare");
    let mut client = home.shim_of(command);
    client.initialize("2025-11-25");
    let listed = client.call("list_callable_tools", &json!({}));
    assert_eq!(listed.text, "[]");
    let output = home.output_of("ptcctl", &["stop"], PATIENCE);
    assert!(output.status.success(), "{output:?}");
    Ok(())
}

fn the_example_is_valid_and_is_the_default() -> TestResult {
    let Some(root) = ptc_tests::programs::source_root() else {
        return ptc_tests::suite::skip("the source tree is not at hand");
    };
    let text = std::fs::read_to_string(root.join("config.example.yaml"))?;
    let home = Home::with_text(&text);
    let daemon = home.daemon();
    assert_eq!(daemon.status().config.faults, Vec::<String>::new());
    Ok(())
}

fn a_missing_variable_fails_only_its_server() -> TestResult {
    let mock = ptc_tests::programs::program("mock-mcp");
    let home = Home::new(
        &Plan::new()
            .entry(json!({
                "name": "needs", "transport": "stdio", "command": mock,
                "env": {"TOKEN": "${TOKEN_NOBODY_HAS}", "OTHER": "${ABSENT:-fallback}"},
            }))
            .server("n", &[]),
    );
    let daemon = home.daemon();
    daemon.wait_for("n", ServerState::Ready);
    let detail = daemon
        .wait_for("needs", ServerState::Failed)
        .detail
        .unwrap_or_default();
    assert!(detail.contains("TOKEN_NOBODY_HAS"), "{detail}");
    assert_eq!(
        daemon.status().config.missing_variables,
        ["TOKEN_NOBODY_HAS"]
    );
    let mut command = home.command("ptc-mcp");
    command
        .arg("--config")
        .arg(home.config())
        .env("TOKEN_NOBODY_HAS", "now-it-is-here");
    let mut client = home.shim_of(command);
    client.initialize("2025-11-25");
    daemon.wait_for("needs", ServerState::Ready);
    let run = client
        .run("e = await mcp__needs__env()\nprint(e['TOKEN'] == 'now-it-' + 'is-here', e['OTHER'])");
    assert_eq!(run.printed(), "True fallback");
    Ok(())
}

fn a_bad_file_at_reload_keeps_the_old_one() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    let before = daemon.wait_for("m", ServerState::Ready).pid;
    home.write_config("servers: {\n");
    assert_eq!(
        home.client()
            .run("print(await mcp__m__add(a=1, b=1))")
            .printed(),
        "{'sum': 2}"
    );
    daemon.signal(rustix::process::Signal::HUP);
    until("the fault is in the status", PATIENCE, || {
        !daemon.status().config.faults.is_empty()
    });
    assert_eq!(
        home.client()
            .run("print(await mcp__m__add(a=1, b=1))")
            .printed(),
        "{'sum': 2}"
    );
    assert_eq!(daemon.server("m").pid, before);
    Ok(())
}

fn a_reload_keeps_unchanged_servers() -> TestResult {
    let home = Home::new(
        &Plan::new()
            .server("kept", &[])
            .server("changed", &[])
            .server("gone", &[]),
    );
    let daemon = home.daemon();
    let kept = daemon.wait_for("kept", ServerState::Ready).pid;
    let changed = daemon.wait_for("changed", ServerState::Ready).pid;
    daemon.wait_for("gone", ServerState::Ready);
    home.write_config(
        &Plan::new()
            .server("kept", &[])
            .server("changed", &["--tag", "new"])
            .server("fresh", &[])
            .text(),
    );
    daemon.signal(rustix::process::Signal::HUP);
    until("the new server is ready", PATIENCE, || {
        let servers = daemon.status().servers;
        servers
            .iter()
            .any(|server| server.name == "fresh" && server.state == ServerState::Ready)
    });
    daemon.wait_for("changed", ServerState::Ready);
    assert_eq!(daemon.server("kept").pid, kept);
    assert_ne!(daemon.server("changed").pid, changed);
    let names: Vec<String> = daemon
        .status()
        .servers
        .into_iter()
        .map(|server| server.name)
        .collect();
    assert_eq!(names, ["kept", "changed", "fresh"]);
    Ok(())
}

fn relative_paths_start_at_the_file() -> TestResult {
    let mock = ptc_tests::programs::program("mock-mcp");
    let home = Home::new(
        &Plan::new()
            .entry(json!({"name": "plain", "transport": "stdio", "command": mock}))
            .entry(json!({"name": "inside", "transport": "stdio", "command": mock, "cwd": "sub/folder"}))
            .entry(json!({"name": "linked", "transport": "stdio", "command": "./sub/server"})),
    );
    std::fs::create_dir_all(home.path("sub/folder"))?;
    std::os::unix::fs::symlink(&mock, home.path("sub/server"))?;
    let mut daemon = Daemon::spawn(&home, |command| {
        command.current_dir("/");
    });
    daemon.wait_until_it_answers();
    for name in ["plain", "inside", "linked"] {
        daemon.wait_for(name, ServerState::Ready);
    }
    let run = home.client().run(
        "print(await mcp__plain__cwd())\nprint(await mcp__inside__cwd())\nprint(await mcp__linked__cwd())",
    );
    let base = home.path("").canonicalize()?;
    let base = base.display();
    assert_eq!(run.printed(), format!("{base}\n{base}/sub/folder\n{base}"));
    Ok(())
}

fn yaml_scalars_reach_the_server_as_written() -> TestResult {
    let mock = ptc_tests::programs::program("mock-mcp");
    let text = format!(
        "execution: {{sandbox: {}}}\nservers:\n  - name: m\n    transport: stdio\n    command: {}\n    args: [--tag, 0x10]\n    env:\n      A: NO\n      B: 1.10\n      C: 0644\n      E: 2026-01-02\n      F: \"pa$$w0rd$\"\n      no: yes\n      G: 12_000\n",
        ptc_tests::machine::sandbox_word(),
        mock.display(),
    );
    let home = Home::with_text(&text);
    let daemon = home.daemon();
    assert_eq!(daemon.status().config.faults, Vec::<String>::new());
    daemon.wait_for("m", ServerState::Ready);
    let run = home.client().run(
        "e = await mcp__m__env()\nprint([e.get(k) for k in ('A', 'B', 'C', 'E', 'F', 'no', 'G')])",
    );
    assert_eq!(
        run.printed(),
        "['NO', '1.10', '0644', '2026-01-02', 'pa$$w0rd$', 'yes', '12_000']"
    );
    Ok(())
}
