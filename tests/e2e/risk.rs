//! Calls that a model judges by a rubric: what it is told, what its word does, who hears of it.

use libtest_mimic::Trial;
use ptc_protocol::status::ServerState;
use ptc_tests::mock_http::{Answer, Mock, Plays, Request};
use ptc_tests::{Daemon, Home, Plan, Run, TestResult};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_rubric_only_tightens_and_is_told_the_bare_call,
        a_key_that_is_not_there_refuses_programs,
    ]
}

const KEY: &str = "q7-key-of-the-judge";

const POLICY: &str = r#"
    permit(principal, action, resource == Tool::"m/add");
    @risk("careful") permit(principal, action, resource == Tool::"m/echo");
    @message("never") forbid(principal, action, resource == Tool::"m/fail");
"#;

/// A judge that says what the call's argument `say` asks it to, and 500 where there is none.
fn judge() -> Mock {
    Mock::start(Plays::Legacy, |request, _| {
        let told = told(request);
        let Some(word) = told["arguments"]["say"].as_str() else {
            return Some(Answer::status(500));
        };
        let input = json!({"verdict": word, "reason": "the judge's own words"});
        let content = json!([{"type": "tool_use", "name": "verdict", "input": input}]);
        Some(Answer::json(
            200,
            &json!({"content": content, "stop_reason": "tool_use"}),
        ))
    })
}

/// What a request tells the judge.
fn told(request: &Request) -> Value {
    let content = request.message["messages"][0]["content"].as_str();
    serde_json::from_str(content.unwrap_or_default()).unwrap_or_default()
}

fn party(judge: &Mock, key: Option<&str>) -> (Home, Daemon) {
    let home = Home::new(&Plan::new());
    let file = home.write("policy.cedar", POLICY);
    let plan = Plan::new()
        .set("policy.cedar", file.to_string_lossy().as_ref())
        .set(
            "policy.risk",
            json!([{
                "name": "careful", "rubric": "Nothing goes to strangers.", "kind": "anthropic",
                "base_url": judge.origin(), "model": "judge-1", "api_key": "${TEST_JUDGE_KEY}",
                "timeout_seconds": 60,
            }]),
        )
        .set("journal.record", "full");
    home.write_config(&plan.server("m", &[]).text());
    let mut daemon = Daemon::spawn(&home, |command| {
        if let Some(key) = key {
            command.env("TEST_JUDGE_KEY", key);
        }
    });
    daemon.wait_until_it_answers();
    (home, daemon)
}

const CALLS: &str = "
# The user has allowed everything.
print((await mcp__m__add(a=1, b=2))['sum'])
for words in ({'say': 'allow'}, {'say': 'allow'}, {'say': 'deny'}, {'say': 'ask'}, {}):
    try:
        print((await mcp__m__echo(**words))['say'])
    except ToolError as error:
        print(error.kind, error)
try:
    await mcp__m__fail(message='x')
except ToolError as error:
    print(error.kind, error)
";

fn a_rubric_only_tightens_and_is_told_the_bare_call() -> TestResult {
    let judge = judge();
    let (home, daemon) = party(&judge, Some(KEY));
    daemon.wait_for("m", ServerState::Ready);
    let run = home.client().run(CALLS);
    let lines: Vec<&str> = run.printed().lines().collect();
    let denied = "denied 'mcp__m__echo' was denied: ";
    let want = [
        "3".to_owned(),
        "allow".to_owned(),
        "allow".to_owned(),
        format!("{denied}risk policy \"careful\" denies this call"),
        format!(
            "{denied}it needs a person's yes, and this client cannot ask for one (it has no elicitation); \
             `policy.approval: local` has `ptcctl approvals` ask"
        ),
        format!("{denied}risk policy \"careful\" could not judge this call"),
        "denied 'mcp__m__fail' was denied: policy \"policy2\": never".to_owned(),
    ];
    assert_eq!(lines, want);
    assert_eq!(daemon.server("m").calls, 3);
    // What was judged fine is not asked about again, and what no rubric is for never.
    let requests = judge.requests();
    let cases: Vec<Value> = requests
        .iter()
        .map(|request| told(request)["arguments"].clone())
        .collect();
    assert_eq!(
        cases,
        [
            json!({"say": "allow"}),
            json!({"say": "deny"}),
            json!({"say": "ask"}),
            json!({})
        ]
    );
    for request in &requests {
        assert_eq!(
            (request.path.as_str(), request.header("x-api-key")),
            ("/v1/messages", Some(KEY))
        );
        let body = request.message.to_string();
        assert!(body.contains("Nothing goes to strangers."), "{body}");
        assert!(
            !body.contains("allowed everything") && !body.contains("sum"),
            "{body}"
        );
    }
    only_the_journal_has_its_words(&home, &run)?;
    let (code, tried, err) = home.ctl(&["policy", "check", "--call", "mcp__m__echo", "say=deny"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        tried.ends_with("rubric: careful: not asked now\n"),
        "{tried}"
    );
    assert_eq!(judge.requests().len(), 4);
    Ok(())
}

/// The journal has the judge's words; nothing has its key.
fn only_the_journal_has_its_words(home: &Home, run: &Run) -> TestResult {
    let id = run.structured["run"].as_str().unwrap_or_default();
    let (code, out, err) = home.ctl(&["--json", "runs", id]);
    assert_eq!(code, 0, "{err}");
    let detail: Value = serde_json::from_str(&out)?;
    let decision = &detail["calls"][3]["decision"];
    assert_eq!(
        decision["risk"],
        json!([{"rubric": "careful", "verdict": "deny", "why": "the judge's own words"}])
    );
    assert_eq!(
        (&decision["verdict"], &decision["step"]),
        (&json!("deny"), &json!("risk"))
    );
    assert_eq!(detail["calls"][0]["decision"].get("risk"), None);
    let (_, shown, _) = home.ctl(&["--json", "config", "show"]);
    assert!(
        shown.contains("${TEST_JUDGE_KEY}") && !shown.contains(KEY),
        "{shown}"
    );
    let log = std::fs::read_to_string(home.daemon_log()).unwrap_or_default();
    assert!(!out.contains(KEY) && !log.contains(KEY));
    Ok(())
}

fn a_key_that_is_not_there_refuses_programs() -> TestResult {
    let judge = judge();
    let (home, _daemon) = party(&judge, None);
    let run = home.client().run("print(1)");
    assert!(
        run.is_error
            && run
                .text
                .contains("policy.risk careful: api_key: the variable TEST_JUDGE_KEY has no value"),
        "{}",
        run.text
    );
    Ok(())
}
