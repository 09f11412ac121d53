//! The daemon's start, its end, and shims that live through both.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use libtest_mimic::Trial;
use ptc_protocol::status::{DaemonFile, ServerState};
use ptc_tests::daemon::gone;
use ptc_tests::process::needs_proc;
use ptc_tests::suite::skip;
use ptc_tests::wait::until;
use ptc_tests::{Daemon, Home, PATIENCE, Plan, TestResult, eventually};
use rustix::process::Signal;
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_killed_daemon_leaves_no_worker_and_no_server,
        what_ends_the_leftovers_of_servers_is_replaced_when_it_is_killed,
        a_terminated_daemon_lets_runs_end_and_leaves_nothing,
        a_terminated_daemon_ends_what_does_not_end_and_tells_its_clients,
        a_client_lives_through_a_crash_of_the_daemon,
        a_killed_daemon_mid_run_is_answered_for_and_nothing_repeats,
        the_calls_of_a_lost_run_are_told_by_its_own_id,
        a_stale_socket_is_replaced,
        what_is_no_socket_is_left_alone,
        a_second_daemon_of_one_configuration_ends_by_itself,
        a_daemon_of_a_named_configuration_ends_when_nobody_uses_it,
        folders_socket_and_files_are_the_users_own,
        an_open_runtime_folder_is_refused,
        the_daemon_file_says_where_the_daemon_is,
        a_daemon_started_by_a_shim_holds_nothing_of_it,
        a_worker_runs_one_program,
        workers_killed_while_they_wait_cost_no_run,
        forked_workers_of_a_peak_are_not_kept_long,
        version_and_help_touch_no_daemon,
    ]
}

fn a_killed_daemon_leaves_no_worker_and_no_server() -> TestResult {
    needs_proc()?;
    let home = Home::new(&Plan::new().server("m", &[]).server("s", &["--stubborn"]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    daemon.wait_for("s", ServerState::Ready);
    let mut client = home.client();
    client.start_run("while True:\n    pass");
    client.start_run("import time\ntime.sleep(600)");
    until("both run", PATIENCE, || {
        daemon.status().programs.pool.busy == 2
    });
    until("warden, workers and servers live", PATIENCE, || {
        daemon.tree().len() >= 5
    });
    let tree = daemon.kill();
    gone(&tree, Duration::from_secs(3));
    Ok(())
}

fn what_ends_the_leftovers_of_servers_is_replaced_when_it_is_killed() -> TestResult {
    needs_proc()?;
    let home = Home::new(&Plan::new().entry(json!({
        "name": "m",
        "command": "/bin/sh",
        "args": ["-c", "sleep 600 & exec \"$0\"", ptc_tests::programs::program("mock-mcp")],
    })));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let ends_with = |word: &str| {
        let mut tree = daemon.tree().into_iter();
        tree.find(|process| {
            process
                .command_line()
                .last()
                .is_some_and(|last| last == word)
        })
    };
    assert!(ends_with("600").is_some(), "the server has started nothing");
    let watcher = ends_with("survivors").context("nobody ends leftovers")?;
    watcher.kill();
    until("another is told the same", PATIENCE, || {
        let log = std::fs::read_to_string(home.daemon_log()).unwrap_or_default();
        log.contains("what servers leave behind is watched again")
    });
    let other = ends_with("survivors").context("nobody is in its place")?;
    assert_ne!(other, watcher);
    // The kernel ends the server with the daemon, and nothing that the server has started.
    let tree = daemon.kill();
    gone(&tree, Duration::from_secs(3));
    Ok(())
}

fn a_terminated_daemon_lets_runs_end_and_leaves_nothing() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]).set("daemon.drain_seconds", 20));
    let mut daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let run = client
        .start_run("import time\nprint('a')\ntime.sleep(2)\nprint(await mcp__m__add(a=1, b=2))");
    until("it runs", PATIENCE, || {
        daemon.status().programs.pool.busy == 1
    });
    let tree = daemon.tree();
    let start = Instant::now();
    daemon.signal(Signal::TERM);
    assert_eq!(client.finish_run(&run).printed(), "a\n{'sum': 3}");
    assert!(daemon.wait(PATIENCE).success());
    assert!(start.elapsed() < Duration::from_secs(15));
    gone(&tree, Duration::from_secs(3));
    Ok(())
}

fn a_terminated_daemon_ends_what_does_not_end_and_tells_its_clients() -> TestResult {
    let plan = Plan::new().server("m", &["--hang", "--stubborn"]);
    let home = Home::new(&plan.set("daemon.drain_seconds", 1));
    let mut daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let (mut one, mut other) = (home.client(), home.client());
    let runs = [
        one.start_run("print('begun', flush=True)\nawait mcp__m__echo(a=1)"),
        other.start_run("print('begun', flush=True)\nwhile True:\n    pass"),
    ];
    until("both run and the call is out", PATIENCE, || {
        daemon.status().programs.pool.busy == 2 && daemon.server("m").calls == 1
    });
    let tree = daemon.tree();
    daemon.signal(Signal::TERM);
    for (client, run) in [&mut one, &mut other].into_iter().zip(&runs) {
        let run = client.finish_run(run);
        assert!(
            run.is_error && run.text.contains("daemon.drain_seconds"),
            "{}",
            run.text
        );
    }
    assert!(daemon.wait(PATIENCE).success());
    gone(&tree, Duration::from_secs(3));
    Ok(())
}

fn a_client_lives_through_a_crash_of_the_daemon() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    let mut client = home.client();
    assert_eq!(client.run("print('before')").printed(), "before");
    daemon.kill();
    // The shim starts another one by itself, and the client's handshake is its business.
    assert_eq!(client.run("print('after')").printed(), "after");
    let id = client.request("tools/list", &serde_json::json!({}));
    assert!(client.answer(&id).get("error").is_none());
    Ok(())
}

fn a_killed_daemon_mid_run_is_answered_for_and_nothing_repeats() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let run = client.start_run(
        "await mcp__m__add(a=1, b=2)\nprint('x', flush=True)\nawait mcp__m__sleep(ms=60000)",
    );
    until("its second call is out", PATIENCE, || {
        daemon.server("m").calls >= 2
    });
    daemon.kill();
    let answer = client.answer(&run);
    let text = answer.to_string();
    assert!(text.contains("restart"), "{text}");
    assert!(
        text.contains("mcp__m__add"),
        "the calls made are not named: {text}"
    );
    let runs = client.run("print('next')");
    assert_eq!(runs.printed(), "next");
    let (_, out, _) = home.ctl(&["--json", "status"]);
    let status: serde_json::Value = serde_json::from_str(&out)?;
    assert_eq!(status["totals"]["runs"], 1, "a run was repeated: {status}");
    Ok(())
}

fn the_calls_of_a_lost_run_are_told_by_its_own_id() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let last = "await mcp__m__sleep(ms=60000)";
    let runs = [
        (
            serde_json::json!(70),
            format!("await mcp__m__add(a=1, b=2)\n{last}"),
        ),
        (
            serde_json::json!("70"),
            format!("await mcp__m__echo(a=1)\n{last}"),
        ),
        (
            serde_json::json!("ä \"&+%"),
            "import time\nprint('x', flush=True)\ntime.sleep(600)".to_owned(),
        ),
    ];
    for (id, code) in &runs {
        let params = serde_json::json!({"name": "execute_program", "arguments": {"code": code}});
        client.send_request(id, "tools/call", &params);
    }
    until("all are on their way", PATIENCE, || {
        daemon.server("m").calls >= 4 && daemon.status().programs.pool.busy == 3
    });
    daemon.kill();
    let made = |first: &str| {
        format!(
            "tool calls already made: {first} (ok), mcp__m__sleep (unknown whether it took effect)"
        )
    };
    let want = [
        made("mcp__m__add"),
        made("mcp__m__echo"),
        "no tool call was made".to_owned(),
    ];
    for ((id, _), want) in runs.iter().zip(want) {
        let answer = client.finish_run(id);
        assert!(answer.is_error);
        assert_eq!(
            answer.text,
            format!("daemon restarted during this run; {want}; nothing was repeated")
        );
    }
    Ok(())
}

fn a_stale_socket_is_replaced() -> TestResult {
    let home = Home::new(&Plan::new());
    let socket = home.socket();
    make_private(socket.parent())?;
    drop(UnixListener::bind(&socket)?);
    assert!(socket.exists());
    let daemon = home.daemon();
    assert_eq!(home.client().run("print(1)").printed(), "1");
    daemon.stop();
    Ok(())
}

fn what_is_no_socket_is_left_alone() -> TestResult {
    let home = Home::new(&Plan::new());
    let socket = home.socket();
    make_private(socket.parent())?;
    std::fs::write(&socket, "precious")?;
    let mut daemon = Daemon::spawn(&home, |_| {});
    assert!(!daemon.wait(PATIENCE).success());
    assert_eq!(std::fs::read_to_string(&socket)?, "precious");
    let said = std::fs::read_to_string(home.daemon_log())?;
    assert!(said.contains(&socket.display().to_string()), "{said}");
    Ok(())
}

fn a_second_daemon_of_one_configuration_ends_by_itself() -> TestResult {
    let home = Home::new(&Plan::new());
    let first = home.daemon();
    let mut second = Daemon::spawn(&home, |_| {});
    second.wait(PATIENCE);
    assert_eq!(first.status().pid, first.pid());
    assert_eq!(home.client().run("print(1)").printed(), "1");
    Ok(())
}

fn a_daemon_of_a_named_configuration_ends_when_nobody_uses_it() -> TestResult {
    let home = Home::new(
        &Plan::new()
            .server("m", &[])
            .set("daemon.idle_server_seconds", 2),
    );
    let file = home.state().join("daemon.json");
    // The shim starts the daemon, and is its client.
    let mut client = home.client();
    let run = client.run("import time\ntime.sleep(5)\nprint(1)");
    assert_eq!(run.printed(), "1");
    assert!(file.exists(), "a program is use, however long it takes");
    drop(client);
    until("the daemon ends", PATIENCE, || {
        !file.exists() && !home.socket().exists()
    });
    until("its servers are gone", PATIENCE, || {
        home.processes().is_empty()
    });
    Ok(())
}

fn folders_socket_and_files_are_the_users_own() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    home.client().run("await mcp__m__echo(a=1)");
    let uid = rustix::process::geteuid().as_raw();
    let socket = daemon.socket();
    assert_eq!(mode(socket), 0o600);
    assert_eq!(socket.parent().map(mode), Some(0o700));
    let state = home.state();
    let mut waiting = vec![state.clone()];
    let mut files = 0;
    while let Some(path) = waiting.pop() {
        // What is written anew has another name first, so that it may be gone by now.
        let Ok(about) = path.symlink_metadata() else {
            continue;
        };
        let mode = about.permissions().mode() & 0o777;
        assert_eq!(about.uid(), uid, "{}", path.display());
        if about.is_dir() {
            assert_eq!(mode, 0o700, "{}", path.display());
            for entry in std::fs::read_dir(&path)? {
                waiting.push(entry?.path());
            }
        } else {
            files += 1;
            assert_eq!(mode & 0o177, 0, "{}", path.display());
        }
    }
    assert!(
        files >= 3,
        "lock, daemon.json and a call log below {}",
        state.display()
    );
    Ok(())
}

fn an_open_runtime_folder_is_refused() -> TestResult {
    let home = Home::new(&Plan::new());
    let folder = home
        .socket()
        .parent()
        .map(Path::to_owned)
        .unwrap_or_default();
    let elsewhere = home.path("elsewhere");
    std::fs::create_dir(&elsewhere)?;
    std::os::unix::fs::symlink(&elsewhere, &folder)?;
    let mut daemon = Daemon::spawn(&home, |_| {});
    assert!(!daemon.wait(PATIENCE).success());
    let said = std::fs::read_to_string(home.daemon_log())?;
    assert!(said.contains(&folder.display().to_string()), "{said}");
    assert_eq!(std::fs::read_dir(&elsewhere)?.count(), 0);
    Ok(())
}

fn the_daemon_file_says_where_the_daemon_is() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let file = home.state().join("daemon.json");
    let told: DaemonFile = serde_json::from_slice(&std::fs::read(&file)?)?;
    assert_eq!(told.pid, daemon.pid());
    assert_eq!(Path::new(&told.socket), daemon.socket());
    assert_eq!(
        (told.build.as_str(), told.protocol),
        (ptc_protocol::BUILD, ptc_protocol::PROTOCOL)
    );
    daemon.stop();
    assert!(!file.exists(), "a stopped daemon still says where it is");
    Ok(())
}

fn a_daemon_started_by_a_shim_holds_nothing_of_it() -> TestResult {
    needs_proc()?;
    if !rustix::process::geteuid().is_root() {
        return skip("the daemon hides its descriptors from its own user; only root sees them");
    }
    let home = Home::new(&Plan::new());
    let mut client = home.client();
    assert_eq!(client.run("print(1)").printed(), "1");
    let file = home.state().join("daemon.json");
    let told: DaemonFile = serde_json::from_slice(&std::fs::read(&file)?)?;
    assert_eq!(
        std::fs::read_link(format!("/proc/{}/cwd", told.pid))?,
        Path::new("/")
    );
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", told.pid))?;
    let session: Option<u32> = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(3))
        .and_then(|session| session.parse().ok());
    assert_ne!(session, Some(client.pid()));
    let target = std::fs::read_link(format!("/proc/{}/fd/0", told.pid))?;
    assert_eq!(target, Path::new("/dev/null"));
    let log = home.state().join("ptcd.log");
    assert_eq!(mode(&log), 0o600);
    client.close_stdin();
    // The pipe to the client ends with the shim: the daemon has no copy of it.
    assert_eq!(client.line(PATIENCE), None);
    assert!(
        ptc_tests::process::Process::of(told.pid).is_some_and(ptc_tests::process::Process::runs)
    );
    assert_eq!(home.client().run("print(2)").printed(), "2");
    Ok(())
}

fn a_worker_runs_one_program() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut client = home.client();
    let leave = "import builtins, os\nbuiltins.trace_of_me = 1\nopen('left.txt', 'w').write('x')\nprint(os.listdir('.'))";
    assert_eq!(client.run(leave).printed(), "['left.txt']");
    let look = "import builtins, os\nprint(hasattr(builtins, 'trace_of_me'), os.listdir('.'))";
    for _ in 0..4 {
        assert_eq!(client.run(look).printed(), "False []");
    }
    eventually("workers are warm again", PATIENCE, || {
        let pool = daemon.status().programs.pool;
        (pool.busy == 0 && pool.warm >= 1).then_some(())
    });
    Ok(())
}

fn version_and_help_touch_no_daemon() -> TestResult {
    let home = Home::new(&Plan::new());
    for name in ["ptcd", "ptc-mcp", "ptcctl"] {
        for flag in ["--version", "--help"] {
            let output = home.output_of(name, &[flag], PATIENCE);
            assert!(output.status.success(), "{name} {flag}: {output:?}");
            let text = String::from_utf8(output.stdout)?;
            assert!(text.contains(name), "{name} {flag}: {text}");
            if flag == "--version" {
                assert!(text.contains(ptc_protocol::BUILD), "{text}");
            }
        }
    }
    assert!(!home.socket().exists());
    assert!(!home.state().exists());
    Ok(())
}

fn make_private(folder: Option<&Path>) -> std::io::Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata()
        .map_or(0, |about| about.permissions().mode() & 0o7777)
}

fn workers_killed_while_they_wait_cost_no_run() -> TestResult {
    needs_proc()?;
    let plan = Plan::new().set(
        "execution.pool",
        serde_json::json!({"warm": 2, "max": 2, "start": "exec"}),
    );
    let home = Home::new(&plan);
    let daemon = home.daemon();
    let mut client = home.client();
    for _ in 0..3 {
        until("two workers wait", PATIENCE, || {
            daemon.status().programs.pool.warm == 2
        });
        // The warden is the child of ptcd, its workers are its children.
        let workers: Vec<_> = daemon
            .tree()
            .into_iter()
            .filter(|process| {
                let words = process.command_line();
                process.runs() && words.first().is_some_and(|word| word.contains("python"))
            })
            .collect();
        assert_eq!(workers.len(), 2, "{workers:?}");
        for worker in &workers {
            worker.kill();
        }
        assert_eq!(client.run("print('fine')").printed(), "fine");
    }
    Ok(())
}

fn forked_workers_of_a_peak_are_not_kept_long() -> TestResult {
    let plan = Plan::new().set("execution.pool", json!({"warm": 1, "max": 4}));
    let home = Home::new(&plan);
    let daemon = home.daemon();
    let mut client = home.client();
    assert_eq!(client.run("print('fine')").printed(), "fine");
    let pool = || daemon.status().programs.pool;
    if !pool().forked {
        return skip("no worker is forked on this machine");
    }
    let runs: Vec<_> = (0..4)
        .map(|_| client.start_run("import asyncio\nawait asyncio.sleep(100)"))
        .collect();
    until("as many wait as run", PATIENCE, || {
        (pool().busy, pool().warm) == (4, 4)
    });
    for run in &runs {
        client.cancel(run);
    }
    // Those that are interpreters of their own stay for a minute.
    until("one is left", PATIENCE, || {
        (pool().busy, pool().warm) == (0, 1)
    });
    Ok(())
}
