//! A program that writes to its tool channel itself gains nothing: it can ask what any program may ask, or end itself.

use libtest_mimic::Trial;
use ptc_tests::wait::until;
use ptc_tests::{Client, Daemon, PATIENCE, Plan, Run, TestResult, party};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_call_written_by_hand_is_a_call_like_any_other,
        what_is_no_frame_ends_the_run_and_no_other,
        noise_on_every_descriptor_ends_the_run_at_most,
        half_a_frame_is_waited_for_until_the_time_limit,
        an_end_written_by_hand_is_the_end,
        a_tool_that_is_not_allowed_is_refused_and_recorded,
        a_name_that_no_tool_has_is_refused,
        calls_that_nobody_waits_for_fill_no_memory,
        a_channel_that_is_put_elsewhere_is_named,
        a_descriptor_beside_a_frame_arrives_nowhere,
    ]
}

/// What a program needs to speak for itself.
const BY_HAND: &str = "import json, os, struct\n\
    def frame(kind, body):\n\
    \x20   data = body if isinstance(body, bytes) else json.dumps(body).encode()\n\
    \x20   return struct.pack('<IB', len(data) + 1, ord(kind)) + data\n\
    def send(data):\n\
    \x20   os.set_blocking(3, True)\n\
    \x20   while data: data = data[os.write(3, data):]\n\
    def some(n):\n\
    \x20   data = b''\n\
    \x20   while len(data) < n: data += os.read(3, n - len(data))\n\
    \x20   return data\n\
    def take():\n\
    \x20   size, kind = struct.unpack('<IB', some(5)); return chr(kind), json.loads(some(size - 1))\n\
    def call(number, tool, **arguments):\n\
    \x20   send(frame('C', {'id': number, 'tool': tool, 'arguments': arguments}))\n";

fn by_hand(client: &mut Client, program: &str) -> Run {
    client.run(&format!("{BY_HAND}{program}"))
}

#[track_caller]
fn alive(client: &mut Client) {
    let run = client.run("print(await mcp__m__add(a=1, b=1))");
    assert_eq!(run.printed(), "{'sum': 2}");
}

/// How many calls have reached the server, this one included.
fn reached(client: &mut Client) -> u64 {
    let run = client.run("emit((await mcp__m__stats())['tools/call'])");
    run.structured["result"].as_u64().unwrap_or_default()
}

fn a_call_written_by_hand_is_a_call_like_any_other() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = by_hand(
        &mut client,
        "call(1000, 'mcp__m__add', a=1, b=2)\nkind, answer = take()\nprint(kind, answer['id'], answer['value'])",
    );
    assert_eq!(run.printed(), "r 1000 {'sum': 3}");
    let call = &run.structured["tool_calls"][0];
    assert_eq!(
        (&call["tool"], &call["ok"]),
        (&json!("mcp__m__add"), &json!(true))
    );
    Ok(())
}

fn what_is_no_frame_ends_the_run_and_no_other() -> TestResult {
    let (home, _daemon, mut client) = party(Plan::new());
    let mut other = home.client();
    let honest = other.start_run("await mcp__m__sleep(ms=3000)\nprint('honest')");
    for forged in [
        "send(b'\\xff' * 64)",
        "send(struct.pack('<I', 0))",
        "send(struct.pack('<IB', 2 ** 31, ord('C')))",
        "send(struct.pack('<IB', 5 * 2 ** 20, ord('C')) + bytes(5 * 2 ** 20))",
        "send(struct.pack('<IB', 2 ** 20, ord('Q')))",
        "send(frame('Z', {}))",
        "send(frame('R', {}))",
        "send(frame('r', {'id': 1, 'ok': True, 'value': 1}))",
        "send(frame('X', {}))",
        "send(frame('C', b'{'))",
        "send(frame('C', b'{\"id\": 7, \"tool\": \"\\xff\", \"arguments\": {}}'))",
        "send(frame('C', b'{\"id\": 7, \"tool\": \"x\", \"arguments\": ' + b'[' * 10000 + b']' * 10000 + b'}'))",
        "send(frame('C', {'tool': 'x', 'arguments': {}}))",
        "send(frame('C', {'id': -1, 'tool': 'x', 'arguments': {}}))",
        "send(frame('C', {'id': 2 ** 64, 'tool': 'x', 'arguments': {}}))",
        "send(frame('C', {'id': 0, 'tool': 'x', 'arguments': {}}))",
        "call(9, 'mcp__m__add', a=1, b=1); take(); call(9, 'mcp__m__add', a=1, b=1)",
        "call(9, 'mcp__m__add', a=1, b=1); take(); call(8, 'mcp__m__add', a=1, b=1)",
        "send(frame('H', {'protocol': 1, 'python': '3.11.2'}))",
        "send(frame('W', {'places': []}))",
        "send(frame('O', {'stream': 'neither', 'text': 'x'}))",
        "send(frame('D', {}))",
    ] {
        let run = by_hand(
            &mut client,
            &format!("print('before', flush=True)\n{forged}\nimport time; time.sleep(20)"),
        );
        let error = run.structured["error"].as_str().unwrap_or_default();
        assert!(
            error.contains("corrupted its tool channel"),
            "{forged}: {}",
            run.text
        );
        assert_eq!(
            (&run.structured["ending"], &run.structured["output"]),
            (&json!("killed"), &json!("before\n")),
            "{forged}"
        );
    }
    assert_eq!(other.finish_run(&honest).printed(), "honest");
    alive(&mut client);
    Ok(())
}

fn noise_on_every_descriptor_ends_the_run_at_most() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = by_hand(
        &mut client,
        "written = 0\nfor n in range(1024):\n    try: os.write(n, b'\\xfe' * 99); written += 1\n    except OSError: pass\n\
         import time; time.sleep(20)",
    );
    let error = run.structured["error"].as_str().unwrap_or_default();
    assert!(error.contains("corrupted its tool channel"), "{}", run.text);
    alive(&mut client);
    Ok(())
}

fn half_a_frame_is_waited_for_until_the_time_limit() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new().set("execution.timeout_seconds", 1));
    for half in [
        "struct.pack('<I', 40)",
        "frame('E', {'value': 1})[:-1]",
        "b'\\x01'",
    ] {
        let run = by_hand(
            &mut client,
            &format!("send({half})\nimport time; time.sleep(600)"),
        );
        assert_eq!(
            run.structured["ending"], "timed_out",
            "{half}: {}",
            run.text
        );
    }
    let run = by_hand(
        &mut client,
        "send(frame('E', {'value': 1})[:-1])\nos._exit(3)",
    );
    assert_eq!(run.structured["ending"], "killed", "{}", run.text);
    alive(&mut client);
    Ok(())
}

fn an_end_written_by_hand_is_the_end() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    // What a run without forging ends with, seen from inside, is the form to be forged.
    let before = reached(&mut client);
    let run = by_hand(
        &mut client,
        "send(frame('E', {'value': {'mine': 1}}) + frame('D', {'ok': True, 'unsent_output_bytes': 0}) + frame('E', {'value': {'mine': 2}})\
         + frame('C', {'id': 5000, 'tool': 'mcp__m__add', 'arguments': {'a': 1, 'b': 1}}))\nimport time; time.sleep(20)",
    );
    assert_eq!(
        (run.is_error, &run.structured["result"]),
        (false, &json!({"mine": 1})),
        "{}",
        run.text
    );
    assert_eq!(
        run.structured["tool_calls"].as_array().map_or(0, Vec::len),
        0,
        "{}",
        run.structured
    );
    assert_eq!(
        reached(&mut client) - before,
        1,
        "a call after the end reached a server"
    );
    Ok(())
}

fn a_tool_that_is_not_allowed_is_refused_and_recorded() -> TestResult {
    let (_home, _daemon, mut client) = party(
        Plan::new()
            .set("execution.max_tool_calls", 3)
            .set("tools.block", json!(["mcp__m__echo"])),
    );
    let before = reached(&mut client);
    let run = by_hand(
        &mut client,
        "kinds = []\nfor number in range(100, 105):\n    call(number, 'mcp__m__echo', x=1); kinds.append(take()[1]['error']['kind'])\nprint(kinds)",
    );
    let kinds = run.printed().to_owned();
    assert!(kinds.contains("budget_exhausted"), "{kinds}");
    let calls = run.structured["tool_calls"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(calls.len(), 5, "{}", run.structured);
    assert!(
        calls
            .iter()
            .all(|call| call["ok"] == json!(false) && call["tool"] == "mcp__m__echo")
    );
    assert_eq!(
        reached(&mut client) - before,
        1,
        "a refused call reached the server"
    );
    Ok(())
}

fn a_name_that_no_tool_has_is_refused() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    for name in [
        "'mcp__m__add\\n'",
        "'mcp__m__add\\0'",
        "'x' * 2 ** 20",
        "''",
        "'../mcp__m__add'",
        "'m/add'",
    ] {
        let run = by_hand(
            &mut client,
            &format!("call(7, {name}, a=1, b=1)\nanswer = take()[1]\nprint(answer['ok'])"),
        );
        assert_eq!(run.printed(), "False", "{name}");
        assert!(run.text.len() < 4000, "{name}: {} bytes", run.text.len());
    }
    alive(&mut client);
    Ok(())
}

/// Resident memory of a process, in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}

fn calls_that_nobody_waits_for_fill_no_memory() -> TestResult {
    if !cfg!(target_os = "linux") {
        return ptc_tests::suite::skip("resident memory is read from /proc");
    }
    let (_home, daemon, mut client) = party(Plan::new().set("execution.timeout_seconds", 2));
    alive(&mut client);
    let before = resident(daemon.pid());
    let run = by_hand(
        &mut client,
        "n = 0\nwhile True: n += 1; call(n, 'mcp__m__echo', x='y' * 100000)",
    );
    assert_eq!(run.structured["ending"], "timed_out", "{}", run.text);
    let after = resident(daemon.pid());
    assert!(
        after < before + (128 << 10),
        "{before} KiB, then {after} KiB"
    );
    until("the worker is gone", PATIENCE, || {
        daemon.status().programs.pool.busy == 0
    });
    alive(&mut client);
    Ok(())
}

fn a_channel_that_is_put_elsewhere_is_named() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    for away in [
        "os.dup2(os.open('/dev/null', os.O_RDWR), 3)",
        "import socket; socket.socket(fileno=os.dup(3)).shutdown(2)",
    ] {
        let run = by_hand(
            &mut client,
            &format!("print('before', flush=True)\n{away}\nprint(await mcp__m__add(a=1, b=1))"),
        );
        assert_eq!(run.structured["ending"], "killed", "{away}: {}", run.text);
        assert_eq!(run.structured["output"], "before\n");
    }
    alive(&mut client);
    Ok(())
}

fn a_descriptor_beside_a_frame_arrives_nowhere() -> TestResult {
    let program = "import socket\ntry:\n    socket.send_fds(socket.socket(fileno=os.dup(3)), [frame('E', {'value': 1})], [0])\n    print('sent')\n\
        except PermissionError: print('refused')";
    let (_home, daemon, mut client) = party(Plan::new().set("execution.sandbox", "none"));
    let count = |daemon: &Daemon| {
        std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).map_or(0, Iterator::count)
    };
    alive(&mut client);
    let before = count(&daemon);
    for _ in 0..20 {
        let run = by_hand(&mut client, program);
        assert!(run.printed().starts_with("sent\n"), "{}", run.text);
    }
    until("no descriptor stays", PATIENCE, || {
        // Twenty would be left; each warm worker has a few of its own.
        count(&daemon) <= before + 16
    });
    if ptc_tests::machine::tier().is_ok() {
        let (_home, _daemon, mut client) = party(Plan::new());
        let run = by_hand(&mut client, program);
        assert_eq!(run.printed(), "refused");
    }
    Ok(())
}
