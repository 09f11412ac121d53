//! The text and the structured form of what `execute_program` answers.

use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use ptc_tests::{Plan, Run, TestResult, party};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_success_is_a_status_line_and_the_output,
        no_output_is_said,
        an_emitted_value_stands_after_its_line,
        emitting_null_is_told_from_emitting_nothing,
        a_trace_line_counts_calls_and_names_failures,
        no_more_than_five_failures_are_named,
        a_failure_has_the_error_then_the_output,
        a_failure_keeps_head_and_tail_of_a_long_error,
        the_trace_can_be_turned_off,
        the_structured_form_has_every_field,
        lean_leaves_out_the_output_and_off_everything,
        output_is_cut_on_a_character_border_and_says_its_size,
        a_time_limit_says_the_line_and_keeps_the_output,
        a_crash_names_the_signal_and_keeps_the_output,
        a_scratch_over_its_limit_is_named,
        what_was_printed_without_a_line_end_is_there,
        the_confinement_is_in_the_structured_form_only,
    ]
}

/// The trace line with its seconds replaced by `T`.
fn trace(run: &Run) -> String {
    let at = run.text.find("[tool calls: ").unwrap_or(run.text.len());
    let tail = &run.text[at..];
    match (tail.find("; "), tail.find("s]")) {
        (Some(from), Some(to)) => format!("{}; T]{}", &tail[..from], &tail[to + 2..]),
        _ => tail.to_owned(),
    }
}

fn a_success_is_a_status_line_and_the_output() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run("print('one')\nprint('  two', end='')");
    assert!(!run.is_error);
    assert_eq!(
        run.text.trim_end(),
        "[Script executed successfully]\none\n  two"
    );
    assert_eq!(run.structured["output"], "one\n  two");
    assert_eq!(run.result["content"].as_array().map(Vec::len), Some(1));
    Ok(())
}

fn no_output_is_said() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    for code in ["x = 1", "", "   \n", "print()\nprint('  ')"] {
        let run = client.run(code);
        assert!(!run.is_error, "{code:?}");
        assert_eq!(
            run.text, "[Script executed successfully]\n(no output)",
            "{code:?}"
        );
    }
    Ok(())
}

fn an_emitted_value_stands_after_its_line() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client
        .run("print('before')\nemit(1)\nemit({'a': [1, 2.5, None], 'ä': 12345678901234567890123})");
    let (head, value) = run
        .text
        .split_once("\n--- result ---\n")
        .unwrap_or_default();
    assert_eq!(head, "[Script executed successfully]\nbefore");
    let expected: Value =
        serde_json::from_str(r#"{"a": [1, 2.5, null], "ä": 12345678901234567890123}"#)?;
    assert_eq!(serde_json::from_str::<Value>(value)?, expected);
    assert_eq!(run.structured["result"], expected);
    assert_eq!(run.structured["emitted"], true);
    Ok(())
}

fn emitting_null_is_told_from_emitting_nothing() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let null = client.run("emit(None)");
    assert_eq!(
        null.text,
        "[Script executed successfully]\n(no output)\n--- result ---\nnull"
    );
    assert_eq!(
        (&null.structured["result"], &null.structured["emitted"]),
        (&Value::Null, &json!(true))
    );
    let nothing = client.run("pass");
    assert_eq!(
        (
            &nothing.structured["result"],
            &nothing.structured["emitted"]
        ),
        (&Value::Null, &json!(false))
    );
    assert_eq!(nothing.structured.get("result"), Some(&Value::Null));
    Ok(())
}

fn a_trace_line_counts_calls_and_names_failures() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run("for n in range(3):\n    await mcp__m__add(a=n, b=n)\nprint('sum')");
    assert_eq!(run.without_trace(), "[Script executed successfully]\nsum");
    assert_eq!(trace(&run).trim_end(), "[tool calls: 3; T]");
    let mixed = client.run(
        "await mcp__m__echo(x=1)\ntry:\n    await mcp__m__fail(message='out of paper')\nexcept ToolError:\n    pass",
    );
    assert!(!mixed.is_error);
    let trace = trace(&mixed);
    let mut lines = trace.lines();
    assert_eq!(lines.next(), Some("[tool calls: 2, 1 failed; T]"));
    let failed = lines.next().unwrap_or_default();
    assert!(failed.starts_with("  failed: mcp__m__fail: "), "{failed}");
    assert!(failed.contains("out of paper"), "{failed}");
    assert_eq!(lines.next(), None);
    Ok(())
}

fn no_more_than_five_failures_are_named() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run(
        "for n in range(8):\n    try:\n        await mcp__m__fail(message=f'no {n}')\n    except ToolError:\n        pass",
    );
    let trace = trace(&run);
    let lines: Vec<&str> = trace.trim_end().lines().collect();
    assert_eq!(lines.len(), 7, "{trace}");
    assert_eq!(lines[0], "[tool calls: 8, 8 failed; T]");
    assert!(
        lines[1..6]
            .iter()
            .all(|line| line.starts_with("  failed: mcp__m__fail: ")),
        "{trace}"
    );
    assert_eq!(lines[6], "  ... 3 more failures");
    Ok(())
}

fn a_failure_has_the_error_then_the_output() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run("print('first')\nvalue = {}\nprint(value['missing'])\n");
    assert!(run.is_error);
    let (error, output) = run
        .text
        .split_once("\n\n--- output before the error ---\n")
        .unwrap_or_default();
    assert_eq!(output.trim_end(), "first");
    assert!(error.starts_with("[Script execution failed]\n"), "{error}");
    assert!(error.contains("line 3"), "{error}");
    assert!(error.contains("print(value['missing'])"), "{error}");
    assert!(error.contains("KeyError: 'missing'"), "{error}");
    assert!(
        !error.contains("ptc_child") && !error.contains("asyncio/"),
        "{error}"
    );
    let silent = client.run("1 / 0");
    assert!(
        !silent.text.contains("--- output before"),
        "{}",
        silent.text
    );
    let called = client.run("print('x')\nawait mcp__m__add(a=1, b=1)\nraise ValueError('end')");
    assert!(
        trace(&called).starts_with("[tool calls: 1; T]"),
        "{}",
        called.text
    );
    assert!(
        called
            .without_trace()
            .ends_with("--- output before the error ---\nx"),
        "{}",
        called.text
    );
    Ok(())
}

fn a_failure_keeps_head_and_tail_of_a_long_error() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run("print('p' * 30000)\nraise ValueError('head' + 'm' * 50000 + 'tail')");
    assert!(
        run.text.chars().count() < 8000,
        "{} characters",
        run.text.chars().count()
    );
    for part in ["ValueError: head", "tail", "line 2"] {
        assert!(run.text.contains(part), "{part} is gone: {:.500}", run.text);
    }
    let recursion = client.run("def f(n):\n    return f(n + 1)\nf(0)");
    assert!(recursion.text.chars().count() < 8000);
    assert!(
        recursion.text.contains("RecursionError"),
        "{}",
        recursion.text
    );
    Ok(())
}

fn the_trace_can_be_turned_off() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new().set("execution.trace", "off"));
    let run = client.run("await mcp__m__echo()\nprint('y')");
    assert_eq!(run.text.trim_end(), "[Script executed successfully]\ny");
    assert_eq!(
        run.structured["tool_calls"].as_array().map(Vec::len),
        Some(1)
    );
    Ok(())
}

fn the_structured_form_has_every_field() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let run = client.run("r = await mcp__m__echo(text='é' * 300, n=1)\nprint('done')");
    let form = &run.structured;
    assert_eq!(
        (
            &form["ok"],
            &form["output"],
            &form["error"],
            &form["ending"],
            &form["limit"]
        ),
        (
            &json!(true),
            &json!("done\n"),
            &Value::Null,
            &json!("finished"),
            &Value::Null
        )
    );
    assert!(
        form.get("limit").is_some() && form.get("error").is_some(),
        "{form}"
    );
    assert!(
        form["run"].as_str().is_some_and(|run| !run.is_empty()),
        "{form}"
    );
    assert!(form["duration_ms"].as_u64().is_some(), "{form}");
    let call = &form["tool_calls"][0];
    assert_eq!(
        (&call["tool"], &call["ok"]),
        (&json!("mcp__m__echo"), &json!(true))
    );
    assert!(call["ms"].is_u64() && call.get("error").is_none(), "{call}");
    let args = call["args"].as_str().unwrap_or_default();
    assert!(
        args.starts_with('{') && (190..=203).contains(&args.chars().count()),
        "{args}"
    );
    let failed = client.run("raise SystemExit('no more')");
    assert!(failed.is_error);
    assert_eq!(
        (&failed.structured["ok"], &failed.structured["ending"]),
        (&json!(false), &json!("script_error"))
    );
    assert!(
        failed.structured["error"]
            .as_str()
            .is_some_and(|e| e.contains("no more"))
    );
    assert_ne!(failed.structured["run"], form["run"]);
    Ok(())
}

fn lean_leaves_out_the_output_and_off_everything() -> TestResult {
    let (_home, _daemon, mut client) =
        party(Plan::new().set("execution.structured_content", "lean"));
    let lean = client.run("print('once')");
    assert_eq!(lean.printed(), "once");
    assert_eq!(lean.structured["ok"], true);
    assert!(
        lean.structured.get("output").is_none(),
        "{}",
        lean.structured
    );
    let (_home, _daemon, mut client) =
        party(Plan::new().set("execution.structured_content", "off"));
    let off = client.run("print('once')");
    assert_eq!((off.printed(), &off.structured), ("once", &Value::Null));
    Ok(())
}

fn output_is_cut_on_a_character_border_and_says_its_size() -> TestResult {
    for limit in [1000_usize, 1001, 1002, 1003] {
        let (_home, _daemon, mut client) =
            party(Plan::new().set("execution.max_output_bytes", limit));
        let run = client.run("for _ in range(100):\n    print('🦀' * 5, end='')\nprint()");
        assert!(!run.is_error);
        let output = run.structured["output"].as_str().unwrap_or_default();
        let kept = output.chars().take_while(|c| *c == '🦀').count();
        assert_eq!(kept, limit / 4, "at {limit}: {output}");
        assert!(
            run.text.contains("2001"),
            "the full size is not said: {}",
            run.text
        );
        let record = run.structured["run"].as_str().unwrap_or_default();
        assert!(
            run.text.contains(record),
            "the record is not named: {}",
            run.text
        );
    }
    let (_home, _daemon, mut client) = party(Plan::new().set("execution.max_output_bytes", 1000));
    let exact = client.run("print('x' * 999)");
    assert_eq!(
        exact.structured["output"].as_str().map(str::len),
        Some(1000)
    );
    Ok(())
}

fn a_time_limit_says_the_line_and_keeps_the_output() -> TestResult {
    let (_home, daemon, mut client) = party(Plan::new().set("execution.timeout_seconds", 2));
    let start = Instant::now();
    let spin = client.run("print('started')\nx = 0\nwhile True:\n    x += 1\n");
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(spin.is_error);
    assert_eq!(spin.structured["ending"], "timed_out");
    assert!(spin.structured["limit"].is_string(), "{}", spin.structured);
    let error = spin.structured["error"].as_str().unwrap_or_default();
    assert!(
        error.contains('2') && (error.contains("line 3") || error.contains("line 4")),
        "{error}"
    );
    assert!(
        spin.text
            .ends_with("--- output before the error ---\nstarted"),
        "{}",
        spin.text
    );
    let wait = client.run("import asyncio\nprint('waiting')\nawait asyncio.sleep(60)");
    let error = wait.structured["error"].as_str().unwrap_or_default();
    assert!(error.contains("line 3"), "{error}");
    let stubborn = client.run(
        "import asyncio\nwhile True:\n    try:\n        await asyncio.sleep(60)\n    except BaseException:\n        pass",
    );
    assert_eq!(stubborn.structured["ending"], "timed_out");
    let calling = client.run("print('called')\nawait mcp__m__sleep(ms=60000)");
    let call = &calling.structured["tool_calls"][0];
    assert_eq!(
        (&call["tool"], &call["ok"]),
        (&json!("mcp__m__sleep"), &json!(false)),
        "{}",
        calling.structured
    );
    assert!(
        call["error"].as_str().is_some_and(|e| e.contains("cancel")),
        "{call}"
    );
    assert_eq!(daemon.status().totals.failed_runs, 4);
    Ok(())
}

fn a_crash_names_the_signal_and_keeps_the_output() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let crash = client.run("print('before', flush=True)\nimport os\nos.abort()");
    assert!(crash.is_error);
    assert_eq!(crash.structured["ending"], "killed");
    // Where a program may signal nobody, not even itself, abort() ends in a fault.
    assert!(
        crash.text.contains("SIGABRT") || crash.text.contains("SIGSEGV"),
        "{}",
        crash.text
    );
    assert!(crash.text.contains("before"), "{}", crash.text);
    let leave = client.run("print('before', flush=True)\nimport os\nos._exit(3)");
    assert!(leave.is_error);
    assert!(
        leave.text.contains("before") && leave.text.contains('3'),
        "{}",
        leave.text
    );
    assert_eq!(client.run("print('alive')").printed(), "alive");
    Ok(())
}

fn the_confinement_is_in_the_structured_form_only() -> TestResult {
    let (_home, daemon, mut client) = party(Plan::new());
    let run = client.run("print('x')");
    let tier = daemon.status().programs.confinement;
    assert_eq!(
        run.structured["confinement"].as_str(),
        tier.map(ptc_protocol::run::Confinement::as_str)
    );
    assert_eq!(run.text.trim_end(), "[Script executed successfully]\nx");
    Ok(())
}

fn a_scratch_over_its_limit_is_named() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new().set("execution.scratch_bytes", 1_000_000));
    let run = client.run(
        "import time\nprint('before', flush=True)\nfor n in range(40):\n    open(f'f{n}', 'wb').write(b'x' * 300_000)\ntime.sleep(30)",
    );
    assert!(run.is_error);
    // With a file system of its own the program is told; without one it is watched, and killed.
    let told = run.structured["confinement"] == "full";
    let ending = if told { "script_error" } else { "killed" };
    assert_eq!(run.structured["ending"], ending);
    assert_eq!(run.structured["limit"], "scratch_bytes");
    assert!(
        run.text.contains("execution.scratch_bytes") && run.text.contains("before"),
        "{}",
        run.text
    );
    Ok(())
}

fn what_was_printed_without_a_line_end_is_there() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new().set("execution.timeout_seconds", 1));
    for end in [
        "import os; os._exit(7)",
        "while True: pass",
        "import ctypes; ctypes.string_at(0)",
    ] {
        let run = client.run(&format!("print('part', end='')\n{end}"));
        assert!(
            run.is_error && run.text.contains("part"),
            "{end}: {}",
            run.text
        );
    }
    Ok(())
}
