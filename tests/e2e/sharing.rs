//! Several clients at one daemon.

use std::time::Duration;

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::process::needs_proc;
use ptc_tests::wait::until;
use ptc_tests::{Client, Home, PATIENCE, Plan, TestResult};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        two_clients_share_one_server_and_equal_ids_never_mix,
        six_shims_starting_at_once_give_one_daemon,
        two_configurations_have_two_daemons,
        runs_over_the_limit_wait_their_turn,
        clients_that_come_and_go_leave_nothing,
        the_status_names_the_clients,
    ]
}

fn two_clients_share_one_server_and_equal_ids_never_mix() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut clients: Vec<Client> = (0..2).map(|_| home.client()).collect();
    let rounds = 12;
    let code = |who: usize, round: usize| {
        format!(
            "import asyncio\n\
             got = await asyncio.gather(*[mcp__m__echo(who={who}, round={round}, n=n) for n in range(5)])\n\
             await mcp__m__sleep(ms={})\n\
             print([(g['who'], g['round'], g['n']) for g in got], (await mcp__m__pid())['pid'])",
            (who + round) * 7 % 30
        )
    };
    for round in 0..rounds {
        for (who, client) in clients.iter_mut().enumerate() {
            let params = json!({
                "name": "execute_program", "arguments": {"code": code(who, round)},
            });
            client.send_request(&json!(1000 + round), "tools/call", &params);
        }
    }
    let pid = daemon.server("m").pid.unwrap_or(0);
    for round in (0..rounds).rev() {
        for (who, client) in clients.iter_mut().enumerate() {
            let run = client.finish_run(&json!(1000 + round));
            let tuples: Vec<String> = (0..5).map(|n| format!("({who}, {round}, {n})")).collect();
            assert_eq!(run.printed(), format!("[{}] {pid}", tuples.join(", ")));
        }
    }
    Ok(())
}

fn six_shims_starting_at_once_give_one_daemon() -> TestResult {
    needs_proc()?;
    let home = Home::new(&Plan::new().server("m", &[]));
    let printed = std::thread::scope(|scope| {
        let shims: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    home.client()
                        .run("print((await mcp__m__pid())['pid'])")
                        .printed()
                        .to_owned()
                })
            })
            .collect();
        shims
            .into_iter()
            .filter_map(|shim| shim.join().ok())
            .collect::<Vec<String>>()
    });
    assert_eq!(printed.len(), 6);
    assert!(printed.iter().all(|pid| pid == &printed[0]), "{printed:?}");
    let daemons = daemons(&home);
    assert_eq!(daemons.len(), 1, "{daemons:?}");
    let (code, out, err) = home.ctl(&["stop"]);
    assert_eq!(code, 0, "{out}{err}");
    until("the daemon has ended", PATIENCE, || {
        self::daemons(&home).is_empty()
    });
    Ok(())
}

/// The processes of this home that are a ptcd.
fn daemons(home: &Home) -> Vec<Vec<String>> {
    home.processes()
        .into_iter()
        .map(ptc_tests::process::Process::command_line)
        .filter(|line| line.first().is_some_and(|name| name.ends_with("ptcd")))
        .collect()
}

fn two_configurations_have_two_daemons() -> TestResult {
    let one = Home::new(&Plan::new().server("m", &[]));
    let other = one.write("other.yaml", &Plan::new().server("w", &[]).text());
    let _daemon = one.daemon();
    let list = "print(await list_callable_tools())";
    let mut first = one.client();
    let mut second = {
        let mut command = one.command("ptc-mcp");
        command.arg("--config").arg(&other);
        let mut client = one.shim_of(command);
        client.initialize("2025-11-25");
        client
    };
    until("the first has its server", PATIENCE, || {
        first.run(list).printed().contains("mcp__m__")
    });
    until("the second has its server", PATIENCE, || {
        second.run(list).printed().contains("mcp__w__")
    });
    assert!(!first.run(list).printed().contains("mcp__w__"));
    assert!(!second.run(list).printed().contains("mcp__m__"));
    Ok(())
}

fn runs_over_the_limit_wait_their_turn() -> TestResult {
    let home = Home::new(&Plan::new().set("execution.max_runs", 2));
    let daemon = home.daemon();
    let mut greedy = home.client();
    let mut modest = home.client();
    let ids: Vec<_> = (0..6)
        .map(|n| greedy.start_run(&format!("import time\ntime.sleep(1)\nprint({n})")))
        .collect();
    until("two run", PATIENCE, || {
        let pool = daemon.status().programs.pool;
        assert!(pool.busy <= 2, "{pool:?}");
        pool.busy == 2 && pool.queued > 0
    });
    // A fair queue: the other client does not wait for all six.
    assert_eq!(modest.run("print('mine')").printed(), "mine");
    let _last = ids.last().cloned().unwrap_or_default();
    assert!(ids.iter().any(|id| !greedy.has_answer(id)));
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(greedy.finish_run(id).printed(), n.to_string());
    }
    Ok(())
}

fn clients_that_come_and_go_leave_nothing() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let pid = daemon.server("m").pid;
    for round in 0..12 {
        let mut client = home.shim();
        if round % 3 > 0 {
            client.initialize("2025-03-26");
        }
        if round % 3 > 1 {
            client.start_run("await mcp__m__sleep(ms=60000)");
        }
        client.kill();
    }
    until(
        "no client and no run is left",
        Duration::from_secs(10),
        || {
            let status = daemon.status();
            status.clients.is_empty() && status.programs.pool.busy == 0
        },
    );
    assert_eq!(daemon.server("m").pid, pid);
    assert_eq!(home.client().run("print('alive')").printed(), "alive");
    Ok(())
}

fn the_status_names_the_clients() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut labelled = home.shim_with(&["--client", "my-editor"]);
    labelled.initialize("2025-11-25");
    let plain = home.client();
    let mut clients: Vec<(String, u32)> = daemon
        .status()
        .clients
        .into_iter()
        .map(|client| (client.name, client.pid))
        .collect();
    clients.sort();
    assert_eq!(
        clients,
        [
            ("my-editor".to_owned(), labelled.pid()),
            ("ptc-tests".to_owned(), plain.pid())
        ]
    );
    Ok(())
}
