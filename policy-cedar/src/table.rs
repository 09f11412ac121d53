//! What sets of policies say of calls, row by row.

use serde_json::{Map, Value};

use crate::load::one;
use crate::{Call, Client, Hints, Policies, Program, Tool, Verdict};

/// Sets of policies by name.
const SETS: &[(&str, &str)] = &[
    ("empty", ""),
    ("all", "permit(principal, action, resource);"),
    (
        "read",
        r#"permit(principal, action, resource) when { resource.effect == "read" };"#,
    ),
    (
        "server",
        r#"permit(principal, action == Action::"call_tool", resource in Server::"files");"#,
    ),
    (
        "tool",
        r#"permit(principal, action, resource == Tool::"files/read");"#,
    ),
    (
        "no-destroy",
        r#"permit(principal, action, resource);
        @id("no-destroy") @message("destructive tools are off on this machine")
        forbid(principal, action, resource) when { resource.effect == "destructive" };"#,
    ),
    (
        "amount",
        r#"permit(principal, action, resource);
        @id("limit") forbid(principal, action, resource == Tool::"bank/pay") when { context.arguments.amount > 500 };"#,
    ),
    (
        "amount-guarded",
        r#"permit(principal, action, resource);
        forbid(principal, action, resource == Tool::"bank/pay")
        when { context.arguments has amount && context.arguments.amount > 500 };"#,
    ),
    (
        "price",
        r#"permit(principal, action, resource)
        when { context.arguments.price.lessThanOrEqual(decimal("9.5")) };"#,
    ),
    (
        "ask",
        r#"permit(principal, action, resource) when { resource.effect == "read" };
        @requireApproval("it changes something") permit(principal, action, resource)
        when { resource.effect != "read" };"#,
    ),
    (
        "ask-wins",
        r#"permit(principal, action, resource);
        @requireApproval("b") permit(principal, action, resource in Server::"mail");
        @requireApproval("a") permit(principal, action, resource == Tool::"mail/send");
        @requireApproval permit(principal, action, resource == Tool::"mail/quiet");
        @id("never") forbid(principal, action, resource == Tool::"mail/wipe");"#,
    ),
    (
        "five",
        r"permit(principal, action, resource) when { context.program.calls_to_tool < 5 };",
    ),
    (
        "first-ten",
        r#"permit(principal, action, resource);
        @message("a program makes ten calls at most")
        forbid(principal, action, resource) when { context.program.call_index >= 10 };"#,
    ),
    (
        "client",
        r#"permit(principal == Client::"editor", action, resource);"#,
    ),
    (
        "client-like",
        r#"permit(principal, action, resource) when { principal.name like "ed*" && principal.transport == "socket" };"#,
    ),
    (
        "domain",
        r#"permit(principal, action, resource) when { context.arguments.to like "*@example.org" };"#,
    ),
    (
        "list",
        r#"permit(principal, action, resource)
        when { ["a", "b"].containsAll(context.arguments.names) };"#,
    ),
    (
        "text",
        r#"permit(principal, action, resource);
        forbid(principal, action, resource) when { context.arguments_json like "*secret*" };"#,
    ),
    (
        "small",
        r"permit(principal, action, resource) when { !context.arguments_omitted };",
    ),
    (
        "inside",
        r"permit(principal, action, resource) when { !resource.openWorldHint && resource.idempotentHint };",
    ),
    (
        "nested",
        r#"permit(principal, action, resource) when { context.arguments.user.role == "guest" };"#,
    ),
    (
        "entity",
        r#"permit(principal, action, resource) when { context.arguments.who == Client::"admin" };"#,
    ),
];

/// Where no policy permits a call.
const NOBODY: &str = "deny: no policy permits this call";
/// Where one cannot be evaluated.
const ERROR: &str = "deny: error";

/// Set, call, answer. A call is a tool, its arguments, then what differs from the usual, such as `effect=read`.
const ROWS: &[(&str, &str, &str)] = &[
    ("empty", "files/read {}", NOBODY),
    ("all", "files/read {}", "allow"),
    ("all", r#"bank/pay {"amount": null}"#, "allow"),
    ("all", r#"x/y {"a": [1.5, null, {"b": []}]}"#, "allow"),
    ("read", "files/read {} effect=read", "allow"),
    ("read", "files/read {} effect=write", NOBODY),
    ("read", "files/read {}", NOBODY),
    ("server", "files/read {}", "allow"),
    ("server", "files/any thing {}", "allow"),
    ("server", "other/read {}", NOBODY),
    ("server", "files2/read {}", NOBODY),
    ("tool", "files/read {}", "allow"),
    ("tool", "files/reads {}", NOBODY),
    ("tool", "files/READ {}", NOBODY),
    // The callable name of another tool's is of no use.
    ("tool", "file/s__read {} callable=mcp__files__read", NOBODY),
    ("no-destroy", "files/read {} effect=read", "allow"),
    ("no-destroy", "files/put {} effect=write", "allow"),
    (
        "no-destroy",
        "files/rm {}",
        "deny: policy \"no-destroy\": destructive tools are off on this machine",
    ),
    ("amount", r#"bank/pay {"amount": 500}"#, "allow"),
    ("amount", r#"bank/pay {"amount": 5e2}"#, "allow"),
    (
        "amount",
        r#"bank/pay {"amount": 501}"#,
        "deny: policy \"limit\" forbids this call",
    ),
    (
        "amount",
        r#"bank/pay {"amount": 501.0}"#,
        "deny: policy \"limit\" forbids this call",
    ),
    // Each of these is skipped by a forbid that cannot be evaluated: the call would be let through.
    ("amount", r#"bank/pay {"amount": "501"}"#, ERROR),
    ("amount", r#"bank/pay {"amount": 501.5}"#, ERROR),
    ("amount", r#"bank/pay {"amount": null}"#, ERROR),
    ("amount", "bank/pay {}", ERROR),
    ("amount", r#"bank/pay {"amount": [501]}"#, ERROR),
    (
        "amount",
        r#"bank/pay {"amount": {"__extn": {"fn": "decimal", "arg": "1.0"}}}"#,
        ERROR,
    ),
    (
        "amount",
        r#"bank/pay {"amount": 99999999999999999999}"#,
        ERROR,
    ),
    ("amount", "bank/list {}", "allow"),
    ("amount-guarded", "bank/pay {}", "allow"),
    ("amount-guarded", r#"bank/pay {"amount": null}"#, "allow"),
    ("amount-guarded", r#"bank/pay {"amount": "501"}"#, ERROR),
    (
        "amount-guarded",
        r#"bank/pay {"amount": 9223372036854775807}"#,
        "deny: policy \"policy1\" forbids this call",
    ),
    ("price", r#"shop/buy {"price": 9.5}"#, "allow"),
    ("price", r#"shop/buy {"price": 9}"#, "allow"),
    ("price", r#"shop/buy {"price": 9.5001}"#, NOBODY),
    ("price", r#"shop/buy {"price": 1e300}"#, ERROR),
    ("price", r#"shop/buy {"price": "9"}"#, ERROR),
    ("ask", "files/read {} effect=read", "allow"),
    ("ask", "files/rm {}", "ask: it changes something"),
    ("ask-wins", "files/read {}", "allow"),
    ("ask-wins", "mail/list {}", "ask: b"),
    ("ask-wins", "mail/send {}", "ask: a; b"),
    (
        "ask-wins",
        "mail/wipe {}",
        "deny: policy \"never\" forbids this call",
    ),
    ("ask-wins", "mail/quiet {}", "ask: b"),
    ("five", "x/y {} calls=4", "allow"),
    ("five", "x/y {} calls=5", NOBODY),
    ("first-ten", "x/y {} index=9", "allow"),
    (
        "first-ten",
        "x/y {} index=10",
        "deny: policy \"policy1\": a program makes ten calls at most",
    ),
    ("client", "x/y {} client=editor", "allow"),
    ("client", "x/y {} client=other", NOBODY),
    ("client", "x/y {}", NOBODY),
    ("client-like", "x/y {} client=editor", "allow"),
    ("client-like", "x/y {} client=Editor", NOBODY),
    ("domain", r#"mail/send {"to": "a@example.org"}"#, "allow"),
    (
        "domain",
        r#"mail/send {"to": "a@example.org.evil"}"#,
        NOBODY,
    ),
    ("domain", r#"mail/send {"to": ["a@example.org"]}"#, ERROR),
    ("list", r#"x/y {"names": ["b", "a", "b", null]}"#, "allow"),
    ("list", r#"x/y {"names": ["a", "c"]}"#, NOBODY),
    ("list", r#"x/y {"names": "a"}"#, ERROR),
    (
        "text",
        r#"x/y {"a": {"b": "top secret"}}"#,
        "deny: policy \"policy1\" forbids this call",
    ),
    ("text", r#"x/y {"a": "open"}"#, "allow"),
    ("text", "x/y {} big", ERROR),
    ("small", "x/y {} big", NOBODY),
    ("small", "x/y {}", "allow"),
    ("inside", "x/y {} inside", "allow"),
    ("inside", "x/y {}", NOBODY),
    ("nested", r#"x/y {"user": {"role": "guest"}}"#, "allow"),
    ("nested", r#"x/y {"user": {"role": "admin"}}"#, NOBODY),
    ("nested", r#"x/y {"user": "guest"}"#, ERROR),
    (
        "entity",
        r#"x/y {"who": {"__entity": {"type": "Client", "id": "admin"}}}"#,
        NOBODY,
    ),
    ("entity", r#"x/y {"who": "Client::\"admin\""}"#, NOBODY),
];

pub(crate) fn set(name: &str) -> Policies {
    let text = SETS.iter().find(|(known, _)| *known == name).unwrap().1;
    one(text).unwrap_or_else(|faults| panic!("{name}: {faults:?}"))
}

/// Every set.
pub(crate) fn sets() -> Vec<Policies> {
    SETS.iter().map(|(name, _)| set(name)).collect()
}

/// What a set says of a call with these arguments to a tool, everything else as usual.
pub(crate) fn judged(policies: &Policies, tool: &str, arguments: &Map<String, Value>) -> Verdict {
    let (server, name) = tool.split_once('/').unwrap();
    policies.judge(&call(server, name, arguments)).verdict
}

fn call<'a>(server: &'a str, name: &'a str, arguments: &'a Map<String, Value>) -> Call<'a> {
    Call {
        client: Client {
            name: "",
            version: "1.0",
            transport: "socket",
        },
        tool: Tool {
            server,
            name,
            callable: "mcp__x__y",
            effect: "destructive",
            hints: Hints::default(),
            input_schema: None,
        },
        arguments,
        program: Program {
            engine: "cpython",
            run: "r1",
            call_index: 0,
            calls_to_tool: 0,
        },
    }
}

fn answer(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Allow => "allow".to_owned(),
        Verdict::Ask { reason } => format!("ask: {reason}"),
        Verdict::Deny { reason } if reason.contains("cannot be evaluated") => ERROR.to_owned(),
        Verdict::Deny { reason } => format!("deny: {reason}"),
    }
}

#[test]
fn every_row_of_the_table_holds() {
    assert!(ROWS.len() >= 60, "{}", ROWS.len());
    let price = serde_json::json!({"properties": {"price": {"type": "number"}}});
    for (name, row, want) in ROWS {
        let policies = set(name);
        let open = row.find(" {").unwrap();
        let close = row.rfind('}').unwrap() + 1;
        let mut arguments: Map<String, Value> = serde_json::from_str(&row[open..close]).unwrap();
        let (server, tool) = row[..open].split_once('/').unwrap();
        if row.ends_with("big") {
            arguments.insert("a".to_owned(), "x".repeat(300 * 1024).into());
        }
        let mut call = call(server, tool, &arguments);
        if *name == "price" {
            call.tool.input_schema = Some(&price);
        }
        for word in row[close..].split_whitespace() {
            match word.split_once('=').unwrap_or((word, "")) {
                ("effect", effect) => call.tool.effect = effect,
                ("callable", callable) => call.tool.callable = callable,
                ("client", client) => call.client.name = client,
                ("calls", calls) => call.program.calls_to_tool = calls.parse().unwrap(),
                ("index", index) => call.program.call_index = index.parse().unwrap(),
                ("inside", _) => {
                    call.tool.hints.open_world = false;
                    call.tool.hints.idempotent = true;
                }
                ("big", _) => {}
                other => panic!("{other:?}"),
            }
        }
        let judged = policies.judge(&call);
        assert_eq!(answer(&judged.verdict), *want, "{name}: {row}: {judged:?}");
        // An error never stands beside a call that may be made.
        assert!(
            judged.errors.is_empty() || want.starts_with("deny"),
            "{judged:?}"
        );
        assert_eq!(judged, policies.judge(&call), "{name}: {row}");
    }
}

#[test]
fn a_slash_in_a_servers_name_makes_no_other_tool_of_it() {
    let policies = one(r#"permit(principal, action, resource == Tool::"a/b/c");"#).unwrap();
    let none = Map::new();
    assert_eq!(
        policies.judge(&call("a", "b/c", &none)).verdict,
        Verdict::Allow
    );
    let other = policies.judge(&call("a/b", "c", &none)).verdict;
    assert!(matches!(other, Verdict::Deny { .. }), "{other:?}");
}

#[test]
fn what_decided_and_what_failed_is_told_apart_from_what_a_program_hears() {
    let policies = set("amount");
    let arguments = serde_json::json!({"amount": "hunter2"});
    let call = call("bank", "pay", arguments.as_object().unwrap());
    let judged = policies.judge(&call);
    assert_eq!(judged.policies, ["policy0"]);
    assert_eq!(judged.errors.len(), 1);
    assert!(judged.errors[0].contains("limit"), "{judged:?}");
    let Verdict::Deny { reason } = judged.verdict else {
        panic!("{judged:?}")
    };
    assert!(
        !reason.contains("hunter2") && !reason.contains("500"),
        "{reason}"
    );
}

#[test]
fn a_rubric_counts_wherever_one_permit_names_it_and_nothing_else_denies() {
    let policies = one(
        r#"permit(principal, action, resource);
        @risk("careful") permit(principal, action, resource in Server::"mail");
        @risk("careful") @requireApproval("b") permit(principal, action, resource == Tool::"mail/send");
        forbid(principal, action, resource == Tool::"mail/wipe");"#,
    )
    .unwrap();
    let none = Map::new();
    let risks = |tool: &str| policies.judge(&call("mail", tool, &none));
    assert_eq!(risks("read").risks, ["careful"]);
    assert_eq!(risks("read").verdict, Verdict::Allow);
    assert_eq!(risks("send").risks, ["careful"]);
    assert!(matches!(risks("send").verdict, Verdict::Ask { .. }));
    assert!(risks("wipe").risks.is_empty());
    assert!(
        policies
            .judge(&call("files", "read", &none))
            .risks
            .is_empty()
    );
}
