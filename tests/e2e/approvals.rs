//! Calls that wait for a person: asked at clients of both eras and in the daemon, answered in every way.

use libtest_mimic::Trial;
use ptc_protocol::approval::WaitingList;
use ptc_tests::wait::{eventually, until};
use ptc_tests::{Client, Daemon, Home, PATIENCE, Plan, Run, TestResult, daemon_of};
use serde_json::{Value, json};

use crate::eras_upstream::with_meta;

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_client_with_a_handshake_is_asked_and_every_answer_counts,
        two_questions_at_once_reach_a_client_with_a_handshake,
        nobody_who_answers_is_a_no_and_the_form_is_taken_back,
        a_client_that_is_lost_ends_its_program_and_its_question,
        other_code_answers_no_question_of_a_client_with_a_handshake,
        a_client_without_forms_is_denied_the_call,
        a_client_without_a_handshake_answers_by_asking_again,
        two_questions_at_once_go_in_one_answer,
        another_program_or_a_used_state_runs_nothing,
        a_client_that_does_not_come_back_has_the_call_denied,
        a_client_without_a_handshake_that_is_lost_ends_its_program,
        what_is_granted_is_not_asked_about_and_the_next_call_is,
        clocks_and_places_stand_free_while_a_person_is_asked,
        questions_are_kept_in_the_daemon_where_they_are_local,
        deny_asks_nobody,
    ]
}

const ADD: &str = "
try:
    print((await mcp__m__add(a=1, b=2))['sum'])
except ToolError as error:
    print(error.kind, error)
print('on')
";

const TWO: &str = "
import asyncio
calls = [mcp__m__add(a=n, b=2) for n in (1, 2)]
print(sorted(str(end) for end in await asyncio.gather(*calls, return_exceptions=True)))
";

fn party(plan: Plan) -> (Home, Daemon) {
    let plan = plan.set("policy.ask", json!(["mcp__m__add"]));
    daemon_of(&plan.server("m", &[]))
}

/// A client with a handshake that can show forms.
fn legacy(home: &Home) -> Client {
    let mut client = home.shim();
    client.ask(
        "initialize",
        &json!({
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "editor", "version": "1"},
        }),
    );
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    client
}

/// The daemon's next question.
fn question(client: &mut Client) -> Value {
    eventually("a question", PATIENCE, || {
        let message: Value = serde_json::from_str(&client.line(PATIENCE)?).ok()?;
        (message["method"] == "elicitation/create").then_some(message)
    })
}

fn reply(client: &mut Client, question: &Value, result: &Value) {
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
}

fn accepted(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

fn a_client_with_a_handshake_is_asked_and_every_answer_counts() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let mut client = legacy(&home);
    for (answer, printed) in [
        (accepted("allow_once"), "3\non"),
        (
            accepted("deny"),
            "denied 'mcp__m__add' was denied: the person at the client said no\non",
        ),
        (
            json!({"action": "decline"}),
            "denied 'mcp__m__add' was denied: the person at the client declined\non",
        ),
        (
            json!({"action": "cancel"}),
            "denied 'mcp__m__add' was denied: the person at the client put the question aside\non",
        ),
    ] {
        let id = client.start_run(ADD);
        let asked = question(&mut client);
        let params = &asked["params"];
        assert_eq!(
            params["requestedSchema"]["properties"]["decision"]["default"],
            "deny"
        );
        let message = params["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("{\"a\":1,\"b\":2}") && message.contains("nobody typed this"),
            "{message}"
        );
        reply(&mut client, &asked, &answer);
        assert_eq!(client.finish_run(&id).printed(), printed);
    }
    assert_eq!(daemon.server("m").calls, 1);
    // Allowed for the program: one question for two calls, and a new one for the next program.
    let id = client.start_run(&ADD.repeat(2));
    let asked = question(&mut client);
    reply(
        &mut client,
        &asked,
        &accepted("allow_tool_for_this_program"),
    );
    assert_eq!(client.finish_run(&id).printed(), "3\non\n3\non");
    let id = client.start_run(ADD);
    let asked = question(&mut client);
    reply(&mut client, &asked, &accepted("deny"));
    client.finish_run(&id);
    Ok(())
}

fn two_questions_at_once_reach_a_client_with_a_handshake() -> TestResult {
    let (home, _daemon) = party(Plan::new());
    let mut client = legacy(&home);
    let id = client.start_run(TWO);
    let (first, second) = (question(&mut client), question(&mut client));
    assert_ne!(first["id"], second["id"]);
    reply(&mut client, &second, &accepted("allow_once"));
    reply(&mut client, &first, &accepted("allow_once"));
    assert_eq!(
        client.finish_run(&id).printed(),
        "[\"{'sum': 3}\", \"{'sum': 4}\"]"
    );
    Ok(())
}

fn nobody_who_answers_is_a_no_and_the_form_is_taken_back() -> TestResult {
    let (home, _daemon) = party(Plan::new().set("policy.approval_seconds", 0.2));
    let mut client = legacy(&home);
    let id = client.start_run(ADD);
    let asked = question(&mut client);
    let cancelled: Value = eventually("the form is taken back", PATIENCE, || {
        let message: Value = serde_json::from_str(&client.line(PATIENCE)?).ok()?;
        (message["method"] == "notifications/cancelled").then_some(message)
    });
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    let run = client.finish_run(&id);
    assert!(
        run.printed().contains("nobody answered within 0.2 s"),
        "{}",
        run.text
    );
    Ok(())
}

fn a_client_that_is_lost_ends_its_program_and_its_question() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let mut client = legacy(&home);
    client.start_run(ADD);
    question(&mut client);
    client.kill();
    until("its program has ended", PATIENCE, || {
        let status = daemon.status();
        status.programs.pool.busy == 0 && status.totals.runs == 1
    });
    assert_eq!(daemon.server("m").calls, 0);
    Ok(())
}

fn other_code_answers_no_question_of_a_client_with_a_handshake() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let mut client = legacy(&home);
    let id = client.start_run(ADD);
    let asked = question(&mut client);
    // Answers in a request are the other revision's; no state of this one leads to a program.
    let made_up = json!({
        "name": "execute_program", "arguments": {"code": "print('other')"},
        "inputResponses": {"approval-1": accepted("allow_once")}, "requestState": "00",
    });
    let refused = client.ask("tools/call", &made_up);
    assert!(refused.to_string().contains("Nothing was run"), "{refused}");
    assert_eq!(client.run("print('other')").printed(), "other");
    assert_eq!(daemon.server("m").calls, 0);
    reply(&mut client, &asked, &accepted("allow_once"));
    assert_eq!(client.finish_run(&id).printed(), "3\non");
    assert_eq!(
        (daemon.status().totals.runs, daemon.server("m").calls),
        (2, 1)
    );
    Ok(())
}

fn a_client_without_forms_is_denied_the_call() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let run = home.client().run(ADD);
    assert!(
        run.printed().contains("this client cannot ask for one"),
        "{}",
        run.text
    );
    assert!(run.printed().ends_with("on"), "{}", run.text);
    assert_eq!(daemon.server("m").calls, 0);
    Ok(())
}

/// A request of a client without a handshake that can show forms; its answer's result.
fn modern(client: &mut Client, code: &str, more: &Value) -> Value {
    let mut params = json!({"name": "execute_program", "arguments": {"code": code}});
    if let (Some(params), Some(more)) = (params.as_object_mut(), more.as_object()) {
        params.extend(more.clone());
    }
    let mut params = with_meta(params);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({"elicitation": {"form": {}}});
    client.ask("tools/call", &params)
}

/// Answers every question of a round alike.
fn answers(round: &Value, result: &Value) -> Value {
    let requests = round["inputRequests"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let all: serde_json::Map<String, Value> = requests
        .keys()
        .map(|id| (id.clone(), result.clone()))
        .collect();
    json!({"inputResponses": all, "requestState": round["requestState"]})
}

fn a_client_without_a_handshake_answers_by_asking_again() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let mut client = home.shim();
    for (answer, printed) in [
        (accepted("allow_once"), "3\non"),
        (
            accepted("deny"),
            "denied 'mcp__m__add' was denied: the person at the client said no\non",
        ),
        (
            json!({"action": "decline"}),
            "denied 'mcp__m__add' was denied: the person at the client declined\non",
        ),
        (
            json!({"action": "cancel"}),
            "denied 'mcp__m__add' was denied: the person at the client put the question aside\non",
        ),
    ] {
        let round = modern(&mut client, ADD, &json!({}));
        assert_eq!(round["resultType"], "input_required", "{round}");
        let form = &round["inputRequests"]["approval-1"];
        assert_eq!(form["method"], "elicitation/create", "{round}");
        let ended = modern(&mut client, ADD, &answers(&round, &answer));
        assert_eq!(Run::of(ended).printed(), printed);
    }
    assert_eq!(
        (daemon.server("m").calls, daemon.status().totals.runs),
        (1, 4)
    );
    Ok(())
}

fn two_questions_at_once_go_in_one_answer() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let mut client = home.shim();
    let round = modern(&mut client, TWO, &json!({}));
    let asked = round["inputRequests"].as_object().map(serde_json::Map::len);
    assert_eq!(asked, Some(2), "{round}");
    // What stays without an answer is asked again, in a round of its own.
    let mut first = answers(&round, &accepted("allow_once"));
    if let Some(responses) = first["inputResponses"].as_object_mut() {
        responses.remove("approval-2");
    }
    let again = modern(&mut client, TWO, &first);
    let asked = again["inputRequests"].as_object().map(serde_json::Map::len);
    assert_eq!(asked, Some(1), "{again}");
    let ended = modern(&mut client, TWO, &answers(&again, &accepted("allow_once")));
    assert_eq!(Run::of(ended).printed(), "[\"{'sum': 3}\", \"{'sum': 4}\"]");
    assert_eq!(daemon.status().totals.runs, 1);
    Ok(())
}

fn another_program_or_a_used_state_runs_nothing() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let mut client = home.shim();
    let round = modern(&mut client, ADD, &json!({}));
    let yes = answers(&round, &accepted("allow_once"));
    let other = modern(&mut client, "print('other')", &yes);
    assert!(
        Run::of(other.clone()).is_error && other.to_string().contains("is another one"),
        "{other}"
    );
    let without = json!({"inputResponses": yes["inputResponses"]});
    let lost = modern(&mut client, ADD, &without);
    assert!(lost.to_string().contains("Nothing was run"), "{lost}");
    let mut stranger = home.shim();
    let stolen = modern(&mut stranger, ADD, &yes);
    assert!(stolen.to_string().contains("Nothing was run"), "{stolen}");
    let ended = modern(&mut client, ADD, &yes);
    assert_eq!(Run::of(ended).printed(), "3\non");
    let used = modern(&mut client, ADD, &yes);
    assert!(used.to_string().contains("answered already"), "{used}");
    assert_eq!(
        (daemon.status().totals.runs, daemon.server("m").calls),
        (1, 1)
    );
    Ok(())
}

fn a_client_that_does_not_come_back_has_the_call_denied() -> TestResult {
    let (home, daemon) = party(Plan::new().set("policy.approval_seconds", 0.2));
    let mut client = home.shim();
    let round = modern(&mut client, ADD, &json!({}));
    until("the program has ended", PATIENCE, || {
        daemon.status().totals.runs == 1
    });
    // What it gave is still there for one who comes late.
    let ended = modern(&mut client, ADD, &answers(&round, &accepted("allow_once")));
    let run = Run::of(ended);
    assert!(
        run.printed().contains("nobody answered within 0.2 s"),
        "{}",
        run.text
    );
    assert_eq!(daemon.server("m").calls, 0);
    Ok(())
}

fn a_client_without_a_handshake_that_is_lost_ends_its_program() -> TestResult {
    let (home, daemon) = party(Plan::new());
    let mut client = home.shim();
    let round = modern(&mut client, ADD, &json!({}));
    assert_eq!(round["resultType"], "input_required", "{round}");
    client.kill();
    until("its program has ended", PATIENCE, || {
        let status = daemon.status();
        status.programs.pool.busy == 0 && status.totals.runs == 1
    });
    assert_eq!(daemon.server("m").calls, 0);
    // Nobody else can go on with it.
    let mut other = home.shim();
    let late = modern(&mut other, ADD, &answers(&round, &accepted("allow_once")));
    assert!(late.to_string().contains("Nothing was run"), "{late}");
    assert_eq!(daemon.server("m").calls, 0);
    Ok(())
}

fn what_is_granted_is_not_asked_about_and_the_next_call_is() -> TestResult {
    let grants = json!([{"tools": ["mcp__m__add"], "calls": 2}]);
    let (home, daemon) = party(Plan::new().set("policy.grants", grants));
    let mut client = legacy(&home);
    for _ in 0..2 {
        let id = client.start_run(&ADD.repeat(3));
        let asked = question(&mut client);
        reply(&mut client, &asked, &accepted("deny"));
        let run = client.finish_run(&id);
        let no = "denied 'mcp__m__add' was denied: the person at the client said no";
        assert_eq!(run.printed(), format!("3\non\n3\non\n{no}\non"));
    }
    assert_eq!(daemon.server("m").calls, 4);
    Ok(())
}

fn clocks_and_places_stand_free_while_a_person_is_asked() -> TestResult {
    let plan = Plan::new()
        .set("execution.max_runs", 1)
        .set("execution.timeout_seconds", 20)
        .set("execution.tool_call_timeout_seconds", 1);
    let (home, _daemon) = party(plan);
    let mut client = legacy(&home);
    let id = client.start_run(ADD);
    let asked = question(&mut client);
    // The only place is free for another program, which takes longer than the call's own limit.
    let run = home
        .client()
        .run("import time\ntime.sleep(1.2)\nprint('ran')");
    assert_eq!(run.printed(), "ran", "{}", run.text);
    reply(&mut client, &asked, &accepted("allow_once"));
    assert_eq!(client.finish_run(&id).printed(), "3\non");
    Ok(())
}

fn questions_are_kept_in_the_daemon_where_they_are_local() -> TestResult {
    let (home, daemon) = party(Plan::new().set("policy.approval", "local"));
    let mut client = home.client();
    let list = || -> anyhow::Result<WaitingList> {
        let (_, out, _) = home.ctl(&["--json", "approvals"]);
        Ok(serde_json::from_str(&out)?)
    };
    for (word, printed) in [
        ("once", "3\non"),
        (
            "deny",
            "denied 'mcp__m__add' was denied: whoever answers `ptcctl approvals` said no\non",
        ),
    ] {
        let id = client.start_run(ADD);
        let waiting = eventually("a call waits", PATIENCE, || {
            list().ok()?.waiting.into_iter().next()
        });
        assert_eq!(
            (waiting.tool.as_str(), waiting.arguments.as_str()),
            ("mcp__m__add", "{\"a\":1,\"b\":2}")
        );
        let path = format!("/v1/approvals/answer?id={}&answer={word}", waiting.id);
        let answer = ptc_tests::http::ask(daemon.socket(), "POST", &path)?;
        assert_eq!(answer.status, 200);
        assert_eq!(client.finish_run(&id).printed(), printed);
        assert_eq!(list()?.waiting, []);
    }
    let (code, _, err) = home.ctl(&["approvals", "allow", "00000000"]);
    assert_eq!(code, 1);
    assert!(err.contains("no call waits as 00000000"), "{err}");
    Ok(())
}

fn deny_asks_nobody() -> TestResult {
    let (home, daemon) = party(Plan::new().set("policy.approval", "deny"));
    let mut client = legacy(&home);
    let id = client.start_run(ADD);
    let run = client.finish_run(&id);
    assert!(
        run.printed().contains("needs a person's yes"),
        "{}",
        run.text
    );
    assert_eq!(daemon.server("m").calls, 0);
    Ok(())
}
