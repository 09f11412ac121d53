//! What a configuration means, and every fault that is found in one.

use std::time::Duration;

use super::*;
use crate::config::{
    EngineName, EnginesConfig, Profile, ProfileLimits, Profiles, SubmitConfig, parse,
};

fn good(text: &str) -> Config {
    parse(text, Path::new("/conf/c.yaml")).unwrap_or_else(|faults| panic!("{faults}"))
}

/// Every fault as `LINE:COLUMN: message`.
fn faults(text: &str) -> Vec<String> {
    let faults = parse(text, Path::new("c")).expect_err(text);
    let lines = faults.lines();
    lines
        .iter()
        .map(|line| line.strip_prefix("c:").unwrap().to_owned())
        .collect()
}

#[test]
fn a_pattern_that_matches_no_callable_name_is_a_fault() {
    for (pattern, write) in [
        ("mcp__odd-tools__inj", Some("\"mcp__odd_tools__inj\"")),
        ("mcp__a.b__*", Some("\"mcp__a_b__*\"")),
        ("odd_tools", Some("\"mcp__odd_tools__*\"")),
        ("github__*", Some("\"mcp__github__*\"")),
        ("mcp", Some("\"mcp__mcp__*\"")),
        ("mcp__a__*", None),
        ("{mcp__a,mcp__b}__*", Some("")),
        ("*", None),
        ("*__create_?", None),
        ("m*", None),
        ("mcp__[a-z.]*", None),
        ("[m]cp__a__b", None),
    ] {
        let fault = never_matches(pattern);
        assert_eq!(fault.is_some(), write.is_some(), "{pattern}: {fault:?}");
        if let (Some(fault), Some(write)) = (fault, write) {
            assert!(
                write.is_empty() || fault.ends_with(&format!("write {write}")),
                "{fault}"
            );
        }
    }
}

#[test]
fn files_that_say_nothing_give_the_defaults() {
    for text in [
        "",
        "# nothing\n",
        "---\n",
        "servers:\n",
        "servers: []\n",
        "servers: ~\ntools:\nexecution:\ndaemon: {}\njournal: null\n",
        "execution:\n  pool:\n",
    ] {
        assert_eq!(good(text), Config::default(), "{text:?}");
    }
}

const SMALL: PoolConfig = PoolConfig {
    warm: 0,
    max: 1,
    start: StartChoice::Exec,
};

const STRICT: SubmitConfig = SubmitConfig {
    witness_required: true,
    profile: Profile::Minimal,
    work_calls: 8,
    submissions: 9,
};

fn both(worker: &str) -> EnginesConfig {
    EnginesConfig {
        default: EngineName::Monty,
        offered: vec![EngineName::Monty, EngineName::Cpython],
        monty_worker: Some(worker.into()),
    }
}

#[test]
fn every_key_is_read() {
    let config = good(
        "tools: {allow: ['mcp__a__*'], expose: [inspect_tool, execute_program]}\n\
         execution:\n  timeout_seconds: 0.5\n  max_output_bytes: 4194304\n  sandbox: landlock\n\
         \x20 engine: monty\n  engines: [monty, cpython]\n  monty_worker: w\n\
         \x20 python: bin/python3\n  max_tool_calls: 1\n  max_concurrent_calls: 2\n\
         \x20 tool_call_timeout_seconds: 3\n  trace: off\n  max_tool_result_bytes: 50331648\n\
         \x20 memory_bytes: 67108868\n  scratch_bytes: 5\n  max_threads: 6\n  max_runs: 7\n\
         \x20 check_arguments: off\n  structured_content: lean\n  step_budget: 5000\n\
         \x20 pool: {warm: 0, max: 1, start: exec}\n\
         \x20 container: {engine: podman, image: 'python@sha256:0'}\n\
         daemon: {drain_seconds: 9, idle_server_seconds: 60}\n\
         journal: {path: j, record: full, keep_runs: 1, keep_days: 30, keep_bytes: 2, share: own}\n\
         submit: {witness_required: on, profile: minimal, work_calls: 8, submissions: 9}\n\
         profiles: {minimal: {timeout_seconds: 1.5, memory_bytes: 67108864}}\n",
    );
    let expected = Config {
        servers: Vec::new(),
        tools: ToolsConfig {
            filter: ToolFilter::Allow(vec!["mcp__a__*".to_owned()]),
            expose: vec![ExposedTool::InspectTool, ExposedTool::ExecuteProgram],
        },
        policy: Config::default().policy,
        execution: ExecutionConfig {
            timeout: Duration::from_millis(500),
            max_output_bytes: 4 * 1024 * 1024,
            engines: both("/conf/w"),
            sandbox: SandboxChoice::Landlock,
            python: Some("/conf/bin/python3".into()),
            max_tool_calls: 1,
            max_concurrent_calls: 2,
            tool_call_timeout: Duration::from_secs(3),
            trace: false,
            max_tool_result_bytes: 48 * 1024 * 1024,
            memory_bytes: 67_108_868,
            scratch_bytes: 5,
            max_threads: 6,
            max_runs: 7,
            check_arguments: false,
            structured_content: StructuredContent::Lean,
            step_budget: Some(5000),
            pool: SMALL,
            container: ContainerConfig {
                engine: EngineChoice::Podman,
                image: Some("python@sha256:0".to_owned()),
            },
        },
        daemon: DaemonConfig {
            drain: Duration::from_secs(9),
            idle_server: Duration::from_mins(1),
        },
        journal: JournalConfig {
            path: Some("/conf/j".into()),
            record: Record::Full,
            keep_runs: 1,
            keep_bytes: 2,
            ..Config::default().journal
        },
        submit: STRICT,
        profiles: Profiles {
            minimal: ProfileLimits {
                timeout: Duration::from_millis(1500),
                memory_bytes: 67_108_864,
            },
            ..Profiles::default()
        },
    };
    assert_eq!(config, expected);
}

#[test]
fn words_for_off_are_read_in_every_spelling() {
    for word in ["off", "Off", "false", "no", "\"off\""] {
        let config = good(&format!(
            "execution: {{trace: {word}, check_arguments: {word}, structured_content: {word}}}\n\
                 journal: {{record: {word}}}\n"
        ));
        assert!(!config.execution.trace, "{word}");
        assert!(!config.execution.check_arguments);
        assert_eq!(config.execution.structured_content, StructuredContent::Off);
        assert_eq!(config.journal.record, Record::Off);
    }
    for word in ["on", "true", "Yes"] {
        let text = format!("execution: {{check_arguments: {word}}}\n");
        assert_eq!(good(&text), Config::default());
    }
    let words = [
        "auto",
        "native",
        "full",
        "landlock",
        "seatbelt",
        "container",
        "none",
    ];
    for word in words {
        let config = good(&format!("execution: {{sandbox: {word}}}\n"));
        assert_eq!(config.execution.sandbox.as_str(), word);
    }
}

#[test]
fn every_bad_value_is_in_one_answer_with_its_place_and_what_is_allowed() {
    let text = "execution:\n  timeout_seconds: '90s'\n  max_output_bytes: 4194305\n\
                    \x20 max_tool_calls: 2.5\n  max_concurrent_calls: 0\n  sandbox: chroot\n\
                    \x20 trace: yes\n  memory_bytes: 0777\n  max_runs: -3\n  max_threads:\n\
                    \x20 pool: {warm: 9, max: 3}\n  structured_content: [full]\n\
                    \x20 max_tool_result_bytes: 50331649\n  tool_call_timeout_seconds: 0\n";
    assert_eq!(
        faults(text),
        [
            "2:20: execution.timeout_seconds must be a number of seconds above 0, at most 31536000, not \"90s\"",
            "3:21: execution.max_output_bytes must be a whole number from 1 to 4194304, not \"4194305\"",
            "4:19: execution.max_tool_calls must be a whole number from 1 to 1000000, not \"2.5\"",
            "5:25: execution.max_concurrent_calls must be a whole number from 1 to 1000000, not \"0\"",
            "6:12: execution.sandbox must be one of auto, native, full, landlock, seatbelt, container, none, not \"chroot\"",
            "7:10: execution.trace must be one of summary, off, not \"yes\"",
            "8:17: execution.memory_bytes must be a whole number from 67108864 to 1099511627776, not \"0777\"",
            "9:13: execution.max_runs must be a whole number from 1 to 1000000, not \"-3\"",
            "10:14: execution.max_threads must be a whole number from 1 to 1000000, not nothing; leave the key out for its default",
            "11:16: execution.pool.warm is 9 and must not be above max, 3",
            "12:23: execution.structured_content must be one of full, lean, off, not a list",
            "13:26: execution.max_tool_result_bytes must be a whole number from 1 to 50331648, not \"50331649\"",
            "14:30: execution.tool_call_timeout_seconds must be a number of seconds above 0, at most 31536000, not \"0\"",
        ]
    );
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    assert_eq!(
        faults("logging: {level: x}\nexecutions: {}\nexecution:\n  timeout: 5\n  pool: {min: 1}\n"),
        [
            "1:1: unknown key \"logging\": the keys here are servers, tools, policy, execution, daemon, journal, submit, profiles",
            "2:1: unknown key \"executions\": did you mean execution?",
            "4:3: unknown key execution.\"timeout\": did you mean timeout_seconds?",
            "5:10: unknown key execution.pool.\"min\": the keys here are warm, max, start",
        ]
    );
    assert_eq!(good("x-shared: &a {b: 1}\n"), Config::default());
}

#[test]
fn a_step_budget_is_off_or_of_some_size() {
    let budget = |value: &str| {
        let config = good(&format!("execution: {{step_budget: {value}}}\n"));
        config.execution.step_budget
    };
    assert_eq!(budget("off"), None);
    assert_eq!(budget("1000"), Some(1000));
    for value in ["0", "999", "on", "1e6"] {
        let faults = faults(&format!("execution: {{step_budget: {value}}}\n"));
        assert!(faults[0].contains("from 1000 to"), "{faults:?}");
    }
}

#[test]
fn other_programs_layouts_are_answered_with_ours() {
    for (text, name) in [
        (
            "{\"mcpServers\": {\"time\": {\"command\": \"uvx\"}}}",
            "time",
        ),
        ("mcp_servers:\n  docs:\n    url: x\n", "docs"),
        ("mcp:\n  servers:\n    git: {}\n", "git"),
        ("servers:\n  files:\n    type: stdio\n", "files"),
        ("context_servers: {}\n", "NAME"),
    ] {
        let found = faults(text);
        assert_eq!(found.len(), 1, "{found:?}");
        let layout = format!(
            "write `servers: [{{name: \"{name}\", transport: stdio, command: COMMAND, args: [ARG]}}]`"
        );
        assert!(found[0].contains(&layout), "{found:?}");
    }
    let key = &faults("{\"mcpServers\": {}}")[0];
    assert!(
        key.starts_with("1:2: mcpServers is another program's layout"),
        "{key}"
    );
}

#[test]
fn the_file_must_be_a_mapping_of_mappings() {
    for (text, words) in [
        ("- a\n", "not a list: begin with `servers:`"),
        ("just text\n", "not text: begin with `servers:`"),
        ("servers: x\n", "servers must be a list"),
        ("execution: [1]\n", "not a list"),
        (
            "tools: all\n",
            "tools is a mapping with the keys allow, block, expose, not text",
        ),
    ] {
        let found = faults(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(words), "{found:?}");
    }
}

#[test]
fn allow_and_block_are_lists_that_exclude_each_other() {
    let filter = |text: &str| good(text).tools.filter;
    assert_eq!(filter("tools: {allow: []}\n"), ToolFilter::Allow(vec![]));
    assert_eq!(filter("tools: {block: []}\n"), ToolFilter::All);
    assert_eq!(
        filter("tools: {block: ['*__delete_[a-c]?', mcp__5]}\n"),
        ToolFilter::Block(vec!["*__delete_[a-c]?".to_owned(), "mcp__5".to_owned()])
    );
    assert_eq!(
        filter("tools: {allow: ['*a'], block: []}\n"),
        ToolFilter::Allow(vec!["*a".to_owned()])
    );
    for (text, words) in [
        (
            "tools: {allow: 'mcp__*'}\n",
            "tools.allow must be a list, such as `allow: [one, two]`, not text",
        ),
        ("tools: {allow:}\n", "write [] for none"),
        ("tools: {block: ~}\n", "write [] for none"),
        (
            "tools: {block: [[a]]}\n",
            "tools.block[0] must be text, not a list",
        ),
        ("tools: {block: ['a[']}\n", "tools.block: pattern \"a[\": "),
        ("tools: {block: ['']}\n", "an empty pattern"),
        (
            "tools:\n  allow: ['*a']\n  block: ['*b']\n",
            "tools.allow (line 2) and tools.block exclude each other",
        ),
        ("tools: {allow: [], block: ['*b']}\n", "exclude each other"),
        (
            "tools: {expose: execute_program}\n",
            "tools.expose must be a list",
        ),
        (
            "tools: {expose: [run]}\n",
            "the names are execute_program, inspect_tool, list_callable_tools",
        ),
        (
            "tools: {expose: [inspect_tool, inspect_tool]}\n",
            "already in the list",
        ),
    ] {
        let found = faults(text);
        assert_eq!(found.len(), 1, "{text} {found:?}");
        assert!(found[0].contains(words), "{text} {found:?}");
    }
}

#[test]
fn paths_start_from_the_files_folder_or_from_home() {
    let python = |text: &str| {
        good(&format!("execution: {{python: {text}}}\n"))
            .execution
            .python
    };
    assert_eq!(python("python3.12"), Some("python3.12".into()));
    assert_eq!(python("./py"), Some("/conf/./py".into()));
    assert_eq!(python("/usr/bin/python3"), Some("/usr/bin/python3".into()));
    if let Some(home) = std::env::home_dir() {
        assert_eq!(python("~/py"), Some(home.join("py")));
    }
    for text in [
        "execution: {python: ''}\n",
        "execution: {python: '${PY}'}\n",
        "journal: {path: ~}\n",
    ] {
        assert_eq!(faults(text).len(), 1, "{text}");
    }
    for key in [
        "policy: {cedar",
        "journal: {path",
        "execution: {monty_worker",
        "servers: [{name: a, command: b, cwd",
        "servers: [{name: a, command",
    ] {
        let end = if key.starts_with("servers") {
            "}]"
        } else {
            "}"
        };
        let text = |bytes: usize| format!("{key}: {}{end}\n", "a".repeat(bytes));
        good(&text(MAX_PATH));
        let found = faults(&text(MAX_PATH + 1));
        assert_eq!(found.len(), 1, "{key}: {found:?}");
        assert!(
            found[0].contains("4095 bytes") && found[0].starts_with("1:"),
            "{found:?}"
        );
    }
}

#[test]
fn the_example_file_holds_the_defaults() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../config.example.yaml");
    let text = std::fs::read_to_string(example).unwrap();
    assert_eq!(good(&text), Config::default());
    // With its commented lines taken in, it is a valid file still, and names every key.
    let whole: String = text
        .lines()
        .map(|line| match line.strip_prefix("#| ") {
            Some(rest) => format!("{rest}\n"),
            None => format!("{line}\n"),
        })
        .collect();
    let whole = whole.replace("servers: []", "");
    assert_eq!(good(&whole).servers.len(), 2);
    let mut keys = Vec::new();
    keys.extend(TOP_KEYS);
    keys.extend(TOOLS_KEYS);
    keys.extend(EXECUTION_KEYS);
    keys.extend(POOL_KEYS);
    keys.extend(DAEMON_KEYS);
    keys.extend(JOURNAL_KEYS);
    keys.extend(submit::SUBMIT_KEYS);
    keys.extend(submit::PROFILES_KEYS);
    keys.extend(submit::PROFILE_KEYS);
    keys.extend(servers::KEYS);
    for key in keys {
        assert!(text.contains(&format!("{key}:")), "{key}");
    }
}
