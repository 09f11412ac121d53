//! Downstream servers that die, hang, lie or talk nonsense.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::process::{self, needs_proc};
use ptc_tests::suite::skip;
use ptc_tests::wait::until;
use ptc_tests::{Client, Daemon, Home, PATIENCE, Plan, TestResult, eventually};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_server_that_dies_mid_call_fails_that_call_and_comes_back,
        a_server_that_hangs_holds_up_nothing_else,
        a_server_that_answers_with_both_members_fails_that_call,
        an_answer_under_another_id_reaches_no_other_call,
        answers_out_of_order_reach_their_calls,
        an_oversized_line_fails_its_call_at_once,
        junk_on_stdout_is_skipped_and_counted,
        megabytes_on_stderr_without_a_newline_do_no_harm,
        every_page_of_a_list_is_read,
        a_server_that_ends_at_its_start_is_reported_with_its_last_words,
        a_storm_of_list_changed_causes_few_listings,
        a_server_that_ignores_the_end_of_stdin_is_ended,
        a_killed_server_is_noticed_without_a_call,
        a_killed_daemon_leaves_nothing_that_a_server_has_started,
        restarts_leave_no_process_behind_and_none_that_nobody_waits_for,
        what_a_server_leaves_to_the_first_process_of_a_container_is_reaped,
        a_command_that_is_not_there_is_reported,
    ]
}

fn party(switches: &[&str]) -> (Home, Daemon, Client) {
    let home = Home::new(
        &Plan::new()
            .server("m", switches)
            .server("n", &[])
            .set("execution.tool_call_timeout_seconds", 3),
    );
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    daemon.wait_for("n", ServerState::Ready);
    let client = home.client();
    (home, daemon, client)
}

/// Program text: one call of `m` beside many of `n`; prints what both gave.
const BESIDE: &str = "\
import asyncio
async def odd():
    try:
        return await mcp__m__echo(x=1)
    except ToolError as e:
        return e.kind
async def even():
    return sum([(await mcp__n__add(a=n, b=0))['sum'] for n in range(10)])
print(await asyncio.gather(odd(), even()))
";

fn a_server_that_dies_mid_call_fails_that_call_and_comes_back() -> TestResult {
    let (home, daemon, mut client) = party(&[]);
    let once = home.path("once").display().to_string();
    drop((client, daemon));
    home.write_config(
        &Plan::new()
            .server("m", &["--die-mid-call", "--once", &once])
            .server("n", &[])
            .text(),
    );
    let daemon = home.daemon();
    let first = daemon.wait_for("m", ServerState::Ready).pid;
    daemon.wait_for("n", ServerState::Ready);
    client = home.client();
    let start = Instant::now();
    let run = client.run(BESIDE);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(run.printed(), "['connection_lost', 45]");
    // The call that found it in back-off waits for it; nothing is sent twice.
    let again =
        client.run("print(await mcp__m__echo(x=2))\nprint((await mcp__m__stats())['tools/call'])");
    assert_eq!(again.printed(), "{'x': 2}\n2");
    assert_ne!(daemon.server("m").pid, first);
    Ok(())
}

fn a_server_that_hangs_holds_up_nothing_else() -> TestResult {
    let (_home, daemon, mut client) = party(&["--hang"]);
    let before = daemon.server("m").pid;
    let run = client.run(BESIDE);
    assert_eq!(run.printed(), "['timeout', 45]");
    let other = client.run("print(await mcp__m__add(a=1, b=1))");
    assert_eq!(other.printed(), "{'sum': 2}");
    assert_eq!(daemon.server("m").pid, before);
    Ok(())
}

fn a_server_that_answers_with_both_members_fails_that_call() -> TestResult {
    let (_home, daemon, mut client) = party(&["--lie"]);
    let before = daemon.server("m").pid;
    // Had it waited for the time limit, the kind would be another.
    assert_eq!(client.run(BESIDE).printed(), "['protocol', 45]");
    assert_eq!(
        client.run("print(await mcp__m__add(a=1, b=1))").printed(),
        "{'sum': 2}"
    );
    assert_eq!(daemon.server("m").pid, before);
    Ok(())
}

fn an_answer_under_another_id_reaches_no_other_call() -> TestResult {
    let (_home, _daemon, mut client) = party(&["--id-zero"]);
    let run = client.run(
        "import asyncio\nasync def one(n):\n    try:\n        return await mcp__m__echo(n=n)\n    except ToolError as e:\n        return e.kind\n\
         got = await asyncio.gather(*[one(n) for n in range(4)])\nprint(all(g in ('timeout', 'protocol') for g in got), got)",
    );
    assert!(run.printed().starts_with("True"), "{}", run.text);
    Ok(())
}

fn answers_out_of_order_reach_their_calls() -> TestResult {
    let (_home, _daemon, mut client) = party(&["--reorder", "5"]);
    let run = client.run(
        "import asyncio\nprint([r['n'] for r in await asyncio.gather(*[mcp__m__echo(n=n) for n in range(5)])])",
    );
    assert_eq!(run.printed(), "[0, 1, 2, 3, 4]");
    Ok(())
}

fn an_oversized_line_fails_its_call_at_once() -> TestResult {
    let (home, daemon, client) = party(&[]);
    drop((client, daemon));
    home.write_config(
        &Plan::new()
            .server("m", &["--oversize", "6000000"])
            .server("n", &[])
            .set("execution.max_tool_result_bytes", 1_000_000)
            .text(),
    );
    let daemon = home.daemon();
    let before = daemon.wait_for("m", ServerState::Ready).pid;
    daemon.wait_for("n", ServerState::Ready);
    let start = Instant::now();
    let mut client = home.client();
    assert_eq!(client.run(BESIDE).printed(), "['result_too_large', 45]");
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "it waited for the time limit"
    );
    assert_eq!(
        client.run("print(await mcp__m__add(a=1, b=1))").printed(),
        "{'sum': 2}"
    );
    assert_eq!(daemon.server("m").pid, before);
    Ok(())
}

fn junk_on_stdout_is_skipped_and_counted() -> TestResult {
    let (_home, daemon, mut client) = party(&["--banner"]);
    assert_eq!(
        client.run("print(await mcp__m__echo(a=1))").printed(),
        "{'a': 1}"
    );
    assert_eq!(daemon.server("m").junk_lines, 2);
    assert_eq!(daemon.server("n").junk_lines, 0);
    Ok(())
}

fn megabytes_on_stderr_without_a_newline_do_no_harm() -> TestResult {
    let (_home, _daemon, mut client) = party(&["--stderr-flood"]);
    assert_eq!(
        client.run("print(await mcp__m__echo(a=1))").printed(),
        "{'a': 1}"
    );
    Ok(())
}

fn every_page_of_a_list_is_read() -> TestResult {
    let (_home, daemon, _client) = party(&["--paged", "3"]);
    assert_eq!(daemon.server("m").tools, Some(11));
    Ok(())
}

fn a_server_that_ends_at_its_start_is_reported_with_its_last_words() -> TestResult {
    let home = Home::new(
        &Plan::new()
            .server("m", &["--exit-at-start", "7"])
            .server("n", &[]),
    );
    let daemon = home.daemon();
    let detail = eventually("its last words are shown", PATIENCE, || {
        daemon
            .server("m")
            .detail
            .filter(|detail| detail.contains("licence") && detail.contains('7'))
    });
    assert!(!detail.is_empty());
    daemon.wait_for("n", ServerState::Ready);
    let mut client = home.client();
    let run = client.run(
        "try:\n    await mcp__m__echo()\nexcept NameError as e:\n    print('m' in str(e))\nprint(await mcp__n__echo(b=1))",
    );
    assert_eq!(run.printed(), "True\n{'b': 1}");
    Ok(())
}

fn a_storm_of_list_changed_causes_few_listings() -> TestResult {
    let (_home, _daemon, mut client) = party(&["--list-changed-storm", "300"]);
    let run = client.run(
        "import asyncio\nawait asyncio.sleep(2)\nprint((await mcp__m__stats())['tools/list'])",
    );
    let listings: u64 = run.printed().parse()?;
    assert!(listings <= 10, "{listings} listings");
    Ok(())
}

fn a_server_that_ignores_the_end_of_stdin_is_ended() -> TestResult {
    let (_home, daemon, client) = party(&["--stubborn"]);
    drop(client);
    daemon.stop();
    Ok(())
}

fn a_killed_server_is_noticed_without_a_call() -> TestResult {
    let (_home, daemon, mut client) = party(&[]);
    let first = daemon.server("m").pid;
    if let Some(process) = first.and_then(ptc_tests::process::Process::of) {
        process.kill();
    }
    eventually("another process serves", PATIENCE, || {
        let server = daemon.server("m");
        (server.state == ServerState::Ready && server.pid != first).then_some(())
    });
    assert_eq!(
        client.run("print(await mcp__m__echo(a=1))").printed(),
        "{'a': 1}"
    );
    Ok(())
}

/// A server that starts two stubborn processes, which have this home in their command lines, one of them with a session
/// of its own and a parent that has ended; and then becomes the scripted one.
fn with_a_helper(home: &Home) -> serde_json::Value {
    let script = "trap '' TERM HUP INT; (while :; do sleep 1; done) & \
                  (setsid /bin/sh -c '(while :; do sleep 1; done) & :' \"$1\" &); exec \"$0\"";
    json!({
        "name": "m", "transport": "stdio", "command": "/bin/sh",
        "args": ["-c", script, ptc_tests::programs::program("mock-mcp"), home.path("helper")],
    })
}

fn a_killed_daemon_leaves_nothing_that_a_server_has_started() -> TestResult {
    needs_proc()?;
    let home = Home::new(&Plan::new());
    let plan = Plan::new().entry(with_a_helper(&home));
    home.write_config(&plan.text());
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let helper = home.path("helper").display().to_string();
    until("both helpers run", PATIENCE, || {
        process::mentioning(&helper).len() == 2
    });
    daemon.kill();
    until("its helpers are gone", PATIENCE, || {
        process::mentioning(&helper).is_empty()
    });
    Ok(())
}

fn restarts_leave_no_process_behind_and_none_that_nobody_waits_for() -> TestResult {
    needs_proc()?;
    let home = Home::new(&Plan::new());
    let plan = Plan::new().entry(with_a_helper(&home));
    home.write_config(&plan.text());
    let daemon = home.daemon();
    let mut pid = daemon.wait_for("m", ServerState::Ready).pid;
    let helper = home.path("helper").display().to_string();
    let path = format!("{}?name=m", ptc_protocol::route::SERVER_RESTART);
    for _ in 0..10 {
        let answer = ptc_tests::http::ask(daemon.socket(), "POST", &path)?;
        assert_eq!(answer.status, 200, "{}", answer.body);
        pid = eventually("another process serves", PATIENCE, || {
            let server = daemon.server("m");
            (server.state == ServerState::Ready && server.pid != pid).then_some(server.pid)
        });
    }
    until("the last one's helpers are left", PATIENCE, || {
        process::mentioning(&helper).len() == 2
    });
    until("no child is a zombie", PATIENCE, || {
        zombies_of(daemon.pid()) == 0
    });
    daemon.stop();
    assert!(process::mentioning(&helper).is_empty());
    Ok(())
}

/// How many ended children nobody has waited for.
fn zombies_of(parent: u32) -> usize {
    let stats = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let parent = parent.to_string();
    stats
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
        .filter(|stat| {
            let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
            let mut fields = rest.split_whitespace();
            fields.next() == Some("Z") && fields.next() == Some(&parent)
        })
        .count()
}

fn what_a_server_leaves_to_the_first_process_of_a_container_is_reaped() -> TestResult {
    needs_proc()?;
    let apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let tried = std::process::Command::new(apart[0])
        .args(&apart[1..])
        .arg("true")
        .stderr(std::process::Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        return skip("only root, with the right to mount, can have processes of its own");
    }
    let home = Home::new(&Plan::new());
    let end = home.path("end");
    let script = "(while [ ! -e \"$1\" ]; do sleep 0.1; done &); exec \"$0\"";
    let plan = Plan::new().entry(json!({
        "name": "m", "transport": "stdio", "command": "/bin/sh",
        "args": ["-c", script, ptc_tests::programs::program("mock-mcp"), end],
    }));
    home.write_config(&plan.text());
    let mut daemon = Daemon::under_shell(&home, &apart, ":");
    daemon.wait_until_it_answers();
    daemon.wait_for("m", ServerState::Ready);
    let unshare = daemon.pid();
    let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"))?;
    let first: u32 = children.trim().parse()?;
    std::fs::write(&end, "")?;
    until("the orphan has ended", PATIENCE, || zombies_of(first) == 1);
    until("it is reaped", PATIENCE, || zombies_of(first) == 0);
    assert_eq!(daemon.server("m").state, ServerState::Ready);
    let tree = daemon.kill();
    ptc_tests::daemon::gone(&tree, PATIENCE);
    Ok(())
}

fn a_command_that_is_not_there_is_reported() -> TestResult {
    let home = Home::new(
        &Plan::new()
            .entry(
                json!({"name": "m", "transport": "stdio", "command": "no-such-command-anywhere"}),
            )
            .server("n", &[]),
    );
    let daemon = home.daemon();
    daemon.wait_for("n", ServerState::Ready);
    let detail = eventually("the detail names the command", PATIENCE, || {
        daemon
            .server("m")
            .detail
            .filter(|detail| detail.contains("no-such-command-anywhere"))
    });
    assert!(!detail.contains("panicked"), "{detail}");
    assert_eq!(
        home.client()
            .run("print(await mcp__n__echo(b=1))")
            .printed(),
        "{'b': 1}"
    );
    Ok(())
}
