//! Programs in the engine monty, where its worker has been built; what needs none is tested everywhere.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use ptc_protocol::approval::WaitingList;
use ptc_protocol::status::ServerState;
use ptc_tests::programs::data;
use ptc_tests::suite::skip;
use ptc_tests::wait::eventually;
use ptc_tests::{Client, Daemon, Home, PATIENCE, Plan, Run, TestResult};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::programs::{Expected, differs};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        an_engine_that_is_not_there_is_said_and_refused,
        a_program_that_proves_no_confinement_is_no_engine,
        no_engine_is_named_where_there_is_no_choice,
        a_program_runs_in_every_tier_and_its_record_names_the_engine,
        the_programs_of_the_other_engine_run_here_or_the_list_says_why_not,
        limits_end_a_program_and_nothing_else,
        a_hostile_program_ends_and_others_run_on,
        policies_and_people_judge_its_calls_and_a_replay_repeats_what_they_said,
        a_call_never_awaited_is_cancelled_and_named,
        a_run_is_repeated_in_the_engine_it_ran_in,
        the_command_line_names_an_engine,
    ]
}

/// The newest worker that was built, or that there is none.
fn worker() -> anyhow::Result<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engines/monty/target");
    let hosts = std::fs::read_dir(&built).into_iter().flatten().flatten();
    let found = hosts
        .flat_map(|host| ["debug", "release"].map(|kind| host.path().join(kind)))
        .map(|folder| folder.join("ptcd-monty-worker"))
        .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file)))
        .max();
    match found {
        Some((_, file)) => Ok(file.canonicalize()?),
        None => {
            skip("the engine monty is not built here: engines/monty/check builds it and runs this")
        }
    }
}

fn plan(worker: &Path) -> Plan {
    Plan::new()
        .server("m", &[])
        .set("execution.engines", json!(["cpython", "monty"]))
        .set("execution.monty_worker", worker.display().to_string())
}

fn party(plan: &Plan) -> (Home, Daemon, Client) {
    let home = Home::new(plan);
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let client = home.client();
    (home, daemon, client)
}

fn run(client: &mut Client, code: &str) -> Run {
    client.call("execute_program", &json!({"code": code, "engine": "monty"}))
}

/// The record of a run, as the command line shows it.
fn record(home: &Home, run: &Run) -> Value {
    let id = run.structured["run"].as_str().expect("a run's id");
    let (_, out, _) = home.ctl(&["--json", "runs", id]);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

fn an_engine_that_is_not_there_is_said_and_refused() -> TestResult {
    let (home, daemon, mut client) = party(&plan(Path::new("/not/here/worker")));
    let refused = run(&mut client, "print(1)");
    assert!(refused.is_error);
    assert!(
        refused
            .text
            .contains("the engine monty is unavailable: /not/here/worker: "),
        "{}",
        refused.text
    );
    assert_eq!(refused.structured["ending"], "refused");
    assert_eq!(client.run("print(1)").structured["output"], "1\n");
    let engines = daemon.status().programs.engines;
    assert_eq!(engines.len(), 1);
    assert!(engines[0].unavailable.is_some() && !engines[0].default);
    let (_, out, _) = home.ctl(&["status"]);
    assert!(
        out.contains("engine monty unavailable: /not/here/worker"),
        "{out}"
    );
    Ok(())
}

fn a_program_that_proves_no_confinement_is_no_engine() -> TestResult {
    let (_home, daemon, mut client) = party(&plan(Path::new("/bin/true")));
    let refused = run(&mut client, "print(1)");
    assert_eq!(refused.structured["ending"], "refused", "{}", refused.text);
    assert!(
        refused.text.contains("the engine monty is unavailable: /"),
        "{}",
        refused.text
    );
    assert!(daemon.status().programs.engines[0].unavailable.is_some());
    assert_eq!(client.run("print(2)").structured["output"], "2\n");
    Ok(())
}

fn no_engine_is_named_where_there_is_no_choice() -> TestResult {
    let home = Home::new(&Plan::new());
    let daemon = home.daemon();
    let mut client = home.client();
    let refused = run(&mut client, "print(1)");
    assert!(
        refused
            .text
            .contains("arguments.engine: found an unknown argument"),
        "{}",
        refused.text
    );
    assert_eq!(daemon.status().programs.engines, []);
    Ok(())
}

const PROGRAM: &str = "import asyncio\n\
    async def one(i):\n    return (await mcp__m__add(a=i, b=1))['sum']\n\
    print(await asyncio.gather(*[one(i) for i in range(5)]))\n\
    try:\n    await mcp__m__fail(message='no')\n\
    except ToolError as e:\n    print(e, tool_error(e)['kind'])\n\
    emit({'big': 2 ** 70})\n";

fn a_program_runs_in_every_tier_and_its_record_names_the_engine() -> TestResult {
    let worker = worker()?;
    let mut tiers = 0;
    for tier in ["full", "landlock", "none"] {
        let (home, daemon, mut client) = party(&plan(&worker).set("execution.sandbox", tier));
        if daemon.status().programs.refusal.is_some() {
            continue;
        }
        tiers += 1;
        let ran = run(&mut client, PROGRAM);
        let form = &ran.structured;
        assert_eq!(form["ok"], true, "{tier}: {}", ran.text);
        assert_eq!(form["confinement"], tier);
        let output = form["output"].as_str().expect("its output");
        assert!(output.starts_with("[1, 2, 3, 4, 5]\n"), "{output}");
        assert!(output.ends_with(" tool_failed\n"), "{output}");
        assert_eq!(
            form["result"].to_string(),
            "{\"big\":1180591620717411303424}"
        );
        assert_eq!(form["tool_calls"].as_array().map(Vec::len), Some(6));
        let record = record(&home, &ran).to_string();
        assert!(record.contains("\"engine\":\"monty\""), "{record}");
        assert!(record.contains("\"python\":\"monty 1."), "{record}");
        let engines = daemon.status().programs.engines;
        assert_eq!(engines[0].unavailable, None);
    }
    assert!(tiers > 0);
    Ok(())
}

/// What the engine does otherwise, by the folder of `tests/programs`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    why: String,
    /// What the answer says instead.
    says: String,
}

fn the_programs_of_the_other_engine_run_here_or_the_list_says_why_not() -> TestResult {
    let list = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../engines/monty/tests/differences.json"
    );
    let mut known: BTreeMap<String, Difference> =
        serde_json::from_str(&std::fs::read_to_string(list)?)?;
    let (_home, _daemon, mut client) = party(&plan(&worker()?).set("execution.timeout_seconds", 5));
    let mut faults = Vec::new();
    let mut names: Vec<PathBuf> = std::fs::read_dir(data("programs"))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    names.sort();
    for folder in names {
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let code = std::fs::read_to_string(folder.join("program.py"))?;
        let expected: Expected =
            serde_json::from_str(&std::fs::read_to_string(folder.join("expected.json"))?)?;
        let ran = run(&mut client, &code);
        let differs = differs(&ran, &expected);
        match (differs, known.remove(&name)) {
            (None, None) => {}
            (None, Some(_)) => faults.push(format!(
                "{name}: is as in the other engine, and in the list"
            )),
            (Some(how), None) => faults.push(format!("{name}: {how}")),
            (Some(_), Some(difference)) => {
                assert!(!difference.why.is_empty());
                if !ran.text.contains(&difference.says) {
                    faults.push(format!(
                        "{name}: does not say {:?}: {}",
                        difference.says, ran.text
                    ));
                }
            }
        }
    }
    faults.extend(
        known
            .into_keys()
            .map(|name| format!("{name}: no such program")),
    );
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    Ok(())
}

fn limits_end_a_program_and_nothing_else() -> TestResult {
    let plan = plan(&worker()?)
        .set("execution.timeout_seconds", 1)
        .set("execution.memory_bytes", 128 * 1024 * 1024);
    let (_home, _daemon, mut client) = party(&plan);
    let cases = [
        (
            "def spin():\n    while True: pass\nprint('on')\nspin()",
            "timed_out",
            "timed out after 1 s at line 2 in spin",
        ),
        (
            "import asyncio\nawait asyncio.sleep(60)",
            "timed_out",
            "timed out after 1 s at line 2",
        ),
        (
            "x = 3**100000\nwhile True: x = x * x",
            "timed_out",
            "timed out after 1 s",
        ),
        (
            "x = []\nwhile True: x.append('a' * 100000)",
            "script_error",
            "MemoryError",
        ),
        (
            "x = ('a,' * (2 * 10**7)).split(',')",
            "script_error",
            "MemoryError",
        ),
        ("def f(): return f()\nf()", "script_error", "RecursionError"),
    ];
    for (code, ending, says) in cases {
        let ran = run(&mut client, code);
        assert!(ran.text.contains(says), "{code}: {}", ran.text);
        assert_eq!(ran.structured["ending"], ending, "{code}: {}", ran.text);
        if says == "MemoryError" {
            assert_eq!(ran.structured["limit"], "memory_bytes");
        }
    }
    assert_eq!(run(&mut client, "print(1)").structured["output"], "1\n");
    assert_eq!(client.run("print(2)").structured["output"], "2\n");
    Ok(())
}

/// A program of the worker's own list, and how it may end.
#[derive(Debug, Deserialize)]
struct Hostile {
    name: String,
    program: String,
    ends: Vec<String>,
}

/// Of the worker's own list one in so many; all of it where `HOSTILE` is `all`, as `engines/monty/check` wants it.
const ONE_IN: usize = 4;
const INNOCENT: &str = "print((await mcp__m__add(a=1, b=2))['sum'])";

/// How a run ended, in the words of the list; an error of the program is named by its class.
fn end_of(run: &Run) -> String {
    let form = &run.structured;
    let known = match (form["ending"].as_str(), form["limit"].as_str()) {
        (Some("finished"), _) => "fine",
        (Some("timed_out"), _) => "time",
        (Some("script_error"), Some("memory_bytes")) => "memory",
        (Some("script_error"), None) => {
            let error = form["error"].as_str().unwrap_or_default();
            let first = error.lines().next().unwrap_or_default();
            return first.split(':').next().unwrap_or_default().to_owned();
        }
        _ => "otherwise",
    };
    known.to_owned()
}

fn a_hostile_program_ends_and_others_run_on() -> TestResult {
    let list = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../engines/monty/tests/hostile.json"
    );
    let programs: Vec<Hostile> = serde_json::from_str(&std::fs::read_to_string(list)?)?;
    let all = std::env::var("HOSTILE").is_ok_and(|which| which == "all");
    let plan = plan(&worker()?)
        .set("execution.timeout_seconds", 2)
        .set("execution.memory_bytes", 96 * 1024 * 1024)
        .set("execution.pool.warm", 1);
    let (home, daemon, mut client) = party(&plan);
    let mut other = home.client();
    let (pid, mut ends) = (daemon.status().pid, BTreeMap::<String, usize>::new());
    assert_eq!(run(&mut other, INNOCENT).printed(), "3");
    for one in programs.iter().step_by(if all { 1 } else { ONE_IN }) {
        let arguments = json!({"code": one.program, "engine": "monty"});
        let params = json!({"name": "execute_program", "arguments": arguments});
        let id = client.request("tools/call", &params);
        // Beside it; what is run after one is what is run before the next.
        let beside = run(&mut other, INNOCENT);
        assert_eq!(beside.printed(), "3", "{}: {}", one.name, beside.text);
        let ran = client.finish_run(&id);
        let end = end_of(&ran);
        // Where the machine is slow the clock may be first.
        let error = ran.structured["error"].as_str().unwrap_or_default();
        let raises = |class: &String| end != "otherwise" && error.contains(class.as_str());
        let known = end == "time" || one.ends.contains(&end) || one.ends.iter().any(raises);
        assert!(known, "{}: {end}: {}", one.name, ran.text);
        let after = run(&mut other, INNOCENT);
        assert_eq!(after.printed(), "3", "{}: {}", one.name, after.text);
        *ends.entry(end).or_default() += 1;
    }
    assert_eq!(run(&mut client, "print(1)").printed(), "1");
    assert_eq!(other.run(INNOCENT).printed(), "3");
    let status = daemon.status();
    assert_eq!(status.pid, pid);
    assert_eq!(status.programs.engines[0].unavailable, None);
    if all {
        let mut out = std::io::stdout();
        writeln!(
            out,
            "hostile programs through the daemon, by their ends: {ends:?}"
        )?;
    }
    Ok(())
}

const POLICIES: &str = r#"
    permit(principal, action, resource);
    @id("not-here")
    forbid(principal, action, resource == Tool::"m/echo") when { context.program.engine == "monty" };
"#;

fn policies_and_people_judge_its_calls_and_a_replay_repeats_what_they_said() -> TestResult {
    let plan = plan(&worker()?)
        .set("policy.ask", json!(["mcp__m__add"]))
        .set("policy.approval", "local")
        .set("journal.record", "full")
        .set("execution.timeout_seconds", 3);
    let home = Home::new(&plan);
    let file = home.write("policy.cedar", POLICIES);
    home.write_config(
        &plan
            .set("policy.cedar", file.to_string_lossy().as_ref())
            .text(),
    );
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let mut client = home.client();
    let echo = client.run("print(await mcp__m__echo(word='x'))");
    assert_eq!(echo.structured["ok"], true, "{}", echo.text);

    let code = "try:\n    await mcp__m__echo(word='x')\nexcept ToolError as e:\n    print(tool_error(e)['kind'], e)\n\
        print((await mcp__m__add(a=1, b=2))['sum'])\n";
    let params = json!({"name": "execute_program", "arguments": {"code": code, "engine": "monty"}});
    let id = client.request("tools/call", &params);
    let waiting = eventually("a call waits", PATIENCE, || {
        let (_, out, _) = home.ctl(&["--json", "approvals"]);
        let list: WaitingList = serde_json::from_str(&out).ok()?;
        list.waiting.into_iter().next()
    });
    assert_eq!(waiting.tool, "mcp__m__add");
    // What takes as long as any program may: the clock of the one that waits stands still.
    let slow = home.client().run("import time\ntime.sleep(60)");
    assert_eq!(slow.structured["ending"], "timed_out", "{}", slow.text);
    let path = format!("/v1/approvals/answer?id={}&answer=once", waiting.id);
    let answer = ptc_tests::http::ask(daemon.socket(), "POST", &path)?;
    assert_eq!(answer.status, 200);
    let ran = client.finish_run(&id);
    assert_eq!(
        ran.printed(),
        "denied 'mcp__m__echo' was denied: policy \"not-here\" forbids this call\n3",
        "{}",
        ran.text
    );
    let record = record(&home, &ran);
    let decisions: Vec<&str> = record["calls"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|call| call["decision"]["verdict"].as_str())
        .collect();
    assert_eq!(decisions, ["deny", "ask"], "{record}");
    let (_, out, err) = home.ctl(&[
        "--json",
        "replay",
        ran.structured["run"].as_str().unwrap_or_default(),
    ]);
    let said: Value =
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
    assert_eq!(said["verdict"], "same", "{said}");
    Ok(())
}

fn a_call_never_awaited_is_cancelled_and_named() -> TestResult {
    let (home, _daemon, mut client) = party(&plan(&worker()?));
    let ran = run(&mut client, "mcp__m__sleep(ms=60000)\nprint('over')");
    assert_eq!(ran.structured["ok"], true, "{}", ran.text);
    assert!(
        ran.text.contains(
            "mcp__m__sleep(...) was never awaited: it was cancelled at the end and may have acted; write await mcp__m__sleep(...)"
        ),
        "{}",
        ran.text
    );
    let call = &ran.structured["tool_calls"][0];
    assert_eq!(
        (&call["tool"], &call["ok"]),
        (&json!("mcp__m__sleep"), &json!(false))
    );
    let record = record(&home, &ran).to_string();
    assert!(record.contains("mcp__m__sleep"), "{record}");
    Ok(())
}

fn a_run_is_repeated_in_the_engine_it_ran_in() -> TestResult {
    let plan = plan(&worker()?).set("journal.record", "full");
    let (home, _daemon, mut client) = party(&plan);
    let code = format!("import random\nprint(random.random())\n{PROGRAM}");
    let ran = run(&mut client, &code);
    assert_eq!(ran.structured["ok"], true, "{}", ran.text);
    let id = ran.structured["run"].as_str().expect("a run's id");
    let (_, out, err) = home.ctl(&["--json", "replay", id]);
    let said: Value =
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
    assert_eq!(said["verdict"], "same", "{said}");
    Ok(())
}

fn the_command_line_names_an_engine() -> TestResult {
    let (home, _daemon, _client) = party(&plan(&worker()?));
    let file = home.path("program.py");
    std::fs::write(&file, "print(hasattr(1, 'bit_length'))\n")?;
    let file = file.display().to_string();
    // What tells the engines apart: only one has this method.
    let (_, out, err) = home.ctl(&["run", "--engine", "monty", &file]);
    assert_eq!(out, "False\n", "{err}");
    let (_, out, _) = home.ctl(&["run", &file]);
    assert_eq!(out, "True\n");
    Ok(())
}
