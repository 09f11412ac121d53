//! `ptcctl replay`: a recorded run is repeated without a server, and what differs is named.
#![expect(clippy::panic, reason = "a test fails by panicking")]

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::{Client, Daemon, Home, Plan, TestResult, party};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_hundred_varied_programs_are_repeated_as_they_were,
        no_server_is_touched,
        changed_code_runs_against_the_recorded_results,
        what_depends_on_the_clock_or_on_lot_is_said_to,
        a_record_without_results_is_refused,
    ]
}

/// A daemon that records everything, with a scripted server `m`, and a client.
pub(super) fn recording() -> (Home, Daemon, Client) {
    party(Plan::new().set("journal.record", "full"))
}

fn run(client: &mut Client, code: &str) -> String {
    let run = client.run(code);
    run.structured["run"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// What the daemon says of a replay.
pub(super) fn replay(home: &Home, run: &str) -> (i32, Value) {
    let (code, out, err) = home.ctl(&["--json", "replay", run]);
    let said = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
    (code, said)
}

/// Programs of twelve kinds: loops, gathers whose answers come in another order, failures, retries, lots.
fn programs() -> Vec<String> {
    let mut programs = Vec::new();
    for n in 0..9 {
        programs.extend([
            format!("t = 0\nfor i in range({n} + 2):\n    r = await mcp__m__add(a=t, b=i)\n    t = r['sum']\nprint(t)"),
            format!("import asyncio\nrs = await asyncio.gather(*[mcp__m__sleep(ms=(7 * i + {n}) % 5 * 4) for i in range(5)])\nprint(rs)"),
            format!("import asyncio\nlog = []\nasync def one(i):\n    await mcp__m__sleep(ms=(3 - i) * 15)\n    log.append(i)\nawait asyncio.gather(*[one(i) for i in range(3)])\nprint(log, {n})"),
            format!("try:\n    await mcp__m__fail(message='m{n}')\nexcept ToolError as e:\n    print(e.kind, e, e.retryable)"),
            format!("for i in range(3):\n    try:\n        if i < 2: await mcp__m__fail(message=f'try {{i}} of {n}')\n        print(await mcp__m__add(a=i, b={n}))\n    except ToolError as e:\n        print('again', e)"),
            format!("import random\nxs = [random.random() for _ in range(3)]\nrandom.shuffle(xs)\nprint(xs)\nemit({{'x': xs[0], 'n': {n}}})"),
            format!("r = await mcp__m__echo(word='w{n}', deep={{'a': [1, 2.5, None, True]}})\nemit(r)"),
            format!("try:\n    await mcp__m__add(a='x')\nexcept ToolError as e:\n    print(e.kind)\nprint(await mcp__m__add(a={n}, b=1))"),
            format!("r = await mcp__m__add(a=1.0, b={n})\nprint(r)\nraise ValueError('end {n}')"),
            format!("print(sorted(await list_callable_tools())[:3], {n})\nprint((await inspect_tool(tool_name='mcp__m__add'))['name'])"),
            format!("import asyncio\nq = asyncio.Queue()\nasync def worker():\n    while True:\n        i = await q.get()\n        await mcp__m__sleep(ms=i)\n        q.task_done()\nfor i in range(6): q.put_nowait(i * 3)\nws = [asyncio.ensure_future(worker()) for _ in range(2)]\nawait q.join()\nfor w in ws: w.cancel()\nprint('done {n}')"),
        ]);
    }
    programs.push(
        "try:\n    await mcp__m__nope()\nexcept Exception as e:\n    print(type(e).__name__)"
            .to_owned(),
    );
    programs
}

fn a_hundred_varied_programs_are_repeated_as_they_were() -> TestResult {
    let (home, _daemon, mut client) = recording();
    let programs = programs();
    assert_eq!(programs.len(), 100);
    let runs: Vec<(String, String)> = programs
        .into_iter()
        .map(|code| (run(&mut client, &code), code))
        .collect();
    for (id, code) in &runs {
        let (exit, said) = replay(&home, id);
        assert_eq!(
            (exit, &said["verdict"]),
            (0, &json!("same")),
            "{said:#}\n{code}"
        );
    }
    let list = client.ask("resources/list", &json!({}));
    let description = list["resources"][0]["description"]
        .as_str()
        .unwrap_or_default();
    assert!(
        description.starts_with("finished, replayed: "),
        "{description}"
    );
    Ok(())
}

fn no_server_is_touched() -> TestResult {
    let (home, daemon, mut client) = recording();
    let id = run(&mut client, "print(await mcp__m__add(a=1, b=2))");
    let before = daemon.server("m").calls;
    let (exit, said) = replay(&home, &id);
    assert_eq!(exit, 0, "{said:#}");
    assert_eq!(daemon.server("m").calls, before);
    // Not even a server that is gone is missed.
    home.write_config(&Plan::new().set("journal.record", "full").text());
    assert_eq!(home.ctl(&["reload"]).0, 0);
    let (exit, said) = replay(&home, &id);
    assert_eq!((exit, &said["verdict"]), (0, &json!("same")), "{said:#}");
    Ok(())
}

fn changed_code_runs_against_the_recorded_results() -> TestResult {
    let (home, daemon, mut client) = recording();
    let id = run(
        &mut client,
        "a = await mcp__m__add(a=1, b=2)\nb = await mcp__m__add(a=3, b=4)\nprint(a['summ'])",
    );
    let before = daemon.server("m").calls;
    let mended = home.write(
        "home/mended.py",
        "b = await mcp__m__add(a=3, b=4)\na = await mcp__m__add(b=2, a=1)\nprint(a['sum'], b['sum'])",
    );
    let file = mended.display().to_string();
    let (exit, out, err) = home.ctl(&["replay", &id, "--edit", &file]);
    assert_eq!((exit, out.as_str()), (0, "3 7\n"), "{err}");
    assert!(
        err.contains("2 calls, 2 answered from the record; no server was called"),
        "{err}"
    );
    let other = home.write("home/other.py", "print(await mcp__m__add(a=9, b=9))");
    let (exit, _, err) = home.ctl(&["replay", &id, "--edit", &other.display().to_string()]);
    assert_eq!(exit, 1);
    assert!(
        err.contains("the record has no unused result of mcp__m__add"),
        "{err}"
    );
    assert_eq!(daemon.server("m").calls, before);
    Ok(())
}

/// Also where workers are forked, which share a hash seed: a replay takes an interpreter of its own.
fn what_depends_on_the_clock_or_on_lot_is_said_to() -> TestResult {
    let plan = Plan::new().set("journal.record", "full");
    let (home, _daemon, mut client) = party(plan.set("execution.pool.start", "auto"));
    for (code, on) in [
        ("import time\nprint(time.time_ns())", "the clock"),
        ("import os\nprint(os.urandom(8).hex())", "entropy"),
        ("import uuid\nprint(uuid.uuid4())", "entropy"),
        (
            "print(list({'a%d' % n for n in range(300)}))",
            "the order of sets",
        ),
    ] {
        let id = run(&mut client, code);
        let (exit, said) = replay(&home, &id);
        assert_eq!(
            (exit, &said["verdict"]),
            (1, &json!("not_reproducible")),
            "{said:#}"
        );
        assert!(said["depends_on"].to_string().contains(on), "{said:#}");
    }
    Ok(())
}

fn a_record_without_results_is_refused() -> TestResult {
    let home = Home::new(&Plan::new().server("m", &[]));
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let id = run(&mut client, "print(await mcp__m__add(a=1, b=2))");
    let (exit, _, err) = home.ctl(&["replay", &id]);
    assert_eq!(exit, 1);
    assert!(err.contains("journal.record to full"), "{err}");
    // Without calls there is nothing to miss.
    let id = run(&mut client, "print(6 * 7)");
    let (exit, said) = replay(&home, &id);
    assert_eq!((exit, &said["verdict"]), (0, &json!("same")), "{said:#}");
    let (exit, _, err) = home.ctl(&["replay", "no-such-run"]);
    assert_eq!(exit, 1);
    assert!(
        err.contains("there is no record of a run no-such-run"),
        "{err}"
    );
    Ok(())
}
