//! Runs that someone ends: a cancel, a client that goes away, a program that leaves work behind.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_protocol::run::Ending;
use ptc_tests::wait::until;
use ptc_tests::{Client, Daemon, PATIENCE, Plan, TestResult, eventually, http, party};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_cancelled_run_ends_and_its_call_is_cancelled_downstream,
        a_cancel_of_another_id_form_cancels_nothing,
        a_killed_client_ends_its_runs_and_no_others,
        a_client_whose_stdout_nobody_reads_ends_its_runs,
        the_end_of_stdin_gives_a_run_a_moment,
        what_a_program_leaves_behind_is_cancelled,
        several_runs_of_one_client_go_side_by_side,
        progress_goes_to_those_who_asked_and_grows,
        after_a_cancel_no_message_comes_for_its_id,
    ]
}

fn busy(daemon: &Daemon) -> usize {
    daemon.status().programs.pool.busy
}

fn wait_until_called(client: &mut Client, method: &str, count: u64) {
    eventually(
        &format!("the server has seen {count} {method}"),
        PATIENCE,
        || {
            let run = client.run(&format!(
                "print((await mcp__m__stats()).get('{method}', 0))"
            ));
            let seen: u64 = run.printed().parse().unwrap_or(0);
            (seen >= count).then_some(())
        },
    );
}

fn a_cancelled_run_ends_and_its_call_is_cancelled_downstream() -> TestResult {
    let (home, daemon, mut client) = party(Plan::new());
    let mut watcher = home.client();
    let id = client
        .start_run("print('begun', flush=True)\nawait mcp__m__sleep(ms=60000)\nprint('never')");
    until("the run has begun", PATIENCE, || busy(&daemon) == 1);
    wait_until_called(&mut watcher, "tools/call", 2);
    let start = Instant::now();
    client.cancel(&id);
    until("the run has ended", PATIENCE, || busy(&daemon) == 0);
    assert!(start.elapsed() < Duration::from_secs(30));
    wait_until_called(&mut watcher, "notifications/cancelled", 1);
    assert_eq!(client.run("print('next')").printed(), "next");
    if client.has_answer(&id) {
        let answer = client.answer(&id).to_string();
        assert!(answer.contains("cancelled"), "{answer}");
    }
    let runs = http::ask(daemon.socket(), "GET", ptc_protocol::route::RUNS)?.body;
    assert!(
        runs.contains(&format!("\"{}\"", Ending::Cancelled.as_str())),
        "{runs}"
    );
    Ok(())
}

fn a_cancel_of_another_id_form_cancels_nothing() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let params = json!({"name": "execute_program", "arguments": {
        "code": "import time\ntime.sleep(1.5)\nprint('whole')",
    }});
    client.send_request(&json!(7), "tools/call", &params);
    client.cancel(&json!("7"));
    client.cancel(&json!(8));
    assert_eq!(client.finish_run(&json!(7)).printed(), "whole");
    client.cancel(&json!(7));
    assert_eq!(client.run("print('alive')").printed(), "alive");
    Ok(())
}

fn a_killed_client_ends_its_runs_and_no_others() -> TestResult {
    let (home, daemon, mut other) = party(Plan::new());
    let mut victim = home.client();
    victim.start_run("await mcp__m__sleep(ms=60000)");
    victim.start_run("while True:\n    pass");
    until("two programs run", PATIENCE, || busy(&daemon) == 2);
    let kept = other
        .start_run("import time\nprint('a')\ntime.sleep(8)\nprint(await mcp__m__add(a=1, b=2))");
    until("three programs run", PATIENCE, || {
        busy(&daemon) == 3 && daemon.server("m").calls == 1
    });
    victim.kill();
    let start = Instant::now();
    until("one program runs", PATIENCE, || busy(&daemon) <= 1);
    assert!(
        start.elapsed() < Duration::from_secs(40),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(other.finish_run(&kept).printed(), "a\n{'sum': 3}");
    wait_until_called(&mut other, "notifications/cancelled", 1);
    let clients = daemon.status().clients;
    assert_eq!(clients.len(), 1, "{clients:?}");
    Ok(())
}

fn a_client_whose_stdout_nobody_reads_ends_its_runs() -> TestResult {
    use std::io::Write as _;
    let (home, daemon, _client) = party(Plan::new());
    let mut child = home
        .command("ptc-mcp")
        .arg("--config")
        .arg(home.config())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let mut stdin = child.stdin.take();
    let mut say = |message: serde_json::Value| -> std::io::Result<()> {
        stdin
            .as_mut()
            .map_or(Ok(()), |stdin| writeln!(stdin, "{message}"))
    };
    say(
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "gone", "version": "0"},
        }}),
    )?;
    say(
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "execute_program", "arguments": {"code": "await mcp__m__sleep(ms=60000)"},
        }}),
    )?;
    until("its program runs", PATIENCE, || busy(&daemon) == 1);
    drop(child.stdout.take());
    until("its program has ended", PATIENCE, || busy(&daemon) == 0);
    eventually("the shim ends", PATIENCE, || {
        child.try_wait().ok().flatten()
    });
    Ok(())
}

fn the_end_of_stdin_gives_a_run_a_moment() -> TestResult {
    let (home, daemon, _client) = party(Plan::new());
    let mut quick = home.client();
    let id = quick.start_run("import time\ntime.sleep(1)\nprint('still answered')");
    quick.close_stdin();
    assert_eq!(quick.finish_run(&id).printed(), "still answered");
    assert!(quick.wait(PATIENCE).success());
    let mut slow = home.shim_with(&["--eof-wait", "1"]);
    slow.initialize("2025-11-25");
    let id = slow.start_run("import time\nprint('x')\ntime.sleep(60)");
    until("its program runs", PATIENCE, || busy(&daemon) == 1);
    slow.close_stdin();
    let answer = slow.answer_within(&id, Duration::from_secs(15)).to_string();
    assert!(answer.contains("cancelled"), "{answer}");
    assert!(slow.wait(PATIENCE).success());
    until("its program has ended", PATIENCE, || busy(&daemon) == 0);
    Ok(())
}

fn what_a_program_leaves_behind_is_cancelled() -> TestResult {
    let (_home, daemon, mut client) = party(Plan::new());
    let start = Instant::now();
    let run = client.run(
        "import asyncio, threading, time, atexit\n\
         task = asyncio.ensure_future(mcp__m__sleep(ms=60000))\n\
         threading.Thread(target=time.sleep, args=(60,)).start()\n\
         atexit.register(time.sleep, 60)\n\
         while not (await mcp__m__stats()).get('tools/call', 0) >= 2: pass\n\
         print('end of the program')",
    );
    assert!(start.elapsed() < Duration::from_secs(15));
    assert_eq!(run.structured["output"], "end of the program\n");
    let told = "[note: 1 task was still running at the end and was stopped: await it]";
    assert!(run.text.contains(told), "{}", run.text);
    let calls = run.structured["tool_calls"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let left: Vec<_> = calls
        .iter()
        .filter(|call| call["tool"] == "mcp__m__sleep")
        .collect();
    assert_eq!(left.len(), 1, "{calls:?}");
    assert_eq!(left[0]["ok"], false);
    wait_until_called(&mut client, "notifications/cancelled", 1);
    until("no program runs", PATIENCE, || busy(&daemon) == 0);
    Ok(())
}

fn several_runs_of_one_client_go_side_by_side() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let long = client.start_run("import time\ntime.sleep(4)\nprint('long')");
    let start = Instant::now();
    for n in 0..3 {
        assert_eq!(client.run(&format!("print({n})")).printed(), n.to_string());
    }
    assert!(!client.has_answer(&long), "{:?}", start.elapsed());
    assert_eq!(client.finish_run(&long).printed(), "long");
    Ok(())
}

/// Parameters of a program with a progress token, for a client of either era.
fn watched(code: &str, token: &serde_json::Value, modern: bool) -> serde_json::Value {
    let mut params = json!({
        "name": "execute_program", "arguments": {"code": code}, "_meta": {"progressToken": token},
    });
    if modern {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    params
}

fn progress_goes_to_those_who_asked_and_grows() -> TestResult {
    let (home, _daemon, mut silent) = party(Plan::new());
    let code = "for n in range(9):\n    await mcp__m__sleep(ms=500)\nprint('end')";
    for modern in [false, true] {
        let mut client = home.shim();
        if !modern {
            client.initialize("2025-06-18");
        }
        let token = json!("t-1");
        let start = Instant::now();
        let id = client.request("tools/call", &watched(code, &token, modern));
        assert_eq!(client.finish_run(&id).printed(), "end");
        let seconds = start.elapsed().as_secs();
        let mut last = 0.0;
        for notice in &client.notices {
            assert_eq!(notice["method"], "notifications/progress", "{notice}");
            assert_eq!(notice["params"]["progressToken"], token, "{notice}");
            let step = notice["params"]["progress"].as_f64().unwrap_or_default();
            assert!(step > last, "{:?}", client.notices);
            last = step;
            let text = notice["params"]["message"].as_str().unwrap_or_default();
            assert!(text.contains("calls"), "{notice}");
        }
        let count = client.notices.len() as u64;
        assert!(
            (2..=seconds / 2 + 1).contains(&count),
            "{count} in {seconds} s"
        );
    }
    silent.run(code);
    assert_eq!(silent.notices, [json!(null); 0]);
    Ok(())
}

fn after_a_cancel_no_message_comes_for_its_id() -> TestResult {
    let (home, daemon, _other) = party(Plan::new());
    for modern in [false, true] {
        let mut client = home.shim();
        if !modern {
            client.initialize("2025-06-18");
        }
        let token = json!(1);
        let code = "while True:\n    await mcp__m__sleep(ms=50)";
        let id = client.request("tools/call", &watched(code, &token, modern));
        until("progress is told", PATIENCE, || {
            client.take_in();
            !client.notices.is_empty()
        });
        client.cancel(&id);
        until("its program has ended", PATIENCE, || busy(&daemon) == 0);
        client.take_in();
        let told = client.notices.len();
        // The id and the token are free again, and what comes now belongs to the new request.
        let params = watched("print('again')", &token, modern);
        client.send_request(&id, "tools/call", &params);
        assert_eq!(client.finish_run(&id).printed(), "again");
        assert_eq!(client.notices.len(), told, "{:?}", client.notices);
    }
    Ok(())
}
