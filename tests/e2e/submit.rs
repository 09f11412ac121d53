//! `run_python` and submissions: off by default, without tools, bounded, checked and recorded.

use libtest_mimic::Trial;
use ptc_tests::pythons;
use ptc_tests::suite::skip;
use ptc_tests::{Client, Plan, TestResult, party};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        they_are_off_until_they_are_named,
        run_python_shows_status_and_streams_and_has_no_tools,
        a_session_has_six_work_calls,
        a_submission_is_checked_run_and_recorded,
        faults_name_path_found_and_required_and_nothing_runs,
        a_witness_line_may_be_required,
        a_profile_has_workers_of_its_own,
        they_are_refused_where_programs_are_not_confined,
        steps_are_counted_told_and_recorded_where_python_can,
    ]
}

fn plan() -> Plan {
    Plan::new().set(
        "tools.expose",
        json!([
            "execute_program",
            "run_python",
            "submit_execute_unconfirmed",
            "submit_outcome"
        ]),
    )
}

fn submit(client: &mut Client, outcome: &Value) -> ptc_tests::client::Run {
    client.call("submit_execute_unconfirmed", &json!({"outcome": outcome}))
}

fn they_are_off_until_they_are_named() -> TestResult {
    let (_home, _daemon, mut client) = party(Plan::new());
    let request = client.request(
        "tools/call",
        &json!({"name": "run_python", "arguments": {"code": "1"}}),
    );
    assert_eq!(client.answer(&request)["error"]["code"], -32602);
    let (_home, _daemon, mut client) = party(plan());
    let list = client.ask("tools/list", &json!({}));
    let names: Vec<&str> = list["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "execute_program",
            "run_python",
            "submit_execute_unconfirmed",
            "submit_outcome"
        ]
    );
    let description = list["tools"][2]["description"].as_str().unwrap_or_default();
    assert!(
        description.contains("nothing verifies the deliverable afterwards"),
        "{description}"
    );
    Ok(())
}

fn run_python_shows_status_and_streams_and_has_no_tools() -> TestResult {
    let (_home, _daemon, mut client) = party(plan());
    let code = "import sys\nprint('out', 'mcp__m__add' in globals(), await list_callable_tools())\nprint('err', file=sys.stderr)\n1 / 0";
    let run = client.call("run_python", &json!({"code": code}));
    assert!(!run.is_error, "{}", run.text);
    assert!(run.text.starts_with("exit status: 1\n"), "{}", run.text);
    assert_eq!(run.structured["stdout"], "out False []\n");
    let stderr = run.structured["stderr"].as_str().unwrap_or_default();
    assert!(
        stderr.starts_with("err\n") && stderr.contains("ZeroDivisionError"),
        "{stderr}"
    );
    assert_eq!(run.structured["evidence"], false);
    assert!(
        run.text.contains("for inspection, not evidence"),
        "{}",
        run.text
    );
    let long = client.call("run_python", &json!({"code": "print('x' * 9000 + 'end')"}));
    let stdout = long.structured["stdout"].as_str().unwrap_or_default();
    assert_eq!(stdout.chars().count(), 2000);
    assert!(stdout.ends_with("xend\n"));
    Ok(())
}

fn a_session_has_six_work_calls() -> TestResult {
    let (home, _daemon, mut client) = party(plan());
    for left in (0..6).rev() {
        let run = client.call("run_python", &json!({"code": "print(6 * 7)"}));
        assert_eq!(run.structured["work_calls_left"], left, "{}", run.text);
    }
    let run = client.call("run_python", &json!({"code": "print(1)"}));
    assert!(
        run.is_error && run.text.contains("6 work calls"),
        "{}",
        run.text
    );
    // Another session has its own.
    let mut other = home.client();
    assert!(
        !other
            .call("run_python", &json!({"code": "print(1)"}))
            .is_error
    );
    Ok(())
}

fn a_submission_is_checked_run_and_recorded() -> TestResult {
    let (_home, _daemon, mut client) = party(plan());
    let outcome = json!({
        "deliverable": "The answer is 42.",
        "programs": [{"name": "a", "code": "print('WITNESS 42')"}, {"name": "b", "code": "print('more')"}],
        "witness": {"form": "computed", "value": 42},
    });
    let answer = submit(&mut client, &outcome);
    assert!(!answer.is_error, "{}", answer.text);
    assert!(
        answer.text.contains("nothing verifies it afterwards here"),
        "{}",
        answer.text
    );
    assert_eq!(answer.structured["ok"], true);
    let facts = answer.structured["facts"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(
        (&facts[0]["exit_status"], &facts[0]["witness_printed"]),
        (&json!(0), &json!(true))
    );
    assert_eq!(facts[1]["witness_printed"], false);
    let run = answer.structured["result"]["run"]
        .as_str()
        .unwrap_or_default();
    let read = client.ask(
        "resources/read",
        &json!({"uri": format!("ptc://runs/{run}/response")}),
    );
    let text = read["contents"][0]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("The answer is 42.\n[checked: "), "{text}");
    let origin: Value =
        serde_json::from_str(read["contents"][1]["text"].as_str().unwrap_or_default())?;
    assert_eq!(
        (&origin["kind"], &origin["level"]),
        (&json!("submission"), &json!("checked"))
    );
    assert_eq!(origin["witness"]["reproduced"], true, "{origin}");
    assert!(
        origin["caveat"]
            .as_str()
            .is_some_and(|text| text.contains("nothing verified"))
    );
    let list = client.ask("resources/list", &json!({}));
    let first = list["resources"][0]["description"]
        .as_str()
        .unwrap_or_default();
    assert!(
        first.starts_with("finished, checked: submission"),
        "{first}"
    );
    let output = client.ask(
        "resources/read",
        &json!({"uri": format!("ptc://runs/{run}/program-output")}),
    );
    let output: Value =
        serde_json::from_str(output["contents"][0]["text"].as_str().unwrap_or_default())?;
    assert_eq!(output["runs"][1]["stdout"], "more\n", "{output}");
    // Three a session, under either name.
    submit(&mut client, &outcome);
    let third = client.call("submit_outcome", &json!({"outcome": outcome}));
    assert!(!third.is_error, "{}", third.text);
    let fourth = submit(&mut client, &outcome);
    assert!(
        fourth.is_error && fourth.text.contains("3 submissions"),
        "{}",
        fourth.text
    );
    Ok(())
}

fn faults_name_path_found_and_required_and_nothing_runs() -> TestResult {
    let (_home, daemon, mut client) = party(plan());
    let before = daemon.status().totals.runs;
    let answer = submit(&mut client, &json!({"deliverable": 5, "programs": []}));
    assert!(answer.is_error);
    assert_eq!(answer.structured["ok"], false);
    assert_eq!(
        answer.structured["errors"],
        json!([
            {"path": "outcome.deliverable", "found": "a number", "required": "a text"},
            {"path": "outcome.programs", "found": "0 of them", "required": "1 to 8 programs"},
        ])
    );
    assert_eq!(daemon.status().totals.runs, before);
    let failing =
        json!({"deliverable": "x", "programs": [{"name": "a", "code": "raise SystemExit(3)"}]});
    let answer = submit(&mut client, &failing);
    assert!(answer.is_error);
    assert_eq!(
        answer.structured["errors"][0]["path"],
        "outcome.programs[0]"
    );
    assert_eq!(answer.structured["facts"][0]["exit_status"], 1);
    Ok(())
}

fn a_witness_line_may_be_required() -> TestResult {
    let (_home, _daemon, mut client) = party(plan().set("submit.witness_required", true));
    let outcome =
        |code: &str| json!({"deliverable": "x", "programs": [{"name": "a", "code": code}]});
    let without = submit(&mut client, &outcome("print('WITNESSES')"));
    assert!(without.is_error, "{}", without.text);
    assert_eq!(without.structured["errors"][0]["found"], "no WITNESS line");
    let with = submit(&mut client, &outcome("print('WITNESS: 1')"));
    assert!(!with.is_error, "{}", with.text);
    Ok(())
}

fn a_profile_has_workers_of_its_own() -> TestResult {
    let plan = plan()
        .set("submit.profile", "minimal")
        .set("profiles.minimal.timeout_seconds", 1);
    let (_home, _daemon, mut client) = party(plan);
    let run = client.call("run_python", &json!({"code": "while True: pass"}));
    assert_eq!(run.structured["ending"], "timed_out", "{}", run.text);
    assert_eq!(run.structured["limit"], "timeout_seconds");
    assert_eq!(run.structured["exit_status"], Value::Null);
    assert_eq!(
        client.run("print('the others go on')").printed(),
        "the others go on"
    );
    Ok(())
}

fn they_are_refused_where_programs_are_not_confined() -> TestResult {
    let (_home, _daemon, mut client) = party(plan().set("execution.sandbox", "none"));
    let run = client.call("run_python", &json!({"code": "print(1)"}));
    assert!(
        run.is_error && run.text.contains("not confined"),
        "{}",
        run.text
    );
    let outcome = json!({"deliverable": "x", "programs": [{"name": "a", "code": "1"}]});
    let answer = submit(&mut client, &outcome);
    assert!(
        answer.is_error && answer.text.contains("not confined"),
        "{}",
        answer.text
    );
    Ok(())
}

fn steps_are_counted_told_and_recorded_where_python_can() -> TestResult {
    let pythons = pythons::found();
    let Some(python) = pythons.iter().find(|python| python.minor >= 12) else {
        return skip("only CPython 3.12 and later can count steps");
    };
    let (path, _copy) = python.within_reach()?;
    let counting = |path: &std::path::Path| {
        plan()
            .set("execution.step_budget", 5000)
            .set("execution.python", path.display().to_string())
    };
    let (_home, _daemon, mut client) = party(counting(&path));
    let run = client.call("run_python", &json!({"code": "for n in range(100): pass"}));
    let used = run.structured["steps"]["used"].as_u64().unwrap_or_default();
    assert!((100..110).contains(&used), "{}", run.structured);
    let told = format!("steps used: {used} of 5000");
    assert!(run.text.contains(&told), "{}", run.text);
    let run = client.run("print('begun')\nwhile True: pass");
    assert!(run.is_error, "{}", run.text);
    assert!(
        run.text
            .contains("StepBudgetExceeded: the program took more than 5000 steps"),
        "{}",
        run.text
    );
    assert_eq!(run.structured["limit"], "step_budget");
    let id = run.structured["run"].as_str().unwrap_or_default();
    let read = client.ask(
        "resources/read",
        &json!({"uri": format!("ptc://runs/{id}/provenance")}),
    );
    let origin = read["contents"][0]["text"].as_str().unwrap_or_default();
    let origin: Value = serde_json::from_str(origin)?;
    let steps = json!({"used": 5001, "budget": 5000, "stopped": true, "advisory": true});
    assert_eq!(origin["steps"], steps);
    if let Some(old) = pythons.iter().find(|python| python.minor == 11) {
        let (path, _copy) = old.within_reach()?;
        let (home, _daemon, mut client) = party(counting(&path));
        let run = client.run("print('never')");
        assert!(run.is_error, "{}", run.text);
        assert!(run.text.contains("execution.step_budget"), "{}", run.text);
        let (code, shown, _) = home.ctl(&["status", "--check"]);
        assert_eq!(code, 11, "{shown}");
        assert!(shown.contains("execution.step_budget"), "{shown}");
    }
    Ok(())
}
