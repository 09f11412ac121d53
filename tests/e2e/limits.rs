//! Limits of a program: what it printed and emitted before stays, and the answer names limit and line.

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::process::{Process, needs_proc};
use ptc_tests::wait::until;
use ptc_tests::{Client, Daemon, Home, PATIENCE, Plan, TestResult, pythons};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        output_is_cut_on_a_character_border_at_every_limit_near_64_kib,
        a_time_limit_names_the_line_whatever_the_program_is_at,
        a_program_that_hides_its_line_is_ended_all_the_same,
        a_generator_that_is_just_being_made_is_timed_out_all_the_same,
        a_limit_of_memory_is_named_where_it_ended_the_program,
        what_python_cannot_parse_is_no_limit_of_memory,
        a_kill_from_outside_names_no_limit,
        a_busy_program_holds_no_other_up_and_leaves_no_worker,
        what_was_emitted_before_a_hard_end_is_there,
        a_recursion_past_every_bound_ends_and_keeps_the_output,
        code_that_is_missing_or_no_text_is_refused,
        a_closed_tool_channel_is_named,
    ]
}

fn party(plan: &Plan) -> (Home, Daemon, Client) {
    let home = Home::new(plan);
    let daemon = home.daemon();
    let client = home.client();
    (home, daemon, client)
}

fn output_is_cut_on_a_character_border_at_every_limit_near_64_kib() -> TestResult {
    let plan = |limit: usize| {
        Plan::new()
            .server("m", &[])
            .set("execution.max_output_bytes", limit)
    };
    let (home, daemon, mut client) = party(&plan(65_530));
    daemon.wait_for("m", ServerState::Ready);
    for limit in 65_530..=65_540 {
        home.write_config(&plan(limit).text());
        let (code, _, err) = home.ctl(&["reload"]);
        assert_eq!(code, 0, "{err}");
        for (unit, bytes) in [("\u{1f980}", 4), ("\u{20ac}", 3), ("\u{e9}", 2), ("x", 1)] {
            let run = client.run(&format!(
                "for _ in range(7): print('{unit}' * 20000, end='')"
            ));
            assert!(!run.is_error, "{}", run.text);
            let output = run.structured["output"].as_str().unwrap_or_default();
            let kept = output.chars().take_while(|c| unit.starts_with(*c)).count();
            assert_eq!(kept, limit / bytes, "{unit} at {limit}");
            let size = format!("{} of {} bytes shown", kept * bytes, 140_000 * bytes);
            assert!(
                output.contains(&size),
                "{size}: {}",
                &output[kept * bytes..]
            );
        }
        let exact = client.run(&format!("print('x' * {limit}, end='')"));
        assert_eq!(
            exact.structured["output"].as_str().map(str::len),
            Some(limit)
        );
    }
    Ok(())
}

fn a_time_limit_names_the_line_whatever_the_program_is_at() -> TestResult {
    let plan = Plan::new().set("execution.timeout_seconds", 2);
    let (_home, _daemon, mut client) = party(&plan);
    for (program, place) in [
        (
            "import time\nwhile True:\n    try: time.sleep(600)\n    except BaseException: pass",
            "line 3",
        ),
        (
            "import time\ndef rest():\n    time.sleep(600)\nrest()",
            "line 3 in rest",
        ),
        // A frame that is just being made would do here as well, but Python 3.13 may crash while it shows one.
        (
            "def spin():\n    while True: pass\nspin()",
            "line 2 in spin",
        ),
        ("n = 1\nn = 7 ** (10 ** 9)", "line 2"),
        ("import re\n\nre.search('(x+x+)+y', 'x' * 60)", "line 3"),
        ("import threading\nthreading.Event().wait()", "line 2"),
        (
            "import asyncio\nasync def main():\n    await asyncio.sleep(600)\nasyncio.run(main())",
            "line 3 in main",
        ),
        (
            "import asyncio\nasync def deaf():\n    while True:\n        try:\n            await asyncio.sleep(600)\n        except BaseException: pass\nawait deaf()",
            "line 5 in deaf",
        ),
        (
            "import asyncio, time\nawait asyncio.to_thread(time.sleep, 600)",
            "line 2",
        ),
    ] {
        let run = client.run(&format!("print('begun')\n{program}"));
        let error = run.structured["error"].as_str().unwrap_or_default();
        // The line of `print` was put in front.
        let place = moved(place);
        assert!(
            error.starts_with(&format!("timed out after 2 s at {place}")),
            "{program}\n{error}"
        );
        assert_eq!(
            (
                &run.structured["ending"],
                &run.structured["limit"],
                &run.structured["output"]
            ),
            (
                &json!("timed_out"),
                &json!("timeout_seconds"),
                &json!("begun\n")
            ),
            "{program}"
        );
    }
    Ok(())
}

/// A place one line further down.
fn moved(place: &str) -> String {
    let words: Vec<String> = place
        .split(' ')
        .map(|word| {
            word.parse::<u32>()
                .map_or(word.to_owned(), |n| (n + 1).to_string())
        })
        .collect();
    words.join(" ")
}

fn a_program_that_hides_its_line_is_ended_all_the_same() -> TestResult {
    let plan = Plan::new().set("execution.timeout_seconds", 1);
    let (_home, _daemon, mut client) = party(&plan);
    let run = client.run(
        "import signal\nprint('begun')\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\nwhile True: pass",
    );
    let error = run.structured["error"].as_str().unwrap_or_default();
    assert!(
        error.starts_with("timed out after 1 s, line unknown (execution.timeout_seconds)"),
        "{error}"
    );
    assert_eq!(run.structured["output"], "begun\n");
    Ok(())
}

fn a_generator_that_is_just_being_made_is_timed_out_all_the_same() -> TestResult {
    for python in pythons::found() {
        let (path, _copy) = python.within_reach()?;
        let plan = Plan::new()
            .set("execution.timeout_seconds", 1)
            .set("execution.python", path.display().to_string());
        let (_home, _daemon, mut client) = party(&plan);
        for _ in 0..4 {
            let run = client.run("print('begun')\nwhile True:\n    any(n for n in ())");
            let error = run.structured["error"].as_str().unwrap_or_default();
            // Python 3.13 may crash while it shows a frame that is being made.
            let place = error
                .strip_prefix("timed out after 1 s")
                .unwrap_or_default();
            assert!(
                place.starts_with(" at line 3") || place.starts_with(", line unknown"),
                "3.{}: {error}",
                python.minor
            );
            let form = &run.structured;
            assert_eq!(
                (&form["ending"], &form["limit"], &form["output"]),
                (
                    &json!("timed_out"),
                    &json!("timeout_seconds"),
                    &json!("begun\n")
                ),
                "3.{}",
                python.minor
            );
        }
    }
    Ok(())
}

fn a_limit_of_memory_is_named_where_it_ended_the_program() -> TestResult {
    let plan = Plan::new().set("execution.memory_bytes", 96 << 20);
    let (_home, _daemon, mut client) = party(&plan);
    let fill = "rows = []\ntry:\n    while True:\n        rows.append(FILL)\nexcept MemoryError:\n    pass\n";
    // Large and small pieces leave different holes behind.
    for piece in ["bytearray(100_000)", "str(len(rows)) * 3", "[len(rows)]"] {
        let fill = fill.replace("FILL", piece);
        let run = client.run(&format!("print('begun')\n{fill}"));
        assert_eq!(
            (
                &run.structured["ok"],
                &run.structured["limit"],
                &run.structured["output"]
            ),
            (&json!(true), &json!(null), &json!("begun\n")),
            "{piece}: {}",
            run.text
        );
        let run = client.run(&format!(
            "print('begun')\n{fill}more = [len(rows) for n in range(10 ** 9)]"
        ));
        let error = run.structured["error"].as_str().unwrap_or_default();
        assert_eq!(
            (&run.structured["ending"], &run.structured["limit"]),
            (&json!("script_error"), &json!("memory_bytes")),
            "{piece}: {error}"
        );
        assert!(
            error.starts_with("MemoryError\n") && error.contains("memory limit 96 MiB"),
            "{piece}: {error}"
        );
        let run = client.run(&format!("{fill}raise KeyError('gone')"));
        let error = run.structured["error"].as_str().unwrap_or_default();
        // Where small pieces fill every hole, there is no room for the new error either.
        let told = error.starts_with("KeyError: 'gone'")
            || !piece.starts_with("bytearray") && error.contains("memory limit 96 MiB");
        assert!(told, "{piece}: {error}");
    }
    let run = client.run(
        "import asyncio\nasync def fill():\n    bytearray(10 ** 9)\n\
         async with asyncio.TaskGroup() as group:\n    group.create_task(fill())",
    );
    assert_eq!(run.structured["limit"], "memory_bytes", "{}", run.text);
    Ok(())
}

fn what_python_cannot_parse_is_no_limit_of_memory() -> TestResult {
    for python in pythons::found() {
        let (path, _copy) = python.within_reach()?;
        let plan = Plan::new().set("execution.python", path.display().to_string());
        let (_home, _daemon, mut client) = party(&plan);
        for (program, begins, hint) in [
            (
                format!("x = {}1", "-".repeat(50_000)),
                "SyntaxError: the program is nested deeper than Python can read",
                "write a loop",
            ),
            (
                format!("x = 1{}", "+1".repeat(100_000)),
                "SyntaxError: the program is nested deeper than Python can read",
                "write a loop",
            ),
            (
                "import ast\nast.literal_eval('-' * 50_000 + '1')".to_owned(),
                "MemoryError",
                "no limit of memory",
            ),
            (
                "eval('1' + '+1' * 100_000)".to_owned(),
                "RecursionError",
                "no limit of memory",
            ),
            (
                "import json\njson.loads('[' * 100_000)".to_owned(),
                "RecursionError",
                "the JSON is nested deeper",
            ),
        ] {
            let run = client.run(&program);
            let error = run.structured["error"].as_str().unwrap_or_default();
            let told = error.starts_with(begins)
                && error.contains(hint)
                && !error.contains("execution.memory_bytes");
            assert!(told, "3.{}: {error}", python.minor);
            assert_eq!(run.structured["limit"], json!(null), "{error}");
        }
    }
    Ok(())
}

fn a_kill_from_outside_names_no_limit() -> TestResult {
    needs_proc()?;
    let (_home, daemon, mut client) = party(&Plan::new().server("m", &[]));
    daemon.wait_for("m", ServerState::Ready);
    let marked = |mark: &str| -> Vec<_> {
        let all = daemon.tree().into_iter();
        let found = all.filter(|one| one.command_line().iter().any(|word| word == mark));
        found.collect()
    };
    for (calls, victim, part) in [
        (
            1,
            "-c",
            "killed by signal 9 (SIGKILL); no limit of execution was reached: it held at most ",
        ),
        (
            2,
            "warden",
            "killed: the process that watches over programs (ptcd warden) has ended",
        ),
    ] {
        let id = client.start_run("print('begun')\nawait mcp__m__sleep(ms=600000)");
        until("the program has called", PATIENCE, || {
            daemon.server("m").calls == calls
        });
        marked(victim).into_iter().for_each(Process::kill);
        let run = client.finish_run(&id);
        let error = run.structured["error"].as_str().unwrap_or_default();
        assert!(error.starts_with(part), "{error}");
        assert_eq!(
            (&run.structured["ending"], &run.structured["limit"]),
            (&json!("killed"), &json!(null))
        );
    }
    Ok(())
}

fn a_busy_program_holds_no_other_up_and_leaves_no_worker() -> TestResult {
    let plan = Plan::new().set("execution.timeout_seconds", 30);
    let (home, daemon, mut client) = party(&plan);
    let busy = client.start_run("while True:\n    pass");
    until("the busy program runs", PATIENCE, || {
        daemon.status().programs.pool.busy == 1
    });
    let mut other = home.client();
    for n in 0..3 {
        assert_eq!(other.run(&format!("print({n})")).printed(), n.to_string());
    }
    assert!(!client.has_answer(&busy), "the other program came after it");
    client.cancel(&busy);
    until("its worker is gone", PATIENCE, || {
        daemon.status().programs.pool.busy == 0
    });
    Ok(())
}

fn what_was_emitted_before_a_hard_end_is_there() -> TestResult {
    let plan = Plan::new().set("execution.timeout_seconds", 2);
    let (_home, _daemon, mut client) = party(&plan);
    for end in [
        "raise KeyError('x')",
        "while True: pass",
        "import os; os._exit(4)",
        "import ctypes; ctypes.string_at(0)",
        "exit('no more')",
    ] {
        let run = client.run(&format!("emit(0)\nemit({{'rows': [1, None]}})\n{end}"));
        assert!(run.is_error, "{end}");
        assert_eq!(
            (&run.structured["result"], &run.structured["emitted"]),
            (&json!({"rows": [1, Value::Null]}), &json!(true)),
            "{end}"
        );
        assert!(
            run.text
                .ends_with("\n\n--- result emitted before the error ---\n{\"rows\":[1,null]}"),
            "{}",
            run.text
        );
    }
    Ok(())
}

fn a_recursion_past_every_bound_ends_and_keeps_the_output() -> TestResult {
    let plan = Plan::new()
        .set("execution.timeout_seconds", 10)
        .set("execution.memory_bytes", 128 << 20);
    let (_home, _daemon, mut client) = party(&plan);
    let run = client.run(
        "import sys\nsys.setrecursionlimit(10**9)\ndef down(n):\n    return [down(n + 1)]\nprint('begun', flush=True)\ndown(0)",
    );
    assert!(run.is_error, "{}", run.text);
    assert_eq!(run.structured["output"], "begun\n", "{}", run.text);
    assert_eq!(client.run("print('alive')").printed(), "alive");
    Ok(())
}

fn code_that_is_missing_or_no_text_is_refused() -> TestResult {
    let (_home, _daemon, mut client) = party(&Plan::new());
    for (arguments, found) in [
        (json!({}), "nothing"),
        (json!({"code": null}), "null"),
        (json!({"code": 7}), "a number"),
        (json!({"code": ["print(1)"]}), "an array"),
    ] {
        let run = client.call("execute_program", &arguments);
        assert!(run.is_error, "{arguments}");
        assert_eq!(
            run.text,
            format!("execute_program: arguments.code: found {found}, required a string")
        );
    }
    for code in [
        "",
        "\n\n",
        "# nothing\n",
        "\u{feff}",
        "```python\n\n```",
        "    \n\t\n",
    ] {
        let run = client.call("execute_program", &json!({"code": code}));
        assert_eq!(
            run.text, "[Script executed successfully]\n(no output)",
            "{code:?}"
        );
    }
    Ok(())
}

fn a_closed_tool_channel_is_named() -> TestResult {
    let (_home, _daemon, mut client) = party(&Plan::new());
    for close in ["os.close(3)", "os.closerange(0, 64)"] {
        let run = client.run(&format!(
            "import os\nprint('before')\n{close}\nprint('after')"
        ));
        assert_eq!(run.structured["ending"], "killed");
        let error = run.structured["error"].as_str().unwrap_or_default();
        assert!(error.contains("descriptor 3"), "{error}");
        // The end may come before what is printed after it, where that can be printed at all.
        let output = run.structured["output"].as_str().unwrap_or_default();
        assert!(
            ["before\n", "before\nafter\n"].contains(&output),
            "{output}"
        );
    }
    Ok(())
}
