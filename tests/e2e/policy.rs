//! Who may call what: Cedar policies, effect classes, and what programs, the journal and the command line hear of them.

use libtest_mimic::Trial;
use ptc_protocol::policy::PolicyChecked;
use ptc_protocol::status::ServerState;
use ptc_tests::wait::until;
use ptc_tests::{Client, Daemon, Home, PATIENCE, Plan, TestResult};
use serde_json::{Value, json};

pub(super) fn tests() -> Vec<Trial> {
    ptc_tests::trials![
        a_denied_call_is_caught_and_its_server_hears_nothing,
        each_decision_is_in_the_journal_with_its_reasons,
        calls_at_once_are_counted_one_by_one,
        what_tools_do_comes_from_globs_and_trusted_annotations,
        policies_that_cannot_be_used_refuse_programs,
        a_program_meets_new_policies_at_its_next_call,
        policies_are_checked_and_tried_before_they_count,
        a_tool_that_looks_otherwise_than_it_was_pinned_is_denied,
        a_program_that_a_policy_denies_never_starts,
        a_policy_nested_into_the_depths_is_a_fault_and_the_daemon_stays,
    ]
}

/// A server `m`, judged by these policies.
fn party(policies: &str, plan: Plan) -> (Home, Daemon, Client) {
    let home = Home::new(&plan);
    let file = home.write("policy.cedar", policies);
    let plan = plan.set("policy.cedar", file.to_string_lossy().as_ref());
    home.write_config(&plan.server("m", &[]).text());
    let daemon = home.daemon();
    daemon.wait_for("m", ServerState::Ready);
    let client = home.client();
    (home, daemon, client)
}

const NO_ECHO: &str = r#"
    permit(principal, action, resource);
    @id("no-echo") @message("nothing is repeated here")
    forbid(principal, action, resource == Tool::"m/echo");
"#;

const CAUGHT: &str = "
try:
    await mcp__m__echo(word='x')
except ToolError as error:
    print(error.kind, error.server, error.retryable, error)
print((await mcp__m__add(a=1, b=2))['sum'])
print((await mcp__m__stats()).get('tools/call'))
";

fn a_denied_call_is_caught_and_its_server_hears_nothing() -> TestResult {
    let (_home, daemon, mut client) = party(NO_ECHO, Plan::new());
    let run = client.run(CAUGHT);
    assert!(!run.is_error, "{}", run.text);
    let lines: Vec<&str> = run.printed().lines().collect();
    assert_eq!(
        lines[0],
        "denied m False 'mcp__m__echo' was denied: policy \"no-echo\": nothing is repeated here"
    );
    // The sum; then the calls that the server counts, itself among them.
    assert_eq!(lines[1..], ["3", "2"]);
    assert_eq!(daemon.server("m").calls, 2);
    let error = run.structured["tool_calls"][0]["error"].as_str();
    assert_eq!(error, Some(lines[0].trim_start_matches("denied m False ")));
    Ok(())
}

fn each_decision_is_in_the_journal_with_its_reasons() -> TestResult {
    for record in ["full", "off"] {
        let plan = Plan::new().set("journal.record", record);
        let (home, daemon, mut client) = party(NO_ECHO, plan);
        let run = client.run(CAUGHT);
        let id = run.structured["run"].as_str().unwrap_or_default();
        let (code, out, err) = home.ctl(&["--json", "runs", id]);
        assert_eq!(code, 0, "{err}");
        let detail: Value = serde_json::from_str(&out)?;
        let calls = detail["calls"].as_array().cloned().unwrap_or_default();
        let decisions: Vec<&Value> = calls.iter().map(|call| &call["decision"]).collect();
        let rules = daemon.status().policy.map(|policy| policy.rules);
        assert!(rules.is_some());
        let mut denied = json!({
            "verdict": "deny", "step": "cedar", "effect": "destructive",
            "policies": ["no-echo"], "rules": rules,
        });
        if record == "full" {
            denied["reason"] = json!("policy \"no-echo\": nothing is repeated here");
        }
        assert_eq!(decisions[0], &denied, "{record}");
        let allowed = json!({
            "verdict": "allow", "step": "cedar", "effect": "destructive",
            "policies": ["policy0"], "rules": rules,
        });
        assert_eq!(decisions[1], &allowed, "{record}");
    }
    Ok(())
}

fn calls_at_once_are_counted_one_by_one() -> TestResult {
    let rule = "permit(principal, action, resource) when { context.program.calls_to_tool < 5 };";
    let (_home, daemon, mut client) = party(rule, Plan::new());
    let run = client.run(
        "import asyncio\n\
         calls = [mcp__m__echo(n=n) for n in range(12)]\n\
         ended = await asyncio.gather(*calls, return_exceptions=True)\n\
         print(sum(isinstance(end, dict) for end in ended))\n\
         print({end.kind for end in ended if isinstance(end, ToolError)})\n\
         print((await mcp__m__add(a=1, b=2))['sum'])",
    );
    assert_eq!(run.printed(), "5\n{'denied'}\n3", "{}", run.text);
    assert_eq!(daemon.server("m").calls, 6);
    Ok(())
}

fn what_tools_do_comes_from_globs_and_trusted_annotations() -> TestResult {
    let home = Home::new(&Plan::new());
    let schema = json!({"type": "object"});
    let tool = |name: &str, annotations: Value| json!({"name": name, "inputSchema": schema, "annotations": annotations});
    let script = json!({"tools": [
        tool("look", json!({"readOnlyHint": true})),
        tool("put", json!({"destructiveHint": false})),
        tool("wipe", json!({})),
    ]});
    let script = home.write("script.json", &script.to_string());
    let entry = |name: &str, trusted: bool| {
        json!({
            "name": name, "transport": "stdio", "trust_annotations": trusted,
            "command": ptc_tests::programs::program("mock-mcp"), "args": ["--script", script],
        })
    };
    let plan = Plan::new()
        .entry(entry("t", true))
        .entry(entry("u", false))
        .set("policy.effects.read", json!(["mcp__u__look"]))
        .set("policy.effects.destructive", json!(["mcp__t__p*"]));
    home.write_config(&plan.text());
    let daemon = home.daemon();
    for name in ["t", "u"] {
        daemon.wait_for(name, ServerState::Ready);
    }
    let (code, out, _) = home.ctl(&["tools", "--effects"]);
    assert_eq!(
        (code, out.as_str()),
        (
            0,
            "mcp__t__look  read\nmcp__t__put   destructive\nmcp__t__wipe  destructive\n\
             mcp__u__look  read\nmcp__u__put   destructive\nmcp__u__wipe  destructive\n"
        )
    );
    home.write_config(&plan.set("policy.effects.destructive", json!([])).text());
    assert_eq!(home.ctl(&["reload"]).0, 0);
    let run = home
        .client()
        .call("inspect_tool", &json!({"tool_name": "mcp__t__put"}));
    let shown: Value = serde_json::from_str(&run.text)?;
    assert_eq!(shown["effect"], "write");
    Ok(())
}

fn policies_that_cannot_be_used_refuse_programs() -> TestResult {
    let plan = Plan::new();
    let home = Home::new(&plan);
    let file = home.path("policy.cedar");
    let plan = plan.set("policy.cedar", file.to_string_lossy().as_ref());
    home.write_config(&plan.server("m", &[]).text());
    let daemon = home.daemon();
    let mut client = home.client();
    let run = client.run("print(1)");
    assert!(
        run.is_error && run.text.contains("policy.cedar: No such file"),
        "{}",
        run.text
    );
    home.write(
        "policy.cedar",
        "permit(principal, action, resource in Sever::\"m\");",
    );
    let (code, _, err) = home.ctl(&["reload"]);
    assert_eq!(code, 1);
    assert!(
        err.contains("policy.cedar:1:") && err.contains("did you mean `Server`?"),
        "{err}"
    );
    assert!(
        client
            .run("print(1)")
            .text
            .contains("did you mean `Server`?")
    );
    home.write(
        "policy.cedar",
        "permit(principal, action, resource in Server::\"m\");",
    );
    assert_eq!(home.ctl(&["reload"]).0, 0);
    daemon.wait_for("m", ServerState::Ready);
    let call = "print((await mcp__m__add(a=1, b=2))['sum'])";
    assert_eq!(client.run(call).printed(), "3");
    // What is in force stays, and `status` says so.
    home.write("policy.cedar", "permit(principal, action, resource");
    assert!(daemon.status().config.changed_on_disk);
    assert_eq!(home.ctl(&["reload"]).0, 1);
    assert_eq!(client.run(call).printed(), "3");
    let faults = daemon.status().config.faults;
    assert!(faults[0].contains("policy.cedar:1:"), "{faults:?}");
    let (_, out, _) = home.ctl(&["status"]);
    assert!(
        out.contains("not in force: ") && out.contains("policy.cedar, 1 policy, set "),
        "{out}"
    );
    Ok(())
}

fn a_program_meets_new_policies_at_its_next_call() -> TestResult {
    let (home, daemon, mut client) = party("permit(principal, action, resource);", Plan::new());
    let id = client.start_run(
        "import asyncio\n\
         while True:\n\
         \x20   try:\n\
         \x20       await mcp__m__add(a=1, b=2)\n\
         \x20   except ToolError as error:\n\
         \x20       print(error.kind)\n\
         \x20       break\n\
         \x20   await asyncio.sleep(1)",
    );
    until("it has called", PATIENCE, || daemon.server("m").calls > 0);
    home.write("policy.cedar", "");
    assert_eq!(home.ctl(&["reload"]).0, 0);
    assert_eq!(client.finish_run(&id).printed(), "denied");
    Ok(())
}

fn policies_are_checked_and_tried_before_they_count() -> TestResult {
    let (home, _daemon, mut client) = party("permit(principal, action, resource);", Plan::new());
    home.write(
        "policy.cedar",
        "permit(principal == Client::\"x\", action, resource);\n\
         @id(\"sum\") permit(principal, action, resource == Tool::\"m/add\") when { context.arguments.a < 5 };",
    );
    let (code, out, err) = home.ctl(&["policy", "check"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("policy.cedar: no faults; 2 policies\nprograms: no policy names "),
        "{out}"
    );
    assert!(err.contains("rests on the client's own word"), "{err}");
    let tried = |args: &[&str]| {
        let (code, out, err) = home.ctl(&[&["policy", "check", "--call"], args].concat());
        assert_eq!(code, 0, "{err}");
        out
    };
    assert_eq!(
        tried(&["mcp__m__add", "a=4", "b=1"]),
        "allow\neffect: destructive\ndecided by: cedar\npolicy: sum\n"
    );
    let denied = tried(&["mcp__m__add", "a=5", "b=1"]);
    assert!(
        denied.starts_with("deny: no policy permits this call\n"),
        "{denied}"
    );
    let other = tried(&["mcp__m__pid", "--client", "x"]);
    assert!(other.starts_with("allow\n"), "{other}");
    // Nothing of it counts yet.
    assert_eq!(
        client
            .run("print((await mcp__m__echo(a='b'))['a'])")
            .printed(),
        "b"
    );
    home.write(
        "policy.cedar",
        "permit(principal, action, resource) when { context.argument.a };",
    );
    let (code, out, _) = home.ctl(&["--json", "policy", "check"]);
    let checked: PolicyChecked = serde_json::from_str(&out)?;
    assert_eq!((code, checked.faults.len()), (1, 1), "{checked:?}");
    assert!(
        checked.faults[0].contains("did you mean `arguments`?"),
        "{checked:?}"
    );
    Ok(())
}

fn a_tool_that_looks_otherwise_than_it_was_pinned_is_denied() -> TestResult {
    let home = Home::new(&Plan::new());
    let script = |says: &str| {
        let schema = json!({"type": "object"});
        let tool = |name: &str, says: &str| json!({"name": name, "description": says, "inputSchema": schema});
        let tools = json!({"tools": [tool("look", says), tool("other", "the same")]});
        home.write("script.json", &tools.to_string())
    };
    let path = script("looks");
    home.write_config(
        &Plan::new()
            .entry(json!({
                "name": "t", "transport": "stdio",
                "command": ptc_tests::programs::program("mock-mcp"), "args": ["--script", path],
            }))
            .text(),
    );
    let daemon = home.daemon();
    daemon.wait_for("t", ServerState::Ready);
    let mut client = home.client();
    let mut called = |tool: &str| {
        let code = format!(
            "try:\n    await mcp__t__{tool}()\n    print('called')\n\
             except ToolError as error:\n    print(error.kind, error)"
        );
        client.run(&code).printed().to_owned()
    };
    let (code, _, err) = home.ctl(&["tools", "pin"]);
    assert_eq!((code, err.as_str()), (0, "ptcctl: pinned: 2\n"));
    assert_eq!(called("look"), "called");
    script("looks, and tells the neighbours");
    assert_eq!(home.ctl(&["servers", "restart", "t"]).0, 0);
    until("the server lists its tools anew", PATIENCE, || {
        home.ctl(&["tools", "pins"]).1.contains("CHANGED")
    });
    daemon.wait_for("t", ServerState::Ready);
    let denied = called("look");
    assert!(
        denied.starts_with(
            "denied 'mcp__t__look' was denied: what mcp__t__look says of itself has changed"
        ),
        "{denied}"
    );
    assert_eq!(called("other"), "called");
    // Pinning again takes nothing over that has changed, and shows it.
    let (code, _, err) = home.ctl(&["tools", "pin"]);
    assert_eq!(code, 1);
    for line in [
        "- description: looks\n",
        "+ description: looks, and tells the neighbours\n",
    ] {
        assert!(err.contains(line), "{err}");
    }
    assert!(called("look").starts_with("denied"));
    assert_eq!(home.ctl(&["tools", "pin", "--anew", "mcp__t__*"]).0, 0);
    assert_eq!(called("look"), "called");
    assert_eq!(home.ctl(&["tools", "unpin", "*"]).0, 0);
    assert_eq!(home.ctl(&["tools", "pins"]).1, "");
    Ok(())
}

const WHO_MAY_RUN: &str = r#"
    permit(principal, action, resource);
    @id("no-guests") @message("guests start no programs here")
    forbid(principal == Client::"guest", action == Action::"run_program", resource);
"#;

fn a_program_that_a_policy_denies_never_starts() -> TestResult {
    let (home, daemon, mut client) = party(WHO_MAY_RUN, Plan::new());
    let code = "await mcp__m__echo(word='x')\nprint(1)";
    assert_eq!(client.run(code).printed(), "1");
    let calls = daemon.server("m").calls;
    let mut guest = home.shim_with(&["--client", "guest"]);
    guest.initialize("2025-11-25");
    let refused = guest.run(code);
    assert!(refused.is_error, "{}", refused.text);
    assert!(
        refused.text.contains(
            "the program was denied before it started: policy \"no-guests\": guests start no programs here"
        ),
        "{}",
        refused.text
    );
    assert_eq!(refused.structured["ending"], "refused");
    assert_eq!(daemon.server("m").calls, calls);
    // Both are in the journal, with what was said of them.
    let (_, out, _) = home.ctl(&["--json", "runs"]);
    let listed: Value = serde_json::from_str(&out)?;
    let newest = &listed["runs"][0];
    assert_eq!(
        (&newest["ending"], &newest["client"]),
        (&json!("refused"), &json!("guest")),
        "{listed}"
    );
    let start = &newest["facts"]["start"];
    assert_eq!(start["verdict"], "deny", "{newest}");
    assert_eq!(start["policies"], json!(["no-guests"]));
    let start = &listed["runs"][1]["facts"]["start"];
    assert_eq!(start["verdict"], "allow", "{listed}");
    assert!(start["rules"].is_string(), "{start}");
    // The command line is a client as any other, and the check says who may.
    let (code, out, _) = home.ctl(&["policy", "check", "--client", "guest"]);
    assert_eq!(code, 0);
    assert!(
        out.contains("programs of guest in cpython: deny: policy \"no-guests\": guests start no programs here\n"),
        "{out}"
    );
    let (_, out, _) = home.ctl(&["policy", "check"]);
    assert!(
        out.contains("programs of ptcctl in monty: allow: policy0\n"),
        "{out}"
    );
    home.write("policy.cedar", &WHO_MAY_RUN.replace("guest\"", "ptcctl\""));
    assert_eq!(home.ctl(&["reload"]).0, 0);
    let file = home.write("program.py", "print(1)");
    let (code, out, err) = home.ctl(&["run", &file.display().to_string()]);
    assert!(code != 0 && out.is_empty(), "{out}");
    assert!(err.contains("policy \"no-guests\""), "{err}");
    assert_eq!(guest.run("print(1)").printed(), "1");
    Ok(())
}

fn a_policy_nested_into_the_depths_is_a_fault_and_the_daemon_stays() -> TestResult {
    let (home, daemon, mut client) = party("permit(principal, action, resource);", Plan::new());
    let pid = daemon.status().pid;
    let deep = format!("{}true{}", "(".repeat(50_000), ")".repeat(50_000));
    let texts = [
        format!("permit(principal, action, resource) when {{ {deep} }};").into_bytes(),
        b"permit(principal, action, resource);\n\xff\xfe".to_vec(),
        b"permit(principal, action, resource);\0".to_vec(),
        b"permit(principal, action, resource);\n".repeat(5000),
        vec![b'/'; 5 << 20],
    ];
    for text in texts {
        std::fs::write(home.path("policy.cedar"), &text)?;
        for verb in [["policy", "check"].as_slice(), &["reload"]] {
            let (code, out, err) = home.ctl(verb);
            assert_eq!(code, 1, "{out}{err}");
            let told = format!("{out}{err}");
            assert!(told.contains("policy.cedar"), "{told}");
        }
    }
    // What was in force is in force.
    let call = "print((await mcp__m__add(a=1, b=2))['sum'])";
    assert_eq!(client.run(call).printed(), "3");
    assert_eq!(daemon.status().pid, pid);
    Ok(())
}
