//! A program may change the Python it runs in as it likes: it finds nothing there, and only its own run is changed.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::{Client, Daemon, Home, Plan, TestResult};
use serde_json::json;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        nothing_secret_lies_in_the_memory_of_a_worker,
        the_next_run_sees_nothing_of_the_last,
        limits_hold_whatever_watches_the_program,
        crashes_are_named,
        bytecode_of_rubbish_harms_its_own_run_only,
        what_is_made_of_nothing_else_ends_in_an_error,
        hashes_differ_between_runs,
        a_flood_of_output_is_cut_and_the_run_goes_on,
        honest_runs_end_beside_bombs,
    ]
}

fn party(plan: &Plan) -> (Home, Daemon, Client) {
    let home = Home::new(plan);
    let daemon = home.daemon();
    for server in daemon.status().servers {
        daemon.wait_for(&server.name, ServerState::Ready);
    }
    let client = home.client();
    (home, daemon, client)
}

/// Gathers every text that can be reached: by the collector, by frames, by modules.
const SEARCH: &str = "import gc, sys, types\n\
    def texts():\n\
    \x20   seen, todo, found = set(), [sys.modules, sys._getframe()] + gc.get_objects(), []\n\
    \x20   while todo:\n\
    \x20       one = todo.pop()\n\
    \x20       if id(one) in seen: continue\n\
    \x20       seen.add(id(one))\n\
    \x20       if isinstance(one, str): found.append(one)\n\
    \x20       elif isinstance(one, (bytes, bytearray)): found.append(bytes(one).decode('latin-1'))\n\
    \x20       elif isinstance(one, types.FrameType): todo += [one.f_back, one.f_locals, one.f_globals]\n\
    \x20       todo += gc.get_referents(one)\n\
    \x20   return found\n";

fn nothing_secret_lies_in_the_memory_of_a_worker() -> TestResult {
    let plan = Plan::new()
        .entry(json!({
            "name": "m", "transport": "stdio", "command": ptc_tests::programs::program("mock-mcp"),
            "env": {"PTC_TEST_TOKEN": "a-token-of-the-server-0123456789"},
        }))
        .set("tools.block", json!(["mcp__m__stats"]));
    let (home, _daemon, mut client) = party(&plan);
    // Halves are put together in Rust only, so that the program does not hold what it looks for.
    let run = client.run(&format!(
        "{SEARCH}mark = ''.join(['find', 'me'])\nall = texts()\n\
         look = lambda *parts: any(''.join(parts) in text for text in all if len(text) < 10 ** 6)\n\
         print(look('find', 'me'), look('mcp__m__', 'echo'), look('a-token-of-', 'the-server'), look('PTC_TEST', '_TOKEN'), \
         look('mcp__m__', 'stats'), look({:?}, {:?}), look('config', '.yaml'))",
        home.path("").to_str().unwrap_or_default().split_at(6).0,
        home.path("").to_str().unwrap_or_default().split_at(6).1,
    ));
    // It finds what it made and the tool it may call, and nothing of the rest.
    assert_eq!(run.printed(), "True True False False False False False");
    Ok(())
}

fn the_next_run_sees_nothing_of_the_last() -> TestResult {
    let (_home, _daemon, mut client) = party(&Plan::new());
    let look = "import builtins, json, os, random, signal, sys\n\
        print(hasattr(json, 'mark'), os.environ.get('MARK'), os.getcwd() == start, os.umask(0o77) == 0o77, \
        signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL, getattr(builtins, 'mark', None), 'mark' in sys.path, \
        len(sys.meta_path), os.path.exists('mark'), sys.getrecursionlimit(), sys.gettrace(), len(json.dumps([1])))";
    let start = "import os; start = os.getcwd()\n";
    let mark = "import builtins, json, os, signal, sys\n\
        json.mark = builtins.mark = 1; os.environ['MARK'] = '1'; open('mark', 'w').close(); os.mkdir('d'); os.chdir('d'); os.umask(0)\n\
        signal.signal(signal.SIGUSR2, signal.SIG_IGN); sys.path.append('mark'); sys.meta_path.append(None); sys.setrecursionlimit(77)\n\
        json.dumps = lambda *a: ''\n";
    let fresh = client.run(&format!("{start}{look}")).printed().to_owned();
    let marked = client
        .run(&format!("{start}{mark}{look}"))
        .printed()
        .to_owned();
    assert_ne!(fresh, marked, "the marks do not show");
    for _ in 0..4 {
        assert_eq!(client.run(&format!("{start}{look}")).printed(), fresh);
    }
    Ok(())
}

fn limits_hold_whatever_watches_the_program() -> TestResult {
    let (_home, _daemon, mut client) = party(
        &Plan::new()
            .set("execution.timeout_seconds", 1)
            .set("execution.pool.max", 5),
    );
    let watches = [
        "import sys; sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)",
        "import sys; sys.addaudithook(lambda *a: None)",
        "import faulthandler; faulthandler.disable(); faulthandler.cancel_dump_traceback_later()",
        "import threading; threading.settrace(lambda *a: None)",
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass",
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
        "import sys; sys.modules.clear()",
        "import asyncio; asyncio.get_running_loop().stop = None; asyncio.run = asyncio.sleep = None",
        "import gc; gc.disable(); import sys; sys.setswitchinterval(1000)",
    ];
    let start = Instant::now();
    let runs = watches.map(|watch| client.start_run(&format!("{watch}\nwhile True: pass")));
    for (watch, run) in watches.iter().zip(&runs) {
        let run = client.finish_run(run);
        assert_eq!(
            run.structured["ending"], "timed_out",
            "{watch}: {}",
            run.text
        );
    }
    assert!(
        start.elapsed() < Duration::from_mins(1),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(client.run("print('alive')").printed(), "alive");
    Ok(())
}

fn crashes_are_named() -> TestResult {
    let (_home, _daemon, mut client) = party(&Plan::new());
    for crash in [
        "import ctypes; ctypes.string_at(0)",
        "import ctypes; ctypes.memset(id(None), 255, 64)",
        "import os; os.abort()",
        "import faulthandler; faulthandler._sigsegv()",
    ] {
        let run = client.run(&format!(
            "print('before', flush=True)\n{crash}\nimport os; x = [None] * 9; os._exit(9)"
        ));
        assert!(run.is_error, "{crash}: {}", run.text);
        let error = run.structured["error"].as_str().unwrap_or_default();
        assert!(
            error.starts_with("crashed")
                || error.contains("SIG")
                || error.contains("exited with code"),
            "{crash}: {error}"
        );
        assert_eq!(run.structured["output"], "before\n", "{crash}");
    }
    assert_eq!(client.run("print('alive')").printed(), "alive");
    Ok(())
}

/// What rubbish in place of bytecode does is nowhere defined: a signal, an exception, or nothing before the exit.
fn bytecode_of_rubbish_harms_its_own_run_only() -> TestResult {
    let (_home, _daemon, mut client) = party(&Plan::new().set("execution.timeout_seconds", 20));
    for code in [r"b'\x64\xff' * 64", r"b'\xff' * 64", "bytes(range(128))"] {
        let run = client.run(&format!(
            "import os, types\nprint('before', flush=True)\n\
             try: types.FunctionType((lambda: 0).__code__.replace(co_code={code}, co_stacksize=0), {{}})()\n\
             finally: os._exit(9)"
        ));
        assert!(run.is_error, "{code}: {}", run.text);
        assert!(
            run.structured["output"]
                .as_str()
                .is_some_and(|output| output.starts_with("before\n")),
            "{code}: {}",
            run.text
        );
    }
    assert_eq!(client.run("print('alive')").printed(), "alive");
    Ok(())
}

/// Bombs of memory and of depth: an exception or a named end, soon.
const BOMBS: [&str; 9] = [
    "import zlib; b = zlib.compress(bytes(1 << 24)); c = zlib.decompressobj(); x = [zlib.decompress(b) for _ in range(999)]",
    "import bz2; b = bz2.compress(bytes(1 << 22)); x = [bz2.decompress(b) for _ in range(9999)]",
    "import io, zipfile\nf = io.BytesIO()\nwith zipfile.ZipFile(f, 'w', zipfile.ZIP_DEFLATED) as z: z.writestr('a', bytes(1 << 26))\nx = [zipfile.ZipFile(f).read('a') for _ in range(99)]",
    "x = 'x'\nwhile True: x += x",
    "x = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)",
    "eval('(' * 10 ** 5 + ')' * 10 ** 5)",
    "import json; json.loads('[' * 10 ** 6)",
    "x = {}\nwhile True: x[len(x)] = bytearray(4096)",
    "import itertools; list(itertools.product(range(99), repeat=9))",
];

fn what_is_made_of_nothing_else_ends_in_an_error() -> TestResult {
    let (_home, _daemon, mut client) = party(
        &Plan::new()
            .set("execution.memory_bytes", 128 << 20)
            .set("execution.timeout_seconds", 20),
    );
    for bomb in BOMBS {
        let run = client.run(&format!("print('before', flush=True)\n{bomb}"));
        assert!(run.is_error, "{bomb}: {}", run.text);
        assert_ne!(
            run.structured["ending"], "timed_out",
            "{bomb}: {}",
            run.text
        );
        assert_eq!(run.structured["output"], "before\n", "{bomb}");
    }
    assert_eq!(client.run("print('alive')").printed(), "alive");
    Ok(())
}

fn hashes_differ_between_runs() -> TestResult {
    let (_home, _daemon, mut client) = party(&Plan::new());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        seen.insert(
            client
                .run("print(hash('x'), id(object()))")
                .printed()
                .to_owned(),
        );
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    Ok(())
}

fn a_flood_of_output_is_cut_and_the_run_goes_on() -> TestResult {
    let (_home, _daemon, mut client) = party(&Plan::new().set("execution.timeout_seconds", 60));
    for stream in ["sys.stdout", "sys.stderr", "sys.__stdout__"] {
        let run = client.run(&format!(
            "import sys\nfor _ in range(40): print('x' * 999_999, file={stream} or sys.stdout)\nemit('end')"
        ));
        assert!(
            !run.is_error,
            "{stream}: {}",
            &run.text[..200.min(run.text.len())]
        );
        assert_eq!(run.structured["result"], "end");
        assert!(run.text.len() < 200_000);
    }
    Ok(())
}

fn honest_runs_end_beside_bombs() -> TestResult {
    let plan = Plan::new()
        .set("execution.pool.max", 4)
        .set("execution.memory_bytes", 128 << 20)
        .set("execution.timeout_seconds", 30);
    let (home, _daemon, mut client) = party(&plan);
    let mut bombs: Vec<(Client, serde_json::Value)> = (0..3)
        .map(|_| {
            let mut client = home.client();
            let run = client.start_run(
                "x = 'x'\nwhile True:\n    try: x += x\n    except MemoryError: x = 'x'",
            );
            (client, run)
        })
        .collect();
    for n in 0..3 {
        assert_eq!(client.run(&format!("print({n})")).printed(), n.to_string());
    }
    for (client, run) in &mut bombs {
        assert!(!client.has_answer(run), "a bomb had ended already");
        client.cancel(run);
    }
    Ok(())
}
