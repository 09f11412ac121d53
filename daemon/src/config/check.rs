//! From the file's nodes to the configuration, every fault on the way noted.

use std::path::{Path, PathBuf};

use globset::GlobBuilder;

use super::fault::{Fault, shown};
use super::fields::{Section, Words};
use super::raw::{Entry, Node, Value};
use super::{
    Config, ContainerConfig, DaemonConfig, EngineChoice, ExecutionConfig, ExposedTool,
    JournalConfig, PoolConfig, Record, SandboxChoice, Share, StartChoice, StructuredContent,
    ToolFilter, ToolsConfig, engines, home_path, later, policy, servers, submit,
};

const TOP_KEYS: [&str; 8] = [
    "servers",
    "tools",
    "policy",
    "execution",
    "daemon",
    "journal",
    "submit",
    "profiles",
];
const TOOLS_KEYS: [&str; 3] = ["allow", "block", "expose"];
const EXECUTION_KEYS: [&str; 21] = [
    "timeout_seconds",
    "max_output_bytes",
    "engine",
    "engines",
    "monty_worker",
    "sandbox",
    "python",
    "max_tool_calls",
    "max_concurrent_calls",
    "tool_call_timeout_seconds",
    "trace",
    "max_tool_result_bytes",
    "memory_bytes",
    "scratch_bytes",
    "max_threads",
    "max_runs",
    "check_arguments",
    "structured_content",
    "step_budget",
    "pool",
    "container",
];
const CONTAINER_KEYS: [&str; 2] = ["engine", "image"];
const POOL_KEYS: [&str; 3] = ["warm", "max", "start"];
const DAEMON_KEYS: [&str; 2] = ["drain_seconds", "idle_server_seconds"];
const JOURNAL_KEYS: [&str; 6] = [
    "path",
    "record",
    "keep_runs",
    "keep_days",
    "keep_bytes",
    "share",
];

const MIB: u64 = 1024 * 1024;
/// Bounds of what counts calls, runs, threads and the like.
pub(super) const COUNT: (u64, u64) = (1, 1_000_000);
/// Bounds of what counts warm workers; none is fine.
const WARM: (u64, u64) = (0, 1024);
/// Bounds of `max_output_bytes`.
const OUTPUT: (u64, u64) = (1, 4 * MIB);
/// Bounds of `max_tool_result_bytes`.
const RESULT: (u64, u64) = (1, 48 * MIB);
/// Bounds of a program's memory and files: up to 1 TiB.
pub(super) const MEMORY: (u64, u64) = (LEAST_MEMORY, MIB * MIB);
/// Under this an interpreter with the modules of a worker does not start.
const LEAST_MEMORY: u64 = 64 * MIB;
/// Bounds of `step_budget`; any smaller one would end a program before its imports are read.
const STEPS: (u64, u64) = (1_000, 1_000_000_000_000);
const OFF: [&str; 3] = ["off", "false", "no"];
const SCRATCH: (u64, u64) = (1, MIB * MIB);
/// Bounds of what the journal keeps: up to 1 PiB.
const KEEP: (u64, u64) = (1, 1024 * MIB * MIB);

const ENGINE: &Words<EngineChoice> = &[
    (&["auto"], EngineChoice::Auto),
    (&["docker"], EngineChoice::Docker),
    (&["podman"], EngineChoice::Podman),
];
const START: &Words<StartChoice> = &[
    (&["auto"], StartChoice::Auto),
    (&["exec"], StartChoice::Exec),
];
const SANDBOX: &Words<SandboxChoice> = &[
    (&["auto"], SandboxChoice::Auto),
    (&["native"], SandboxChoice::Native),
    (&["full"], SandboxChoice::Full),
    (&["landlock"], SandboxChoice::Landlock),
    (&["seatbelt"], SandboxChoice::Seatbelt),
    (&["container"], SandboxChoice::Container),
    (&["none"], SandboxChoice::None),
];
const TRACE: &Words<bool> = &[(&["summary"], true), (&["off", "false", "no"], false)];
const STRUCTURED: &Words<StructuredContent> = &[
    (&["full"], StructuredContent::Full),
    (&["lean"], StructuredContent::Lean),
    (&["off", "false", "no"], StructuredContent::Off),
];
const RECORD: &Words<Record> = &[
    (&["full"], Record::Full),
    (&["hashes"], Record::Hashes),
    (&["off", "false", "no"], Record::Off),
];
const SHARE: &Words<Share> = &[(&["own"], Share::Own), (&["all"], Share::All)];

/// The configuration that `root` describes, with defaults in the place of what is missing or at fault.
pub(super) fn resolve(root: Option<&Node>, base: &Path, faults: &mut Vec<Fault>) -> Config {
    let mut config = Config::default();
    let Some(root) = root.filter(|root| !root.is_null()) else {
        return config;
    };
    let Value::Map(entries) = &root.value else {
        let message = format!(
            "the file must be a mapping with the keys {}, not {}: begin with `servers:`",
            TOP_KEYS.join(", "),
            root.kind()
        );
        faults.push(Fault::at(root.at, &message));
        return config;
    };
    let top = Section::of_file(root.at, entries);
    for entry in entries {
        if later::is_foreign_servers(&entry.key) {
            faults.push(foreign_layout(entry));
        } else if !TOP_KEYS.contains(&entry.key.as_str()) && !entry.key.starts_with("x-") {
            top.unknown(entry, &TOP_KEYS, faults);
        }
    }
    if let Some(entry) = top.get("servers") {
        if matches!(entry.node.value, Value::Map(_)) {
            faults.push(foreign_layout(entry));
        } else {
            config.servers = servers::resolve(&entry.node, base, faults);
        }
    }
    let open = |key: &'static str, known: &[&str], faults: &mut Vec<Fault>| {
        let node = &top.get(key)?.node;
        Section::open(node, key.to_owned(), key, known, faults)
    };
    if let Some(section) = open("tools", &TOOLS_KEYS, faults) {
        config.tools = tools(&section, config.tools, faults);
    }
    if let Some(section) = open("policy", &policy::POLICY_KEYS, faults) {
        config.policy = policy::policy(&section, base, faults);
    }
    if let Some(section) = open("execution", &EXECUTION_KEYS, faults) {
        config.execution = execution(&section, &config.execution, base, faults);
    }
    if let Some(section) = open("daemon", &DAEMON_KEYS, faults) {
        let default = config.daemon;
        config.daemon = DaemonConfig {
            drain: section.seconds("drain_seconds", default.drain, faults),
            idle_server: section.seconds("idle_server_seconds", default.idle_server, faults),
        };
    }
    if let Some(section) = open("journal", &JOURNAL_KEYS, faults) {
        config.journal = journal(&section, &config.journal, base, faults);
    }
    if let Some(section) = open("submit", &submit::SUBMIT_KEYS, faults) {
        config.submit = submit::submit(&section, &config.submit, faults);
    }
    if let Some(section) = open("profiles", &submit::PROFILES_KEYS, faults) {
        config.profiles = submit::profiles(&section, config.profiles, faults);
    }
    config
}

/// The fault of servers written in another program's way, with the first one written in ours.
fn foreign_layout(entry: &Entry) -> Fault {
    let first = match &entry.node.value {
        Value::Map(servers) => match servers.first() {
            // The layout with one more level: `mcp: {servers: {NAME: …}}`.
            Some(inner) if entry.key == "mcp" && inner.key == "servers" => {
                match &inner.node.value {
                    Value::Map(servers) => servers.first(),
                    _ => None,
                }
            }
            first => first,
        },
        _ => None,
    };
    let name = first.map_or("NAME", |entry| entry.key.as_str());
    let key = &entry.key;
    let how = if key == "servers" {
        "servers is a list, not a mapping".to_owned()
    } else {
        format!("{key} is another program's layout")
    };
    Fault::at(
        entry.at,
        &format!(
            "{how}: write `servers: [{{name: {}, transport: stdio, command: COMMAND, args: [ARG]}}]`, an entry a server",
            shown(name)
        ),
    )
}

fn tools(section: &Section<'_>, default: ToolsConfig, faults: &mut Vec<Fault>) -> ToolsConfig {
    let allow = globs(section, "allow", faults);
    let block = globs(section, "block", faults).filter(|globs| !globs.is_empty());
    let filter = match (allow, block) {
        (None, None) => ToolFilter::All,
        (Some(globs), None) => ToolFilter::Allow(globs),
        (None, Some(globs)) => ToolFilter::Block(globs),
        (Some(globs), Some(_)) => {
            if let (Some(allow), Some(block)) = (section.get("allow"), section.get("block")) {
                let message = format!(
                    "tools.allow (line {}) and tools.block exclude each other: keep one of them",
                    allow.at.line
                );
                faults.push(Fault::at(block.at, &message));
            }
            ToolFilter::Allow(globs)
        }
    };
    ToolsConfig {
        filter,
        expose: expose(section, default.expose, faults),
    }
}

/// The globs of `allow` or `block`; `None` where the key is absent.
pub(super) fn globs(
    section: &Section<'_>,
    key: &str,
    faults: &mut Vec<Fault>,
) -> Option<Vec<String>> {
    let entry = section.get(key)?;
    if entry.node.is_null() {
        let path = section.path(key);
        let message = format!("{path} has no value: write [] for none, or leave the key out");
        faults.push(Fault::at(entry.at, &message));
        return None;
    }
    let mut globs = Vec::new();
    for (text, at) in section.texts(key, faults) {
        let fault = if text.is_empty() {
            Some("an empty pattern matches nothing".to_owned())
        } else {
            let glob = GlobBuilder::new(text).literal_separator(false).build();
            let broken = glob.err().map(|error| error.kind().to_string());
            broken.or_else(|| never_matches(text))
        };
        match fault {
            None => globs.push(text.to_owned()),
            Some(fault) => {
                let message = format!("{}: pattern {}: {fault}", section.path(key), shown(text));
                faults.push(Fault::at(at, &message));
            }
        }
    }
    Some(globs)
}

/// Why a pattern can match no callable name, whatever servers there are.
fn never_matches(pattern: &str) -> Option<String> {
    const START: &str = "mcp__";
    let special = |c: char| "*?[".contains(c);
    // What stands in a class may be anything; what stands outside is matched as it is.
    if pattern.contains(['{', '}', '\\']) {
        return Some(
            "a pattern has `*`, `?` and `[...]`, and neither braces nor backslashes".to_owned(),
        );
    }
    if !pattern.contains('[') {
        let odd = |c: char| !c.is_ascii_alphanumeric() && c != '_' && !special(c);
        if pattern.contains(odd) {
            let folded = pattern.replace(odd, "_");
            return Some(format!(
                "it matches no callable name, which has ASCII letters, digits and _ only: write {}",
                shown(&folded)
            ));
        }
    }
    let literal = pattern.split(special).next().unwrap_or_default();
    let begins = literal.starts_with(START) || (START.starts_with(literal) && literal != pattern);
    (!begins).then(|| {
        let written = format!("{START}{}__*", literal.trim_end_matches('_'));
        format!(
            "it matches no callable name, which begins with {START}: write {}",
            shown(&written)
        )
    })
}

fn expose(
    section: &Section<'_>,
    default: Vec<ExposedTool>,
    faults: &mut Vec<Fault>,
) -> Vec<ExposedTool> {
    const ALL: [ExposedTool; 6] = [
        ExposedTool::ExecuteProgram,
        ExposedTool::InspectTool,
        ExposedTool::ListCallableTools,
        ExposedTool::RunPython,
        ExposedTool::SubmitExecuteUnconfirmed,
        ExposedTool::SubmitOutcome,
    ];
    if section.get("expose").is_none() {
        return default;
    }
    let mut tools = Vec::new();
    for (text, at) in section.texts("expose", faults) {
        match ALL.iter().find(|tool| tool.name() == text) {
            Some(tool) if tools.contains(tool) => {
                let message = format!("tools.expose: {text} is already in the list");
                faults.push(Fault::at(at, &message));
            }
            Some(tool) => tools.push(*tool),
            None => {
                let names: Vec<_> = ALL.iter().map(|tool| tool.name()).collect();
                let (found, names) = (shown(text), names.join(", "));
                let message = format!("tools.expose: the names are {names}, not {found}");
                faults.push(Fault::at(at, &message));
            }
        }
    }
    tools
}

fn execution(
    section: &Section<'_>,
    default: &ExecutionConfig,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> ExecutionConfig {
    ExecutionConfig {
        timeout: section.seconds("timeout_seconds", default.timeout, faults),
        max_output_bytes: section.whole(
            "max_output_bytes",
            default.max_output_bytes,
            OUTPUT,
            faults,
        ),
        engines: engines::engines(section, &default.engines, base, faults),
        sandbox: section.word("sandbox", default.sandbox, SANDBOX, faults),
        python: path(section, "python", base, faults),
        max_tool_calls: section.whole("max_tool_calls", default.max_tool_calls, COUNT, faults),
        max_concurrent_calls: section.whole(
            "max_concurrent_calls",
            default.max_concurrent_calls,
            COUNT,
            faults,
        ),
        tool_call_timeout: section.seconds(
            "tool_call_timeout_seconds",
            default.tool_call_timeout,
            faults,
        ),
        trace: section.word("trace", default.trace, TRACE, faults),
        max_tool_result_bytes: section.whole(
            "max_tool_result_bytes",
            default.max_tool_result_bytes,
            RESULT,
            faults,
        ),
        memory_bytes: section.whole("memory_bytes", default.memory_bytes, MEMORY, faults),
        scratch_bytes: section.whole("scratch_bytes", default.scratch_bytes, SCRATCH, faults),
        max_threads: section.whole("max_threads", default.max_threads, COUNT, faults),
        max_runs: section.whole("max_runs", default.max_runs, COUNT, faults),
        check_arguments: section.switch("check_arguments", default.check_arguments, faults),
        structured_content: section.word(
            "structured_content",
            default.structured_content,
            STRUCTURED,
            faults,
        ),
        step_budget: step_budget(section, faults),
        pool: pool(section, default.pool, faults),
        container: container(section, &default.container, faults),
    }
}

/// A number of steps; without one none are counted.
fn step_budget(section: &Section<'_>, faults: &mut Vec<Fault>) -> Option<u64> {
    let entry = section.get("step_budget")?;
    let off = matches!(&entry.node.value, Value::Text { text, .. } if OFF.contains(&text.as_str()));
    (!off)
        .then(|| section.whole("step_budget", 0, STEPS, faults))
        .filter(|steps| *steps > 0)
}

/// Only the form is judged here: an image that will not do is no fault of a file whose tier is another one.
fn container(
    section: &Section<'_>,
    default: &ContainerConfig,
    faults: &mut Vec<Fault>,
) -> ContainerConfig {
    let name = section.path("container");
    let opened = section.get("container").and_then(|entry| {
        Section::open(
            &entry.node,
            name,
            "execution.container",
            &CONTAINER_KEYS,
            faults,
        )
    });
    let Some(section) = opened else {
        return default.clone();
    };
    ContainerConfig {
        engine: section.word("engine", default.engine, ENGINE, faults),
        image: section
            .text("image", faults)
            .map(|(text, _)| text.to_owned()),
    }
}

fn pool(section: &Section<'_>, default: PoolConfig, faults: &mut Vec<Fault>) -> PoolConfig {
    let name = section.path("pool");
    let opened = section
        .get("pool")
        .and_then(|entry| Section::open(&entry.node, name, "execution.pool", &POOL_KEYS, faults));
    let Some(section) = opened else {
        return default;
    };
    let max = section.whole("max", default.max, (1, WARM.1), faults);
    let warm = section.whole("warm", default.warm.min(max), WARM, faults);
    if warm > max
        && let Some(entry) = section.get("warm")
    {
        let message = format!("execution.pool.warm is {warm} and must not be above max, {max}");
        faults.push(Fault::at(entry.node.at, &message));
    }
    let start = section.word("start", default.start, START, faults);
    PoolConfig { warm, max, start }
}

fn journal(
    section: &Section<'_>,
    default: &JournalConfig,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> JournalConfig {
    JournalConfig {
        path: path(section, "path", base, faults).map(|path| base.join(path)),
        record: section.word("record", default.record, RECORD, faults),
        keep_runs: section.whole("keep_runs", default.keep_runs, COUNT, faults),
        keep_days: section.whole("keep_days", default.keep_days, COUNT, faults),
        keep_bytes: section.whole("keep_bytes", default.keep_bytes, KEEP, faults),
        share: section.word("share", default.share, SHARE, faults),
    }
}

/// A path: `~/` stands for the home directory, and one with a slash starts from the file's folder.
pub(super) fn path(
    section: &Section<'_>,
    key: &str,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> Option<PathBuf> {
    let (text, at) = section.text(key, faults)?;
    let path = section.path(key);
    if text.is_empty() || text.contains('\0') {
        faults.push(Fault::at(at, &format!("{path} must be a path")));
        return None;
    }
    if text.contains("${") {
        let message = format!("{path} takes no variables");
        faults.push(Fault::at(at, &message));
        return None;
    }
    let Some(found) = home_path(text, std::env::home_dir().as_deref()) else {
        let message = format!("{path}: cannot find the home directory that ~ stands for");
        faults.push(Fault::at(at, &message));
        return None;
    };
    Some(if text.contains('/') {
        base.join(found)
    } else {
        found
    })
}

#[cfg(test)]
mod tests {
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
            faults(
                "logging: {level: x}\nexecutions: {}\nexecution:\n  timeout: 5\n  pool: {min: 1}\n"
            ),
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
    fn what_is_not_built_yet_is_refused_by_name() {
        let text = "servers: [{name: a, transport: stdio, command: b, policy: x}]\n";
        assert_eq!(
            faults(text),
            ["1:51: servers[0].policy is not in this version",]
        );
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
}
