//! Many clients and servers at one daemon, and its end under all of them.

use std::collections::BTreeMap;

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::wait::until;
use ptc_tests::{Client, Direct, Home, PATIENCE, Plan, Run, TestResult};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_daemon_killed_under_eight_clients_is_answered_for_to_each,
        fifty_clients_and_twenty_servers_never_mix,
        a_client_that_waits_too_long_for_a_place_is_told_the_limit,
    ]
}

fn execute(code: &str) -> Value {
    json!({"name": "execute_program", "arguments": {"code": code}})
}

fn a_daemon_killed_under_eight_clients_is_answered_for_to_each() -> TestResult {
    let plan = Plan::new().set("execution.max_runs", 24);
    let home = Home::new(&plan.server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut clients: Vec<Client> = (0..8).map(|_| home.client()).collect();
    for (who, client) in clients.iter_mut().enumerate() {
        ask_much(client, who);
    }
    for (who, client) in clients.iter_mut().enumerate() {
        let printed = client.finish_run(&json!(2));
        assert_eq!(printed.printed(), (who * 11).to_string());
    }
    let calls: u64 = (0..8).map(|who| who + 2).sum();
    until("every run is on its way", PATIENCE, || {
        daemon.server("m").calls == calls && daemon.status().programs.pool.busy == 16
    });
    for client in &mut clients {
        client.send_request(&json!(4), "tools/call", &execute("print('at the end')"));
    }
    daemon.kill();
    for (who, client) in clients.iter_mut().enumerate() {
        each_has_one_answer(client, who);
    }
    let (_, out, _) = home.ctl(&["--json", "status"]);
    let status: Value = serde_json::from_str(&out)?;
    assert_eq!(status["servers"][0]["calls"], 0, "repeated: {status}");
    assert_eq!(status["clients"].as_array().map(Vec::len), Some(8));
    Ok(())
}

/// Under the same ids in every client: a run that waits in a call, one that waits by itself, a
/// program that ends, a list.
fn ask_much(client: &mut Client, who: usize) {
    let waits = format!(
        "for n in range({who}):\n    await mcp__m__echo(who={who}, n=n)\n\
         await mcp__m__add(a={who}, b=1)\nawait mcp__m__sleep(ms=60000)"
    );
    let alone = "import time\nprint('x', flush=True)\ntime.sleep(60)";
    let ends = format!("print({who} * 11)");
    let programs = [(json!("1"), &*waits), (json!(1), alone), (json!(2), &*ends)];
    for (id, code) in programs {
        client.send_request(&id, "tools/call", &execute(code));
    }
    client.send_request(&json!(3), "tools/list", &json!({}));
}

/// After the daemon was killed. A second answer to any id would fail the client.
fn each_has_one_answer(client: &mut Client, who: usize) {
    let echoes = match who {
        0 => String::new(),
        1 => "mcp__m__echo (ok), ".to_owned(),
        count => format!("mcp__m__echo ({count} times, ok), "),
    };
    let waited = client.finish_run(&json!("1"));
    assert!(waited.is_error);
    assert_eq!(
        waited.text,
        format!(
            "daemon restarted during this run; tool calls already made: {echoes}mcp__m__add (ok), \
             mcp__m__sleep (unknown whether it took effect); nothing was repeated"
        )
    );
    assert_eq!(
        client.finish_run(&json!(1)).text,
        "daemon restarted during this run; no tool call was made; nothing was repeated"
    );
    assert!(client.answer(&json!(3))["result"]["tools"].is_array());
    // Sent just before the end: whichever it is, there is one answer, and it ran at most once.
    let text = client.finish_run(&json!(4)).text;
    assert!(
        text.contains("at the end") || text.contains("nothing was repeated"),
        "{text}"
    );
    let printed = client.run(&format!("print({who})"));
    assert_eq!(printed.printed(), who.to_string());
    client.take_in();
}

const SERVERS: usize = 20;
/// Of the clients at the socket, so many run programs, as the shims do; the others ask about tools.
const RUNNING: usize = 8;
/// The number of the first shim.
const SHIMS: usize = 100;

fn asks(who: usize) -> bool {
    (RUNNING..SHIMS).contains(&who)
}

/// The server that the `n`th request of a client is about.
fn about(who: usize, n: usize) -> usize {
    (who * 7 + n * 3 + 1) % SERVERS
}

fn request_of(who: usize, n: usize) -> Value {
    let server = about(who, n);
    if asks(who) {
        let tool = format!("mcp__s{server}__echo");
        return json!({"name": "inspect_tool", "arguments": {"tool_name": tool}});
    }
    let other = (who + n) % SERVERS;
    execute(&format!(
        "a = await mcp__s{other}__echo(who={who}, n={n})\n\
         b = (await mcp__s{server}__pid())['pid']\n\
         print(a['who'], a['n'], b)"
    ))
}

#[track_caller]
fn check_answer(who: usize, n: usize, result: Value, pids: &BTreeMap<String, Option<u32>>) {
    let name = format!("s{}", about(who, n));
    let run = Run::of(result);
    if asks(who) {
        let told: Value = serde_json::from_str(&run.text).unwrap_or_default();
        assert_eq!(told["name"], format!("mcp__{name}__echo"), "client {who}");
    } else {
        let pid = pids[&name].unwrap_or_default();
        assert_eq!(run.printed(), format!("{who} {n} {pid}"));
    }
}

fn fifty_clients_and_twenty_servers_never_mix() -> TestResult {
    let mut plan = Plan::new().set("execution.max_runs", 6);
    for n in 0..SERVERS {
        plan = plan.server(&format!("s{n}"), &[]);
    }
    let home = Home::new(&plan);
    let daemon = home.daemon();
    for n in 0..SERVERS {
        daemon.wait_for(&format!("s{n}"), ServerState::Ready);
    }
    let servers = daemon.status().servers.into_iter();
    let pids = servers.map(|server| (server.name, server.pid)).collect();
    let mut direct: Vec<Direct> = (0..47).map(|n| Direct::open(&home, n)).collect();
    let mut shims: Vec<Client> = (0..3).map(|_| home.client()).collect();
    for stream in &mut direct {
        stream.initialize();
    }
    // Every client sends under the same two ids before anyone reads.
    let ids = [json!(1), json!("1")];
    for (n, id) in ids.iter().enumerate() {
        for (who, stream) in direct.iter_mut().enumerate() {
            let params = request_of(who, n);
            stream.send(
                &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}),
            );
        }
        for (who, shim) in shims.iter_mut().enumerate() {
            shim.send_request(id, "tools/call", &request_of(SHIMS + who, n));
        }
    }
    assert_eq!(daemon.status().clients.len(), 50);
    for (who, stream) in direct.iter_mut().enumerate() {
        let mut answers = BTreeMap::new();
        while answers.len() < ids.len() {
            let mut line = stream.line().unwrap_or_default();
            let before = answers.insert(line["id"].to_string(), line["result"].take());
            assert!(before.is_none(), "two answers to {}", line["id"]);
        }
        for (n, id) in ids.iter().enumerate() {
            let result = answers.remove(&id.to_string());
            check_answer(who, n, result.unwrap_or_default(), &pids);
        }
    }
    for (who, shim) in shims.iter_mut().enumerate() {
        for (n, id) in ids.iter().enumerate() {
            let result = shim.finish_run(id).result;
            check_answer(SHIMS + who, n, result, &pids);
        }
    }
    drop((direct, shims));
    until("nobody is left", PATIENCE, || {
        let status = daemon.status();
        status.clients.is_empty() && status.programs.pool.busy == 0
    });
    Ok(())
}

fn a_client_that_waits_too_long_for_a_place_is_told_the_limit() -> TestResult {
    let home = Home::new(&Plan::new().set("execution.max_runs", 1));
    let daemon = home.daemon();
    let mut greedy = home.client();
    let mut modest = home.client();
    let long = greedy.start_run("import time\ntime.sleep(100)");
    until("it runs", PATIENCE, || {
        daemon.status().programs.pool.busy == 1
    });
    let waits = modest.start_run("print('never')");
    let answer = modest.answer_within(&waits, PATIENCE * 3);
    let run = Run::of(answer["result"].clone());
    assert!(run.is_error);
    assert!(run.text.contains("execution.max_runs"), "{}", run.text);
    assert!(run.text.contains("30 s"), "{}", run.text);
    assert_eq!(run.structured["ending"], "refused");
    greedy.cancel(&long);
    assert_eq!(modest.run("print('now')").printed(), "now");
    Ok(())
}
