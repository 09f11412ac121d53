//! Servers that run once for each project folder, and what one client sees of the servers.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::process::{Process, needs_proc};
use ptc_tests::programs::program;
use ptc_tests::wait::until;
use ptc_tests::{Client, Home, PATIENCE, Plan, TestResult, eventually};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        two_projects_have_two_processes_and_one_project_has_one,
        the_folder_that_claude_code_names_comes_before_the_working_directory,
        a_client_at_the_root_of_the_disk_has_no_project,
        an_idle_instance_ends_and_wakes_with_the_next_call,
        past_the_bound_the_one_idle_for_longest_ends,
        a_restart_is_of_every_instance,
        the_logs_of_a_server_are_those_of_every_instance,
        the_last_known_list_serves_before_a_first_start,
        no_instance_outlives_the_daemon,
        a_client_with_another_value_of_a_variable_does_not_see_the_servers_tools,
        calls_take_turns_between_clients_at_one_server,
        waiting_for_a_servers_place_is_not_counted_against_a_call,
    ]
}

/// One server `p` in the client's project.
fn plan() -> Plan {
    Plan::new().entry(json!({
        "name": "p",
        "transport": "stdio",
        "command": program("mock-mcp"),
        "args": ["--figures", "${project}/figures.json"],
        "cwd": "${project}",
        "scope": "project",
    }))
}

/// A client whose working directory is this folder, with more variables.
fn client_in(home: &Home, folder: &Path, variables: &[(&str, &str)]) -> Client {
    let mut command = home.command("ptc-mcp");
    command
        .arg("--config")
        .arg(home.config())
        .current_dir(folder)
        .envs(variables.iter().copied());
    let mut client = home.shim_of(command);
    client.initialize("2025-11-25");
    client
}

/// A client in a project below the home, which is made.
fn client_of(home: &Home, project: &str) -> Client {
    client_in(home, &home.folder(project), &[])
}

fn real(home: &Home, folder: &str) -> String {
    home.folder(folder).display().to_string()
}

fn pid_of(client: &mut Client) -> anyhow::Result<u32> {
    let run = client.run("print((await mcp__p__pid())['pid'])");
    Ok(run.printed().parse()?)
}

fn runs(pid: u32) -> bool {
    Process::of(pid).is_some_and(Process::runs)
}

/// What `list_callable_tools` answers.
fn listed(client: &mut Client) -> Value {
    client.call("list_callable_tools", &json!({})).structured
}

fn two_projects_have_two_processes_and_one_project_has_one() -> TestResult {
    let home = Home::new(&plan());
    let daemon = home.daemon();
    let (mut a, mut b, mut again) = (
        client_of(&home, "a"),
        client_of(&home, "b"),
        client_of(&home, "a"),
    );
    home.write("b/figures.json", r#"{"X": [7]}"#);
    let lists = [listed(&mut a), listed(&mut b)];
    assert_eq!(lists[0]["tools"], lists[1]["tools"]);
    assert_eq!(lists[0]["unavailable"], json!({}));
    assert!(lists[0]["tools"].to_string().contains("mcp__p__cwd"));
    for (client, folder) in [(&mut a, "a"), (&mut b, "b"), (&mut again, "a")] {
        let run = client.run("print(await mcp__p__cwd())");
        assert_eq!(run.printed(), real(&home, folder));
    }
    let pids = [pid_of(&mut a)?, pid_of(&mut b)?, pid_of(&mut again)?];
    assert!(pids[0] == pids[2] && pids[0] != pids[1], "{pids:?}");
    let run = b.run("print((await mcp__p__figures(ticker='X'))['revenue'])");
    assert_eq!(run.printed(), "[7]");
    let shown = daemon.server("p");
    let notes = shown.notes.join("\n");
    assert_eq!(shown.state, ServerState::Ready);
    for folder in ["a", "b"] {
        assert!(notes.contains(&real(&home, folder)), "{notes}");
    }
    let (code, out, _) = home.ctl(&["servers", "p"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("2 projects"), "{out}");
    daemon.stop();
    Ok(())
}

fn the_logs_of_a_server_are_those_of_every_instance() -> TestResult {
    let home = Home::new(&plan());
    let daemon = home.daemon();
    for project in ["a", "b"] {
        pid_of(&mut client_of(&home, project))?;
    }
    daemon.stop();
    let folder = home.state().join("servers");
    for (file, line) in [("p.log", "of a"), ("p.2.log", "of b \u{1b}[2J")] {
        // The daemon has made it, under the name that the command line looks for.
        let mut log = std::fs::OpenOptions::new()
            .append(true)
            .open(folder.join(file))?;
        writeln!(log, "{line}")?;
    }
    std::fs::write(folder.join("p_2.log"), "of another server\n")?;
    let (code, out, err) = home.ctl(&["logs", "p", "-n", "1"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, "==> p.log <==\nof a\n==> p.2.log <==\nof b \\x1b[2J\n");
    let (_, out, _) = home.ctl(&["logs", "p", "-n", "1", "--json"]);
    let shown: Value = serde_json::from_str(&out)?;
    assert_eq!(
        shown,
        json!({
            "schema": 1, "file": folder.join("p.log"), "lines": ["of a"],
            "further": [{"file": folder.join("p.2.log"), "lines": ["of b \\x1b[2J"]}],
        })
    );
    Ok(())
}

fn the_folder_that_claude_code_names_comes_before_the_working_directory() -> TestResult {
    let home = Home::new(&plan());
    let _daemon = home.daemon();
    let named = real(&home, "named");
    let mut client = client_in(&home, &home.path("home"), &[("CLAUDE_PROJECT_DIR", &named)]);
    assert_eq!(client.run("print(await mcp__p__cwd())").printed(), named);
    let gone = home.path("gone").display().to_string();
    let mut client = client_in(&home, &home.path("home"), &[("CLAUDE_PROJECT_DIR", &gone)]);
    assert_eq!(
        client.run("print(await mcp__p__cwd())").printed(),
        real(&home, "home")
    );
    Ok(())
}

fn a_client_at_the_root_of_the_disk_has_no_project() -> TestResult {
    let home = Home::new(&plan().server("n", &[]));
    let daemon = home.daemon();
    daemon.wait_for("n", ServerState::Ready);
    // Another client has shown which tools there are.
    let mut other = client_of(&home, "a");
    pid_of(&mut other)?;
    let mut client = client_in(&home, Path::new("/"), &[]);
    let list = listed(&mut client);
    let why = list["unavailable"]["p"].as_str().unwrap_or_default();
    assert!(why.contains("CLAUDE_PROJECT_DIR"), "{list}");
    assert!(!list["tools"].to_string().contains("mcp__p__"), "{list}");
    assert!(list["tools"].to_string().contains("mcp__n__"), "{list}");
    let run = client.run(
        "try:\n    await mcp__p__cwd()\nexcept ToolError as e:\n    print(e.kind, e.retryable, 'CLAUDE_PROJECT_DIR' in str(e))",
    );
    assert_eq!(run.printed(), "unavailable False True");
    let told = client.call("inspect_tool", &json!({"tool_name": "mcp__p__cwd"}));
    assert!(told.text.contains("CLAUDE_PROJECT_DIR"), "{}", told.text);
    Ok(())
}

fn an_idle_instance_ends_and_wakes_with_the_next_call() -> TestResult {
    needs_proc()?;
    let home = Home::new(&plan().set("daemon.idle_server_seconds", 2));
    // The shim starts the daemon, which stays as long as it has a client.
    let mut client = client_of(&home, "a");
    let first = pid_of(&mut client)?;
    until("the idle instance ends", PATIENCE, || !runs(first));
    let list = listed(&mut client);
    assert_eq!(list["unavailable"], json!({}));
    assert!(list["tools"].to_string().contains("mcp__p__pid"), "{list}");
    assert_ne!(pid_of(&mut client)?, first);
    Ok(())
}

fn past_the_bound_the_one_idle_for_longest_ends() -> TestResult {
    needs_proc()?;
    let home = Home::new(&plan());
    let daemon = home.daemon();
    let mut busy = client_of(&home, "p0");
    let first = pid_of(&mut busy)?;
    let sleeping = busy.start_run("await mcp__p__sleep(ms=60000)");
    eventually("its call is sent", PATIENCE, || {
        (daemon.server("p").calls == 2).then_some(())
    });
    let pids: Vec<u32> = (1..9)
        .map(|number| pid_of(&mut client_of(&home, &format!("p{number}"))))
        .collect::<Result<_, _>>()?;
    until("the one idle for longest ends", PATIENCE, || !runs(pids[0]));
    assert!(runs(first) && pids[1..].iter().all(|pid| runs(*pid)));
    busy.cancel(&sleeping);
    daemon.stop();
    Ok(())
}

fn a_restart_is_of_every_instance() -> TestResult {
    needs_proc()?;
    let home = Home::new(&plan());
    let _daemon = home.daemon();
    let (mut a, mut b) = (client_of(&home, "a"), client_of(&home, "b"));
    let before = [pid_of(&mut a)?, pid_of(&mut b)?];
    let (code, out, err) = home.ctl(&["servers", "restart", "p"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(format!("{out}{err}").contains("2 projects"), "{out}{err}");
    until("both processes end", PATIENCE, || {
        !before.iter().any(|pid| runs(*pid))
    });
    let after = [pid_of(&mut a)?, pid_of(&mut b)?];
    assert!(before[0] != after[0] && before[1] != after[1]);
    Ok(())
}

fn the_last_known_list_serves_before_a_first_start() -> TestResult {
    let home = Home::new(&plan());
    let daemon = home.daemon();
    let mut client = client_of(&home, "a");
    let before = listed(&mut client);
    assert_ne!(before["tools"], json!([]));
    let kept = home.state().join("lists/p.json");
    until("the list is kept", PATIENCE, || kept.exists());
    drop(client);
    daemon.stop();
    let daemon = home.daemon();
    let mut client = client_of(&home, "b");
    assert_eq!(listed(&mut client), before);
    let told = client.call("inspect_tool", &json!({"tool_name": "mcp__p__add"}));
    assert!(told.text.contains("Adds two integers"), "{}", told.text);
    let shown = daemon.server("p");
    assert_eq!((shown.state, shown.pid), (ServerState::Ready, None));
    let run = client.run("print((await mcp__p__add(a=1, b=2))['sum'])");
    assert_eq!(run.printed(), "3");
    Ok(())
}

fn no_instance_outlives_the_daemon() -> TestResult {
    needs_proc()?;
    let home = Home::new(&plan());
    let daemon = home.daemon();
    let pids = [
        pid_of(&mut client_of(&home, "a"))?,
        pid_of(&mut client_of(&home, "b"))?,
    ];
    daemon.kill();
    until("no process is left", PATIENCE, || {
        !pids.iter().any(|pid| runs(*pid))
    });
    Ok(())
}

fn a_client_with_another_value_of_a_variable_does_not_see_the_servers_tools() -> TestResult {
    let home = Home::new(
        &Plan::new()
            .entry(json!({
                "name": "v", "transport": "stdio", "command": program("mock-mcp"),
                "env": {"TEAM": "${PTC_TEST_TEAM}"},
            }))
            .server("n", &[]),
    );
    let daemon = home.daemon();
    let folder = home.path("home");
    let mut red = client_in(&home, &folder, &[("PTC_TEST_TEAM", "red")]);
    daemon.wait_for("v", ServerState::Ready);
    daemon.wait_for("n", ServerState::Ready);
    let mut blue = client_in(&home, &folder, &[("PTC_TEST_TEAM", "blue")]);
    assert_eq!(listed(&mut red)["unavailable"], json!({}));
    let list = listed(&mut blue);
    let why = list["unavailable"]["v"].as_str().unwrap_or_default();
    assert!(why.contains("ptcctl reload --env"), "{list}");
    assert!(!list["tools"].to_string().contains("mcp__v__"), "{list}");
    assert!(list["tools"].to_string().contains("mcp__n__"), "{list}");
    let told = blue.call("inspect_tool", &json!({"tool_name": "mcp__v__echo"}));
    assert!(
        !told.is_error && told.text.contains("ptcctl reload --env"),
        "{}",
        told.text
    );
    let run = blue.run(
        "print('mcp__v__echo' in await list_callable_tools(), (await server_status())['v']['connected'])\n\
         try:\n    await mcp__v__echo()\nexcept ToolError as e:\n    print(e.kind, 'ptcctl reload --env' in str(e))",
    );
    assert_eq!(run.printed(), "False False\nunavailable True");
    let run = red.run("print((await mcp__v__env())['TEAM'])");
    assert_eq!(run.printed(), "red");
    Ok(())
}

/// One server `q` that takes one call at a time.
fn narrow() -> Plan {
    Plan::new()
        .entry(json!({
            "name": "q", "transport": "stdio", "command": program("mock-mcp"),
            "max_concurrent_calls": 1,
        }))
        .set("execution.max_concurrent_calls", 100)
}

fn calls_take_turns_between_clients_at_one_server() -> TestResult {
    let home = Home::new(&narrow());
    let daemon = home.daemon();
    daemon.wait_for("q", ServerState::Ready);
    let (mut greedy, mut modest) = (home.client(), home.client());
    let many = greedy.start_run(
        "import asyncio\nawait asyncio.gather(*[mcp__q__sleep(ms=300) for _ in range(100)])",
    );
    eventually("the first calls are sent", PATIENCE, || {
        (daemon.server("q").calls >= 2).then_some(())
    });
    let run = modest.run("print(await mcp__q__echo(a=1))");
    assert_eq!(run.printed(), "{'a': 1}");
    assert!(!greedy.has_answer(&many), "it waited for all the others");
    greedy.cancel(&many);
    Ok(())
}

fn waiting_for_a_servers_place_is_not_counted_against_a_call() -> TestResult {
    let home = Home::new(&narrow().set("execution.tool_call_timeout_seconds", 5));
    let daemon = home.daemon();
    daemon.wait_for("q", ServerState::Ready);
    let mut client = home.client();
    let begun = std::time::Instant::now();
    let run = client.run(
        "import asyncio\nprint(set(await asyncio.gather(*[mcp__q__sleep(ms=700) for _ in range(10)])))",
    );
    assert_eq!(run.printed(), "{'slept'}");
    assert!(
        begun.elapsed() > Duration::from_secs(7),
        "the last one waited"
    );
    Ok(())
}
