//! The policies that the documentation works out, each with calls that it lets through and calls that it does not.

use serde_json::{Map, Value, json};

use super::{CallFacts, Effect, Policy, ProgramFacts, StartFacts, ToolFacts, Verdict};
use crate::config::{Config, EffectsConfig};

/// One call: tool, arguments, calls of the tool and of the program before it, client.
type Row = (&'static str, Value, (u64, u64), &'static str);

const PAGE: &str = include_str!("../../../docs/policy.md");

/// The Cedar texts of the page, in its order.
fn texts() -> Vec<String> {
    let mut texts = Vec::new();
    let mut open: Option<String> = None;
    for line in PAGE.lines() {
        match (line.trim(), &mut open) {
            ("```cedar", _) => open = Some(String::new()),
            ("```", Some(_)) => texts.extend(open.take()),
            (_, Some(text)) => {
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    texts
}

fn policy(folder: &std::path::Path, text: &str) -> Policy {
    let file = folder.join("policy.cedar");
    std::fs::write(&file, text).unwrap();
    let mut config = Config::default();
    config.policy.cedar = Some(file);
    config.policy.effects = EffectsConfig {
        read: vec!["mcp__m__look".to_owned()],
        write: vec!["mcp__m__add".to_owned()],
        destructive: Vec::new(),
    };
    Policy::load(&config, &|_| Ok(String::new())).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn allows(policy: &Policy, (tool, arguments, counts, client): &Row) -> bool {
    let (server, name) = tool.split_once('/').unwrap();
    let callable = crate::names::plain(server, name);
    let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
    let call = CallFacts {
        tool: ToolFacts {
            callable: &callable,
            plain: &callable,
            server,
            tool: name,
            description: None,
            annotations: None,
            input_schema: None,
            output_schema: None,
        },
        arguments: &arguments,
    };
    let program = ProgramFacts {
        client,
        version: "1",
        engine: "cpython",
        run: "r",
        call_index: counts.1,
        calls_to_tool: counts.0,
    };
    policy.decide(&call, &program).verdict == Verdict::Allow
}

/// Of each policy: what goes through, and what does not.
fn table() -> Vec<(Vec<Row>, Vec<Row>)> {
    let row = |tool, arguments| (tool, arguments, (0, 0), "editor");
    let none = || json!({});
    vec![
        (
            vec![row("m/look", none())],
            vec![row("m/add", none()), row("m/wipe", none())],
        ),
        (
            vec![row("m/look", none()), row("m/add", none())],
            vec![row("m/wipe", none())],
        ),
        (
            vec![row("m/wipe", none()), row("files/read_file", none())],
            vec![row("files/write_file", none()), row("m2/look", none())],
        ),
        (
            vec![row("m/add", json!({"a": 500})), row("m/wipe", none())],
            vec![
                row("m/add", json!({"a": 501})),
                row("m/add", json!({"a": "501"})),
                row("m/add", none()),
            ],
        ),
        (
            vec![
                ("m/echo", none(), (1, 7), "editor"),
                ("m/add", none(), (2, 7), "editor"),
            ],
            vec![("m/echo", none(), (2, 7), "editor")],
        ),
        (
            vec![row("m/echo", json!({"to": "a@example.org"}))],
            vec![
                row("m/echo", json!({"to": "a@example.com"})),
                row("m/echo", none()),
                row("m/add", json!({"to": "a@example.org"})),
            ],
        ),
        (
            vec![row("m/echo", json!({"text": "hello"}))],
            vec![row(
                "m/echo",
                json!({"a": [{"b": "-----BEGIN PRIVATE KEY-----"}]}),
            )],
        ),
        (
            vec![("m/wipe", none(), (0, 0), "ptcctl")],
            vec![row("m/wipe", none()), ("m/wipe", none(), (0, 0), "")],
        ),
        (
            vec![row("m/echo", json!({"target": "test"}))],
            vec![
                row("m/echo", json!({"target": "production"})),
                row("m/echo", json!({"target": ["test"]})),
                row("m/echo", none()),
            ],
        ),
        (
            vec![("m/wipe", none(), (0, 49), "editor")],
            vec![
                ("m/wipe", none(), (0, 50), "editor"),
                row("m/wipe", json!({"a": "x".repeat(300_000)})),
            ],
        ),
        // About programs; all calls of those that start go through.
        (vec![row("m/wipe", none())], Vec::new()),
    ]
}

#[test]
fn every_worked_policy_does_what_the_page_says() {
    let table = table();
    let texts = texts();
    assert_eq!(texts.len(), table.len());
    let folder = tempfile::tempdir().unwrap();
    for (text, (through, denied)) in texts.iter().zip(&table) {
        let policy = policy(folder.path(), text);
        for row in through {
            assert!(allows(&policy, row), "{text}\n{row:?}");
        }
        for row in denied {
            assert!(!allows(&policy, row), "{text}\n{row:?}");
        }
    }
}

#[test]
fn the_worked_policy_of_programs_says_who_starts_them_and_the_others_let_all_start() {
    let folder = tempfile::tempdir().unwrap();
    let texts = texts();
    let (last, others) = texts.split_last().unwrap();
    let said = |text: &str, client, engine| {
        let start = StartFacts {
            client,
            version: "1",
            engine,
        };
        policy(folder.path(), text).decide_start(&start)
    };
    for text in others {
        assert_eq!(said(text, "editor", "cpython"), None, "{text}");
    }
    let may = |client, engine| said(last, client, engine).unwrap().denied.is_none();
    assert!(may("editor", "cpython") && may("editor", "monty"));
    assert!(!may("unattended", "cpython") && may("unattended", "monty"));
    assert!(!may("guest", "cpython") && !may("guest", "monty"));
    let denied = said(last, "guest", "monty").unwrap();
    let told = "policy \"no-guests\": guests start no programs here";
    assert_eq!(denied.denied.as_deref(), Some(told));
    assert_eq!(denied.policies, ["no-guests"]);
}

#[test]
fn what_is_no_file_of_text_in_a_folder_is_named_and_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.cedar");
    let said = || {
        let mut config = Config::default();
        config.policy.cedar = Some(folder.path().to_owned());
        let loaded = Policy::load(&config, &|_| Ok(String::new()));
        loaded.unwrap_err().to_string()
    };
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &file, pipe, 0o600.into(), 0).unwrap();
    assert!(said().contains("a.cedar is no file"), "{}", said());
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("nowhere.cedar", &file).unwrap();
    assert!(said().contains("a.cedar: No such file"), "{}", said());
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, b"// first\n// \xff\n").unwrap();
    assert!(
        said().contains("a.cedar:2: this is no UTF-8 text"),
        "{}",
        said()
    );
    std::fs::write(&file, "permit(principal, action, resource);\0").unwrap();
    assert!(said().contains("a.cedar:1:"), "{}", said());
    std::fs::write(&file, "é".repeat(1024 * 1024)).unwrap();
    assert!(said().contains("more than 1048576 bytes"), "{}", said());
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(said().contains("a.cedar is no file"), "{}", said());
}

#[test]
fn the_files_of_a_folder_make_one_set_and_what_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let load = |path: &std::path::Path| {
        let mut config = Config::default();
        config.policy.cedar = Some(path.to_owned());
        Policy::load(&config, &|_| Ok(String::new()))
    };
    let said = |path: &std::path::Path| load(path).unwrap_err().to_string();
    assert!(said(folder.path()).contains("holds no file that ends in .cedar"));
    assert!(said(&folder.path().join("none")).contains("No such file"));
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.cedar", "permit(principal, action, resource);");
    write("b.cedar", "@id(\"x\") permit(principal, action, resource);");
    write("c.txt", "no policy");
    let policy = load(folder.path()).unwrap();
    let before = policy.cedar().unwrap();
    assert_eq!((before.count, before.digest.len()), (2, 12));
    let decision = {
        let arguments = Map::new();
        let call = CallFacts {
            tool: ToolFacts {
                callable: "mcp__m__t",
                plain: "mcp__m__t",
                server: "m",
                tool: "t",
                description: None,
                annotations: None,
                input_schema: None,
                output_schema: None,
            },
            arguments: &arguments,
        };
        let program = ProgramFacts {
            client: "",
            version: "",
            engine: "cpython",
            run: "r",
            call_index: 0,
            calls_to_tool: 0,
        };
        policy.decide(&call, &program)
    };
    assert_eq!(decision.policies, ["a/policy0", "b/x"]);
    assert_eq!(decision.effect, Effect::Destructive);
    write("b.cedar", "nonsense");
    assert!(said(folder.path()).contains("b.cedar:1:"));
    write("b.cedar", &"/".repeat(1024 * 1024));
    assert!(said(folder.path()).contains("more than 1048576 bytes together"));
}
